"""The config of a run: its checks, the model it describes, and its file."""

import json
import pathlib
from typing import Any

import ml_collections
from flax import traverse_util

from cbert import config as config_fields
from cbert import files, parallel
from cbert.config import flat
from cbert.errors import UserError, one_line
from cbert.model import conditioning
from cbert.model.conditioning.global_state_update import AFTER, NO_NORM
from cbert.model.config import ModelConfig
from cbert.registry import is_ours
from cbert.schema import Schema
from cbert.tasks import TASKS, task_class, task_options
from cbert.tasks.masked_item import MaskedItem
from cbert.training.config_sections import sections

FILE = "config.json"
METHOD, WIDTH = "model.method", "model.feed_forward"
# Fields outside of its section that no other task reads.
_OF_MASKED_ITEM = (
    *("model.item_dimension", "model.output_bias"),
    *("train.item_embeddings", "train.shard_items"),
)
# Fields of its section that earlier versions had in the section of training.
_ONCE_IN_TRAIN = ("masking", "mask_rate", "corrupt", "sampled_items")
# Second names that methods had in earlier versions.
_ONCE_NAMED = {
    "concat": "c",
    "new_position": "np",
    "global_state": "gs",
    "global_state_update": "gsu",
}


def default() -> ml_collections.ConfigDict:
    """A config of every field's default, not locked."""
    return config_fields.default(sections())


def check(config: ml_collections.ConfigDict) -> None:
    """Refuses impossible values; raises `UserError` naming field, value and fix."""
    config_fields.check(config, sections())
    if config.model.dimension % config.model.heads:
        raise UserError(
            f"model.dimension is {config.model.dimension}, not a multiple of model.heads, "
            f"{config.model.heads}; change one of them"
        )
    if task_class(config).name != config.task.name:
        raise UserError(
            f"the task that is registered as {config.task.name!r} has the name "
            f"{task_class(config).name!r}; give its class that name"
        )
    _check_other_tasks(config)
    if not config.data.name:
        raise UserError("data.name is empty; give data.name=NAME, that of prepared data")


def _check_other_tasks(config: ml_collections.ConfigDict) -> None:
    """Refuses fields that only another task reads, unless they have their defaults."""
    given, declared = flat(config.to_dict()), config_fields.declarations(sections())
    own = config.task.name
    readers = {name: name.split(".")[1] for name in given if name.startswith("task.")}
    readers.pop("task.name")
    if not has_items(config):
        readers.update(dict.fromkeys(_OF_MASKED_ITEM, MaskedItem.name))
    for name, task in readers.items():
        if task != own and given[name] != declared[name].default:
            raise UserError(
                f"{name} is {given[name]!r}, which is for the task {task}; leave it out for "
                f"{own}"
            )


def build_model(
    config: ml_collections.ConfigDict, schema: Schema, sharded: bool = False
) -> Any:
    """The model that a checked config describes, for data of that schema.

    With `sharded` its items are split over the devices if `train.shard_items` says so, for a
    program that maps it over all of them.

    Raises:
      UserError: the method conditions on a context, and the data have none; or the task does
        not fit the data.
    """
    method, options = config.model.method, method_options(config)
    built = task_class(config).build_model(
        model_config(config), method, options, schema, task_options(config)
    )
    if sharded and config.train.shard_items:
        return built.with_shards(parallel.local_device_count())
    return built


def model_config(config: ml_collections.ConfigDict) -> ModelConfig:
    """The section `model` of a checked config."""
    return config_fields.read(config, "model", ModelConfig)


def method_options(config: ml_collections.ConfigDict) -> Any:
    """The section of a checked config's method, None where it has none."""
    method = config.model.method
    section = conditioning.method_class(method).Config
    name = f"model.{method}"
    return config_fields.read(config, name, section) if section else None


def reads_context(config: ml_collections.ConfigDict) -> bool:
    """Whether what a checked config's model says depends on the context of an example."""
    method = conditioning.method_class(config.model.method)
    return method.reads_context(method_options(config)) and not config.model.constant_context


def has_items(config: ml_collections.ConfigDict) -> bool:
    """Whether a config's task is masked_item or extends it: of items, and of no texts."""
    return issubclass(TASKS.get(config.task.name, object), MaskedItem)


def load(workdir: str | pathlib.Path) -> ml_collections.ConfigDict:
    """The config of a run.

    Raises:
      UserError: the directory holds none, or it is not one.
    """
    path = pathlib.Path(workdir) / FILE
    try:
        text = files.read_text(path)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{path}: no such file; {path.parent} is not a run's work directory"
        ) from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a run's config (not UTF-8); restore the file") from None
    try:
        config = ml_collections.ConfigDict(json.loads(text))
        config.model.method = _ONCE_NAMED.get(config.model.method, config.model.method)
        _check_registered(config)
        _complete(config)
        check(config)
        return config
    except UserError as error:
        raise UserError(
            f"{path}: {error} (another version of cbert may have written it)"
        ) from None
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        reason = one_line(error)[:80]
        raise UserError(f"{path}: not a run's config ({reason}); restore the file") from None


def save(config: ml_collections.ConfigDict, workdir: pathlib.Path) -> None:
    """Writes the config of a run."""
    text = json.dumps(config.to_dict(), indent=1, sort_keys=True)
    files.write_text(workdir / FILE, text + "\n")


def _check_registered(config: ml_collections.ConfigDict) -> None:
    """Refuses a method or a task whose file is not known, or has other options by now.

    Raises:
      UserError: it names the way to the file that the run was made with.
    """
    declared, known = config_fields.declarations(sections()), flat(config.to_dict())
    for name, value, classes in (
        ("model.method", config.model.method, conditioning.METHODS),
        ("task.name", config.task.name, TASKS),
    ):
        if value not in classes:
            raise UserError(
                f"{name} is {value!r}, which no file has registered; if it is yours, "
                "import that file, or name it in CBERT_METHODS for commands"
            )
        section = f"{name.partition('.')[0]}.{value}."
        unknown = [one for one in known if one.startswith(section) and one not in declared]
        if unknown and not is_ours(classes[value]):
            raise UserError(
                f"{unknown[0]} is no option of {value!r} as it is registered here; import the "
                "file that the run was made with, or name it in CBERT_METHODS for commands"
            )


def _drop_unused(config: ml_collections.ConfigDict) -> None:
    """Removes what is not possible here in sections of methods and tasks that the run lacks.

    They are in every config while their file is registered, which it may not be here, or with
    other options.
    """
    declared = config_fields.declarations(sections())
    for prefix, used in (("model", config.model.method), ("task", config.task.name)):
        for name, section in [*config[prefix].items()]:
            if name == used or not isinstance(section, ml_collections.ConfigDict):
                continue
            for field, value in [*section.items()]:
                known = declared.get(f"{prefix}.{name}.{field}")
                if known is None or known.complaint(value):
                    del section[field]
            if not section:
                del config[prefix][name]


def _complete(config: ml_collections.ConfigDict) -> None:
    """Makes a config that an earlier version wrote one of this version.

    A field that it lacks has its default, with which the run is what it was. The norm of
    [GSU]'s updates was true or false.
    """
    for name in _ONCE_IN_TRAIN:
        if name in config.train:
            config.task.update({MaskedItem.name: {name: config.train[name]}})
            del config.train[name]
    if "stylist_articles" in config.data:  # It only served to describe a model.
        del config.data.stylist_articles
    _drop_unused(config)
    present, declared = flat(config.to_dict()), config_fields.declarations(sections())
    lacking = {name: each.default for name, each in declared.items() if name not in present}
    config.update(traverse_util.unflatten_dict(lacking, sep="."))
    has_norm = config.model.gsu.update_norm
    if isinstance(has_norm, bool):
        with config.ignore_type():
            config.model.gsu.update_norm = AFTER if has_norm else NO_NORM


def fields(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """The value of each field that changes results, by dotted name."""
    values = flat(config.to_dict())
    declared = config_fields.declarations(sections())
    return {name: value for name, value in values.items() if declared[name].changes_results}


def own_fields(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """What `fields` has, without the options of methods and tasks that are not chosen."""
    used = {f"model.{config.model.method}", f"task.{config.task.name}"}
    others = {name for name in sections() if name.startswith(("model.", "task."))} - used
    values = fields(config).items()
    return {name: value for name, value in values if name.rpartition(".")[0] not in others}


def differences(one: ml_collections.ConfigDict, other: ml_collections.ConfigDict) -> list[str]:
    """The fields that change results and in which two configs differ.

    Options of a method or a task that neither has change none.
    """
    there, here = own_fields(one), own_fields(other)
    return [
        f"{name} ({_shown(there[name])} there, {_shown(here[name])} here)"
        for name in sorted(there.keys() & here.keys())
        if there[name] != here[name]
    ]


def _shown(value: Any) -> Any:
    return "''" if value == "" else value
