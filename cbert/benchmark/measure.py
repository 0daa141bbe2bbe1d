"""Measures the speed of training and evaluation beside the machine's best speed."""

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

from cbert import parallel
from cbert.benchmark import workload
from cbert.data.columns import selected
from cbert.tasks import masked_queries, prediction

SIZE = 2048  # The rows and columns of the matrix whose product is the machine's best.


@dataclasses.dataclass
class Timing:
    """The durations of repeated rounds, in seconds."""

    seconds: list[float] = dataclasses.field(default_factory=list)

    @property
    def median(self) -> float:
        """The median duration."""
        return float(np.median(self.seconds))

    def over(self, other: "Timing") -> list[float]:
        """The quartiles of these durations over those of the other, round by round."""
        return np.percentile(np.divide(self.seconds, other.seconds), [25, 50, 75]).tolist()

    def time(self, work: Callable[[], Any]) -> None:
        """Does the work once and appends its duration."""
        start = time.perf_counter()
        work()
        self.seconds.append(time.perf_counter() - start)


class TrainingRounds:
    """Rounds of training steps; by default a round is one epoch and so holds every length."""

    def __init__(
        self,
        config: ml_collections.ConfigDict,
        sizes: workload.Sizes | None,
        steps: int = 0,
        seeds: int = 1,
    ) -> None:
        """Compiles the steps on random examples of the given sizes, or on prepared data."""
        start = time.perf_counter()
        if sizes is None:
            self.run, self.split, self.schema = workload.prepared_run(config, seeds)
        else:
            self.run, self.split, self.schema = workload.make_run(config, sizes, seeds)
        self.config, self.seeds = config, seeds
        self.steps = steps or self.run.batches[0].steps_per_epoch
        self.timing = Timing()
        self._host_seconds: list[float] = []
        self.set_up_seconds = time.perf_counter() - start
        self.compile_seconds = self._compile()

    @property
    def examples(self) -> int:
        """The examples of a round, counted for every seed."""
        return self.steps * self.config.train.batch_size * self.seeds

    @property
    def host_fraction(self) -> float:
        """The fraction of the time that the host spent on making batches."""
        return float(np.sum(self._host_seconds) / np.sum(self.timing.seconds))

    def tokens(self) -> tuple[int, int]:
        """The tokens of a round that are not padding, and all of them with the padding."""
        real, padded = 0, 0
        for batches in self.run.batches:
            for step in range(self.steps):
                rows, length = batches(step)
                real += int(self.split.lengths[rows].sum())
                padded += len(rows) * length
        return real, padded

    def _compile(self) -> list[float]:
        """The seconds that the first step of each padded length takes."""
        seen, seconds = set(), []
        for step in range(self.run.batches[0].steps_per_epoch):
            fed, count, length = self._feed(step)
            if (count, length) not in seen:
                seen.add((count, length))
                start = time.perf_counter()
                self.run.dispatch(fed, length)
                jax.block_until_ready(self.run.state)
                seconds.append(time.perf_counter() - start)
        return seconds

    def _feed(self, step: int) -> tuple[Any, int, int]:
        return self.run.source.feed(step, self.config.train.steps_per_dispatch)

    def round(self) -> None:
        """Times one round."""
        host, step = 0.0, len(self.timing.seconds) * self.steps
        last = step + self.steps
        start = time.perf_counter()
        while step < last:
            began = time.perf_counter()
            fed, count, length = self._feed(step)
            host += time.perf_counter() - began
            self.run.dispatch(fed, length)
            step += count
        jax.block_until_ready(self.run.state)
        # A dispatch may go beyond the last step of the round.
        fraction = self.steps / (step - last + self.steps)
        self.timing.seconds.append(fraction * (time.perf_counter() - start))
        self._host_seconds.append(fraction * host)

    def operations(self) -> float:
        """The useful operations of a round."""
        lengths, counts = np.unique(self.split.lengths, return_counts=True)
        each = [workload.operations(self.config, self.schema, n) for n in lengths]
        return float(np.dot(each, counts / counts.sum())) * self.examples


class EvaluationRounds:
    """Rounds of evaluation: one query about each example, such as the rank of a masked item."""

    def __init__(self, training: TrainingRounds, count: int) -> None:
        self._split = selected(training.split, range(min(count, len(training.split))))
        self._queries = training.run.task.queries(self._split, masked_queries.ONE)
        self._columns = parallel.replicate(self._split.columns)
        self._run, self._batch = training.run, training.config.train.batch_size
        self.examples, self.timing = len(self._queries), Timing()
        self._evaluate()

    def _evaluate(self) -> None:
        prediction.predict_all(
            self._run.task,
            self._run.state.params,
            self._columns,
            self._split,
            self._queries,
            self._batch,
        )

    def round(self) -> None:
        """Times one round."""
        self.timing.time(self._evaluate)


class MatmulPeak:
    """Rounds of one large matrix product, the fastest work that the machine can do.

    Like the model's, its float32 products have the precision of `jax_default_matmul_precision`,
    and its products of bfloat16 have float32 sums.
    """

    def __init__(self, dtype: str = "float32") -> None:
        # The square of this matrix is the matrix itself.
        self._matrix = jnp.full((SIZE, SIZE), 1 / SIZE, dtype)
        self._product = jax.jit(_product)
        self._repeats = 4 if jax.default_backend() == "cpu" else 256
        self.operations, self.timing = 2.0 * SIZE**3 * self._repeats, Timing()
        self._work()  # Compiles the product.

    def _work(self) -> None:
        product = self._matrix
        for _ in range(self._repeats):  # A chain of products keeps few of them in memory.
            product = self._product(self._matrix, product)
        jax.block_until_ready(product)

    def round(self) -> None:
        """Times one round."""
        self.timing.time(self._work)

    @property
    def rates(self) -> np.ndarray:
        """The operations a second of each round."""
        return self.operations / np.array(self.timing.seconds)


def _product(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.dot(x, y, preferred_element_type=jnp.float32).astype(x.dtype)


def peak_memory_mb() -> float:
    """The peak memory in MiB, of the device where it reports that, otherwise of the process."""
    stats = parallel.first_device().memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        return stats["peak_bytes_in_use"] / 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
