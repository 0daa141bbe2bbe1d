"""Reading, validating, splitting and encoding records."""

import dataclasses
import gzip
import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from cbert.data import prepare, prepared, readers, record_parts, splits, tables
from cbert.data.hashing import uniform
from cbert.data.infer_schema import SchemaAccumulator
from cbert.data.records import SPLITS
from cbert.data.summary import format_summary
from cbert.data.validator import Validator
from cbert.errors import UserError
from cbert.schema import MultiValued, schema_file
from tests.conftest import infer

ROWS = [
    {
        "id": str(n),
        "group": f"g{n // 2}",
        "items": ["a", "b", "c", "d"][n % 3 :],
        "context": {
            "day": "mon" if n % 2 else "tue",
            "age": n,
            "tags": ["x", "y"][: n % 3],
            "image": [float(n), 1.0],
            "paid": n % 2 == 0,
            "note": None if n % 4 else "q",
        },
    }
    for n in range(60)
]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path, **options):
    return list(readers.read(path, **options))


def test_every_kind_is_recognised_and_encoded(tmp_path):
    parsed = read(write(tmp_path / "in.jsonl", ROWS))
    schema = infer(parsed)
    kinds = {feature.name: feature.kind for feature in schema.features}
    assert kinds == {
        "day": "categorical",
        "age": "numerical",
        "tags": "multi_valued",
        "image": "vector",
        "paid": "categorical",
        "note": "categorical",
    }
    assert schema.feature("paid").values == ("false", "true")
    day = schema.feature("day")
    assert day.encode(["tue", None, "sun"], {}).tolist() == [[day.codes["tue"]], [1], [2]]
    tags = schema.feature("tags")
    assert tags.encode([None, [], ["y", "z"]], {}).tolist() == [
        [1, 0],
        [0, 0],
        [tags.codes["y"], 2],
    ]
    age = schema.feature("age")
    np.testing.assert_allclose(age.encode([None, 29.5], {}), [[0, 0], [1, 0]], atol=1e-6)
    np.testing.assert_allclose(age.encode([29.5 + age.scale], {})[0, 1], 1.0, rtol=1e-6)
    image = schema.encode_feature("image", [None, [1.0, 2.0]])
    assert image.shape == (2, 3)
    assert image[:, 0].tolist() == [0, 1]


def test_rare_items_and_values_become_unknown(tmp_path):
    rows = [{"items": ["a", "b"], "context": {"c": "x"}}] * 3 + [
        {"items": ["b", "rare"], "context": {"c": "odd"}}
    ]
    parsed = read(write(tmp_path / "in.jsonl", rows))
    accumulator = SchemaAccumulator(min_count=2, value_min_count=2)
    schema = infer(parsed, accumulator)
    assert schema.items == ("b", "a")
    assert schema.counts == (4, 3)
    assert schema.encode_items([["rare", "a"]]).tolist() == [[-2, 1]]
    assert schema.encode_feature("c", ["odd"]).tolist() == [[2]]


def test_formats_give_the_same_records(tmp_path):
    plain = read(write(tmp_path / "in.jsonl", ROWS))
    with gzip.open(tmp_path / "in.jsonl.gz", "wt") as file:
        file.write((tmp_path / "in.jsonl").read_text())
    assert read(tmp_path / "in.jsonl.gz") == plain
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "in.parquet")
    assert read(tmp_path / "in.parquet") == plain


def test_numbers_of_a_table_name_items_groups_and_categories(tmp_path):
    """pandas writes whole numbers as 2.0 where some are missing."""
    path = tmp_path / "in.parquet"
    rows = [
        {"items": [7, 8], "id": 1.0, "group": 1.0, "zip": 3.0, "size": 1},
        {"items": [9], "id": 2.0, "group": None, "zip": None, "size": 2},
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    columns = tables.Columns(categorical=("zip",))
    first, second = readers.read(path, columns=columns)
    assert (first.items, second.items) == (["7", "8"], ["9"])
    assert (first.id, first.group, second.id) == ("1", "1", "2")
    assert (first.context, second.context) == (
        {"zip": "3", "size": 1},
        {"zip": None, "size": 2},
    )
    with pytest.raises(UserError, match="categorical names 'zap'; it may name: "):
        list(readers.read(path, columns=tables.Columns(categorical=("zap",))))
    with pytest.raises(UserError, match=r"no column 'items', only .*columns=items:COLUMN"):
        list(readers.read(path, columns=tables.Columns({"id": "items", "group": "id"})))


def test_splits_depend_on_the_group_alone(tmp_path):
    parsed = read(write(tmp_path / "in.jsonl", ROWS))
    shuffled = read(write(tmp_path / "other.jsonl", ROWS[::-1]))
    one = {record.id: splits.split_of(record) for record in parsed}
    assert one == {record.id: splits.split_of(record) for record in shuffled}
    by_group = {record.group: one[record.id] for record in parsed}
    assert all(by_group[record.group] == one[record.id] for record in parsed)
    points = [uniform(str(n)) for n in range(20_000)]
    np.testing.assert_allclose(np.histogram(points, 10, (0, 1))[0] / 20_000, 0.1, atol=0.01)
    parts = np.searchsorted([0.6, 0.9], points[:500], side="right")
    groups = [dataclasses.replace(parsed[0], group=str(n)) for n in range(500)]
    found = [splits.split_of(record, (60, 30, 10)) for record in groups]
    assert found == [SPLITS[part] for part in parts]


def test_a_records_own_split_wins(tmp_path):
    rows = [{**row, "split": "test" if n == 0 else "train"} for n, row in enumerate(ROWS)]
    parsed = read(write(tmp_path / "in.jsonl", rows))
    assert [splits.split_of(record) for record in parsed[:2]] == ["test", "train"]


def test_prepared_data_read_back(tmp_path):
    parsed = read(write(tmp_path / "in.jsonl", ROWS))
    _, summary = prepare.prepare(parsed, tmp_path / "data", "own", prepare.PrepareOptions())
    schema = prepared.load_schema(tmp_path / "data", "own")
    by_id = {record.id: record for record in parsed}
    total = 0
    for split in summary["examples"]:
        loaded = prepared.load(tmp_path / "data", "own", split, schema)
        total += len(loaded)
        for row, name in enumerate(loaded.ids):
            record = by_id[name]
            assert loaded.groups[row] == record.group
            assert json.loads(loaded.contexts[row]) == record.context
            codes = loaded.items[row, : loaded.lengths[row]]
            assert [schema.items[code] for code in codes] == record.items
            for feature in schema.features:
                expected = schema.encode_feature(feature.name, [record.context[feature.name]])
                assert (loaded.context[feature.name][row] == expected).all()
    assert total == 60 == sum(summary["examples"].values())
    assert summary["features"]["note"]["missing"] == 0.75
    assert schema_file.load(tmp_path / "data/own/1.0.0/schema.json") == schema


def test_long_sets_are_left_out_or_subsampled_and_counted(tmp_path):
    parsed = read(write(tmp_path / "in.jsonl", ROWS))
    for longer, left in (("leave_out", 40), ("subsample", 60)):
        options = prepare.PrepareOptions(max_items=3, longer=longer)
        _, summary = prepare.prepare(parsed, tmp_path / longer, "own", options)
        assert summary["longer"] == 20
        assert sum(summary["examples"].values()) == left
        assert summary["lengths"]["max"] == 3


def test_a_sequence_keeps_a_window(tmp_path):
    rows = [{"items": list("abcabc"), "context": {}}] * 30
    parsed = read(write(tmp_path / "in.jsonl", rows), kind="sequence")
    options = prepare.PrepareOptions(kind="sequence", max_items=4, longer="subsample")
    prepare.prepare(parsed, tmp_path / "data", "own", options)
    schema = prepared.load_schema(tmp_path / "data", "own")
    loaded = prepared.load(tmp_path / "data", "own", "train", schema)
    words = {"".join(schema.items[c] for c in row[row >= 0]) for row in loaded.items}
    assert words == {"abca", "bcab", "cabc"}
    reference = {"log_probability": [-1.0] * 6, "rank": [1] * 6}
    known = dataclasses.replace(parsed[0], reference=reference)
    assert record_parts.subsampled(known, 4, "sequence").reference is None


def test_a_sequence_keeps_its_latest_items(tmp_path):
    rows = [{"id": str(n), "items": list("abcab"[: n + 1]), "split": "train"} for n in range(5)]
    rows.append({"items": ["a"], "split": "validation"})
    parsed = read(write(tmp_path / "in.jsonl", rows), kind="sequence")
    options = prepare.PrepareOptions(kind="sequence", max_items=3, longer="latest", min_count=1)
    _, summary = prepare.prepare(parsed, tmp_path / "data", "own", options)
    schema = prepared.load_schema(tmp_path / "data", "own")
    loaded = prepared.load(tmp_path / "data", "own", "train", schema)
    kept = ["".join(schema.items[c] for c in row[row >= 0]) for row in loaded.items]
    assert sorted(zip(loaded.ids, kept, strict=True)) == [
        *[("0", "a"), ("1", "ab"), ("2", "abc"), ("3", "bca"), ("4", "cab")]
    ]
    cut = "2 examples above max_items, cut to their latest items"
    assert cut in format_summary(summary, "latest")
    with pytest.raises(UserError, match="longer=latest is for sequences; the kind is 'set'"):
        prepare.prepare(
            parsed, tmp_path / "data", "set", prepare.PrepareOptions(longer="latest")
        )


def test_the_features_of_the_summary_stand_below_their_heads(tmp_path):
    rows = [
        {"items": ["a", "b"], "context": {"age": n}, "split": split}
        for split in ("train", "validation")
        for n in range(4)
    ]
    parsed = read(write(tmp_path / "in.jsonl", rows))
    _, summary = prepare.prepare(parsed, tmp_path / "data", "own", prepare.PrepareOptions())
    head, row = format_summary(summary, "leave_out").splitlines()[-2:]
    assert head == "feature  kind          values  width  missing  unseen"
    assert row == "age      numerical          1     16     0.0%    0.0%"


def test_widths_and_unknown_names_are_refused():
    parsed = [Validator()(row, n) for n, row in enumerate(ROWS)]

    def inferred(**widths):
        return infer(parsed, SchemaAccumulator(widths=widths))

    assert inferred(age=5).feature("age").width == 5
    with pytest.raises(UserError, match="widths names 'agee'"):
        inferred(agee=5)


def test_empty_values_are_observed_and_numbers_never_pass_as_names():
    feature = MultiValued("tags", 4, ("x",))
    with pytest.raises(UserError, match="'tags' is multi_valued, not 3"):
        feature.encode([3], {})
