"""Items that a set has twice: refused, or dropped and counted."""

import pytest

import cbert
from cbert.data import prepared as prepared_lib
from cbert.data.summary import format_summary
from tests.conftest import lines, refused, run

ROWS = [
    {"id": f"r{n}", "items": ["tea", "egg", "tea", "tea", "jam"][n % 2 :], "split": split}
    for n, split in enumerate([*["train"] * 8, "validation", "test"])
]


def test_repeats_are_dropped_and_counted(tmp_path):
    known = {"log_probability": [-1.0] * 5, "rank": [1] * 5}
    rows = [*ROWS, {"items": ["egg", "jam"], "split": "train"}]
    rows[8] = {**rows[8], "reference": known}
    # The longest set has three items once the others are gone, so that none is left out.
    options = cbert.PrepareOptions(repeats="drop", max_items=3)
    done = cbert.prepare(rows, "own", tmp_path, options)
    assert (done.summary["repeats"], done.summary["longer"]) == (5 * 2 + 5, 0)
    said = "\nrepeats     15 items dropped that their set had before\n"
    assert said in format_summary(done.summary, "leave_out")
    schema = prepared_lib.load_schema(str(tmp_path), "own")
    assert dict(zip(schema.items, schema.counts, strict=True)) == {"egg": 9, "jam": 9, "tea": 8}
    test = prepared_lib.load(str(tmp_path), "own", "test", schema)
    assert test.items.tolist() == [[schema.codes[name] for name in ("egg", "tea", "jam")]]
    plain = cbert.prepare([{"items": ["a", "b"]}] * 40, "plain", tmp_path)
    assert "repeats" not in plain.summary


def test_the_refusal_names_the_way_out_where_it_is_shown(tmp_path):
    advice = "to keep the first of each, or {}kind=sequence where order and repeats matter"
    with pytest.raises(cbert.UserError) as refusal:
        cbert.prepare(ROWS, "own", tmp_path)
    assert str(refusal.value) == (
        f"record 1: item 'tea' occurs twice in a set; give repeats=drop {advice.format('')}; "
        "repeats is of options=cbert.PrepareOptions(repeats=...)"
    )
    path = tmp_path / "in.jsonl"
    path.write_text(lines(*ROWS[:1], *({**row, "items": ["tea", "egg"]} for row in ROWS[1:])))
    flags = (f"--input={path}", f"--data_dir={tmp_path}", "--name=own")
    said = f"{path}:1: item 'tea' occurs twice in a set; give --repeats=drop "
    said += advice.format("--")
    assert refused("prepare", *flags) == f"error: {said}\n"
    assert f"skipped {said}\n" in run("prepare", *flags, "--skip_bad_rows=1").stdout
    done = run("prepare", *flags, "--repeats=drop", "--overwrite")
    assert "\nrepeats     2 items dropped" in done.stdout


def test_repeats_of_other_kinds_are_none(tmp_path):
    for kind in ("sequence", "text"):
        options = cbert.PrepareOptions(kind=kind, repeats="drop")
        with pytest.raises(cbert.UserError, match=f"=drop is for sets; the kind is '{kind}'"):
            cbert.prepare(ROWS, "own", tmp_path, options)
    with pytest.raises(cbert.UserError, match="repeats is 'keep'; it must be one of refuse, d"):
        cbert.prepare(ROWS, "own", tmp_path, cbert.PrepareOptions(repeats="keep"))
