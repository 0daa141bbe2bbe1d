"""Where jobs run: this machine, a Ray cluster, or Slurm."""

import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol

import psutil

from cbert.errors import UserError
from cbert.sweep import jobs
from cbert.sweep.jobs import Job

MEMORY_A_RUN = 2**31


class Launcher(Protocol):
    """Starts jobs as there is room, and tells how they ended."""

    def start(self, job: Job) -> bool:
        """Starts a job; False where there is no room yet."""

    def poll(self, job: Job) -> int | None:
        """A job's exit code, None while it runs."""

    def stop(self) -> None:
        """Ends what runs; every run can go on later."""


@dataclasses.dataclass(frozen=True)
class Slot:
    """What one job may use: an accelerator by environment variables, or some cores."""

    environment: Mapping[str, str]
    cores: tuple[int, ...] = ()


def slots(workers: int) -> list[Slot]:
    """One a local accelerator; on CPU as many as fit, the cores divided among them."""
    backend, count = _devices()
    if backend != "cpu":
        return [Slot(_only(backend, place)) for place in range(min(workers or count, count))]
    cores = (
        sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else range(os.cpu_count())
    )
    fit = psutil.virtual_memory().available // MEMORY_A_RUN
    count = workers or max(1, min(len(cores), fit))
    return [
        Slot({}, tuple(cores[place::count]) if count <= len(cores) else ())
        for place in range(count)
    ]


def _devices() -> tuple[str, int]:
    """Asked of another process: an accelerator that this one held no run could have."""
    program = "import jax; print(jax.default_backend(), jax.local_device_count())"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if found.returncode:
        raise UserError(f"JAX finds no device: {' '.join(found.stderr.split())[-200:]}")
    backend, count = found.stdout.split()
    return backend, int(count)


def _only(backend: str, place: int) -> dict[str, str]:
    """The environment in which a process sees one accelerator."""
    if backend == "tpu":
        return {
            "TPU_VISIBLE_CHIPS": str(place),
            "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1",
            "TPU_PROCESS_BOUNDS": "1,1,1",
        }
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return {"CUDA_VISIBLE_DEVICES": seen.split(",")[place] if seen else str(place)}


class Local:
    """Processes on this machine, one a slot."""

    def __init__(self, workers: int = 0) -> None:
        self._free = slots(workers)
        self._pool = concurrent.futures.ThreadPoolExecutor(len(self._free))
        self._running: dict[str, tuple[Slot, concurrent.futures.Future]] = {}

    def start(self, job: Job) -> bool:
        if not self._free:
            return False
        slot = self._free.pop(0)
        future = self._pool.submit(jobs.run, job, slot.environment, slot.cores)
        self._running[job.name] = slot, future
        return True

    def poll(self, job: Job) -> int | None:
        slot, future = self._running[job.name]
        if not future.done():
            return None
        del self._running[job.name]
        self._free.insert(0, slot)
        # A log that cannot be written is this job's trouble alone.
        return 1 if isinstance(future.exception(), OSError) else future.result()

    def stop(self) -> None:
        # Again and again: a run may be about to start the next of its commands.
        while not all(future.done() for _, future in self._running.values()):
            for child in psutil.Process().children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.terminate()
            time.sleep(0.2)
        self._pool.shutdown()


class Ray:
    """Tasks of a Ray cluster; one that loses its worker is tried again, and goes on."""

    def __init__(self, address: str = "", gpus: float | None = None, retries: int = 3) -> None:
        try:
            import ray
        except ImportError as error:
            raise _missing("ray", error) from None
        self._ray = ray
        ray.init(address=address or None, ignore_reinit_error=True, log_to_driver=False)
        available = ray.cluster_resources().get("GPU", 0)
        if gpus is None:
            gpus = min(1.0, available)
        if gpus > available:
            raise UserError(f"--gpus_per_run is {gpus:g}; the Ray cluster has {available:g}")
        self._task = ray.remote(num_gpus=gpus, num_cpus=1, max_retries=retries)(jobs.run)
        self._running: dict[str, Any] = {}

    def start(self, job: Job) -> bool:
        # Ray itself queues what has no room yet; it sets the devices that a task sees.
        environment = {"PYTHONPATH": str(pathlib.Path.cwd())}
        self._running[job.name] = self._task.remote(job, environment)
        return True

    def poll(self, job: Job) -> int | None:
        reference = self._running[job.name]
        if not self._ray.wait([reference], timeout=0)[0]:
            return None
        del self._running[job.name]
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError:
            return 1

    def stop(self) -> None:
        for reference in self._running.values():
            self._ray.cancel(reference, force=True)
        self._ray.shutdown()


class Slurm:
    """Jobs of Slurm through submitit, by its parameters; of a day each without them."""

    def __init__(self, folder: pathlib.Path, parameters: Mapping[str, Any]) -> None:
        try:
            import submitit
        except ImportError as error:
            raise _missing("slurm", error) from None
        rest = {"timeout_min": 24 * 60, **parameters}
        try:
            # Where there is no Slurm submitit would start all runs here, at once.
            cluster = rest.pop("cluster", "slurm")
            self._executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
            self._executor.update_parameters(**rest)
        except (NameError, AssertionError, ValueError, RuntimeError, TypeError) as error:
            raise UserError(f"--slurm: {error}") from None
        self._running: dict[str, Any] = {}

    def start(self, job: Job) -> bool:
        self._running[job.name] = self._executor.submit(jobs.run, job, {})
        return True

    def poll(self, job: Job) -> int | None:
        if not self._running[job.name].done():
            return None
        found = self._running.pop(job.name)
        return 1 if found.exception() else found.result()

    def stop(self) -> None:
        for job in self._running.values():
            job.cancel()


def _missing(extra: str, error: ImportError) -> UserError:
    return UserError(
        f"--launcher={extra} needs the optional extra {extra} ({error}); "
        f'run pip install ".[{extra}]"'
    )
