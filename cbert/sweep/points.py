"""The points of a sweep: each has a name, and overrides fields of the config."""

import dataclasses
import difflib
import itertools
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import ml_collections

from cbert.errors import UserError
from cbert.model import conditioning, contextual_bert
from cbert.schema import Schema
from cbert.training import config as config_lib

METHOD, WIDTH = "model.method", "model.feed_forward"
SEED, STEPS = "seed", "train.steps"
# The suffixes of a method's two baselines.
CONSTANT, WIDE = "_constant", "_wide"
WIDEST = "gsu"


@dataclasses.dataclass(frozen=True)
class Point:
    """One run of a sweep.

    Attributes:
      name: The name of its directory, made from what it overrides.
      variant: The name without the seed.
      overrides: From config field to value.
    """

    name: str
    variant: str
    overrides: dict[str, Any]

    def apply(self, config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
        """The config of this point.

        Raises:
          UserError: the config does not have a field, or the field has another type.
        """
        own = config.copy_and_resolve_references()
        try:
            own.update_from_flattened_dict(self.overrides)
        except (KeyError, TypeError, ValueError) as error:
            reason = error.args[0]
            raise UserError(f"{self.name}: {reason}; correct the config's sweep()") from None
        return own


def expand(
    config: ml_collections.ConfigDict,
    sweep: Sequence[dict[str, Any]],
    methods: Sequence[str],
    seeds: int,
    settings: Sequence[str],
    schema: Schema | None = None,
) -> list[Point]:
    """A point for every combination of a method, a setting and a seed.

    Args:
      config: The config that the points override.
      sweep: The config file's own list of overrides.
      methods: The entries of `sweep` to keep, and names of baselines; empty for all of it.
      seeds: The number of seeds, counted from the config's.
      settings: Fields and their values, each as `field=value,value`.
      schema: The schema of the data, needed to count parameters for `none_wide`.

    Raises:
      UserError: a method, a field or a value is not possible, or two points share a name.
    """
    grids = [_setting(config, text) for text in settings]
    fields = [field for field, _ in grids]
    if len(set(fields)) < len(fields):
        raise UserError("the settings name a field twice; write field=value,value")
    short = config_lib.short_names(fields)
    points = []
    for label, chosen in _methods(sweep, methods):
        for values in itertools.product(*(values for _, values in grids)):
            given = dict(zip(fields, values, strict=True))
            shown = [f"{short[field]}={value}" for field, value in given.items()]
            variant = "-".join([label, *shown])
            overrides = {**chosen, **given}
            if label.endswith(WIDE):
                own = Point(variant, variant, overrides).apply(config)
                overrides[WIDTH] = matched_width(own, schema)
            for seed in range(config.seed, config.seed + seeds):
                point = Point(f"{variant}-seed{seed}", variant, {**overrides, SEED: seed})
                points.append(point)
    _check(config, points)
    return points


def _methods(
    sweep: Sequence[dict[str, Any]], methods: Sequence[str]
) -> Iterable[tuple[str, dict[str, Any]]]:
    own = {_label(overrides): overrides for overrides in sweep}
    if len(own) < len(sweep):
        raise UserError("two entries of the config's sweep() are the same")
    for name in methods or own:
        name = conditioning.short_name(name)
        if name in own:
            yield name, own[name]
        elif name in (known := {**{n: {METHOD: n} for n in conditioning.NAMES}, **baselines()}):
            yield name, known[name]
        else:
            names = ", ".join(dict.fromkeys([*own, *known]))
            raise UserError(f"methods has {name!r}; it must be some of {names}")


def baselines() -> dict[str, dict[str, Any]]:
    """The methods' baselines: name to overrides.

    `<method>_constant` has all parameters of a method but no information in the context, and
    `<method>_wide` is widened to the parameters of [GSU], the largest of the paper's methods.
    """
    constant = {
        f"{name}{CONSTANT}": {METHOD: name, "model.constant_context": True}
        for name, method in conditioning.METHODS.items()
        if method.uses_context
    }
    wide = {f"{name}{WIDE}": {METHOD: name} for name in conditioning.NAMES if name != WIDEST}
    return {**constant, **wide}


def _label(overrides: dict[str, Any]) -> str:
    rest = [f"{f.rpartition('.')[2]}={v}" for f, v in overrides.items() if f != METHOD]
    return "-".join([*([overrides[METHOD]] if METHOD in overrides else []), *rest])


def matched_width(config: ml_collections.ConfigDict, schema: Schema | None) -> int:
    """The smallest feed-forward width at which the method has at least [GSU]'s parameters.

    Raises:
      UserError: there is no schema, or the method has more parameters than [GSU].
    """
    own_method = config.model.method
    if schema is None:
        raise UserError(f"{own_method}{WIDE} needs the prepared data, to count parameters")

    def count(method: str, width: int) -> int:
        own = config.copy_and_resolve_references()
        own.model.update({"method": method, "feed_forward": width})
        model = config_lib.build_model(own, schema)
        return contextual_bert.count(model)

    width = config.model.feed_forward
    excess = count(own_method, width) - count(WIDEST, width)
    if excess > 0:
        raise UserError(
            f"{own_method} has more parameters than {WIDEST}, so there is no {own_method}{WIDE}"
        )
    unit = count(own_method, width + 1) - count(own_method, width)
    return width - excess // unit


def _setting(
    config: ml_collections.ConfigDict, text: str
) -> tuple[str, list[bool | int | float | str]]:
    """A field and its values, parsed to the type that the field has in the config."""
    field, sign, values = text.partition("=")
    field = field.removeprefix("config.")
    known = config_lib.flat(config.to_dict())
    if not sign or not values:
        raise UserError(f"the setting {text!r} has no values; write it as field=value,value")
    if field not in known:
        near = difflib.get_close_matches(field, known, 1, 0.0)[0]
        raise UserError(f"the config has no field {field!r}; is it {near!r}?")
    if field in (METHOD, SEED):
        argument = "methods" if field == METHOD else "seeds"
        raise UserError(f"{field} cannot be a setting; use the argument {argument}")
    if field.startswith("data."):
        raise UserError(f"{field} cannot be a setting, for a sweep is on one data set")
    return field, [_parse(field, known[field], value) for value in values.split(",")]


def _parse(field: str, like: Any, text: str) -> bool | int | float | str:
    try:
        if isinstance(like, bool):
            return {"true": True, "false": False}[text.lower()]
        return type(like)(text)
    except (ValueError, KeyError):
        raise UserError(
            f"{field} takes a value of type {type(like).__name__}, not {text!r}"
        ) from None


def _check(config: ml_collections.ConfigDict, points: Sequence[Point]) -> None:
    seen: set[str] = set()
    for point in points:
        if point.name in seen:
            raise UserError(f"two runs would be called {point.name}; leave one of them out")
        if pathlib.Path(point.name).name != point.name:
            raise UserError(f"{point.name!r} cannot be the name of a directory")
        seen.add(point.name)
        config_lib.check(point.apply(config))
