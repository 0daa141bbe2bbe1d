"""Weights of examples: a weight of 2 is the example twice, and a weight of 0 is its absence."""

import dataclasses
import json
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow
import pyarrow.parquet
import pytest

import cbert
from cbert.data import columns, prepare, prepared, readers
from cbert.data.batching import Batches
from cbert.data.in_memory import InMemory
from cbert.data.streaming import Streaming
from cbert.data.validator import Validator
from cbert.errors import UserError
from cbert.schema import PAD_ITEM
from cbert.training import loop
from cbert.training import run as run_lib
from cbert.training import state as state_lib
from cbert.training.metric_accumulator import MetricAccumulator
from cbert.training.seed_run import SeedRun
from cbert.training.state import Progress
from tests import text_data
from tests.conftest import lines, small, some
from tests.steps import flat

TARGETS = {
    "masked_item": "",
    "classification": "label",
    "multi_label": "labels",
    "regression": "number",
    "tagging": "tags",
    "span": "answer",
}


def of_items(data_dir, **overrides):
    """A config, its schema, and sets of one item, which is masked wherever its set stands."""
    schema = prepared.load_schema(data_dir, "small")
    split = prepared.load(data_dir, "small", "train", schema)
    items = np.where(np.arange(split.items.shape[1]) < 1, split.items, PAD_ITEM)
    config = small(data__dir=data_dir, model__dropout=0.0, **overrides)
    return config, schema, dataclasses.replace(split, items=items)


def of_texts(task, directory, **overrides):
    target = TARGETS[task]
    text_data.prepare_texts(directory, target)
    split, schema = text_data.load(directory, target)
    return text_data.small_text(task, directory, target, **overrides), schema, split


def one_step(config, schema, split, rows, weights=None):
    """The gradient and the metrics of a step that takes these rows."""
    chosen = columns.selected(split, rows)
    if weights:
        weight = np.array(weights, np.float32)
        chosen = dataclasses.replace(chosen, example_columns={"weight": weight})
    made = run_lib.assemble(config, schema, chosen, columns.selected(split, range(8)))
    metrics = jax.device_get(made.advance(0)[1])
    moment = flat(optax.tree.get(state_lib.to_saved(made.state).opt_state, "mu"))
    return {name: value / (1 - config.optimizer.b1) for name, value in moment.items()}, metrics


@pytest.mark.parametrize("accumulate", some([1, 2], 1))
@pytest.mark.parametrize("task", some(TARGETS, "masked_item"))
def test_a_weight_is_how_often_an_example_counts(task, accumulate, data_dir, tmp_path):
    sizes = {"model__layers": 1, "train__batch_size": 4, "optimizer__clip_norm": 0.0}
    sizes["train__accumulate"] = accumulate
    if task == "masked_item":
        config, schema, split = of_items(data_dir, **sizes)
    else:
        config, schema, split = of_texts(task, tmp_path, **sizes)
    gradient, metrics = one_step(config, schema, split, [0, 0, 1, 2])
    for rows, weights in (([0, 0, 1, 2], [1, 1, 1, 1]), ([0, 3, 1, 2], [2, 0, 1, 1])):
        weighted, weighted_metrics = one_step(config, schema, split, rows, weights)
        for name, value in gradient.items():
            np.testing.assert_allclose(weighted[name], value, atol=1e-6, err_msg=name)
        for name, value in metrics.items():
            assert weighted_metrics[name] == pytest.approx(value, rel=1e-5), name
    norm = sum((value**2).sum() for value in gradient.values()) ** 0.5
    assert metrics["gradient_norm"] == pytest.approx(norm, rel=1e-4)
    assert norm > 1e-3


def test_the_logged_loss_is_a_mean_where_weights_are_small():
    progress = Progress()
    accumulator = MetricAccumulator(None, [types.SimpleNamespace(progress=progress)], 0)
    for loss in (4.0, 6.0):
        sums = {"loss": loss * 1e-4, "loss_count": 1e-4}
        accumulator.add({name: jnp.array([value]) for name, value in sums.items()})
    assert accumulator.take_means() == [{"loss": pytest.approx(5.0)}]
    assert progress.sums == {}


def test_steps_that_were_all_skipped_have_no_mean_loss():
    progress = Progress()
    accumulator = MetricAccumulator(None, [types.SimpleNamespace(progress=progress)], 0)
    sums = {"loss": [0.0, 0.0], "loss_count": [0.0, 0.0], "skipped": [1.0, 1.0]}
    accumulator.add({name: jnp.array(values) for name, values in sums.items()})
    assert accumulator.take_means() == [{"skipped": 2.0}]


def test_a_number_that_is_not_finite_names_its_seed_its_step_and_its_batch():
    """Two steps after the second one, of two seeds; steps of batches count from 0."""
    run = types.SimpleNamespace(
        ids=[f"id-{number}" for number in range(100)],
        batches=[lambda step, own=own: (own + 10 * step + np.arange(4), 4) for own in (0, 50)],
    )
    files = {
        "checkpoints": types.SimpleNamespace(steps=lambda: [2]),
        "writer": types.SimpleNamespace(write=lambda *_: None),
    }
    seeds = [SeedRun(name, name, Progress(), **files) for name in ("first", "second")]
    accumulator = MetricAccumulator(run, seeds, 2)
    accumulator.add({"loss": jnp.array([[1.0, 2.0], [3.0, np.nan]])})
    message = r"^second: .* at step 4 .*; its batch begins id-80, id-81, id-82$"
    with pytest.raises(UserError, match=message):
        accumulator.save()
    assert [seed.progress.sums for seed in seeds] == [{"loss": 4.0}, {"loss": 2.0}]


def rows_of(weights):
    return [
        {"id": str(n), "items": ["a", "b"], "context": {"c": "xy"[n % 2]}}
        | ({} if weight is None else {"weight": weight})
        for n, weight in enumerate(weights)
    ]


def prepared_split(directory, weights, split="train"):
    validator = Validator()
    read = (validator(row, line) for line, row in enumerate(rows_of(weights), 1))
    _, summary = prepare.prepare(read, directory, "own", prepare.PrepareOptions(overwrite=True))
    schema = prepared.load_schema(str(directory), "own")
    return prepared.load(str(directory), "own", split, schema), summary


def test_weights_are_stored_where_a_record_has_one(tmp_path):
    given = [None if n % 3 else n / 4 for n in range(90)]
    for _ in range(2):  # From the records, and from the cache.
        split, summary = prepared_split(tmp_path, given)
        expected = [1.0 if int(name) % 3 else int(name) / 4 for name in split.ids]
        assert split.columns["weight"].tolist() == expected
        assert split.mean_weight == pytest.approx(np.mean(expected))
    assert summary["weights"] == (0.0, 21.75)
    plain, summary = prepared_split(tmp_path, [None, 1, 1.0] * 30)
    assert set(plain.columns) == {"items", "context"}
    assert "weights" not in summary
    _, summary = prepared_split(tmp_path, [2, 3] * 45)
    assert summary["weights"] == (2.0, 3.0)


def test_a_stream_sends_the_weights_of_its_rows(tmp_path):
    split, _ = prepared_split(tmp_path, [n / 8 for n in range(90)])
    batches = Batches(split.lengths, 8, 0)
    streamed, rows = Streaming(split, [batches]).feed(0, 1)[0]
    _, numbers = InMemory(split, [batches]).feed(0, 1)[0]
    sent = np.take(streamed["weight"].reshape(-1), rows)
    assert sent.reshape(-1).tolist() == split.weights[numbers.reshape(-1)].tolist()


@pytest.mark.parametrize("weight", [-1, "2", True, float("nan"), float("inf"), 1e30, [1]])
def test_a_bad_weight_is_a_bad_row(weight):
    with pytest.raises(UserError, match=r"'weight' is .*; use a finite number that"):
        Validator()({"items": ["a"], "weight": weight}, 1)


def test_every_format_has_weights(tmp_path):
    rows = [{"items": ["a"], "weight": 0.5}, {"items": ["a"], "weight": None}]
    (tmp_path / "in.jsonl").write_text(lines(*rows))
    (tmp_path / "in.csv").write_text("items,weight\na,0.5\na,\n")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "in.parquet")
    for name in ("in.jsonl", "in.csv", "in.parquet"):
        assert [record.weight for record in readers.read(tmp_path / name)] == [0.5, 1.0]
    (tmp_path / "bad.csv").write_text("items,weight\na,heavy\n")
    with pytest.raises(UserError, match=r"bad.csv:2: 'weight' is 'heavy', not a number"):
        list(readers.read(tmp_path / "bad.csv"))


def test_a_training_split_without_weight_is_refused(data_dir):
    config, schema, split = of_items(data_dir, train__batch_size=4)
    with pytest.raises(UserError, match="every training example has the weight 0"):
        one_step(config, schema, split, range(4), [0, 0, 0, 0])


def test_a_seed_without_weight_in_a_window_goes_on(tmp_path, capsys):
    records = [
        {
            "items": [f"item{n % 7}", f"item{n % 5 + 7}"],
            "group": str(n),
            "weight": float(n % 10 == 0),
        }
        for n in range(200)
    ]
    data = cbert.prepare(records, "mine", tmp_path)
    overrides = {"batch_size": 4, "log_every": 1, "steps": 6, "length_buckets": 1}
    sizes = {"dimension": 16, "heads": 2, "layers": 1, "feed_forward": 16}
    config = cbert.read_config(
        f"{data.config}:none", {"train": {**overrides, "patience": 0}, "model": sizes}
    )
    folders = [tmp_path / "one", tmp_path / "two"]
    loop.train_seeds(config, [0, 1], folders)
    rows = [[json.loads(line) for line in (path / "metrics.jsonl").open()] for path in folders]
    windows = [["loss" in row for row in own if row["split"] == "train"] for own in rows]
    # In some step one of the seeds has a loss, and the other has none.
    assert any(one != other for one, other in zip(*windows, strict=True))
