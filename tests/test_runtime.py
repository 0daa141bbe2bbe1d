"""The process's set-up: memory that stays, programs that are found again."""

import subprocess
import sys

from tests.conftest import ROOT, run_fresh

FAULTS = """
import ctypes, resource, sys
from cbert import runtime
if sys.argv[1] == "kept":
    runtime._keep_memory()
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


def test_freed_memory_stays_with_the_process():
    def faults(how):
        done = subprocess.run(
            [sys.executable, "-c", FAULTS, how], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    # At least ten faults a buffer even in huge pages of 2 MiB; none where it is kept.
    assert faults("given back") >= 10 * 10
    assert faults("kept") < 10


def test_programs_are_kept_between_processes(data_dir, tmp_path):
    cache = tmp_path / "programs"
    arguments = [
        "--config=configs/base.py:none",
        *("--config.data.name=small", f"--config.data.dir={data_dir}"),
        *("--config.train.steps=2", "--config.train.length_buckets=1"),
        *("--config.model.dimension=8", "--config.model.layers=1"),
    ]
    environment = {"JAX_COMPILATION_CACHE_DIR": str(cache)}
    run_fresh("train", *arguments, f"--workdir={tmp_path / 'one'}", **environment)
    programs = {path.name for path in cache.iterdir() if path.name.endswith("-cache")}
    assert programs
    run_fresh("train", *arguments, f"--workdir={tmp_path / 'two'}", **environment)
    again = {path.name for path in cache.iterdir() if path.name.endswith("-cache")}
    assert again == programs
