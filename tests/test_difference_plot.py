"""The plot of differences shows the table's means, intervals and verdicts."""

import pytest
from matplotlib.figure import Figure

from cbert.report import difference_plot, plot_helpers, report_data, statistics
from tests.report_runs import write_run

GAINS = {"none": 0.0, "gs": 0.4, "gsu": 0.02, "film": -0.3, "c": 0.2}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("sweep")
    for method, gain in GAINS.items():
        for seed in range(2 if method == "c" else 5):
            write_run(directory, method, seed, gain)
    return report_data.load(directory, "test", "none")


def made(data, differences):
    return difference_plot.difference_plot(
        data, differences, plot_helpers.styles(list(data.variants))
    )


def test_dots_bars_and_verdicts_are_those_of_the_comparison(data):
    differences = statistics.pairs(data)
    figure = Figure()
    made(data, differences).paint(figure)
    (axes,) = figure.axes
    expected = {
        one.other: one
        for one in differences
        if one.base == "none" and one.metric.name == "cross_entropy"
    }
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert sorted(names) == ["c", "film", "gs", "gsu"]
    for bars, name in zip(axes.containers, names, strict=True):
        (mean,), (row,) = bars.lines[0].get_data()
        assert mean == pytest.approx(expected[name].mean)
        assert row == names.index(name)
        ends = bars.lines[2][0].get_segments()[0][:, 0]
        assert ends == pytest.approx([expected[name].low, expected[name].high])
    (right,) = axes.child_axes
    verdicts = [label.get_text() for label in right.get_yticklabels()]
    assert dict(zip(names, verdicts, strict=True)) == {
        **{"c": "too few seeds", "gs": "better"},
        **{"gsu": "undecided", "film": "worse"},
    }


def test_it_is_left_out_where_nothing_is_compared(data):
    differences = [one for one in statistics.pairs(data) if one.base != "none"]
    assert differences
    assert made(data, differences) is None
