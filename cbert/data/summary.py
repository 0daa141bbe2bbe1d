"""The numbers that describe prepared data, collected while the records pass by."""

import array
import collections
from collections.abc import Iterable
from typing import Any

import numpy as np

from cbert import schema as schema_lib
from cbert.data.hashing import hash64
from cbert.data.records import SPLITS, Record
from cbert.errors import printable
from cbert.schema import Schema


class Overview:
    """A few numbers of each record: its split, length, and hashes of its group and items."""

    def __init__(self, kind: str) -> None:
        """kind: `set` or `sequence`, which decides whose items are the same."""
        self._kind = kind
        self._splits = array.array("B")
        self._lengths = array.array("Q")
        self._groups = array.array("Q")
        self._contents = array.array("Q")
        # In the order of first appearance.
        self.feature_names: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._splits)

    def add(self, record: Record, split: str) -> None:
        """Takes note of a record."""
        items = sorted(record.items) if self._kind == schema_lib.SET else record.items
        self._splits.append(SPLITS.index(split))
        self._lengths.append(len(items))
        self._groups.append(hash64(record.group))
        self._contents.append(hash64(repr(items)))
        self.feature_names.update(dict.fromkeys(record.context))

    def indices(self, split: str) -> np.ndarray:
        """Which records are in a split, `int64`, in the order in which they came."""
        return np.flatnonzero(np.array(self._splits) == SPLITS.index(split))

    def lengths(self) -> np.ndarray:
        """Items of each record, `uint64 [M]`."""
        return np.array(self._lengths)

    def groups(self) -> tuple[int, int]:
        """How many groups there are, and how many of them lie in several splits."""
        groups = np.array(self._groups)
        of_splits = [np.unique(groups[self.indices(split)]) for split in SPLITS]
        _, counts = np.unique(np.concatenate(of_splits), return_counts=True)
        return len(counts), int((counts > 1).sum())

    def duplicates(self) -> int:
        """Examples outside training whose items make up a training example too."""
        contents = np.array(self._contents)
        training = np.array(self._splits) == 0
        return int(np.isin(contents[~training], contents[training]).sum())


class Usage:
    """How the records use a schema: the items it does not know, the features they have."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.unknown: collections.Counter[str] = collections.Counter()
        self.observed: collections.Counter[str] = collections.Counter()

    def add(self, records: Iterable[Record]) -> None:
        """Takes note of some records."""
        for record in records:
            self.unknown.update(i for i in record.items if i not in self._schema.codes)
            self.observed.update(
                name for name, value in record.context.items() if value is not None
            )


def summarize(overview: Overview, usage: Usage, schema: Schema, longer: int) -> dict[str, Any]:
    """The numbers that `format_summary` prints.

    Args:
      overview: Has seen every record.
      usage: Has seen every record, too.
      schema: Of the data set.
      longer: How many records had more items than allowed.
    """
    lengths = overview.lengths()
    groups, groups_across = overview.groups()
    sizes = {split: len(overview.indices(split)) for split in SPLITS}
    features = {
        feature.name: {
            "kind": feature.kind,
            "values": feature.value_count,
            "width": feature.width,
            "missing": 1 - usage.observed[feature.name] / len(overview),
        }
        for feature in schema.features
    }
    return {
        "kind": schema.kind,
        "examples": {split: size for split, size in sizes.items() if size},
        "groups": groups,
        "items": int(lengths.sum()),
        "vocabulary": len(schema.items),
        "unknown_items": len(usage.unknown),
        "unknown_occurrences": usage.unknown.total(),
        "lengths": {
            "min": int(lengths.min()),
            "mean": float(lengths.mean()),
            "max": int(lengths.max()),
        },
        "longer": longer,
        "duplicates_across_splits": overview.duplicates(),
        "groups_across_splits": groups_across,
        "features": features,
        "ignored_features": sorted(set(overview.feature_names) - set(features)),
    }


def format_summary(summary: dict[str, Any], longer: str) -> str:
    """The summary as aligned text.

    Args:
      summary: From `summarize`.
      longer: What became of longer examples, `leave_out` or `subsample`.
    """
    lengths = summary["lengths"]
    sizes = "  ".join(f"{split} {count:,}" for split, count in summary["examples"].items())
    lines = [
        f"{summary['kind'] + 's':<12}{sizes}  (groups {summary['groups']:,})",
        f"items       {summary['items']:,} of {summary['vocabulary']:,} kinds; "
        f"{lengths['min']} to {lengths['max']} an example, mean {lengths['mean']:.2f}",
        f"unknown     {summary['unknown_items']:,} items outside the vocabulary, "
        f"{summary['unknown_occurrences']:,} occurrences",
        f"longer      {summary['longer']:,} examples above max_items, "
        + ("left out" if longer == "leave_out" else "subsampled"),
        f"duplicates  {summary['duplicates_across_splits']:,} examples of other splits "
        "have the items of a training example",
    ]
    if summary["groups_across_splits"]:
        lines.append(
            f"groups      {summary['groups_across_splits']:,} lie in several splits, by their "
            "records' own 'split': what is known of them in training helps elsewhere"
        )
    if summary["ignored_features"]:
        ignored = printable(", ".join(summary["ignored_features"]))
        lines.append(f"ignored     {ignored} (not in the schema)")
    return "\n".join([*lines, *_feature_lines(summary["features"])])


def _feature_lines(features: dict[str, dict[str, Any]]) -> list[str]:
    rows = {printable(name): numbers for name, numbers in features.items()}
    width = max(map(len, rows), default=0)
    head = f"\n{'feature':<{width}}  {'kind':<12}  values  width  missing"
    return [head] + [
        f"{name:<{width}}  {row['kind']:<12}  {row['values']:>6}  {row['width']:>5}"
        f"  {row['missing']:>6.1%}"
        for name, row in rows.items()
    ]
