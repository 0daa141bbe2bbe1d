"""What each context feature is worth to a model: the cross-entropy lost without it.

Legend: M examples, Q questions.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from cbert import parallel, progress
from cbert.data.source import Split
from cbert.errors import UserError
from cbert.evaluation import metrics, questions
from cbert.schema import Schema

SHUFFLED, WITHHELD = "shuffled", "withheld"
WAYS = (SHUFFLED, WITHHELD)


def between_groups(groups: list[str], schema: Schema) -> np.ndarray:
    """`int [M]`: for each example one of another group, each example once.

    Examples are ordered by group, groups and examples at random, and moved on by the size of
    the largest group: no group reaches itself. The same groups give the same permutation.

    Raises:
      UserError: there are no features, or one group holds more than half of the examples.
    """
    if not schema.features:
        raise UserError("--effects: the data have no context features; leave it out")
    codes = metrics.group_codes(groups)
    sizes = np.bincount(codes)
    most = int(sizes.max())
    if 2 * most > len(codes):
        raise UserError(
            f"--effects: the group {groups[int(np.argmax(codes == sizes.argmax()))]!r} holds "
            f"{most} of the {len(codes)} examples, so its values cannot be exchanged with "
            "those of other groups; leave --effects out"
        )
    random = np.random.default_rng(0)
    order, place = random.permutation(len(codes)), random.permutation(len(sizes))
    order = order[np.argsort(place[codes[order]], kind="stable")]
    exchanged = np.empty_like(order)
    exchanged[order] = np.roll(order, -most)
    return exchanged


def measure(
    ask: Callable,
    data: dict[str, Any],
    split: Split,
    schema: Schema,
    exchanged: np.ndarray,
    withhold: bool,
) -> dict[str, dict[str, Any]]:
    """Cross-entropy (nats) lost when a feature's column is spoilt, one question an example.

    Args:
      ask: The model, see `evaluate.restore`.
      data: The split's columns, replicated.
      split: The split.
      schema: Its schema.
      exchanged: From `between_groups`.
      withhold: Whether the model was trained to do without features.

    Returns:
      Feature to `shuffled`, its values exchanged between groups, and `withheld`, all of them
      missing (None for a model that was not trained for it), each with `mean` and
      `standard_error` (over groups).
    """
    asked = questions.ask_one(split)
    groups = metrics.group_codes(split.groups)[asked.rows]

    def loss(context: dict[str, Any]) -> np.ndarray:
        answers = ask({**data, "context": context}, split, asked)
        return metrics.per_question(*answers)["cross_entropy"]

    whole = loss(data["context"])

    def lost(name: str, column: np.ndarray) -> dict[str, float | None]:
        spoilt = {**data["context"], name: parallel.replicate(column)}
        mean, error = metrics.mean_and_error(loss(spoilt) - whole, groups)
        return {"mean": mean, "standard_error": error}

    found = {}
    for feature in progress.bar(schema.features, desc="effects", unit=" features"):
        column = split.context[feature.name]
        missing = np.repeat(feature.encode([None]), len(column), axis=0)
        found[feature.name] = {
            SHUFFLED: lost(feature.name, column[exchanged]),
            WITHHELD: lost(feature.name, missing) if withhold else None,
        }
    return found
