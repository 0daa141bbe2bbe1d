"""Properties of every input: round trips, errors of one printable line, and a short fuzzing."""

import dataclasses
import json
import pathlib
import tempfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cbert.data import column_cache, columns, prepare, readers
from cbert.data.summary import format_summary
from cbert.data.validator import Validator
from cbert.errors import UserError, one_line, printable, shown
from cbert.evaluation import evaluate
from cbert.schema import (
    FARTHEST,
    KINDS,
    SEQUENCE,
    SET,
    SPECIAL_VALUES,
    Categorical,
    MultiValued,
    Numerical,
    Schema,
    TokenFeature,
    Vector,
    schema_file,
)
from cbert.training import checksums, loop
from tests import fuzz
from tests.conftest import ROOT, lines, refused, run, small, some

settings.register_profile(
    "cbert",
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("cbert")

ANY = st.text(st.characters(), max_size=40)  # Lone surrogates and control characters too.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAME = TEXT.filter(bool)
FINITE = st.floats(-1e29, 1e29)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY, inner, max_size=4),
    max_leaves=20,
)


@given(ANY)
def test_what_is_printed_is_printable(text):
    for shown_as in (printable(text), one_line(text), str(UserError(text)), shown(text)):
        assert shown_as.isprintable()
        assert len(shown_as) <= 12 * len(text) + 2
    assert printable(printable(text)) == printable(text)
    if text.isprintable():
        assert printable(text) == text


def test_terminal_escapes_are_shown():
    assert printable("a\x1b[31mb\u202ec\ud800") == "a\\x1b[31mb\\u202ec\\ud800"
    assert one_line("a\n  b\x07") == "a b\\x07"
    line = one_line("start " + "x" * 10_000 + " end")
    assert line.startswith("start xxx")
    assert line.endswith("xxx end")
    assert len(line) < 500


def attempted(function, *arguments):
    """The result of a function, None if it raises `UserError`."""
    try:
        return function(*arguments)
    except UserError:
        return None


WIDTHS = st.integers(1, 100)
VALUES = st.lists(TEXT, unique=True, max_size=5).map(tuple)
SCALES = st.floats(5e-324, 1e29)
EDGES = st.lists(FINITE, unique=True, max_size=5).map(lambda e: tuple(sorted(e)))
FEATURES = st.one_of(
    st.builds(Categorical, TEXT, WIDTHS, VALUES),
    st.builds(MultiValued, TEXT, WIDTHS, VALUES, st.integers(1, 9)),
    st.builds(Numerical, TEXT, WIDTHS, FINITE, SCALES, EDGES),
    st.builds(Vector, TEXT, WIDTHS, FINITE, SCALES, st.integers(1, 4)),
)


@st.composite
def schemas(draw) -> Schema:
    items = draw(st.lists(TEXT, min_size=2, max_size=6, unique=True))
    return Schema(
        kind=draw(st.sampled_from([SET, SEQUENCE])),
        max_items=draw(st.integers(1, 20)),
        items=tuple(items),
        counts=tuple(draw(st.integers(0, 10**6)) for _ in items),
        features=tuple(draw(st.lists(FEATURES, max_size=4, unique_by=lambda f: f.name))),
    )


@given(schemas())
def test_a_schema_is_the_same_after_its_file(schema):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "schema.json"
        schema_file.save(schema, path)
        assert schema_file.load(path) == schema


@given(st.data(), schemas())
def test_codes_are_finite_and_in_range(data, schema):
    values = {
        "categorical": TEXT,
        "multi_valued": st.lists(TEXT, max_size=12),
        "numerical": st.floats(-1e30, 1e30, exclude_min=True, exclude_max=True),
    }
    for feature in schema.features:
        numbers = st.lists(FINITE, min_size=feature.entries, max_size=feature.entries)
        column = data.draw(st.lists(st.none() | values.get(feature.kind, numbers), max_size=4))
        coded = attempted(feature.encode, column, schema.codes)
        if coded is None:
            seen = np.array([value for value in column if value is not None], float)
            assert np.abs(seen - feature.mean).max() > FARTHEST * feature.scale
            continue
        assert np.isfinite(coded).all()
        assert coded.dtype == feature.missing().dtype
        if isinstance(feature, TokenFeature):
            assert coded.shape == (len(column), feature.entries)
            assert (coded < SPECIAL_VALUES + len(feature.values)).all()
        else:
            assert coded.shape == (len(column), 1 + feature.entries)
            assert coded[:, 0].tolist() == [value is not None for value in column]


@given(JSON)
def test_any_value_is_of_a_feature_or_refused(value):
    for kind in KINDS.values():
        own = {"values": ("x",), "max_values": 2, "dimension": 2}
        known = {field.name for field in dataclasses.fields(kind)}
        feature = kind("own", 4, **{name: own[name] for name in own.keys() & known})
        coded = attempted(feature.encode, [value], {"x": 0})
        assert coded is None or np.isfinite(coded).all()


@given(st.lists(JSON, max_size=5))
def test_any_row_is_a_record_or_refused(rows):
    validator = Validator()
    for line, row in enumerate(rows, 1):
        for candidate in (row, {"items": row}, {"items": ["a"], "context": row}):
            record = attempted(validator, candidate, line)
            assert record is None or record.items
            assert record is None or json.dumps(record.context).encode()


CONTEXT = st.dictionaries(NAME, st.none() | TEXT | FINITE | st.lists(TEXT), max_size=3)


@given(st.lists(NAME, min_size=1, max_size=5, unique=True), CONTEXT)
def test_a_record_is_the_same_after_its_file(items, context):
    row = {"id": "own", "items": items, "context": context}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "in.jsonl"
        path.write_text(lines(row))
        (record,) = readers.read(path)
    assert (record.items, record.context) == (items, context)
    assert (record.id, record.group) == ("own", "own")


@given(st.lists(TEXT, min_size=1, max_size=4), st.integers(0, 2**32), st.booleans())
def test_a_cache_gives_back_the_split_or_nothing(texts, where, cut):
    """One bit of the file is flipped, or the file is cut short."""
    split = columns.Split(
        *(texts, texts, texts),
        items=np.arange(3 * len(texts), dtype=np.int32).reshape(-1, 3),
        context={texts[0]: np.ones((len(texts), 2), np.float32)},
        reference=None,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "cache" / "own.arrow"
        column_cache.write(path, [split])
        assert_same(column_cache.read(path), split)
        content = bytearray(path.read_bytes())
        if cut:
            del content[where % len(content) :]
        else:
            content[where // 8 % len(content)] ^= 1 << where % 8
        path.write_bytes(content)
        cached = column_cache.read(path)
        if cached is not None:
            assert_same(cached, split)


def assert_same(one: columns.Split, other: columns.Split) -> None:
    assert (one.ids, one.groups, one.contexts) == (other.ids, other.groups, other.contexts)
    np.testing.assert_array_equal(one.items, other.items)
    assert one.context.keys() == other.context.keys()
    for name, column in one.context.items():
        np.testing.assert_array_equal(column, other.context[name])


@given(st.binary(min_size=1, max_size=200), st.integers(0, 2**20))
def test_checksums_notice_every_bit(content, where):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "inner" / "part"
        path.parent.mkdir()
        path.write_bytes(content)
        checksums.write(pathlib.Path(folder))
        assert checksums.verify(pathlib.Path(folder))
        changed = bytearray(content)
        changed[where // 8 % len(content)] ^= 1 << where % 8
        path.write_bytes(changed)
        with pytest.raises(checksums.DamagedError, match=r"inner/part is damaged"):
            checksums.verify(pathlib.Path(folder))


# `tests/test_text_serving.py` sends some requests.
INPUTS = {target: 250 for target in fuzz.TARGETS if target != "requests"}
INPUTS |= {"queries": 125, "texts": 150}


@pytest.mark.parametrize("target", some(fuzz.TARGETS, *INPUTS))
def test_the_fuzzer_finds_nothing(target):
    count = INPUTS.get(target, 500)
    report = fuzz.fuzz(target, count, huge=1e-3)
    assert report.failures == []
    assert report.accepted > count / 25
    assert report.refused > count / 2.5
    before, after = report.memory
    assert after - before < 200 * 2**20


def test_the_page_says_how_many_inputs_are_tried():
    page = " ".join((ROOT / "docs" / "reliability.md").read_text().split())
    assert f"`make test` tries {sum(INPUTS.values()):_}.".replace("_", " ") in page
    assert f"with {INPUTS['text_records']} and {INPUTS['texts']} inputs each time" in page


HOSTILE = "\x1b[31mred\x1b]0;title\x07\u202e"
SHOWN = r"\x1b[31mred\x1b]0;title\x07\u202e"


def test_a_hostile_name_is_refused_in_one_line(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text(lines({"items": [HOSTILE, HOSTILE]}))
    error = refused("prepare", f"--input={path}", "--name=bad", f"--data_dir={tmp_path}")
    assert error.rstrip("\n").isprintable()
    assert f"item '{SHOWN}' occurs twice" in error


def test_hostile_names_take_the_same_road(tmp_path):
    """Items, features and values may have such names, which are shown escaped."""
    names = [HOSTILE, "a/b", "..", "a.b", "", "\x00", "ß\n"]
    rows = [
        {
            "items": [names[n % 7], names[n % 5]] if n % 7 != n % 5 else [names[n % 7]],
            "context": {name: f"{name}{n % 3}" for name in names},
        }
        for n in range(200)
    ]
    path = tmp_path / "in.jsonl"
    path.write_text(lines(*rows))
    _, summary = prepare.prepare(readers.read(path), tmp_path, "own", prepare.PrepareOptions())
    text = format_summary(summary, "leave_out")
    assert text.replace("\n", "").isprintable()
    assert SHOWN in text
    config = small(data__dir=str(tmp_path), data__name="own", model__layers=1)
    loop.train(config, tmp_path / "run")
    done = run("evaluate", f"--workdir={tmp_path / 'run'}", f"--by={HOSTILE}")
    assert done.stdout.replace("\n", "").isprintable()
    assert f"{SHOWN}1" in done.stdout
    with pytest.raises(UserError) as refusal:
        evaluate.evaluate(tmp_path / "run", evaluate.EvaluationOptions(by=("other",)))
    assert str(refusal.value).isprintable()
    assert SHOWN in str(refusal.value)
