"""The processes that train one run together, each with devices of its own."""

import contextlib
import hashlib
import os
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from cbert.errors import UserError, one_line, shown

# A process that has been silent for so long is taken for dead, and the others end.
HEARTBEAT_SECONDS = 30
# The connections of a run's processes would go through what these name.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
# How long a process waits for the others to start.
START_SECONDS = 300


def connect(coordinator: str = "", processes: int = 0, process: int | None = None) -> None:
    """Joins the processes of one run, before the first array is made.

    Args:
      coordinator: `host:port` of process 0; empty to take all from Slurm, where it started
        several tasks, and to be alone elsewhere.
      processes: The number of processes.
      process: The index of this one, from 0; needed with a coordinator.

    Raises:
      UserError: the numbers make no sense, or the others cannot be reached.
    """
    given: dict[str, Any] = {}
    origin = ""
    if coordinator:
        if not re.fullmatch(r".+:\d+", coordinator):
            raise UserError(
                f"the coordinator is {shown(coordinator)}; give coordinator=HOST:PORT, a free "
                "port of the machine of process 0"
            )
        if process is None:
            raise UserError(
                f"the coordinator of {processes} processes is {shown(coordinator)}; give each "
                "of them its own number, from 0: give process_id=N"
            )
        if not 0 <= process < processes:
            raise UserError(
                f"the process number is {process} of {processes}; give each of the processes "
                "its own number from 0"
            )
        given = {
            "coordinator_address": coordinator,
            "num_processes": processes,
            "process_id": process,
        }
        if process == 0:
            _check_free(coordinator)
        print(f"process {process} of {processes} waits for the others at {coordinator}")
    elif processes > 1 or process:
        raise UserError(
            f"process {process or 0} of {processes} has no coordinator; give "
            "coordinator=HOST:PORT, that of process 0, or leave the numbers out"
        )
    elif "SLURM_STEP_ID" not in os.environ or os.environ.get("SLURM_NTASKS", "1") == "1":
        return
    else:
        tasks = os.environ["SLURM_NTASKS"]
        origin = f"; SLURM_NTASKS is {shown(tasks)}, unset it to train alone"
    _initialize(given, origin)


def _check_free(coordinator: str) -> None:
    """Refuses an address at which process 0 cannot listen; JAX would end by a fault."""
    try:
        socket.create_server(("", int(coordinator.rpartition(":")[2]))).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"process 0 cannot listen at {shown(coordinator)} ({one_line(error)}); give all "
            "processes coordinator=HOST:PORT with a free port"
        ) from None


def _initialize(given: dict[str, Any], origin: str) -> None:
    """Connects with JAX's arguments, or, without any, with those of Slurm.

    `origin` ends the lines that say that nothing came of it.
    """
    jax.config.update("jax_check_proxy_envs", False)
    try:
        with _without_proxies(), _end_after(START_SECONDS, origin):
            jax.distributed.initialize(
                heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
                initialization_timeout=2 * START_SECONDS,
                **given,
            )
    except (RuntimeError, ValueError) as error:
        reason = one_line(error)[:200]
        raise UserError(
            f"the processes of this run did not find each other ({reason}){origin}"
        ) from None


@contextlib.contextmanager
def _without_proxies() -> Iterator[None]:
    """Connections that are made inside are direct; gRPC keeps them as they were made."""
    taken = {name: os.environ.pop(name) for name in _PROXIES if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(taken)


@contextlib.contextmanager
def _end_after(seconds: float, origin: str) -> Iterator[None]:
    """Ends the process with one line where JAX still waits; JAX would abort it with a stack."""

    def end() -> None:
        line = (
            f"error: the processes of this run did not find each other in {seconds:g} s; start "
            "all of them, with the address of the machine of process 0, which the others must "
            f"reach{origin}\n"
        )
        os.write(2, line.encode())
        os._exit(2)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def check_same(what: str, described: str) -> None:
    """Raises `UserError` in every process if one of the run describes something otherwise."""
    own = np.frombuffer(hashlib.sha256(described.encode()).digest(), np.uint8)
    digests = np.asarray(multihost_utils.process_allgather(own))
    others = [n for n, digest in enumerate(digests) if (digest != digests[0]).any()]
    if others:
        raise UserError(
            f"the processes 0 and {others[0]} of the run have another {what}; start all by the "
            "same command, on the same data"
        )


@contextlib.contextmanager
def error_context() -> Iterator[None]:
    """Turns the end of another process of the run into a `UserError` of this one."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        if process_count() == 1 or not _is_of_others(error):
            raise
        raise UserError(
            f"another process of this run has ended ({one_line(error)[:200]}); run the same "
            "commands again"
        ) from None


def _is_of_others(error: Exception) -> bool:
    """Whether an error of a computation may come from another process."""
    if isinstance(error, jax.errors.JaxRuntimeError):
        return not str(error).startswith("RESOURCE_EXHAUSTED")  # That is this one's memory.
    return "Gloo" in str(error)  # What CPUs add up with; a mapped step raises it so.


def process_count() -> int:
    """How many processes train together, 1 for one that trains alone."""
    return jax.process_count()


def process_index() -> int:
    """The number of this process among those that train together, from 0."""
    return jax.process_index()


def is_first() -> bool:
    """Returns whether this process is the one that writes."""
    return jax.process_index() == 0


def should_stop(dispatches: int) -> bool:
    """Returns whether all processes stop after this dispatch, because one got a signal.

    JAX agrees on a number yet to come, and has to be called with every number. So dispatches
    are counted, because a dispatch may skip steps.
    """
    return multihost_utils.reached_preemption_sync_point(dispatches)
