"""The paper's task: items of a set or sequence are masked, and the model names them.

Legend: B examples, L positions, P masked positions, Q queries, V real items, D model dimension.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from cbert.config import field
from cbert.data.columns import Split
from cbert.data.masking import MASKINGS, ONE, Masking, expected_count, mask
from cbert.errors import UserError
from cbert.model import contextual_bert, item_shards, sampled_softmax
from cbert.model.config import POPULARITY, ModelConfig
from cbert.model.contextual_bert import ContextualBert
from cbert.model.look_up import look_up
from cbert.model.scoring import score
from cbert.schema import MASK_ITEM, SEQUENCE, TEXT, Schema
from cbert.schema.slices import by_range
from cbert.tasks import ranking
from cbert.tasks.base import Array, Batch, Examples, Metrics, Scored, Task, dropped_context
from cbert.tasks.losses import masked_cross_entropy, weighted
from cbert.tasks.masked_queries import (
    EACH,
    LAST,
    OTHERS,
    ItemQueries,
    query_each,
    query_last,
    query_one,
    read_queries,
)
from cbert.tasks.metric import Metric

# Numbers of visible items that are sliced one by one.
MOST_COUNTS = 16


@dataclasses.dataclass(frozen=True)
class MaskedItemConfig:
    """What is masked in training, and what stands for the vocabulary in the loss."""

    masking: str = field(
        ONE,
        "`one` masks one item an example, the paper's task; `rate` masks a fraction of them",
        choices=MASKINGS,
    )
    mask_rate: float = field(
        0.15, "the fraction of items that `rate` masks; at least one item", above=0, at_most=1
    )
    corrupt: bool = field(
        False,
        "BERT's 80/10/10: a tenth of the masked items is shown as a random item, a tenth "
        "unchanged",
    )
    sampled_items: int = field(
        0,
        "items that stand for all in the loss ([large vocabularies]"
        "(performance.md#large-vocabularies)); 0 uses all items",
        at_least=0,
    )


def masking_of(options: MaskedItemConfig) -> Masking:
    """How training masks items."""
    return Masking(options.masking, options.mask_rate, options.corrupt)


@dataclasses.dataclass(frozen=True)
class MaskedItem(Task):
    """Masks items, scores them against the vocabulary, and ranks them.

    Attributes:
      model: The model.
      schema: The data's schema.
      options: The section `task.masked_item`.
      context_dropout: Fraction of context features dropped in training.
      expected_count: Mean number of masked items an example in the whole training split, each
        counted by its example's weight. The loss is divided by this constant, so grouping by
        length leaves its expectation as it is.
    """

    model: ContextualBert
    options: MaskedItemConfig = MaskedItemConfig()
    context_dropout: float = 0.0
    expected_count: float = 1.0

    name: ClassVar[str] = "masked_item"
    metrics: ClassVar[tuple[Metric, ...]] = ranking.METRICS
    shown: ClassVar[tuple[str, ...]] = ("cross_entropy", "recall@5")
    masks: ClassVar[bool] = True
    Config: ClassVar[type | None] = MaskedItemConfig

    @property
    def in_tables(self) -> tuple[Metric, ...]:
        """The metrics without recall@k of at most k items, which is 1 whatever is predicted."""
        always = [f"recall@{k}" for k in ranking.RECALLS if k >= len(self.schema.items)]
        return tuple(metric for metric in self.metrics if metric.name not in always)

    @classmethod
    def build_model(
        cls,
        config: ModelConfig,
        method: str,
        method_options: Any,
        schema: Schema,
        options: MaskedItemConfig,
    ) -> ContextualBert:
        """The model of the task; raises `UserError` for data of texts."""
        if schema.kind == TEXT:
            raise UserError(
                "task.name is 'masked_item', but the data are texts; use a task of texts, such "
                "as masked_language"
            )
        return contextual_bert.build(config, method, schema, method_options)

    @classmethod
    def positions_and_candidates(
        cls, options: MaskedItemConfig, schema: Schema, length: int
    ) -> Scored:
        """The masked items, against all items or the sampled ones."""
        masked = int(masking_of(options).count(np.array(length)))
        return Scored(masked, len(schema.items), options.sampled_items)

    @classmethod
    def create(
        cls,
        config: ml_collections.ConfigDict,
        model: ContextualBert,
        schema: Schema,
        train: Split | None,
        options: MaskedItemConfig,
    ) -> Self:
        """The task of a checked config; see `tasks.create`."""
        expected = 1.0
        if train:
            expected = expected_count(train.items, masking_of(options), train.weights)
        if not expected:
            raise UserError(
                "no training item is in the schema's vocabulary; prepare the data with a "
                "lower min_count"
            )
        return cls(model, schema, options, config.train.context_dropout, expected)

    def first_parameters(self, train: Split) -> dict[str, dict[str, np.ndarray]]:
        """The output layer's bias where `model.output_bias` has it begin at popularity."""
        if self.model.encoder.config.output_bias != POPULARITY:
            return {}
        return {"embedding": {"bias": ranking.log_fractions(self.schema.counts)}}

    def constants(self) -> dict[str, np.ndarray]:
        """The distribution that the sampled softmax draws from."""
        if not self.options.sampled_items:
            return {}
        return {"cumulative": sampled_softmax.cumulative(self.schema.counts)}

    def batch(self, keys: Array, examples: Examples) -> Batch:
        """Masks items and drops context features; see `data/masking.py`."""
        mask_key, context_key = keys
        codes, positions, targets, weights = mask(
            mask_key,
            examples.columns["items"],
            examples.index,
            examples.batch_size,
            masking_of(self.options),
            len(self.schema.items),
        )
        batch = {
            "codes": codes,
            "context": dropped_context(
                context_key, examples, self.context_dropout, self.schema
            ),
            "positions": positions,
            "targets": targets,
            "weights": weighted(weights, examples.columns),
            "divisor": examples.batch_size * self.expected_count,
        }
        if self.options.sampled_items:
            # Every device draws the same items.
            cumulative = examples.constants["cumulative"]
            sample_key = jax.random.fold_in(mask_key, 3)
            batch["sampled"] = sampled_softmax.draw(
                sample_key, cumulative, self.options.sampled_items
            )
            batch["cumulative"] = cumulative
        return batch

    def _apply(
        self, params: Any, *inputs: Any, rngs: dict[str, Array] | None = None
    ) -> tuple[Array, Array, Array]:
        """The model's outputs; Flax itself knows no type of them."""
        outputs: Any = self.model.apply({"params": params}, *inputs, rngs=rngs)
        return outputs

    def loss(
        self, params: Any, batch: Batch, rngs: Mapping[str, Array]
    ) -> tuple[Array, Metrics]:
        """Weighted cross-entropy of the masked items in nats, divided by the constant."""
        vectors, table, bias = self._apply(
            params, batch["codes"], batch["context"], batch["positions"], rngs=dict(rngs)
        )
        config = self.model.encoder.config
        vectors = vectors.reshape(-1, vectors.shape[-1]).astype(config.dtype)
        targets, weights = batch["targets"].reshape(-1), batch["weights"].reshape(-1)
        sharded = self.model.shards > 1
        if self.options.sampled_items:
            find = item_shards.look_up if sharded else look_up
            losses = sampled_softmax.sampled_cross_entropy(
                vectors, table, bias, targets, batch["sampled"], batch["cumulative"], find
            )
        elif sharded:
            losses = item_shards.cross_entropy(vectors, table, bias, targets)
        else:
            losses = masked_cross_entropy(config, vectors, table, bias, targets)
        total = (losses * weights).sum()
        return total / batch["divisor"], {"loss": (total, weights.sum())}

    def queries(self, split: Split, masking: str) -> ItemQueries:
        """Every item of an example in turn (`each`), one of them (`one`), or the `last`.

        Raises:
          UserError: no such item of the split is in the vocabulary, or a set has no last one.
        """
        if masking == LAST and self.schema.kind != SEQUENCE:
            raise UserError(f"masking is {LAST!r}, and sets have no order; {OTHERS}")
        queries = {EACH: query_each, ONE: query_one, LAST: query_last}[masking](split)
        if not len(queries):
            raise UserError(
                "no item of the split is in the vocabulary of the model; take other data"
            )
        return queries

    def predict(
        self, params: Any, columns: dict[str, Any], query: dict[str, Array]
    ) -> dict[str, Array]:
        """Log-probability (nats) and rank, from 1, of each masked item among all items."""
        codes, positions = columns["items"], query["positions"]
        row = jnp.arange(len(codes))
        items = codes[row, positions]
        codes = codes.at[row, positions].set(MASK_ITEM)
        vectors, table, bias = self._apply(
            params, codes, columns["context"], positions[:, None]
        )
        scores = item_shards.score if self.model.shards > 1 else score
        log_probability, rank = scores(vectors[:, 0], table, bias, items)
        return {"log_probability": log_probability, "rank": rank}

    def metric_values(
        self, predictions: dict[str, np.ndarray], queries: ItemQueries
    ) -> dict[str, np.ndarray]:
        """Cross-entropy, recall, MRR and NDCG of each query."""
        return ranking.metric_values(predictions["log_probability"], predictions.get("rank"))

    def slices(self, split: Split) -> dict[str, dict[str, np.ndarray]]:
        """The examples by their number of visible items, or by ranges of many numbers."""
        visible = split.lengths - 1
        counts = sorted(set(visible.tolist()))
        if len(counts) > MOST_COUNTS:
            return {"visible_items": by_range(visible.astype(float))}
        return {"visible_items": {str(count): visible == count for count in counts}}

    def table(self, split: Split, queries: ItemQueries) -> dict[str, Any]:
        """The masked position, its item, and how many items are visible."""
        return {
            "position": queries.positions,
            "item": [self.schema.items[item] for item in queries.items],
            "visible_items": split.lengths[queries.rows] - 1,
        }

    def read_queries(self, columns: Mapping[str, np.ndarray]) -> ItemQueries:
        """The queries of an evaluation's table."""
        return read_queries(columns, "item", self.schema)

    def read_predictions(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Log-probability and, where the predictor has it, rank."""
        optional = ("rank",) if "rank" in columns else ()
        return {name: columns[name] for name in ("log_probability", *optional)}
