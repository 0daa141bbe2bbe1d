"""Files of one JSON list are read as files of an object a line, piece by piece."""

import gzip
import json
import tracemalloc

import pytest

from cbert.data import json_rows, readers
from cbert.data.tables import Columns
from cbert.errors import UserError
from tests.conftest import lines

ROWS = [
    {"items": [f'item {n % 7}, "[é]" \\', "b}"], "context": {"age": n / 4, "note": "🎈"}}
    for n in range(50)
]


def read(path):
    return [(one.id, one.items, one.context) for one in readers.read(path)]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("ending", [".json", ".jsonl.gz"])
def test_a_list_has_the_records_of_lines(tmp_path, monkeypatch, indent, ending):
    """Pieces of a few characters are cut within strings, escapes, numbers and signs."""
    by_line = tmp_path / "lines.jsonl"
    by_line.write_text(lines(*ROWS))
    text = json.dumps(ROWS, indent=indent)
    path = tmp_path / f"list{ending}"
    (gzip.open if ending.endswith(".gz") else open)(path, "wb").write(
        b"\xef\xbb\xbf \n" + text.encode()
    )
    expected = read(by_line)
    assert len(expected) == 50
    for piece in (1, 7, 2**20):
        monkeypatch.setattr(json_rows, "_PIECE", piece)
        assert read(path) == expected


def test_names_are_mapped(tmp_path):
    path = tmp_path / "list.json"
    path.write_text(json.dumps([{"foods": row["items"]} for row in ROWS]))
    records = readers.read(path, columns=Columns({"items": "foods"}))
    assert [record.items for record in records] == [row["items"] for row in ROWS]
    with pytest.raises(UserError, match="no row has 'food', which columns takes as 'items'"):
        [row() for _, row in readers.rows(path, Columns({"items": "food"}))]


GOOD = '{"items": ["a"]}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "in.json: no records; give at least one"),
        (f"[{GOOD}, 3]", "in.json:2: a record must be an object, not 3"),
        (f"[{GOOD}, {GOOD[:-1]}", "in.json:2: not JSON (Expecting ',' delimiter): '{\"items\""),
        (f"[{GOOD}, {{items: 3}}, {GOOD}]", "in.json:2: not JSON (Expecting property name"),
        (f"[{GOOD}, ]", "in.json:2: not JSON (Expecting value): ']'"),
        (f"[{GOOD}", "in.json:1: the file ends within the list; put a comma between two"),
        (f"[{GOOD} {GOOD}]", "in.json:1: '{' after this record; put a comma between two"),
        (f"[{GOOD}]\n[{GOOD}]", "in.json: '[' after the end of the list; a file has one list"),
        ("[" * 100_000, "in.json:1: not JSON (maximum recursion depth exceeded"),
        (
            f'[{GOOD}, {{"items": ["' + "x" * 2**24 + "x" * 20,
            "in.json:2: the row takes more than",
        ),
    ],
)
def test_a_wrong_list_is_refused_with_the_number_of_the_record(tmp_path, text, message):
    path = tmp_path / "in.json"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        list(readers.read(path))
    assert message in str(error.value)


def test_a_long_list_is_not_held_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(json_rows, "_PIECE", 2**14)
    path = tmp_path / "long.json"
    path.write_text("[" + ",\n".join([json.dumps(ROWS[0])] * 4_000) + "]")
    tracemalloc.start()
    count = sum(1 for _ in json_rows.rows(path, Columns()))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 4_000
    assert most < path.stat().st_size / 4
