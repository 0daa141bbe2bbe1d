"""Splits of labelled texts in which every label has its share."""

import collections

import pytest

from cbert.data import prepare, prepared, readers
from cbert.data.prepare_options import TextOptions
from cbert.data.records import SPLITS
from cbert.data.splits import WEIGHTS, uniform
from cbert.data.stratified_splits import stratified
from cbert.errors import UserError
from tests.test_text_records import write


def counts(splits, groups):
    found = collections.Counter(splits[group] for group in groups)
    return [found[split] for split in SPLITS]


@pytest.mark.parametrize(
    ("size", "expected"),
    [(3, [3, 0, 0]), (4, [3, 1, 0]), (5, [4, 1, 0]), (7, [5, 1, 1]), (10, [8, 1, 1])],
)
def test_the_shares_of_a_label_by_hand(size, expected):
    rare = {f"r{n}": {"rare"} for n in range(size)}
    often = {f"o{n}": {"often"} for n in range(200)}
    splits = stratified(rare | often, WEIGHTS)
    assert counts(splits, rare) == expected
    assert counts(splits, often) == [160, 20, 20]
    # Hashes decide who goes where: with ten, the fourth and the seventh are held out.
    order = sorted(rare, key=uniform)
    if size == 10:
        held_out = {order[3]: "validation", order[6]: "test"}
        assert splits.items() >= held_out.items()
    # The order of the records is no part of it.
    assert stratified(dict(reversed((often | rare).items())), WEIGHTS) == splits


def test_a_group_counts_for_its_rarest_label():
    both = {f"b{n}": {"often", "rare"} for n in range(10)}
    often = {f"o{n}": {"often"} for n in range(20)}
    none = {f"n{n}": set() for n in range(10)}
    splits = stratified(both | often | none, (50, 25, 25))
    shares = [counts(splits, groups) for groups in (both, often, none)]
    assert shares == [[5, 3, 2], [10, 5, 5], [5, 3, 2]]


def test_texts_are_prepared_so_and_groups_stay_whole(tmp_path):
    rows = [
        {"id": str(n), "group": f"g{n // 2}", "text": "a", "label": "x" if n < 20 else "y"}
        for n in range(200)
    ]
    path = write(tmp_path / "in.jsonl", *rows)

    def made(**own):
        text = TextOptions(vocabulary_size=100, stratify=True)
        options = prepare.PrepareOptions(kind="text", overwrite=True, text=text, **own)
        prepare.prepare(readers.read(path, "text"), tmp_path, "own", options)
        schema = prepared.load_schema(str(tmp_path), "own")
        return {name: prepared.load(str(tmp_path), "own", name, schema) for name in SPLITS}

    labels, groups = {}, {}
    for name, split in made().items():
        labels[name] = collections.Counter(split.targets["label"].tolist())
        groups[name] = set(split.groups)
    # The first code is that of the more frequent label, y, with 90 groups of two.
    assert labels == {
        "train": {0: 144, 1: 16},
        "validation": {0: 18, 1: 2},
        "test": {0: 18, 1: 2},
    }
    assert sum(map(len, groups.values())) == len(set.union(*groups.values())) == 100
    with pytest.raises(
        UserError, match="stratify can be given for texts only, and the kind is 'set'"
    ):
        prepare.PrepareOptions(text=TextOptions(stratify=True)).check()
    for row in rows:
        row["label"] = 1.5
    write(path, *rows)
    with pytest.raises(UserError, match="stratify needs records with 'label', a string or"):
        made()
    rows[3]["split"] = "train"
    write(path, *rows)
    with pytest.raises(UserError, match="and record '3' has a split of its own"):
        made()
