"""The process's set-up keeps freed memory, and caches compiled programs."""

import os
import subprocess
import sys

from tests.conftest import ROOT

FAULTS = """
import ctypes, resource, sys
from cbert import runtime
if sys.argv[1] == "kept":
    runtime.keep_memory()
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p

def use(size):
    buffer = ctypes.c_void_p(library.malloc(ctypes.c_size_t(size)))
    library.memset(buffer, 1, ctypes.c_size_t(size))
    library.free(buffer)

use(2**26)  # More than glibc ever keeps by itself.
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    use(2**26)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(program, argument):
    """The page faults that a program counts, in a process of its own.

    Without the flags of the tests its steps take less time.
    """
    command = [sys.executable, "-c", program, argument]
    flagless = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(command, cwd=ROOT, env=flagless, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.splitlines()]


def test_freed_memory_stays_with_the_process():
    # At least ten faults a buffer even in huge pages of 2 MiB; none where it is kept.
    assert faults(FAULTS, "given back")[0] >= 10 * 10
    assert faults(FAULTS, "kept")[0] < 10


STEPS = """
import resource, sys, threading
import jax
import jax.numpy as jnp
from experiments import command

def work(x):
    large = jnp.exp(x[:, None] * jnp.arange(5000))
    return large @ jnp.ones(5000) + large.sum(axis=1)

def take_steps(rows):
    step, x, faults = jax.jit(work), jnp.ones(rows), []
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        jax.block_until_ready(step(x))
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    print(sorted(faults)[3])

def main():
    take_steps(5000)
    other = threading.Thread(target=take_steps, args=[2500])
    other.start()
    other.join()

command.run(main) if sys.argv.pop() == "kept" else main()
"""


def test_a_step_of_a_command_takes_no_new_pages():
    """A step of 100 MB of the main thread, and one of 50 MB of a server's other thread.

    The heap of another thread can hold 50 MB.
    """
    main, other = faults(STEPS, "given back")
    assert (main >= 100, other >= 50) == (True, True), (main, other)
    # Where memory is kept, its parts are still laid out anew at a few steps of a process.
    main, other = faults(STEPS, "kept")
    assert (main < 50, other < 50) == (True, True), (main, other)


PROGRAM = """
from cbert import runtime
runtime.set_up()
import jax
print(jax.jit(lambda x: 2 * x + 1)(3.0))
"""


def test_programs_are_kept_between_processes(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
        del environment[name]
    cached = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True
        )
        assert done.stdout == b"7.0\n", done.stderr
        kept = (tmp_path / "cbert").iterdir()
        cached.append({path.name for path in kept if path.name.endswith("-cache")})
    assert cached[0]
    assert cached[1] == cached[0]


WITHOUT_A_HOME = """
import os
import jax
from cbert import runtime
runtime.set_up()
print(jax.jit(lambda x: 2 * x + 1)(3.0))
if not os.getuid():
    del os.environ["HOME"]
    os.setuid(12345)  # Nobody has this number, so it has no home.
    runtime.set_up()
print(jax.config.jax_compilation_cache_dir)
"""


def test_without_a_home_programs_are_not_kept():
    environment = {**os.environ, "HOME": "/proc/none"}
    for name in ("JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_A_HOME], cwd=ROOT, env=environment, capture_output=True
    )
    assert (done.stdout, done.stderr) == (b"7.0\nNone\n", b"")
