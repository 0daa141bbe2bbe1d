"""Kinds of context features are inferred, encoded, validated, sliced, counted, and added."""

import dataclasses
import json
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert.data import infer_schema, prepare, prepared, readers, records
from cbert.data.context_dropout import drop_features
from cbert.data.infer_schema import SchemaAccumulator
from cbert.errors import UserError
from cbert.model.context import NumericalProjection, feature_embedding
from cbert.schema import KINDS, History, Numerical, Schema, Vector, schema_file
from cbert.schema.numerical import NumberList
from cbert.schema.slices import by_range
from cbert.schema.vector import BLOCK
from tests.conftest import lines, refused, run

ITEMS = {"a": 0, "b": 1, "c": 2}
VIEWED = History("viewed", 8, max_items=3)

# An earlier version wrote the fields of every kind for each feature.
FLAT = {
    "kind": "set",
    "max_items": 2,
    "items": ["a", "b"],
    "counts": [2, 1],
    "features": [
        {
            "name": "age",
            "kind": "numerical",
            "width": 16,
            "values": [],
            "max_values": 1,
            "mean": 4.0,
            "scale": 2.5,
            "edges": [1.0, 3.0],
            "dimension": 0,
        }
    ],
}


def test_a_number_far_from_the_others_is_pointed_out(capsys):
    """Beside 1e10 the other numbers' bins are equal in float32."""
    numbers = NumberList("size", 8)
    for value in [*np.linspace(0, 1, 200), 1e10]:
        numbers.observe(value)
    assert len(numbers.finish().edges) == 15
    assert "'size': 1e+10 is so far from the other numbers" in capsys.readouterr().err
    near = NumberList("size", 8)
    for value in [*np.linspace(0, 1, 200), 1e3]:
        near.observe(value)
    near.finish()
    assert not capsys.readouterr().err


def test_a_flat_schema_loads_and_its_other_fields_are_checked():
    schema = schema_file.from_dict(FLAT)
    assert schema.features == (Numerical("age", 16, 4.0, 2.5, (1.0, 3.0)),)
    assert schema_file.from_dict(json.loads(schema_file.text(schema))) == schema
    age = {**FLAT["features"][0], "values": 3}
    with pytest.raises(UserError, match=r"features\[0\].values must be a list, not 3"):
        schema_file.from_dict({**FLAT, "features": [age]})


def test_a_history_keeps_order_and_the_latest_items():
    column = [["b", "a"], None, [], ["odd", "a", "a"], ["a", "b", "c", "a"]]
    assert VIEWED.encode(column, ITEMS).tolist() == [
        [1, 1, 0, -1],
        [0, -1, -1, -1],
        [1, -1, -1, -1],
        [1, -2, 0, 0],
        [1, 1, 2, 0],
    ]
    assert VIEWED.missing().tolist() == [[0, -1, -1, -1]]
    assert VIEWED.dropped().tolist() == [[0, -1, -1, -1]]
    with pytest.raises(UserError, match=r"'viewed' is history, not \[1\]"):
        VIEWED.encode([[1]], ITEMS)


def test_a_users_history_is_checked():
    assert VIEWED.validate(["a", "odd", "odd"], ITEMS) == ["odd"]
    # A longer one is cut to the latest, as in training.
    assert VIEWED.validate(["odd", "a", "b", "a", "b"], ITEMS) == ["odd"]
    latest = VIEWED.encode([["b", "b", "a", "b"], ["b", "a", "b"]], ITEMS)
    assert latest[0].tolist() == latest[1].tolist()


def test_a_history_is_sliced_by_length_and_counted_by_item():
    slices = VIEWED.slices([[], ["a"], ["a", "b"], ["a", "b", "c"], None])
    assert {label: inside.tolist() for label, inside in slices.items()} == {
        "0 items": [True, False, False, False, False],
        "1 items": [False, True, False, False, False],
        "2 items": [False, False, True, False, False],
        "3 items": [False, False, False, True, False],
    }
    coded = VIEWED.encode([["c", "a", "a"], ["odd"], None], ITEMS)
    levels, count = VIEWED.levels(coded, 2)
    assert count == 2
    assert [sorted(row[row > 0].tolist()) for row in levels] == [[1], [], []]


def test_a_dropped_history_is_missing():
    schema = Schema("set", 2, ("a", "b", "c"), (1, 1, 1), (VIEWED,))
    rows = 400
    context = {"viewed": jnp.asarray(VIEWED.encode([["a", "b"]] * rows, ITEMS))}
    shown = drop_features(jax.random.key(0), context, np.arange(rows), rows, 0.25, schema)
    dropped = np.asarray(shown["viewed"])[:, 0] == 0
    assert 0.18 < dropped.mean() < 0.32
    assert (np.asarray(shown["viewed"])[dropped] == VIEWED.missing()).all()
    assert (np.asarray(shown["viewed"])[~dropped] == [1, 0, 1, -1]).all()


ROWS = [
    {
        "id": f"r{number}",
        "items": ["a", "b"] if number % 3 else ["b", "c"],
        "split": ("train", "train", "validation", "test")[number % 4],
        "context": {
            "viewed": ["a", "c", "a", "odd"][: number % 5],
            "image": [number / 3, -1.5],
            "age": number * 0.1,
            "later": "x" if number == 2 else None,
        },
    }
    for number in range(40)
]


def test_inferring_needs_no_order_of_splits():
    """The longest history is in another split; a feature only seen there is missing."""
    rows = [
        {**row, "context": {**row["context"], "later": "xy"[n % 2]}}
        for n, row in enumerate(ROWS)
    ]
    rows[3]["context"]["viewed"] = ["a"] * 9
    validated = [records.Validator()(row, n) for n, row in enumerate(rows)]
    schemas = []
    for order in (validated, validated[::-1]):
        accumulator = SchemaAccumulator(kinds={"viewed": "history"})
        for record in order:
            train = record.split == "train"
            (accumulator.observe if train else accumulator.make_room)(record)
        schemas.append(accumulator.finish())
    one, other = schemas
    assert one.features == other.features
    assert one.feature("viewed") == History("viewed", 64, max_items=9)
    train = [row["context"] for row in rows if row["split"] == "train"]
    images = np.array([context["image"] for context in train])
    image = one.feature("image")
    np.testing.assert_allclose((image.mean, image.scale), (images.mean(), images.std()), 1e-15)
    assert one.feature("age").mean == np.mean([context["age"] for context in train])


def test_a_feature_that_training_lacks_is_refused():
    validated = [records.Validator()(row, n) for n, row in enumerate(ROWS)]
    accumulator = SchemaAccumulator()
    for record in validated:
        (accumulator.observe if record.split == "train" else accumulator.make_room)(record)
    with pytest.raises(UserError, match="'later' is missing in all training examples"):
        accumulator.finish()


def test_a_sliders_range_holds_negative_values_that_are_often_equal():
    values = NumberList("n", 8)
    for number in [-300_000.0, 1.0, 2.5] * 30:
        values.observe(number)
    slider = values.finish().slider()
    assert slider["low"] <= -300_000 < 2.5 <= slider["high"]


def test_a_vectors_moments_are_those_of_all_its_blocks():
    values = 1e3 + np.random.default_rng(0).standard_normal((BLOCK // 2, 5))
    accumulator = Vector.accumulator("image", None, 2)
    for row in values.tolist():
        accumulator.observe(row)
    feature = accumulator.finish()
    assert feature == Vector("image", 5, feature.mean, feature.scale, 5)
    np.testing.assert_allclose(feature.mean, values.mean(), rtol=1e-13)
    np.testing.assert_allclose(feature.scale, values.std(), rtol=1e-11)


def make_prepared(folder, path, columns=None):
    rows = list(readers.read(path, columns=columns))
    options = prepare.Options(kinds={"viewed": "history"})
    prepare.prepare(rows, folder / "data", "own", options)
    schema = prepared.load_schema(str(folder / "data"), "own")
    return schema, prepared.load(str(folder / "data"), "own", "train", schema)


def test_a_history_from_json_lines_and_csv(tmp_path):
    rows = [
        {"id": f"r{n}", "items": ["a", "b"], "group": f"g{n}", "context": {"viewed": viewed}}
        for n, viewed in enumerate([["b", "a"], ["a"], ["a", "odd", "b"], None] * 15)
    ]
    (tmp_path / "in.jsonl").write_text(lines(*rows))
    table = ["id,items,group,viewed"]
    table += [
        f"{r['id']},a|b,{r['group']},{'|'.join(r['context']['viewed'] or [])}" for r in rows
    ]
    (tmp_path / "in.csv").write_text("\n".join(table) + "\n")
    schema, split = make_prepared(tmp_path / "one", tmp_path / "in.jsonl")
    assert schema.features == (History("viewed", 64, max_items=3),)
    coded = dict(zip(split.ids, split.context["viewed"].tolist(), strict=True))
    wanted = ([1, 1, 0, -1], [1, 0, -1, -1], [1, 0, -2, 1], [0, -1, -1, -1])
    assert coded == {name: wanted[int(name[1:]) % 4] for name in coded}
    columns = readers.Columns(history=("viewed",))
    other, same = make_prepared(tmp_path / "other", tmp_path / "in.csv", columns)
    assert other == schema
    assert (same.context["viewed"] == split.context["viewed"]).all()


def test_the_history_flag(tmp_path):
    path = tmp_path / "in.jsonl"
    rows = [
        {**row, "context": {"viewed": row["context"]["viewed"], "age": 3 + n}}
        for n, row in enumerate(ROWS)
    ]
    path.write_text(lines(*rows))
    flags = (f"--input={path}", f"--data_dir={tmp_path}/data", "--name=own")
    printed = run("prepare", *flags, "--history=viewed").stdout
    assert ["viewed", "history", "4", "64", "0.0%", "0.0%"] in [
        row.split() for row in printed.splitlines()
    ]
    assert "'seen' is named as a history; the features are: viewed, age" in refused(
        "prepare", *flags[:2], "--name=other", "--history=seen"
    )
    assert "context 'age' is 3, numerical; it cannot be of the kind history" in refused(
        "prepare", *flags[:2], "--name=other", "--history=age"
    )


@dataclasses.dataclass(frozen=True)
class Hour(Vector):
    """A time of day such as `17:30`: the sine and cosine of its angle."""

    kind: ClassVar[str] = "hour"
    named_only: ClassVar[bool] = True

    @classmethod
    def holds(cls, value):
        return isinstance(value, str)

    @classmethod
    def check_raw(cls, name, value):
        pass

    @classmethod
    def accumulator(cls, name, width, min_count):
        return HourAccumulator(cls(name, 4 if width is None else width, dimension=2))

    def accepts(self, value):
        return self.holds(value)

    def _encode(self, column, items):
        def angle(text):
            hour, minute = map(int, text.split(":"))
            turned = 2 * math.pi * (hour + minute / 60) / 24
            return [math.sin(turned), math.cos(turned)]

        return self._rows([None if value is None else angle(value) for value in column])


class HourAccumulator:
    def __init__(self, feature):
        self._feature = feature

    def observe(self, value):
        pass

    def finish(self):
        return self._feature


def test_a_new_kind_is_one_class_and_one_line(monkeypatch):
    monkeypatch.setitem(KINDS, Hour.kind, Hour)
    rows = [{"items": ["a", "b"], "context": {"at": f"{n % 24}:00"}} for n in range(30)]
    validated = [records.Validator()(row, n) for n, row in enumerate(rows)]
    schema = infer_schema.infer(validated, SchemaAccumulator(kinds={"at": "hour"}))
    assert schema_file.from_dict(json.loads(schema_file.text(schema))) == schema
    coded = schema.encode_feature("at", ["6:00", None])
    np.testing.assert_allclose(coded, [[1, 1, 0], [0, 0, 0]], atol=1e-7)
    module = feature_embedding(schema.feature("at"), None, "feature_at")
    assert isinstance(module, NumericalProjection)


@pytest.mark.parametrize(
    "numbers",
    [
        20230101.0 + np.arange(400) % 28,
        1e6 + np.arange(400) % 50 / 10,
        np.array([0.1, 0.1, 1e300, 2.5, -1e22, 3.0]),
    ],
)
def test_ranges_hold_every_number_once(numbers):
    slices = by_range(numbers)
    assert (sum(inside.astype(int) for inside in slices.values()) == 1).all()
    assert len(slices) > 1


def test_a_vector_of_another_length_is_described():
    vector = Vector("photo", 8, 0.0, 1.0, dimension=2)
    with pytest.raises(UserError, match=r"'photo' is a vector of 2 finite numbers, not \[1\]"):
        vector.encode([[1]], {})


def test_bounds_of_ranges_are_readable():
    assert next(iter(by_range(20230101.0 + np.arange(400) % 28))) == "20230101 to 20230106"
    assert list(by_range(np.array([0.25, 0.5, 0.75, 1.0]))) == ["0.25", "0.5", "0.75", "1"]


def test_numbers_whose_squares_vanish_are_refused():
    numbers = Numerical.accumulator("p", None, 1)
    for value in (1e-200, 2e-200, 3e-190):
        numbers.observe(value)
    with pytest.raises(UserError, match="'p' has numbers whose squares are 0, such as 3e-190"):
        numbers.finish()
