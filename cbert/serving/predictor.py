"""A model that answers: completes sets and sequences, scores items, explains itself."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ml_collections
import numpy as np

from cbert import progress
from cbert.errors import UserError
from cbert.schema import MASK_ITEM, Schema
from cbert.serving.answers import (
    Completion,
    Explanation,
    Prediction,
    Query,
    Score,
    Scores,
)
from cbert.serving.checks import Checker, Context, Question
from cbert.serving.program import Program, Rows

WITHOUT_CONTEXT = "none"


class Predictor:
    """Answers questions with one model on one device; safe to call from several threads.

    All questions are checked before anything is computed; what cannot be answered raises
    `UserError`, one line that names the value and the fix. Items and values that training
    never saw are no mistake: they are answered, and reported with the answer.

    Attributes:
      schema: Vocabulary and features.
      config: The run's config.
      step: The step of the parameters.
    """

    def __init__(
        self,
        schema: Schema,
        config: ml_collections.ConfigDict,
        step: int,
        checker: Checker,
        program: Program,
    ) -> None:
        self.schema, self.config, self.step = schema, config, step
        self.program = program
        self._checker = checker

    @property
    def method(self) -> str:
        """Short name of the conditioning method."""
        return self.config.model.method

    def warm_up(self) -> None:
        """Compiles what `complete` (lists of up to 16 items), `score` and `explain` need."""
        sizes = len(self.program.lengths) * len(self.program.batch_sizes)
        with progress.bar(desc="compiling", total=sizes, leave=False) as bar:
            for shape in self.program.warm_up():
                bar.set_postfix_str(shape)
                bar.update()

    def check(self, query: Query) -> Question:
        """Raises `UserError` where `complete` would; what it returns, `answer` answers."""
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
        """Ranks items for each hidden position, given the visible items and the context.

        A probability is the model's among all real items. With `only` or `exclude` it is the
        probability among the items that may then still be listed, so that these sum to 1. In
        a set, visible items are not listed, for a set has no repeats; this alone changes no
        probability. A set's appended positions are alike, and so are their lists.

        Args:
          items: Visible items; None at a position says that its item is hidden. A list of
            such lists is a batch.
          context: Feature name to value; what is absent or None is missing. For a batch a
            list of them, one for each list of items.
          k: How many items to list; fewer are listed where fewer may be.
          slots: Hidden positions to append; without effect where an item is None.
          exclude: Items not to list.
          only: The items to choose from; None for all.

        Returns:
          A completion, or a list of them for a batch.
        """
        if not (isinstance(items, list | tuple) and items and _is_list(items[0])):
            return self.complete_batch([Query(items, context, k, slots, exclude, only)])[0]
        contexts = [None] * len(items) if context is None else context
        if not _is_list(contexts) or len(contexts) != len(items):
            raise UserError(
                f"items is a batch of {len(items)} lists; context must be a list of as many"
            )
        return self.complete_batch(
            [
                Query(one, given, k, slots, exclude, only)
                for one, given in zip(items, contexts, strict=True)
            ]
        )

    def complete_batch(self, queries: Sequence[Query]) -> list[Completion]:
        """Answers queries of any lengths together, in one call of the device where they fit.

        One query that is refused refuses all: `check` them before they are put together.
        """
        return self.answer([self.check(query) for query in queries])

    def answer(self, asked: Sequence[Question]) -> list[Completion]:
        """Answers what `check` has let through, all together."""
        if not asked:
            return []
        owners = [place for place, one in enumerate(asked) for _ in one.hidden]
        rows = Rows(
            [asked[owner].codes for owner in owners],
            [place for one in asked for place in one.hidden],
            self._columns(asked[owner].context for owner in owners),
        )
        log_probabilities, items = self.program.rank(
            rows,
            np.array(owners),
            np.stack([one.candidates for one in asked]),
            np.array([one.restricted for one in asked]),
            max(one.k for one in asked),
        )
        lists: list[list] = [[] for _ in asked]
        for owner, values, codes in zip(owners, log_probabilities, items, strict=True):
            lists[owner].append(self._predictions(asked[owner], values, codes))
        return [
            Completion(found, one.unknown_items, one.context.unknown, list(one.context.missing))
            for one, found in zip(asked, lists, strict=True)
        ]

    def _predictions(
        self, asked: Question, log_probabilities: np.ndarray, codes: np.ndarray
    ) -> list[Prediction]:
        count = min(asked.k, int(asked.candidates.sum()))
        probabilities = np.exp(log_probabilities[:count]).tolist()
        pairs = zip(probabilities, codes[:count].tolist(), strict=True)
        return [
            Prediction(self.schema.items[code], probability, rank)
            for rank, (probability, code) in enumerate(pairs, 1)
        ]

    def score(self, items: Sequence[str], context: Mapping[str, Any] | None = None) -> Scores:
        """How each item fits: hidden in turn, and asked for given the others.

        Ranks are among all real items, as in evaluation, visible ones included.
        """
        codes, unknown = self._checker.visible(items)
        given = self._checker.context(context)
        known = [place for place, code in enumerate(codes) if code >= 0]
        scores = [Score(item, None, None) for item in items]
        if known:
            hidden = [[*codes[:place], MASK_ITEM, *codes[place + 1 :]] for place in known]
            rows = Rows(hidden, known, self._columns([given] * len(known)))
            targets = np.array([codes[place] for place in known], np.int32)
            values, _, ranks = self.program.score(rows, targets)
            for place, value, rank in zip(known, values.tolist(), ranks.tolist(), strict=True):
                scores[place] = Score(items[place], value, rank)
        return Scores(scores, unknown, given.unknown, given.missing)

    def explain(
        self, items: Sequence[str | None], context: Mapping[str, Any] | None, item: str
    ) -> Explanation:
        """What each feature of the context does for one item at the hidden position.

        Args:
          items: Visible items; at most one may be None, else a position is appended.
          context: Feature name to value.
          item: The item asked about.
        """
        asked = self._checker.query(Query(items, context, k=1))
        if len(asked.hidden) > 1:
            raise UserError(
                f"items has {len(asked.hidden)} that are None; explain asks about one"
            )
        target = self._checker.code(item)
        if self.schema.kind == "set" and target in asked.codes:
            raise UserError(f"item {item!r:.60} is among the items; a set has no repeats")
        given = asked.context
        observed = [name for name in given.values if name not in given.missing]
        contexts = [given.values, *({**given.values, name: None} for name in observed)]
        rows = Rows(
            [asked.codes] * len(contexts),
            asked.hidden * len(contexts),
            {name: [values[name] for values in contexts] for name in given.values},
        )
        targets = np.full(len(contexts), target, np.int32)
        log_probability, log_odds, _ = self.program.score(rows, targets)
        constant = self.config.model.constant_context
        uses_context = self.method != WITHOUT_CONTEXT and not constant
        effects = dict(zip(observed, (log_odds[0] - log_odds[1:]).tolist(), strict=True))
        return Explanation(
            item=item,
            probability=float(np.exp(log_probability[0])),
            log_odds=float(log_odds[0]),
            features={
                name: effects.get(name, 0.0) if uses_context else 0.0 for name in given.values
            },
            outside_training=self.config.train.context_dropout == 0,
            uses_context=uses_context,
            unknown_items=asked.unknown_items,
            unknown_context=given.unknown,
            missing_context=given.missing,
        )

    def context_vector(self, context: Mapping[str, Any] | None) -> np.ndarray:
        """What the model is conditioned on, `float32 [C]`: each feature's embedding in turn."""
        return self.program.context_vector(self._columns([self._checker.context(context)]))

    def _columns(self, contexts: Iterable[Context]) -> dict[str, list[Any]]:
        contexts = list(contexts)
        return {
            feature.name: [context.values[feature.name] for context in contexts]
            for feature in self.schema.features
        }


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
