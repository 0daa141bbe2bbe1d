"""The points of a sweep: each has a name, and overrides fields of the config."""

import dataclasses
import itertools
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import ml_collections

from cbert.config import ImpossibleValueError, flat
from cbert.errors import UserError, did_you_mean
from cbert.field_names import nearest_field, short_names
from cbert.model import conditioning, parameter_tree
from cbert.schema import Schema
from cbert.training import config as config_lib
from cbert.training.config import METHOD, WIDTH

SEED, STEPS = "seed", "train.steps"
# The suffixes of a method's controls: no information in the context, and as many parameters
# as [GSU] has, by wider or by narrower feed-forward networks.
CONSTANT, WIDE, NARROW = "_constant", "_wide", "_narrow"
REFERENCE = "gsu"


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

    The options of a method, such as `model.gsu.update_norm`, are settings of that method alone.

    Args:
      config: The config that the points override.
      sweep: The config file's own list of overrides.
      methods: The entries of `sweep` to keep, and names of controls; empty for all of it.
      seeds: The number of seeds, counted from the config's.
      settings: Fields and their values, each as `field=value,value`.
      schema: The schema of the data, needed to count parameters for names such as `none_wide`.

    Raises:
      UserError: a method, a field or a value is not possible, or two points share a name.
    """
    grids = [_setting(config, text) for text in settings]
    fields = [field for field, _ in grids]
    if len(set(fields)) < len(fields):
        raise UserError("the settings name a field twice; write field=value,value")
    short = short_names(fields)
    points, unread = [], fields
    for label, chosen, control in _methods(sweep, methods):
        method = str(chosen.get(METHOD, config.model.method))
        unread = [field for field in unread if not _reads(method, field)]
        read = [grid for grid in grids if _reads(method, grid[0])]
        for values in itertools.product(*(values for _, values in read)):
            given = {field: value for (field, _), value in zip(read, values, strict=True)}
            shown = [f"{short[field]}={value}" for field, value in given.items()]
            variant = "-".join([label, *shown])
            overrides = {**chosen, **given}
            if control in (WIDE, NARROW):
                own = Point(variant, variant, overrides).apply(config)
                overrides[WIDTH] = matched_width(own, schema, control == NARROW)
            for seed in range(config.seed, config.seed + seeds):
                point = Point(f"{variant}-seed{seed}", variant, {**overrides, SEED: seed})
                points.append(point)
    if unread:
        owner = unread[0].split(".")[1]
        raise UserError(
            f"{unread[0]} is an option of {owner}, which no run has; add {owner} to the methods"
        )
    _check(config, points)
    return points


def _reads(method: str, field: str) -> bool:
    """Whether a field is none of another method's options, such as `model.gsu.update_norm`."""
    section, *rest = field.split(".")
    return section != "model" or len(rest) == 1 or rest[0] == method


def _methods(
    sweep: Sequence[dict[str, Any]], methods: Sequence[str]
) -> Iterable[tuple[str, dict[str, Any], str]]:
    """The label and the overrides of each entry, and the suffix of a control, else empty.

    Only what is asked for by a control's name is one: a label may end like one, because it has
    values of the config's `sweep()` or the name of a method of the user's own.

    Raises:
      UserError: a name is not known, or two entries of the sweep are the same.
    """
    own = {_label(overrides): overrides for overrides in sweep}
    if len(own) < len(sweep):
        raise UserError("two entries of the config's sweep() are the same; leave one out")
    made = controls()
    for name in methods or own:
        if name in own:
            yield name, own[name], ""
        elif name in conditioning.NAMES:
            yield name, {METHOD: name}, ""
        elif name in made:
            yield name, made[name], name.removeprefix(made[name][METHOD])
        else:
            names = dict.fromkeys([*own, *conditioning.NAMES, *made])
            hint = did_you_mean(name, names)
            raise ImpossibleValueError(
                METHOD, f"methods has {name!r}; {hint} must be some of {', '.join(names)}"
            )


def controls() -> dict[str, dict[str, Any]]:
    """The methods' controls: name to overrides.

    `<method>_constant` has all parameters of a method but no information in the context. The
    two others have the parameters of [GSU], the largest of the paper's methods:
    `<method>_wide` is a smaller method made at least as large, and `<method>_narrow` a larger
    one made at most as large.
    """
    constant = {
        f"{name}{CONSTANT}": {METHOD: name, "model.constant_context": True}
        for name, method in conditioning.METHODS.items()
        if method.reads_context(conditioning.default_options(name))
    }
    matched = {
        f"{name}{suffix}": {METHOD: name}
        for suffix in (WIDE, NARROW)
        for name in conditioning.NAMES
        if name != REFERENCE
    }
    return {**constant, **matched}


def _label(overrides: dict[str, Any]) -> str:
    # A comma would make two directories of one in the commands of the runs.
    rest = [
        f"{field.rpartition('.')[2]}={value}".replace(",", "+")
        for field, value in overrides.items()
        if field != METHOD
    ]
    return "-".join([*([overrides[METHOD]] if METHOD in overrides else []), *rest])


def matched_width(
    config: ml_collections.ConfigDict, schema: Schema | None, narrow: bool = False
) -> int:
    """The feed-forward width at which the method has [GSU]'s parameters, or nearly.

    It is the smallest width with at least as many or, if `narrow`, the largest with at most as
    many.

    Raises:
      UserError: there is no schema, the method would have to change in the other direction, or
        it has more parameters than [GSU] even at a width of 1.
    """
    method, suffix = config.model.method, NARROW if narrow else WIDE
    if schema is None:
        raise UserError(f"{method}{suffix} needs the prepared data, to count parameters")

    def count(method: str, width: int) -> int:
        own = config.copy_and_resolve_references()
        own.model.update({"method": method, "feed_forward": width})
        model = config_lib.build_model(own, schema)
        return parameter_tree.table_1_count(model)

    width = config.model.feed_forward
    excess = count(method, width) - count(REFERENCE, width)
    if excess and (excess < 0) == narrow:
        more, other = ("fewer", WIDE) if narrow else ("more", NARROW)
        raise UserError(
            f"{method} has {more} parameters than {REFERENCE}, so there is no "
            f"{method}{suffix}; use {method}{other}"
        )
    unit = count(method, width + 1) - count(method, width)
    matched = width - (-(-excess // unit) if narrow else excess // unit)
    if matched < 1:
        raise UserError(
            f"{method} has more parameters than {REFERENCE} even if {WIDTH} is 1, so there is "
            f"no {method}{suffix}; make something else of it smaller"
        )
    return matched


def _setting(
    config: ml_collections.ConfigDict, text: str
) -> tuple[str, list[bool | int | float | str]]:
    """A field and its values, parsed to the type that the field has in the config."""
    field, sign, values = text.partition("=")
    field = field.removeprefix("config.")
    known = flat(config.to_dict())
    if not sign or not values:
        raise UserError(f"the setting {text!r} has no values; write it as field=value,value")
    if field not in known:
        near = nearest_field(field, known)
        raise UserError(f"the config has no field {field!r}; did you mean {near}?")
    if field in (METHOD, SEED):
        argument = "methods" if field == METHOD else "seeds"
        raise UserError(f"{field} cannot be a setting; use {argument}=...")
    if field.startswith("data."):
        raise UserError(
            f"{field} cannot be a setting, for a sweep is on one data set; sweep each of them"
        )
    return field, [_parse(field, known[field], value) for value in values.split(",")]


def _parse(field: str, like: Any, text: str) -> bool | int | float | str:
    try:
        if isinstance(like, bool):
            return {"true": True, "false": False}[text.lower()]
        return type(like)(text)
    except (ValueError, KeyError):
        raise UserError(
            f"{field} is {text!r}; give a value of type {type(like).__name__}"
        ) from None


def _check(config: ml_collections.ConfigDict, points: Sequence[Point]) -> None:
    seen: set[str] = set()
    for point in points:
        if point.name in seen:
            raise UserError(f"two runs would be called {point.name}; leave one of them out")
        if pathlib.Path(point.name).name != point.name:
            raise UserError(
                f"{point.name!r} cannot be the name of a directory; leave that value out"
            )
        seen.add(point.name)
        config_lib.check(point.apply(config))
