"""Checks a context; every refusal is one line that names the value and the fix."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from cbert.schema import Schema, recognise


@dataclasses.dataclass(frozen=True)
class CheckedContext:
    """A context that can be encoded.

    Attributes:
      values: Feature name to value, for all features; None where it is missing.
      unknown: Feature name to its values that were never seen in training, where it has some.
      missing: The features that are missing.
    """

    values: dict[str, Any]
    unknown: dict[str, list[str]]
    missing: list[str]

    @property
    def all_unknown(self) -> list[str]:
        """The features of whose values none is known."""

        def has(name: str) -> set[str]:
            value = self.values[name]
            return {value} if isinstance(value, str) else set(value)

        return [name for name, values in self.unknown.items() if set(values) == has(name)]

    def with_each_dropped(self) -> tuple[list[str], list[dict[str, Any]]]:
        """The features that are not missing; the values, then those without each of them."""
        observed = [name for name in self.values if name not in self.missing]
        return observed, [self.values, *({**self.values, name: None} for name in observed)]


def check(schema: Schema, context: Any) -> CheckedContext:
    """Checks a context; in None all features are missing, and one whose value is NaN is."""
    values, unknown = schema.context_values(context), {}
    for feature in schema.features:
        value = values[feature.name]
        if value is not None:
            recognise(feature.name, value)
            unknown[feature.name] = feature.validate(value, schema.codes)
    return CheckedContext(
        values,
        {name: unseen for name, unseen in unknown.items() if unseen},
        [name for name, value in values.items() if value is None],
    )


def columns(schema: Schema, contexts: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Feature name to its values in contexts that have all features."""
    rows = list(contexts)
    return {feature.name: [row[feature.name] for row in rows] for feature in schema.features}
