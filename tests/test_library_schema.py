"""Records of one's own that a run's schema prepares, from Python."""

import dataclasses

import pandas
import pytest

import cbert
from cbert.data import prepared as prepared_lib
from tests.conftest import lines, run

TESTING = cbert.PrepareOptions(split_weights=(0, 0, 100))


def records(kind="set"):
    return [
        {
            **({"items": [f"i{n % 5}", f"i{n % 3 + 5}"]} if kind != "text" else {}),
            **({"text": f"word{n % 7} here", "label": n % 2} if kind == "text" else {}),
            "context": {"zip": f"{n % 4}000", "age": n},
        }
        for n in range(90)
    ]


@pytest.mark.parametrize("kind", ["set", "sequence", "text"])
def test_new_records_are_prepared_by_a_schema(tmp_path, kind):
    options = cbert.PrepareOptions(kind=kind, text=cbert.TextOptions(target="label"))
    if kind != "text":
        options = cbert.PrepareOptions(kind=kind)
    first = cbert.prepare(records(kind), "first", tmp_path, options)
    assert first.config is not None
    new = cbert.prepare(
        records(kind)[:7], "new", tmp_path, TESTING, schema=first.directory / "schema.json"
    )
    assert (new.summary["examples"], new.config) == ({"test": 7}, None)
    schema = prepared_lib.load_schema(str(tmp_path), "new")
    assert schema == prepared_lib.load_schema(str(tmp_path), "first")
    assert schema.kind == kind
    assert not (tmp_path / "new" / "config.py").exists()


def test_a_schema_of_texts_says_that_options_of_texts_are_right(tmp_path):
    options = cbert.PrepareOptions("text", text=cbert.TextOptions(target="label"))
    first = cbert.prepare(records("text"), "first", tmp_path, options)
    text = cbert.TextOptions(stratify=True)
    options = cbert.PrepareOptions(split_weights=(50, 0, 50), text=text)
    new = cbert.prepare(records("text"), "new", tmp_path, options, schema=first.directory)
    assert new.summary["examples"] == {"train": 46, "test": 44}  # Of 45 each, 23 and 22.


@pytest.mark.parametrize("from_file", [True, False])
def test_a_row_of_another_kind_than_the_schema_has_is_named_and_can_be_skipped(
    tmp_path, from_file
):
    """It is the wrong row, not those after it that differ from the first."""
    first = cbert.prepare(records(), "first", tmp_path)
    new = records()[:4]
    new[0]["context"]["age"] = "34"
    wrong = "the schema does not fit: context feature 'age' is numerical, not '34'; give a "
    wrong += "number, without quotes"
    if from_file:
        (tmp_path / "in.jsonl").write_text(lines(*new))
        flags = (f"--input={tmp_path}/in.jsonl", f"--data_dir={tmp_path}", "--name=new")
        flags += (f"--schema={first.directory}", "--split_weights=0,0,100")
        printed = run("prepare", *flags, "--skip_bad_rows=1").stdout
        assert printed.startswith(f"skipped {tmp_path}/in.jsonl:1: {wrong}\n")
        assert "test 3 " in printed
    else:
        with pytest.raises(cbert.UserError, match=f"^record 1: {wrong}$"):
            cbert.prepare(new, "new", tmp_path, TESTING, first.directory)
        done = cbert.prepare(new, "new", tmp_path, TESTING, first.directory, skip_bad_rows=1)
        assert done.summary["examples"] == {"test": 3}


def test_a_number_far_from_those_of_the_schema_names_its_record(tmp_path):
    first = cbert.prepare(records(), "first", tmp_path)
    new = [record | {"id": f"order {n}"} for n, record in enumerate(records()[:3])]
    new[1]["context"]["age"] = 1e20
    message = (
        r"^record 'order 1': the schema does not fit: context feature 'age' is 1e\+20, too"
    )
    with pytest.raises(cbert.UserError, match=message):
        cbert.prepare(new, "new", tmp_path, TESTING, schema=first.directory)


def test_records_longer_than_the_schema_takes_are_made_shorter(tmp_path):
    first = cbert.prepare(records(), "first", tmp_path)
    new = [{"items": ["i1", "i2", "i3"]}]
    with pytest.raises(
        cbert.UserError, match=r"^every example is longer than 2; give longer=s"
    ):
        cbert.prepare(new, "new", tmp_path, TESTING, schema=first.directory)
    options = dataclasses.replace(TESTING, longer="subsample")
    done = cbert.prepare(new, "new", tmp_path, options, schema=first.directory)
    assert done.summary["items"] == 2


def test_a_work_directory_stands_for_its_schema(trained, tmp_path):
    """Of a DataFrame too, in which numbers are names where the schema says so."""
    schema = prepared_lib.schema_file.load(trained)
    frame = pandas.DataFrame({"items": [list(schema.items[:2])] * 3})
    done = cbert.prepare(frame, "new", tmp_path, TESTING, schema=trained)
    assert done.summary["examples"] == {"test": 3}
    (tmp_path / "in.jsonl").write_text(lines({"items": list(schema.items[:2])}))
    flags = (f"--input={tmp_path}/in.jsonl", f"--data_dir={tmp_path}", "--name=other")
    run("prepare", *flags, f"--schema={trained}", "--split_weights=0,0,100")
    assert prepared_lib.load_schema(str(tmp_path), "other") == schema


def test_a_schema_decides_that_numbers_of_a_data_frame_are_names(tmp_path):
    first = cbert.prepare(records(), "first", tmp_path)
    frame = pandas.DataFrame({"items": [["i1", "i6"]] * 2, "zip": [1000, 2000], "age": [1, 2]})
    cbert.prepare(frame, "new", tmp_path, TESTING, schema=first.directory)
    schema = prepared_lib.load_schema(str(tmp_path), "new")
    test = prepared_lib.load(str(tmp_path), "new", "test", schema)
    codes = schema.feature("zip").codes
    assert sorted(test.context["zip"].tolist()) == sorted([[codes["1000"]], [codes["2000"]]])


def test_bad_records_are_left_out_and_named(tmp_path):
    bad = [*records(), {"items": []}, {"items": ["a", 3]}]
    done = cbert.prepare(bad, "own", tmp_path, skip_bad_rows=2)
    assert done.skipped == (
        "record 91: 'items' is empty; an example needs at least one item",
        "record 92: item 3 is not a string; write it in quotes",
    )
    assert sum(done.summary["examples"].values()) == 90
    with pytest.raises(
        cbert.UserError, match=r"record 92: .*\(after 1 skipped rows, the first"
    ):
        cbert.prepare(bad, "fewer", tmp_path, skip_bad_rows=1)
    assert not (tmp_path / "fewer" / "1.0.0").exists()
    with pytest.raises(
        cbert.UserError, match="no records but 2 that were skipped, the first re"
    ):
        cbert.prepare(bad[90:], "none", tmp_path, skip_bad_rows=2)


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        (
            {"split_weights": (0, 0, 100)},
            {},
            "is 0,0,100; training needs more than 0, unless a",
        ),
        (
            {"split_weights": (0, 0, 0)},
            {},
            "split_weights is 0,0,0; give split_weights=80,10,10",
        ),
        ({"min_count": 3, "kinds": {"zip": "categorical"}}, None, "min_count, kinds cannot be"),
        (
            {"kind": "text", "text": cbert.TextOptions(max_length=9)},
            None,
            "kind is 'text', and",
        ),
        ({}, {"schema": 3}, "schema is 3; give a path"),
        ({}, {"schema": "absent.json"}, "absent.json: no such schema"),
        ({}, {"skip_bad_rows": -1}, "skip_bad_rows is -1; it must be a whole number from 0"),
    ],
)
def test_impossible_arguments_are_refused(options, arguments, message, tmp_path):
    if arguments is None:
        first = cbert.prepare(records(), "first", tmp_path)
        arguments = {"schema": first.directory}
    options = cbert.PrepareOptions(**options)
    with pytest.raises(cbert.UserError, match=message):
        cbert.prepare(records(), "own", tmp_path, options, **arguments)
    assert not (tmp_path / "own" / "1.0.0").exists()
