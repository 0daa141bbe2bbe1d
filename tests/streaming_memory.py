"""Measures what streaming costs: memory that stays bounded, and examples a second.

python -m tests.streaming_memory --gigabytes=4
"""

import argparse
import pathlib
import tempfile
import time

import numpy as np
import psutil

from cbert.data import column_cache, columns
from cbert.data.batching import Batches
from cbert.data.in_memory import InMemory
from cbert.data.streaming import Streaming

ITEMS, FEATURES, BATCH = 32, 12, 256


def anonymous() -> int:
    """MiB of this process that no file stands behind, which the system cannot take back."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    (size,) = (line.split()[1] for line in lines if line.startswith("RssAnon"))
    return int(size) // 1024


def write(path: pathlib.Path, gigabytes: float) -> int:
    """Writes a split of so many examples that its file has the size; returns their number."""
    rows = int(gigabytes * 2**30 / 4 / (ITEMS + FEATURES))
    random = np.random.default_rng(0)
    items = np.memmap(path.with_suffix(".items"), np.int32, "w+", shape=(rows, ITEMS))
    for start in range(0, rows, 2**20):
        block = items[start : start + 2**20]
        block[:] = random.integers(0, 30_000, block.shape, np.int32)
    context = {f"feature_{n}": np.zeros((rows, 1), np.int32) for n in range(FEATURES)}
    texts = [""] * rows
    column_cache.write(path, [columns.Split(texts, texts, texts, items, context, None)])
    path.with_suffix(".items").unlink()
    return rows


def rate(source: InMemory | Streaming, steps: int) -> float:
    """Examples fed in a second, without the model."""
    source.feed(0, 1)
    began = time.perf_counter()
    for step in range(1, steps + 1):
        source.feed(step, 1)
    return steps * BATCH / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=4)
    parser.add_argument("--steps", type=int, default=2000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "train.arrow"
        rows = write(path, given.gigabytes)
        print(f"{rows:,} examples, {path.stat().st_size / 2**30:.2f} GiB on disk")
        before = anonymous()
        split = column_cache.read(path)
        opened = anonymous()
        batches = [Batches(split.lengths, BATCH, 0)]
        first = anonymous()
        speed = rate(Streaming(split, batches), given.steps)
        print(f"MiB of memory: {opened - before} opened, {first - before} lengths,")
        print(f"  {anonymous() - before} after {given.steps} steps of {BATCH} examples")
        print(f"{speed:,.0f} examples/s")
        print(f"  peak {psutil.Process().memory_info().rss >> 20} with the mapped file")


if __name__ == "__main__":
    main()
