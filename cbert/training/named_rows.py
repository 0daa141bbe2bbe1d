"""Which rows of two schemas' parameters mean the same: of items, values, and the context.

Legend: R rows that both have.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from cbert.model.parameter_tree import Path
from cbert.schema import SPECIAL_VALUES, TEXT, Schema, TokenFeature


@dataclasses.dataclass(frozen=True)
class NamedRows:
    """The rows of one table that have the same name in two schemas.

    Attributes:
      what: What the rows are, for a person.
      own: `int [R]`, rows of the table that begins.
      theirs: `int [R]`, rows of the table that is known.
      total: How many named rows the table that begins has.
      special: How many rows without a name both tables begin with.
    """

    what: str
    own: np.ndarray
    theirs: np.ndarray
    total: int
    special: int = 0

    @property
    def are_all_known(self) -> bool:
        """Whether no named row begins anew."""
        return len(self.own) == self.total

    def line(self) -> str:
        """One line that counts what is known and what begins anew."""
        known, total = len(self.own), self.total
        return f"  {self.what}: {known} of {total} known by name, {total - known} new"

    def fill(self, fresh: np.ndarray, known: np.ndarray) -> np.ndarray:
        """The fresh table with the known rows and the special ones in place."""
        filled = np.array(fresh)
        filled[: self.special] = known[: self.special]
        filled[self.special + self.own] = known[self.special + self.theirs]
        return filled


def items(theirs: Schema, own: Schema) -> NamedRows | None:
    """The items of two data sets; None where they are the same, or are tokens of texts."""
    if theirs.items == own.items or TEXT in (theirs.kind, own.kind):
        return None
    return _matched("items", theirs.codes, own.items)


def features(theirs: Schema, own: Schema) -> dict[str, NamedRows]:
    """The values of each categorical or multi-valued feature that differs, by its name."""
    known = {feature.name: feature for feature in theirs.features}
    rows = {}
    for feature in own.features:
        other = known.get(feature.name)
        if (
            isinstance(feature, TokenFeature)
            and isinstance(other, TokenFeature)
            and (feature.width, feature.kind) == (other.width, other.kind)
            and feature.values != other.values
        ):
            codes = {value: index for index, value in enumerate(other.values)}
            what = f"values of {feature.name}"
            rows[feature.name] = _matched(what, codes, feature.values, SPECIAL_VALUES)
    return rows


def _matched(
    what: str, known: Mapping[Any, int], names: Iterable[Any], special: int = 0
) -> NamedRows:
    names = list(names)
    pairs = [(row, known[name]) for row, name in enumerate(names) if name in known]
    own, theirs = np.array(pairs, int).reshape(-1, 2).T
    return NamedRows(what, own, theirs, len(names), special)


def context(theirs: Schema, own: Schema) -> NamedRows | None:
    """The entries of the context vector; None where they belong to the same features."""
    known = _entries(theirs)
    entries = _entries(own)
    return None if known == entries else _matched("entries of the context", known, entries)


def _entries(schema: Schema) -> dict[tuple[str, str, int, int], int]:
    """Feature, its kind, its width and an index in it, to the entry of the context vector."""
    names = [
        (feature.name, feature.kind, feature.width, index)
        for feature in schema.features
        for index in range(feature.width)
    ]
    return {name: entry for entry, name in enumerate(names)}


def tables(theirs: Schema, own: Schema) -> dict[Path, NamedRows]:
    """The embeddings with named rows that differ, by their paths."""
    by_path: dict[Path, NamedRows] = {}
    if (matched := items(theirs, own)) is not None:
        by_path["embedding", "items"] = by_path["embedding", "bias"] = matched
    for name, rows in features(theirs, own).items():
        by_path["context_encoder", f"feature_{name}", "embedding"] = rows
    return by_path
