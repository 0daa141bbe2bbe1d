"""The slices of a split by the values of a feature."""

import json

import numpy as np
import pytest

from cbert.evaluation import (
    breakdown,
)
from cbert.schema import (
    MultiValued,
    Numerical,
)


@pytest.mark.parametrize(
    ("numbers", "wanted"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8], {"1 to 2": 2, "3 to 4": 2, "5 to 6": 2, "7 to 8": 2}),
        ([0, 0, 0, 0, 0, 0, 0, 3, 9, None], {"0": 7, "3 to 9": 2, "(missing)": 1}),
        ([0, 0, 0, 1, 2, 3], {"0": 3, "1": 1, "2 to 3": 2}),
        ([4, 4, None], {"4": 2, "(missing)": 1}),
    ],
)
def test_numbers_are_sliced_at_their_quarters(numbers, wanted):
    contexts = [json.dumps({"children": number}) for number in numbers]
    feature = Numerical("children", 4)
    parts = breakdown.by_feature(contexts, feature)
    assert {name: int(inside.sum()) for name, inside in parts.items()} == wanted


def test_lists_are_sliced_by_their_values_and_where_they_have_none():
    lists = [["a", "b"], [], None, ["b"], []]
    contexts = [json.dumps({"asked": value}) for value in lists]
    parts = breakdown.by_feature(contexts, MultiValued("asked", 4, ("a", "b"), max_values=2))
    assert {label: np.flatnonzero(rows).tolist() for label, rows in parts.items()} == {
        "a": [0],
        "b": [0, 3],
        "(empty)": [1, 4],
        "(missing)": [2],
    }
