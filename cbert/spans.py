"""Spans: those of words that BIO tags mark, and the best answers by the scores of two ends.

The rules of tags are those of conlleval and of the package seqeval: an `I-x` after another type
or after `O` begins a span, too.

Legend: B examples, L positions, V entries of the vocabulary, W the most tokens of a span.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = Any  # Of NumPy or of JAX.
OUTSIDE = "O"
_NOWHERE = -1e9  # The score of a token where no span may begin or end.
Span = tuple[str, int, int]


def spans(tags: Sequence[str]) -> set[Span]:
    """Type, first and last word of each span.

    A tag is `O`, `B-x`, `I-x`, or a type alone, which is read as `I-` of that type. In IOBES
    and BILOU `E-x` or `L-x` ends a span, and `S-x` or `U-x` is one of a single word.
    """
    marked: set[Span] = set()
    first, kind = 0, ""
    for index, tag in enumerate([*tags, OUTSIDE]):
        begins, ends, name = _parts(tag)
        if kind and (begins or name != kind):
            marked.add((kind, first, index - 1))
            kind = ""
        if name and not kind:
            first, kind = index, name
        if kind and ends:
            marked.add((kind, first, index))
            kind = ""
    return marked


def _parts(tag: str) -> tuple[bool, bool, str]:
    """Whether the tag begins a span in any case, or ends it; and its type, empty outside."""
    if tag == OUTSIDE:
        return False, False, ""
    prefix, _, name = tag.partition("-")
    if prefix in ("B", "I") or (name and prefix in ("E", "L", "S", "U")):
        return prefix in ("B", "S", "U"), prefix in ("E", "L", "S", "U"), name or "_"
    return False, False, tag


def in_passage(segments: Array, ordinary: Array) -> Array:
    """Where an answer may stand, `bool [..., L]`: in the second text, or in the only one.

    Args:
      segments: `int [..., L]`, 1 in the second text and 0 elsewhere.
      ordinary: `bool [..., L]`, False for special tokens and padding.
    """
    return ordinary & (segments == segments.max(axis=-1, keepdims=True))


def answer_ends(
    codes: Array, passage: Array, continuations: np.ndarray | None
) -> tuple[Array, Array]:
    """Where a predicted answer may begin and where it may end, `bool [..., L]` each.

    For NumPy and JAX alike.

    Args:
      codes: `int [..., L]`, the tokens.
      passage: `bool [..., L]`, where an answer may stand.
      continuations: `bool [V]`, the pieces that continue a word, where answers begin and end
        with words; None where they may begin and end anywhere.
    """
    if continuations is None:
        return passage, passage
    xp = jnp if isinstance(codes, jax.Array) else np
    continues = xp.asarray(continuations)[codes] & passage
    continued = xp.roll(continues, -1, axis=-1)  # [CLS], the first token, continues no word.
    return passage & ~continues, passage & ~continued


def best_span(
    first: Array, last: Array, ends: tuple[Array, Array], longest: int
) -> tuple[Array, Array, Array]:
    """The span of the highest sum of scores; for NumPy and JAX alike.

    Args:
      first, last: `[B, L]`, scores of a span's first and last token.
      ends: Where a span may begin and where it may end, `bool [B, L]` each.
      longest: W, the most tokens of a span.

    Returns:
      First and last token `int32 [B]`, and their sum, very low where there is no span.
    """
    sums = _sums(first, last, ends, longest)
    best, length = sums.argmax(axis=1), first.shape[1]
    start, width = best % length, best // length
    return start, start + width, sums.max(axis=1)


def best_spans(
    first: np.ndarray, last: np.ndarray, ends: tuple[Array, Array], longest: int, k: int
) -> list[tuple[int, int, float]]:
    """The first and the last token of the k best spans, and the sums of their scores.

    The best comes first, and is that of `best_span`. There may be fewer than k.

    Args:
      first, last: `[L]`, as `ends` and `longest` those of a row of `best_span`.
      ends: `bool [L]` each.
      longest: W.
      k: How many.
    """
    (sums,) = _sums(first[None], last[None], (ends[0][None], ends[1][None]), longest)
    order = np.argsort(-sums, kind="stable")[:k]
    widths, starts = np.divmod(order[sums[order] > _NOWHERE / 2], len(first))
    found = zip(starts, starts + widths, sums[order], strict=False)
    return [(int(start), int(end), float(score)) for start, end, score in found]


def _sums(first: Array, last: Array, ends: tuple[Array, Array], longest: int) -> Array:
    """The sum of scores of every span, `[B, W L]`: those of one token, of two, and so on."""
    length, xp = first.shape[1], jnp if isinstance(first, jax.Array) else np
    longest = min(longest, length)
    first, last = (
        xp.where(allowed, scores, _NOWHERE)
        for allowed, scores in zip(ends, (first, last), strict=True)
    )
    padded = xp.pad(last, ((0, 0), (0, longest)), constant_values=_NOWHERE)
    return xp.stack(
        [first + padded[:, width : width + length] for width in range(longest)], axis=1
    ).reshape(len(first), -1)
