"""The same sizes in PyTorch and transformers, stock and with a gathered head.

The stock form is `BertForMaskedLM` with labels: logits for every position. The gathered form
sends only the hidden position to the head, as a careful user would write it. Both get random
batches padded to the longest set of all, without a context. Needs the optional extra `bench`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import ml_collections
import numpy as np

from cbert.benchmark import measure
from cbert.errors import UserError


class Peer:
    """One model and its optimizer; `step`, `stock_step` and `answer` are what is timed."""

    def __init__(self, training: measure.Training) -> None:
        torch, transformers = libraries()
        config, items = training.config, training.sizes.items
        self._torch, self._mask = torch, items
        self._batches = list(self._make_batches(training))
        self._model = transformers.BertForMaskedLM(_bert(transformers, config.model, items))
        chosen = config.optimizer
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(),
            chosen.learning_rate,
            betas=(chosen.b1, chosen.b2),
            weight_decay=chosen.weight_decay,
        )

    def _make_batches(self, training: measure.Training) -> Iterator[tuple]:
        torch, size = self._torch, training.config.train.batch_size
        for seed in range(4):
            items, lengths = measure.padded_sets(training.split, size, seed)
            shown = np.arange(items.shape[1]) < lengths[:, None]
            codes = torch.tensor(np.maximum(items, 0), dtype=torch.long)
            hidden = torch.tensor(np.random.default_rng(seed).integers(lengths))
            rows = torch.arange(size)
            targets = codes[rows, hidden].clone()
            codes[rows, hidden] = self._mask
            labels = torch.full(codes.shape, -100)
            labels[rows, hidden] = targets
            yield codes, torch.tensor(shown).long(), rows, hidden, targets, labels

    def _hidden_logits(self, batch: tuple) -> Any:
        codes, mask, rows, hidden, _, _ = batch
        found = self._model.bert(input_ids=codes, attention_mask=mask).last_hidden_state
        return self._model.cls(found[rows, hidden])

    def _train(self, loss: Callable, batch: tuple) -> None:
        self._model.train()
        self._optimizer.zero_grad(set_to_none=True)
        loss(batch).backward()
        self._optimizer.step()

    def step(self, number: int) -> None:
        """A training step with the gathered head."""
        cross_entropy = self._torch.nn.functional.cross_entropy
        batch = self._batches[number % 4]
        self._train(lambda b: cross_entropy(self._hidden_logits(b), b[4]), batch)

    def stock_step(self, number: int) -> None:
        """A training step as the library has it."""
        batch = self._batches[number % 4]
        self._train(lambda b: self._model(b[0], b[1], labels=b[5]).loss, batch)

    def answer(self, number: int) -> None:
        """Log-probability and rank of the targets of a batch."""
        batch = self._batches[number % 4]
        self._model.eval()
        with self._torch.inference_mode():
            logits = self._hidden_logits(batch)[:, : self._mask]
            own = logits.gather(1, batch[4][:, None])
            self._torch.log_softmax(logits, 1).gather(1, batch[4][:, None])
            (logits >= own).sum(1)


class Rounds:
    """Rounds of one of the peer's functions, each on `steps` batches of `size` sets."""

    def __init__(self, work: Callable[[int], None], steps: int, size: int) -> None:
        self._work, self._steps = work, steps
        self.sets, self.timing = steps * size, measure.Timing()
        work(0)

    def round(self) -> None:
        self.timing.time(lambda: [self._work(number) for number in range(self._steps)])


def libraries() -> tuple[Any, Any]:
    """torch and transformers, or a `UserError` that says how to get them."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise UserError(
            f'--peer=hf needs the optional extra bench ({error}); run pip install ".[bench]"'
        ) from None
    return torch, transformers


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


def pairs(training: measure.Training) -> dict[str, tuple[Any, Any]]:
    """Name of a ratio to our rounds and theirs."""
    peer, size = Peer(training), training.config.train.batch_size
    ours = measure.Evaluation(training, 4 * size)
    return {
        "ratio_gathered": (training, Rounds(peer.step, 6, size)),
        "ratio_stock": (training, Rounds(peer.stock_step, 4, size)),
        "ratio_evaluation": (ours, Rounds(peer.answer, 4, size)),
    }


def summarize(found: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    """Medians and quartiles of our sets a second over theirs, and both rates."""
    summary = {}
    for name, (ours, theirs) in found.items():
        ours_rate = ours.sets / np.array(ours.timing.seconds)
        theirs_rate = theirs.sets / np.array(theirs.timing.seconds)
        low, middle, high = np.percentile(ours_rate / theirs_rate, [25, 50, 75])
        summary[name] = float(middle)
        summary[f"{name}_quartiles"] = [float(low), float(high)]
        summary[f"{name}_theirs"] = float(np.median(theirs_rate))
        summary[f"{name}_ours"] = float(np.median(ours_rate))
    return summary
