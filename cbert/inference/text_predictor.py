"""A model of texts that predicts, embeds and explains.

Legend: N texts, D model dimension.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import ml_collections
import numpy as np

from cbert.errors import UserError, check_choice, shown
from cbert.inference import context as context_lib
from cbert.inference import token_readers
from cbert.inference.base import BasePredictor
from cbert.inference.queries import check_all, check_encoded
from cbert.inference.text_checks import MASKED_LANGUAGE, EncodedText, TextChecker, Window
from cbert.inference.text_program import FIRST_TOKEN, TextProgram, TextRows
from cbert.inference.text_queries import TextExplanation, TextPrediction, TextQuery
from cbert.inference.text_readers import common, sigmoid
from cbert.schema import Schema


class TextPredictor(BasePredictor):
    """Predicts with one model on one device; safe to call from several threads.

    All texts are checked before anything is computed; a wrong one raises `UserError`, one line
    that names the value and the fix. Values of the context that training never saw are no
    mistake, and neither is a text that is too long, which is cut; results say so. A passage
    that is searched for spans is read in windows instead, where those of training were.
    """

    program: TextProgram

    def __init__(
        self,
        schema: Schema,
        config: ml_collections.ConfigDict,
        step: int,
        program: TextProgram,
        *,
        uses_context: bool,
    ) -> None:
        super().__init__(schema, config, step, program, uses_context=uses_context)
        self._checker = TextChecker(schema, self.task, self.says_what_follows)
        self._reader = token_readers.create(config, schema, program)

    @property
    def says_what_follows(self) -> bool:
        """Whether the model says if a second text follows the first."""
        options = self.config.task.masked_language
        return self.task == MASKED_LANGUAGE and options.next_sentence

    def check(
        self, query: TextQuery | Mapping[str, Any], predicted: bool = True
    ) -> EncodedText:
        """Tokenises a query for `predict_checked`; raises `UserError` where `predict` would.

        For `embed_checked`, `predicted` is False: there need not be anything to predict.
        """
        return self._checker.query(query, predicted)

    def predict(
        self,
        text: str | None = None,
        context: Mapping[str, Any] | None = None,
        text_b: str | None = None,
        words: Sequence[str] | None = None,
        k: int = 5,
    ) -> TextPrediction:
        """Predicts what the run's task asks of a text, given its context.

        Args:
          text: The text; a masked language model predicts each `[MASK]` written in it.
          context: Feature name to value; a feature is missing where it is absent, None or
            NaN.
          text_b: The second text of a pair.
          words: The words to tag, in place of the text.
          k: How many tokens, labels or spans to list.

        Returns:
          The class of the task in `text_queries`.
        """
        return self.predict_batch([TextQuery(text, context, text_b, words, k)])[0]

    def predict_batch(
        self, queries: Sequence[TextQuery | Mapping[str, Any]]
    ) -> list[TextPrediction]:
        """Predicts texts of any lengths, those of about one length in one call of the device.

        A query may be a mapping with the fields of `TextQuery`, or a record. One refused query
        refuses all, so `check` each query first.
        """
        return self.predict_checked(check_all(self.check, queries))

    def predict_checked(self, queries: Sequence[EncodedText]) -> list[TextPrediction]:
        """Predicts queries that `check` has encoded."""
        check_encoded(queries, EncodedText)
        if not queries:
            return []
        windows = [
            (window, query.context.values) for query in queries for window in query.windows
        ]
        return self._reader.results(queries, self.program.outputs(self._rows(windows)))

    def embed(
        self,
        texts: Sequence[str],
        contexts: Sequence[Mapping[str, Any] | None] | None = None,
        texts_b: Sequence[str | None] | None = None,
        pooling: str = FIRST_TOKEN,
    ) -> np.ndarray:
        """The last block's output for each text, `float32 [N, D]`.

        Args:
          texts: N texts, none of them empty.
          contexts: A context for each text; None for none.
          texts_b: The second text of each pair; None for none.
          pooling: `cls`, the output at `[CLS]`, or `mean`, the mean over all tokens,
            `[CLS]` and `[SEP]` included.
        """
        columns = [_as_many(texts, "contexts", contexts), _as_many(texts, "texts_b", texts_b)]
        queries = [TextQuery(*fields) for fields in zip(texts, *columns, strict=True)]
        check = functools.partial(self.check, predicted=False)
        return self.embed_checked(check_all(check, queries), pooling)

    def embed_checked(
        self, queries: Sequence[EncodedText], pooling: str = FIRST_TOKEN
    ) -> np.ndarray:
        """Embeds queries that `check` has encoded, `float32 [N, D]`; see `embed`."""
        check_choice("pooling", pooling, [*self.program.functions.embeddings])
        if not queries:
            return np.zeros((0, self.config.model.dimension), np.float32)
        rows = self._rows([(query, query.context.values) for query in queries])
        return self.program.embed(rows, pooling)

    def explain(
        self,
        text: str | None = None,
        context: Mapping[str, Any] | None = None,
        text_b: str | None = None,
        words: Sequence[str] | None = None,
    ) -> TextExplanation:
        """Computes how each feature of the context changes the first prediction.

        Arguments as in `predict`.
        """
        return self.explain_checked(self.check(TextQuery(text, context, text_b, words)))

    def explain_checked(self, encoded: EncodedText) -> TextExplanation:
        """`explain` of what `check` returned."""
        observed, contexts = encoded.context.with_each_dropped()
        windows = [(window, each) for each in contexts for window in encoded.windows]
        first = self._reader.first(encoded, self.program.outputs(self._rows(windows)))
        values = first.values.astype(np.float64)
        return TextExplanation(
            prediction=first.prediction,
            word=first.word,
            probability=None if first.is_number else float(sigmoid(values[0])),
            log_odds=None if first.is_number else float(values[0]),
            features=self.feature_importance(encoded.context.values, observed, values),
            outside_training=self.outside_training,
            uses_context=self.uses_context,
            **common(encoded),
        )

    def _rows(
        self, texts: Sequence[tuple[EncodedText | Window, Mapping[str, Any]]]
    ) -> TextRows:
        """A row for each text or window, with the values of its context."""
        return TextRows(
            [text.tokens for text, _ in texts],
            [text.positions for text, _ in texts],
            context_lib.columns(self.schema, (values for _, values in texts)),
        )


def _as_many(texts: Any, name: str, values: Any) -> Sequence[Any]:
    """A column beside the texts, None where it was not given; raises `UserError`."""
    if not isinstance(texts, list | tuple):
        raise UserError(f"texts must be a list of strings, not {shown(texts)}")
    if values is None:
        return [None] * len(texts)
    if not isinstance(values, list | tuple) or len(values) != len(texts):
        raise UserError(f"{name} must be a list of as many as there are texts, {len(texts)}")
    return values
