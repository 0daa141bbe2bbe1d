"""How fast training and evaluation are, beside the machine's own limit."""

import dataclasses
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from cbert.benchmark import workload
from cbert.evaluation import questions
from cbert.training import config as config_lib


@dataclasses.dataclass
class Timing:
    """Seconds of repeated rounds."""

    seconds: list[float] = dataclasses.field(default_factory=list)

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))

    def time(self, work: Callable[[], Any]) -> None:
        start = time.perf_counter()
        work()
        self.seconds.append(time.perf_counter() - start)


class Training:
    """Rounds of training steps; a whole epoch of the workload by default, all lengths in it."""

    def __init__(
        self,
        config: ml_collections.ConfigDict,
        sizes: workload.Sizes,
        steps: int = 0,
        seeds: int = 1,
    ) -> None:
        start = time.perf_counter()
        self.run, self.split = workload.make_run(config, sizes, seeds)
        self.config, self.sizes, self.seeds = config, sizes, seeds
        self.steps = steps or self.run.batches[0].steps_per_epoch
        self.timing, self._host_seconds = Timing(), []
        self.set_up_seconds = time.perf_counter() - start
        self.compile_seconds = self._compile()

    @property
    def sets(self) -> int:
        """Sets of a round, of all seeds."""
        return self.steps * self.config.train.batch_size * self.seeds

    @property
    def host_share(self) -> float:
        """Share of the time that making batches took."""
        return float(np.sum(self._host_seconds) / np.sum(self.timing.seconds))

    def _compile(self) -> list[float]:
        """Seconds until the first step of each padded length is done."""
        seen, found = set(), []
        for step in range(self.run.batches[0].steps_per_epoch):
            rows, length = self._batch(step)
            if (rows.shape[1], length) not in seen:
                seen.add((rows.shape[1], length))
                start = time.perf_counter()
                self._step(rows, length)
                jax.block_until_ready(self.run.state)
                found.append(time.perf_counter() - start)
        return found

    def _batch(self, step: int) -> tuple[np.ndarray, int]:
        return self.run.rows(step, self.config.train.steps_per_dispatch)

    def _step(self, rows: np.ndarray, length: int) -> None:
        run = self.run
        run.state, _ = run.step(run.state, run.data, rows, run.places, run.key, length)

    def round(self) -> None:
        host, step = 0.0, len(self.timing.seconds) * self.steps
        last = step + self.steps
        start = time.perf_counter()
        while step < last:
            began = time.perf_counter()
            rows, length = self._batch(step)
            host += time.perf_counter() - began
            self._step(rows, length)
            step += rows.shape[1]
        jax.block_until_ready(self.run.state)
        # A dispatch may go beyond the round's last step.
        share = self.steps / (step - last + self.steps)
        self.timing.seconds.append(share * (time.perf_counter() - start))
        self._host_seconds.append(share * host)

    def operations(self) -> float:
        """Useful operations of a round."""
        masking = config_lib.masking(self.config)
        lengths, counts = np.unique(self.split.lengths, return_counts=True)
        each = [workload.operations(self.config, self.sizes, n, masking) for n in lengths]
        return float(np.dot(each, counts / counts.sum())) * self.sets


class Evaluation:
    """Rounds of answers: log-probability and rank of one item a set among all items."""

    def __init__(self, training: Training, count: int) -> None:
        self._split, run = training.split, training.run
        asked = questions.ask_one(self._split)
        first = slice(0, count)
        self._asked = questions.Questions(
            asked.rows[first], asked.places[first], asked.items[first], 0
        )
        self._answer = run.validation.answer
        self._run, self._batch = run, training.config.eval.batch_size
        self.sets, self.timing = len(self._asked), Timing()
        self._ask()

    def _ask(self) -> None:
        questions.answer_all(
            self._answer,
            self._run.state.params,
            self._run.data,
            self._split,
            self._asked,
            self._batch,
        )

    def round(self) -> None:
        self.timing.time(self._ask)


class MatmulPeak:
    """Rounds of one large matrix product: what the machine gives at best."""

    def __init__(self, size: int = 2048) -> None:
        self._matrix = jnp.ones((size, size))
        self._product = jax.jit(jnp.dot)
        self._repeats = 4 if jax.default_backend() == "cpu" else 256
        self.operations, self.timing = 2.0 * size**3 * self._repeats, Timing()
        self.round()
        self.timing = Timing()

    def _work(self) -> None:
        found = [self._product(self._matrix, self._matrix) for _ in range(self._repeats)]
        jax.block_until_ready(found)

    def round(self) -> None:
        self.timing.time(self._work)

    @property
    def rates(self) -> np.ndarray:
        """Operations a second, each round."""
        return self.operations / np.array(self.timing.seconds)


def peak_memory_mb() -> float:
    """MiB, of all that was measured: of the device where it tells, else of the process."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        return stats["peak_bytes_in_use"] / 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def summarize(training: Training, peak: MatmulPeak) -> dict[str, Any]:
    """What one method's rounds show."""
    useful = training.operations() / np.array(training.timing.seconds)
    return {
        "method": training.config.model.method,
        "sets_per_second": training.sets / training.timing.median,
        "step_ms": 1000 * training.timing.median / training.steps,
        "host_share": training.host_share,
        "set_up_s": training.set_up_seconds,
        "compile_s": training.compile_seconds,
        "useful_gflops": float(np.median(useful)) / 1e9,
        "share_of_matmul_peak": float(np.median(useful / peak.rates)),
    }
