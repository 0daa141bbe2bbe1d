"""The fuzzer's targets for texts; see `fuzz_targets`."""

import contextlib
import copy
import dataclasses
import functools
import json
import pathlib
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cbert.data import readers, text_columns
from cbert.data.infer_schema import FeatureAccumulator
from cbert.data.infer_target import TargetAccumulator
from cbert.data.records import text_of
from cbert.data.text import Tokenizer
from cbert.errors import UserError
from cbert.inference.text_queries import TextQuery
from cbert.schema import schema_file
from tests import mutations, text_predictors
from tests.conftest import serving
from tests.fuzz_targets import LONGEST_LINE
from tests.test_serving import ask

CONTEXT = {"mood": "warm", "age": 31}
PAIR = {"id": "a", "text": "Please, a red seat?", "text_b": "is 7", "context": CONTEXT}
ROWS = {
    "label": [{**PAIR, "label": "x"}, {"text": "table's 8", "label": "y", "group": "g"}],
    "labels": [{**PAIR, "label": ["x", "y"]}, {"text": "is é", "label": []}],
    "number": [{**PAIR, "label": 2.5}, {"text": "blue", "label": -1, "split": "train"}],
    "tags": [{"words": ["red", "7 seats"], "tags": ["O", "B-time"], "context": CONTEXT}],
    "answer": [{**PAIR, "answer": {"text": "7", "start": 3}}, {"text": "is?", "answer": None}],
}


@contextlib.contextmanager
def text_records(folder: pathlib.Path) -> Iterator[Callable]:
    """Files of texts, as `prepare` reads them, up to the coded columns."""
    bare = text_predictors.schema("classification")

    def attempt(source: random.Random, huge: float) -> None:
        kind = source.choice(sorted(ROWS))
        good = "".join(json.dumps(row) + "\n" for row in ROWS[kind]).encode()
        text = mutations.mutated(source, {**source.choice(ROWS[kind]), "id": "b"}, huge)
        (folder / "in.jsonl").write_bytes(good + text + b"\n")
        bad_rows = readers.BadRows(folder / "in.jsonl", source.choice((0, 1)))
        records = list(readers.read(folder / "in.jsonl", "text", bad_rows=bad_rows))
        skipped = bad_rows.messages
        assert all(len(line) < LONGEST_LINE and line.isprintable() for line in skipped)
        features = FeatureAccumulator(value_min_count=1)
        target = TargetAccumulator(kind)
        for record in records:
            features.make_room(record.context)
            features.observe(record.context)
            target.observe(text_of(record))
        schema = dataclasses.replace(bare, features=features.finish(), target=target.finish())
        assert schema_file.from_dict(json.loads(schema_file.text(schema))) == schema
        texts = [text_of(record) for record in records]
        items, columns, targets = text_columns.encode(texts, schema, Tokenizer(schema))
        assert ((items >= -1) & (items < len(schema.items))).all()
        assert {len(column) for column in (*columns.values(), *targets.values())} == {
            len(texts)
        }
        contexts = schema.encode_contexts([record.context for record in records])
        assert all(np.isfinite(column).all() for column in contexts.values())

    yield attempt


QUERIES = {
    "masked_language": {"text": "a [MASK] is [MASK]", "text_b": "red", "k": 2},
    "tagging": {"words": ["7 seats", "please"]},
    "span": {"text": "is?", "text_b": "a red seat"},
}


def _without_k(query: dict[str, Any]) -> dict[str, Any]:
    """What `explain` takes of a query; it lists no predictions."""
    return {name: value for name, value in query.items() if name != "k"}


@contextlib.contextmanager
def texts(folder: pathlib.Path) -> Iterator[Callable]:
    """Queries to predictors of texts, which predict or explain them."""
    del folder
    predictors = {task: text_predictors.assemble(task) for task in QUERIES}
    for task, predictor in predictors.items():
        predictor.warm_up()
        predictor.explain(**_without_k(QUERIES[task]), context=CONTEXT)

    def attempt(source: random.Random, huge: float) -> None:
        task = source.choice(sorted(QUERIES))
        valid = {**QUERIES[task], "context": CONTEXT}
        if task == "tagging" and source.random() < 0.5:
            valid = {"text": "Please, 7 seats", "context": CONTEXT}
        try:
            row = json.loads(mutations.mutated(source, valid, huge))
        except (ValueError, RecursionError):
            raise UserError("not JSON; whoever reads the text says so") from None
        row = row if isinstance(row, dict) else {"text": row}
        names = [field.name for field in dataclasses.fields(TextQuery)]
        given = {name: row[name] for name in names if name in row}
        if source.random() < 0.8:
            result = predictors[task].predict(**given).to_dict()
        else:
            result = predictors[task].explain(**_without_k(given)).to_dict()
        json.dumps(result).encode()
        assert np.isfinite(list(_numbers(result))).all(), result

    yield attempt


REQUESTS = {
    "/predict": {**QUERIES["masked_language"], "context": CONTEXT},
    "/predict_batch": {"queries": [QUERIES["masked_language"], {"text": "[MASK]"}]},
    "/embed": {"queries": [{**QUERIES["span"], "context": CONTEXT}], "pooling": "mean"},
    "/explain": {"text": "Please, [MASK]", "context": CONTEXT},
}
# Half a surrogate is no text; such bodies are among the mutated ones.
WHOLE = [word for word in mutations.WORDS if not re.search("[\ud800-\udfff]", word)]
PIECES = (*WHOLE, *text_predictors.WORDS, "[MASK]", "[CLS]", "[mask]", "[MASK")


@contextlib.contextmanager
def requests(folder: pathlib.Path) -> Iterator[Callable]:
    """Requests to a server of texts, which must have written nothing to its log at its end."""
    predictor = text_predictors.assemble("masked_language")
    text_predictors.save(predictor, folder / "run")
    with serving(f"--workdir={folder / 'run'}", "--checkpoint=last") as (process, address):
        yield functools.partial(send, address)
        process.terminate()
        assert process.communicate(timeout=30) == ("ended\n", "")


def send(address: str, source: random.Random, huge: float) -> None:
    """Sends one body; raises `UserError` where it is refused in one sentence."""
    path = source.choice(sorted(REQUESTS))
    body = copy.deepcopy(REQUESTS[path])
    asked = source.choice(body["queries"]) if "queries" in body else body
    pieces = source.choices(PIECES, k=source.choice((1, 3, 30)))
    asked["text"] = source.choice(("", " ")).join(["[MASK]", *pieces])
    as_written = source.random() < 0.5  # The text alone is unusual.
    mutated = mutations.mutated(source, {"model": "main", **body}, huge)
    status, answer = ask(address, path, body if as_written else mutated)
    if 400 <= status < 500 and list(answer) == ["error"]:
        raise UserError(answer["error"])
    assert status == 200, (status, answer)
    assert np.isfinite(list(_numbers(answer))).all(), answer


def _numbers(value: Any) -> Iterator[float]:
    """The numbers within a result."""
    if isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _numbers(one)
    elif isinstance(value, float):
        yield value
