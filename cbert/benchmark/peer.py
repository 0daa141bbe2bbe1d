"""The same sizes in PyTorch and transformers, stock and with a gathered head.

The stock form is `BertForMaskedLM` with labels: logits for every position. The gathered form
sends only the masked position to the head, as a careful user would write it. Both get random
batches padded to the longest example of all, without a context. The peer runs in a process of
its own (`main`), with the threads and the memory that it would have alone, and waits while ours
works. It needs the optional extra `bench`.
"""

import contextlib
import dataclasses
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import ml_collections
import numpy as np

from cbert.benchmark import measure, workload
from cbert.data.columns import Split
from cbert.errors import UserError


class Peer:
    """One model and its optimizer; `step`, `stock_step` and `evaluate` are timed."""

    def __init__(self, config: ml_collections.ConfigDict, sizes: workload.Sizes) -> None:
        import torch
        import transformers

        items = sizes.items
        self._torch, self._mask = torch, items
        split = workload.make_split(sizes, workload.make_schema(sizes))
        self._batches = list(self._make_batches(split, config.train.batch_size))
        self._model = transformers.BertForMaskedLM(_bert(transformers, config.model, items))
        chosen = config.optimizer
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(),
            chosen.learning_rate,
            betas=(chosen.b1, chosen.b2),
            weight_decay=chosen.weight_decay,
        )

    def _make_batches(self, split: Split, size: int) -> Iterator[tuple]:
        torch = self._torch
        for seed in range(4):
            chosen = np.random.default_rng(seed).choice(len(split), size, replace=False)
            items, lengths = split.items[chosen], split.lengths[chosen]
            real = np.arange(items.shape[1]) < lengths[:, None]
            codes = torch.tensor(np.maximum(items, 0), dtype=torch.long)
            positions = torch.tensor(np.random.default_rng(seed).integers(lengths))
            rows = torch.arange(size)
            targets = codes[rows, positions].clone()
            codes[rows, positions] = self._mask
            labels = torch.full(codes.shape, -100)
            labels[rows, positions] = targets
            yield codes, torch.tensor(real).long(), rows, positions, targets, labels

    def _masked_logits(self, batch: tuple) -> Any:
        codes, mask, rows, positions, _, _ = batch
        states = self._model.bert(input_ids=codes, attention_mask=mask).last_hidden_state
        return self._model.cls(states[rows, positions])

    def _train(self, loss: Callable, batch: tuple) -> None:
        self._model.train()
        self._optimizer.zero_grad(set_to_none=True)
        loss(batch).backward()
        self._optimizer.step()

    def step(self, number: int) -> None:
        """A training step with the gathered head."""
        cross_entropy = self._torch.nn.functional.cross_entropy
        batch = self._batches[number % 4]
        self._train(lambda b: cross_entropy(self._masked_logits(b), b[4]), batch)

    def stock_step(self, number: int) -> None:
        """A training step as the library writes it."""
        batch = self._batches[number % 4]
        self._train(lambda b: self._model(b[0], b[1], labels=b[5]).loss, batch)

    def evaluate(self, number: int) -> None:
        """Computes the log-probability and rank of the targets of a batch."""
        batch = self._batches[number % 4]
        self._model.eval()
        with self._torch.inference_mode():
            logits = self._masked_logits(batch)[:, : self._mask]
            own = logits.gather(1, batch[4][:, None])
            self._torch.log_softmax(logits, 1).gather(1, batch[4][:, None])
            (logits >= own).sum(1)


WORK = {"gathered": Peer.step, "stock": Peer.stock_step, "evaluation": Peer.evaluate}


class Process:
    """The peer's process, which runs a round for each line that it reads."""

    def __init__(self, training: measure.TrainingRounds) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cbert.benchmark.peer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        setting = {
            "config": training.config.to_dict(),
            "sizes": dataclasses.asdict(training.sizes),
        }
        self._call(setting)

    def _call(self, request: Any) -> float:
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

    def seconds(self, name: str, steps: int) -> float:
        """The time that so many steps of one kind of work take."""
        return self._call([name, steps])


def main() -> None:
    """Reads the sizes to build, then lines of [work, steps], and prints the seconds of each."""
    setting = json.loads(sys.stdin.readline())
    config = ml_collections.ConfigDict(setting["config"])
    peer = Peer(config, workload.Sizes(**setting["sizes"]))
    print(0.0, flush=True)
    for line in sys.stdin:
        name, steps = json.loads(line)
        start = time.perf_counter()
        for number in range(steps):
            WORK[name](peer, number)
        print(time.perf_counter() - start, flush=True)


class Rounds:
    """Rounds of one kind of the peer's work, each on `steps` batches of `size` examples."""

    def __init__(self, process: Process, name: str, steps: int, size: int) -> None:
        self._process, self._name, self._steps = process, name, steps
        self.examples, self.timing = steps * size, measure.Timing()
        process.seconds(name, 1)

    def round(self) -> None:
        """Times one round."""
        self.timing.seconds.append(self._process.seconds(self._name, self._steps))


def check() -> None:
    """Raises `UserError` that says what to install where a library is missing."""
    missing = [n for n in ("torch", "transformers") if not importlib.util.find_spec(n)]
    if missing:
        raise UserError(
            f"the peer needs the optional extra bench ({', '.join(missing)} missing); "
            'run pip install ".[bench]"'
        )


def _bert(transformers: Any, sizes: ml_collections.ConfigDict, items: int) -> Any:
    return transformers.BertConfig(
        vocab_size=items + 3,
        hidden_size=sizes.dimension,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=sizes.feed_forward,
        max_position_embeddings=512,
        hidden_act="relu",
        hidden_dropout_prob=sizes.dropout,
        attention_probs_dropout_prob=0.0,
    )


def pairs(training: measure.TrainingRounds) -> dict[str, tuple[Any, Any]]:
    """The name of each ratio, with our rounds and theirs."""
    process, size = Process(training), training.config.train.batch_size
    ours = measure.EvaluationRounds(training, 4 * size)
    return {
        "ratio_gathered": (training, Rounds(process, "gathered", 6, size)),
        "ratio_stock": (training, Rounds(process, "stock", 4, size)),
        "ratio_evaluation": (ours, Rounds(process, "evaluation", 4, size)),
    }


def summarize(compared: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    """The median and quartiles of our examples a second over theirs, and both rates."""
    summary: dict[str, Any] = {}
    for name, (ours, theirs) in compared.items():
        ours_rate = ours.examples / np.array(ours.timing.seconds)
        theirs_rate = theirs.examples / np.array(theirs.timing.seconds)
        low, middle, high = np.percentile(ours_rate / theirs_rate, [25, 50, 75])
        summary[name] = float(middle)
        summary[f"{name}_quartiles"] = [float(low), float(high)]
        summary[f"{name}_theirs"] = float(np.median(theirs_rate))
        summary[f"{name}_ours"] = float(np.median(ours_rate))
    return summary


if __name__ == "__main__":
    main()
