"""The examples of docs/data.md that split orders and histories by time, or take letters."""

import re

import numpy as np
import pandas
import pytest

import cbert
from cbert.data import prepared as prepared_lib
from cbert.evaluation.feature_importance import permutation_between_groups
from tests.conftest import ROOT


def run_example(title: str, rows: list[dict], file: str) -> None:
    """Writes the rows in random order to a file of the current directory, and runs an example.

    It is the block of Python below a title of the page.
    """
    pandas.DataFrame(rows).sample(frac=1, random_state=0).to_csv(file, index=False)
    page = (ROOT / "docs" / "data.md").read_text()
    (block,) = re.findall(rf"\*\*{title}\*\*.*?```python\n(.*?)```", page, re.DOTALL)
    exec(block, {})


def test_the_last_tenth_of_the_time_is_for_testing(tmp_path, monkeypatch):
    """Two orders a day for 200 days, and so many on the last day that shares would differ."""
    days = pandas.date_range("2023-01-01", periods=201)
    times = [*(day for day in days for _ in range(2)), *[days[-1]] * 98]
    rows = [
        {"id": f"{n}", "time": time, "items": "tea|egg" if n % 2 else "tea|jam"}
        for n, time in enumerate(times)
    ]
    monkeypatch.chdir(tmp_path)
    run_example("A split by time", rows, "orders.csv")
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


def test_the_last_items_of_histories_are_left_out(tmp_path, monkeypatch):
    """The longest history of training has four items, so that the others have at most four."""
    events = {"u": "abc", "v": "abcabc", "w": "ab", "x": "abcacb"}
    rows = [
        {"user": user, "item": item, "time": time, "country": "de" if user == "u" else "at"}
        for user, items in events.items()
        for time, item in enumerate(items)
    ]
    monkeypatch.chdir(tmp_path)
    run_example("Histories whose last items are left out", rows, "log.csv")
    schema = prepared_lib.load_schema("data", "histories")
    assert (schema.kind, schema.max_items) == ("sequence", 4)
    left = {}
    for name in ("train", "validation", "test"):
        split = prepared_lib.load("data", "histories", name, schema)
        items = [
            "".join(schema.items[code] for code in row if code >= 0) for row in split.items
        ]
        left[name] = dict(zip(split.groups, items, strict=True))
    assert left == {
        "train": {"u": "a", "v": "abca", "x": "abca"},
        "validation": {"u": "ab", "v": "bcab", "x": "bcac"},
        "test": {"u": "abc", "v": "cabc", "x": "cacb"},
    }
    sizes = {"dimension": 16, "heads": 2, "layers": 1, "feed_forward": 16}
    train = {"steps": 2, "batch_size": 3, "eval_every": 2}
    config = cbert.read_config("data/histories/config.py:gs", {"train": train, "model": sizes})
    assert config.eval.masking == "last"  # Users are in several splits.
    trained = cbert.train(config, "runs/gs")
    evaluation = cbert.evaluate("runs/gs", split="validation", feature_importance=True)
    assert evaluation.metrics.loc["model", "cross_entropy"] == pytest.approx(
        trained.best, rel=1e-6
    )
    assert evaluation.queries["position"].tolist() == [1, 3, 3]

    asked = [[*left["validation"][user][:-1], None] for user in evaluation.queries["group"]]
    moved = permutation_between_groups(list(left["validation"]), schema)
    countries = [{"country": "de" if user == "u" else "at"} for user in left["validation"]]
    predictor = cbert.load("runs/gs")
    losses = []
    for contexts in (countries, [countries[row] for row in moved]):
        completions = predictor.complete(asked, contexts, k=len(schema.items))
        found = [{one.item: one.probability for one in c.predictions[0]} for c in completions]
        own = zip(found, evaluation.queries["item"], strict=True)
        losses.append(-np.log([probability[item] for probability, item in own]).mean())
    rise = evaluation.summary["feature_importance"]["country"]["permuted"]["mean"]
    assert rise == pytest.approx(losses[1] - losses[0], abs=1e-5)
    assert abs(rise) > 1e-4


def test_letters_of_strings_are_items_or_words(tmp_path, monkeypatch):
    """A text of 511 letters loses one, because two more tokens make 512."""
    sequences = {"long": "MKVAA" * 102 + "M", "short": "MKV", "other": "MAV"}
    rows = [
        {
            "id": name,
            "sequence": sequence,
            "split": "validation" if name == "other" else "train",
        }
        | {"family": f"of {name}", "temperature": 37 if name == "short" else None}
        for name, sequence in sequences.items()
    ]
    monkeypatch.chdir(tmp_path)
    run_example("Strings of letters", rows, "proteins.csv")
    schema = prepared_lib.load_schema("data", "proteins")
    assert schema.kind == "sequence"
    assert (schema.items, schema.max_items) == (("A", "M", "K", "V"), 511)
    assert [feature.name for feature in schema.features] == ["temperature"]
    texts = prepared_lib.load_schema("data", "protein_words")
    assert (texts.kind, texts.items[5:], texts.max_items) == ("text", ("a", "k", "m", "v"), 512)
    split = prepared_lib.load("data", "protein_words", "train", texts)
    row = split.ids.index("long")
    assert [texts.items[code] for code in split.items[row, -3:]] == ["a", "a", "[SEP]"]
    assert split.groups[row] == "of long"
