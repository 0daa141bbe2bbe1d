"""Kinds of context features are inferred, encoded, validated, sliced, counted, and added."""

import dataclasses
import json
import math
from typing import ClassVar

import numpy as np
import pytest

from cbert.data.infer_schema import SchemaAccumulator
from cbert.data.validator import Validator
from cbert.errors import UserError
from cbert.model.context import NumericalProjection, feature_embedding
from cbert.schema import KINDS, History, MultiValued, Numerical, Vector, schema_file
from cbert.schema.numerical import NumberList
from cbert.schema.slices import by_range
from cbert.schema.tokens import default_width
from cbert.schema.vector import BLOCK
from tests.conftest import infer

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


def test_bins_by_hand():
    """A number on an edge is in the bin above it; the least one is no edge."""
    feature = inferred(range(17))
    assert feature.edges == tuple(map(float, range(1, 16)))
    levels, count = feature.levels(feature.encode([None, 0, 1, 14.9, 15, 99], {}), most=3)
    assert (levels.ravel().tolist(), count) == ([0, 1, 2, 15, 16, 16], 16)
    assert inferred([0] * 8 + [3] * 8).edges == (1.5, 3.0)


def inferred(values):
    numbers = NumberList("n", 8)
    for value in values:
        numbers.observe(value)
    return numbers.finish()


def test_a_flat_schema_loads_and_its_other_fields_are_checked():
    schema = schema_file.from_dict(FLAT)
    assert schema.features == (Numerical("age", 16, 4.0, 2.5, (1.0, 3.0)),)
    assert schema_file.from_dict(json.loads(schema_file.text(schema))) == schema
    age = {**FLAT["features"][0], "values": 3}
    with pytest.raises(UserError, match=r"features\[0\].values must be a list, not 3"):
        schema_file.from_dict({**FLAT, "features": [age]})


@pytest.mark.parametrize(
    ("fields", "of_age", "message"),
    [
        (
            {"items": ["a", "b", "new"]},
            {},
            "^counts has 2 numbers for 3 names; give one number for each n",
        ),
        ({"counts": [2, 1.0]}, {}, "^a number in counts is 1.0; it must be a whole number fr"),
        ({}, {"scale": 0}, "^feature 'age': mean is 4.0 and scale is 0; both must be sm"),
        ({}, {"edges": [1, "3"]}, "^feature 'age': an edge is '3'; edges must be finite numb"),
        (
            {},
            {"edges": [3.0000002, 3]},
            "'age': the edge 3 follows 3.0000002; edges must increase",
        ),
    ],
)
def test_a_slip_in_an_edited_schema_is_quoted(fields, of_age, message):
    edited = {**FLAT, **fields, "features": [{**FLAT["features"][0], **of_age}]}
    with pytest.raises(UserError, match=message):
        schema_file.from_dict(edited)


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
    validated = [Validator()(row, n) for n, row in enumerate(rows)]
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
    validated = [Validator()(row, n) for n, row in enumerate(ROWS)]
    accumulator = SchemaAccumulator()
    for record in validated:
        (accumulator.observe if record.split == "train" else accumulator.make_room)(record)
    with pytest.raises(UserError, match="'later' is missing in all training examples"):
        accumulator.finish()


def test_a_sliders_range_holds_negative_values_that_are_often_equal():
    slider = inferred([-300_000.0, 1.0, 2.5] * 30).slider()
    assert slider["low"] <= -300_000 < 2.5 <= slider["high"]


def test_default_widths_by_hand():
    """1.6 n^0.56 is 5.8, 8.1, 21.1 and 76.6 for the last four."""
    assert [default_width(n) for n in (0, 10, 18, 100, 1000)] == [8, 8, 16, 24, 64]


def test_several_unknown_strings_of_a_list_are_one_value():
    tags = MultiValued("tags", 8, ("x", "y"), max_values=2)
    assert tags.encode([["u", "v", "y"], ["y", "y", "x"]], {}).tolist() == [[2, 4], [4, 3]]
    assert tags.validate(["u", "v", "y"], {}) == ["u", "v"]
    with pytest.raises(UserError, match="'tags' holds 3 values; give at most 2"):
        tags.validate(["u", "x", "y"], {})
    counter = MultiValued.accumulator("tags", None, min_count=2)
    for value in (["x", "x"], ["y"], ["y", "x", "z", "z"]):
        counter.observe(value)
    assert counter.finish().values == ("x", "y")


def test_a_vectors_moments_are_those_of_all_its_blocks():
    values = 1e3 + np.random.default_rng(0).standard_normal((BLOCK // 2, 5))
    accumulator = Vector.accumulator("image", None, 2)
    for row in values.tolist():
        accumulator.observe(row)
    feature = accumulator.finish()
    assert feature == Vector("image", 5, feature.mean, feature.scale, 5)
    np.testing.assert_allclose(feature.mean, values.mean(), rtol=1e-13)
    np.testing.assert_allclose(feature.scale, values.std(), rtol=1e-11)


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

        angles = [None if value is None else angle(value) for value in column]
        return super()._encode(angles, items)


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
    validated = [Validator()(row, n) for n, row in enumerate(rows)]
    schema = infer(validated, SchemaAccumulator(kinds={"at": "hour"}))
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


def test_contexts_of_a_program_are_encoded_as_a_predictor_takes_them():
    rows = [
        {"items": ["a", "b"], "context": {"plan": plan, "age": age}}
        for plan, age in ((True, 3), (False, 5), ("x", 7)) * 2
    ]
    validator = Validator()
    schema = infer([validator(row, line) for line, row in enumerate(rows, 1)])
    given = [{"plan": True, "age": np.int64(3)}, {"plan": np.nan, "age": np.nan}, None]
    wanted = [{"plan": "true", "age": 3}, {}, {}]
    for name, column in schema.encode_recorded(wanted).items():
        np.testing.assert_array_equal(schema.encode_contexts(given)[name], column)
    for context, message in (
        ({"pln": "x"}, "no context feature 'pln'; did you mean 'plan'"),
        ({"zip": "x"}, "leave it out; it has: plan, age"),
        ({"plan": [True]}, "a list holds strings or numbers"),
        ([], "context must be an object"),
    ):
        with pytest.raises(UserError, match=message):
            schema.encode_contexts([context])
