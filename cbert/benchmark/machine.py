"""The machine and the software that measurements are taken with."""

import os
import pathlib
import platform

import jax


def describe() -> dict[str, str]:
    """What the measurements depend on beside the program, each as one phrase."""
    devices = jax.local_devices()
    return {
        "processor": _processor(),
        "cores": f"{os.cpu_count()} cores",
        "devices": f"{len(devices)} x {devices[0].device_kind}",
        "python": f"Python {platform.python_version()}",
        "jax": f"jax {jax.__version__}",
    }


def _processor() -> str:
    path = pathlib.Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
