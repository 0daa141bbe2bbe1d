"""Texts from a file to a table through the commands, and pairs of sentences."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet
import pytest

from cbert.data import prepare, prepared
from cbert.data.prepare_options import TextOptions
from cbert.data.validator import Validator
from cbert.tasks import create
from cbert.training import config as config_lib
from tests import steps
from tests.conftest import REAL_DATA, run
from tests.models import drawn
from tests.text_data import small_text


@pytest.fixture
def restaurant8k():
    path = REAL_DATA / "restaurant8k.jsonl.gz"
    if not path.exists():
        pytest.skip(f"the file of booking replies is not at hand ({path})")
    return path


@pytest.mark.soak
def test_restaurant8k_from_records_to_a_table(restaurant8k, tmp_path):
    data, workdir = tmp_path / "data", tmp_path / "run"
    done = run(
        "prepare",
        "--kind=text",
        f"--input={restaurant8k}",
        "--name=restaurant8k",
        f"--data_dir={data}",
        "--vocabulary_size=2000",
        "--max_length=32",
    )
    assert "target      tags, 9 values" in done.stdout
    run(
        "train",
        "--config=configs/restaurant8k.py:gs",
        f"--config.data.dir={data}",
        "--config.model.dimension=32",
        "--config.model.feed_forward=64",
        "--config.train.steps=300",
        "--config.train.eval_every=300",
        "--config.train.length_buckets=1",
        "--config.optimizer.learning_rate=0.005",
        "--config.optimizer.warmup_steps=30",
        f"--workdir={workdir}",
    )
    done = run("evaluate", f"--workdir={workdir}", "--by=requested_slots")
    assert "test split of restaurant8k: 1,147 queries, 1,147 groups, 0 skipped" in done.stdout
    written = json.loads((workdir / "eval" / "test.json").read_text())
    assert written["results"]["model"]["accuracy"]["mean"] > 0.85
    assert written["results"]["model"]["span_f1"]["mean"] > 0.4
    assert written["results"]["model"]["span_f1"]["standard_error"] > 0
    table = pyarrow.parquet.read_table(workdir / "eval" / "test.parquet").to_pydict()
    assert len(table["id"]) == 1147
    assert all(map(len, table["tags"]))
    assert [len(tags) for tags in table["tags"]] == [len(tags) for tags in table["prediction"]]


@pytest.mark.soak
def test_pairs_of_sentences(tmp_path):
    """The label is 0 where the second text follows, as in BERT, and its loss is one of two."""
    validator = Validator("text")
    sentences = [
        {"id": f"{group}-{n}", "group": f"g{group}", "text": f"sentence number {n} of {group}"}
        for group in range(40)
        for n in range(10)
    ]
    read = (validator(row, line) for line, row in enumerate(sentences, 1))
    options = prepare.PrepareOptions(
        kind="text", text=TextOptions(vocabulary_size=100, max_length=32, pairs="next")
    )
    prepare.prepare(read, tmp_path, "texts_pairs", options)
    schema = prepared.load_schema(str(tmp_path), "texts_pairs")
    split = prepared.load(str(tmp_path), "texts_pairs", "train", schema)
    config = small_text("masked_language", tmp_path, "pairs", "none")
    config.task.masked_language.next_sentence = True
    _, rows = steps.steps(config, schema, 1)
    assert rows[0]["next_sentence_loss_count"] == 32
    assert rows[0]["next_sentence_loss"] / 32 == pytest.approx(np.log(2), abs=0.3)
    model = config_lib.build_model(config, schema)
    task = create(config, model, schema, split)
    params = drawn(model)
    # A model that is sure that every second text follows is right exactly where it does.
    classifier = params["next_sentence_classifier"]
    classifier["kernel"] = jnp.zeros_like(classifier["kernel"])
    classifier["bias"] = jnp.array([5.0, -5.0])
    columns = jax.tree.map(lambda column: jnp.asarray(column[:50]), split.columns)
    queries = task.queries(split, "one")
    positions = jnp.asarray(queries.positions[:50])
    predictions = task.predict(params, columns, {"positions": positions})
    follows = split.targets["label"][:50] == schema.target.codes["is_next"]
    assert np.asarray(predictions["next_sentence_correct"]).tolist() == follows.tolist()
    assert 0 < follows.sum() < 50
    names = [metric.name for metric in task.metrics]
    assert names[-1] == "next_sentence_accuracy"
