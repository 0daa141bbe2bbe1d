"""A schema inferred from the training split of a data set."""

import collections
import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cbert import schema as schema_lib
from cbert import schema_file
from cbert.data.records import Record, kind_of
from cbert.errors import UserError, shown
from cbert.schema import Feature, Schema

BINS = 16


def infer(
    records: Sequence[Record],
    kind: str = schema_lib.SET,
    min_count: int = 2,
    value_min_count: int = 2,
    max_items: int | None = None,
    widths: dict[str, int] | None = None,
) -> Schema:
    """Infers a schema.

    Args:
      records: The training split.
      kind: `set` or `sequence`.
      min_count: Items that occur less often become unknown.
      value_min_count: The same for the values of context features.
      max_items: The most items an example may hold; by default the most in training.
      widths: Embedding width by feature, where the default is not wanted.

    Raises:
      UserError: the data do not make a schema, or `widths` names no feature.
    """
    if not records:
        raise UserError("the training split is empty; give more groups or other --split_shares")
    counts = collections.Counter(item for record in records for item in record.items)
    items = [(item, count) for item, count in counts.items() if count >= min_count]
    items.sort(key=lambda pair: (-pair[1], pair[0]))
    columns = columns_of(records)
    for name in widths or {}:
        if name not in columns:
            raise UserError(
                f"--widths names {shown(name)}; the features are: {', '.join(columns)}"
            )
    features = [
        _feature(name, column, len(records), value_min_count, (widths or {}).get(name))
        for name, column in columns.items()
    ]
    schema = Schema(
        kind=kind,
        max_items=max_items or max(len(record.items) for record in records),
        items=tuple(item for item, _ in items),
        counts=tuple(count for _, count in items),
        features=tuple(features),
    )
    schema_file.check(schema)
    return schema


def with_room(schema: Schema, records: Sequence[Record]) -> Schema:
    """The schema, as large as the longest example and the longest list of any split need."""

    def widened(feature: Feature) -> Feature:
        if feature.kind != schema_lib.MULTI_VALUED:
            return feature
        lists = (record.context.get(feature.name) for record in records)
        most = max(len(set(values)) for values in lists if values is not None)
        return dataclasses.replace(feature, max_values=max(most, 1))

    longest = max(len(record.items) for record in records)
    return dataclasses.replace(
        schema,
        max_items=max(schema.max_items, longest),
        features=tuple(map(widened, schema.features)),
    )


def columns_of(records: Iterable[Record]) -> dict[str, list[Any]]:
    """Each feature's observed values, in the order of first appearance."""
    columns: dict[str, list[Any]] = {}
    for record in records:
        for name, value in record.context.items():
            column = columns.setdefault(name, [])
            if value is not None:
                column.append(value)
    return columns


def _feature(
    name: str, column: list[Any], examples: int, min_count: int, width: int | None
) -> Feature:
    if not column:
        raise UserError(
            f"context feature {shown(name)} is missing in all training examples; "
            f"leave it out with --drop={name}"
        )
    if len(column) == examples and all(value == column[0] for value in column):
        raise UserError(
            f"context feature {shown(name)} is always {shown(column[0])} in training; "
            f"leave it out with --drop={name}"
        )
    kind, dimension = kind_of(name, column[0])
    if kind in (schema_lib.NUMERICAL, schema_lib.VECTOR):
        return _numbers(name, column, kind, dimension, width)
    return _tokens(name, column, kind, min_count, width)


def _numbers(
    name: str, column: list[Any], kind: str, dimension: int, width: int | None
) -> Feature:
    values = np.asarray(column, np.float64)
    mean = float(values.mean())
    # Of equal values the deviation may be a rounding error, by which nothing can be divided.
    scale = float(values.std()) if values.min() < values.max() else 1.0
    if kind == schema_lib.VECTOR:
        width = min(dimension, 64) if width is None else width
        return Feature(name, kind, width, mean=mean, scale=scale, dimension=dimension)
    quantiles = np.unique(np.quantile(values, np.arange(1, BINS) / BINS))
    edges = tuple(float(edge) for edge in quantiles if edge > values.min())
    return Feature(
        name, kind, 16 if width is None else width, mean=mean, scale=scale, edges=edges
    )


def _tokens(
    name: str, column: list[Any], kind: str, min_count: int, width: int | None
) -> Feature:
    several = kind == schema_lib.MULTI_VALUED
    counts = collections.Counter(
        value for values in column for value in (values if several else (values,))
    )
    values = [value for value, count in counts.items() if count >= min_count]
    if not values and counts:
        raise UserError(
            f"context feature {shown(name)} has no value that occurs {min_count} times; "
            f"lower --value_min_count or leave it out with --drop={name}"
        )
    values.sort(key=lambda value: (-counts[value], value))
    most = max(len(set(values)) for values in column) if several else 1
    width = _default_width(len(values)) if width is None else width
    return Feature(name, kind, width, values=tuple(values), max_values=max(most, 1))


def _default_width(values: int) -> int:
    """1.6 n^0.56 rounded up to a multiple of 8, between 8 and 64."""
    return min(64, max(8, 8 * math.ceil(1.6 * max(values, 1) ** 0.56 / 8)))
