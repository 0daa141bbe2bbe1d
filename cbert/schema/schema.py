"""The schema of a data set.

Legend: M examples, L items of the longest, K entries of a coded row, V pieces.
"""

import dataclasses
import difflib
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cbert.errors import UserError, shown
from cbert.schema.feature import Feature
from cbert.schema.python_values import plain, without_booleans
from cbert.schema.target import Target
from cbert.schema.tokenizer import PREFIX, TokenizerOptions
from cbert.schema.values import PAD_ITEM, UNKNOWN_ITEM, check_room

SET, SEQUENCE, TEXT = "set", "sequence", "text"


@dataclasses.dataclass(frozen=True)
class Schema:
    """The vocabulary and the features of a data set; travels with data and checkpoints.

    Attributes:
      kind: `set` (no order, no repeats), `sequence` or `text`.
      max_items: The most items that an example holds. Of a text these are its tokens, [CLS]
        and [SEP] included, and longer texts are cut.
      items: Names of the real items, or the WordPiece vocabulary of a text; an item's code is
        its index here.
      counts: How often each occurs in the training split.
      features: The context's features, in the order of the context vector.
      tokenizer: The options of the tokeniser; None for items.
      target: The target of a supervised task; None where there is none.
    """

    kind: str
    max_items: int
    items: tuple[str, ...]
    counts: tuple[int, ...]
    features: tuple[Feature, ...]
    tokenizer: TokenizerOptions | None = None
    target: Target | None = None

    def __repr__(self) -> str:
        """A line, because the items and the features' values may be many thousands."""
        names = ", ".join(feature.name for feature in self.features)
        return f"Schema({self.kind}, {len(self.items):,} items, features: {names or 'none'})"

    @functools.cached_property
    def codes(self) -> dict[str, int]:
        return {name: code for code, name in enumerate(self.items)}

    @functools.cached_property
    def answer_continuations(self) -> np.ndarray | None:
        """Which pieces continue a word, `bool [V]`; None where answers may begin with one."""
        if not self.known_target.whole_words:
            return None
        return np.array([item.startswith(PREFIX) for item in self.items])

    @property
    def known_target(self) -> Target:
        """The target of data that have one, as those of every task with a target do."""
        assert self.target is not None
        return self.target

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels or tags that are told apart; empty where the target has none."""
        return self.target.values if self.target else ()

    @property
    def context_width(self) -> int:
        """C, the length of the context vector."""
        return sum(feature.width for feature in self.features)

    def feature(self, name: str) -> Feature:
        """The feature of that name; raises `UserError` with the names there are."""
        for feature in self.features:
            if feature.name == name:
                return feature
        known = ", ".join(f.name for f in self.features) or "none"
        raise UserError(f"no context feature is called {name!r}; the features are: {known}")

    def check_room(self, examples: int) -> None:
        """Raises `UserError` where a column of so many examples is too large."""
        check_room(examples, self.max_items, "items")
        for feature in self.features:
            feature.check_room(examples)

    def encode_items(self, column: Sequence[Sequence[str]]) -> np.ndarray:
        """Codes `int32 [M, L]`; raises `UserError` when a row has more than `max_items`."""
        check_room(len(column), self.max_items, "items")
        rows = np.full((len(column), self.max_items), PAD_ITEM, np.int32)
        get = self.codes.get
        for row, items in zip(rows, column, strict=True):
            if len(items) > self.max_items:
                raise UserError(
                    f"an example has {len(items)} items where the schema's max_items is "
                    f"{self.max_items}; prepare with max_items={self.max_items} and with "
                    "longer=subsample"
                )
            row[: len(items)] = [get(item, UNKNOWN_ITEM) for item in items]
        return rows

    def encode_feature(self, name: str, column: Sequence[object]) -> np.ndarray:
        """Codes `[M, K]` of a feature's values, see `Feature.encode`."""
        return self.feature(name).encode(column, self.codes)

    def context_values(self, context: Mapping[str, Any] | None) -> dict[str, Any]:
        """Each feature's value as records have it, None where it is missing, NaN or the like.

        Raises:
          UserError: the context is no mapping, or names what is no feature.
        """
        context = {} if context is None else context
        if not isinstance(context, Mapping):
            raise UserError(f"context must be an object or a dict, not {shown(context)}")
        known = [feature.name for feature in self.features]
        for name in context:
            if name not in known:
                near = difflib.get_close_matches(str(name)[:100], known, 1)
                has = f"leave it out; it has: {', '.join(known) or 'none'}"
                hint = f"did you mean {near[0]!r}?" if near else has
                raise UserError(f"the model has no context feature {shown(name)}; {hint}")
        return {name: without_booleans(name, plain(context.get(name))) for name in known}

    def encode_contexts(
        self, contexts: Sequence[Mapping[str, Any] | None]
    ) -> dict[str, np.ndarray]:
        """Feature name to the codes `[M, K]` of M contexts; a feature they lack is missing.

        Raises:
          UserError: a context names what is no feature, or has a value of another kind.
        """
        return self.encode_recorded([self.context_values(context) for context in contexts])

    def encode_recorded(self, contexts: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
        """The same for contexts of valid records, whose further features are not read."""
        return {
            feature.name: feature.encode(
                [context.get(feature.name) for context in contexts], self.codes
            )
            for feature in self.features
        }
