"""Writes, reads and checks `schema.json`, which people may edit."""

import dataclasses
import json
import pathlib
from typing import Any

from cbert import files
from cbert.errors import UserError, shown
from cbert.schema.feature import Feature
from cbert.schema.history import History
from cbert.schema.kinds import KINDS
from cbert.schema.schema import SEQUENCE, SET, TEXT, Schema
from cbert.schema.target import Target
from cbert.schema.tokenizer import (
    LEAST_LENGTH,
    MOST_LENGTH,
    TokenizerOptions,
    check_vocabulary,
)
from cbert.schema.values import check_counts, check_names, check_size

FILE = "schema.json"


def text(schema: Schema) -> str:
    """A schema as JSON."""
    fields = {field.name: getattr(schema, field.name) for field in dataclasses.fields(schema)}
    fields["features"] = [_feature_fields(feature) for feature in schema.features]
    for name in _PARTS:
        part = fields.pop(name)
        if part is not None:
            fields[name] = dataclasses.asdict(part)
    return json.dumps(fields, indent=1, ensure_ascii=False) + "\n"


# Parts of a schema that are objects of their own, and are left out where there is none.
_PARTS = {"tokenizer": TokenizerOptions, "target": Target}


def _feature_fields(feature: Feature) -> dict[str, Any]:
    return {"name": feature.name, "kind": feature.kind, **dataclasses.asdict(feature)}


def save(schema: Schema, path: pathlib.Path) -> None:
    """Writes a schema as JSON."""
    files.write_text(path, text(schema))


def load(path: str | pathlib.Path) -> Schema:
    """Reads `schema.json`, or that of a directory, such as a run's.

    Raises:
      UserError: it cannot be read; names the file and the field at fault.
    """
    path = pathlib.Path(path).expanduser()
    if path.is_dir():
        path = path / FILE
    try:
        raw = json.loads(files.read_text(path))
    except FileNotFoundError:
        raise UserError(f"{path}: no such schema; prepare the data first") from None
    except (ValueError, RecursionError, OSError) as error:
        raise UserError(f"{path}: not a readable schema ({str(error)[:80]})") from None
    try:
        return from_dict(raw)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def from_dict(raw: object) -> Schema:
    """Builds and checks a schema from parsed JSON; raises `UserError` naming the field."""
    types = _types(Schema) | dict.fromkeys(_PARTS, (dict, False))
    fields = _checked(raw, types, "schema")
    for name, cls in _PARTS.items():
        if name in fields:
            fields[name] = cls(**_checked(fields[name], _types(cls), name))
    features = fields.pop("features")
    fields["features"] = tuple(
        _feature(feature, f"features[{index}]") for index, feature in enumerate(features)
    )
    schema = Schema(**fields)
    check(schema)
    return schema


def _feature(raw: object, where: str) -> Feature:
    """A feature out of parsed JSON. A field of another kind is checked, and means nothing."""
    types = {"name": (str, True), "kind": (str, True)}
    for cls in KINDS.values():
        types |= _types(cls)
    fields = _checked(raw, types, where)
    if fields["kind"] not in KINDS:
        raise UserError(
            f"feature {shown(fields['name'])}: kind is {shown(fields['kind'])}; it must be one "
            f"of {', '.join(KINDS)}"
        )
    cls = KINDS[fields["kind"]]
    return cls(**{name: fields[name] for name in _types(cls) if name in fields})


_PLAIN = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    tuple: "a list",
    dict: "an object",
}


def _types(cls: type) -> dict[str, tuple[Any, bool]]:
    """The fields of a dataclass: the type, for tuples `tuple`, and whether it is required."""
    return {
        field.name: (
            getattr(field.type, "__origin__", field.type),
            field.default is dataclasses.MISSING,
        )
        for field in dataclasses.fields(cls)
    }


def _checked(raw: object, types: dict[str, tuple[Any, bool]], where: str) -> dict[str, Any]:
    """The fields of an object of parsed JSON, with lists as tuples."""
    if not isinstance(raw, dict):
        raise UserError(f"{where} must be an object, not {type(raw).__name__}")
    for name in raw:
        if name not in types:
            raise UserError(
                f"{where} has an unknown field {shown(name)}; known: {', '.join(types)}"
            )
    values = {}
    for name, (plain, needed) in types.items():
        if name not in raw:
            if needed:
                raise UserError(
                    f"{where} lacks the field {name!r}; restore it as prepare wrote it"
                )
            continue
        value = tuple(raw[name]) if isinstance(raw[name], list) else raw[name]
        accepted = (int, float) if plain is float else plain
        if not isinstance(value, accepted) or isinstance(value, bool) != (plain is bool):
            raise UserError(f"{where}.{name} must be {_PLAIN[plain]}, not {shown(value)}")
        values[name] = value
    return values


def check(schema: Schema) -> None:
    """Raises `UserError` for a schema that no model can be trained on."""
    if schema.kind not in (SET, SEQUENCE, TEXT):
        raise UserError(
            f"kind is {shown(schema.kind)}; it must be {SET!r}, {SEQUENCE!r} or {TEXT!r}"
        )
    check_size("max_items", schema.max_items)
    check_names(schema.items, "items")
    if len(schema.items) < 2:
        raise UserError(
            f"the vocabulary has {len(schema.items)} item(s), at least 2 are needed; "
            "give min_count=1, or more data"
        )
    check_counts(schema.counts, len(schema.items), "counts")
    check_names(tuple(feature.name for feature in schema.features), "feature names")
    for feature in schema.features:
        feature.check()
    _check_text(schema)


def _check_text(schema: Schema) -> None:
    """Refuses a text without a tokeniser, and items with what belongs to a text."""
    if schema.kind == TEXT:
        if schema.tokenizer is None:
            raise UserError("schema lacks the field 'tokenizer', which a text needs")
        check_vocabulary(schema.items)
        if not LEAST_LENGTH <= schema.max_items <= MOST_LENGTH:
            raise UserError(
                f"max_items is {schema.max_items}; a text has from {LEAST_LENGTH} to "
                f"{MOST_LENGTH} tokens"
            )
        if any(feature.kind == History.kind for feature in schema.features):
            raise UserError("a history holds items; the context of a text cannot have one")
        if schema.target is not None:
            schema.target.check()
    elif schema.tokenizer is not None or schema.target is not None:
        raise UserError(f"the kind {schema.kind!r} takes neither 'tokenizer' nor 'target'")
