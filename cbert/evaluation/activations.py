"""Activations of a frozen model: what chosen layers make of each example of a split.

Legend: B examples of a batch, M examples of a split, L positions, D model dimension.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cbert import parallel, progress
from cbert.data.batching import MOST_BUCKETS, bucket_bounds
from cbert.data.columns import Split
from cbert.data.in_memory import gather_rows
from cbert.data.padding import padded_batches
from cbert.errors import UserError
from cbert.model import huggingface, parameter_tree, text_bert
from cbert.model.encoder import HIDDEN_STATES
from cbert.model.heads import HiddenStatesHead
from cbert.model.pooling import EVERY_TOKEN, FIRST_TOKEN, pool
from cbert.schema import PAD_ITEM, TEXT, Schema
from cbert.tasks.prediction import length_batches
from cbert.training import checkpoint
from cbert.training import config as config_lib
from cbert.training import workdir as workdir_lib
from cbert.training.from_huggingface import HUGGINGFACE_PREFIX, read_folder

LAST = "last"
# The activations of so many bytes are held at once.
SHARD_BYTES = 2**26

# Layer to its activations: `float32 [M, D]`, or for `tokens` M arrays `float32 [L, D]`.
Activations = dict[int, Any]


@dataclasses.dataclass(frozen=True)
class FrozenModel:
    """A model with parameters that are not trained further.

    Attributes:
      model: Encoder and head, of which only the encoder is run.
      params: The parameters, on every device.
      schema: The schema that data are encoded by.
      description: Where it is from, as JSON.
    """

    model: Any
    params: Any
    schema: Schema
    description: dict[str, Any]

    def layer_numbers(self, names: Sequence[str]) -> tuple[int, ...]:
        """The layers that are named by numbers or as `last`; 0 is the input of the first block.

        Raises:
          UserError: there is no such layer, or one is named twice.
        """
        last = self.model.encoder.config.layers
        known = {LAST: last, **{str(number): number for number in range(last + 1)}}
        for name in names:
            if name not in known:
                raise UserError(f"layers has {name!r}; use {LAST} or numbers from 0 to {last}")
        layers = tuple(sorted({known[name] for name in names}))
        if len(layers) != len(names) or not layers:
            raise UserError(f"layers is {','.join(names)!r}; name each layer once")
        return layers


def frozen_run(workdir: str | pathlib.Path, which: str) -> FrozenModel:
    """The model of a run; `which` is `best`, `last` or a step."""
    workdir = pathlib.Path(workdir).expanduser()
    config, schema = workdir_lib.read(workdir)
    model = config_lib.build_model(config, schema)
    step, params = checkpoint.read_params(workdir, which, model)
    return FrozenModel(model, params, schema, {"workdir": str(workdir), "step": step})


def frozen_pretrained(source: str, schema: Schema) -> FrozenModel:
    """A pretrained BERT without a context, for data of its vocabulary.

    Args:
      source: `hf:` and the folder of a Hugging Face model.
      schema: The schema of the data.

    Raises:
      UserError: the folder is not what it must be, or the data are of another vocabulary.
    """
    if not source.startswith(HUGGINGFACE_PREFIX):
        raise UserError(
            f"init_from is {source!r}; give init_from={HUGGINGFACE_PREFIX}DIR, the folder of a "
            "model"
        )
    if schema.kind != TEXT:
        raise UserError(f"{source} is a model of texts, and the data are none; use a run")
    pretrained = read_folder(source, schema)
    head = HiddenStatesHead(pretrained.config)
    model = text_bert.build(pretrained.config, "none", (), pretrained.sizes, head)
    fresh = jax.device_get(parameter_tree.initialize(model, jax.random.key(0)))
    params, _ = huggingface.initialize_from(model, fresh, pretrained)
    return FrozenModel(model, parallel.replicate(params), schema, {"init_from": source})


def check(frozen: FrozenModel, pooling: str) -> None:
    """Raises `UserError` where the examples have no first position that stands for all."""
    if pooling == FIRST_TOKEN and frozen.schema.kind != TEXT:
        raise UserError("pooling is 'cls', and sets and sequences have no [CLS]; use 'mean'")


def shards(
    frozen: FrozenModel, split: Split, layers: tuple[int, ...], pooling: str, batch_size: int
) -> Iterator[tuple[slice, Activations]]:
    """The examples of a shard, and their activations in the split's order.

    Args:
      frozen: The model.
      split: Encoded by its schema.
      layers: Ascending; 0 is the input of the first block.
      pooling: `cls`, the first position; `mean` over all tokens, for texts `[CLS]` and `[SEP]`
        included; or `tokens`, every one.
      batch_size: Examples at a time.
    """
    _check_segments(frozen, split)
    compute = _compiled(frozen.model, layers, pooling)
    params = parameter_tree.rounded(frozen.model, frozen.params)
    batch_size = parallel.divisible(batch_size)
    width = len(layers) * frozen.model.encoder.config.dimension * 4
    if pooling == EVERY_TOKEN:
        width *= int(split.lengths.max())
    size = min(len(split), max(batch_size, SHARD_BYTES // width))
    bounds = bucket_bounds(split.lengths, MOST_BUCKETS, batch_size)
    with progress.bar(desc="activations", total=len(split), unit=" examples") as bar:
        for rows, count in padded_batches(len(split), [size]):
            data = jax.tree.map(lambda column, rows=rows: column[rows], _inputs(split))
            lengths = split.lengths[rows[:count]]
            batches = length_batches(lengths, batch_size, bounds)
            yield (
                slice(int(rows[0]), int(rows[0]) + count),
                _of_shard(compute, params, parallel.replicate(data), lengths, batches),
            )
            bar.update(count)


def _check_segments(frozen: FrozenModel, split: Split) -> None:
    """Refuses second texts where the model has no segment for them."""
    if "segments" in split.columns:
        known = frozen.params["embedding"]["segments"].shape[-2]
        if split.columns["segments"].max() >= known:
            raise UserError(
                "the model knows one segment, and the data have a text_b; leave it out"
            )


def _inputs(split: Split) -> dict[str, Any]:
    """The columns that the encoder reads."""
    names = ("items", "segments", "context")
    return {name: split.columns[name] for name in names if name in split.columns}


def _of_shard(
    compute: Callable,
    params: Any,
    data: Any,
    lengths: np.ndarray,
    batches: list[tuple[int, np.ndarray, int]],
) -> Activations:
    """The activations of a shard's examples in their order."""
    # A shard is small enough for the devices to hold all of its results.
    results = [
        compute(params, data, parallel.split_local(indices), {}, length)
        for length, indices, _ in batches
    ]
    rows: dict[int, list[Any]] = {layer: [None] * len(lengths) for layer in results[0]}
    for (_, indices, count), of_batch in zip(batches, results, strict=True):
        for layer, values in of_batch.items():
            for index, row in zip(indices[:count], parallel.join_local(values), strict=False):
                # Where every token has its row, the padding is cut off.
                rows[layer][index] = row[: lengths[index]] if row.ndim == 2 else row
    pooled = rows[next(iter(rows))][0].ndim == 1
    return {layer: np.stack(each) if pooled else each for layer, each in rows.items()}


@functools.lru_cache(maxsize=8)
def _compiled(model: Any, layers: tuple[int, ...], pooling: str) -> Callable:
    """The chosen layers of a batch, mapped over devices, compiled once a length."""

    def compute(
        params: Any, data: dict[str, Any], rows: jax.Array, query: dict, length: int
    ) -> dict[int, jax.Array]:
        columns = gather_rows(data, rows, length)
        hidden = hidden_states(model, params, columns)
        mask = columns["items"] != PAD_ITEM
        return {layer: pool(hidden[layer], mask, pooling) for layer in layers}

    return parallel.map_queries(compute)


def hidden_states(model: Any, params: Any, columns: dict[str, Any]) -> list[jax.Array]:
    """The input of the first block, then the output of each: `[B, L, D]` each.

    The last one is what a head reads.
    """
    output, sown = encode(model, params, columns)
    *before_last, _ = sown[HIDDEN_STATES]
    length = columns["items"].shape[1]
    return [*(x[:, :length] for x in before_last), output]


def encode(
    model: Any, params: Any, columns: dict[str, Any]
) -> tuple[jax.Array, dict[str, Any]]:
    """The encoder's output `[B, L, D]` at all positions, and what its modules sow."""
    codes, context = columns["items"], columns["context"]
    if isinstance(model, text_bert.TextBert):
        segments = columns["segments"].astype(jnp.int32)
        inputs: tuple = jnp.maximum(codes, 0), segments, codes != PAD_ITEM, context
    else:
        inputs = codes, context
    output, sown = model.apply(
        {"params": params}, *inputs, method="hidden_states", mutable=["intermediates"]
    )
    return output, sown["intermediates"]
