"""Feature importance: how much worse a model is without a context feature.

Legend: M examples.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cbert import parallel, progress
from cbert.data.columns import Split
from cbert.data.random_streams import stream
from cbert.errors import UserError
from cbert.evaluation import metrics
from cbert.evaluation.intervals import Summary
from cbert.evaluation.restore import Restored
from cbert.schema import Schema
from cbert.tasks.masked_queries import ONE

PERMUTED, DROPPED = "permuted", "dropped"
PERTURBATIONS = (PERMUTED, DROPPED)


def permutation_between_groups(groups: Sequence[str], schema: Schema) -> np.ndarray:
    """A permutation of the examples, `int [M]`, that moves each one to another group.

    Groups, and the examples inside each, are put in a random order, which is then shifted by
    the size of the largest group, so that no group reaches itself. The same groups always give
    the same permutation.

    Raises:
      UserError: the schema has no features, or one group holds more than half of the examples.
    """
    if not schema.features:
        raise UserError(
            "the data have no context features whose importance could be measured; leave "
            "feature_importance out"
        )
    codes = metrics.group_codes(groups)
    sizes = np.bincount(codes)
    largest = int(sizes.max())
    if 2 * largest > len(codes):
        raise UserError(
            "feature importance cannot be measured: the group "
            f"{groups[int(np.argmax(codes == sizes.argmax()))]!r} holds {largest} of the "
            f"{len(codes)} examples, so its values cannot be exchanged with those of other "
            "groups; leave feature_importance out, or prepare more groups"
        )
    random = stream("permutation between groups")
    order, group_order = random.permutation(len(codes)), random.permutation(len(sizes))
    order = order[np.argsort(group_order[codes[order]], kind="stable")]
    permutation = np.empty_like(order)
    permutation[order] = np.roll(order, -largest)
    return permutation


def measure(
    restored: Restored,
    data: dict[str, Any],
    split: Split,
    schema: Schema,
    permutation: np.ndarray,
    drop: bool,
    reads_context: bool = True,
    masking: str = ONE,
) -> dict[str, dict[str, Any]]:
    """How much worse predictions are when a feature is perturbed, one query an example.

    It is the rise in the task's deciding metric: the cross-entropy (nats), or for a regression
    the squared error. Where a metric is better when it is larger, it is the fall.

    Args:
      restored: A task with parameters; `restore` returns it.
      data: The split's columns, replicated.
      split: The split.
      schema: The checkpoint's schema.
      permutation: The result of `permutation_between_groups`.
      drop: Whether the model was trained with features dropped.
      reads_context: Whether the model does; if not, nothing changes, and nothing is computed.
      masking: The masking of the queries.

    Returns:
      For each feature, `permuted` (its values are exchanged between groups) and `dropped` (all
      its values are missing; None where `drop` is false). Each holds `mean` and
      `standard_error` (over groups).
    """
    if not reads_context:
        level = {"mean": 0.0, "standard_error": 0.0}
        of_each = {PERMUTED: level, DROPPED: level if drop else None}
        return {feature.name: of_each for feature in schema.features}
    task = restored.task
    queries = task.queries(split, masking)
    groups = metrics.group_codes(split.groups)[queries.rows]

    metric = task.metrics[0]

    def badness(context: dict[str, Any]) -> np.ndarray:
        predictions = restored.predict({**data, "context": context}, split, queries)
        return metric.sign * task.metric_values(predictions, queries)[metric.name]

    unperturbed = badness(data["context"])

    def worsening(name: str, column: np.ndarray) -> Summary:
        context = {**data["context"], name: parallel.replicate(column)}
        rise = badness(context) - unperturbed
        return metrics.estimate(rise, groups, queries.weights).summary()

    importance = {}
    for feature in progress.bar(schema.features, desc="importance", unit=" features"):
        column = split.context[feature.name]
        missing = feature.missing(len(column))
        importance[feature.name] = {
            PERMUTED: worsening(feature.name, column[permutation]),
            DROPPED: worsening(feature.name, missing) if drop else None,
        }
    return importance
