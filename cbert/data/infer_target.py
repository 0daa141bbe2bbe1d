"""The target of a text data set, inferred from its training split."""

import collections
from collections.abc import Collection

from cbert.data.text_records import Text, target_kinds
from cbert.errors import UserError, shown, warn
from cbert.schema import Target
from cbert.schema.target import (
    ALL_PAIRS,
    LABEL,
    LABELS,
    NO_PAIRS,
    NUMBER,
    PUNCTUATION,
    SOME_PAIRS,
    TAGS,
    TARGET_KINDS,
    WHITE_SPACE,
)
from cbert.schema.values import is_number
from cbert.schema.vector import Moments

FEW_NUMBERS = 20  # So many whole numbers are often the codes of classes.
MOST_DEVIATIONS = 1e5  # From zero; farther away float32 is too coarse.
_MARKS = frozenset(".,;:?!")
NONE = "none"  # The choice of no target although the records have one.
CHOICES = (*TARGET_KINDS, NONE)


class TargetAccumulator:
    """Infers a target from texts that it sees one after the other and does not keep.

    Args:
      chosen: The kind that the user wants, `NONE`, or None where the records decide.
      order: Values that come first and in this order, whatever their counts.
    """

    def __init__(self, chosen: str | None = None, order: tuple[str, ...] = ()) -> None:
        self._chosen, self._order = chosen, order
        self._seen: collections.Counter[str] = collections.Counter()
        self._values = {kind: collections.Counter[str]() for kind in (LABEL, LABELS, TAGS)}
        self._numbers = Moments("label", None)
        self._different: set[float] = set()
        self._pairs: collections.Counter[bool] = collections.Counter()
        self._marks: collections.Counter[str] = collections.Counter()

    def observe(self, text: Text) -> None:
        """Takes a text of the training split."""
        self._seen.update(target_kinds(text))
        self._pairs[text.text_b is not None] += 1
        if isinstance(text.label, str):
            self._values[LABEL][text.label] += 1
        elif isinstance(text.label, list):
            self._values[LABELS].update(text.label)
        elif text.label is not None:
            self._numbers.observe([text.label])
            if len(self._different) <= FEW_NUMBERS:
                self._different.add(text.label)
        if text.tags is not None:
            self._values[TAGS].update(text.tags)
            for word in text.words or ():
                if word in _MARKS:
                    self._marks[PUNCTUATION] += 1
                elif word[-1:] in _MARKS and word[-2:-1].isalnum():  # Not "..." or "?!".
                    self._marks[WHITE_SPACE] += 1

    def finish(self) -> Target | None:
        """The target; raises `UserError` where the user must choose, or chose an absent one."""
        kinds = [kind for kind in TARGET_KINDS if self._seen[kind]]
        if self._chosen == NONE or (self._chosen is None and not kinds):
            return None
        if self._chosen is None and len(kinds) > 1:
            raise UserError(
                f"the records have several targets; choose one of target={', '.join(kinds)}"
            )
        kind = self._chosen or kinds[0]
        if kind not in kinds:
            fix = f"the training records have {', '.join(kinds)}; give one of those"
            if not kinds:
                fix = f"no training record has one; fill its column, or give target={NONE}"
            raise UserError(f"target is {kind!r}; {fix}")
        if kind == LABEL and not self._chosen and _are_numbers(self._values[LABEL]):
            warn(
                f"the labels are {len(self._values[LABEL])} different numbers, which a "
                "classification takes as names; for a regression give target=number"
            )
        return self._of_numbers() if kind == NUMBER else self._of_values(kind)

    def _of_numbers(self) -> Target:
        if len(self._different) == 1:
            (label,) = self._different
            raise _all_alike(LABEL, label)
        moments = self._numbers.finish()
        if abs(moments.mean) > MOST_DEVIATIONS * moments.scale:
            raise UserError(
                f"the labels lie around {moments.mean:g} with a deviation of "
                f"{moments.scale:g}, too near each other for float32; subtract a constant "
                "from them"
            )
        if not self._chosen:
            self._advise()
        return Target(NUMBER, mean=moments.mean, scale=moments.scale, pairs=self._pairs_seen())

    def _of_values(self, kind: str) -> Target:
        """A target of labels, lists of labels, tags or answers."""
        counts: dict[str, int] = dict(self._values.get(kind, {}))
        values = sorted(counts, key=lambda value: (-counts[value], value))
        _point_out_twins(values)
        if kind == LABELS and not values:
            raise UserError(
                f"every list of labels is empty; give records with some, or target={NONE}"
            )
        if kind in (LABEL, TAGS) and len(values) < 2:
            if self._order:
                raise UserError(f"every pair is {shown(values[0])}; give more documents")
            raise _all_alike(kind, values[0])
        values.sort(key=lambda v: self._order.index(v) if v in self._order else len(values))
        return Target(
            kind,
            tuple(values),
            tuple(counts[value] for value in values),
            pairs=self._pairs_seen(),
            word_ends=self._word_ends_seen(),
        )

    def _pairs_seen(self) -> str:
        """How many of the texts have a second one."""
        if not self._pairs[True]:
            return NO_PAIRS
        return SOME_PAIRS if self._pairs[False] else ALL_PAIRS

    def _word_ends_seen(self) -> str:
        """Whether most punctuation marks are part of the word before them."""
        attached = self._marks[WHITE_SPACE] > self._marks[PUNCTUATION]
        return WHITE_SPACE if attached else PUNCTUATION

    def _advise(self) -> None:
        """Warns where the numbers may be classes."""
        count = len(self._different)
        if 1 < count <= FEW_NUMBERS and all(n == int(n) for n in self._different):
            warn(
                f"the labels are {count} different whole numbers, which a regression learns; "
                "if they are classes, give target=label"
            )


def _point_out_twins(values: list[str]) -> None:
    """Warns of values that a person would take for the same one."""
    first: dict[str, str] = {}
    twins = []
    for value in values:
        twin = first.setdefault(" ".join(value.split()).casefold(), value)
        if twin != value:
            twins.append(f"{shown(twin)} and {shown(value)}")
    if twins:
        pairs = (
            f"{len(twins)} pairs of labels differ" if twins[1:] else "1 pair of labels differs"
        )
        warn(
            f"{pairs} in spaces or capital letters alone, such as {twins[0]}; write them alike "
            "if they are one"
        )


def _are_numbers(labels: Collection[str]) -> bool:
    """Whether all are numbers, and not a few whole ones, which are often codes of classes."""
    if not all(map(is_number, labels)):
        return False
    numbers = {float(label) for label in labels}
    return len(numbers) > FEW_NUMBERS or any(number % 1 for number in numbers)


def _all_alike(kind: str, value: str | float) -> UserError:
    what = "tag" if kind == TAGS else "label"
    return UserError(
        f"every {what} is {shown(value)}; give records with another one, or target={NONE}"
    )
