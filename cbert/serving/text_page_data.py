"""The data of the page of a model of texts."""

import dataclasses
from collections.abc import Mapping

from cbert.inference.text_predictor import TextPredictor
from cbert.inference.text_queries import TextQuery
from cbert.schema.target import ALL_PAIRS, NO_PAIRS
from cbert.serving import page_data, text_messages
from cbert.tasks.span import Span

# A work directory holds no texts, and one of the data could be private.
_TEXT = "I would like to book a table for two people at seven tomorrow evening."
_NEXT = "For how many people shall it be?"
_PASSAGE = "Dinner is served from six in the evening until ten, on every day but Monday."


def describe(models: Mapping[str, TextPredictor]) -> text_messages.TextDescription:
    """The models, their task, and the schema they share; of the tokens only their number."""
    main = models["main"]
    schema = main.schema
    target = dataclasses.asdict(schema.target) if schema.target else None
    return text_messages.TextDescription(
        **page_data.shared(models),
        task=main.task,
        next_sentence=main.says_what_follows,
        max_length=schema.max_items,
        tokens=len(schema.items),
        target=text_messages.Target.model_validate(target) if target else None,
        example=example(main),
    )


def example(predictor: TextPredictor) -> text_messages.TextExample:
    """A plain text to start from, in an average context."""
    target = predictor.schema.target
    pairs = NO_PAIRS if target is None else target.pairs
    follows = predictor.says_what_follows or pairs == ALL_PAIRS
    text, text_b = _TEXT, _NEXT if follows else None
    if predictor.task == Span.name:
        question = "When is dinner served?"
        text, text_b = (_PASSAGE, None) if pairs == NO_PAIRS else (question, _PASSAGE)
    context = page_data.average_context(predictor.schema)
    text, text_b = _that_fit(predictor, text, text_b)
    return text_messages.TextExample(text=text, text_b=text_b, context=context)


def _that_fit(
    predictor: TextPredictor, text: str, text_b: str | None
) -> tuple[str, str | None]:
    """The texts without the last words of the longer one, so that the model cuts nothing."""
    words, words_b = text.split(), (text_b or "").split()
    while max(len(words), len(words_b)) > 1:
        text, text_b = " ".join(words), " ".join(words_b) or None
        if not predictor.check(TextQuery(text, text_b=text_b), predicted=False).tokens.cut:
            break
        max(words, words_b, key=len).pop()
    return " ".join(words), " ".join(words_b) or None
