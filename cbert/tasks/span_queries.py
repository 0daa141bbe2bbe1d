"""What an evaluation asks about passages, each a query however many windows it was cut into.

Legend: Q queries, N windows, L positions of a window.
"""

import dataclasses

import numpy as np

from cbert.data import text_columns
from cbert.data.columns import Split
from cbert.data.text import Tokenizer
from cbert.data.text_records import Text
from cbert.schema import Schema
from cbert.tasks.text_task import ExampleQueries


@dataclasses.dataclass(frozen=True)
class PassageQueries(ExampleQueries):
    """Q passages with their N windows; one that was not cut is one window.

    `rows` are the first windows, and `targets` have `passage` and `answer`, the whole ones, the
    answer None where there is none.

    Attributes:
      windows: `int32 [N]`, the example of each window, those of a passage in its order.
      begins: `int64 [Q]`, where the windows of each passage begin among them.
      characters: `int32 [N, L, 2]`, each token's first character and the one after its last in
        the passage.
      in_windows: Whether the data were cut into windows.
    """

    windows: np.ndarray
    begins: np.ndarray
    characters: np.ndarray
    in_windows: bool

    @property
    def asked(self) -> ExampleQueries:
        """A query for each window."""
        return ExampleQueries(self.windows, {}, np.ones(len(self.windows)), 0)

    def joined(self, predictions: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The predictions of the windows, `[N]` each, as those of the passages, `[Q]`.

        The answer is that of the window whose best span has the highest log-odds against no
        answer in the same window (Devlin et al. 2019, section 4.3), so that there is none where
        no window has one. Its `window` counts from the first, and is 0 where there is none;
        data that were not cut have no `window`. The log-probability is the mean over windows,
        each of which has its own target.
        """
        passages = np.repeat(np.arange(len(self)), self._counts)
        # Stable, so that of equal windows the first is taken.
        best = np.lexsort((-predictions["log_odds"], passages))[self.begins]
        known = predictions["log_probability"]
        nats = np.add.reduceat(known.astype(np.float64), self.begins) / self._counts
        joined = {name: predictions[name][best] for name in predictions if name != "log_odds"}
        joined["log_probability"] = nats.astype(known.dtype)
        if self.in_windows:
            joined["window"] = np.where(joined["end"], best - self.begins, 0)
        return joined

    @property
    def _counts(self) -> np.ndarray:
        """`int64 [Q]`, how many windows each passage has."""
        return np.diff(self.begins, append=len(self.windows))

    def answers(self, predictions: dict[str, np.ndarray]) -> list[str | None]:
        """The predicted answers as the passages have them, None where there is none.

        Args:
          predictions: `start` and `end` `int [Q]`, tokens of a `window`, or where predictions
            have none, of the first one.
        """
        start, end = predictions["start"], predictions["end"]
        window = self.begins + predictions.get("window", 0)
        first, last = self.characters[window, start, 0], self.characters[window, end, 1]
        cut = zip(self.targets["passage"], end, first, last, strict=True)
        return [passage[begin:stop] if token else None for passage, token, begin, stop in cut]


def ask(split: Split, schema: Schema) -> PassageQueries:
    """All passages of a split."""
    rows, begins = split.passages
    read = [Text.from_json(split.texts[row]) for row in rows]
    tokens = text_columns.tokenized(read, schema, Tokenizer(schema))
    characters = np.zeros((len(read), schema.max_items, 2), np.int32)
    for row, own, text in zip(characters, tokens, read, strict=True):
        row[: len(own)] = own.spans + (text.window["start"] if text.window else 0)
    windows = np.split(np.array(read, object), begins[1:])
    targets = {
        "passage": np.array([_passage(parts) for parts in windows], object),
        "answer": np.array([_answer(parts[0]) for parts in windows], object),
    }
    return PassageQueries(
        rows=rows[begins],
        targets=targets,
        weights=np.ones(len(begins)),
        skipped=0,
        windows=rows,
        begins=begins,
        characters=characters,
        in_windows=split.in_windows,
    )


def _passage(windows: np.ndarray) -> str:
    """The passage of some windows that follow each other."""
    passage = ""
    for text in windows:
        start = text.window["start"] if text.window else 0
        # Windows that do not overlap have white space between them.
        part = text.text if text.text_b is None else text.text_b
        passage = passage[:start].ljust(start) + part
    return passage


def _answer(text: Text) -> str | None:
    """The text of the passage's answer, also where it is in no window whole."""
    if text.window:
        return text.window["answer"]
    return text.answer["text"] if text.answer else None
