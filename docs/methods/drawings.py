"""Draws where the context enters in each method, as an SVG file beside this one.

    python docs/methods/drawings.py

Grey is BERT: tokens, one block of attention and feed-forward network (FNN), and the output.
Orange is the context and what it brings along.
"""

import pathlib
from collections.abc import Callable

WIDTH, HEIGHT = 300, 300
INK, GREY, ORANGE, PALE = "#57606a", "#eaeef2", "#bc4c00", "#fff1e5"
# The middles of the drawing's columns and rows.
CONTEXT, TOKENS, BLOCK = 50, (130, 165, 200), 165
OUTPUT_Y, FNN_Y, ATTENTION_Y, TOKEN_Y = 26, 118, 182, 256
# Where the context may meet what flows upwards.
LATE, AFTER_FNN, AFTER_ATTENTION, EARLY = 55, 87, 150, 224
Parts = list[str]


def box(x: float, y: float, text: str, width: float = 84, colour: str = INK) -> str:
    """A box around its middle."""
    fill = PALE if colour == ORANGE else GREY
    return (
        f'<rect x="{x - width / 2:g}" y="{y - 12:g}" width="{width:g}" height="24" rx="5" '
        f'fill="{fill}" stroke="{colour}"/>{label(x, y + 4, text, colour)}'
    )


def label(x: float, y: float, text: str, colour: str = INK) -> str:
    """A text around its middle."""
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}">{text}</text>'


def arrow(*points: tuple[float, float], colour: str = ORANGE) -> str:
    """A line through points, with a head at its end."""
    path = " L".join(f"{x:g} {y:g}" for x, y in points)
    name = "context" if colour == ORANGE else "plain"
    return f'<path d="M{path}" fill="none" stroke="{colour}" marker-end="url(#{name})"/>'


def sign(x: float, y: float, text: str) -> str:
    """A small circle with a sign, where the context meets a vector."""
    circle = f'<circle cx="{x:g}" cy="{y:g}" r="9" fill="{PALE}" stroke="{ORANGE}"/>'
    return circle + label(x, y + 4, text, ORANGE)


def token(x: float, text: str, colour: str = INK) -> str:
    return box(x, TOKEN_Y, text, 28, colour)


def bert() -> Parts:
    """The parts that every method has."""
    frame = (
        f'<rect x="105" y="70" width="185" height="136" rx="8" fill="none" stroke="{INK}" '
        'stroke-dasharray="3 3"/>'
    )
    ups = [(TOKEN_Y - 12, ATTENTION_Y + 12), (ATTENTION_Y - 12, FNN_Y + 12), (FNN_Y - 12, 38)]
    lines = [arrow((BLOCK, low), (BLOCK, high), colour=INK) for low, high in ups]
    tokens = [token(x, f"x{n}") for x, n in zip(TOKENS, "₁₂₃", strict=True)]
    boxes = [
        box(BLOCK, OUTPUT_Y, "output"),
        box(BLOCK, FNN_Y, "FNN"),
        box(BLOCK, ATTENTION_Y, "attention"),
    ]
    return [frame, label(274, 88, "× N"), *lines, *tokens, *boxes]


def context(text: str = "c") -> Parts:
    return [box(CONTEXT, TOKEN_Y, text, 56, ORANGE)]


def state(text: str = "FNN") -> Parts:
    """The context's own network above it."""
    up = arrow((CONTEXT, TOKEN_Y - 12), (CONTEXT, ATTENTION_Y + 12))
    return [*context(), up, box(CONTEXT, ATTENTION_Y, text, 56, ORANGE)]


def read(y: float, text: str, source: float = ATTENTION_Y) -> Parts:
    """The state goes into the line of the block at a height."""
    line = arrow((CONTEXT + 28, source), (92, source), (92, y), (BLOCK - 10, y))
    return [line, sign(BLOCK, y, text)]


def into_tokens(text: str) -> Parts:
    line = arrow((CONTEXT, TOKEN_Y - 12), (CONTEXT, EARLY), (BLOCK - 10, EARLY))
    return [*context(), line, sign(BLOCK, EARLY, text)]


def position(*texts: str) -> Parts:
    """The context as positions after the tokens."""
    parts, below = context(), HEIGHT - 14
    for x, text in zip((235, 267), texts, strict=False):
        line = arrow((CONTEXT, TOKEN_Y + 12), (CONTEXT, below), (x, below), (x, TOKEN_Y + 13))
        parts += [line, token(x, text, ORANGE)]
    return parts


def update() -> Parts:
    up = arrow((CONTEXT, ATTENTION_Y - 12), (CONTEXT, FNN_Y + 12))
    above = arrow((CONTEXT, FNN_Y - 12), (CONTEXT, 60))
    return [up, box(CONTEXT, FNN_Y, "update", 56, ORANGE), above]


def late(text: str) -> Parts:
    return [*state(), *read(LATE, text)]


DRAWINGS: dict[str, Callable[[], Parts]] = {
    "none": list,
    "c": lambda: into_tokens("W"),
    "np": lambda: position("Wc"),
    "gs": lambda: [*state(), *read(AFTER_ATTENTION, "+")],
    "gsu": lambda: [*state(), *update(), *read(AFTER_ATTENTION, "+")],
    "gsu_bi": lambda: [
        *state(),
        *update(),
        *read(AFTER_ATTENTION, "+"),
        arrow((BLOCK - 42, FNN_Y), (CONTEXT + 29, FNN_Y)),
    ],
    "gs_deep": lambda: [*state("FNN × N"), *read(AFTER_ATTENTION, "+")],
    "prefix": lambda: position("t₁", "t₂"),
    "np_untied": lambda: [*position("Wc"), label(252, ATTENTION_Y + 4, "+ θ₁, θ₂", ORANGE)],
    "global_token": lambda: [
        *position("Wc"),
        label(250, ATTENTION_Y + 4, "window", ORANGE),
    ],
    "cross_attention": lambda: [*state("t₁ t₂ …"), *read(AFTER_ATTENTION, "α")],
    "history": lambda: [*state("encoder"), *read(AFTER_ATTENTION, "α")],
    "film": lambda: [*state(), *read(AFTER_FNN, "γβ")],
    "adaln_zero": lambda: [*state(), *read(AFTER_ATTENTION, "g"), *read(AFTER_FNN, "g")],
    "injector": lambda: [
        *state(),
        *read(AFTER_FNN, "↓↑"),
    ],
    "label_add": lambda: into_tokens("+"),
    "user_concat": lambda: into_tokens("‖"),
    "mag": lambda: into_tokens("g"),
    "late_concat": lambda: late("W"),
    "late_gate": lambda: late("g"),
}


def drawing(name: str) -> str:
    """The SVG of a method."""
    markers = "".join(
        f'<marker id="{key}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{colour}"/></marker>'
        for key, colour in (("plain", INK), ("context", ORANGE))
    )
    parts = "\n".join([*bert(), *DRAWINGS[name]()])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12" '
        f'text-anchor="middle">\n<defs>{markers}</defs>\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#fff"/>\n{parts}\n</svg>\n'
    )


if __name__ == "__main__":
    for name in DRAWINGS:
        (pathlib.Path(__file__).parent / f"{name}.svg").write_text(drawing(name))
