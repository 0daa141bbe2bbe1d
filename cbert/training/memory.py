"""The least memory that a run needs, estimated before anything is compiled."""

import dataclasses

import ml_collections

from cbert import parallel, processes
from cbert.errors import UserError
from cbert.model import parameter_tree
from cbert.model.attention import takes_flash
from cbert.model.cross_entropy import MOST_KEPT, items_at_once
from cbert.model.scoring import most_at_once
from cbert.schema import Schema
from cbert.tasks import task_class, task_options
from cbert.training import config as config_lib
from cbert.training.config_sections import STREAM

# Every layer after these has as many parameters as the one before it.
_TRACED_LAYERS = 3
_FLOAT = 4  # Bytes of a parameter, and of a logit.


@dataclasses.dataclass(frozen=True)
class Need:
    """Memory that a part of a run takes.

    Attributes:
      part: The arrays that take it, in the plural.
      size: Bytes on one device.
      fields: The config fields that it depends on.
    """

    part: str
    size: int
    fields: tuple[str, ...]


def check(
    config: ml_collections.ConfigDict, schema: Schema, longest: int, seeds: int, columns: int
) -> None:
    """Refuses a run that cannot fit into a device's memory.

    Args:
      config: The run's config.
      schema: The data's schema.
      longest: The most items of a training example.
      seeds: The number of seeds in one program.
      columns: Bytes of the training split's columns, 0 where they are streamed.

    Raises:
      UserError: it names the estimate, the memory there is and the fields to change.
    """
    needs = estimate(config, schema, longest, seeds)
    available, copies = parallel.device_memory(), 1
    if available is None:  # Devices of the CPU share its memory, and columns are mapped files.
        available, copies = processes.host_memory(), parallel.local_device_count()
    else:
        needs.append(Need("the training split's columns", columns, ("data.source",)))
    total = copies * sum(need.size for need in needs)
    if total <= available:
        return
    largest = max(needs, key=lambda need: need.size)
    raise UserError(
        f"the run needs at least {readable(total)} of memory, {readable(largest.size)} of it "
        f"for {largest.part}, and there are {readable(available)}; {_advice(config, largest)}"
    )


def _advice(config: ml_collections.ConfigDict, largest: Need) -> str:
    if largest.fields == ("data.source",):
        return f"set data.source={STREAM}, which reads each step's rows from disk"
    values = config_lib.fields(config)
    # A task of one's own may sample, and call the number of samples otherwise.
    names = [name for name in largest.fields if name in values]
    advice = "lower one of " + ", ".join(f"{name} ({values[name]})" for name in names)
    if "train.batch_size" in largest.fields:
        advice += f", or raise train.accumulate ({values['train.accumulate']})"
    return advice


def estimate(
    config: ml_collections.ConfigDict, schema: Schema, longest: int, seeds: int
) -> list[Need]:
    """The least that a run holds: its state, and the largest array beside it."""
    shards = parallel.local_device_count() if config.train.shard_items else 1
    parameters = _FLOAT * (parameter_count(config, schema) - _elsewhere(config, schema, shards))
    parameters *= seeds
    sizes = ("model.dimension", "model.feed_forward", "model.layers")
    state = [
        Need("parameters", parameters, sizes),
        Need("the optimizer's two moments", 2 * parameters, sizes),
    ]
    micro_batches = parallel.device_count() * config.train.accumulate
    train_batch = -(-config.train.batch_size // micro_batches)
    masked, candidates, sampled = task_class(config).positions_and_candidates(
        task_options(config), schema, longest
    )
    logits = _logits(train_batch * masked, candidates, "train.batch_size", shards, seeds)
    if sampled:
        size = _FLOAT * seeds * train_batch * masked * sampled
        fields = ("train.batch_size", f"task.{config.task.name}.sampled_items")
        logits = Need("logits", size, fields)
    eval_batch = -(-config.eval.batch_size // parallel.local_device_count())
    beside = [
        Need("gradients", parameters, sizes),
        _activations(config, train_batch * seeds, longest, masked, "train.batch_size"),
        _attention(config, train_batch * seeds, longest, masked),
        logits,
        _activations(config, eval_batch, longest, 1, "eval.batch_size"),
        _logits(eval_batch, candidates, "eval.batch_size", shards, whole=most_at_once()),
    ]
    return [*state, max(beside, key=lambda need: need.size)]


def _elsewhere(config: ml_collections.ConfigDict, schema: Schema, shards: int) -> int:
    """The entries of the item table and the bias that other devices hold."""
    items, model = len(schema.items), config.model
    width = model.item_dimension or model.dimension
    return (items - -(-items // shards)) * (width + 1)


def parameter_count(config: ml_collections.ConfigDict, schema: Schema) -> int:
    """All parameters of the config's model; a deep one is not built layer by layer."""
    layers = config.model.layers

    def count(layers: int) -> int:
        shallow = config.copy_and_resolve_references()
        shallow.model.layers = layers
        model = config_lib.build_model(shallow, schema)
        return sum(parameter_tree.parameter_sizes(model).values())

    if layers <= _TRACED_LAYERS + 1:
        return count(layers)
    fewer, more = count(_TRACED_LAYERS), count(_TRACED_LAYERS + 1)
    return fewer + (layers - _TRACED_LAYERS) * (more - fewer)


def _activations(
    config: ml_collections.ConfigDict, batch: int, length: int, masked: int, field: str
) -> Need:
    """The largest activation: the last block computes masked positions alone."""
    model = config.model
    wide = length if model.layers > 1 else masked
    entries = batch * max(length * model.dimension, wide * model.feed_forward)
    size = entries * (2 if model.dtype == "bfloat16" else 4)
    return Need(
        "the largest activation", size, (field, "model.dimension", "model.feed_forward")
    )


def _attention(config: ml_collections.ConfigDict, batch: int, length: int, masked: int) -> Need:
    """The float32 weights of a block's attention, which training keeps for its gradients.

    An evaluation makes them by turns on a CPU, however many they are, and a GPU may store none.
    """
    model = config.model
    wide = length if model.layers > 1 else masked
    if takes_flash(config_lib.model_config(config)):
        wide = 0
    size = _FLOAT * batch * model.heads * wide * length
    return Need("the weights of a block's attention", size, ("train.batch_size", "model.heads"))


def _logits(
    masked: int,
    candidates: int,
    field: str,
    shards: int,
    seeds: int = 1,
    whole: int = MOST_KEPT,
) -> Need:
    """The logits of all candidates that are made at once; each seed makes its own.

    A device scores the masked items of all devices by the candidates that it holds. `whole` is
    the most logits that are made without chunks.
    """
    held = -(-candidates // shards)
    queries = shards * masked
    at_once = items_at_once(queries, held, whole=whole)
    return Need("logits", _FLOAT * seeds * queries * at_once, (field,))


def readable(size: int) -> str:
    """Bytes as `25.3 GB`."""
    units = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
    number, power = float(size), 0
    while float(f"{number:.3g}") >= 1000 and power < len(units) - 1:
        number, power = number / 1000, power + 1
    return f"{number:.3g} {units[power]}"
