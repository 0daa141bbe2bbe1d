"""Where the context helps: gains in slices of the queries, computed by hand."""

import dataclasses
import json

import numpy as np
import pyarrow.parquet
import pytest
import scipy.stats

from cbert.evaluation import metrics
from cbert.report import report_data, slices, statistics
from tests.report_runs import SCHEMA, TIME, queries, write_run


def gained(directory, value):
    """The mean over two seeds of what [GS] has above none, for a value of tables of queries."""

    def read(method, seed):
        path = directory / f"{method}-{seed}" / "eval" / "test.parquet"
        return value(pyarrow.parquet.read_table(path))

    return np.mean([read("gs", seed) - read("none", seed) for seed in (0, 1)], axis=0)


def test_slices_by_hand(tmp_path):
    write_run(tmp_path, "none", 0)
    assert slices.by_features(report_data.load(tmp_path, "test", "none")) == {}
    write_run(tmp_path, "none", 1)
    for seed, gain in enumerate((0.5, 0.1)):
        write_run(tmp_path, "gs", seed, gain=gain)
    data, asked = report_data.load(tmp_path, "test", "none"), queries()
    gain = gained(tmp_path, lambda table: table["log_probability"].to_numpy().astype(float))
    visible = slices.by_visible_items(data)
    assert visible.queries == {"1": 106, "2": 54}
    inside = np.array(asked["visible_items"]) == 2
    wanted = metrics.estimate(gain[inside], np.array(asked["group"])[inside])
    assert visible.gains["gs"]["2"].mean == pytest.approx(wanted.mean)
    reach = scipy.stats.t(wanted.freedom).ppf(0.975)
    assert 2.0 < reach < 2.5  # Not that of a normal distribution, 1.96.
    assert visible.gains["gs"]["2"].error == pytest.approx(reach * wanted.error)
    two = dataclasses.replace(data.queries, groups=np.arange(160) % 2)
    two = slices.by_visible_items(dataclasses.replace(data, queries=two)).gains["gs"]["1"]
    wanted = metrics.estimate(gain[~inside], np.arange(160)[~inside] % 2)
    assert two.error == pytest.approx(12.706 * wanted.error, rel=1e-3)
    one = dataclasses.replace(data.queries, groups=np.zeros(160, int))
    one = slices.by_visible_items(dataclasses.replace(data, queries=one)).gains["gs"]["1"]
    assert (one.mean, one.error) == (two.mean, None)
    assert "none" not in visible.gains
    features = slices.by_features(data)
    assert features[TIME].queries == dict.fromkeys(SCHEMA.features[0].values, 80)
    for time, mean in features[TIME].gains["gs"].items():
        inside = [json.loads(context)[TIME] == time for context in asked["context"]]
        assert mean.mean == pytest.approx(gain[inside].mean())
    # The age of twelve examples is missing: 24 queries are too few for a mean.
    assert list(features["age"].queries) == ["20 to 29", "30 to 39", "40 to 49", "50 to 59"]
    assert sum(features["age"].queries.values()) == 2 * (80 - 12)
    counts = np.array([1] * 80 + [2] * 77 + [3, 3, 5])
    few = dataclasses.replace(data.queries, visible=counts)
    several = slices.by_visible_items(dataclasses.replace(data, queries=few))
    assert several.queries == {"1": 80, "2+": 80}
    # Of a metric of which more is better the sign is the opposite one.
    (hits,) = (one for one in data.metrics if one.name == "recall@5")
    wanted = gained(tmp_path, lambda table: (table["rank"].to_numpy() <= 5).astype(float))
    found = statistics.gain(dataclasses.replace(data, metrics=(hits,)), "gs")
    assert found.tolist() == wanted.tolist()
    assert wanted.any()
