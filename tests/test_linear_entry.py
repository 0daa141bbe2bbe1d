"""The linear entry of the leaderboard, on turns that only their context tells apart."""

import gzip
import runpy
import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from tests.conftest import ROOT, lines

SCRIPT = ROOT / "docs" / "leaderboard" / "linear.py"


def turn(number: int, split: str) -> dict:
    """`Seven please` is a time or a number of people, whichever was asked for."""
    asked = ("time", "people")[number % 2]
    return {
        "id": f"{split}-{number}",
        "split": split,
        "words": ["Seven", "please"],
        "label": asked.upper(),
        "tags": [f"B-{asked}", "O"],
        "context": {"asked": [asked], "turn": number // 2 % 3},
    }


@pytest.mark.parametrize("kind", ["label", "tags"])
def test_only_the_context_tells(tmp_path, kind, monkeypatch):
    turns = [turn(n, split) for split in ("train", "validation", "test") for n in range(20)]
    records, queries = tmp_path / "turns.jsonl.gz", tmp_path / "queries.parquet"
    records.write_bytes(gzip.compress(lines(*turns).encode()))
    asked = [{name: one[name] for name in ("id", kind)} for one in turns[-20:]]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(asked), queries)
    main, tables = runpy.run_path(str(SCRIPT))["main"], []
    # So few turns need no more columns, and fitting takes longer the more there are.
    monkeypatch.setitem(main.__globals__, "COLUMNS", 2**10)
    for flags in ([], ["--no_context"]):
        table = tmp_path / "table.parquet"
        monkeypatch.setattr(
            sys, "argv", [str(SCRIPT), *map(str, (records, queries, table)), *flags]
        )
        main()
        tables.append(pyarrow.parquet.read_table(table).to_pylist())
    known, unknown = tables
    truth = [one[kind] for one in asked]
    assert [row["prediction"] for row in known] == truth
    assert [row["id"] for row in known] == [one["id"] for one in asked]
    told, untold = (np.mean([row["log_probability"] for row in rows]) for rows in tables)
    words = 1 if kind == "label" else 2  # The second word's tag is always O.
    assert told > -0.2
    assert untold == pytest.approx(-np.log(2) / words, abs=0.05)
    assert sum(row["prediction"] == one for row, one in zip(unknown, truth, strict=True)) == 10
    if kind == "label":
        assert [np.exp(row["log_probability"]) for row in known] == pytest.approx(
            [row["probability"] for row in known]
        )
