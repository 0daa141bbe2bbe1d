"""Records in memory through the public Python interface, and arguments that it refuses."""

import numpy as np
import pandas
import pytest

import cbert
from cbert.data import in_python
from cbert.data import prepared as prepared_lib
from tests.conftest import small

ITSELF = {"items": ["a"]}
ITSELF["context"] = ITSELF


def test_a_data_frame_gives_the_records_of_its_rows():
    mappings = [
        {
            "id": "one",
            "items": ["a", "b"],
            "context": {"age": 3.5, "tags": ["x"], "town": "Bonn"},
        },
        {"id": "two", "items": ["c"]},
    ]
    frame = pandas.DataFrame(
        {
            "id": ["one", "two"],
            "items": [["a", "b"], np.array(["c"], object)],
            "age": [3.5, np.nan],
            "tags": [["x"], None],
            "town": ["Bonn", None],
        }
    )
    assert list(in_python.read(frame, "set")) == list(in_python.read(mappings, "set"))
    rows = frame[["age", "tags", "town"]].to_dict("records")  # A missing age is NaN there.
    mappings = [{"items": ["a"], "context": row} for row in rows]
    contexts = [record.context for record in in_python.read(mappings, "set")]
    assert contexts[1] == {"age": None, "tags": None, "town": None}
    numpy = [{"items": np.array(["a"]), "context": {"n": np.int64(3), "v": np.ones(2)}}]
    (record,) = in_python.read(numpy, "set")
    assert record.items == ["a"]
    assert record.context == {"n": 3, "v": [1.0, 1.0]}
    assert type(record.context["n"]) is int
    bought = pandas.DataFrame({"items": [["a"]], "bought": [[8, 9]]})
    (record,) = in_python.read(bought, "set", {"bought": "history"})
    assert record.context == {"bought": ["8", "9"]}


def test_times_and_intervals_are_text():
    """Nanoseconds since 1970 would be a numerical feature without a word."""
    day = np.datetime64("2024-05-01T00:00", "ns")
    given = [{"items": ["a"], "context": {"day": day, "days": np.array([day, day])}}]
    (record,) = in_python.read(given, "set")
    text = "2024-05-01T00:00:00.000000000"
    assert record.context == {"day": text, "days": [text, text]}
    months = pandas.PeriodIndex(["2024-05", None], freq="M")
    days = pandas.Categorical(pandas.to_datetime(["2024-05-01", None]))
    ages = pandas.cut([34, np.nan], [18, 30, 45])
    frame = pandas.DataFrame({"items": [["a"], ["b"]], "month": months, "day": days})
    frame["age"], frame["range"] = ages, pandas.arrays.IntervalArray(ages)
    contexts = [record.context for record in in_python.read(frame, "set")]
    shown = {"month": "2024-05", "day": "2024-05-01 00:00:00.000000"}
    assert contexts == [{**shown, "age": "(30, 45]", "range": "(30.0, 45.0]"}, {}]


def test_dropped_features_may_have_any_values(tmp_path):
    """There is no other way past a column that cannot be a feature."""
    rows = [
        {"items": ["a", "b"], "context": {"age": n, "bad": [{}, "x", 1][n % 3]}}
        for n in range(60)
    ]
    with pytest.raises(cbert.UserError, match="record 1: context 'bad' is"):
        cbert.prepare(rows, "mine", tmp_path)
    options = cbert.PrepareOptions(drop=("bad",))
    prepared = cbert.prepare(rows, "mine", tmp_path, options)
    assert list(prepared.summary["features"]) == ["age"]


def test_numbers_of_a_data_frame_are_names_where_the_kind_says_so(tmp_path):
    frame = pandas.DataFrame(
        {
            "items": [["a", "b"], ["b", "c"], ["a", "c"]] * 20,
            "group": [float(n) if n % 7 else None for n in range(60)],
            "zip": [10115.0, None, 20095.0] * 20,
        }
    )
    options = cbert.PrepareOptions(kinds={"zip": "categorical"})
    prepared = cbert.prepare(frame, "mine", tmp_path, options)
    (feature,) = prepared_lib.load_schema(tmp_path, "mine").features
    assert (feature.kind, sorted(feature.values)) == ("categorical", ["10115", "20095"])
    assert prepared.summary["features"]["zip"]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"items": ["a"]}, {"items": ["b", "b"]}], "record 2: item 'b' occurs twice"),
        ([], "there are no records"),
        ({"items": ["a"]}, "the records are .*; give a list of mappings"),
        (5, "the records are 5; give a list of mappings"),
        (
            pandas.DataFrame({"item": [["a"]]}),
            "the DataFrame: no column 'items', only 'item'; rename one, or of a file",
        ),
        (pandas.DataFrame(), "the DataFrame: no column 'items'; rename one, or of a file map"),
        (
            pandas.DataFrame({"text": ["a b"], "label": ["x"]}),
            "no column 'items', only 'text', 'label'; the records hold texts, so give kind=text"
            r"; kind is of options=cbert\.PrepareOptions\(kind=\.\.\.\)$",
        ),
        (pandas.DataFrame({"items": [["a"], 3]}), "the DataFrame has mixed types in a column"),
        (pandas.DataFrame({"items": [["a"]], "n": [2**70]}), "the DataFrame is not readable"),
        (
            pandas.DataFrame({"items": [["a"]], "n": pandas.arrays.SparseArray([1])}),
            "the DataFrame is not readable .*[sS]parse",
        ),
        (
            pandas.DataFrame({"n": [[1]], "items": [{"a", "b"}]}),
            r"the DataFrame's 'items' holds sets, .*; give lists \(pandas: \.map\(sorted\)\)$",
        ),
        ([ITSELF], r"record 1: context 'context' is .*; a value holds no others"),
        ([{"items": ["a"], "context": {"x": [[1]]}}], "not both, and no lists$"),
        ([{"items": ["a"], "context": {1: "x"}}], "record 1: the name of a .* is 1; use a str"),
        ([{"items": ["a"], "group": "g\0"}], "record 1: 'group' is .* with a NUL character"),
    ],
)
def test_records_that_are_refused(records, message, tmp_path):
    with pytest.raises(cbert.UserError, match=message):
        cbert.prepare(records, "mine", tmp_path)
    assert not (tmp_path / "mine" / "1.0.0").exists()


def test_a_refusal_says_where_the_option_that_it_advises_belongs(tmp_path):
    splits = ("train", "train", "validation", "test")
    records = [{"items": ["a"], "context": {"n": 3}, "split": split} for split in splits]
    with pytest.raises(cbert.UserError) as refusal:
        cbert.prepare(records, "mine", tmp_path)
    advice = "context feature 'n' is always 3 in training; give drop=n"
    where = "; drop is of options=cbert.PrepareOptions(drop=...)"
    assert str(refusal.value) == advice + where


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"longer": "subsmaple"}, "longer is 'subsmaple'; it must be one of leave_out, subs"),
        ({"kind": "bag"}, "kind is 'bag'"),
        ({"drop": "age"}, "drop is 'age'; give a list of names"),
        ({"kinds": {"age": "histroy"}}, "the kind of 'age' is 'histroy'"),
        ({"min_count": "2"}, "min_count is '2'"),
        ({"max_items": 0}, "max_items is 0"),
        ({"widths": {"age": "8"}}, "the width of 'age' is '8'"),
        ({"split_weights": ("80", "10", "10")}, "split_weights is '80','10','10'; give split"),
        (
            {"text": cbert.TextOptions(pack=True, max_length=64)},
            "max_length, pack can be given for texts only, and the kind is 'set'",
        ),
        (
            {"kind": "text", "max_items": 64, "min_count": 5, "kinds": {"bought": "history"}},
            "min_count, max_items, history can be given for sets and sequences only",
        ),
        (
            {"kind": "text", "text": cbert.TextOptions("vocab.txt", vocabulary_size=500)},
            "vocabulary_size belongs to vocabulary=train",
        ),
        ({"longer": "subsample"}, "longer=subsample needs a limit; give max_items=N, too"),
        (
            {"kind": "text", "text": cbert.TextOptions(stride=-1)},
            "stride is -1; it must be a whole number from 0 to",
        ),
        (
            {"kind": "text", "text": cbert.TextOptions(pairs="nxt")},
            "pairs is 'nxt'; it must be 'nex",
        ),
    ],
)
def test_options_that_are_refused(options, message, tmp_path):
    with pytest.raises(cbert.UserError, match=message):
        cbert.prepare([{"items": ["a"]}], "mine", tmp_path, cbert.PrepareOptions(**options))
    assert not (tmp_path / "mine").exists()


WEIGHTS = "give split_weights=80,10,10, say: three whole numbers for train, validation and test"


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("kinds", ["s"], "kinds is ['s']; give a dict from feature to kind"),
        ("widths", [3], "widths is [3]; give a dict from feature to width"),
        ("text", None, "text is None; give TextOptions"),
        ("text", {}, "text is {}; give TextOptions"),
        ("split_weights", None, f"split_weights is None; {WEIGHTS}"),
        ("split_weights", "8,1,1", f"split_weights is '8,1,1'; {WEIGHTS}"),
        ("split_weights", (8, True, 1), f"split_weights is 8,True,1; {WEIGHTS}"),
        ("drop", None, "drop is None; give a list of names"),
        ("drop", [["a"]], "a name in drop is ['a']; give a string"),
        ("overwrite", "no", "overwrite is 'no'; give True or False"),
        (
            "min_count",
            True,
            "min_count is True; it must be a whole number from 1 to 2147483647",
        ),
        (
            "kind",
            np.array(["set"]),
            "kind is array(['set'], dtype='<U3'); it must be one of set, sequence, text",
        ),
    ],
)
def test_options_of_another_type_are_refused(option, value, message, tmp_path):
    with pytest.raises(cbert.UserError) as refusal:
        cbert.prepare(
            [{"items": ["a"]}], "m", tmp_path, cbert.PrepareOptions(**{option: value})
        )
    assert str(refusal.value) == message
    assert not (tmp_path / "m").exists()


SIZE = "a whole number from 100 to 1000000"


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("vocabulary", 3, "vocabulary is 3; give the path of a file, or 'train'"),
        *(
            ("vocabulary_size", value, f"vocabulary_size is {value!r}; it must be {SIZE}")
            for value in (99, 0, -1, 1_000_001, True, "x", 200.0, None)
        ),
        ("lowercase", "no", "lowercase is 'no'; give True, False or None"),
        ("max_length", "abc", "max_length is 'abc'; it must be a whole number from 5 to 512"),
        ("max_length", 513, "max_length is 513; it must be a whole number from 5 to 512"),
        (
            "target",
            "lable",
            "target is 'lable'; it must be one of label, labels, tags, number, answer, none",
        ),
        ("pack", "no", "pack is 'no'; give True or False"),
        ("stride", None, "stride is None; it must be a whole number from 0 to 2147483647"),
    ],
)
def test_options_of_texts_that_are_refused(option, value, message, tmp_path):
    options = cbert.PrepareOptions("text", text=cbert.TextOptions(**{option: value}))
    with pytest.raises(cbert.UserError) as refusal:
        cbert.prepare([{"text": "a word"}], "mine", tmp_path, options)
    assert str(refusal.value) == message
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: cbert.prepare([], 5, path), "name is 5; give a string"),
        (lambda path: cbert.prepare([], "a", 3), "data_dir is 3; give a path"),
        (lambda path: cbert.prepare([], "a", path, {}), "options is {}; give PrepareOptions"),
        (lambda path: cbert.train(small(), path, print), "callbacks is .*; give Callbacks"),
        (lambda _: cbert.Callbacks(step=5), "the callback step is 5; give a function"),
        (
            lambda path: cbert.evaluate(path, masking="both"),
            "masking is 'both'; it must be one of each, one, last",
        ),
        (
            lambda path: cbert.evaluate(path, masking="last"),
            "masking is 'last', and sets have no order; take 'each' or 'one'",
        ),
    ],
)
def test_arguments_of_another_type_are_refused(call, message, trained, tmp_path):
    with pytest.raises(cbert.UserError, match=message):
        call(trained if "masking" in message else tmp_path)
    assert not any(tmp_path.iterdir())
