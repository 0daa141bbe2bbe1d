"""Batches of a few sizes hold every row once, and joining them drops the filling."""

import jax.numpy as jnp
import numpy as np
import pytest

from cbert.data.padding import joined, padded_batches


@pytest.mark.parametrize(
    ("count", "sizes", "expected"),
    [
        (0, [4], []),
        (4, [4], [([0, 1, 2, 3], 4)]),
        (5, [4], [([0, 1, 2, 3], 4), ([4, 4, 4, 4], 1)]),
        (6, [1, 4], [([0, 1, 2, 3], 4), ([4, 5, 5, 5], 2)]),
        (5, [1, 4], [([0, 1, 2, 3], 4), ([4], 1)]),
        (2, [1, 2, 4], [([0, 1], 2)]),
    ],
)
def test_every_row_once_and_the_last_one_as_filling(count, sizes, expected):
    batches = [(indices.tolist(), own) for indices, own in padded_batches(count, sizes)]
    assert batches == expected


def test_results_are_joined_in_order_one_batch_late():
    dispatched, fetched = [], []

    def results():
        for number, (indices, own) in enumerate(padded_batches(7, [1, 3])):
            dispatched.append(number)
            yield {"row": jnp.asarray(indices), "pair": jnp.asarray([indices, -indices]).T}, own

    def fetch(values):
        fetched.append(len(dispatched))
        return np.asarray(values)

    everything = joined(results(), fetch)
    assert everything["row"].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert everything["pair"].tolist() == [[row, -row] for row in range(7)]
    assert fetched == [2, 2, 3, 3, 3, 3]
