"""The config of a run: all its sections, and the checks that concern several fields."""

import dataclasses
import pathlib
from typing import Any

import ml_collections
from flax import traverse_util

from cbert import config as config_lib
from cbert import parallel
from cbert.config import field, flat, save, short_names
from cbert.data.batching import BLOCK
from cbert.data.masking import MASKINGS, Masking
from cbert.errors import UserError
from cbert.model import conditioning
from cbert.model.conditioning.global_state_update import AFTER, NO_NORM
from cbert.model.config import ZERO, ModelConfig
from cbert.schema import Schema
from cbert.tasks import TASKS, config_sections, task_class, task_options
from cbert.tasks.masked_item import MaskedItem
from cbert.training.optimizer import SCHEDULES

__all__ = [
    "build_model",
    "check",
    "default",
    "differences",
    "fields",
    "flat",
    "load",
    "masking",
    "save",
    "sections",
    "short_names",
]

EVAL_MASKINGS = ("each", "one")
STOP, SKIP = "stop", "skip"
MEMORY, STREAM = "memory", "stream"


@dataclasses.dataclass(frozen=True)
class Top:
    """Fields outside of every section."""

    seed: int = field(
        0,
        "decides initial parameters, batches, masked items and dropout",
        at_least=0,
        at_most=2**32 - 1,
    )


@dataclasses.dataclass(frozen=True)
class Data:
    """Where the prepared data lie."""

    name: str = field("", "the name of the prepared data set")
    dir: str = field("data", "the directory of prepared data sets", changes_results=False)
    source: str = field(
        MEMORY,
        "`memory` keeps the training split on every device, `stream` reads the rows of each "
        "step from disk ([larger than memory](data.md#larger-than-memory))",
        choices=(MEMORY, STREAM),
        changes_results=False,
    )
    stylist_articles: int = field(
        0,
        "size of a stylist catalogue whose model is described without prepared data",
        at_least=0,
    )


@dataclasses.dataclass(frozen=True)
class Model(ModelConfig):
    __doc__ = ModelConfig.__doc__

    method: str = field(
        "gsu",
        "the conditioning method, also the argument of the config file",
        choices=lambda: (*conditioning.METHODS, *conditioning.LONG_NAMES),
    )


@dataclasses.dataclass(frozen=True)
class TaskConfig:
    """What the model learns to do."""

    name: str = field("masked_item", "the task", choices=lambda: tuple(TASKS))


@dataclasses.dataclass(frozen=True)
class Train:
    """Training: its task, its length, and what it writes on the way."""

    steps: int = field(10_000, "optimizer steps", at_least=1)
    batch_size: int = field(
        256,
        "examples a step over all devices; a multiple of the number of devices",
        at_least=1,
    )
    accumulate: int = field(
        1,
        "micro-batches that each device makes of its part of a batch, one after the other, "
        "which saves memory; their gradients are summed for one update, so that a step is the "
        "same but for rounding and for which entries are dropped",
        at_least=1,
    )
    masking: str = field(
        "one",
        "`one` masks one item an example, the paper's task; `rate` masks a fraction of them",
        choices=MASKINGS,
    )
    mask_rate: float = field(
        0.15, "the fraction of items that `rate` masks; at least one item", above=0, at_most=1
    )
    corrupt: bool = field(
        False,
        "BERT's 80/10/10: a tenth of the masked items is shown as a random item, a tenth "
        "unchanged",
    )
    context_dropout: float = field(
        0.0,
        "fraction of context features replaced by missing or unknown",
        at_least=0,
        below=1,
    )
    context_replacement: float = field(
        0.0,
        "fraction of context features that show the value of a random training example, before "
        "any is dropped: a regulariser (SSE)",
        at_least=0,
        below=1,
    )
    init_from: str = field(
        "",
        "parameters to begin with, matched by name and shape, and items and values of features "
        "by name: a run's work directory, or `hf:` and the folder of a pretrained BERT",
    )
    item_embeddings: str = field(
        "",
        "a `.npy` or `.parquet` file of [vectors](data.md#vectors-of-items) that the items' "
        "embeddings begin with, by name; it is not read again",
    )
    frozen: str = field(
        "",
        "parts of the model that are not trained, with commas, such as `embedding,blocks_0`, "
        "those that `describe` lists, or parts of these, such as `embedding/items`",
    )
    length_buckets: int = field(8, "largest number of padded lengths", at_least=1, at_most=8)
    sampled_items: int = field(
        0,
        "items that stand for all in the loss ([large vocabularies]"
        "(performance.md#large-vocabularies)); 0 uses all items",
        at_least=0,
    )
    shard_items: bool = field(
        False,
        "whether the item table, the output layer's bias and their optimizer states are split "
        "over the devices, each of which has a part of the rows ([large catalogues](scale.md))",
        changes_results=False,
    )
    steps_per_dispatch: int = field(
        1,
        "steps sent to the device at once",
        at_least=1,
        at_most=BLOCK,
        changes_results=False,
    )
    log_every: int = field(100, "steps between rows of training loss", at_least=1)
    eval_every: int = field(
        1000,
        "steps between validations, which mask one item an example whatever `eval.masking` "
        "says; the best value of the task's first metric makes the *best* checkpoint",
        at_least=1,
    )
    eval_examples: int = field(
        0,
        "examples of the validation split, at equal distances, that a validation takes; 0 "
        "takes all",
        at_least=0,
    )
    checkpoint_every: int = field(1000, "steps between checkpoints", at_least=1)
    patience: int = field(
        0,
        "the run ends after so many validations without a new best one; 0 turns this off",
        at_least=0,
    )
    on_nonfinite: str = field(
        STOP,
        "what happens when a loss or gradient is not finite: the run stops, or the step is "
        "skipped",
        choices=(STOP, SKIP),
    )


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """AdamW with warm-up, decay and clipping."""

    learning_rate: float = field(1e-3, "the peak learning rate", above=0)
    schedule: str = field(
        "cosine", "decay after the warm-up, to zero at the last step", choices=SCHEDULES
    )
    warmup_steps: int = field(
        500, "steps of linear rise to the peak; at most half of all steps", at_least=0
    )
    weight_decay: float = field(
        0.01, "decay of kernels; biases, norms and embeddings have none", at_least=0
    )
    clip_norm: float = field(
        1.0, "largest norm of the gradient; 0 turns clipping off", at_least=0
    )
    layer_decay: float = field(
        1.0,
        "factor of the learning rate from each block to the one before it, and from the first "
        "to the embedding: below 1, pretrained blocks change less the lower they are",
        above=0,
        at_most=1,
    )
    context_rate: float = field(
        1.0,
        "factor of the learning rate of the context path, which may begin anew beside "
        "pretrained blocks",
        above=0,
    )
    b1: float = field(0.9, "Adam's decay rate of the first moment", at_least=0, below=1)
    b2: float = field(0.999, "Adam's decay rate of the second moment", at_least=0, below=1)


@dataclasses.dataclass(frozen=True)
class Eval:
    """The evaluation of a finished run."""

    masking: str = field(
        "each",
        "`each` masks every item of an example in turn, `one` masks one",
        choices=EVAL_MASKINGS,
    )
    batch_size: int = field(256, "masked examples scored at once", at_least=1)


def sections() -> dict[str, type]:
    """Every section by its dotted name."""
    return {
        "": Top,
        "data": Data,
        "model": Model,
        **{f"model.{name}": cls for name, cls in conditioning.config_sections().items()},
        "task": TaskConfig,
        **{f"task.{name}": cls for name, cls in config_sections().items()},
        "train": Train,
        "optimizer": Optimizer,
        "eval": Eval,
    }


def default() -> ml_collections.ConfigDict:
    """A config of every field's default, not locked."""
    return config_lib.default(sections())


def check(config: ml_collections.ConfigDict) -> None:
    """Refuses impossible values; raises `UserError` naming field, value and fix."""
    config_lib.check(config, sections())
    if config.model.dimension % config.model.heads:
        raise UserError(
            f"model.dimension is {config.model.dimension}, not a multiple of model.heads, "
            f"{config.model.heads}"
        )
    if config.model.output_bias != ZERO and config.task.name != MaskedItem.name:
        raise UserError(
            f"model.output_bias is {config.model.output_bias!r}, which is for the task "
            f"{MaskedItem.name}; set it {ZERO} for {config.task.name}"
        )
    if config.task.name != MaskedItem.name:
        for name in ("model.item_dimension", "train.item_embeddings", "train.shard_items"):
            if value := config_lib.flat(config.to_dict())[name]:
                raise UserError(
                    f"{name} is {value!r}, which is for the task {MaskedItem.name}; leave it "
                    f"out for {config.task.name}"
                )
    if not config.data.name:
        raise UserError("data.name is empty; give the name of prepared data")


def build_model(config: ml_collections.ConfigDict, schema: Schema, split: bool = False) -> Any:
    """The model that a checked config describes, for data of that schema.

    With `split` its items are split over the devices if `train.shard_items` says so, for a
    program that maps it over all of them.

    Raises:
      UserError: the method conditions on a context, and the data have none; or the task does
        not fit the data.
    """
    method, options = config.model.method, _method_options(config)
    model = config_lib.read(config, "model", ModelConfig)
    built = task_class(config).build_model(model, method, options, schema, task_options(config))
    if split and config.train.shard_items:
        return built.with_shards(parallel.local_device_count())
    return built


def reads_context(config: ml_collections.ConfigDict) -> bool:
    """Whether the model of a checked config conditions on a context."""
    method = conditioning.method_class(config.model.method)
    return method.reads_context(_method_options(config))


def _method_options(config: ml_collections.ConfigDict) -> Any:
    """The section of a checked config's method, None where it has none."""
    method = config.model.method
    section = conditioning.method_class(method).Config
    name = f"model.{conditioning.short_name(method)}"
    return config_lib.read(config, name, section) if section else None


def masking(config: ml_collections.ConfigDict) -> Masking:
    """How training masks items."""
    return Masking(config.train.masking, config.train.mask_rate, config.train.corrupt)


def load(workdir: str | pathlib.Path) -> ml_collections.ConfigDict:
    """The config of a run, its method by the short name.

    Raises:
      UserError: the directory holds none, or it is not one.
    """

    def check_completed(config: ml_collections.ConfigDict) -> None:
        _complete(config)
        check(config)

    config = config_lib.load(pathlib.Path(workdir) / "config.json", check_completed)
    config.model.method = conditioning.short_name(config.model.method)
    return config


def _complete(config: ml_collections.ConfigDict) -> None:
    """Makes a config that an earlier version wrote one of this version.

    A field that it lacks has its default, with which the run is what it was. The norm of
    [GSU]'s updates was true or false.
    """
    present, declared = flat(config.to_dict()), config_lib.declarations(sections())
    lacking = {name: each.default for name, each in declared.items() if name not in present}
    config.update(traverse_util.unflatten_dict(lacking, sep="."))
    has_norm = config.model.gsu.update_norm
    if isinstance(has_norm, bool):
        with config.ignore_type():
            config.model.gsu.update_norm = AFTER if has_norm else NO_NORM


def fields(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """The value of each field that changes results, by dotted name."""
    values = flat(config.to_dict())
    values["model.method"] = conditioning.short_name(config.model.method)
    declared = config_lib.declarations(sections())
    return {name: value for name, value in values.items() if declared[name].changes_results}


def differences(one: ml_collections.ConfigDict, other: ml_collections.ConfigDict) -> list[str]:
    """The fields that change results and in which two configs differ."""
    there, here = fields(one), fields(other)
    return [
        f"{name} ({there.get(name)} there, {here.get(name)} here)"
        for name in sorted(there.keys() | here.keys())
        if there.get(name) != here.get(name)
    ]
