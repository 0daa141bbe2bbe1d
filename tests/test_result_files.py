"""Results as JSON Lines and as tables, with the values that a predictor gives."""

import csv
import json

import pyarrow.parquet
import pytest

from cbert.inference import query_file, result_files
from cbert.inference.queries import Completion, Prediction
from cbert.inference.text_queries import TextQuery
from tests.conftest import lines
from tests.text_predictors import TARGETS, assemble


def read_csv(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("task", TARGETS)
def test_the_tables_of_every_task_hold_what_json_lines_do(task, tmp_path):
    source = tmp_path / "in.jsonl"
    pair = {"text": "[MASK] is", "text_b": "red"}
    if task == "tagging":
        del pair["text_b"]
    unknown = {"id": 7, "text": "[MASK], 7 seats", "context": {"mood": "odd"}}
    source.write_text(lines(pair, unknown))

    def predicted(ending):
        path = tmp_path / f"out{ending}"
        assert query_file.predict(assemble(task), source, path, TextQuery(k=2))[0] == 2
        return path

    expected = [json.loads(line) for line in predicted(".jsonl").read_text().splitlines()]
    assert [one.get("id") for one in expected] == [None, 7]
    cells = read_csv(predicted(".csv"))
    assert list(cells[0]) == ["line", "id", *(name for name in expected[0] if name != "line")]
    for own, row in zip(expected, cells, strict=True):
        given = {name: value for name, value in own.items() if value is not None}
        assert {name: cell for name, cell in row.items() if cell} == {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in given.items()
        }
    table = pyarrow.parquet.read_table(predicted(".PARQUET"))
    for own, row in zip(expected, table.to_pylist(maps_as_pydicts="strict"), strict=True):
        own["id"] = str(own["id"]) if "id" in own else None
        assert row == own


def test_the_rows_of_several_blocks_by_hand(tmp_path):
    """Of the first block all values are empty or None, which must not decide the types."""
    blocks = [
        ([{"line": 1}], [Completion([], [], {}, [])]),
        (
            [{"line": 3, "id": 'a "b",\nc'}],
            [Completion([[Prediction("é", 0.25, 1)]], ["x, y"], {"f": ["v"]}, ["g"], True)],
        ),
    ]
    for ending in (".csv", ".parquet"):
        with result_files.writer(tmp_path / f"out{ending}", ending) as write:
            for block in blocks:
                write(*block)
    assert (tmp_path / "out.csv").read_text() == (
        "line,id,predictions,unknown_items,unknown_context,missing_context,cut\n"
        "1,,[],[],{},[],false\n"
        '3,"a ""b"",\nc","[[{""item"": ""é"", ""probability"": 0.25, ""rank"": 1}]]",'
        '"[""x, y""]","{""f"": [""v""]}","[""g""]",true\n'
    )
    first, second = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert first == {
        "line": 1,
        "id": None,
        "predictions": [],
        "unknown_items": [],
        "unknown_context": [],
        "missing_context": [],
        "cut": False,
    }
    assert second["predictions"] == [[{"item": "é", "probability": 0.25, "rank": 1}]]
    assert (second["id"], second["unknown_context"]) == ('a "b",\nc', [("f", ["v"])])
