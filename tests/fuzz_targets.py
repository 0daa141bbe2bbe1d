"""The fuzzer's targets: each prepares a folder and yields a function that tries one input."""

import contextlib
import csv
import dataclasses
import gzip
import io
import json
import pathlib
import random
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow
import pyarrow.parquet

import cbert
from cbert import tasks
from cbert.data import examples, readers, splits, summary
from cbert.data.infer_schema import SchemaAccumulator
from cbert.data.overview import Overview
from cbert.data.synthetic import stylist
from cbert.errors import UserError
from cbert.model import parameter_tree
from cbert.schema import Schema, schema_file
from cbert.training import checksums, workdir
from cbert.training import config as config_lib
from cbert.training.checkpoint import Checkpoints
from cbert.training.state import Progress, TrainState
from configs import base
from tests import mutations
from tests.conftest import infer

LONGEST_LINE = 500
ROWS = [
    {
        "id": f"r{number}",
        "group": f"g{number // 2}",
        "items": ["a", "b", "c", "d"][number % 3 :],
        "context": {
            "day": ("mon", "tue")[number % 2],
            "age": number,
            "tags": ["x", "y"][: number % 3],
            "seen": ["d", "a", "odd"][: number % 4],
            "image": [number / 2, 1.0],
            "paid": number % 2 == 0,
            "note": None if number % 4 else "q",
        },
    }
    for number in range(8)
]


REFERENCED = {
    "items": ["a", "b"],
    "split": "test",
    "reference": {
        "log_probability": [-1.5, -0.5],
        "rank": [2, 1],
        "without_context": [-2.0, -0.7],
    },
}


@contextlib.contextmanager
def records(folder: pathlib.Path) -> Iterator[Callable]:
    """Files of records, as the commands read them, up to the coded columns."""
    table = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), table)
    cells = io.StringIO()
    writer = csv.writer(cells)
    writer.writerow(["id", "items", "age", "day"])
    writer.writerows([f"r{n}", "a|b", n, "mon" if n % 2 else "tue"] for n in range(12))
    good = "".join(json.dumps(row) + "\n" for row in ROWS).encode()

    def attempt(source: random.Random, huge: float) -> None:
        kind, name = source.choice(("set", "sequence")), "in.jsonl"
        draw = source.random()
        if draw < 0.9:
            valid = source.choice([*ROWS, REFERENCED])
            text = good + mutations.mutated(source, valid, huge) + b"\n"
            if draw < 0.05:
                name, text = "in.jsonl.gz", gzip.compress(text, 1)
                text = mutations.damaged(source, text) if draw < 0.03 else text
        elif draw < 0.95:
            name, text = "in.csv", mutations.damaged(source, cells.getvalue().encode())
        else:
            name, text = "in.parquet", mutations.damaged(source, table.getvalue())
        (folder / name).write_bytes(text)
        bad_rows = readers.BadRows(folder / name, source.choice((0, 1)))
        parsed = list(readers.read(folder / name, kind, bad_rows=bad_rows))
        skipped = bad_rows.messages
        assert all(len(line) < LONGEST_LINE and line.isprintable() for line in skipped)
        schema = infer(parsed, SchemaAccumulator(kind))
        assert schema_file.from_dict(json.loads(schema_file.text(schema))) == schema
        overview = Overview(kind)
        for record in parsed:
            splits.split_of(record)
            overview.add(record, "train")
            stored = examples.from_bytes(examples.to_bytes(record))
            assert (stored.items, stored.context) == (record.items, record.context)
        summary.format_summary(summary.summarize(overview, schema, 0), "leave_out")
        _encode(schema, [r.items for r in parsed], [r.context for r in parsed])

    yield attempt


def _encode(schema: Schema, items: list[list[str]], contexts: list[dict]) -> None:
    codes = schema.encode_items(items)
    assert (codes < len(schema.items)).all()
    for column in schema.encode_contexts(contexts).values():
        assert np.isfinite(column).all()


def _inferred(folder: pathlib.Path) -> Schema:
    """A schema with a feature of every kind."""
    parsed = readers.read(folder / "in.jsonl")
    return infer(parsed, SchemaAccumulator(kinds={"seen": "history"}))


@contextlib.contextmanager
def schemas(folder: pathlib.Path) -> Iterator[Callable]:
    """`schema.json`, as a person may have edited it."""
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    valid = json.loads(schema_file.text(_inferred(folder)))

    def attempt(source: random.Random, huge: float) -> None:
        path = folder / "schema.json"
        path.write_bytes(mutations.mutated(source, valid, huge))
        schema = schema_file.load(path)
        schema_file.save(schema, path)
        assert schema_file.load(path) == schema
        sizes = [feature.entries for feature in schema.features]
        if max([schema.max_items, *sizes]) < 10_000:
            _encode(schema, [["a", "unheard of"][: schema.max_items]], [{}])

    yield attempt


SCHEMA = stylist.schema(72)


@contextlib.contextmanager
def configs(folder: pathlib.Path) -> Iterator[Callable]:
    """`config.json`, and the progress and checksums in a checkpoint."""
    config = base.get_config("gsu")
    config.data.name = "own"
    (folder / "part").write_text("content")
    checksums.write(folder)
    written = json.loads((folder / checksums.NAME).read_text())
    known = dataclasses.asdict(Progress(4.5, 300, 2, {"loss": 3.25, "steps": 7.0}))

    def attempt(source: random.Random, huge: float) -> None:
        draw = source.random()
        if draw < 0.6:
            valid = config.to_dict()
            whole = source.random() < 0.1  # Few changed files are still configs.
            text = (
                json.dumps(valid).encode() if whole else mutations.mutated(source, valid, huge)
            )
            (folder / "config.json").write_bytes(text)
            loaded = config_lib.load(folder)
            config_lib.build_model(loaded, SCHEMA)
            tasks.task_options(loaded)
            UserError(config_lib.differences(loaded, config))
            config_lib.save(loaded, folder)
            assert config_lib.load(folder).to_dict() == loaded.to_dict()
        elif draw < 0.8:
            try:
                raw = json.loads(mutations.mutated(source, known, huge))
            except (ValueError, RecursionError):
                raise UserError("not JSON; the checkpoint's reader says so") from None
            Progress.from_dict(raw)
        else:
            text = mutations.mutated(source, written, huge)
            (folder / checksums.NAME).write_bytes(text)
            assert checksums.verify(folder)
            assert json.loads(text) == written

    yield attempt


@contextlib.contextmanager
def queries(folder: pathlib.Path) -> Iterator[Callable]:
    """Queries to a predictor with the initial parameters of a small model."""
    config = base.get_config("gsu")
    config.data.name = "own"
    config.model.update({"dimension": 16, "heads": 2, "layers": 1, "feed_forward": 32})
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    schema = _inferred(folder)
    run = folder / "run"
    run.mkdir()
    workdir.initialise_workdir(config, schema, run)
    model = config_lib.build_model(config, schema)
    params = parameter_tree.initialize(model, jax.random.key(0))
    with Checkpoints(run) as checkpoints:
        checkpoints.save(
            TrainState(jnp.asarray(1), params, {"count": jnp.zeros(())}), Progress()
        )
    predictor = cbert.load(run, checkpoint="last", batch_sizes=(4,))
    predictor.warm_up()
    valid = {
        "items": ["a", None, "c"],
        "context": ROWS[3]["context"],
        "k": 2,
        "slots": 1,
        "exclude": ["d"],
        "only": ["b", "d"],
    }

    def attempt(source: random.Random, huge: float) -> None:
        try:
            query = json.loads(mutations.mutated(source, valid, huge))
        except (ValueError, RecursionError):
            raise UserError("not JSON; whoever reads the text says so") from None
        query = query if isinstance(query, dict) else {"items": query}
        query = {name: query.get(name, value) for name, value in valid.items()}
        draw = source.random()
        if draw < 0.7:
            answer = predictor.complete(**query)
            predictions = [one for part in answer.predictions for one in part]
            values = [one.probability for one in predictions]
        elif draw < 0.85:
            answer = predictor.score(["a", "c"], query["context"])
            values = [score.log_probability for score in answer.scores]
        else:
            answer = predictor.explain(query["items"], query["context"], "b")
            values = [answer.probability, answer.log_odds, *answer.features.values()]
        assert np.isfinite(values).all(), values
        json.dumps(dataclasses.asdict(answer)).encode()

    yield attempt
