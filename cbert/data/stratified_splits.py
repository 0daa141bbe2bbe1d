"""Splits in which every label has its share, as far as whole groups allow."""

import collections
import contextlib
import pathlib
from collections.abc import Mapping

from cbert.data.collection import Collection
from cbert.data.hashing import uniform
from cbert.data.records import SPLITS, text_of
from cbert.errors import UserError
from cbert.schema import TEXT


def restratified(
    collection: Collection,
    weights: tuple[int, ...],
    directory: pathlib.Path,
    stack: contextlib.ExitStack,
) -> Collection:
    """The records of a collection of texts, with splits that their labels decide.

    Every group and its labels are in memory meanwhile.

    Args:
      collection: The records as they were given, none with a split of its own.
      weights: How large train, validation and test shall be.
      directory: The directory for the new collection's temporary file.
      stack: Removes it in the end.

    Raises:
      UserError: no record has a label that is a string, or a list with one.
    """
    labels: dict[str, set[str]] = {}
    for record in collection.everything():
        label = text_of(record).label
        own = [label] if isinstance(label, str) else label if isinstance(label, list) else []
        labels.setdefault(record.group, set()).update(own)
    if not any(labels.values()):
        raise UserError("stratify needs records with 'label', a string or a list of strings")
    splits = stratified(labels, weights)
    following = stack.enter_context(Collection(directory, TEXT))
    for record in collection.everything():
        following.add(record, splits[record.group])
    return following


def stratified(labels: Mapping[str, set[str]], weights: tuple[int, ...]) -> dict[str, str]:
    """Group to its split.

    Each group counts for its rarest label, the one that fewest groups have. The groups that
    count for one label come in the order of their hashes, and each goes to the split that lacks
    most of its share of them. The order of the records changes nothing; more records may.

    Args:
      labels: Group to the labels of its records.
      weights: How large train, validation and test shall be.
    """
    counts = collections.Counter(label for own in labels.values() for label in own)
    strata: dict[str | None, list[str]] = collections.defaultdict(list)
    for group, own in labels.items():
        strata[min(own, key=lambda label: (counts[label], label), default=None)].append(group)
    shares = [weight / sum(weights) for weight in weights]
    splits = {}
    for groups in strata.values():
        taken = [0, 0, 0]
        for number, group in enumerate(sorted(groups, key=lambda g: (uniform(g), g)), 1):
            lacking = [number * share - own for share, own in zip(shares, taken, strict=True)]
            # Equal shares, such as those of validation and test, must not differ by rounding.
            index = max(range(3), key=lambda n: round(lacking[n], 9))
            splits[group] = SPLITS[index]
            taken[index] += 1
    return splits
