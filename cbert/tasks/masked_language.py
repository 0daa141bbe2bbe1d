"""Pretraining (BERT, section 3.1): tokens of a text are masked, and the model names them.

Legend: B examples, L positions, P masked positions, Q queries, V tokens of the vocabulary.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import ml_collections
import numpy as np

from cbert.config import field
from cbert.data.columns import Split
from cbert.data.masking import RATE, Masking, expected_count, mask
from cbert.errors import UserError
from cbert.model.config import ModelConfig
from cbert.model.heads import PretrainingHead
from cbert.model.scoring import score
from cbert.model.text_bert import TextBert
from cbert.schema import Schema
from cbert.schema.target import IS_NEXT, NOT_NEXT
from cbert.schema.tokenizer import MASK, PREFIX
from cbert.tasks.base import Array, Batch, Examples, Metrics, Scored
from cbert.tasks.losses import masked_cross_entropy, sum_cross_entropy, weighted
from cbert.tasks.masked_queries import ItemQueries, eligible, query_tokens, read_queries
from cbert.tasks.metric import ACCURACY, CROSS_ENTROPY, CorpusMetrics, Metric
from cbert.tasks.text_task import TextTask

_PERPLEXITY = Metric("pseudo_perplexity", "min", "pseudo-perplexity")
_NEXT_SENTENCE = Metric("next_sentence_accuracy", "max", "NSP accuracy", percent=True)


@dataclasses.dataclass(frozen=True)
class MaskedLanguageConfig:
    """BERT's masked language model, with next-sentence prediction or without."""

    mask_rate: float = field(
        0.15, "the fraction of tokens that is masked; at least one token", above=0, at_most=1
    )
    corrupt: bool = field(
        True,
        "BERT's 80/10/10: a tenth of the masked tokens is shown as a random token, a tenth "
        "unchanged",
    )
    whole_words: bool = field(
        False, "whether all pieces of a word are masked together, as many words as fit"
    )
    next_sentence: bool = field(
        False,
        "whether the model also learns if the second text follows the first: for data whose "
        "labels are `is_next` and `not_next`",
    )


def masking_of(options: MaskedLanguageConfig) -> Masking:
    """How training masks tokens."""
    return Masking(RATE, options.mask_rate, options.corrupt)


@dataclasses.dataclass(frozen=True)
class MaskedLanguage(TextTask):
    """Masks tokens, scores them against the vocabulary, and classifies pairs if it is asked to.

    Attributes:
      options: The section `task.masked_language`.
      expected_count: Mean number of masked tokens an example in the whole training split, each
        counted by its example's weight; where whole words are masked in short texts it may be
        slightly less. The loss is divided by this constant, so grouping by length leaves its
        expectation as it is.
    """

    options: MaskedLanguageConfig = MaskedLanguageConfig()
    expected_count: float = 1.0

    name: ClassVar[str] = "masked_language"
    shown: ClassVar[tuple[str, ...]] = ("cross_entropy", "accuracy", _NEXT_SENTENCE.name)
    masks: ClassVar[bool] = True
    Config: ClassVar[type | None] = MaskedLanguageConfig

    @classmethod
    def head(
        cls, config: ModelConfig, schema: Schema, options: MaskedLanguageConfig
    ) -> PretrainingHead:
        """BERT's pretraining head; raises `UserError` where pairs are asked for and absent."""
        has_pairs = schema.target is not None and schema.target.is_next_sentence
        if options.next_sentence and not has_pairs:
            raise UserError(
                "task.masked_language.next_sentence is true, but the data's labels are not "
                f"{IS_NEXT} and {NOT_NEXT}; set task.masked_language.next_sentence=false, "
                "or prepare pairs of sentences"
            )
        return PretrainingHead(config, len(schema.items), options.next_sentence)

    @classmethod
    def positions_and_candidates(
        cls, options: MaskedLanguageConfig, schema: Schema, length: int
    ) -> Scored:
        """The masked tokens, against all tokens."""
        masked = int(masking_of(options).count(np.array(length)))
        return Scored(masked, len(schema.items))

    @classmethod
    def create(
        cls,
        config: ml_collections.ConfigDict,
        model: TextBert,
        schema: Schema,
        train: Split | None,
        options: MaskedLanguageConfig,
    ) -> Self:
        """The task of a checked config; see `tasks.create`."""
        expected = 1.0
        if train is not None:
            may = functools.partial(eligible, schema=schema)
            expected = expected_count(train.items, masking_of(options), train.weights, may)
            if not expected:
                raise UserError("no training text has a token; prepare other data")
        common = cls.common(config, model, schema, train)
        return cls(*common, options=options, expected_count=expected)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Of masked tokens, and of pairs where the model classifies them."""
        tokens = CROSS_ENTROPY, ACCURACY, _PERPLEXITY
        return (*tokens, _NEXT_SENTENCE) if self.options.next_sentence else tokens

    def constants(self) -> dict[str, np.ndarray]:
        """Which tokens of the vocabulary continue a word, `bool [V]`, where that matters."""
        if not self.options.whole_words:
            return {}
        return {"continues": np.array([item.startswith(PREFIX) for item in self.schema.items])}

    def batch(self, keys: Array, examples: Examples) -> Batch:
        """Masks tokens and drops context features; see `data/masking.py`."""
        batch = super().batch(keys, examples)
        codes, schema = batch["items"], self.schema
        shown, positions, targets, weights = mask(
            keys[0],
            codes,
            examples.index,
            examples.batch_size,
            masking_of(self.options),
            len(schema.items),
            eligible(codes, schema),
            schema.codes[MASK],
            examples.constants["continues"][codes] if self.options.whole_words else None,
        )
        return {
            **batch,
            "items": shown,
            "positions": positions,
            "targets": targets,
            "weights": weighted(weights, batch),
            "divisor": examples.batch_size * self.expected_count,
            "pairs": batch["divisor"],
        }

    def loss(
        self, params: Any, batch: Batch, rngs: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """Cross-entropy of the masked tokens in nats, plus that of the pairs.

        The first is divided by the constant of masked tokens, the second by that of examples.
        """
        outputs = self.outputs(params, batch, batch["positions"], rngs)
        config = self.model.encoder.config
        vectors = outputs.vectors.reshape(-1, outputs.vectors.shape[-1]).astype(config.dtype)
        targets, weights = batch["targets"].reshape(-1), batch["weights"].reshape(-1)
        losses = masked_cross_entropy(config, vectors, outputs.table, outputs.bias, targets)
        total = (losses * weights).sum()
        metrics = {"loss": (total, weights.sum())}
        loss = total / batch["divisor"]
        if self.options.next_sentence:
            labels = self._next_sentence_labels(batch["label"])
            total, count = sum_cross_entropy(outputs.next_sentence, labels, batch)
            metrics["next_sentence_loss"] = total, count
            loss += total / batch["pairs"]
        return loss, metrics

    def _next_sentence_labels(self, labels: Array) -> Array:
        """The data's labels as BERT has them: 0 where the second text follows, -1 unknown."""
        follows = self.schema.known_target.codes[IS_NEXT]
        return jnp.where(labels < 0, labels, (labels != follows).astype(jnp.int32))

    def queries(self, split: Split, masking: str) -> ItemQueries:
        """Every token of a text in turn (`each`) or one of them (`one`), no special ones."""
        return query_tokens(split, self.schema, masking)

    def predict(
        self, params: Any, columns: dict[str, Any], query: dict[str, Array]
    ) -> dict[str, Array]:
        """Log-probability (nats) and rank, from 1, of each masked token among all tokens.

        `next_sentence_correct` says whether the model knows if the second text follows the
        first, which it reads with that token masked, and `next_sentence_known` whether the
        data do.
        """
        codes, positions = columns["items"], query["positions"]
        row = jnp.arange(len(codes))
        targets = codes[row, positions]
        shown = codes.at[row, positions].set(self.schema.codes[MASK])
        outputs = self.outputs(params, {**columns, "items": shown}, positions[:, None])
        vectors, table, bias = outputs.vectors[:, 0], outputs.table, outputs.bias
        log_probability, rank = score(vectors, table, bias, targets)
        predictions = {"log_probability": log_probability, "rank": rank}
        if self.options.next_sentence:
            labels = self._next_sentence_labels(columns["label"])
            predictions["next_sentence_correct"] = outputs.next_sentence.argmax(1) == labels
            predictions["next_sentence_known"] = labels >= 0
        return predictions

    def metric_values(
        self, predictions: dict[str, np.ndarray], queries: ItemQueries
    ) -> dict[str, np.ndarray]:
        """Cross-entropy and accuracy of each query."""
        return {
            "cross_entropy": -predictions["log_probability"].astype(np.float64),
            "accuracy": (predictions["rank"] == 1).astype(np.float64),
        }

    def corpus_metrics(
        self, predictions: dict[str, np.ndarray], queries: ItemQueries
    ) -> CorpusMetrics:
        """exp of the mean cross-entropy, and the accuracy over pairs that have a label.

        Where no pair has one the accuracy is NaN.
        """
        nats = -predictions["log_probability"].astype(np.float64)

        def perplexity(sums: np.ndarray) -> dict[str, np.ndarray]:
            return {_PERPLEXITY.name: np.exp(sums[..., 0] / sums[..., 1])}

        measured = CorpusMetrics(np.stack([nats, np.ones_like(nats)], axis=1), perplexity)
        if "next_sentence_known" not in predictions:  # Baselines do not predict it.
            return measured
        correct, known = (
            predictions[f"next_sentence_{name}"].astype(np.float64)
            for name in ("correct", "known")
        )

        def accuracy(sums: np.ndarray) -> dict[str, np.ndarray]:
            with np.errstate(invalid="ignore"):
                return {_NEXT_SENTENCE.name: sums[..., 0] / sums[..., 1]}

        # A text of which every token is asked has as many queries, but is one pair.
        share = 1 / np.bincount(queries.rows)[queries.rows]
        pairs = np.stack([correct * known * share, known * share], axis=1)
        return measured + CorpusMetrics(pairs, accuracy)

    def table(self, split: Split, queries: ItemQueries) -> dict[str, Any]:
        """The masked position, its token, and how many tokens the text has."""
        return {
            "position": queries.positions,
            "token": [self.schema.items[token] for token in queries.items],
            "tokens": split.lengths[queries.rows],
        }

    def read_queries(self, columns: Mapping[str, np.ndarray]) -> ItemQueries:
        """The queries of an evaluation's table."""
        return read_queries(columns, "token", self.schema)

    def read_predictions(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Log-probability, rank, and what was said of pairs, which baselines do not say."""
        names = ("log_probability", "rank", "next_sentence_correct", "next_sentence_known")
        return {name: columns[name] for name in names if name in columns}
