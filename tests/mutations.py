"""Valid inputs made wrong: as JSON, and as bytes."""

import copy
import json
import random
from typing import Any

# JSON text can hold these, but no Python value is written as them.
RAW = (
    *("1e400", "-1e400", "NaN", "Infinity", "-Infinity", "-0", "1e-400", "01", "1.", ".5"),
    *("9" * 400, "9" * 5000, "[" * 900 + "]" * 900, "[" * 100_000, '{"a":' * 5000, "\\u0000"),
    *("tru", "'a'", '"\\ud800"', '"\\udfff\\ud800"', '"\\x41"', "//", "\x00", "\ufeff", ""),
)
WORDS = (
    *("", " ", "\x00", "a\nb", "a\r\nb\tc", "\x7f", "\x85", "\x1b[31mred\x1b[0m"),
    *("\x1b]0;title\x07", "\x9b2J", "\u202egnp.exe", "\u200b", "\ufeff", "\u2028", "e\u0301"),
    *("\ud800", "\udfff\ud800", "\ufffe", "\U0010ffff", "ß", "ﷺ" * 30, "12", "1e5", "nan"),
    *(
        "../../x",
        "/dev/zero",
        "%s%n",
        "{0}",
        "null",
        "'",
        '"',
        "\\",
        "a/b",
        "a.b",
        "x" * 10_001,
    ),
    *(chr(plane << 16 | 0x123) for plane in range(17)),
)
NUMBERS = (
    *(0, -1, 1, 2, 2**31 - 1, 2**31, 2**32, 2**63, 2**64, 10**29, 10**30, 10**100, -(10**400)),
    *(0.0, -0.0, 0.5, 1e29, 1e30, 1e308, -1e308, 5e-324, float("nan"), float("inf")),
)
OTHERS = (
    *(None, True, False, [], {}, [[]], [None], {"": None}),
    *(["a", 1], [True], [[1.0]], [0, ""]),
)
HUGE = (
    lambda: "x" * 10_000_000,
    lambda: [str(number) for number in range(100_000)],
    lambda: ["same"] * 100_000,
    lambda: list(range(100_000)),
    lambda: {str(number): number for number in range(100_000)},
    lambda: {"x" * 10_000_000: None},
)
_MARK = "@raw "


def nasty(source: random.Random, huge: float = 0.0) -> Any:
    """An unusual value; `huge` is the fraction of very large ones."""
    if source.random() < huge:
        return source.choice(HUGE)()
    kind = source.randrange(5)
    if kind == 0:
        return _MARK + str(source.randrange(len(RAW)))
    return copy.deepcopy(source.choice((WORDS, NUMBERS, OTHERS, WORDS)[kind - 1]))


def mutated(source: random.Random, valid: Any, huge: float = 0.0) -> bytes:
    """The text of a valid JSON value with one to four things changed."""
    value = copy.deepcopy(valid)
    for _ in range(source.choice((1, 1, 1, 2, 4))):
        value = _change(source, value, huge)
    text = json.dumps(value, ensure_ascii=source.random() < 0.5)
    if _MARK in text:
        for index, raw in enumerate(RAW):
            text = text.replace(f'"{_MARK}{index}"', raw)
    if source.random() < 0.05:  # A key occurs twice.
        where = source.choice([n for n, letter in enumerate(text) if letter == "{"] or [0])
        key = source.choice([*_keys(valid), "a"])
        text = f"{text[: where + 1]}{json.dumps(key)}: 3, {text[where + 1 :]}"
    encoded = text.encode("utf-8", "surrogatepass")
    return damaged(source, encoded) if source.random() < 0.25 else encoded


def damaged(source: random.Random, text: bytes) -> bytes:
    """Bytes with one to three of them flipped, removed, doubled or inserted."""
    changed = bytearray(text)
    for _ in range(source.choice((1, 1, 3))):
        where = source.randrange(len(changed) + 1)
        length = min(source.choice((1, 2, 8, 100)), len(changed) - where)
        kind = source.randrange(6)
        if kind == 0 and length:
            changed[where] ^= 1 << source.randrange(8)
        elif kind == 1:
            del changed[where : where + length]
        elif kind == 2:
            changed[where:where] = changed[where : where + length]
        elif kind == 3:
            changed[where:where] = source.randbytes(source.choice((1, 4, 30)))
        elif kind == 4:
            word = source.choice(WORDS).encode("utf-8", "surrogatepass")
            changed[where : where + length] = word
        else:
            del changed[where:]
    return bytes(changed)


def _change(source: random.Random, value: Any, huge: float) -> Any:
    """Replaces, removes, adds or wraps one value somewhere inside."""
    entries = list(_entries(value))
    if not entries:
        return nasty(source, huge)
    inside, key = source.choice(entries)
    kind = source.randrange(10)
    if kind < 5:
        inside[key] = nasty(source, huge)
    elif kind == 5:
        del inside[key]
    elif kind == 6:
        inside[key] = [inside[key]]
    elif kind == 7 and isinstance(inside, dict):
        inside[source.choice(WORDS)] = inside.pop(key)
    elif kind == 8:
        inside[key] = str(inside[key])[:50]
    elif isinstance(inside, dict):
        inside[source.choice(WORDS)] = nasty(source, huge)
    else:
        inside.insert(key, nasty(source, huge))
    return value


def _entries(value: Any):
    """Every (container, key) inside a JSON value."""
    pairs = value.items() if isinstance(value, dict) else ()
    pairs = enumerate(value) if isinstance(value, list) else pairs
    for key, inner in list(pairs):
        yield value, key
        if isinstance(inner, dict | list) and len(inner) < 1000:
            yield from _entries(inner)


def _keys(value: Any) -> list[str]:
    return [key for _, key in _entries(value) if isinstance(key, str)]
