"""Successive halving: many settings for few steps, the best for more.

The source is Jamieson and Talwalkar (2016). It is a few functions on top of the sweep's jobs,
so that a rung of whole runs can be resumed like any sweep. With nine trials a sampler such as
Optuna's draws at random, too.
"""

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import ml_collections

from cbert.config import flat
from cbert.data.random_streams import stream
from cbert.data.records import VALIDATION
from cbert.errors import UserError
from cbert.field_names import short_names
from cbert.sweep.points import STEPS, Point
from cbert.tasks.metric import Metric
from cbert.training import config as config_lib
from cbert.training import evaluations
from cbert.training.evaluations import MODEL
from cbert.training.workdir import CONFIG

FACTOR = 3  # A rung has so many times fewer trials than the one before it, for more steps each.
MOST_TRIALS = FACTOR**5
SPLIT = VALIDATION
PAGE = "trials.md"
RATE, DROPOUT, DECAY = "optimizer.learning_rate", "model.dropout", "optimizer.weight_decay"
WIDTHS = ("model.dimension", "model.feed_forward")
DROPOUTS, WIDTH_FACTORS = (0.0, 0.05, 0.1, 0.2, 0.3), (0.5, 1.0, 2.0)
# They are scaled with the steps of a rung, so that its schedule keeps its form.
SCALED = (STEPS, "train.eval_every", "train.checkpoint_every", "optimizer.warmup_steps")


def draw(config: ml_collections.ConfigDict, trial: int) -> dict[str, Any]:
    """The settings of a trial, a function of the config's seed; trial 0 has the config's own.

    The learning rate is drawn within a factor of 4 and the weight decay from 0.001 to 0.3, both
    on a logarithmic scale; dropout from five values; and the width is half, once or twice, but
    the config's own where the model begins with parameters or vectors of a file.
    """
    own = flat(config.to_dict())
    if not trial:
        return {name: own[name] for name in (RATE, DROPOUT, *WIDTHS, DECAY)}
    random = stream("trial", config.seed, trial)
    rate = own[RATE] * 4 ** random.uniform(-1, 1)
    dropout, factor = random.choice(DROPOUTS), random.choice(WIDTH_FACTORS)
    if config.train.init_from or config.train.item_embeddings:
        factor = 1.0  # What the model begins with has widths of its own.
    decay = 10 ** random.uniform(-3, math.log10(0.3))
    heads = config.model.heads
    dimension = heads * max(round(own[WIDTHS[0]] * factor / heads), 1)
    return {
        RATE: float(f"{rate:.3g}"),
        DROPOUT: float(dropout),
        WIDTHS[0]: dimension,
        WIDTHS[1]: max(round(own[WIDTHS[1]] * factor), 1),
        DECAY: float(f"{decay:.2g}"),
    }


def rung_sizes(trials: int) -> list[int]:
    """The number of trials of each rung, down to one."""
    sizes = [trials]
    while sizes[-1] > 1:
        sizes.append(max(sizes[-1] // FACTOR, 1))
    return sizes


def points(
    config: ml_collections.ConfigDict, rung: int, rungs: int, trials: Sequence[int]
) -> list[Point]:
    """The runs of a rung; the last one has the config's own steps, each before it a third."""
    divisor = FACTOR ** (rungs - 1 - rung)
    own = flat(config.to_dict())
    # Without a warm-up there is none to scale.
    scaled = {name: max(own[name] // divisor, 1) if own[name] else 0 for name in SCALED}
    made = []
    for trial in trials:
        name = f"rung{rung}-trial{trial:02}"
        made.append(Point(name, name, {**draw(config, trial), **scaled, "seed": config.seed}))
    for point in made:
        config_lib.check(point.apply(config))
    return made


def check(config: ml_collections.ConfigDict, trials: int, workdir: pathlib.Path) -> None:
    """Checks that a search can go on with the trials of a directory, if it holds any.

    More trials go on where they have as many rungs, for the steps of a rung depend on that.

    Raises:
      UserError: the trials there have other settings, or steps of another number of rungs.
    """
    rungs = {count: len(rung_sizes(count)) for count in range(1, MOST_TRIALS + 1)}
    first = points(config, 0, rungs[trials], [0])[0]
    if not (workdir / first.name / CONFIG).exists():
        return
    own = config_lib.load(workdir / first.name)

    def differences(rungs: int) -> list[str]:
        wanted = points(config, 0, rungs, [0])[0].apply(config)
        return config_lib.differences(own, wanted)

    likely = min([rungs[trials], *set(rungs.values())], key=lambda one: len(differences(one)))
    if found := differences(likely):
        raise UserError(
            f"{workdir} holds another search, of which the first trial differs: "
            f"{'; '.join(found)}; use its settings, or another work directory"
        )
    if likely != rungs[trials]:
        fitting = [count for count, number in rungs.items() if number == likely]
        raise UserError(
            f"{workdir} holds a search whose trials begin with {own.train.steps} steps, and "
            f"those of {trials} with {first.overrides[STEPS]}; give {fitting[0]} to "
            f"{fitting[-1]} trials to go on with it, or another work directory"
        )


def score(workdir: pathlib.Path, metric: Metric) -> float | None:
    """The deciding metric of a run on the validation split; None where it has none."""
    result: Any = evaluations.read(workdir, SPLIT)
    try:
        return float(result["results"][MODEL][metric.name]["mean"])
    except (ValueError, KeyError, TypeError):
        return None


Scores = Mapping[int, float | None]


def following(sizes: Sequence[int], rungs: Sequence[Scores], metric: Metric) -> list[int]:
    """The trials of the next rung, best first, or the chosen one where no rung is left.

    Args:
      sizes: From `rung_sizes`.
      rungs: For each rung that has been run, trial to score.
      metric: What the scores are of.
    """
    if not rungs:
        return list(range(sizes[0]))
    return best(rungs[-1], metric, [*sizes, 1][len(rungs)])


def table(
    config: ml_collections.ConfigDict, trials: int, rungs: Sequence[Scores], metric: Metric
) -> list[list[str]]:
    """A line for each trial: its settings, its score on each rung, and what became of it.

    Args:
      config: The config that is searched from.
      trials: The trials of the first rung.
      rungs: For each rung that has been run, trial to score.
      metric: What the scores are of.
    """
    names, sizes = short_names(draw(config, 0)), rung_sizes(trials)
    rows = [["trial", *names.values(), *(f"rung {rung}" for rung in range(len(rungs)))]]
    rows[0] += ["outcome"] * bool(rungs)
    kept = [following(sizes, rungs[:count], metric) for count in range(1, len(rungs) + 1)]
    for trial in range(trials):
        drawn = draw(config, trial)
        scores = [one[trial] for one in rungs if trial in one]
        cells = ["failed" if score is None else metric.text(score) for score in scores]
        cells += [""] * (len(rungs) - len(scores))
        passed = [trial in one for one in kept[: len(scores)]]
        outcome = "goes on"
        if not all(passed):
            failed = scores[-1] is None or not math.isfinite(scores[-1])
            outcome = "failed" if failed else f"stopped after rung {len(scores) - 1}"
        elif len(scores) == len(sizes):
            outcome = "chosen"
        settings = [f"{drawn[name]:g}" for name in names]
        rows.append([str(trial), *settings, *cells, *([outcome] if rungs else [])])
    return rows


def page(
    config: ml_collections.ConfigDict, trials: int, rungs: Sequence[Scores], metric: Metric
) -> str:
    """The table as a page in Markdown; see `table` for the arguments."""
    head, *rows = table(config, trials, rungs, metric)
    sizes = rung_sizes(trials)
    firsts = [points(config, rung, len(sizes), [0])[0] for rung in range(len(sizes))]
    steps = ", ".join(f"{point.overrides[STEPS]:,}" for point in firsts)
    lines = [head, ["---", *["---:"] * (len(head) - 2), "---"], *rows]
    return "\n".join(
        [
            f"# Trials of {config.model.method} on {config.data.name}",
            "",
            f"The rungs take {steps} steps. Their columns have the {metric.heading} of the "
            f"{SPLIT} split.",
            "",
            *(f"| {' | '.join(line)} |" for line in lines),
            "",
        ]
    )


def best(scores: Mapping[int, float | None], metric: Metric, count: int) -> list[int]:
    """The best trials that did not fail, best first, and of equal ones the earlier first."""
    known = {
        trial: metric.sign * value
        for trial, value in scores.items()
        if value is not None and math.isfinite(value)
    }
    return sorted(known, key=lambda trial: (known[trial], trial))[:count]
