"""The devices and cores that a run began on: on others its numbers may differ in last bits."""

import pathlib

import jax

from cbert import files, processes
from cbert.errors import one_line

FILE = "hardware.txt"


def describe() -> str:
    """The devices of all processes and, of a CPU, the cores of this process."""
    devices = jax.devices()
    own = f"{_counted(len(devices), 'device')} ({devices[0].device_kind})"
    if devices[0].platform != "cpu":
        return own
    return f"{own} of {_counted(len(processes.cores()), 'core')}"


def note(workdir: pathlib.Path) -> None:
    """Notes in a work directory what its run begins on."""
    files.write_text(workdir / FILE, describe() + "\n")


def change(workdir: pathlib.Path) -> str:
    """A line that says what a run goes on with, if it began on something else; else empty.

    Runs of earlier versions did not note it.
    """
    try:
        began = one_line(files.read_text(workdir / FILE))
    except (OSError, ValueError):
        return ""
    if began == describe():
        return ""
    return (
        f"{workdir} began on {began} and goes on with {describe()}: its numbers may differ "
        "from those of an unbroken run"
    )


def _counted(count: int, name: str) -> str:
    return f"{count} {name}{'s' * (count > 1)}"
