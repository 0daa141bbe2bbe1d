"""Cuts a passage that is longer than a model reads into windows that overlap.

`prepare` makes examples of them, and a predictor reads a long passage in the same ones.

Legend: L tokens of a passage.
"""

import numpy as np

from cbert.data.text import Tokenizer


def divide(
    text: str, text_b: str | None, tokenizer: Tokenizer, stride: int
) -> list[tuple[int, int]]:
    """The first character of each window of the passage and the one after its last.

    The passage is the second text, or the only one. A window has the tokens that the first
    text leaves it, at least half of them; a passage that fits is one window.

    Args:
      text: The question, or the passage where there is no second text.
      text_b: The passage, or None.
      tokenizer: Says how many tokens a model reads.
      stride: As in `bounds`.
    """
    passage = text if text_b is None else text_b
    room = tokenizer.max_length - 2
    if text_b is not None:
        (question,) = tokenizer.pieces([text])
        room -= 1
        room -= min(len(question), room - room // 2)
    (pieces,) = tokenizer.pieces([passage])
    characters = []
    for number, (first, last) in enumerate(bounds(pieces.words, room, stride)):
        start = int(pieces.spans[first, 0]) if number else 0
        end = int(pieces.spans[last - 1, 1]) if last < len(pieces) else len(passage)
        characters.append((start, end))
    return characters


def bounds(words: np.ndarray, room: int, stride: int) -> list[tuple[int, int]]:
    """The first token of each window and the one after its last.

    Windows begin and end between words.

    Args:
      words: `int32 [L]`, the index of each token's word.
      room: The most tokens of a window.
      stride: A window begins at the last word that starts within so many tokens of the
        beginning of the one before. A word that is longer than a window is cut.
    """
    starts = np.flatnonzero(np.diff(words, prepend=-1))
    found = []
    first, count = 0, len(words)
    while first + room < count:
        inside = np.searchsorted(starts, [first, first + room], side="right")
        ends = starts[slice(*inside)]
        last = int(ends[-1]) if len(ends) else first + room  # One word fills the window.
        found.append((first, last))
        near = ends[ends <= first + stride]
        following = near[-1:] if len(near) else ends[:1]
        first = int(following[0]) if len(following) else last
    return [*found, (first, count)]
