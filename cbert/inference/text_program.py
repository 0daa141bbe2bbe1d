"""A text model's functions on one device, compiled for a few sizes.

Legend: R rows (one text each), L positions, P positions that a row's task reads, N masked
tokens, D model dimension, V entries of the vocabulary, K tokens listed.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from cbert.data.padding import fetched, joined, padded_batches
from cbert.data.text import Tokens
from cbert.inference.program import (
    BATCH_SIZES,
    MAX_LOGITS,
    list_length,
    padded_lengths,
    rank,
    score,
    sizes_within,
)
from cbert.schema import PAD_ITEM, Schema

Array = jax.Array
Outputs = dict[str, np.ndarray]

# The most positions of one call; longer texts get smaller batches.
MAX_POSITIONS = 2**13
# As in `cbert.model.pooling`; an exported program runs without the code of models.
FIRST_TOKEN, MEAN = "cls", "mean"


@dataclasses.dataclass(frozen=True)
class TextFunctions:
    """The functions of a model that predictions need, to be traced.

    Each takes parameters, tokens `int32 [R, L]` padded with -1, segments `int32 [R, L]`, and
    feature name to coded rows.

    Attributes:
      outputs: What the head makes of the texts, by name: `logits float32 [R, T]` of labels,
        `[R, L, T]` of tags or `[R, L, 2]` of a span's first and last token; `number [R]`;
        `vectors [R, L, D]` for `token_logits` and `next_sentence [R, 2]`.
      embeddings: By the name of the pooling, a vector for each text, `float32 [R, D]`.
      token_logits: Takes parameters and vectors `[N, D]` to `float32 [N, V]`; None for a model
        that names no tokens.
      prepare: Parameters in the form in which the others are fastest, made once.
    """

    outputs: Callable[..., dict[str, Array]]
    embeddings: Mapping[str, Callable[..., Array]]
    token_logits: Callable[[Any, Array], Array] | None = None
    prepare: Callable[[Any], Any] = lambda params: params


@dataclasses.dataclass(frozen=True)
class TextRows:
    """R texts, each with the positions that are read and its context.

    Attributes:
      tokens: The tokens of each row.
      positions: `int [P]` of each row.
      context: Feature name to one value a row.
    """

    tokens: Sequence[Tokens]
    positions: Sequence[np.ndarray]
    context: dict[str, list[Any]]

    def __len__(self) -> int:
        return len(self.tokens)


class TextProgram:
    """Predicts rows in batches of a few sizes, padded to a few lengths."""

    def __init__(
        self,
        functions: TextFunctions,
        params: Any,
        schema: Schema,
        batch_sizes: Sequence[int] = BATCH_SIZES,
    ) -> None:
        self.functions, self.params = functions, params
        self.prepared = functions.prepare(params)
        self._schema = schema
        self.lengths = padded_lengths(schema.max_items)
        self._batch_sizes = {
            length: sizes_within(MAX_POSITIONS // length, batch_sizes)
            for length in self.lengths
        }
        self._token_sizes = sizes_within(MAX_LOGITS // len(schema.items), batch_sizes)
        self._outputs = jax.jit(functions.outputs)
        self._embeddings = {name: jax.jit(each) for name, each in functions.embeddings.items()}
        if functions.token_logits:
            self._token_logits = jax.jit(functions.token_logits)
        # Compiled apart, because the logits take nearly all of the time.
        self._rank, self._score = jax.jit(rank, static_argnames="k"), jax.jit(score)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Each batch size with each length."""
        return [(size, length) for length in self.lengths for size in self._batch_sizes[length]]

    def outputs(self, rows: TextRows) -> list[Outputs]:
        """The outputs of each row; of those that have an axis L, the row's positions `[P]`."""
        kept: dict[int, Outputs] = {}
        for indices, columns in self._run(self._outputs, rows):
            for index, *values in zip(indices, *columns.values(), strict=True):
                kept[index] = {
                    name: value[rows.positions[index]] if columns[name].ndim == 3 else value
                    for name, value in zip(columns, values, strict=True)
                }
        return [kept[index] for index in range(len(rows))]

    def embed(self, rows: TextRows, pooling: str) -> np.ndarray:
        """A vector for each row, `float32 [R, D]`."""
        parts = list(self._run(self._embeddings[pooling], rows))
        order = np.argsort(np.concatenate([indices for indices, _ in parts]))
        return np.concatenate([vectors for _, vectors in parts])[order]

    def rank_tokens(self, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The most probable tokens of vectors `[N, D]`.

        Returns:
          Log-probability (nats) `float32 [N, K]` and token `int32 [N, K]`.
        """
        padded = list_length(k, len(self._schema.items))
        everything = np.ones((1, len(self._schema.items)), bool)

        def listed(logits: Array) -> tuple[Array, Array]:
            return self._rank(logits, everything, np.zeros(1, bool), k=padded)

        log_probabilities, tokens = self._on_tokens(listed, vectors)
        return log_probabilities[:, :k], tokens[:, :k]

    def token_log_odds(self, vectors: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """The log-odds (nats) of one token for each vector, `float32 [N]`."""
        return self._on_tokens(self._score, vectors, tokens)[1]

    def warm_up(self) -> Iterator[str]:
        """Compiles for every batch size and length; yields the name of each shape first."""
        for size, length in self.shapes:
            yield f"{size} x {length}"
            filled = np.zeros(length, np.int32)
            tokens = Tokens(filled, filled, filled, np.zeros((length, 2), np.int32), 0)
            context = {feature.name: [None] * size for feature in self._schema.features}
            (outputs, *_) = self.outputs(
                TextRows([tokens] * size, [filled[:1]] * size, context)
            )
        if "vectors" in outputs:
            for size in self._token_sizes:
                vectors = np.repeat(outputs["vectors"], size, axis=0)
                self.rank_tokens(vectors, 1)
                self.token_log_odds(vectors, np.zeros(size, np.int32))

    def _run(self, function: Callable, rows: TextRows) -> Iterator[tuple[list[int], Any]]:
        """Indices of a batch's rows, and what the function makes of them, a batch at a time."""
        groups = collections.defaultdict(list)
        for index, tokens in enumerate(rows.tokens):
            length = next(size for size in self.lengths if size >= len(tokens))
            groups[length].append(index)
        for length, indices in groups.items():
            inputs = self._inputs(rows, indices, length)

            def results(batch: np.ndarray, inputs: Any = inputs) -> Any:
                taken = jax.tree.map(lambda column: column[batch], inputs)
                return function(self.prepared, *taken)

            batches = list(padded_batches(len(indices), self._batch_sizes[length]))
            outputs = fetched((results(batch), count) for batch, count in batches)
            for (batch, count), values in zip(batches, outputs, strict=True):
                yield [indices[row] for row in batch[:count]], values

    def _inputs(self, rows: TextRows, indices: list[int], length: int) -> tuple[Any, ...]:
        codes = np.full((len(indices), length), PAD_ITEM, np.int32)
        segments = np.zeros_like(codes)
        for code, segment, index in zip(codes, segments, indices, strict=True):
            tokens = rows.tokens[index]
            code[: len(tokens)] = tokens.codes
            segment[: len(tokens)] = tokens.segments
        context = {
            name: self._schema.encode_feature(name, [column[index] for index in indices])
            for name, column in rows.context.items()
        }
        return codes, segments, context

    def _on_tokens(self, function: Callable, vectors: np.ndarray, *columns: np.ndarray) -> Any:
        def results(batch: np.ndarray) -> Any:
            logits = self._token_logits(self.prepared, vectors[batch])
            return function(logits, *(column[batch] for column in columns))

        batches = padded_batches(len(vectors), self._token_sizes)
        return joined((results(batch), count) for batch, count in batches)
