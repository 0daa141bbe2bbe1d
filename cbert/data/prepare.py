"""From records to prepared data, with a summary of what was found."""

import collections
import dataclasses
import pathlib
from typing import Any

import numpy as np

from cbert import schema as schema_lib
from cbert.data import builder, infer_schema, splits
from cbert.data.records import SPLITS, Record
from cbert.errors import UserError, printable, shown
from cbert.schema import Schema

LONGER = ("leave_out", "subsample")


@dataclasses.dataclass(frozen=True)
class Options:
    """What `prepare` may be told; each is a flag of the same name."""

    kind: str = schema_lib.SET
    min_count: int = 2
    value_min_count: int = 2
    max_items: int | None = None
    longer: str = "leave_out"
    split_shares: tuple[int, ...] = splits.SHARES
    widths: dict[str, int] = dataclasses.field(default_factory=dict)
    kinds: dict[str, str] = dataclasses.field(default_factory=dict)
    drop: tuple[str, ...] = ()
    overwrite: bool = False


def prepare(
    records: list[Record],
    data_dir: str | pathlib.Path,
    name: str,
    options: Options,
    schema: Schema | None = None,
) -> tuple[pathlib.Path, dict[str, Any]]:
    """Splits, infers or checks the schema, writes the data set, and summarises it.

    Returns:
      The data set's directory and the summary that `format_summary` prints.

    Raises:
      UserError: the records or the schema do not make a data set; nothing is written.
    """
    splits.check_shares(options.split_shares)
    records = _dropped(records, options.drop)
    if schema:
        kept = tuple(f for f in schema.features if f.name not in options.drop)
        schema = dataclasses.replace(schema, features=kept)
    max_items = schema.max_items if schema else options.max_items
    records, longer = _shortened(records, max_items, options)
    by_split: dict[str, list[Record]] = {split: [] for split in SPLITS}
    for record in records:
        by_split[splits.split_of(record, options.split_shares)].append(record)
    if schema is None:
        schema = _inferred(by_split, options)
    _check_fit(schema, records)
    most = max(len(found) for found in by_split.values())
    schema.check_room(most)
    by_split = {split: found for split, found in by_split.items() if found}
    written = builder.write(data_dir, name, by_split, schema, options.overwrite)
    return written, summarize(by_split, schema, longer)


def _inferred(by_split: dict[str, list[Record]], options: Options) -> Schema:
    if not by_split["validation"]:
        raise UserError(
            "the validation split is empty; give more groups, other --split_shares, or "
            "records with a 'split' of their own"
        )
    accumulator = infer_schema.SchemaAccumulator(
        options.kind,
        options.min_count,
        options.value_min_count,
        options.max_items,
        options.widths,
        options.kinds,
    )
    for split, records in by_split.items():
        take = accumulator.observe if split == SPLITS[0] else accumulator.make_room
        for record in records:
            take(record)
    return accumulator.finish()


def _dropped(records: list[Record], names: tuple[str, ...]) -> list[Record]:
    if not names:
        return records
    known = infer_schema.feature_names(records)
    for name in names:
        if name not in known:
            raise UserError(f"--drop names {shown(name)}; the features are: {', '.join(known)}")
    return [
        dataclasses.replace(
            record,
            context={k: v for k, v in record.context.items() if k not in names},
            # What was known of the items was known with these features.
            reference=None,
        )
        for record in records
    ]


def _shortened(
    records: list[Record], max_items: int | None, options: Options
) -> tuple[list[Record], int]:
    """Applies `max_items`: longer records are left out or subsampled, and counted."""
    if max_items is None:
        return records, 0
    kept, longer = [], 0
    for record in records:
        if len(record.items) > max_items:
            longer += 1
            if options.longer == "leave_out":
                continue
            record = _subsampled(record, max_items, options.kind)
        kept.append(record)
    if not kept:
        raise UserError(f"every example is longer than --max_items={max_items}; raise it")
    return kept, longer


def _subsampled(record: Record, size: int, kind: str) -> Record:
    """A random subset of a set, or a random window of a sequence, decided by the id."""
    seed = int(splits.uniform(f"subsample {record.id}") * 2**53)
    generator = np.random.default_rng(seed)
    if kind == schema_lib.SEQUENCE:
        start = int(generator.integers(len(record.items) - size + 1))
        places = range(start, start + size)
    else:
        places = sorted(generator.choice(len(record.items), size, replace=False).tolist())
    items = [record.items[place] for place in places]
    return dataclasses.replace(record, items=items, reference=None)


def _check_fit(schema: Schema, records: list[Record]) -> None:
    if not any(item in schema.codes for record in records for item in record.items):
        raise UserError(
            "the schema does not fit: none of the data's items is in its vocabulary"
        )
    for start in range(0, len(records), 1024):  # In blocks, for vectors may be long.
        try:
            schema.encode_contexts([r.context for r in records[start : start + 1024]])
        except UserError as error:
            raise UserError(f"the schema does not fit: {error}") from None


def summarize(by_split: dict[str, list[Record]], schema: Schema, longer: int) -> dict[str, Any]:
    records = [record for found in by_split.values() for record in found]
    lengths = np.array([len(record.items) for record in records])
    occurrences = collections.Counter(item for record in records for item in record.items)
    unknown = {item: n for item, n in occurrences.items() if item not in schema.codes}
    features = {}
    for feature in schema.features:
        observed = sum(record.context.get(feature.name) is not None for record in records)
        features[feature.name] = {
            "kind": feature.kind,
            "values": feature.value_count,
            "width": feature.width,
            "missing": 1 - observed / len(records),
        }
    ignored = set(infer_schema.feature_names(records)) - set(features)
    return {
        "kind": schema.kind,
        "sets": {split: len(found) for split, found in by_split.items()},
        "groups": len({record.group for record in records}),
        "items": int(lengths.sum()),
        "vocabulary": len(schema.items),
        "unknown_items": len(unknown),
        "unknown_occurrences": sum(unknown.values()),
        "lengths": {
            "min": int(lengths.min()),
            "mean": float(lengths.mean()),
            "max": int(lengths.max()),
        },
        "longer": longer,
        "duplicates_across_splits": _duplicates(by_split, schema.kind),
        "groups_across_splits": _groups_across(by_split),
        "features": features,
        "ignored_features": sorted(ignored),
    }


def _duplicates(by_split: dict[str, list[Record]], kind: str) -> int:
    """Examples outside training whose items make up a training example too."""

    def signature(record: Record) -> tuple[str, ...]:
        return tuple(sorted(record.items) if kind == schema_lib.SET else record.items)

    training = {signature(record) for record in by_split.get(SPLITS[0], [])}
    return sum(
        signature(record) in training
        for split, found in by_split.items()
        if split != SPLITS[0]
        for record in found
    )


def _groups_across(by_split: dict[str, list[Record]]) -> int:
    """Groups whose records lie in several splits, by a `split` of their own."""
    splits_of = collections.Counter(
        group for found in by_split.values() for group in {record.group for record in found}
    )
    return sum(count > 1 for count in splits_of.values())


def format_summary(summary: dict[str, Any], options: Options) -> str:
    """The summary as aligned text."""
    lengths = summary["lengths"]
    sets = "  ".join(f"{split} {count:,}" for split, count in summary["sets"].items())
    lines = [
        f"{summary['kind']}s        {sets}  (groups {summary['groups']:,})",
        f"items       {summary['items']:,} of {summary['vocabulary']:,} kinds; "
        f"{lengths['min']} to {lengths['max']} an example, mean {lengths['mean']:.2f}",
        f"unknown     {summary['unknown_items']:,} items outside the vocabulary, "
        f"{summary['unknown_occurrences']:,} occurrences",
        f"longer      {summary['longer']:,} examples above max_items, "
        + ("left out" if options.longer == "leave_out" else "subsampled"),
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
    features = {printable(name): found for name, found in summary["features"].items()}
    wide = max(map(len, features), default=0)
    lines.append(f"\n{'feature':<{wide}}  {'kind':<12}  values  width  missing")
    for name, found in features.items():
        lines.append(
            f"{name:<{wide}}  {found['kind']:<12}  {found['values']:>6}  {found['width']:>5}"
            f"  {found['missing']:>6.1%}"
        )
    return "\n".join(lines)
