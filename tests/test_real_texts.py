"""Real texts are prepared with exact counts, and memory does not grow with the texts."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pytest

from cbert.data import prepared
from cbert.data.records import SPLITS
from tests.conftest import REAL_DATA, ROOT, run


def real(name):
    path = REAL_DATA / name
    if not path.exists():
        pytest.skip(f"the file is not at hand ({path})")
    return path


def prepare_real(folder, name, *flags):
    """Prepares a real file with BERT's vocabulary; returns its schema."""
    vocabulary = real("bert-base-uncased-vocab.txt")
    run(
        *("prepare", f"--input={real(name)}", "--kind=text", f"--vocabulary={vocabulary}"),
        *("--name=own", f"--data_dir={folder}", *flags),
    )
    return prepared.load_schema(str(folder), "own")


def test_restaurant8k(tmp_path):
    schema = prepare_real(tmp_path, "restaurant8k.jsonl.gz")
    loaded = [
        prepared.load(str(tmp_path), "own", s, schema) for s in ("train", "validation", "test")
    ]
    assert sum(map(len, loaded)) == 11_636
    assert schema.target.word_ends == "white_space"
    tags = np.concatenate([split.token_columns["tags"].ravel() for split in loaded])
    counts = np.bincount(tags[tags >= 0])
    assert dict(zip(schema.target.values, counts.tolist(), strict=True)) == {
        "O": 68_791,
        "I-date": 3_929,
        "I-people": 3_606,
        "B-people": 3_042,
        "B-time": 2_661,
        "B-date": 2_503,
        "B-last_name": 1_317,
        "B-first_name": 1_300,
        "I-time": 830,
    }


@pytest.mark.soak
def test_sgd(tmp_path):
    schema = prepare_real(tmp_path, "sgd.jsonl.gz", "--target=label")
    loaded = {
        s: prepared.load(str(tmp_path), "own", s, schema)
        for s in ("train", "validation", "test")
    }
    sizes = {split: len(columns) for split, columns in loaded.items()}
    assert sizes == {"train": 111_878, "validation": 19_384, "test": 24_863}
    assert sum(sizes.values()) == 156_125
    assert len({group for columns in loaded.values() for group in columns.groups}) == 17_193
    assert (len(schema.target.values), schema.target.values[0]) == (27, "INFORM")
    assert sum(schema.target.counts) == 111_878
    labels = np.concatenate([columns.targets["label"] for columns in loaded.values()])
    assert labels.min() == 0
    assert np.bincount(labels)[0] == 31_333
    assert sum(int(columns.lengths.sum()) for columns in loaded.values()) == 1_947_381


@pytest.mark.soak
def test_speeches_in_pairs(tmp_path):
    """Of 69 394 sentences of 240 addresses all but the last of each begin a pair."""
    schema = prepare_real(tmp_path, "speeches.jsonl.gz", "--pairs=next", "--max_length=64")
    sizes = [len(prepared.load(str(tmp_path), "own", split, schema)) for split in SPLITS]
    assert sum(sizes) == 69_394 - 240
    with gzip.open(real("speeches.jsonl.gz"), "rt") as file:
        names = [json.loads(line)["id"] for line in file]
    assert len(names) == 69_394
    assert sum(schema.target.counts) == sizes[0]


def peak_memory(folder, count):
    """The most memory, in bytes, that preparing so many long texts takes at once."""
    path = folder / f"{count}.jsonl"
    words = [f"word{number}" for number in range(500)]
    with path.open("w") as file:
        for number in range(count):
            text = " ".join(words[(number + index * 7) % 500] for index in range(400))
            file.write(json.dumps({"text": text, "label": "xy"[number % 2]}) + "\n")
    code = (
        "import resource, sys; from cbert.data import prepare, readers; "
        "options = prepare.PrepareOptions(kind='text'); "
        "prepare.prepare(readers.read(sys.argv[1], 'text'), sys.argv[2], 'own', options); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    command = [sys.executable, "-c", code, str(path), str(folder / str(count))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return 1024 * int(done.stdout)


@pytest.mark.soak
def test_memory_does_not_grow_with_the_texts(tmp_path):
    """The 8000 further texts are 25 MB, and their tokens as Python lists 100 MB."""
    assert peak_memory(tmp_path, 9_000) - peak_memory(tmp_path, 1_000) < 30e6
