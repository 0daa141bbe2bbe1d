"""The training loop: batch, step, and now and then a row, an evaluation, a checkpoint."""

import dataclasses
import pathlib
import time
from collections.abc import Callable

import jax
import ml_collections
import numpy as np
import optax
from tqdm import tqdm

from cbert import config as config_lib
from cbert import progress, schema_file
from cbert.data import masking as masking_lib
from cbert.data import source
from cbert.errors import UserError
from cbert.evaluation import metrics, questions
from cbert.model import bert, sampled
from cbert.schema import Schema
from cbert.training import optimizer as optimizer_lib
from cbert.training import parallel
from cbert.training import state as state_lib
from cbert.training.checkpoint import Checkpoints, Progress
from cbert.training.step import Task, make_train_step
from cbert.training.writer import Writer


class Validation:
    """Cross-entropy on the validation split: one question an example, always the same."""

    def __init__(
        self, split: source.Split, model: bert.ContextualBert, batch_size: int
    ) -> None:
        self._split, self._batch_size = split, batch_size
        self._asked = questions.make(split, questions.ONE)
        self.answer = questions.make_answer(model)
        self._data = parallel.replicate(split.columns)

    def __call__(self, params: dict) -> dict[str, float]:
        answers = questions.answer_all(
            self.answer, params, self._data, self._split, self._asked, self._batch_size
        )
        values = metrics.per_question(*answers)
        return {name: float(values[name].mean()) for name in metrics.NAMES}


@dataclasses.dataclass
class Run:
    """What a training run is made of, before its first step.

    `pure_step` is the step before it is mapped over devices.
    """

    batches: source.Batches
    data: dict
    places: np.ndarray
    pure_step: Callable
    step: Callable
    state: state_lib.TrainState
    key: jax.Array
    rate: optax.Schedule
    validation: Validation

    def advance(self, step: int, most: int = 1) -> tuple[int, dict[str, jax.Array]]:
        """Takes `most` steps from `step` on in one dispatch, or one step.

        Returns how many were taken, and their metrics, `[steps]` each.
        """
        rows, length = self.batches.several(step, most)
        self.state, found = self.step(
            self.state, self.data, parallel.split(rows, 1), self.places, self.key, length
        )
        return len(rows), found


def set_up(config: ml_collections.ConfigDict, schema: Schema) -> Run:
    """Loads the data and assembles a run."""
    train = source.load(config.data.dir, config.data.name, "train", schema)
    validation = source.load(config.data.dir, config.data.name, "validation", schema)
    return assemble(config, schema, train, validation)


def assemble(
    config: ml_collections.ConfigDict,
    schema: Schema,
    train: source.Split,
    validation: source.Split,
) -> Run:
    """Builds model, optimizer and step; compiles nothing large.

    Raises:
      UserError: the batch does not fit the devices or the data, or there is nothing to hide.
    """
    if config.train.batch_size % parallel.device_count():
        raise UserError(
            f"train.batch_size is {config.train.batch_size}; it must be a multiple of the "
            f"number of devices, {parallel.device_count()}"
        )
    batches = source.Batches(
        train.lengths, config.train.batch_size, config.seed, config.train.length_buckets
    )
    masking = config_lib.masking(config)
    expected = masking_lib.expected_count(train.items, masking)
    if not expected:
        raise UserError("no training item is in the schema's vocabulary; lower --min_count")
    model = bert.build(config_lib.hyperparameters(config), config.model.method, schema)
    chosen = config.optimizer
    rate = optimizer_lib.learning_rate(
        chosen.schedule, chosen.learning_rate, chosen.warmup_steps, config.train.steps
    )
    optimizer = optimizer_lib.make_optimizer(
        rate, chosen.weight_decay, chosen.clip_norm, chosen.b1, chosen.b2
    )
    number = config.train.sampled_items
    task = Task(model, schema, masking, config.train.context_dropout, expected, number)
    data = train.columns
    if number:
        data["cumulative"] = sampled.cumulative(schema.counts)
    key = jax.random.key(config.seed)
    params = bert.initialize(model, key)
    step = make_train_step(task, optimizer)
    return Run(
        batches=batches,
        data=parallel.replicate(data),
        places=parallel.split(np.arange(config.train.batch_size, dtype=np.int32)),
        pure_step=step,
        step=parallel.map_train_step(step),
        state=parallel.replicate(state_lib.create(params, optimizer)),
        key=parallel.replicate(jax.random.fold_in(key, 1)),
        rate=rate,
        validation=Validation(validation, model, config.eval.batch_size),
    )


def train(config: ml_collections.ConfigDict, workdir: str | pathlib.Path) -> Progress:
    """Trains, or goes on training, in a work directory.

    Raises:
      UserError: the config, the data or the work directory are not what they must be.
    """
    config_lib.check(config)
    workdir = pathlib.Path(workdir).expanduser()
    schema = source.load_schema(config.data.dir, config.data.name)
    check_workdir(config, schema, workdir)
    run = set_up(config, schema)
    claim_workdir(config, schema, workdir)
    with Checkpoints(workdir) as checkpoints:
        run.state, known = checkpoints.restore(run.state)
        first = int(run.state.step)
        if first:
            print(f"resuming {workdir} at step {first}")
        if _stopped(config, known):
            print("it had stopped early")
            return known
        with Writer(workdir, first) as writer, _bar(config, first) as bar:
            _loop(config, run, known, checkpoints, writer, bar)
    return known


def _loop(
    config: ml_collections.ConfigDict,
    run: Run,
    known: Progress,
    checkpoints: Checkpoints,
    writer: Writer,
    bar: tqdm,
) -> None:
    step, steps = int(run.state.step), config.train.steps
    window, clock = _Window(known), _Clock(config, step, bar)
    while step < steps:
        taken, found = run.advance(step, _most(config, step))
        step += taken
        window.add(found, taken)
        bar.update(taken * config.train.batch_size)
        if step % config.train.log_every == 0 or step == steps:
            rate = float(run.rate(step - 1))
            row = {**window.close(), "learning_rate": rate}
            _check_finite(row, step, checkpoints)
            writer.write(step, "train", row, sets_per_second=clock.report(step, row))
        improved = stop = False
        if step % config.train.eval_every == 0 or step == steps:
            improved = _validate(run, known, checkpoints, writer, step)
            stop = _stopped(config, known)
        if improved or stop or step % config.train.checkpoint_every == 0 or step == steps:
            window.save()
            _check_finite(known.sums, step, checkpoints)
            checkpoints.save(run.state, known)
        if stop:
            tqdm.write(f"stopped at step {step}: no better for {known.waited} evaluations")
            break


def _most(config: ml_collections.ConfigDict, step: int) -> int:
    """How many steps may go into one dispatch: up to the next row, evaluation or checkpoint."""
    every = (config.train.log_every, config.train.eval_every, config.train.checkpoint_every)
    room = min(number - step % number for number in every)
    wanted = config.train.steps_per_dispatch
    return wanted if wanted <= min(room, config.train.steps - step) else 1


def _validate(
    run: Run, known: Progress, checkpoints: Checkpoints, writer: Writer, step: int
) -> bool:
    """Evaluates and notes whether this is the best so far."""
    found = run.validation(run.state.params)
    _check_finite(found, step, checkpoints)
    writer.write(step, "validation", found)
    loss = found["cross_entropy"]
    improved = loss < known.best
    if improved:
        known.best, known.best_step, known.waited = loss, step, 0
    else:
        known.waited += 1
    tqdm.write(
        f"step {step:>7}  validation cross-entropy {loss:.4f}  "
        f"recall@5 {found['recall@5']:.2%}{'  best' if improved else ''}"
    )
    return improved


class _Clock:
    """Rate and time left, on the bar or, where there is no terminal, as lines."""

    def __init__(self, config: ml_collections.ConfigDict, step: int, bar: tqdm) -> None:
        self._config, self._bar = config, bar
        self._step, self._time = step, time.perf_counter()

    def report(self, step: int, row: dict[str, float]) -> float:
        """Shows loss and learning rate; returns the sets a second since the last report."""
        now = time.perf_counter()
        rate = (step - self._step) / (now - self._time)
        self._step, self._time = step, now
        shown = f"loss {row['loss']:.4f}  learning rate {row['learning_rate']:.1e}"
        if self._bar.disable:
            left = (self._config.train.steps - step) / rate
            print(
                f"step {step:>7}  {shown}  {rate * self._config.train.batch_size:,.0f} sets/s  "
                f"{left:,.0f} s left",
                flush=True,
            )
        else:
            self._bar.set_postfix_str(shown)
        return rate * self._config.train.batch_size


class _Window:
    """Metrics summed since the last row; they wait on the device until they are needed."""

    def __init__(self, known: Progress) -> None:
        self._known = known
        self._pending: list[dict[str, jax.Array]] = []

    def add(self, found: dict[str, jax.Array], steps: int) -> None:
        self._pending.append({**found, "steps": np.ones(steps)})

    def save(self) -> None:
        """Moves the sums into the run's progress, where a checkpoint takes them along."""
        sums = self._known.sums
        for found in jax.device_get(self._pending):
            for name, value in found.items():
                for one in value.tolist():  # In order, whatever a dispatch holds.
                    sums[name] = sums.get(name, 0.0) + one
        self._pending = []

    def close(self) -> dict[str, float]:
        """The means, and an empty window."""
        self.save()
        sums = self._known.sums
        self._known.sums = {}
        return {
            "loss": sums["loss"] / max(sums["questions"], 1.0),
            "gradient_norm": sums["gradient_norm"] / sums["steps"],
        }


def _stopped(config: ml_collections.ConfigDict, known: Progress) -> bool:
    return 0 < config.train.patience <= known.waited


def _check_finite(row: dict[str, float], step: int, checkpoints: Checkpoints) -> None:
    """Refuses to go on, or to save, once the loss or a gradient is not finite."""
    if np.isfinite(list(row.values())).all():
        return
    kept = (checkpoints.steps() or ["none"])[-1]
    raise UserError(
        f"a number is not finite at step {step} ("
        + ", ".join(f"{name} {value:g}" for name, value in row.items())
        + f"); the last checkpoint is of step {kept}; "
        "lower --config.optimizer.learning_rate"
    )


def _bar(config: ml_collections.ConfigDict, first: int) -> tqdm:
    size = config.train.batch_size
    return progress.bar(
        desc=f"training {config.model.method}",
        total=config.train.steps * size,
        initial=first * size,
        unit=" sets",
        unit_scale=True,
        delay=0,
        smoothing=0.05,
    )


def check_workdir(
    config: ml_collections.ConfigDict, schema: Schema, workdir: pathlib.Path
) -> None:
    """Refuses a work directory of another config or schema, or of anything else."""
    if (workdir / "config.json").exists():
        found = config_lib.differences(config_lib.load(workdir), config)
        if found:
            raise UserError(
                f"{workdir} belongs to another config: {'; '.join(found)}; "
                "use another --workdir"
            )
        if schema_file.load(workdir / "schema.json") != schema:
            raise UserError(
                f"{workdir} was trained on data of another schema; use another --workdir"
            )
    elif workdir.exists() and not _is_unclaimed(workdir):
        raise UserError(f"{workdir} exists and is not a run's directory; use another --workdir")


def _is_unclaimed(workdir: pathlib.Path) -> bool:
    """Empty, or left by a run that ended before its `config.json` was written."""
    return workdir.is_dir() and all(path.name == "schema.json" for path in workdir.iterdir())


def claim_workdir(
    config: ml_collections.ConfigDict, schema: Schema, workdir: pathlib.Path
) -> None:
    """Makes the work directory; `config.json` comes last and marks it as a run's."""
    if not (workdir / "config.json").exists():
        workdir.mkdir(parents=True, exist_ok=True)
        schema_file.save(schema, workdir / "schema.json")
        config_lib.save(config, workdir / "config.json")
