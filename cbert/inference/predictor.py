"""A model that completes sets and sequences, scores items and explains its predictions.

Legend: C entries of the context vector.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ml_collections
import numpy as np

from cbert.errors import UserError, shown
from cbert.inference import context as context_lib
from cbert.inference.base import BasePredictor
from cbert.inference.checks import Checker, EncodedQuery
from cbert.inference.context import CheckedContext
from cbert.inference.program import Program, Rows
from cbert.inference.queries import (
    Completion,
    Explanation,
    Prediction,
    Query,
    Score,
    Scores,
    check_all,
    check_encoded,
)
from cbert.schema import MASK_ITEM, SET, Schema


class Predictor(BasePredictor):
    """Predicts with one model on one device; safe to call from several threads.

    All queries are checked before anything is computed; a wrong one raises `UserError`, one
    line that names the value and the fix. Items and values that training never saw are no
    mistake: the predictions take them as unknown, and name them. Neither is a sequence that is
    longer than the model takes, which is cut to its latest items; results say so.
    """

    program: Program

    def __init__(
        self,
        schema: Schema,
        config: ml_collections.ConfigDict,
        step: int,
        checker: Checker,
        program: Program,
        *,
        uses_context: bool,
    ) -> None:
        super().__init__(schema, config, step, program, uses_context=uses_context)
        self._checker = checker

    def check(self, query: Query | Mapping[str, Any]) -> EncodedQuery:
        """Encodes a query for `predict_checked`; raises `UserError` where `complete` would."""
        return self._checker.query(query)

    def complete(
        self,
        items: Sequence[str | None] | Sequence[Sequence[str | None]],
        context: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None,
        k: int = 5,
        slots: int = 1,
        exclude: Sequence[str] = (),
        only: Sequence[str] | None = None,
    ) -> Completion | list[Completion]:
        """Ranks items for each masked position, given the visible items and the context.

        A probability is the model's among all real items. With `only` or `exclude` it is the
        probability among the items that may then still be listed, so that these sum to 1. In
        a set, visible items are not listed, for a set has no repeats; this alone changes no
        probability. A set's appended positions are alike, and so are their lists.

        Args:
          items: Visible items; None stands for a masked item. A list of such lists is a
            batch.
          context: Feature name to value; a feature is missing where it is absent, None or
            NaN. A batch takes a list of contexts, one for each list of items.
          k: How many items to list, at most all; fewer are listed where fewer may be.
          slots: How many masked positions to append; without effect where an item is None.
          exclude: Items that are not listed.
          only: The items to choose from; None for all.

        Returns:
          A completion, or a list of them for a batch.
        """
        if not (_is_list(items) and len(items) and _is_list(items[0])):
            query = Query(items, context, k, slots, exclude, only)  # type: ignore[arg-type]
            return self.complete_batch([query])[0]
        contexts = [None] * len(items) if context is None else context
        if not _is_list(contexts) or len(contexts) != len(items):
            raise UserError(
                f"items is a batch of {len(items)} lists; context must be a list of as many"
            )
        return self.complete_batch(
            [
                Query(one, given, k, slots, exclude, only)  # type: ignore[arg-type]
                for one, given in zip(items, contexts, strict=True)
            ]
        )

    def complete_batch(self, queries: Sequence[Query | Mapping[str, Any]]) -> list[Completion]:
        """Completes queries of any lengths, in one call of the device where they fit.

        A query may be a mapping with the fields of `Query`, or a record. One refused query
        refuses all, so `check` each query first.
        """
        return self.predict_checked(check_all(self.check, queries))

    def predict_checked(self, queries: Sequence[EncodedQuery]) -> list[Completion]:
        """Completes queries that `check` has encoded, in one call."""
        check_encoded(queries, EncodedQuery)
        if not queries:
            return []
        owners = [index for index, query in enumerate(queries) for _ in query.masked]
        rows = Rows(
            [queries[owner].codes for owner in owners],
            [position for query in queries for position in query.masked],
            self._columns(queries[owner].context for owner in owners),
        )
        log_probabilities, items = self.program.rank(
            rows,
            np.array(owners),
            [query.candidates for query in queries],
            max(query.k for query in queries),
        )
        lists: list[list[list[Prediction]]] = [[] for _ in queries]
        for owner, values, codes in zip(owners, log_probabilities, items, strict=True):
            lists[owner].append(self._predictions(queries[owner], values, codes))
        return [
            Completion(
                predictions,
                query.unknown_items,
                query.context.unknown,
                query.context.missing,
                query.cut > 0,
            )
            for query, predictions in zip(queries, lists, strict=True)
        ]

    def _predictions(
        self, query: EncodedQuery, log_probabilities: np.ndarray, codes: np.ndarray
    ) -> list[Prediction]:
        probabilities = np.exp(log_probabilities[: query.k]).tolist()
        pairs = zip(probabilities, codes[: query.k].tolist(), strict=True)
        return [
            Prediction(self.schema.items[code], probability, rank)
            for rank, (probability, code) in enumerate(pairs, 1)
        ]

    def score(self, items: Sequence[str], context: Mapping[str, Any] | None = None) -> Scores:
        """Scores how each item fits: each is masked in turn, and scored given the others.

        Ranks are among all real items, as in evaluation, visible ones included.
        """
        codes, unknown = self._checker.visible(items)
        given = self._checker.context(context)
        known = [position for position, code in enumerate(codes) if code >= 0]
        items = [*map(str, items)]  # They may be NumPy's.
        scores = [Score(item, None, None) for item in items]
        if known:
            masked = [[*codes[:n], MASK_ITEM, *codes[n + 1 :]] for n in known]
            rows = Rows(masked, known, self._columns([given] * len(known)))
            targets = np.array([codes[position] for position in known], np.int32)
            values, _, ranks = self.program.score(rows, targets)
            triples = zip(known, values.tolist(), ranks.tolist(), strict=True)
            for position, value, rank in triples:
                scores[position] = Score(items[position], value, rank)
        return Scores(scores, unknown, given.unknown, given.missing)

    def explain(
        self, items: Sequence[str | None], context: Mapping[str, Any] | None, item: str
    ) -> Explanation:
        """Computes how each feature of the context changes the prediction of one item.

        Args:
          items: Visible items; at most one may be None, else a position is appended.
          context: Feature name to value.
          item: The item to explain.
        """
        query = self._checker.query(Query(items, context, k=1))
        if len(query.masked) > 1:
            raise UserError(
                f"items has {len(query.masked)} that are None; explain takes at most one"
            )
        target = self._checker.code(item)
        if self.schema.kind == SET and target in query.codes:
            raise UserError(f"item {shown(item)} is among the items; a set has no repeats")
        given = query.context
        observed, contexts = given.with_each_dropped()
        rows = Rows(
            [query.codes] * len(contexts),
            query.masked * len(contexts),
            context_lib.columns(self.schema, contexts),
        )
        targets = np.full(len(contexts), target, np.int32)
        log_probability, log_odds, _ = self.program.score(rows, targets)
        return Explanation(
            item=item,
            probability=float(np.exp(log_probability[0])),
            log_odds=float(log_odds[0]),
            features=self.feature_importance(given.values, observed, log_odds),
            outside_training=self.outside_training,
            uses_context=self.uses_context,
            unknown_items=query.unknown_items,
            unknown_context=given.unknown,
            missing_context=given.missing,
            cut=query.cut > 0,
        )

    def context_vector(self, context: Mapping[str, Any] | None) -> np.ndarray:
        """Each feature's embedding in turn, `float32 [C]`; it conditions the model."""
        return self.program.context_vector(self._columns([self._checker.context(context)]))

    def _columns(self, contexts: Iterable[CheckedContext]) -> dict[str, list[Any]]:
        return context_lib.columns(self.schema, (context.values for context in contexts))


def _is_list(value: Any) -> bool:
    """Whether it is one, or an array, as pandas reads lists from Parquet."""
    return isinstance(value, list | tuple | np.ndarray)
