"""The plots of reports, as matplotlib lays them out."""

import dataclasses

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from cbert.report import plot_helpers, plots, report_data, statistics
from tests.report_runs import write_run


def height_of_axes(labels):
    """In inches, in a plot whose legend has a line for each label."""
    figure = Figure(figsize=(plot_helpers.WIDTH, 3.0), layout="constrained")
    axes = figure.subplots()
    for label in labels:
        axes.plot([0, 1], [0, 1], label=label)
    plot_helpers.legend(figure, axes)
    FigureCanvasAgg(figure).draw()
    return axes.get_position().height * figure.get_figheight()


def test_a_legend_of_many_names_takes_no_room_from_the_axes():
    few = height_of_axes(["none", "gs"])
    assert height_of_axes([f"a method {n}" for n in range(30)]) == pytest.approx(few, rel=0.1)


def test_each_of_the_six_baselines_that_sequences_may_have_is_a_line(tmp_path):
    write_run(tmp_path, "gs", 0)
    data = report_data.load(tmp_path, "test")
    known = data.queries.baselines
    more = {"co-occurrence": known["popularity"], "bigram interpolated": known["popularity"]}
    queries = dataclasses.replace(data.queries, baselines=more | known)
    data = dataclasses.replace(data, queries=queries)
    figure = Figure()
    plots.methods(data, statistics.results(data), plot_helpers.styles(["gs"])).paint(figure)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(queries.baselines)
    assert "Bayes-optimal" in queries.baselines
