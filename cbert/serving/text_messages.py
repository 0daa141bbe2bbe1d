"""The bodies of requests and responses about texts."""

from typing import Annotated, Any, Generic, Literal, TypeVar

import pydantic

from cbert.inference.text_queries import TextQuery
from cbert.serving import messages

Prediction = TypeVar("Prediction")
Text = Annotated[str, pydantic.Field(description="The text; `[MASK]` stands for a token.")]
SecondText = Annotated[str, pydantic.Field(description="The second text of a pair.")]
_K_SCHEMA: dict[str, Any] = {"minimum": 1, "description": "How many to list."}
_words = pydantic.Field(max_length=10_000, fail_fast=True, description="The words to tag.")


class TextQueryBody(messages.Body):
    """A text, or the words of one, to predict something of."""

    text: Text | None = None
    text_b: SecondText | None = None
    words: Annotated[list[str], _words] | None = None
    context: messages.ContextBody = None

    def query(self) -> TextQuery:
        return TextQuery(self.text, self.context, self.text_b, self.words)

    def characters(self) -> list[int]:
        """How many characters each text has."""
        return [len(self.text or ""), len(self.text_b or ""), sum(map(len, self.words or ()))]


class ListedQueryBody(TextQueryBody):
    """A text, and how many predictions to list."""

    k: Annotated[int, pydantic.Field(le=messages.MAX_K, json_schema_extra=_K_SCHEMA)] = 5

    def query(self) -> TextQuery:
        return TextQuery(self.text, self.context, self.text_b, self.words, self.k)


class PredictBody(ListedQueryBody, messages.ModelBody):
    """A text to predict something of with one model."""


class PredictBatchBody(messages.ModelBody):
    """Several texts, predicted together."""

    queries: Annotated[list[ListedQueryBody], messages.few_queries, messages.few_values]


class ExplainTextBody(TextQueryBody, messages.ModelBody):
    """A text whose first prediction is to be explained."""


class ReadingTextBody(TextQueryBody, messages.ModelBody):
    """A text of which the model reads the context."""


class EmbeddedTextBody(messages.Body):
    """A text or a pair to embed."""

    text: Text
    text_b: SecondText | None = None
    context: messages.ContextBody = None

    def characters(self) -> list[int]:
        """How many characters each text has."""
        return [len(self.text), len(self.text_b or "")]

    def query(self) -> TextQuery:
        return TextQuery(self.text, self.context, self.text_b)


class EmbedBody(messages.ModelBody):
    """Several texts to embed."""

    queries: Annotated[list[EmbeddedTextBody], messages.few_queries, messages.few_values]
    pooling: Literal["cls", "mean"] = "cls"


class Predictions(pydantic.BaseModel, Generic[Prediction]):
    """A prediction for each query, in their order."""

    predictions: list[Prediction]


class Embeddings(pydantic.BaseModel):
    """A vector for each text, in their order."""

    embeddings: list[list[float]]


class Target(pydantic.BaseModel):
    """What the model predicts: its values, or the mean and the deviation of a number.

    `pairs` is `none`, `some` or `all`: how many texts of the training data have a second one.
    """

    kind: str
    values: tuple[str, ...]
    mean: float
    scale: float
    pairs: str


class TextExample(pydantic.BaseModel):
    """A text to start from."""

    text: str
    text_b: str | None = None
    context: dict[str, messages.Value]


class TextDescription(messages.Shared):
    """The models served, their task, and the schema that they share."""

    kind: Literal["text"] = "text"
    task: str
    next_sentence: bool
    max_length: int
    tokens: int
    target: Target | None
    example: TextExample
