"""The launchers of jobs: on this machine, in a Ray cluster, or through Slurm."""

import concurrent.futures
import dataclasses
import functools
import os
import pathlib
import subprocess
import time
from collections.abc import Mapping
from typing import Any, Protocol

import psutil

from cbert import processes
from cbert.errors import UserError, missing_extra, one_line
from cbert.sweep import jobs
from cbert.sweep.jobs import Job
from cbert.training import config_file

MEMORY_PER_RUN = 2**31  # Bytes.
_RETRIES = 3  # of a task that loses its worker
_SMALLEST_PART = 1e-4  # of a GPU that Ray counts


class Launcher(Protocol):
    """Starts jobs when there is room for them, and reports how they ended."""

    def start(self, job: Job) -> bool:
        """Starts a job. Returns False if there is no room for it yet."""

    def poll(self, job: Job) -> str | None:
        """None while the job runs; then why it failed, an empty text if it did not."""

    def stop(self) -> None:
        """Ends the jobs that run. Each of their runs can go on later."""


@dataclasses.dataclass(frozen=True)
class Slot:
    """The devices that one job at a time may use.

    Attributes:
      environment: Environment variables that show a process one accelerator.
      cores: Numbers of the CPU cores it may run on, empty for all of them.
    """

    environment: Mapping[str, str]
    cores: tuple[int, ...] = ()


def slots(workers: int) -> list[Slot]:
    """The slots of this machine: one for each accelerator, or several that divide the CPU.

    Args:
      workers: How many slots to make, 0 for as many as there are accelerators, or as cores
        and memory allow. If there are more than GPUs, they share them.

    Raises:
      UserError: there are fewer accelerators, and they cannot be shared.
    """
    backend, count = processes.devices()
    if backend == "tpu" and workers > count:
        raise UserError(
            f"workers is {workers}, and each run needs a TPU of its own; give "
            f"workers={count} at most, or 0"
        )
    if backend != "cpu":
        sharing = -(-workers // count)
        return [
            Slot(_only(backend, index % count) | _part_of_memory(sharing))
            for index in range(workers or count)
        ]
    cores = processes.cores()
    # A container's limit holds for all runs together, and the free memory is the machine's.
    free = min(psutil.virtual_memory().available, processes.machine_memory())
    fit = free // MEMORY_PER_RUN
    count = workers or max(1, min(len(cores), fit))
    return [
        Slot({}, tuple(cores[index::count]) if count <= len(cores) else ())
        for index in range(count)
    ]


def _only(backend: str, index: int) -> dict[str, str]:
    """The environment in which a process sees the accelerator of that index alone."""
    if backend == "tpu":
        return {
            "TPU_VISIBLE_CHIPS": str(index),
            "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1",
            "TPU_PROCESS_BOUNDS": "1,1,1",
        }
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return {"CUDA_VISIBLE_DEVICES": visible.split(",")[index] if visible else str(index)}


def _part_of_memory(sharing: float) -> dict[str, str]:
    """The environment in which JAX takes its part of a GPU that several processes share.

    Alone it takes three quarters of the memory. It refuses both names of the variable at once.
    """
    names = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
    if sharing <= 1 or any(map(os.environ.get, names)):
        return {}
    return {names[0]: f"{0.75 / sharing:.3f}"}


class Local:
    """Runs each job in processes of this machine, one job in each slot.

    A thread of its own follows each job. The threads stay until `stop`, because the system
    kills a job's processes when the thread that started them ends.
    """

    def __init__(self, workers: int = 0) -> None:
        self._free = slots(workers)
        self._pool = concurrent.futures.ThreadPoolExecutor(len(self._free))
        self._running: dict[str, tuple[Slot, concurrent.futures.Future]] = {}
        self._processes: dict[str, subprocess.Popen] = {}  # The newest of each job.

    def start(self, job: Job) -> bool:
        if not self._free:
            return False
        slot = self._free.pop(0)
        started = functools.partial(self._processes.__setitem__, job.name)
        future = self._pool.submit(jobs.run, job, slot.environment, slot.cores, started)
        self._running[job.name] = slot, future
        return True

    def poll(self, job: Job) -> str | None:
        slot, future = self._running[job.name]
        if not future.done():
            return None
        del self._running[job.name]
        self._free.insert(0, slot)
        error = future.exception()
        # If this job's directory or log cannot be written, others' may.
        return _described(error) if isinstance(error, OSError) else future.result()

    def stop(self) -> None:
        # One round is not enough, because a job may be about to start its second command.
        while not all(future.done() for _, future in self._running.values()):
            for process in list(self._processes.values()):
                process.terminate()
            time.sleep(0.2)
        self._pool.shutdown()


def gpus_of_run(wanted: float | None, available: float) -> float:
    """The GPUs that a run has in a Ray cluster.

    Args:
      wanted: What was asked for; None takes one GPU if there is any.
      available: The cluster's GPUs.

    Raises:
      UserError: the cluster has fewer, or Ray gives no such part of one.
    """
    if wanted is None:
        return min(1.0, available)
    if wanted > available:
        raise UserError(
            f"a run should get {wanted:g} GPUs, and the Ray cluster has {available:g}; give "
            "gpus_per_run=N, fewer of them"
        )
    if 0 < wanted < _SMALLEST_PART or (wanted > 1 and wanted != int(wanted)):
        raise UserError(
            f"Ray gives no run {wanted:g} GPUs; give gpus_per_run=N, a whole number or a part "
            f"of one from {_SMALLEST_PART:g}"
        )
    return wanted


class Ray:
    """Runs each job as a task of a Ray cluster.

    A task that loses its worker is tried again, and its run goes on from its last checkpoint.
    """

    def __init__(self, address: str = "", gpus: float | None = None) -> None:
        try:
            import ray
        except ImportError as error:
            raise missing_extra("the launcher ray", "ray", error) from None
        self._ray = ray
        try:
            ray.init(address=address or None, ignore_reinit_error=True, log_to_driver=False)
        except (ConnectionError, ValueError) as error:
            raise UserError(
                f"the Ray cluster {address!r} was not reached: {one_line(error)}; give "
                "ray_address=HOST:PORT or auto, or leave it out"
            ) from None
        gpus = gpus_of_run(gpus, ray.cluster_resources().get("GPU", 0))
        self._memory = _part_of_memory(1 / gpus) if gpus else {}
        self._task = ray.remote(num_gpus=gpus, num_cpus=1, max_retries=_RETRIES)(jobs.run)
        self._running: dict[str, Any] = {}

    def start(self, job: Job) -> bool:
        # Ray queues tasks that have no room yet, and sets the devices that a task sees.
        paths = [str(pathlib.Path.cwd()), os.environ.get("PYTHONPATH", "")]
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), **self._memory}
        if files := config_file.method_files():
            environment[config_file.METHODS_VARIABLE] = ",".join(files)
        self._running[job.name] = self._task.remote(job, environment)
        return True

    def poll(self, job: Job) -> str | None:
        reference = self._running[job.name]
        if not self._ray.wait([reference], timeout=0)[0]:
            return None
        del self._running[job.name]
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return _described(error)

    def stop(self) -> None:
        for reference in self._running.values():
            self._ray.cancel(reference, force=True)
        self._ray.shutdown()


class Slurm:
    """Runs each job as a job of Slurm, which submitit submits.

    One that is told of its preemption or its time limit saves and is queued again.

    Args:
      folder: The directory for submitit's own files.
      parameters: submitit's parameters; a job may take a day if they do not say otherwise.
    """

    def __init__(self, folder: pathlib.Path, parameters: Mapping[str, Any]) -> None:
        try:
            import submitit
        except ImportError as error:
            raise missing_extra("the launcher slurm", "slurm", error) from None
        self._refused = submitit.core.utils.FailedJobError
        rest = {"timeout_min": 24 * 60, **parameters}
        try:
            # If no cluster is named and Slurm is absent, submitit starts all jobs here at once.
            cluster = rest.pop("cluster", "slurm")
            self._executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
            self._executor.update_parameters(**rest)
        except (NameError, AssertionError, ValueError, RuntimeError, TypeError) as error:
            raise UserError(f"Slurm's parameters were refused: {error}") from None
        self._running: dict[str, Any] = {}

    def start(self, job: Job) -> bool:
        try:
            self._running[job.name] = self._executor.submit(jobs.Requeued(), job)
        except self._refused as error:
            raise UserError(
                f"Slurm refused {job.name}: {one_line(error)}; correct its parameters"
            ) from None
        return True

    def poll(self, job: Job) -> str | None:
        if not self._running[job.name].done():
            return None
        submitted = self._running.pop(job.name)
        error = submitted.exception()
        return _described(error) if error else submitted.result()

    def stop(self) -> None:
        for submitted in self._running.values():
            submitted.cancel()


def _described(error: BaseException) -> str:
    return one_line(f"{type(error).__name__}: {error}")
