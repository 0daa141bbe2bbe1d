"""What a config may say: checked before anything is compiled."""

import collections
import dataclasses
import json
import math
import pathlib
from collections.abc import Iterable
from typing import Any

import ml_collections

from cbert import files
from cbert.data.masking import KINDS, Masking
from cbert.data.source import BLOCK
from cbert.errors import UserError, one_line, shown
from cbert.model import conditioning
from cbert.model.layers import CHOICES, Hyperparameters
from cbert.training.optimizer import SCHEDULES

EVAL_MASKINGS = ("each", "one")
STOP, SKIP = "stop", "skip"

_LEAST = {
    "model.dimension": 1,
    "model.heads": 1,
    "model.layers": 1,
    "model.feed_forward": 1,
    "model.update_scale": 0.0,
    "train.steps": 1,
    "train.batch_size": 1,
    "train.eval_every": 1,
    "train.checkpoint_every": 1,
    "train.log_every": 1,
    "train.patience": 0,
    "train.sampled_items": 0,
    "train.steps_per_dispatch": 1,
    "optimizer.warmup_steps": 0,
    "optimizer.weight_decay": 0.0,
    "optimizer.clip_norm": 0.0,
    "eval.batch_size": 1,
    "seed": 0,
}
_SHARES = ("model.dropout", "train.context_dropout", "optimizer.b1", "optimizer.b2")
_ONE_OF = {
    "train.masking": KINDS,
    "train.on_nonfinite": (STOP, SKIP),
    "eval.masking": EVAL_MASKINGS,
    "optimizer.schedule": SCHEDULES,
    **{f"model.{name}": choices for name, choices in CHOICES.items()},
}
_KINDS = {
    **{field: type(least) for field, least in _LEAST.items()},
    **dict.fromkeys((*_SHARES, "train.mask_rate", "optimizer.learning_rate"), float),
    **dict.fromkeys((*_ONE_OF, "model.method", "data.dir", "data.name"), str),
    "train.length_buckets": int,
    "train.corrupt": bool,
    "data.stylist_articles": int,
    **{f"model.{field.name}": field.type for field in dataclasses.fields(Hyperparameters)},
}
_NAMED = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
_LARGEST = 2**31 - 1  # Steps and sizes are int32 on the devices.

# Where the data lie, and how steps reach the device, change no result.
_ELSEWHERE = ("data.dir", "train.steps_per_dispatch")


def check(config: ml_collections.ConfigDict) -> None:
    """Refuses impossible values; raises `UserError` naming field, value and fix."""
    for field, kind in _KINDS.items():
        value = _get(config, field)
        if isinstance(value, ml_collections.ConfigDict):
            value = value.to_dict()  # Quick to show, however large.
        accepted = (int, float) if kind is float else kind
        if not isinstance(value, accepted) or (kind is not bool and isinstance(value, bool)):
            raise UserError(f"{field} is {shown(value)}; it must be {_NAMED[kind]}")
        if kind is int and value > _LARGEST and field != "seed":
            raise UserError(f"{field} is {shown(value)}; it must be at most {_LARGEST}")
    for field, least in _LEAST.items():
        if not least <= _get(config, field) < math.inf:
            raise UserError(f"{field} is {_get(config, field)}; it must be at least {least}")
    for field in _SHARES:
        if not 0 <= _get(config, field) < 1:
            raise UserError(f"{field} is {_get(config, field)}; it must be from 0 to below 1")
    for field, choices in _ONE_OF.items():
        if _get(config, field) not in choices:
            raise UserError(
                f"{field} is {shown(_get(config, field))}; it must be one of "
                + ", ".join(choices)
            )
    conditioning.method_class(config.model.method)
    if config.seed >= 2**32:
        raise UserError(f"seed is {config.seed}; it must be below 2**32")
    if not 0 < config.train.mask_rate <= 1:
        raise UserError(f"train.mask_rate is {config.train.mask_rate}; it must be in (0, 1]")
    if not 0 < config.optimizer.learning_rate < math.inf:
        raise UserError(
            f"optimizer.learning_rate is {config.optimizer.learning_rate}; it must be above 0"
        )
    if config.model.dimension % config.model.heads:
        raise UserError(
            f"model.dimension is {config.model.dimension}, not a multiple of model.heads, "
            f"{config.model.heads}"
        )
    if not 1 <= config.train.length_buckets <= 8:
        raise UserError(
            f"train.length_buckets is {config.train.length_buckets}; it must be from 1 to 8"
        )
    if config.train.steps_per_dispatch > BLOCK:
        raise UserError(
            f"train.steps_per_dispatch is {config.train.steps_per_dispatch}; it must be "
            f"at most {BLOCK}, the steps of one padded length that follow each other"
        )
    if not config.data.name:
        raise UserError("data.name is empty; pass --config.data.name=NAME of prepared data")


def _get(config: ml_collections.ConfigDict, field: str) -> Any:
    for name in field.split("."):
        if name not in config:
            raise UserError(
                f"{field} is missing, which a config of this version has; begin with "
                "base.get_config of configs/base.py"
            )
        config = config[name]
    return config


def hyperparameters(config: ml_collections.ConfigDict) -> Hyperparameters:
    """The model's sizes and choices out of `config.model`."""
    names = [field.name for field in dataclasses.fields(Hyperparameters)]
    return Hyperparameters(**{name: config.model[name] for name in names})


def masking(config: ml_collections.ConfigDict) -> Masking:
    """How training hides items."""
    return Masking(config.train.masking, config.train.mask_rate, config.train.corrupt)


def save(config: ml_collections.ConfigDict, path: pathlib.Path) -> None:
    text = json.dumps(config.to_dict(), indent=1, sort_keys=True)
    files.write_text(path, text + "\n")


def load(workdir: str | pathlib.Path) -> ml_collections.ConfigDict:
    """The config of a run, its method by the short name.

    Raises:
      UserError: the directory holds none, or it is not one.
    """
    path = pathlib.Path(workdir) / "config.json"
    try:
        config = ml_collections.ConfigDict(json.loads(path.read_text(encoding="utf-8")))
        check(config)
        config.model.method = conditioning.short_name(config.model.method)
        return config
    except FileNotFoundError:
        raise UserError(
            f"{path}: no such file; {workdir} is not a run's work directory"
        ) from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        reason = one_line(error)[:80]
        raise UserError(f"{path}: not a run's config ({reason}); restore the file") from None


def differences(one: ml_collections.ConfigDict, other: ml_collections.ConfigDict) -> list[str]:
    """The fields two configs differ in, apart from those that change no result."""
    there, here = fields(one), fields(other)
    return [
        f"{field} ({there.get(field)} there, {here.get(field)} here)"
        for field in sorted(there.keys() | here.keys())
        if there.get(field) != here.get(field)
    ]


def fields(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """Each field by its dotted name, apart from those that change no result."""
    found = flat(config.to_dict())
    found["model.method"] = conditioning.short_name(config.model.method)
    return {field: value for field, value in found.items() if field not in _ELSEWHERE}


def short_names(fields: Iterable[str]) -> dict[str, str]:
    """A field's last name, unless another one of the fields has it too."""
    last = {field: field.rpartition(".")[2] for field in fields}
    counts = collections.Counter(last.values())
    return {field: name if counts[name] == 1 else field for field, name in last.items()}


def flat(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as `section.field` to value."""
    found = {}
    for name, value in nested.items():
        if isinstance(value, dict):
            found.update(flat(value, f"{prefix}{name}."))
        else:
            found[prefix + name] = value
    return found
