"""Child processes: the command line of one."""

import sys
from collections.abc import Mapping


def command(module: str, flags: Mapping[str, object]) -> tuple[str, ...]:
    """The command line that runs a Python module with `--name=value` for every flag."""
    return (sys.executable, "-m", module, *(f"--{name}={flags[name]}" for name in flags))
