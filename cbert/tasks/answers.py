"""How well an answer agrees with the true one, as SQuAD's evaluation says (Rajpurkar et al.,
2016): strings are compared without capital letters, punctuation, articles and extra spaces.
"""

import collections
import functools
import re
import string

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


@functools.lru_cache(maxsize=2**16)  # Every slice of a split compares the same answers.
def normalised(answer: str | None) -> str:
    """The answer as it is compared; none is an empty string, as in SQuAD 2.0."""
    text = (answer or "").lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(answer: str | None, true: str | None) -> float:
    """1 where the two are the same, else 0."""
    return float(normalised(answer) == normalised(true))


def f1(answer: str | None, true: str | None) -> float:
    """The harmonic mean of precision and recall over words; 1 where both are empty."""
    one, other = normalised(answer).split(), normalised(true).split()
    if not one or not other:
        return float(one == other)
    both = sum((collections.Counter(one) & collections.Counter(other)).values())
    return 2 * both / (len(one) + len(other))
