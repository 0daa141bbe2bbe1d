"""Sets a process up: it keeps memory and programs, and chooses how XLA compiles for a GPU."""

import contextlib
import ctypes
import os
import pathlib
import sys
from collections.abc import Mapping

import jax

# How XLA compiles for a GPU. Without the first it takes programs that add in an order that
# differs from run to run. With the second, cuBLAS makes all products: XLA's own pad a long one
# to split it.
GPU_FLAGS = {
    "--xla_gpu_exclude_nondeterministic_ops": "true",
    "--xla_gpu_enable_triton_gemm": "false",
}
OVERLAP = {"--xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}
# These are constants of glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
# Another thread than the first takes memory from the kernel in heaps of at most this size.
_HEAP_BYTES = 2**26


def set_up() -> None:
    """Sets up the process; call it once, before JAX's first computation."""
    choose_for_gpu()
    keep_memory()
    keep_programs()


def choose_for_gpu() -> None:
    """Makes a GPU give the same results each time, by fast products."""
    _add_flags(GPU_FLAGS)


def overlap_kernels() -> None:
    """Lets a GPU run kernels that do not need each other at the same time.

    They cannot share their memory then, which is much for large models. Call it before JAX's
    first computation.
    """
    _add_flags(OVERLAP)


def _add_flags(values: Mapping[str, str]) -> None:
    """Sets flags of XLA, which reads them once, before the first computation.

    A flag that is set stays, and a user who keeps flags in a file that the variable names has
    chosen them all.
    """
    flags = os.environ.get("XLA_FLAGS", "").strip()
    is_file = flags[:1] not in ("", "-")
    if not is_file:
        added = [f"{name}={value}" for name, value in values.items() if name not in flags]
        os.environ["XLA_FLAGS"] = " ".join([flags, *added]).strip()


def keep_memory() -> None:
    """Keeps on CPU what a step has freed, for the next one.

    XLA on CPU allocates a step's buffers anew each step. Large ones would go back to the kernel
    and come again as pages to be cleared: at the paper's size a fifth of a step's processor
    time. glibc keeps what is larger than 64 MiB for the main thread alone; without asynchronous
    dispatch a computation runs in the thread that asks for it.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if library is not None and hasattr(library, "mallopt"):
        library.mallopt(_MMAP_MAX, 0)
        library.mallopt(_TRIM_THRESHOLD, -1)
        library.mallopt(_TOP_PAD, _HEAP_BYTES)  # Or a heap that is empty would be given back.


def keep_programs() -> None:
    """Turns on JAX's persistent compilation cache, unless the user has set it.

    Without a home that can be written to, as containers may have it, nothing is kept.
    """
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        with contextlib.suppress(OSError, RuntimeError):  # That is of a user without a home.
            home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path("~/.cache").expanduser()
            folder = pathlib.Path(home) / "cbert"
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                jax.config.update("jax_compilation_cache_dir", str(folder))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
