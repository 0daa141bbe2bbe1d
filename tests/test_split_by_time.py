"""The example of docs/data.md that splits orders by time."""

import re

import pandas

from cbert.data import prepared as prepared_lib
from tests.conftest import ROOT


def test_the_last_tenth_of_the_time_is_for_testing(tmp_path, monkeypatch):
    """Two orders a day for 200 days, and so many on the last day that shares would differ."""
    days = pandas.date_range("2023-01-01", periods=201)
    times = [*(day for day in days for _ in range(2)), *[days[-1]] * 98]
    rows = [
        {"id": f"{n}", "time": time, "items": "tea|egg" if n % 2 else "tea|jam"}
        for n, time in enumerate(times)
    ]
    frame = pandas.DataFrame(rows).sample(frac=1, random_state=0)
    frame.to_csv(tmp_path / "orders.csv", index=False)
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "data.md").read_text()
    (block,) = re.findall(r"\*\*A split by time\*\*.*?```python\n(.*?)```", page, re.DOTALL)
    exec(block, {})
    schema = prepared_lib.load_schema("data", "orders")
    assert [feature.name for feature in schema.features] == ["month", "weekday"]
    when = {row["id"]: row["time"] for row in rows}
    spans = {}
    for name in ("train", "validation", "test"):
        split = prepared_lib.load("data", "orders", name, schema)
        own = [when[one] for one in split.ids]
        spans[name] = min(own), max(own), len(own)
    assert spans == {
        "train": (days[0], days[160], 2 * 161),
        "validation": (days[161], days[180], 2 * 20),
        "test": (days[181], days[200], 2 * 20 + 98),
    }
