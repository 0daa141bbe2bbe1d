"""The numbers that the benchmark gives for each method, from its rounds."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cbert.benchmark.measure import MatmulPeak, TrainingRounds

_PLAIN = "none"  # The method that the cost of the others is compared with.


def summarize(trainings: Sequence[TrainingRounds], peak: MatmulPeak) -> list[dict[str, Any]]:
    """The speed of each method, and its cost over that of none where there are both."""
    summaries = [_summary(training, peak) for training in trainings]
    methods = [summary["method"] for summary in summaries]
    if _PLAIN in methods and len(methods) > 1:
        plain = trainings[methods.index(_PLAIN)]
        for summary, training in zip(summaries, trainings, strict=True):
            summary |= _over_plain(training, plain)
    return summaries


def _summary(training: TrainingRounds, peak: MatmulPeak) -> dict[str, Any]:
    """The speed of one method, from its rounds."""
    useful = training.operations() / np.array(training.timing.seconds)
    real, padded = training.tokens()
    return {
        "method": training.config.model.method,
        "examples_per_second": training.examples / training.timing.median,
        "tokens_per_second": real / training.timing.median,
        "padding": 1 - real / padded,
        "step_ms": 1000 * training.timing.median / training.steps,
        "host_fraction": training.host_fraction,
        "set_up_s": training.set_up_seconds,
        "compile_s": training.compile_seconds,
        "useful_gflops": float(np.median(useful)) / 1e9,
        "of_peak": float(np.median(useful / peak.rates)),
    }


def _over_plain(training: TrainingRounds, plain: TrainingRounds) -> dict[str, Any]:
    """What a method costs beside plain BERT, whose rounds took turns with its own.

    Returns:
      `time_over_none`, the median over rounds, with its quartiles, and `operations_over_none`,
      the ratio of the useful operations.
    """
    low, middle, high = training.timing.over(plain.timing)
    return {
        "time_over_none": middle,
        "time_over_none_quartiles": [low, high],
        "operations_over_none": training.operations() / plain.operations(),
    }
