"""Our rounds beside those of PyTorch and transformers, on the same batches.

What is compared is described in `torch_peer.py`, which runs in a process of its own, with the
threads and the memory that it would have alone, and waits while ours works. It knows no
context. It is run by the Python that the environment variable `PEER_PYTHON` names, by default
by this one, which then needs the optional extra `bench`.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np

from cbert.benchmark import measure
from cbert.data.batching import BLOCK
from cbert.errors import UserError
from cbert.schema import TEXT
from cbert.schema.tokenizer import MASK

PROGRAM = pathlib.Path(__file__).with_name("torch_peer.py")
# Each ratio is to the fastest of these forms.
FORMS = {
    "ratio_strongest": ("gathered", "compiled"),
    "ratio_stock": ("stock",),
    "ratio_evaluation": ("evaluation", "compiled_evaluation"),
}


def python() -> str:
    """The Python that runs the peer."""
    return os.environ.get("PEER_PYTHON", sys.executable)


def check() -> None:
    """Raises `UserError` that says what to install where a library is missing."""
    imports = [python(), "-c", "import torch, transformers"]
    done = subprocess.run(imports, capture_output=True, text=True)
    if done.returncode:
        raise UserError(
            "the peer needs the optional extra bench "
            f"({done.stderr.strip().splitlines()[-1][:200]}); "
            'run pip install ".[bench]", or let PEER_PYTHON name a Python that has it'
        )


class Process:
    """The peer's process, which runs a round for each line that it reads."""

    def __init__(self, training: measure.TrainingRounds) -> None:
        with tempfile.NamedTemporaryFile(suffix=".npz") as file:
            batches, setting = _batches(training)
            np.savez(file, **batches)
            file.flush()
            self._process = subprocess.Popen(
                [python(), str(PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._call({**setting, "batches": file.name})
        self.size = training.config.train.batch_size
        self.count = setting["count"]

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
        return self._call([form, self.count])

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _batches(training: measure.TrainingRounds) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Up to `BLOCK` of our own batches, of the lengths that a round has, and all else.

    Our masks are drawn on the device, so the peer is given some of its own, as many of them.
    """
    config, split, task = training.config, training.split, training.run.task
    steps = [training.run.batches[0](step) for step in range(training.steps)]
    steps.sort(key=lambda step: step[1])
    stride = -(-len(steps) // BLOCK)
    chosen = steps[stride // 2 :: stride]
    is_text = task.schema.kind == TEXT
    mask_code = task.schema.codes[MASK] if is_text else len(task.schema.items)
    arrays: dict[str, np.ndarray] = {}
    for number, (rows, length) in enumerate(chosen):
        codes, real = split.items[rows, :length].astype(np.int64), split.lengths[rows]
        masked, _ = task.scored(config, task.schema, length)
        # A text begins with [CLS], and all have one length; of a set one item is masked.
        random = np.random.default_rng(number)
        order = random.random(codes.shape)
        order[np.arange(length) >= real[:, None]] = 2
        order[:, 0] += is_text
        positions = order.argsort(axis=1)[:, :masked]
        targets = np.take_along_axis(codes, positions, axis=1)
        if config.task.name == "classification":
            targets = split.targets["label"][rows].astype(np.int64)
        else:
            np.put_along_axis(codes, positions, mask_code, axis=1)
        arrays[f"codes_{number}"] = np.maximum(codes, 0)
        arrays[f"mask_{number}"] = (np.arange(length) < real[:, None]).astype(np.int64)
        arrays[f"positions_{number}"], arrays[f"targets_{number}"] = positions, targets
    target = task.schema.target
    return arrays, {
        "task": config.task.name,
        "model": config.model.to_dict(),
        "optimizer": config.optimizer.to_dict(),
        "items": len(task.schema.items),
        "vocabulary": len(task.schema.items) + (0 if is_text else 3),
        "labels": len(target.values) if target else 2,
        "longest": int(split.lengths.max()),
        "count": len(chosen),
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
        self.workers = [evaluation, *(one for each in self._theirs.values() for one in each)]

    def close(self) -> None:
        """Ends the peer's process."""
        self._process.close()

    def summary(self) -> dict[str, Any]:
        """The median and quartiles of our examples a second over theirs, and both rates."""
        summary: dict[str, Any] = {}
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
