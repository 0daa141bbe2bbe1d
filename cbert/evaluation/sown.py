"""What the modules of a model sow while it predicts the queries of a task.

Legend: B examples of a batch, P query positions of a block, L positions, Q queries.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cbert import parallel
from cbert.data.columns import Split
from cbert.errors import UserError
from cbert.evaluation import activations
from cbert.evaluation.restore import Restored
from cbert.model import conditioning
from cbert.model.attention import WEIGHTS
from cbert.model.conditioning.method import GATES
from cbert.schema import PAD_ITEM
from cbert.tasks import prediction
from cbert.tasks.base import Queries, Task
from cbert.tasks.prediction import Predictions

Array = jax.Array
ATTENTION = "attention"
# The name of what a method may show, and what it sows it under.
SHOWN = {ATTENTION: WEIGHTS, "gates": GATES}
# Weights of attention are kept for all pairs of positions, so batches are small.
BATCH_SIZE = 32
# The model, what its modules sowed and `bool [B, L]`, where a token is, to values `[B, ...]`.
Reduce = Callable[[Any, dict[str, Any], Array], dict[str, Array]]


def shown_by(method: str) -> str:
    """The name of what a method shows, of `SHOWN`; empty where it shows nothing."""
    shows = conditioning.method_class(method).shows
    return next((name for name, shown in SHOWN.items() if shown == shows), "")


def check(method: str, name: str) -> None:
    """Raises `UserError` unless a method shows what is asked for, one of `SHOWN`."""
    if shown_by(method) != name:
        having = [each for each in conditioning.METHODS if shown_by(each) == name]
        raise UserError(
            f"the method {method} has no {name} to show; these have: {', '.join(having)}; for "
            "every method, use what=features with items=JSON or text=TEXT, or "
            "feature_importance of evaluate"
        )


def over_queries(
    restored: Restored, split: Split, reduce: Reduce
) -> tuple[dict[str, np.ndarray], int]:
    """The values of all queries, `[Q, ...]`, one query an example, and the number of queries.

    The queries are those of an evaluation: tasks that mask mask one token of each example, the
    last item where the run's evaluations ask about it.
    """
    queries = restored.task.queries(split, restored.masking)
    task: Any = _Reading(restored.task, reduce)
    data = parallel.replicate(split.columns)
    size = min(restored.batch_size, BATCH_SIZE)
    values = prediction.predict_all(task, restored.params, data, split, queries, size)
    return values, len(queries)


def of_columns(model: Any, reduce: Reduce) -> Callable[[Any, dict[str, Any]], dict[str, Array]]:
    """A compiled function of parameters and the columns of examples to their values `[B, ...]`.

    Every block computes all positions, because no head reads the encoder's output.
    """

    def compute(params: Any, columns: dict[str, Any]) -> dict[str, Array]:
        _, kept = activations.encode(model, params, columns)
        return reduce(model, kept, columns["items"] != PAD_ITEM)

    return jax.jit(compute)


def over_positions(x: Array, mask: Array) -> Array:
    """The mean of x `[B, P, ...]` over the positions that a block computes.

    They are all L of them, padding and positions that a method added left out; or, in the last
    block, those that the head reads.
    """
    length = mask.shape[1]
    shown = jnp.ones(x.shape[:2], bool) if x.shape[1] < length else mask
    x, shown = x[:, :length], shown.reshape(*shown.shape, *[1] * (x.ndim - 2))
    return (x * shown).sum(axis=1) / shown.sum(axis=1)


@dataclasses.dataclass(frozen=True)
class _Reading:
    """Asks a model what its task asks, and returns in place of predictions what was sown."""

    task: Task
    reduce: Reduce

    @property
    def model(self) -> Any:
        return self.task.model

    def asked(self, queries: Queries) -> Queries:
        return queries

    def joined(self, predictions: Predictions, queries: Queries) -> Predictions:
        return predictions

    def predict(
        self, params: Any, columns: dict[str, Any], query: dict[str, Array]
    ) -> dict[str, Array]:
        recorder = _Recorder(self.task.model)
        task: Any = self.task
        dataclasses.replace(task, model=recorder).predict(params, columns, query)
        return self.reduce(self.task.model, recorder.sown, columns["items"] != PAD_ITEM)


class _Recorder:
    """A model that keeps what its modules sow when it is applied; all else is the model's."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.sown: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def apply(self, variables: Any, *inputs: Any, **options: Any) -> Any:
        outputs, kept = self._model.apply(
            variables, *inputs, **options, mutable=["intermediates"]
        )
        self.sown = kept["intermediates"]
        return outputs
