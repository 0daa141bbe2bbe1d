"""Folders of other models, damaged ones and wrong tensors are refused in one line."""

import importlib.util
import json
import shutil

import numpy as np
import pytest

from cbert.errors import UserError
from cbert.model import huggingface
from configs import text as text_config
from tests.bert_reference import RANDOM_BERT
from tests.conftest import some
from tests.huggingface_folders import CONFIG, TENSORS, folder_of, refusal


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "roberta"},
            "model_type is 'roberta'; it must be bert, the only architecture that is read; "
            "give another folder",
        ),
        ({"model_type": None}, "model_type is None; it must be bert"),
        (
            {"hidden_act": "gelu_new"},
            "hidden_act is 'gelu_new'; it must be one of relu, gelu; give",
        ),
        ({"position_embedding_type": "relative_key"}, "it must be absolute"),
        ({"is_decoder": True}, "is_decoder is True; it must be False; give another folder"),
        ({"hidden_size": "16"}, "hidden_size is '16'; it must be a whole number"),
        ({"hidden_size": True}, "hidden_size is True; it must be a whole number"),
        ({"hidden_size": 18}, "not a multiple of num_attention_heads, 4; give another folder"),
        (
            {"hidden_size": 32},
            "shape [50, 16], and by config.json it must have [50, 32]; give another folder",
        ),
        ({"num_hidden_layers": 3}, "there is no tensor encoder.layer.2.attention.self.query"),
        ({"num_hidden_layers": 2**31 - 1}, "there is no tensor encoder.layer.2."),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0; it must be at least 1"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps is nan; it must be a finite"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob is 1.0; it must be at least 0"),
        ({"vocab_size": 0}, "vocab_size is 0; it must be a number from 1"),
        ({"vocab_size": 49}, "word_embeddings.weight has the shape [50, 16]"),
        ({"intermediate_size": 25}, "intermediate.dense.weight has the shape [24, 16]"),
    ],
)
def test_configs_of_other_models_are_refused(tmp_path, changes, message):
    line = refusal(folder_of(tmp_path / "one", CONFIG | changes))
    assert message in line
    assert str(tmp_path / "one") in line


def test_a_folder_may_be_in_the_home_directory(monkeypatch):
    monkeypatch.setenv("HOME", str(RANDOM_BERT.parent))
    config = text_config.get_config(f"classification,hf:~/{RANDOM_BERT.name}")
    assert config.train.init_from == f"hf:~/{RANDOM_BERT.name}"
    assert config.model.dimension == 16


def test_files_that_are_not_there_or_not_whole_are_refused(tmp_path):
    assert "config.json: No such file or directory; give a folder" in refusal(tmp_path / "no")
    one = folder_of(tmp_path / "one")
    for text in ("", "{", "[1]", "null", "[" * 100_000, '{"a": ' + "9" * 5000 + "}", "\x00"):
        (one / "config.json").write_text(text)
        assert str(one / "config.json") in refusal(one)
    (one / "config.json").write_bytes(b"\xff\xfe")
    assert "it is not JSON" in refusal(one)
    (one / "config.json").write_text(json.dumps(CONFIG))
    (one / "model.safetensors").rename(one / "model-00001-of-00002.safetensors")
    (one / "model.safetensors.index.json").write_text("{}")
    assert "the weights are in several files; save the model again in one" in refusal(one)
    (one / "model.safetensors.index.json").unlink()
    assert "there is no model.safetensors and no pytorch_model.bin" in refusal(one)
    (one / "pytorch_model.bin").write_bytes(b"not a zip file")
    line = refusal(one)
    if importlib.util.find_spec("torch"):
        assert "pytorch_model.bin: it is not a file of tensors" in line
    else:
        assert "reading it needs torch; install torch, or use a folder with" in line


def test_tensors_that_are_wrong_are_refused(tmp_path):
    first = "bert.embeddings.word_embeddings.weight"
    table = TENSORS[first]
    untied = {"cls.predictions.decoder.weight": table + 1}
    for number, (changes, message) in enumerate(
        [
            ({first: table.T.copy()}, "has the shape [16, 50]"),
            ({first: table * np.nan}, "has values that are not finite"),
            ({first: table[0]}, "has the shape [16]"),
            (
                untied,
                "decoder.weight differs from embeddings.word_embeddings.weight; they must be "
                "tied; save the encoder alone, as BertModel, for a task with a head of its own",
            ),
            (
                {"classifier.weight": np.ones((1, 16), np.float32)},
                "classifier.weight has the shape [1, 16], and by config.json it must have "
                "[2, 16]; save the encoder alone, as BertModel",
            ),
            (
                {"embeddings.word_embeddings.weight": table},
                "two tensors for 'embeddings.word_embeddings.weight'; leave one",
            ),
            ({first: table.astype(np.complex64)}, "is of the type C64"),
        ]
    ):
        line = refusal(folder_of(tmp_path / str(number), tensors=TENSORS | changes))
        assert message in line
    for name in TENSORS:
        if name.startswith("bert.") and "pooler" not in name:
            shutil.rmtree(tmp_path / "without", ignore_errors=True)
            kept = {other: x for other, x in TENSORS.items() if other != name}
            line = refusal(folder_of(tmp_path / "without", tensors=kept))
            assert f"there is no tensor {name.removeprefix('bert.')};" in line


def damaged(folder, random):
    """Damages one of the two files: cut, bytes changed, or bytes inserted."""
    path = folder / ("config.json", "model.safetensors")[min(random.integers(4), 1)]
    data = bytearray(path.read_bytes())
    # The header of a safetensors file is where damage does the most.
    at = int(random.integers(len(data) if random.integers(2) else min(6000, len(data))))
    match random.integers(3):
        case 0:
            data = data[:at]
        case 1:
            for position in random.integers(at, min(at + 40, len(data)), random.integers(1, 5)):
                data[position] = random.integers(256)
        case 2:
            data[at:at] = random.bytes(random.integers(1, 9))
    path.write_bytes(data)


@pytest.mark.parametrize("count", some([300, 1000], 300))
def test_damaged_folders_are_refused_in_one_line_or_read(tmp_path, count):
    outcomes = {"read": 0, "refused": 0}
    for seed in range(count):
        shutil.rmtree(tmp_path / "one", ignore_errors=True)
        shutil.copytree(RANDOM_BERT, tmp_path / "one")
        damaged(tmp_path / "one", np.random.default_rng(seed))
        line = ""
        try:
            huggingface.read(tmp_path / "one")
        except UserError as error:
            line = str(error)
        assert not line or str(tmp_path / "one") in line
        outcomes["refused" if line else "read"] += 1
    assert outcomes["read"] > count / 20
    assert outcomes["refused"] > count / 2
