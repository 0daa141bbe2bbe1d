"""What a training run is made of: task, optimizer, step, data; one seed or several at once.

Legend: B examples.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import ml_collections
import numpy as np

from cbert import distributed, parallel, tasks
from cbert.data import context_replacement, prepared
from cbert.data.batching import Batches
from cbert.data.columns import Split, evenly_spaced
from cbert.data.in_memory import InMemory
from cbert.data.masking import ONE, RATE
from cbert.data.records import TRAIN, VALIDATION
from cbert.data.streaming import Streaming
from cbert.errors import UserError, warn
from cbert.model import placement
from cbert.model.placement import Placement
from cbert.schema import SEQUENCE, Schema
from cbert.tasks.base import Task
from cbert.tasks.masked_item import MaskedItemConfig
from cbert.training import config as config_lib
from cbert.training import memory, schedule
from cbert.training import optimizer as optimizer_lib
from cbert.training import state as state_lib
from cbert.training.config_sections import SKIP, STREAM
from cbert.training.schedule import Schedule
from cbert.training.step import shared_steps
from cbert.training.validation import Validation


@dataclasses.dataclass
class Run:
    """What takes the steps of a run: all parts but the state stay as they are.

    With several seeds, state and key have a seed axis first.

    Attributes:
      task: What is trained.
      seeds: The seeds, one for each row of the seed axis.
      ids: The names of the training examples.
      source: What feeds the steps.
      batches: Which rows a step takes, for each seed.
      resident: What every device holds: the source's columns and the task's constants.
      indices: `int32 [devices, B / devices]`, positions in the global batch.
      train_step: The step of one seed, a pure function; see `step.make_train_step`.
      step: The same, mapped over devices and seeds.
      state: The state after the steps that were taken, which `advance` replaces.
      placement: Where the state's arrays lie.
      key: What all its randomness comes from.
      learning_rate: Step to learning rate.
      compiled: The steps in a dispatch and the length of each program that has run.
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
    learning_rate: Schedule
    validation: Validation
    compiled: set[tuple[int, int]] = dataclasses.field(default_factory=set)

    @property
    def steps_taken(self) -> int:
        """The steps that were taken, the same number for every seed."""
        return int(np.ravel(jax.device_get(self.state.step))[0])

    def advance(self, step: int, most: int = 1) -> tuple[int, dict[str, jax.Array]]:
        """Takes `most` steps from `step` on in one dispatch, or one step.

        Returns how many were taken, and their metrics, `[steps]` or `[steps, seeds]` each.
        """
        fed, count, length = self.source.feed(step, most)
        self.compiled.add((count, length))
        return count, self.dispatch(fed, length)

    def dispatch(self, fed: Any, length: int) -> dict[str, jax.Array]:
        """Takes the steps that the source has fed; returns their metrics."""
        self.state, metrics = self.step(
            self.state, self.resident, fed, self.indices, self.key, length
        )
        return metrics

    def states(self) -> list[state_lib.TrainState]:
        """Each seed's state."""
        return list(self._of_seeds(self.state))

    def params(self) -> Iterator[Any]:
        """Each seed's parameters, copied out of the state of all seeds one after the other."""
        return self._of_seeds(self.state.params)

    def _of_seeds(self, tree: Any) -> Iterator[Any]:
        seeds = len(self.seeds)
        return parallel.unstack(tree, seeds) if seeds > 1 else iter([tree])

    def set_states(self, states: list[state_lib.TrainState]) -> None:
        """Replaces every seed's state."""
        self.state = parallel.stack(states) if len(states) > 1 else states[0]


def set_up(config: ml_collections.ConfigDict, schema: Schema, seeds: Sequence[int] = ()) -> Run:
    """Loads the data and assembles a run."""
    if schema.kind == SEQUENCE and not config.model.positions:
        warn(
            "the data are sequences, and model.positions is false, so that no order is read; "
            "set model.positions=true"
        )
    options, section = tasks.task_options(config), f"task.{config.task.name}"
    masks_one = isinstance(options, MaskedItemConfig) and options.masking == ONE
    if masks_one and options.mask_rate != MaskedItemConfig.mask_rate:
        warn(
            f"{section}.mask_rate is {options.mask_rate:g} and has no effect, because one item "
            f"an example is masked; {section}.masking={RATE} masks by it"
        )
    return assemble(config, schema, *load_splits(config, schema), seeds)


def load_splits(config: ml_collections.ConfigDict, schema: Schema) -> tuple[Split, Split]:
    """The training and the validation split of a config's data."""
    train = prepared.load(config.data.dir, config.data.name, TRAIN, schema)
    return train, prepared.load(config.data.dir, config.data.name, VALIDATION, schema)


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
    batches = _batches(config, train, seeds)
    _check_shards(config, len(seeds))
    streams = config.data.source == STREAM
    columns = 0 if streams else sum(column.nbytes for column in jax.tree.leaves(train.columns))
    memory.check(config, schema, int(train.lengths.max()), len(seeds), columns)
    model = config_lib.build_model(config, schema, sharded=True)
    task, where = tasks.create(config, model, schema, train), placement.choose(model)
    optimizer = optimizer_lib.build(config, task.model)
    source = (Streaming if streams else InMemory)(train, batches)
    keys = [jax.random.key(seed) for seed in seeds]
    constants = _constants(config, task, train)
    skips, accumulate = config.train.on_nonfinite == SKIP, config.train.accumulate
    options = skips, config.train.context_replacement, accumulate
    train_step, step = shared_steps(
        task, optimizer, options, config.train.batch_size, len(seeds) > 1, parallel.platform()
    )
    first = task.first_parameters(train)
    params = [_fresh(task, where, first, key) for key in keys]
    state = _stacked([state_lib.create(own, optimizer) for own in params], where)
    return Run(
        task=task,
        seeds=seeds,
        ids=train.ids,
        source=source,
        batches=batches,
        resident={"columns": source.resident, "constants": parallel.replicate(constants)},
        indices=parallel.split(np.arange(config.train.batch_size, dtype=np.int32)),
        train_step=train_step,
        step=step,
        state=state,
        placement=where,
        key=_stacked([jax.random.fold_in(key, 1) for key in keys], where),
        learning_rate=constants["learning_rate"],
        validation=Validation(
            evenly_spaced(validation, config.train.eval_examples),
            task,
            config.eval.batch_size,
            config.eval.masking,
        ),
    )


def _batches(
    config: ml_collections.ConfigDict, train: Split, seeds: Sequence[int]
) -> list[Batches]:
    """Which rows a step takes, for each seed.

    Raises:
      UserError: the batch cannot be split over devices and micro-batches, or is larger than
        the data.
    """
    batch_size, accumulate = config.train.batch_size, config.train.accumulate
    devices = parallel.device_count()
    if batch_size % (devices * accumulate):
        times = f" times train.accumulate, {accumulate}" if accumulate > 1 else ""
        raise UserError(
            f"train.batch_size is {batch_size}; it must be a multiple of the "
            f"number of devices, {devices}{times}"
        )
    buckets = config.train.length_buckets
    return [Batches(train.lengths, batch_size, seed, buckets) for seed in seeds]


def _constants(config: ml_collections.ConfigDict, task: Task, train: Split) -> dict[str, Any]:
    """What all steps read: the task's constants, the learning rate, and contexts to show."""
    constants = task.constants() | {"learning_rate": schedule.build(config)}
    if config.train.context_replacement:
        constants["context_sample"] = context_replacement.sample(train.context)
    return constants


def _check_shards(config: ml_collections.ConfigDict, seeds: int) -> None:
    """Raises `UserError` where the items cannot be split over the devices."""
    if not config.train.shard_items:
        return
    if seeds > 1:
        raise UserError("train.shard_items is for one seed; train the seeds one by one")
    if distributed.process_count() > 1:
        raise UserError(
            f"train.shard_items is true, and {distributed.process_count()} processes train; "
            "start one process that has all devices, or set train.shard_items=false"
        )


def _fresh(
    task: Task, where: Placement, first: dict[str, dict[str, np.ndarray]], key: jax.Array
) -> dict[str, Any]:
    """Parameters before the first step; `first` has those that are not drawn, by module."""
    params = placement.initialize(task.model, key)
    for module, values in where.to_devices(first).items():
        params[module] |= values
    return params


def _stacked(trees: list[Any], where: Placement) -> Any:
    return parallel.stack(trees) if len(trees) > 1 else where.put_parts(trees[0])
