"""The same training in PyTorch and transformers; it imports no other module of this package.

It is run by its path, by any Python that has torch and transformers, and reads lines of JSON:
first the sizes, then names of forms, and prints the seconds that each took for all batches. The
forms of a training step are

- `gathered`: batches padded to their own longest example, the fused AdamW, attention by SDPA,
  and only the masked positions sent to the head, as a careful user would write it;
- `compiled`: the same, its loss compiled by `torch.compile`;
- `compiled_graphs`: the same with CUDA graphs, which start the kernels of a GPU in less time;
- `stock`: as the library writes it, with labels, the default AdamW, and every batch padded to
  the longest example of all.

`product` is no step but one large matrix product a batch, whose speed says how much of this
machine PyTorch's own library for products can use.

Legend: B examples, L positions, P masked positions.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers

IGNORED = -100  # The label of a position that is no target, for the library's loss.
GRAPHS = "compiled_graphs"  # The form that only a GPU has.


class Peer:
    """One model, its optimizers and its batches; a method for each form is timed."""

    def __init__(self, setting: dict[str, Any]) -> None:
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.set_float32_matmul_precision(setting["matmul_precision"])
        self._classifies = setting["task"] == "classification"
        self._bfloat16 = setting["model"]["dtype"] == "bfloat16"
        self._items = setting["items"]
        size, dtype = setting["product"], torch.bfloat16 if self._bfloat16 else torch.float32
        # The square of this matrix is the matrix itself.
        self._matrix = torch.full((size, size), 1 / size, dtype=dtype, device=self._device)
        kind = "SequenceClassification" if self._classifies else "MaskedLM"
        build = getattr(transformers, f"BertFor{kind}")
        self._model = build(_bert(setting)).to(self._device)
        rates = setting["optimizer"]
        options = {
            "lr": rates["learning_rate"],
            "betas": (rates["b1"], rates["b2"]),
            "weight_decay": rates["weight_decay"],
        }
        self._clip_norm = rates["clip_norm"]
        self._fused = torch.optim.AdamW(self._model.parameters(), fused=True, **options)
        self._default = torch.optim.AdamW(self._model.parameters(), **options)
        arrays = np.load(setting["batches"])
        self._batches = [
            {
                name: torch.tensor(arrays[f"{name}_{n}"], device=self._device)
                for name in ("codes", "mask", "positions", "targets")
            }
            for n in range(setting["count"])
        ]
        self._padded = [self._with_labels(batch, setting["longest"]) for batch in self._batches]
        self._compiled_loss = torch.compile(self._loss, dynamic=False)
        self._graphs_loss = torch.compile(self._loss, dynamic=False, mode="reduce-overhead")
        self._compiled_score = torch.compile(self._score, dynamic=False)

    def _with_labels(self, batch: dict, longest: int) -> dict[str, Any]:
        """What the stock form is given, `[B, longest]`."""
        missing = longest - batch["codes"].shape[1]
        pad = torch.nn.functional.pad
        labels = batch["targets"]
        if not self._classifies:
            rows = torch.arange(len(labels), device=self._device)[:, None]
            labels = torch.full_like(batch["codes"], IGNORED)
            labels[rows, batch["positions"]] = batch["targets"]
            labels = pad(labels, (0, missing), value=IGNORED)
        return {
            "input_ids": pad(batch["codes"], (0, missing)),
            "attention_mask": pad(batch["mask"], (0, missing)),
            "labels": labels,
        }

    def _logits(self, batch: dict, positions: torch.Tensor) -> torch.Tensor:
        """`[B P, V]` of masked positions, or `[B, labels]`."""
        inputs = {"input_ids": batch["codes"], "attention_mask": batch["mask"]}
        if self._classifies:
            return self._model(**inputs).logits
        states = self._model.bert(**inputs).last_hidden_state
        rows = torch.arange(len(states), device=self._device)[:, None]
        return self._model.cls(states[rows, positions]).flatten(0, 1)

    def _loss(self, batch: dict) -> torch.Tensor:
        logits = self._logits(batch, batch["positions"])
        return torch.nn.functional.cross_entropy(logits, batch["targets"].flatten())

    def _train(self, loss: Callable, batch: dict, optimizer: torch.optim.Optimizer) -> None:
        self._model.train()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self._device, torch.bfloat16, enabled=self._bfloat16):
            value = loss(batch)
        value.backward()
        if self._clip_norm:
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._clip_norm)
        optimizer.step()

    def gathered(self, number: int) -> None:
        self._train(self._loss, self._batches[number], self._fused)

    def compiled(self, number: int) -> None:
        self._train(self._compiled_loss, self._batches[number], self._fused)

    def compiled_graphs(self, number: int) -> None:
        torch.compiler.cudagraph_mark_step_begin()
        self._train(self._graphs_loss, self._batches[number], self._fused)

    def stock(self, number: int) -> None:
        self._train(
            lambda batch: self._model(**batch).loss, self._padded[number], self._default
        )

    def _score(self, batch: dict) -> tuple[torch.Tensor, torch.Tensor]:
        """The log-probability and the rank of one target an example."""
        logits = self._logits(batch, batch["positions"][:, :1])[:, : self._items]
        targets = batch["targets"].flatten() if self._classifies else batch["targets"][:, 0]
        own = logits.gather(1, targets[:, None])
        return torch.log_softmax(logits, 1).gather(1, targets[:, None]), (logits >= own).sum(1)

    def _evaluate(self, score: Callable, number: int) -> None:
        self._model.eval()
        with (
            torch.inference_mode(),
            torch.autocast(self._device, torch.bfloat16, enabled=self._bfloat16),
        ):
            score(self._batches[number])

    def evaluation(self, number: int) -> None:
        self._evaluate(self._score, number)

    def compiled_evaluation(self, number: int) -> None:
        self._evaluate(self._compiled_score, number)

    def product(self, number: int) -> None:
        self._matrix = self._matrix @ self._matrix

    def seconds(self, form: str) -> float | None:
        """The time that a step of each batch takes; None for what only a GPU has."""
        if form == GRAPHS and self._device == "cpu":
            return None
        start = time.perf_counter()
        for number in range(len(self._batches)):
            getattr(self, form)(number)
        if self._device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start


def _bert(setting: dict[str, Any]) -> transformers.BertConfig:
    sizes = setting["model"]
    return transformers.BertConfig(
        vocab_size=setting["vocabulary"],
        hidden_size=sizes["dimension"],
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        intermediate_size=sizes["feed_forward"],
        max_position_embeddings=512,
        hidden_act=sizes["activation"],
        hidden_dropout_prob=sizes["dropout"],
        attention_probs_dropout_prob=sizes["attention_dropout"],
        num_labels=setting["labels"],
        attn_implementation="sdpa",
    )


def main() -> None:
    """Prints a line for each line that it reads; null where a form cannot be compiled."""
    peer = Peer(json.loads(sys.stdin.readline()))
    print(0.0, flush=True)
    for line in sys.stdin:
        form = json.loads(line)
        try:
            seconds = peer.seconds(form)
        except Exception as error:
            if not form.startswith("compiled"):
                raise
            print(f"{form}: {error}"[:300], file=sys.stderr)
            seconds = None
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
