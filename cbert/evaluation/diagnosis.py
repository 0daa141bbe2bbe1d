"""What a run's numbers say in words: how training went, and where a baseline is better."""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cbert import tasks
from cbert.data.columns import evenly_spaced
from cbert.data.records import VALIDATION
from cbert.evaluation import task_baselines
from cbert.evaluation.baselines import OPTIMA, loader
from cbert.evaluation.evaluation import Evaluation
from cbert.evaluation.metrics import estimate
from cbert.tasks import prediction
from cbert.tasks.masked_queries import one_an_example
from cbert.tasks.metric import Metric
from cbert.training import config as config_lib
from cbert.training import schedule, writer
from cbert.training import workdir as workdir_lib
from cbert.training.evaluations import MODEL

# A change counts from this fraction of what the run has gained since its first validation, or
# of what is left.
NOTABLE = 0.02
# Below this fraction of its peak the learning rate may be what ends a loss's fall.
DECAYED = 0.25
MOST_NAMED = 6  # Metrics and slices that a line names.


def diagnose(workdir: str | pathlib.Path) -> str:
    """One line on a finished run: the course of its validations, and the strongest baseline.

    Raises:
      UserError: the work directory or the data are not what they must be.
    """
    workdir = pathlib.Path(workdir).expanduser()
    config, schema = workdir_lib.read(workdir)
    task = tasks.create(config, config_lib.build_model(config, schema), schema)
    metric = task.metrics[0]
    rows = writer.read(workdir / workdir_lib.METRICS)
    measured = [(r["step"], r[metric.name]) for r in rows if r["split"] == VALIDATION]
    if not measured:
        return "no validation was made"
    load = loader(config.data.dir, config.data.name, schema)
    whole = load(VALIDATION)
    assert whole is not None
    # Training asks the same queries after every validation.
    validation = evenly_spaced(whole, config.train.eval_examples)
    queries = task.queries(validation, one_an_example(config.eval.masking))
    others = {}
    for name, predictions in task_baselines.predictions(
        task, load, schema, validation, queries
    ).items():
        known = prediction.metrics(task, predictions, queries)
        if name not in OPTIMA and metric.name in known:
            others[name] = known[metric.name]
    learning_rate, peak = schedule.build(config), config.optimizer.learning_rate
    went = course(measured, metric, lambda step: float(learning_rate(step)) / peak)
    return f"{went}; {standing(measured, metric, others)}"


def course(
    measured: Sequence[tuple[int, float]],
    metric: Metric,
    rate: Callable[[int], float] = lambda step: 1.0,
) -> str:
    """How the values of a metric went.

    Args:
      measured: Step and value of each validation, in order.
      metric: The metric; it says which direction is better.
      rate: A step's learning rate as a fraction of the highest one.
    """
    steps = [step for step, _ in measured]
    losses = metric.sign * np.array([value for _, value in measured])
    if len(losses) < 3:
        return "fewer than three validations, too few to say how it went"
    best = int(losses.argmin())
    gained = losses[0] - losses[best]
    if not gained:
        return f"no better than at its first validation, at step {steps[0]}"
    risen = losses[-1] - losses[best]
    if best < len(losses) - 2 and risen > NOTABLE * gained:
        return f"over-fitting since step {steps[best]}"
    before = losses[-1 - max(len(losses) // 4, 1)]
    # A steep start, or a loss that is nearly gone, must not hide what is still gained.
    notable = NOTABLE * min(gained, abs(losses[best]))
    if best >= len(losses) - 2 and risen <= notable < before - losses[-1]:
        return "still improving when it ended, so more steps may help"
    if risen > gained / 2:  # A smaller rise at the end may be noise.
        return f"worse at its last validation than at step {steps[best]}"
    level = int(np.argmax(losses <= losses[best] + NOTABLE * gained))
    plateau = f"on a plateau since step {steps[level]}"
    if (left := rate(steps[level])) < DECAYED:
        plateau += f", where the learning rate had fallen to {left:.0%}: a longer run may gain"
    return plateau


def standing(
    measured: Sequence[tuple[int, float]], metric: Metric, others: Mapping[str, float]
) -> str:
    """The best value beside that of the strongest baseline."""
    best = min((value for _, value in measured), key=lambda value: metric.sign * value)
    own = f"{metric.heading} {metric.text(best)}"
    if not others:
        return own
    strongest = min(others, key=lambda name: metric.sign * others[name])
    theirs = others[strongest]
    word = "ahead of" if metric.improves(best, theirs) else "behind"
    return (
        f"{own}, {word if best != theirs else 'equal to'} {strongest} ({metric.text(theirs)})"
    )


def better_baselines(evaluation: Evaluation, summary: Mapping[str, Any]) -> list[str]:
    """A line for each baseline that is better than the model, overall or in a slice.

    A slice counts where the difference is more than twice its standard error over groups.
    """
    lines = []
    for name, result in summary["results"].items():
        if name in (MODEL, *OPTIMA):
            continue
        own = summary["results"][MODEL]
        metrics = [
            metric
            for metric in evaluation.task.metrics
            if metric.judges_constants
            and metric.name in result
            and metric.improves(result[metric.name]["mean"], own[metric.name]["mean"])
        ]
        worse = [metric.heading for metric in metrics] + _slices(evaluation, name)
        if metrics:  # The numbers of one metric are enough; the table has all.
            one, *_ = metrics
            values = (one.text(numbers[one.name]["mean"]) for numbers in (result, own))
            worse[0] += f" ({' against '.join(values)})"
        if len(worse) > MOST_NAMED:
            worse[MOST_NAMED:] = [f"and {len(worse) - MOST_NAMED} more"]
        if worse:
            lines.append(f"{name} is better than the model in {', '.join(worse)}")
    return lines


def _slices(evaluation: Evaluation, baseline: str) -> list[str]:
    """The slices of the task in which a baseline is better in the deciding metric."""
    metric = evaluation.task.metrics[0]
    own, other = (evaluation.measured[name].values for name in (MODEL, baseline))
    if metric.name not in own or metric.name not in other:
        return []
    behind = metric.sign * (own[metric.name] - other[metric.name])
    lost = []
    for partition, slices in evaluation.task.slices(evaluation.split).items():
        for label, rows in slices.items():
            inside = rows[evaluation.queries.rows]
            weights = evaluation.queries.weights[inside]
            if not weights.any():
                continue
            worse = estimate(behind[inside], evaluation.groups[inside], weights)
            if worse.mean > 2 * worse.error:
                title = partition.replace("_", " ")
                by = f"{metric.text(float(worse.mean))} of {metric.heading}"
                lost.append(f"the slice {title} {label} (by {by})")
    return lost
