"""`schema.json`: written, read back, and checked, for people may edit it."""

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np

from cbert.errors import UserError
from cbert.schema import KINDS, SEQUENCE, SET, VECTOR, Feature, Schema


def text(schema: Schema) -> str:
    """A schema as JSON."""
    return json.dumps(dataclasses.asdict(schema), indent=1, ensure_ascii=False) + "\n"


def save(schema: Schema, path: pathlib.Path) -> None:
    """Writes a schema as JSON."""
    path.write_text(text(schema), encoding="utf-8")


def load(path: str | pathlib.Path) -> Schema:
    """Reads `schema.json`; raises `UserError` naming the file and the field at fault."""
    try:
        raw = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such schema; prepare the data first") from None
    except (ValueError, RecursionError, OSError) as error:
        raise UserError(f"{path}: not a readable schema ({error})") from None
    try:
        return from_dict(raw)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def from_dict(raw: Any) -> Schema:
    """Builds and checks a schema from parsed JSON; raises `UserError` naming the field."""
    fields = _checked(raw, Schema, "schema")
    features = fields.pop("features")
    fields["features"] = tuple(
        Feature(**_checked(feature, Feature, f"features[{place}]"))
        for place, feature in enumerate(features)
    )
    schema = Schema(**fields)
    check(schema)
    return schema


_PLAIN = {str: "a string", int: "a whole number", float: "a number", tuple: "a list"}


def _checked(raw: Any, cls: type, where: str) -> dict[str, Any]:
    """The fields of a dataclass out of parsed JSON, with lists as tuples."""
    if not isinstance(raw, dict):
        raise UserError(f"{where} must be an object, not {type(raw).__name__}")
    known = {field.name: field for field in dataclasses.fields(cls)}
    for name in raw:
        if name not in known:
            raise UserError(f"{where} has an unknown field {name!r}; known: {', '.join(known)}")
    fields = {}
    for name, field in known.items():
        if name not in raw:
            if field.default is dataclasses.MISSING:
                raise UserError(f"{where} lacks the field {name!r}")
            continue
        value = tuple(raw[name]) if isinstance(raw[name], list) else raw[name]
        plain = getattr(field.type, "__origin__", field.type)
        accepted = (int, float) if plain is float else plain
        if not isinstance(value, accepted) or isinstance(value, bool):
            raise UserError(f"{where}.{name} must be {_PLAIN[plain]}, not {value!r}")
        fields[name] = value
    return fields


def check(schema: Schema) -> None:
    """Refuses what no model can be trained on; raises `UserError`."""
    if schema.kind not in (SET, SEQUENCE):
        raise UserError(f"kind is {schema.kind!r}; it must be {SET!r} or {SEQUENCE!r}")
    if schema.max_items < 1:
        raise UserError(f"max_items is {schema.max_items}; it must be at least 1")
    _check_names(schema.items, "items")
    if len(schema.items) < 2:
        raise UserError(
            f"the vocabulary has {len(schema.items)} item(s), at least 2 are needed; "
            "lower --min_count or give more data"
        )
    if len(schema.counts) != len(schema.items) or not all(
        type(count) is int and count >= 0 for count in schema.counts
    ):
        raise UserError("counts must hold one whole number of at least 0 for each item")
    _check_names(tuple(feature.name for feature in schema.features), "feature names")
    for feature in schema.features:
        _check_feature(feature)


def _check_feature(feature: Feature) -> None:
    where = f"feature {feature.name!r}"
    if feature.kind not in KINDS:
        raise UserError(
            f"{where}: kind is {feature.kind!r}; it must be one of {', '.join(KINDS)}"
        )
    if feature.width < 1:
        raise UserError(f"{where}: width is {feature.width}; it must be at least 1")
    if feature.max_values < 1:
        raise UserError(f"{where}: max_values is {feature.max_values}; it must be at least 1")
    _check_names(feature.values, f"{where}: values")
    if feature.kind == VECTOR and feature.dimension < 1:
        raise UserError(f"{where}: dimension is {feature.dimension}; it must be at least 1")
    if not np.isfinite(feature.mean) or not (np.isfinite(feature.scale) and feature.scale > 0):
        raise UserError(f"{where}: mean and scale must be finite, and scale above zero")
    if not all(isinstance(edge, int | float) and np.isfinite(edge) for edge in feature.edges):
        raise UserError(f"{where}: edges must be finite numbers")
    if any(a >= b for a, b in zip(feature.edges, feature.edges[1:], strict=False)):
        raise UserError(f"{where}: edges must increase")


def _check_names(names: tuple[Any, ...], what: str) -> None:
    seen = set()
    for name in names:
        if not isinstance(name, str):
            raise UserError(f"{what}: {name!r} is not a string")
        if name in seen:
            raise UserError(f"{what}: {name!r} is listed twice")
        seen.add(name)
