"""What a sweep is: every point a config, a name and a work directory."""

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
WIDE = "none_wide"
# Capacity without a context: what a method's parameters alone are worth.
CONTROLS = {
    f"{method}_constant": {METHOD: method, "model.constant_context": True}
    for method in conditioning.NAMES
    if method != "none"
}


@dataclasses.dataclass(frozen=True)
class Point:
    """One run of a sweep.

    Attributes:
      name: Of its directory, made from what it overrides.
      variant: The same without the seed.
      overrides: Config field to value.
    """

    name: str
    variant: str
    overrides: dict[str, Any]

    def apply(self, config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
        """The point's config; raises `UserError` where a field or its kind is not there."""
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
    """Every method with every setting and every seed.

    Args:
      config: What the points override.
      sweep: The config file's own list of overrides.
      methods: Those to keep of it, and names of controls; empty for all of it.
      seeds: How many, counted from the config's.
      settings: Each `field=value,value`.
      schema: The data's, needed to count parameters for `none_wide`.

    Raises:
      UserError: a method, a field or a value is not possible, or two points share a name.
    """
    grids = [_setting(config, text) for text in settings]
    fields = [field for field, _ in grids]
    if len(set(fields)) < len(fields):
        raise UserError("--set names a field twice; write --set=field=value,value")
    short = config_lib.short_names(fields)
    points = []
    for label, chosen in _methods(sweep, methods):
        for values in itertools.product(*(values for _, values in grids)):
            given = dict(zip(fields, values, strict=True))
            shown = [f"{short[field]}={value}" for field, value in given.items()]
            variant = "-".join([label, *shown])
            overrides = {**chosen, **given}
            if label == WIDE:
                own = Point(variant, variant, overrides).apply(config)
                overrides[WIDTH] = wide(own, schema)
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
        elif name in CONTROLS:
            yield name, CONTROLS[name]
        elif name == WIDE:
            yield name, {METHOD: "none"}
        elif name in conditioning.NAMES:
            yield name, {METHOD: name}
        else:
            known = ", ".join([*dict.fromkeys([*own, *conditioning.NAMES]), *CONTROLS, WIDE])
            raise UserError(f"--methods has {name!r}; it must be some of {known}")


def _label(overrides: dict[str, Any]) -> str:
    rest = [f"{f.rpartition('.')[2]}={v}" for f, v in overrides.items() if f != METHOD]
    return "-".join([*([overrides[METHOD]] if METHOD in overrides else []), *rest])


def wide(config: ml_collections.ConfigDict, schema: Schema | None) -> int:
    """The feed-forward width at which `none` has as many parameters as `gsu`, or just more."""
    if schema is None:
        raise UserError(f"{WIDE} needs the prepared data, to count parameters")

    def count(method: str, width: int) -> int:
        own = config.copy_and_resolve_references()
        own.model.update({"method": method, "feed_forward": width})
        model = config_lib.build_model(own, schema)
        return contextual_bert.count(model)

    width = config.model.feed_forward
    unit = count("none", width + 1) - count("none", width)
    return width - (count("none", width) - count("gsu", width)) // unit


def _setting(
    config: ml_collections.ConfigDict, text: str
) -> tuple[str, list[bool | int | float | str]]:
    """A field and its values, of the kind that the config has there."""
    field, sign, values = text.partition("=")
    field = field.removeprefix("config.")
    known = config_lib.flat(config.to_dict())
    if not sign or not values:
        raise UserError(f"--set is {text!r}; write --set=field=value,value")
    if field not in known:
        near = difflib.get_close_matches(field, known, 1, 0.0)[0]
        raise UserError(f"--set: the config has no field {field!r}; is it {near!r}?")
    if field in (METHOD, SEED):
        raise UserError(f"--set={text}: use --{'methods' if field == METHOD else 'seeds'}")
    if field.startswith("data."):
        raise UserError(f"--set={text}: a sweep is on one data set; use --config.{field}")
    return field, [_parse(field, known[field], value) for value in values.split(",")]


def _parse(field: str, like: Any, text: str) -> bool | int | float | str:
    try:
        if isinstance(like, bool):
            return {"true": True, "false": False}[text.lower()]
        return type(like)(text)
    except (ValueError, KeyError):
        raise UserError(
            f"--set: {field} takes a value of type {type(like).__name__}, not {text!r}"
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
