"""What a served model reads of a query's context: attention to features, or gates.

Legend: L positions, padded; N names of what is read.
"""

from typing import Any

import numpy as np
from starlette.requests import Request

from cbert.errors import UserError
from cbert.evaluation import attention, gates, sown
from cbert.inference.base import BasePredictor
from cbert.inference.checks import EncodedQuery
from cbert.inference.queries import Query
from cbert.inference.text_checks import EncodedText
from cbert.inference.text_queries import TextQuery
from cbert.schema import PAD_ITEM
from cbert.serving import messages
from cbert.serving.service import Service
from cbert.training import config as config_lib


def shown_by(predictor: BasePredictor) -> str:
    """`attention` or `gates`; empty for a model that shows nothing or reads no context."""
    return sown.shown_by(predictor.method) if predictor.uses_context else ""


class Reader:
    """Measures what one model reads of the context of one query.

    Args:
      predictor: Its model shows something.
    """

    def __init__(self, predictor: BasePredictor) -> None:
        self._predictor = predictor
        self._what = shown_by(predictor)
        self._model = config_lib.build_model(predictor.config, predictor.schema)
        reduce = attention.means if self._what == sown.ATTENTION else gates.distributions
        self._compute = sown.of_columns(self._model, reduce)

    def warm_up(self) -> None:
        """Compiles for every padded length."""
        for length in self._predictor.program.lengths:
            self._values(np.zeros(length), np.zeros(length), {})

    def read(self, query: EncodedQuery | EncodedText) -> messages.Reading:
        """The means over blocks, heads and positions; of a gate over entries and positions."""
        if isinstance(query, EncodedText):
            codes, segments = query.tokens.codes, query.tokens.segments
        else:
            codes, segments = np.array(query.codes), np.zeros(len(query.codes))
        values = self._values(codes, segments, query.context.values)
        if self._what == sown.ATTENTION:
            of_names = np.asarray(values["weights"])[0].mean(axis=0)
            means = dict(zip(attention.names(self._model), of_names.tolist(), strict=True))
        else:  # The mean of a gate comes before its distribution.
            means = {name: float(of_gate[0, 0]) for name, of_gate in values.items()}
        return messages.Reading.model_validate({"what": self._what, "values": means})

    def _values(
        self, codes: np.ndarray, segments: np.ndarray, context: dict[str, Any]
    ) -> dict[str, Any]:
        schema, program = self._predictor.schema, self._predictor.program
        length = next(size for size in program.lengths if size >= len(codes))
        columns = {
            "items": _padded(codes, length, PAD_ITEM),
            "segments": _padded(segments, length, 0),
            "context": schema.encode_contexts([context]),
        }
        return self._compute(program.prepared, columns)


def _padded(values: np.ndarray, length: int, fill: int) -> np.ndarray:
    """`int32 [1, L]`."""
    row = np.full((1, length), fill, np.int32)
    row[0, : len(values)] = values
    return row


class Readings:
    """What the served models read, of those that show it; everything is compiled first."""

    def __init__(self, service: Service[Any]) -> None:
        self._service = service
        shown = {name: each for name, each in service.models.items() if shown_by(each)}
        self._readers = {name: Reader(predictor) for name, predictor in shown.items()}
        for reader in self._readers.values():
            reader.warm_up()

    async def read(
        self, request: Request, model: str, query: Query | TextQuery
    ) -> messages.Reading:
        """What a model reads of a query's context; `UserError` where it shows nothing."""
        predictor = self._service.model(model)
        if model not in self._readers:
            raise UserError(
                f"model {model!r} is of the method {predictor.method}, which has neither "
                "attention to the context nor gates to show"
            )
        (encoded,) = await self._service.check(predictor.check, [query])
        return await self._service.call(request, self._readers[model].read, encoded)
