"""The text of a record and its targets, validated field by field."""

import dataclasses
import json
import unicodedata
from typing import Any, Self

from cbert.errors import UserError, shown
from cbert.schema import is_finite
from cbert.schema.target import ANSWER, LABEL, LABELS, NUMBER, TAGS
from cbert.schema.values import LARGEST_NUMBER, LONGEST_NAME, check_text, is_number

LONGEST_TEXT = 1_000_000  # Characters.


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """The text of one example.

    Attributes:
      text: The text, or the first one of a pair.
      text_b: The second one of a pair, or None.
      words: The words of the text where they were given, else None.
      tags: A tag for each word, or None.
      label: A string, a list of strings, a number, or None where it is missing.
      answer: The answer's `text` and its first character, `start`, in `text_b` where there is
        one and else in `text`; None where there is no answer.
      window: Of a window of a passage, the passage's character that is its first, `start`, and
        the text of the passage's `answer`, None where there is none; None of what is whole.
    """

    text: str
    text_b: str | None = None
    words: list[str] | None = None
    tags: list[str] | None = None
    label: str | list[str] | float | None = None
    answer: dict[str, Any] | None = None
    window: dict[str, Any] | None = None

    def to_json(self) -> str:
        """The fields that are there, as a record has them."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        given = {name: value for name, value in fields.items() if value is not None}
        return json.dumps(given, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The text of `to_json`."""
        return cls(**json.loads(text))


def validated(row: dict[str, Any]) -> Text:
    """The text of a row; raises `UserError`."""
    words = _words(row.get("words"))
    text, text_b = _text(row, "text"), _text(row, "text_b")
    if text is None:
        if words is None:
            # A cell that is empty is there, so that only records lack the name itself.
            mapped = "" if "text" in row else ", or of a file map it with columns=text:NAME"
            raise UserError(
                f"no 'text'; give a string, or 'words' as a list of strings{mapped}"
            )
        text = " ".join(words)
    if words is not None and text_b is not None:
        raise UserError("a record with 'words' cannot have 'text_b'")
    return Text(
        text,
        text_b,
        words,
        _tags(row.get("tags"), words),
        _label(row.get("label")),
        _answer(row.get("answer"), text if text_b is None else text_b),
    )


def target_kinds(text: Text) -> list[str]:
    """The kinds of target that a record has a value for."""
    kinds = []
    if isinstance(text.label, str):
        kinds.append(LABEL)
    elif isinstance(text.label, list):
        kinds.append(LABELS)
    elif text.label is not None:
        kinds.append(NUMBER)
    if text.tags is not None:
        kinds.append(TAGS)
    if text.answer is not None:
        kinds.append(ANSWER)
    return kinds


def with_label_as(text: Text, kind: str | None) -> Text:
    """The text with a number as the name of a class, or a string as the number that it writes.

    Args:
      text: The text.
      kind: The kind of target that was asked for, or that a schema has.

    Raises:
      UserError: the target is a label, labels or a number, and the label cannot be read so.
    """
    label = text.label
    if kind == LABEL and isinstance(label, int | float):
        name = str(int(label)) if label == int(label) else str(label)
        return dataclasses.replace(text, label=name)
    if kind == NUMBER and isinstance(label, str):
        if not is_number(label):
            raise UserError(
                f"'label' is {shown(label)}, and a target of numbers needs a number; write "
                "one, or null where it is missing; in CSV leave the cell empty, or give "
                "missing=WORD"
            )
        return dataclasses.replace(text, label=_label(float(label)))
    wanted = {LABEL: "a string", LABELS: "a list of strings", NUMBER: "a number"}
    if label is not None and kind in wanted and kind not in target_kinds(text):
        in_csv = ", in CSV with multi_valued=label" if kind == LABELS else ""
        raise UserError(
            f"'label' is {shown(label)}, and the target needs {wanted[kind]}; write "
            f"one{in_csv}, or choose another target"
        )
    return text


def is_visible(text: str) -> bool:
    """Whether any character is no space and none of those that BERT's normaliser removes."""
    return any(
        not one.isspace() and unicodedata.category(one)[0] != "C" and one != "\ufffd"
        for one in text
    )


def _text(row: dict[str, Any], field: str) -> str | None:
    text = row.get(field)
    if text is None:
        return None
    if not isinstance(text, str):
        raise UserError(f"{field!r} must be a string, not {shown(text)}")
    check_text(text, field, LONGEST_TEXT)
    if not is_visible(text):
        raise UserError(f"{field!r} is empty or of invisible characters; leave the record out")
    return text


def _words(raw: Any) -> list[str] | None:
    if raw is None:
        return None
    words = _strings(raw, "words")
    if not words:
        raise UserError("'words' is empty; a sentence needs at least one word")
    if not any(map(is_visible, words)):
        raise UserError("'words' has invisible characters only; leave the record out")
    if sum(map(len, words)) > LONGEST_TEXT:
        raise UserError(f"'words' has more than {LONGEST_TEXT} characters")
    return words


def _tags(raw: Any, words: list[str] | None) -> list[str] | None:
    if raw is None:
        return None
    tags = _strings(raw, "tags")
    if words is None:
        raise UserError(
            "'tags' needs 'words', a list with a word for each tag; a field that holds no tags "
            "needs another name, or of a table give drop=tags"
        )
    if len(tags) != len(words):
        raise UserError(f"there are {len(tags)} tags for {len(words)} words; give one a word")
    return tags


def _label(raw: Any) -> str | list[str] | float | None:
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, list):
        return sorted(set(_strings(raw, "label")))
    if isinstance(raw, str):
        return _strings([raw], "label")[0]
    if raw is not None and not is_finite(raw):
        raise UserError(
            f"'label' is {shown(raw)}; use a string, a list of strings, a finite number, "
            f"smaller than {LARGEST_NUMBER:g} in size, or null"
        )
    return raw


def _answer(raw: Any, text: str) -> dict[str, Any] | None:
    """The answer without spaces around it, which must occur in the text at its `start`."""
    if raw is None:
        return None
    if not isinstance(raw, dict) or set(raw) != {"text", "start"}:
        raise UserError(
            f"'answer' is {shown(raw)}; it must be an object of text and start; a field that "
            "holds no answer needs another name, or of a table give drop=answer"
        )
    answer, start = raw["text"], raw["start"]
    if not isinstance(answer, str) or not answer.strip():
        raise UserError(f"the answer's text is {shown(answer)}; without an answer use null")
    if not isinstance(start, int) or isinstance(start, bool) or start < 0:
        raise UserError(f"the answer's start is {shown(start)}; count characters from 0")
    if text[start : start + len(answer)] != answer:
        there = text[start : start + min(len(answer), 60)]
        raise UserError(
            f"the answer is {shown(answer)} but the text has {shown(there)} at {start}; count "
            "characters, not bytes, from 0"
        )
    space = len(answer) - len(answer.lstrip())
    return {"text": answer.strip(), "start": start + space}


def _strings(raw: Any, field: str) -> list[str]:
    if not isinstance(raw, list):
        raise UserError(f"{field!r} must be a list of strings, not {shown(raw)}")
    for one in raw:
        if not isinstance(one, str) or not one.strip():
            raise UserError(f"{field!r} holds {shown(one)}; use strings that are not empty")
        check_text(one, field, LONGEST_TEXT if field == "words" else LONGEST_NAME)
    return raw
