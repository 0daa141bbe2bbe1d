"""`schema.json`: written, read back, and checked, for people may edit it."""

import dataclasses
import json
import pathlib
from typing import Any

from cbert import files
from cbert.errors import UserError, shown
from cbert.schema import KINDS, SEQUENCE, SET, VECTOR, Feature, Schema, is_finite

# Of a width, a length or a count; a model or a split of such sizes fits no machine.
_LARGEST = 2**31 - 1


def text(schema: Schema) -> str:
    """A schema as JSON."""
    return json.dumps(dataclasses.asdict(schema), indent=1, ensure_ascii=False) + "\n"


def save(schema: Schema, path: pathlib.Path) -> None:
    """Writes a schema as JSON."""
    files.write_text(path, text(schema))


def load(path: str | pathlib.Path) -> Schema:
    """Reads `schema.json`; raises `UserError` naming the file and the field at fault."""
    path = pathlib.Path(path).expanduser()
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such schema; prepare the data first") from None
    except (ValueError, RecursionError, OSError) as error:
        raise UserError(f"{path}: not a readable schema ({str(error)[:80]})") from None
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
            raise UserError(
                f"{where} has an unknown field {shown(name)}; known: {', '.join(known)}"
            )
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
            raise UserError(f"{where}.{name} must be {_PLAIN[plain]}, not {shown(value)}")
        fields[name] = value
    return fields


def check(schema: Schema) -> None:
    """Refuses what no model can be trained on; raises `UserError`."""
    if schema.kind not in (SET, SEQUENCE):
        raise UserError(f"kind is {shown(schema.kind)}; it must be {SET!r} or {SEQUENCE!r}")
    _check_size("max_items", schema.max_items)
    _check_names(schema.items, "items")
    if len(schema.items) < 2:
        raise UserError(
            f"the vocabulary has {len(schema.items)} item(s), at least 2 are needed; "
            "lower --min_count or give more data"
        )
    if len(schema.counts) != len(schema.items) or not all(
        type(count) is int and 0 <= count <= _LARGEST for count in schema.counts
    ):
        raise UserError(f"counts must hold one whole number from 0 to {_LARGEST} for each item")
    _check_names(tuple(feature.name for feature in schema.features), "feature names")
    for feature in schema.features:
        _check_feature(feature)


def _check_feature(feature: Feature) -> None:
    where = f"feature {shown(feature.name)}"
    if feature.kind not in KINDS:
        raise UserError(
            f"{where}: kind is {shown(feature.kind)}; it must be one of {', '.join(KINDS)}"
        )
    _check_size(f"{where}: width", feature.width)
    _check_size(f"{where}: max_values", feature.max_values)
    _check_names(feature.values, f"{where}: values")
    if feature.kind == VECTOR:
        _check_size(f"{where}: dimension", feature.dimension)
    if not is_finite(feature.mean) or not is_finite(feature.scale) or feature.scale <= 0:
        raise UserError(f"{where}: mean and scale must be finite, and scale above zero")
    if not all(map(is_finite, feature.edges)):
        raise UserError(f"{where}: edges must be finite numbers")
    if any(a >= b for a, b in zip(feature.edges, feature.edges[1:], strict=False)):
        raise UserError(f"{where}: edges must increase")


def _check_size(what: str, size: int) -> None:
    if not 1 <= size <= _LARGEST:
        raise UserError(f"{what} is {shown(size)}; it must be from 1 to {_LARGEST}")


def _check_names(names: tuple[Any, ...], what: str) -> None:
    seen = set()
    for name in names:
        if not isinstance(name, str):
            raise UserError(f"{what}: {shown(name)} is not a string")
        if not name.isascii() and not _is_unicode(name):
            raise UserError(f"{what}: {shown(name)} is not valid Unicode")
        if name in seen:
            raise UserError(f"{what}: {shown(name)} is listed twice")
        seen.add(name)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
