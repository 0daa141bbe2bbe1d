"""A linear probe: a multinomial logistic regression on the activations of a frozen model.

Legend: M examples, D model dimension, T labels.
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from cbert import files, progress
from cbert.data.records import SPLITS, TEST, TRAIN, VALIDATION
from cbert.errors import UserError
from cbert.evaluation import activation_files, compare, metrics
from cbert.evaluation.intervals import Summary
from cbert.evaluation.measured import Measured
from cbert.model.pooling import EVERY_TOKEN
from cbert.schema import Schema
from cbert.schema.target import LABEL
from cbert.tasks.label_metrics import macro_f1
from cbert.tasks.metric import ACCURACY, MACRO_F1

# What the squared weights are multiplied by; the strongest is fitted first.
STRENGTHS = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
MAJORITY = "majority"
RESULTS = "probe.json"
METRICS = (ACCURACY, MACRO_F1)


@dataclasses.dataclass(frozen=True)
class Probe:
    """A fitted regression.

    Attributes:
      weights: `float64 [D + 1, T]`, the last row holds the biases.
      mean, scale: `float32 [D]`, by which activations are standardised.
    """

    weights: np.ndarray
    mean: np.ndarray
    scale: np.ndarray

    def log_probabilities(self, x: np.ndarray) -> np.ndarray:
        """Activations `[M, D]` to `float64 [M, T]`."""
        logits = (x - self.mean) / self.scale @ self.weights[:-1] + self.weights[-1]
        return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)


def check(schema: Schema, splits: Sequence[str], pooling: str) -> None:
    """Raises `UserError` where there is nothing to train a probe on."""
    if schema.target is None or schema.target.kind != LABEL:
        raise UserError("a probe needs records with 'label', a string; prepare other data")
    if pooling == EVERY_TOKEN:
        raise UserError(
            "a probe reads one vector an example; pool with mean or cls, not with tokens"
        )
    for name in SPLITS:
        if name not in splits:
            raise UserError(
                f"a probe needs the splits {', '.join(SPLITS)}, and {name} is absent; prepare "
                "data that have it"
            )


def fit(
    x: np.ndarray,
    labels: np.ndarray,
    strength: float,
    count: int,
    start: np.ndarray | None = None,
) -> Probe:
    """Minimises the mean cross-entropy plus strength / 2 times the sum of squared weights.

    Activations are standardised by their mean and deviation, and biases are not penalised.
    One that varies by no more than rounding, as [CLS] before the first block, says nothing.
    The optimizer is L-BFGS.

    Args:
      x: `float32 [M, D]`.
      labels: `int [M]`, from 0 to T - 1.
      strength: Above 0.
      count: T.
      start: The weights to begin with, such as those of another strength; None for zeros.
    """
    mean = x.mean(axis=0, dtype=np.float64).astype(np.float32)
    deviation = x.std(axis=0, dtype=np.float64).astype(np.float32)
    # Rounding differs with the padded length, of which a probe would learn.
    varies = deviation > 1e-6 * np.abs(x).max(axis=0)
    scale = np.where(varies, deviation, np.inf).astype(np.float32)
    standardised, targets = jnp.asarray((x - mean) / scale), jnp.asarray(labels)
    shape = x.shape[1] + 1, count

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = jnp.asarray(flat.reshape(shape), jnp.float32)
        value, gradient = _objective(weights, standardised, targets, strength)
        return float(value), np.asarray(gradient, np.float64).ravel()

    start = np.zeros(shape) if start is None else start
    options = {"maxiter": 500, "ftol": 1e-9, "gtol": 1e-6}
    best = scipy.optimize.minimize(
        objective, start.ravel(), jac=True, method="L-BFGS-B", options=options
    )
    return Probe(best.x.reshape(shape), mean, scale)


@jax.jit
@functools.partial(jax.value_and_grad, argnums=0)
def _objective(
    weights: jax.Array, x: jax.Array, labels: jax.Array, strength: float
) -> jax.Array:
    logits = jax.nn.log_softmax(x @ weights[:-1] + weights[-1])
    own = jnp.take_along_axis(logits, labels[:, None], axis=1)
    return -own.mean() + strength / 2 * (weights[:-1] ** 2).sum()


@dataclasses.dataclass(frozen=True)
class _Labelled:
    """The examples whose label the training split has.

    Attributes:
      count: T.
      rows: Split to `int [M]`, the examples' rows among the activations.
      targets: Split to `int32 [M]`, the codes of their labels.
      groups: `int [M]`, the groups of those of the test split.
      skipped: How many other examples the test split has.
    """

    count: int
    rows: dict[str, np.ndarray]
    targets: dict[str, np.ndarray]
    groups: np.ndarray
    skipped: int


def _labelled(directory: pathlib.Path) -> _Labelled:
    """The examples of a directory of activations that a probe learns from or is measured by.

    Raises:
      UserError: a split has no label that the training split has, or that has only one label.
    """
    tables = {
        name: activation_files.read_table(directory, name, [LABEL, "group"]) for name in SPLITS
    }
    labels = {name: table[LABEL].to_pylist() for name, table in tables.items()}
    names = sorted({label for label in labels[TRAIN] if label is not None})
    codes = {label: code for code, label in enumerate(names)}
    if len(names) < 2:
        raise UserError("a probe needs two labels in the training split; prepare other data")
    rows = {
        name: np.array([index for index, label in enumerate(column) if label in codes], int)
        for name, column in labels.items()
    }
    targets = {
        name: np.array([codes[labels[name][index]] for index in own], np.int32)
        for name, own in rows.items()
    }
    for name in SPLITS:
        if not len(rows[name]):
            raise UserError(
                f"the {name} split has no label that the training split has; split the records "
                "otherwise"
            )
    groups = metrics.group_codes(tables[TEST]["group"].to_pylist())[rows[TEST]]
    skipped = len(labels[TEST]) - len(groups)
    return _Labelled(len(names), rows, targets, groups, skipped)


def measure(directory: pathlib.Path, layers: Sequence[int]) -> dict[str, Any]:
    """Probes each layer of a directory of activations, and writes the results into it.

    The strength is the one of the lowest cross-entropy on the validation split.

    Returns:
      `results`: for each layer, and for the most frequent label of the training split, the
      test split's accuracy and macro-F1 with standard errors over groups; `strengths`: layer to
      the strength that was chosen; and how many `queries` there are.

    Raises:
      UserError: a split has no label that the training split has, or that has only one label.
    """
    labelled = _labelled(directory)
    targets, groups = labelled.targets, labelled.groups
    results, strengths = {}, {}
    for layer in progress.bar(layers, desc="probing", unit=" layers"):
        x = {
            name: activation_files.read_layer(directory, name, layer)[rows]
            for name, rows in labelled.rows.items()
        }
        chosen, strengths[str(layer)] = _tuned(x, targets, labelled.count)
        predicted = chosen.log_probabilities(x[TEST]).argmax(axis=1)
        results[f"layer {layer}"] = _scores(predicted, targets[TEST], groups)
    predicted = np.full_like(targets[TEST], np.bincount(targets[TRAIN]).argmax())
    results[MAJORITY] = _scores(predicted, targets[TEST], groups)
    summary = {
        "queries": len(groups),
        "skipped": labelled.skipped,
        "strengths": strengths,
        "results": results,
    }
    files.write_text(directory / RESULTS, json.dumps(summary, indent=1) + "\n")
    return summary


def _tuned(
    x: dict[str, np.ndarray], targets: dict[str, np.ndarray], count: int
) -> tuple[Probe, float]:
    """The probe, fitted to the training split, of the best strength on the validation split."""
    fitted: dict[float, tuple[float, Probe]] = {}
    start = None
    for strength in STRENGTHS:
        probe = fit(x[TRAIN], targets[TRAIN], strength, count, start)
        own = probe.log_probabilities(x[VALIDATION])
        nats = -np.take_along_axis(own, targets[VALIDATION][:, None], axis=1).mean()
        fitted[strength], start = (float(nats), probe), probe.weights
    best = min(fitted, key=lambda strength: fitted[strength][0])
    return fitted[best][1], best


def _scores(
    predicted: np.ndarray, labels: np.ndarray, groups: np.ndarray
) -> dict[str, Summary]:
    correct = {ACCURACY.name: (predicted == labels).astype(np.float64)}
    measured = Measured(correct, macro_f1(labels, predicted), np.ones(len(groups)))
    return measured.summarize(groups)


def format_results(summary: dict[str, Any]) -> str:
    """A table of the layers and the most frequent label, and the strengths."""
    strengths = summary["strengths"]
    chosen = ", ".join(f"{strength:g} (layer {n})" for n, strength in strengths.items())
    lines = [
        f"linear probe, test split: {summary['queries']:,} queries; ± standard error over "
        f"groups\n\n{compare.format_results(summary['results'], METRICS)}\n\nstrength: {chosen}"
    ]
    ends = {"strongest": STRENGTHS[0], "weakest": STRENGTHS[-1]}
    for name, end in ends.items():
        if layers := [n for n, strength in strengths.items() if strength == end]:
            lines.append(
                f"note: the {name} penalty that was tried, {end:g}, is the best of layer "
                f"{', '.join(layers)}; one beyond it may be better"
            )
    return "\n".join(lines)
