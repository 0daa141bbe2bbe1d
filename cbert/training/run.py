"""What a training run is made of: model, optimizer, step, data; one seed or several at once."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import ml_collections
import numpy as np
import optax

from cbert import parallel
from cbert.data import masking as masking_lib
from cbert.data import source
from cbert.errors import UserError
from cbert.evaluation import metrics, questions
from cbert.model import contextual_bert, sampled_softmax
from cbert.schema import Schema
from cbert.training import config as config_lib
from cbert.training import memory
from cbert.training import optimizer as optimizer_lib
from cbert.training import state as state_lib
from cbert.training.step import Task, make_train_step


class Validation:
    """Cross-entropy on the validation split: one question an example, always the same."""

    def __init__(
        self, split: source.Split, model: contextual_bert.ContextualBert, batch_size: int
    ) -> None:
        self._split, self._batch_size = split, batch_size
        self._asked = questions.make(split, questions.ONE)
        self.answer = questions.make_answer(model)
        self._data = parallel.replicate(split.columns)

    def __call__(self, params: dict) -> dict[str, float]:
        answers = questions.answer_all(
            self.answer, params, self._data, self._split, self._asked, self._batch_size
        )
        values = metrics.per_query(*answers)
        return {name: float(values[name].mean()) for name in metrics.METRICS}


@dataclasses.dataclass
class Run:
    """A run before its first step; with several seeds, state and key have a seed axis first.

    Attributes:
      batches: Which rows a step takes, for each seed.
      ids: The names of the training examples.
      data: The training split's columns, on every device.
      places: `int32 [devices, B / devices]`, positions in the global batch.
      step: The step, mapped over devices.
      state: Its state.
      key: What all its randomness comes from.
      rate: Step to learning rate.
      validation: Parameters of one seed to its metrics.
    """

    batches: list[source.Batches]
    ids: Sequence[str]
    data: dict[str, Any]
    places: np.ndarray
    step: Callable
    state: state_lib.TrainState
    key: jax.Array
    rate: optax.Schedule
    validation: Validation

    def rows(self, step: int, most: int) -> tuple[np.ndarray, int]:
        """The rows of `most` steps, or of one, and their padded length.

        `int32 [devices, steps, B / devices]`, or `[devices, steps, seeds, B / devices]`.
        """
        found, lengths = zip(*(b.several(step, most) for b in self.batches), strict=True)
        rows = np.stack(found, axis=1) if len(found) > 1 else found[0]
        return parallel.split(rows, -1), lengths[0]

    def advance(self, step: int, most: int = 1) -> tuple[int, dict[str, jax.Array]]:
        """Takes `most` steps from `step` on in one dispatch, or one step.

        Returns how many were taken, and their metrics, `[steps]` or `[steps, seeds]` each.
        """
        rows, length = self.rows(step, most)
        self.state, found = self.step(
            self.state, self.data, rows, self.places, self.key, length
        )
        return rows.shape[1], found

    def states(self) -> list[state_lib.TrainState]:
        """Each seed's state."""
        seeds = len(self.batches)
        return parallel.unstack(self.state, seeds) if seeds > 1 else [self.state]

    def set_states(self, states: list[state_lib.TrainState]) -> None:
        """Replaces every seed's state."""
        self.state = parallel.stack(states) if len(states) > 1 else states[0]


def set_up(config: ml_collections.ConfigDict, schema: Schema, seeds: Sequence[int] = ()) -> Run:
    """Loads the data and assembles a run."""
    train = source.load(config.data.dir, config.data.name, "train", schema)
    validation = source.load(config.data.dir, config.data.name, "validation", schema)
    return assemble(config, schema, train, validation, seeds)


def assemble(
    config: ml_collections.ConfigDict,
    schema: Schema,
    train: source.Split,
    validation: source.Split,
    seeds: Sequence[int] = (),
) -> Run:
    """Builds model, optimizer and step for the given seeds or the config's; compiles little.

    Raises:
      UserError: the batch does not fit the devices or the data, there is nothing to hide, or
        the run cannot fit into memory.
    """
    seeds = tuple(seeds) or (config.seed,)
    batch_size = config.train.batch_size
    if batch_size % parallel.device_count():
        raise UserError(
            f"train.batch_size is {batch_size}; it must be a multiple of the "
            f"number of devices, {parallel.device_count()}"
        )
    batches = [
        source.Batches(train.lengths, batch_size, seed, config.train.length_buckets)
        for seed in seeds
    ]
    memory.check(config, schema, int(train.lengths.max()), len(seeds))
    model = config_lib.build_model(config, schema)
    optimizer, rate = _make_optimizer(config)
    data = train.columns
    if config.train.sampled_items:
        data["cumulative"] = sampled_softmax.cumulative(schema.counts)
    skips = config.train.on_nonfinite == config_lib.SKIP
    step = make_train_step(_make_task(config, model, schema, train), optimizer, skips)
    keys = [jax.random.key(seed) for seed in seeds]
    run = Run(
        batches=batches,
        ids=train.ids,
        data=parallel.replicate(data),
        places=parallel.split(np.arange(batch_size, dtype=np.int32)),
        step=parallel.map_train_step(parallel.over_seeds(step) if len(seeds) > 1 else step),
        state=None,
        key=_together([jax.random.fold_in(key, 1) for key in keys]),
        rate=rate,
        validation=Validation(validation, model, config.eval.batch_size),
    )
    params = [contextual_bert.initialize(model, key) for key in keys]
    states = [state_lib.create(own, optimizer) for own in params]
    run.state = _together(states)
    return run


def _together(trees: list[Any]) -> Any:
    return parallel.stack(trees) if len(trees) > 1 else parallel.replicate(trees[0])


def _make_optimizer(
    config: ml_collections.ConfigDict,
) -> tuple[optax.GradientTransformation, optax.Schedule]:
    chosen = config.optimizer
    rate = optimizer_lib.learning_rate(
        chosen.schedule, chosen.learning_rate, chosen.warmup_steps, config.train.steps
    )
    optimizer = optimizer_lib.make_optimizer(
        rate, chosen.weight_decay, chosen.clip_norm, chosen.b1, chosen.b2
    )
    if config.train.on_nonfinite == config_lib.SKIP:
        optimizer = optimizer_lib.skip_nonfinite(optimizer)
    return optimizer, rate


def _make_task(
    config: ml_collections.ConfigDict,
    model: contextual_bert.ContextualBert,
    schema: Schema,
    train: source.Split,
) -> Task:
    masking = config_lib.masking(config)
    expected = masking_lib.expected_count(train.items, masking)
    if not expected:
        raise UserError("no training item is in the schema's vocabulary; lower --min_count")
    return Task(
        model,
        schema,
        masking,
        config.train.context_dropout,
        expected,
        config.train.sampled_items,
    )
