"""Our rounds beside those of PyTorch and transformers, on the same batches.

What is compared is described in `torch_peer.py`, which runs in a process of its own, with the
threads and the memory that it would have alone, and waits while ours works. It knows no
context. It is run by the Python that the environment variable `PEER_PYTHON` names, by default
by this one, which then needs the optional extra `bench`.

Legend: B examples, L positions, P masked positions.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import jax
import ml_collections
import numpy as np

from cbert.benchmark import measure
from cbert.data.batching import BLOCK, Batches
from cbert.data.columns import Split
from cbert.data.random_streams import stream
from cbert.errors import UserError, missing_extra
from cbert.schema import TEXT, Schema
from cbert.schema.target import LABEL
from cbert.schema.tokenizer import MASK
from cbert.tasks import task_class, task_options

PRODUCT = "product"  # Not a form: what PyTorch's large matrix products take.
PROGRAM = pathlib.Path(__file__).with_name("torch_peer.py")
# Each ratio is to the fastest of these forms.
FORMS = {
    "ratio_strongest": ("gathered", "compiled", "compiled_graphs"),
    "ratio_stock": ("stock",),
    "ratio_evaluation": ("evaluation", "compiled_evaluation"),
}


def python() -> str:
    """The Python that runs the peer."""
    return os.environ.get("PEER_PYTHON", sys.executable)


def check() -> None:
    """Raises `UserError` that says what to install where a library is missing."""
    imports = [python(), "-c", "import torch, transformers"]
    try:
        done = subprocess.run(imports, capture_output=True, text=True)
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        reason = lines[-1] if done.returncode else ""
    except OSError as error:
        reason = f"{python()}: {error.strerror}"
    if reason:
        advice = "PEER_PYTHON may name another Python that has it"
        raise missing_extra("the peer", "bench", f"{reason[:200]}; {advice}")


class Process:
    """The peer's process, which runs a round for each line that it reads."""

    def __init__(self, training: measure.TrainingRounds) -> None:
        batches = choose_batches(
            training.config,
            training.split,
            training.schema,
            training.run.batches[0],
            training.steps,
        )
        self.count, self.size = len(batches), training.config.train.batch_size
        with tempfile.NamedTemporaryFile(suffix=".npz") as file:
            arrays: dict[str, Any] = {
                f"{name}_{number}": array
                for number, batch in enumerate(batches)
                for name, array in batch.items()
            }
            np.savez(file, **arrays)
            file.flush()
            self._process = subprocess.Popen(
                [python(), str(PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._call({**_setting(training), "count": self.count, "batches": file.name})

    def _call(self, request: Any) -> float | None:
        reply = ""
        assert self._process.stdin is not None  # Both are pipes.
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            reply = self._process.stdout.readline()
        if not reply:
            raise UserError("the peer's process ended; its error is above")
        return json.loads(reply)

    def seconds(self, form: str) -> float | None:
        """The time that a form takes for all batches; None where it cannot be compiled."""
        return self._call(form)

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def choose_batches(
    config: ml_collections.ConfigDict,
    split: Split,
    schema: Schema,
    batches: Batches,
    steps: int,
) -> list[dict[str, np.ndarray]]:
    """Up to `BLOCK` of the batches of so many steps, of their padded lengths in proportion.

    Our own masks are drawn on the device, so the peer is given others, of as many positions.

    Returns:
      For each batch `codes` and `mask` `int64 [B, L]`, `positions` `int64 [B, P]`, and
      `targets`, `int64 [B, P]` or of classification `[B]`.
    """
    each = sorted((batches(step) for step in range(steps)), key=lambda step: step[1])
    stride = -(-steps // BLOCK)
    chosen = each[(stride - 1) // 2 :: stride]
    return [
        _peer_batch(config, split, schema, rows, length, stream("masks of the peer", number))
        for number, (rows, length) in enumerate(chosen)
    ]


def _peer_batch(
    config: ml_collections.ConfigDict,
    split: Split,
    schema: Schema,
    rows: np.ndarray,
    length: int,
    random: np.random.Generator,
) -> dict[str, np.ndarray]:
    is_text = schema.kind == TEXT
    codes = np.maximum(split.items[rows, :length], 0).astype(np.int64)
    shown = np.arange(length) < split.lengths[rows][:, None]
    options = task_options(config)
    masked = task_class(config).positions_and_candidates(options, schema, length).positions
    # The last in order are padding and [CLS], the first position of a text.
    order = np.where(shown, random.random(codes.shape), 2)
    order[:, 0] += is_text
    positions = order.argsort(axis=1)[:, :masked]
    if LABEL in split.targets:
        targets = split.targets[LABEL][rows].astype(np.int64)
    else:
        targets = np.take_along_axis(codes, positions, axis=1)
        mask_code = schema.codes[MASK] if is_text else len(schema.items)
        np.put_along_axis(codes, positions, mask_code, axis=1)
    mask = shown.astype(np.int64)
    return {"codes": codes, "mask": mask, "positions": positions, "targets": targets}


def _setting(training: measure.TrainingRounds) -> dict[str, Any]:
    """All that the peer's process is told but the batches."""
    config, schema = training.config, training.schema
    full = jax.default_matmul_precision.value in ("float32", "highest")
    return {
        # Unless it is told otherwise, JAX takes TF32 on a GPU, which PyTorch calls high.
        "matmul_precision": "highest" if full else "high",
        "task": config.task.name,
        "model": config.model.to_dict(),
        "optimizer": config.optimizer.to_dict(),
        "items": len(schema.items),
        # A set's padding, unknown items and masks have codes of their own.
        "vocabulary": len(schema.items) + (0 if schema.kind == TEXT else 3),
        "labels": len(schema.target.values) if schema.target else 2,
        "longest": int(training.split.lengths.max()),
        "product": measure.SIZE,
    }


class Rounds:
    """Rounds of one form of the peer, each on all of its batches."""

    def __init__(self, process: Process, form: str) -> None:
        self._process, self.form = process, form
        self.examples, self.timing = process.count * process.size, measure.Timing()
        self.works = process.seconds(form) is not None

    def round(self) -> None:
        """Times one round."""
        seconds = self._process.seconds(self.form)
        assert seconds is not None  # It was compiled before.
        self.timing.seconds.append(seconds)


class Comparison:
    """Our training and evaluation, and every form of the peer that works."""

    def __init__(self, training: measure.TrainingRounds) -> None:
        self._process = Process(training)
        evaluation = measure.EvaluationRounds(training, 4 * training.config.train.batch_size)
        self._ours: dict[str, Any] = dict.fromkeys(FORMS, training)
        self._ours["ratio_evaluation"] = evaluation
        self._theirs = {}
        for name, forms in FORMS.items():
            rounds = [Rounds(self._process, form) for form in forms]
            self._theirs[name] = [one for one in rounds if one.works]
        self._product = Rounds(self._process, PRODUCT)
        each = [one for rounds in self._theirs.values() for one in rounds]
        self.workers = [evaluation, self._product, *each]

    def close(self) -> None:
        """Ends the peer's process."""
        self._process.close()

    def summary(self) -> dict[str, Any]:
        """The median and quartiles of our examples a second over theirs, and both rates.

        Beside them is the peer's own matmul peak, as `measure.MatmulPeak` is ours.
        """
        products = 2.0 * measure.SIZE**3 * self._process.count / self._product.timing.median
        summary: dict[str, Any] = {"matmul_peak_gflops": products / 1e9}
        for name, rounds in self._theirs.items():
            best = min(rounds, key=lambda one: one.timing.median)
            ours = self._ours[name]
            ours_rate = ours.examples / np.array(ours.timing.seconds)
            theirs_rate = best.examples / np.array(best.timing.seconds)
            low, middle, high = np.percentile(ours_rate / theirs_rate, [25, 50, 75])
            summary[name] = float(middle)
            summary[f"{name}_quartiles"] = [float(low), float(high)]
            summary[f"{name}_theirs"] = float(np.median(theirs_rate))
            summary[f"{name}_ours"] = float(np.median(ours_rate))
            summary[f"{name}_form"] = best.form
        return summary
