"""Where the context helps: gains by number of visible items and by a feature's value.

Legend: Q questions, M examples.
"""

import dataclasses

import numpy as np

from cbert.evaluation import breakdown
from cbert.evaluation.feature_importance import WAYS
from cbert.report import statistics
from cbert.report.report_data import Study
from cbert.report.statistics import Mean
from cbert.schema import NUMERICAL, Feature

# A picture has room for so many values, and a mean needs so many questions.
MOST_VALUES, LEAST_QUESTIONS = 20, 30
# Of the questions, at most this share is gathered in the last number of visible items.
TAIL = 0.02


@dataclasses.dataclass(frozen=True)
class Gains:
    """Gains over the base in parts of the questions.

    Attributes:
      title: What the parts are of.
      questions: Part to how many there are.
      gains: Variant to part to the gain in nats, with its error over groups.
    """

    title: str
    questions: dict[str, int]
    gains: dict[str, dict[str, Mean]]


def by_visible_items(study: Study) -> Gains:
    """A part a number; the largest, where they are few, in one."""
    visible = study.asked.visible
    last = int(np.quantile(visible, 1 - TAIL, method="higher"))
    parts = {str(count): visible == count for count in range(visible.min(), last)}
    name = str(last) if visible.max() == last else f"{last} or more"
    return _gains(study, "visible items", {**parts, name: visible >= last})


def by_features(study: Study) -> dict[str, Gains]:
    """Each token feature with few values and each numerical one, in quarters."""
    features = next(iter(study.variants[study.base].runs.values())).schema.features
    found = {}
    for feature in features:
        if feature.is_token or feature.kind == NUMERICAL:
            parts = _by_feature(study, feature)
            if 1 < len(parts) <= MOST_VALUES:
                found[feature.name] = _gains(study, feature.name, parts)
    return {name: gains for name, gains in found.items() if gains.questions}


def _by_feature(study: Study, feature: Feature) -> dict[str, np.ndarray]:
    parts = breakdown.by_feature(study.asked.contexts, feature)
    return {name: inside[study.asked.examples] for name, inside in parts.items()}


def _gains(study: Study, title: str, parts: dict[str, np.ndarray]) -> Gains:
    kept = {name: rows for name, rows in parts.items() if rows.sum() >= LEAST_QUESTIONS}
    found = {}
    for label in study.variants:
        gain = None if label == study.base else statistics.gain(study, label)
        if gain is not None:
            found[label] = {
                name: statistics.over_groups(gain[rows], study.asked.groups[rows])
                for name, rows in kept.items()
            }
    return Gains(title, {name: int(rows.sum()) for name, rows in kept.items()}, found)


def effects(study: Study) -> dict[str, dict[str, dict[str, Mean]]]:
    """`shuffled` and `withheld` to variant to feature to the cross-entropy lost.

    Over seeds where several were measured, else over groups. Variants that read no context,
    and so lose nothing, are left out.
    """
    found: dict[str, dict[str, dict[str, Mean]]] = {}
    for label, variant in study.variants.items():
        measured = [run.evaluation.get("effects") for run in variant.runs.values()]
        measured = [one for one in measured if one]
        for way in WAYS:
            features = {
                name: mean_of([one[name][way] for one in measured])
                for name in (measured[0] if measured else ())
                if all(one[name][way] for one in measured)
            }
            if any(mean.mean for mean in features.values()):
                found.setdefault(way, {})[label] = features
    return found


def mean_of(measured: list[dict[str, float | None]]) -> Mean:
    """Over seeds where there are several, else the one with its error over groups."""
    if len(measured) > 1:
        return statistics.over_seeds([one["mean"] for one in measured])
    return Mean(measured[0]["mean"], measured[0]["standard_error"], statistics.GROUPS, 1)
