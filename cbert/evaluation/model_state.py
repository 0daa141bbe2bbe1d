"""The state a model is in: what its blocks read of the context, dead units, and gradients.

Legend: B examples of a batch, D model dimension, H units, Q queries.
"""

from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax

from cbert import tasks
from cbert.data import in_memory
from cbert.data.batching import Batches
from cbert.data.columns import Split
from cbert.evaluation import sown
from cbert.evaluation.restore import Restored
from cbert.model import placement
from cbert.model.conditioning.method import READ
from cbert.model.layers import UNITS
from cbert.model.parameter_tree import BLOCK, CONTEXT_PARTS
from cbert.schema import Schema
from cbert.tasks.base import Examples
from cbert.text_table import align
from cbert.training import config as config_lib

Array = jax.Array
BATCHES = 8
PARTS = ("embeddings", "encoder", "context", "head")
_NO_RANK = 1e-5  # Reads that vary by less than this fraction of their size are rounding.


def measure(restored: Restored, split: Split) -> dict[str, Any]:
    """What each block reads of the context, and which units of the state's updates are dead.

    Returns:
      `examples`; `rms`, of what each block reads, over entries, positions and examples;
      `effective_rank`, of how the examples' reads differ from their mean; and `dead_units`, for
      each update the fraction of its units that are zero for every example. The lists are empty
      for a method that has no such reads or updates.
    """
    values, count = sown.over_queries(restored, split, read)
    return {"examples": count, **summarize(values)}


def summarize(values: dict[str, np.ndarray]) -> dict[str, list[float]]:
    """The lists of `measure`, from what `read` gives for Q examples."""
    layers = sum(name.startswith("read_") for name in values)
    updates = sum(name.startswith("active_") for name in values)
    reads = [values[f"read_{layer}"] for layer in range(layers)]
    squares = [values[f"square_{layer}"].astype(np.float64) for layer in range(layers)]
    return {
        "rms": [float(np.sqrt(square.mean())) for square in squares],
        "effective_rank": [effective_rank(read) for read in reads],
        "dead_units": [
            float(1 - values[f"active_{layer}"].any(axis=0).mean()) for layer in range(updates)
        ],
    }


def read(model: Any, kept: dict[str, Any], mask: Array) -> dict[str, Array]:
    """For each block its read `[B, D]` and mean square `[B]`, and for each update `[B, H]`."""
    own, values = kept.get("conditioning", {}), {}
    for layer, of_block in enumerate(own.get(READ, ())):
        x = of_block.astype(jnp.float32)
        values[f"read_{layer}"] = sown.over_positions(x, mask)
        values[f"square_{layer}"] = sown.over_positions(jnp.square(x).mean(axis=-1), mask)
    layer = 0
    while UNITS in own.get(f"fnn_{layer}", {}):  # Other modules may be called fnn_..., too.
        (units,) = own[f"fnn_{layer}"][UNITS]
        values[f"active_{layer}"] = units > 0
        layer += 1
    return values


def effective_rank(vectors: np.ndarray) -> float:
    """exp of the entropy of the normalised singular values of vectors `[Q, D]` less their mean.

    It is 1 where they vary along one direction, and D where they vary along all directions
    alike (Roy and Vetterli 2007, "The effective rank: a measure of effective dimensionality").
    It is 0 where they are all the same.
    """
    vectors = vectors.astype(np.float64)
    deviations = vectors - vectors.mean(axis=0)
    if np.linalg.norm(deviations) <= _NO_RANK * np.linalg.norm(vectors):
        return 0.0
    values = np.linalg.svd(deviations, compute_uv=False)
    fractions = values[values > 0] / values.sum()
    return float(np.exp(-(fractions * np.log(fractions)).sum()))


def part_of(name: str) -> str:
    """The part of the model, one of `PARTS`, that a first name in a parameter's path is of."""
    if name in CONTEXT_PARTS:
        return "context"
    if name == "embedding":
        return "embeddings"
    return "encoder" if name.startswith(BLOCK) else "head"


def gradient_norms(
    restored: Restored, config: ml_collections.ConfigDict, schema: Schema, train: Split
) -> dict[str, float]:
    """The norm of the loss's gradient in each part, the mean over `BATCHES` training batches.

    The batches are the run's first ones, masked as in training, and nothing is dropped by
    dropout. A part without parameters is left out.
    """
    whole = config_lib.build_model(config, schema)  # Its items are on one device.
    all_params = placement.choose(restored.task.model).to_host(restored.params)
    task = tasks.create(config, whole, schema, train)
    chosen, constants = config.train, task.constants()
    batches = Batches(train.lengths, chosen.batch_size, config.seed, chosen.length_buckets)
    index = jnp.arange(chosen.batch_size)
    rows, lengths = zip(*map(batches, range(BATCHES)), strict=True)

    @jax.jit
    def norms(params: Any, examples: Examples, key: Array) -> dict[str, Array]:
        batch = task.batch(jax.random.split(key), examples)
        gradients, _ = jax.grad(task.loss, has_aux=True)(params, batch, {})
        parts: dict[str, list[Any]] = {}
        for name, tree in gradients.items():
            parts.setdefault(part_of(name), []).append(tree)
        return {part: optax.tree.norm(trees) for part, trees in parts.items()}

    measured = []
    for step, of_step in enumerate(rows):
        columns = in_memory.gather_rows(train.columns, of_step, max(lengths))
        examples = Examples(columns, constants, index, chosen.batch_size)
        measured.append(jax.device_get(norms(all_params, examples, jax.random.key(step))))
    return {
        part: float(np.mean([of_step[part] for of_step in measured]))
        for part in PARTS
        if part in measured[0]
    }


def format_state(measured: dict[str, Any]) -> str:
    """Two tables of what was measured: a row for each block, and a row for each part."""
    blocks = [["block", "rms of what is read", "effective rank", "dead units of the update %"]]
    dead = [f"{100 * fraction:.1f}" for fraction in measured["dead_units"]]
    reads = zip(measured["rms"], measured["effective_rank"], strict=True)
    for number, (rms, rank) in enumerate(reads):
        update = dead[number] if number < len(dead) else ""
        blocks.append([str(number + 1), f"{rms:.4f}", f"{rank:.1f}", update])
    norms = [["gradient of", "norm"]]
    norms += [[part, f"{norm:.4g}"] for part, norm in measured["gradients"].items()]
    return "\n\n".join(align(table) for table in (blocks, norms) if len(table) > 1)
