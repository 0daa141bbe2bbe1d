"""The plots of reports, as matplotlib lays them out."""

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from cbert.report import plot_helpers


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
