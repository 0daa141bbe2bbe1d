"""Numbers as tables and lines show them."""

import math

import pytest

from cbert.evaluation.compare import interval, plus_minus
from cbert.tasks.metric import Metric
from cbert.text_table import numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.00001, "0.0000"),
        (-0.00001, "0.0000"),
        (999.99996, "1,000.0000"),
        (1000.0, "1,000.00"),
        (-12345.678, "-12,345.7"),
        (123456.7, "123,457"),
        (106175445475.7033, "106,175,445,476"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
    ],
)
def test_large_numbers_have_separators_and_fewer_digits(value, text):
    assert numbers([value]) == [text]


def test_numbers_that_stand_together_have_as_many_digits():
    assert plus_minus(106175.44, 85.182) == "106,175 ± 85"
    assert plus_minus(-18.5, 4808.6, sign="+") == "-18.50 ± 4,808.60"
    assert plus_minus(0.5, 0.25, sign="+") == "+0.5000 ± 0.2500"
    assert plus_minus(0.5, None, scale=100, digits=2) == "50.00"
    assert interval(-0.5, 0.125, Metric("f1", "max", "F1", percent=True)) == "[-50.00, +12.50]"
    assert interval(-2000, 1, Metric("squared_error", "min", "e")) == "[-2,000.00, +1.00]"
    assert interval(-math.inf, math.inf, Metric("f1", "max", "F1")) == ""
