"""Predicts a text, or a file of them, with a trained model: its tokens, labels, tags or spans.

python -m experiments.predict --workdir=runs/turns --text="Is it far from here?" \\
  --context='{"domain": "Restaurants"}'
python -m experiments.predict --workdir=runs/pretrained --text="I would like some [MASK]." --k=3
python -m experiments.predict --workdir=runs/turns --input=turns.jsonl --output=predicted.jsonl
"""

import functools
import json

import numpy as np
from absl import flags

from cbert.errors import UserError, printable
from cbert.inference.text_queries import (
    ClassificationPrediction,
    MaskedLanguagePrediction,
    MultiLabelPrediction,
    RegressionPrediction,
    SpanPrediction,
    TaggingPrediction,
    TextPrediction,
    TextQuery,
)
from cbert.text_table import align
from experiments import command, query_flags
from experiments.query_flags import parsed

_TEXT = flags.DEFINE_string("text", None, "The text, [MASK] where a token is to be predicted.")
_TEXT_B = flags.DEFINE_string("text_b", None, "The second text of a pair.")
_WORDS = flags.DEFINE_string("words", "null", "JSON list of the words to tag, not --text.")
_K = flags.DEFINE_integer("k", 5, "How many tokens, labels or spans to list.", lower_bound=1)


# --help lists them, too.
flags.adopt_module_key_flags(query_flags)


def main() -> None:
    """Predicts one text of the command line, or all of a file."""
    words = parsed(_WORDS)
    if _TEXT.value is not None and words is not None:
        raise UserError("give one of --text and --words")
    given = _TEXT.value is not None or words is not None
    query_flags.check_one_input("text=TEXT", given)
    context = parsed(query_flags.CONTEXT)
    predictor = query_flags.load_for_texts()
    if query_flags.INPUT.value is not None:
        query_flags.predict_file(predictor, TextQuery(None, context, _TEXT_B.value, k=_K.value))
        return
    query = TextQuery(_TEXT.value, context, _TEXT_B.value, words, _K.value)
    prediction = predictor.predict_batch([query])[0]
    as_json = json.dumps(prediction.to_dict())
    print(as_json if query_flags.JSON.value else format_prediction(prediction))


def format_prediction(prediction: TextPrediction) -> str:
    """Tables of what was predicted; below, unknown values, missing features, and a cut."""
    notes = query_flags.context_notes(prediction.unknown_context, prediction.missing_context)
    notes += query_flags.text_notes(prediction.cut)
    return "\n\n".join(part for part in (*_tables(prediction), "\n".join(notes)) if part)


@functools.singledispatch
def _tables(prediction: TextPrediction) -> list[str]:
    """What was predicted, as a person reads it."""
    raise NotImplementedError


@_tables.register
def _(prediction: MaskedLanguagePrediction) -> list[str]:
    several = len(prediction.masks) > 1
    tables = []
    for number, tokens in enumerate(prediction.masks, 1):
        head = f"[MASK] {number}" if several else "token"
        rows = [(one.token, one.probability) for one in tokens]
        tables.append(_table(head, rows))
    if prediction.follows is not None:
        tables.append(f"the second text follows: {prediction.follows:.2%}")
    return tables


@_tables.register
def _(prediction: ClassificationPrediction) -> list[str]:
    return [_table("label", [(one.label, one.probability) for one in prediction.labels])]


@_tables.register
def _(prediction: MultiLabelPrediction) -> list[str]:
    table = _table("label", [(one.label, one.probability) for one in prediction.labels])
    hold = ", ".join(map(printable, prediction.above_half)) or "none"
    return [table, f"hold, above one half: {hold}"]


@_tables.register
def _(prediction: RegressionPrediction) -> list[str]:
    return [str(np.float32(prediction.number))]


@_tables.register
def _(prediction: TaggingPrediction) -> list[str]:
    rows = [[one.word, one.tag or "", _percent(one.probability)] for one in prediction.words]
    words = align([["word", "tag", "probability"], *rows])
    spans = [[one.type, printable(one.text)] for one in prediction.spans]
    return [words, *([align([["type", "span"], *spans])] if spans else [])]


@_tables.register
def _(prediction: SpanPrediction) -> list[str]:
    # No answer comes first where no span is more probable.
    spans = [(one.text, one.probability) for one in prediction.spans]
    rows = sorted([("(none)", prediction.no_answer), *spans], key=lambda row: -row[1])
    return [_table("answer", rows)]


def _table(head: str, rows: list[tuple[str, float]]) -> str:
    return align([[head, "probability"], *([name, _percent(value)] for name, value in rows)])


def _percent(probability: float | None) -> str:
    return "" if probability is None else f"{probability:.2%}"


if __name__ == "__main__":
    command.run(main)
