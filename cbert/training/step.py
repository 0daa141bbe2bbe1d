"""One training step: a pure function of state, data and (seed, step).

Legend: B examples of this device's part, P hidden positions, L padded length, D model
dimension.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from cbert import parallel
from cbert.data import context_dropout
from cbert.data import masking as masking_lib
from cbert.model import sampled_softmax
from cbert.model.contextual_bert import ContextualBert
from cbert.model.cross_entropy import cross_entropy
from cbert.schema import Schema
from cbert.training.optimizer import pack, unpack
from cbert.training.state import TrainState


@dataclasses.dataclass(frozen=True)
class Task:
    """What is asked of a model in training.

    Attributes:
      model: The model.
      schema: The data's schema.
      masking: How items are hidden.
      context_dropout: Share of context features withheld.
      expected_count: Mean number of hidden items an example in the whole data set. The loss
        is divided by this constant, so grouping by length leaves its expectation unchanged.
      sampled_items: Items that stand for the whole vocabulary in the loss, 0 to use all.
    """

    model: ContextualBert
    schema: Schema
    masking: masking_lib.Masking
    context_dropout: float
    expected_count: float
    sampled_items: int = 0

    def batch(
        self,
        keys: jax.Array,
        data: dict[str, Any],
        rows: jax.Array,
        places: jax.Array,
        batch_size: int,
        length: int,
    ) -> dict[str, Any]:
        """Reads rows, and hides items and context by two keys; see `masking`."""
        hide_key, context_key = keys
        codes, hidden, targets, weights = masking_lib.hide(
            hide_key,
            data["items"][rows, :length],
            places,
            batch_size,
            self.masking,
            len(self.schema.items),
        )
        context = context_dropout.drop_features(
            context_key,
            {name: column[rows] for name, column in data["context"].items()},
            places,
            batch_size,
            self.context_dropout,
            self.schema,
        )
        batch = {
            "codes": codes,
            "context": context,
            "hidden": hidden,
            "targets": targets,
            "weights": weights,
        }
        if self.sampled_items:
            # The same on every device.
            key, cumulative = jax.random.fold_in(hide_key, 3), data["cumulative"]
            batch["sampled"] = sampled_softmax.draw(key, cumulative, self.sampled_items)
            batch["cumulative"] = cumulative
        return batch

    def loss_sum(
        self, params: dict, batch: dict[str, Any], dropout_key: jax.Array
    ) -> jax.Array:
        """Cross-entropy summed over the batch's questions, in nats."""
        found, table, bias = self.model.apply(
            {"params": params},
            batch["codes"],
            batch["context"],
            batch["hidden"],
            rngs={"dropout": dropout_key},
        )
        found, targets = found.reshape(-1, found.shape[-1]), batch["targets"].reshape(-1)
        if self.sampled_items:
            losses = sampled_softmax.sampled_cross_entropy(
                found, table, bias, targets, batch["sampled"], batch["cumulative"]
            )
        else:
            losses = cross_entropy(found, table, bias, targets)
        return (losses * batch["weights"].reshape(-1)).sum()


def make_train_step(
    task: Task, optimizer: optax.GradientTransformation, skips: bool = False
) -> Callable:
    """The step, to be mapped over devices; `skips`: the optimizer skips what is not finite."""

    def train_step(
        state: TrainState,
        data: dict[str, Any],
        rows: jax.Array,
        places: jax.Array,
        key: jax.Array,
        length: int,
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """rows and places `int32 [B]`; metrics are sums over the global batch."""
        batch_size = len(rows) * parallel.device_count()
        keys = jax.random.split(jax.random.fold_in(key, state.step), 3)
        batch = task.batch(keys[:2], data, rows, places, batch_size, length)
        # Every device drops other entries.
        dropout_key = jax.random.fold_in(keys[2], parallel.device_index())

        def scaled_loss(params: dict) -> tuple[jax.Array, jax.Array]:
            total = task.loss_sum(params, batch, dropout_key)
            return total / (batch_size * task.expected_count), total

        gradients, total = jax.grad(scaled_loss, has_aux=True)(state.params)
        gradients = parallel.total(pack(gradients))
        packed = pack(state.params)
        updates, opt_state = optimizer.update(gradients, state.opt_state, packed)
        params = unpack(optax.apply_updates(packed, updates), state.params)
        metrics = {
            "loss": parallel.total(total),
            "questions": parallel.total(batch["weights"].sum()),
            "gradient_norm": optax.tree.norm(gradients),
        }
        if skips:
            good = jnp.isfinite(metrics["gradient_norm"])
            metrics = {name: jnp.where(good, value, 0) for name, value in metrics.items()}
            metrics["skipped"] = 1.0 - good
        return TrainState(state.step + 1, params, opt_state), metrics

    return train_step
