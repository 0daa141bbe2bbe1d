"""What is asked about sequences alone: their last items, and the baseline of neighbours."""

import itertools

import numpy as np
import pytest

from cbert.data.columns import Split
from cbert.evaluation import baselines, bigram
from cbert.schema import SEQUENCE, Schema
from cbert.tasks import MaskedItem
from cbert.tasks.masked_queries import query_each, query_last, query_one
from tests import models

SCHEMA = Schema(SEQUENCE, 17, ("a", "b", "c"), (3, 2, 1), ())
BEGIN, END = 4, 5  # Below them a, b, c and unknown.


def split(lists):
    names = [str(number) for number in range(len(lists))]
    return Split(names, names, ["{}"] * len(lists), SCHEMA.encode_items(lists), {}, None)


def chain(sequences, x):
    """p(right | left) of interpolated bigrams `[6, 6]`."""
    pairs = np.zeros((6, 6))
    for tokens in sequences:
        for left, right in itertools.pairwise([BEGIN, *tokens, END]):
            pairs[left, right] += 1
    counts = np.bincount(np.concatenate(sequences), minlength=6) + 0.5
    counts[[BEGIN, END]] += len(sequences)
    unigram, totals = counts / counts.sum(), pairs.sum(axis=1, keepdims=True)
    return np.where(totals, x * pairs / np.maximum(totals, 1) + (1 - x) * unigram, unigram)


def test_the_last_item_is_asked_for_or_skipped():
    """The last one is unknown in the second example, whose item before it is not asked."""
    last = query_last(split([["a", "b", "a"], ["b", "x"], ["c"]]))
    assert last.rows.tolist() == [0, 2]
    assert last.positions.tolist() == [2, 0]
    assert last.items.tolist() == [0, 2]
    assert last.skipped == 1


def test_the_bigrams_of_sequences_by_hand():
    """The beginning of a sequence is a neighbour, and the end says nothing of an item."""
    train = split([["a", "b"], ["a", "c"], ["a", "x", "b"]])
    asked = split([["a", "b"], ["c"]])
    log_probability, rank = bigram.of_sequences(train, None, asked, query_each(asked), 3)
    p = chain([[0, 1], [0, 2], [0, 3, 1]], bigram.UNTUNED)
    joints = [p[BEGIN, :3] * p[:3, 1], p[0, :3], p[BEGIN, :3]]
    for number, (joint, item) in enumerate(zip(joints, [0, 1, 2], strict=True)):
        assert log_probability[number] == pytest.approx(
            np.log(joint[item] / joint.sum()), rel=1e-4
        )
        assert rank[number] == (joint >= joint[item] * (1 - 1e-6)).sum()


def test_pairs_that_training_has_by_chance_hardly_count():
    """Of 20 sequences of random items no pair says what follows: by hand, least is best."""
    random = np.random.default_rng(0)
    items = [[random.choice(["a", "b", "c"]) for _ in range(4)] for _ in range(220)]
    train, held_out = split(items[:20]), split(items[20:])
    codes = [["abc".index(item) for item in one] for one in items]
    p = {x: chain(codes[:20], x) for x in (0.05, 0.3)}
    asked = query_last(held_out)
    found, _ = bigram.of_sequences(train, held_out, held_out, asked, 3, query_last)
    nats = {
        x: -np.log([one[a, b] / one[a, :3].sum() for *_, a, b in codes[20:]]).mean()
        for x, one in p.items()
    }
    assert -found.mean() == pytest.approx(nats[0.05], rel=1e-4)
    assert nats[0.05] < nats[0.3]


def test_items_that_are_equally_probable_beside_a_neighbour_count_against_the_target():
    """After a come b and c, once each."""
    train = split([["a", "b"], ["a", "c"]])
    _, rank = bigram.of_sequences(train, None, train, query_last(train), 3)
    assert rank.tolist() == [2, 2]


def test_baselines_are_tuned_on_what_is_asked():
    """In the validation split b follows a at the end, as in training; c follows c before."""
    train = split([["a", "b"], ["a", "b"], ["c", "a"]])
    held_out = split([["c"] * 6 + ["a", "b"]] * 8)
    splits = {"train": train, "validation": held_out}
    last = query_last(held_out)
    found = baselines.of_items(splits.get, SCHEMA, held_out, last)
    p = chain([[0, 1], [0, 1], [2, 0]], max(bigram.INTERPOLATIONS))[0, :3]
    assert found[bigram.BIGRAM]["log_probability"] == pytest.approx(
        np.log(p[1] / p.sum()), rel=1e-4
    )
    for tuned, same in ((query_last, True), (query_one, False)):
        log_probability, _ = bigram.of_sequences(train, held_out, held_out, last, 3, tuned)
        assert (log_probability == found[bigram.BIGRAM]["log_probability"]).all() == same


@pytest.mark.parametrize(("longest", "ranges"), [(16, [*map(str, range(16))]), (17, None)])
def test_many_numbers_of_visible_items_are_ranges(longest, ranges):
    """Seventeen lengths are quarters, and sixteen are themselves."""
    lists = [["a"] * length for length in range(1, longest + 1)]
    task = MaskedItem(models.build(SCHEMA, "none"), SCHEMA)
    slices = task.slices(split(lists))["visible_items"]
    assert list(slices) == (ranges or ["0 to 3", "4 to 7", "8 to 11", "12 to 16"])
    assert sum(slices.values()).tolist() == [1] * longest
