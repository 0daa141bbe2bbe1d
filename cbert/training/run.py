"""What a training run is made of: task, optimizer, step, data; one seed or several at once."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import ml_collections
import numpy as np
import optax

from cbert import parallel, tasks
from cbert.data import context_replacement, prepared
from cbert.data.batching import Batches
from cbert.data.columns import Split, evenly_spaced
from cbert.data.in_memory import InMemory, take
from cbert.data.streaming import Streaming
from cbert.errors import UserError
from cbert.model import contextual_bert, placement
from cbert.model.config import POPULARITY
from cbert.model.layers import takes_fast
from cbert.model.placement import Placement
from cbert.schema import Schema
from cbert.tasks import masked_item, prediction, ranking
from cbert.tasks.base import Examples, Task
from cbert.training import config as config_lib
from cbert.training import memory
from cbert.training import optimizer as optimizer_lib
from cbert.training import state as state_lib
from cbert.training.step import make_train_step


class Validation:
    """The task's metrics on the validation split, with the same queries every time."""

    def __init__(self, split: Split, task: Task, batch_size: int) -> None:
        self._split, self._batch_size = split, batch_size
        self._queries = task.queries(split, masked_item.ONE)
        self._task, self._data = task, parallel.replicate(split.columns)

    def __call__(self, params: Any) -> dict[str, float]:
        predictions = prediction.predict_all(
            self._task, params, self._data, self._split, self._queries, self._batch_size
        )
        queries, task = self._queries, self._task
        values = task.metric_values(predictions, queries)
        weights = queries.weights / queries.weights.sum()
        means = {name: float(column @ weights) for name, column in values.items()}
        return {**means, **task.corpus_metrics(predictions, queries)(np.ones(len(queries)))}


@dataclasses.dataclass
class Run:
    """A run before its first step; with several seeds, state and key have a seed axis first.

    Attributes:
      task: What is trained.
      seeds: The seeds, one for each row of the seed axis.
      ids: The names of the training examples.
      source: What feeds the steps.
      batches: Which rows a step takes, for each seed.
      resident: What every device holds: the source's columns and the task's constants.
      indices: `int32 [devices, B / devices]`, positions in the global batch.
      train_step: The step of one seed, a pure function; see `make_train_step`.
      step: The same, mapped over devices and seeds.
      state: Its state.
      placement: Where the state's arrays lie.
      key: What all its randomness comes from.
      learning_rate: Step to learning rate.
      validation: Parameters of one seed to its metrics.
    """

    task: Task
    seeds: Sequence[int]
    ids: Sequence[str]
    source: InMemory | Streaming
    batches: list[Batches]
    resident: dict[str, Any]
    indices: np.ndarray
    train_step: Callable
    step: Callable
    state: state_lib.TrainState
    placement: Placement
    key: jax.Array
    learning_rate: optax.Schedule
    validation: Validation

    def advance(self, step: int, most: int = 1) -> tuple[int, dict[str, jax.Array]]:
        """Takes `most` steps from `step` on in one dispatch, or one step.

        Returns how many were taken, and their metrics, `[steps]` or `[steps, seeds]` each.
        """
        fed, count, length = self.source.feed(step, most)
        return count, self.take(fed, length)

    def take(self, fed: Any, length: int) -> dict[str, jax.Array]:
        """Takes the steps that the source has fed; returns their metrics."""
        self.state, metrics = self.step(
            self.state, self.resident, fed, self.indices, self.key, length
        )
        return metrics

    def states(self) -> list[state_lib.TrainState]:
        """Each seed's state."""
        seeds = len(self.seeds)
        return parallel.unstack(self.state, seeds) if seeds > 1 else [self.state]

    def set_states(self, states: list[state_lib.TrainState]) -> None:
        """Replaces every seed's state."""
        self.state = parallel.stack(states) if len(states) > 1 else states[0]


def set_up(config: ml_collections.ConfigDict, schema: Schema, seeds: Sequence[int] = ()) -> Run:
    """Loads the data and assembles a run."""
    train = prepared.load(config.data.dir, config.data.name, "train", schema)
    validation = prepared.load(config.data.dir, config.data.name, "validation", schema)
    return assemble(config, schema, train, validation, seeds)


def assemble(
    config: ml_collections.ConfigDict,
    schema: Schema,
    train: Split,
    validation: Split,
    seeds: Sequence[int] = (),
) -> Run:
    """Builds task, optimizer and step for the given seeds or the config's; compiles little.

    Raises:
      UserError: the batch does not fit the devices or the data, there is nothing to predict, or
        the run cannot fit into memory.
    """
    seeds = tuple(seeds) or (config.seed,)
    batch_size = config.train.batch_size
    _check_batch_size(batch_size, config.train.accumulate)
    batches = [
        Batches(train.lengths, batch_size, seed, config.train.length_buckets) for seed in seeds
    ]
    _check_shards(config, len(seeds))
    memory.check(config, schema, int(train.lengths.max()), len(seeds))
    model = config_lib.build_model(config, schema, split=True)
    task, where = tasks.create(config, model, schema, train), placement.of(model)
    optimizer, learning_rate = _make_optimizer(config, task.model)
    streams = config.data.source == config_lib.STREAM
    source = (Streaming if streams else InMemory)(train, batches)
    keys = [jax.random.key(seed) for seed in seeds]
    constants = task.constants()
    if config.train.context_replacement:
        constants["context_sample"] = context_replacement.sample(train.context)
    params = [_fresh(config, task, schema, key) for key in keys]
    skips = config.train.on_nonfinite == config_lib.SKIP
    replacement, accumulate = config.train.context_replacement, config.train.accumulate
    train_step = make_train_step(task, optimizer, skips, replacement, accumulate)
    state = _stacked([state_lib.create(own, optimizer) for own in params], where)
    return Run(
        task=task,
        seeds=seeds,
        ids=train.ids,
        source=source,
        batches=batches,
        resident={"columns": source.resident, "constants": parallel.replicate(constants)},
        indices=parallel.split(np.arange(batch_size, dtype=np.int32)),
        train_step=train_step,
        step=_mapped_step(train_step, batch_size, len(seeds), where.axes(state)),
        state=state,
        placement=where,
        key=_stacked([jax.random.fold_in(key, 1) for key in keys], where),
        learning_rate=learning_rate,
        validation=Validation(
            evenly_spaced(validation, config.train.eval_examples), task, config.eval.batch_size
        ),
    )


def _check_batch_size(batch_size: int, accumulate: int) -> None:
    """Raises `UserError` where the batch cannot be split over devices and micro-batches."""
    devices = parallel.device_count()
    if batch_size % (devices * accumulate):
        times = f" times train.accumulate, {accumulate}" if accumulate > 1 else ""
        raise UserError(
            f"train.batch_size is {batch_size}; it must be a multiple of the "
            f"number of devices, {devices}{times}"
        )


def _check_shards(config: ml_collections.ConfigDict, seeds: int) -> None:
    """Raises `UserError` where the items cannot be split over the devices."""
    if not config.train.shard_items:
        return
    if seeds > 1:
        raise UserError("train.shard_items is for one seed; train the seeds one by one")
    if parallel.process_count() > 1:
        raise UserError(
            f"train.shard_items is true, and {parallel.process_count()} processes train; start "
            "one process that has all devices, or set it false"
        )


def _fresh(
    config: ml_collections.ConfigDict, task: Task, schema: Schema, key: jax.Array
) -> dict[str, Any]:
    """Parameters before the first step."""
    params = placement.initialize(task.model, key)
    if config.model.output_bias == POPULARITY:
        bias = {"embedding": {"bias": ranking.log_fractions(schema.counts)}}
        params["embedding"] |= placement.of(task.model).place(bias)["embedding"]
    return params


def _mapped_step(train_step: Callable, batch_size: int, seeds: int, axes: Any) -> Callable:
    def take_examples(
        resident: Any, fed: Any, rows: jax.Array, indices: jax.Array, length: int
    ) -> Examples:
        columns = take(fed or resident["columns"], rows, length)
        return Examples(columns, resident["constants"], indices, batch_size)

    return parallel.map_train_step(train_step, take_examples, seeds > 1, axes)


def _stacked(trees: list[Any], where: Placement) -> Any:
    return parallel.stack(trees) if len(trees) > 1 else where.put(trees[0])


def _frozen_parts(config: ml_collections.ConfigDict, model: Any) -> list[str]:
    """The parts that `train.frozen` names; raises `UserError` for one that does not exist."""
    paths = list(contextual_bert.parameter_sizes(model))
    parts = [part.strip() for part in config.train.frozen.split(",")]
    for part in parts:
        if not any(optimizer_lib.is_part(path, part) for path in paths):
            whole = part.partition("/")[0]
            inside = {"/".join(path[:2]) for path in paths if path[0] == whole}
            names = sorted(inside or {path[0] for path in paths})
            raise UserError(
                f"train.frozen names {part[:80]!r}; the model's parts are {', '.join(names)}"
            )
    if all(any(optimizer_lib.is_part(path, part) for part in parts) for path in paths):
        raise UserError("train.frozen names every part of the model; leave one to train")
    return parts


def _make_optimizer(
    config: ml_collections.ConfigDict, model: Any
) -> tuple[optax.GradientTransformation, optax.Schedule]:
    chosen, where = config.optimizer, placement.of(model)
    split = where.shards > 1
    learning_rate = optimizer_lib.learning_rate(
        chosen.schedule, chosen.learning_rate, chosen.warmup_steps, config.train.steps
    )
    optimizer = optimizer_lib.make_optimizer(
        learning_rate,
        chosen.weight_decay,
        chosen.clip_norm,
        chosen.b1,
        chosen.b2,
        packs=takes_fast(model.encoder.config) and not split,
        norm=where.norm if split else None,
    )
    if (chosen.layer_decay, chosen.context_rate) != (1.0, 1.0):
        factor = functools.partial(
            optimizer_lib.layer_factor,
            layers=config.model.layers,
            decay=chosen.layer_decay,
            context=chosen.context_rate,
        )
        optimizer = optimizer_lib.with_rates(optimizer, factor)
    if config.train.frozen:
        optimizer = optimizer_lib.freeze(optimizer, _frozen_parts(config, model))
    if config.train.on_nonfinite == config_lib.SKIP:
        optimizer = optimizer_lib.skip_nonfinite(optimizer)
    return optimizer, learning_rate
