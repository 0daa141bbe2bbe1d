"""One training step: a pure function of state, data and (seed, step).

Legend: B examples of this device's part, P hidden positions, L padded length.
"""

from collections.abc import Callable

import jax
import optax
from jax import lax

from cbert.data import masking as masking_lib
from cbert.model.bert import ContextualBert, output_layer
from cbert.model.objective import cross_entropy
from cbert.schema import Schema
from cbert.training.parallel import AXIS
from cbert.training.state import TrainState


def make_train_step(
    model: ContextualBert,
    optimizer: optax.GradientTransformation,
    schema: Schema,
    masking: masking_lib.Masking,
    context_dropout: float,
    expected_count: float,
) -> Callable:
    """The step, to be mapped over devices.

    Args:
      model: The model.
      optimizer: The optimizer.
      schema: The data's schema.
      masking: How items are hidden.
      context_dropout: Share of context features withheld.
      expected_count: Mean number of hidden items an example in the whole data set. The loss
        is divided by this constant, so grouping by length leaves its expectation unchanged.
    """

    def train_step(
        state: TrainState,
        data: dict,
        rows: jax.Array,
        places: jax.Array,
        key: jax.Array,
        length: int,
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """rows and places `int32 [B]`; metrics are sums over the global batch."""
        batch_size = len(rows) * lax.psum(1, AXIS)
        key = jax.random.fold_in(key, state.step)
        hide_key, context_key, dropout_key = jax.random.split(key, 3)
        # Another noise on every device.
        noise = jax.random.bits(jax.random.fold_in(dropout_key, lax.axis_index(AXIS)))
        codes, hidden, targets, weights = masking_lib.hide(
            hide_key,
            data["items"][rows, :length],
            places,
            batch_size,
            masking,
            len(schema.items),
        )
        context = {name: column[rows] for name, column in data["context"].items()}
        context = masking_lib.withhold(
            context_key, context, places, batch_size, context_dropout, schema
        )

        def loss_sum(params: dict) -> tuple[jax.Array, jax.Array]:
            found = model.apply({"params": params}, codes, context, hidden, noise)
            table, bias = output_layer(params)
            losses = cross_entropy(
                found.reshape(-1, found.shape[-1]), table, bias, targets.reshape(-1)
            )
            total = (losses * weights.reshape(-1)).sum()
            return total / (batch_size * expected_count), total

        gradients, total = jax.grad(loss_sum, has_aux=True)(state.params)
        gradients = lax.psum(gradients, AXIS)
        updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        metrics = {
            "loss": lax.psum(total, AXIS),
            "questions": lax.psum(weights.sum(), AXIS),
            "gradient_norm": optax.tree.norm(gradients),
        }
        params = optax.apply_updates(state.params, updates)
        return TrainState(state.step + 1, params, opt_state), metrics

    return train_step
