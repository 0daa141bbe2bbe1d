"""The declarations of a config's fields, section by section.

The sections of the model, of its methods and of the tasks lie beside what they configure.
"""

import dataclasses

from cbert.config import field
from cbert.data.batching import BLOCK, MOST_BUCKETS
from cbert.model import conditioning
from cbert.model.config import ModelConfig
from cbert.tasks import TASKS, config_sections
from cbert.tasks.masked_item import MaskedItem
from cbert.tasks.masked_queries import EACH, LAST, ONE
from cbert.training.schedule import SCHEDULES

EVAL_MASKINGS = (EACH, ONE, LAST)
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


@dataclasses.dataclass(frozen=True)
class Model(ModelConfig):
    __doc__ = ModelConfig.__doc__

    method: str = field(
        "gs",
        "the conditioning method, also the argument of the config file",
        choices=lambda: tuple(conditioning.METHODS),
    )


@dataclasses.dataclass(frozen=True)
class TaskConfig:
    """What the model learns to do."""

    name: str = field(MaskedItem.name, "the task", choices=lambda: tuple(TASKS))


@dataclasses.dataclass(frozen=True)
class Train:
    """Training: what it begins with, how long it takes, and what it writes on the way."""

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
        "by name: a run's work directory, or `hf:` and the folder of a pretrained BERT; those "
        "of a method are taken by the same method, or one that extends it, and those of a "
        "number where its mean and deviation moved by at most a tenth of the latter",
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
    length_buckets: int = field(
        MOST_BUCKETS, "largest number of padded lengths", at_least=1, at_most=MOST_BUCKETS
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
    log_every: int = field(
        100, "steps between rows of training loss", at_least=1, changes_results=False
    )
    eval_every: int = field(
        1000,
        "steps between validations, which mask one item an example (the last one if "
        "`eval.masking` says so); the best value of the task's first metric makes the *best* "
        "checkpoint",
        at_least=1,
    )
    eval_examples: int = field(
        0,
        "examples of the validation split, at equal distances, that a validation takes; 0 "
        "takes all",
        at_least=0,
    )
    checkpoint_every: int = field(
        1000, "steps between checkpoints", at_least=1, changes_results=False
    )
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
        "cosine", "decay after the warm-up, to zero just after the last step", choices=SCHEDULES
    )
    warmup_steps: int = field(
        500,
        "steps of linear rise to the peak; more than half of all steps is cut to half",
        at_least=0,
    )
    weight_decay: float = field(
        0.01, "decay of weight matrices; biases, norms and embeddings have none", at_least=0
    )
    clip_norm: float = field(
        1.0, "largest norm of the gradient; 0 turns clipping off", at_least=0
    )
    layer_decay: float = field(
        1.0,
        "factor of the learning rate from the head to the last block, from each block to the "
        "one before it, and from the first to the embedding: below 1, pretrained blocks change "
        "less the lower they are",
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
        EACH,
        "`each` masks every item of an example in turn, `one` masks one, and `last` the last "
        "one of a sequence",
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
