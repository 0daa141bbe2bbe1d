"""Every stream of random numbers is drawn by its name, and no two are equal."""

import ast
import collections
import itertools
import pathlib

import cbert
from cbert.data.random_streams import stream

ROOT = pathlib.Path(cbert.__file__).parents[1]
PARTS = ("cbert", "experiments", "configs")


def calls(function):
    """File and first argument, as in the code, of all calls of a function in the project."""
    for path in itertools.chain(*(ROOT.glob(f"{part}/**/*.py") for part in PARTS)):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and (
                ast.unparse(node.func).split(".")[-1] == function
            ):
                yield path.name, ast.unparse(node.args[0])


def names():
    return [ast.literal_eval(name) for _, name in calls("stream")]


def test_each_place_that_draws_has_a_name_of_its_own():
    counts = collections.Counter(names())
    assert {"outfits", "generative process", "catalogue", "epoch", "examples"} <= set(counts)
    assert max(counts.values()) == 1
    assert [file for file, _ in calls("default_rng")] == ["random_streams.py"]


def test_no_two_streams_are_equal():
    numbers = [(), (0,), (1,), (2**32,), (0, 0), (1, 0), (0, 1), (1, 0, 0), (0, 2**32 + 1)]
    streams = list(itertools.product(names(), numbers))
    drawn = {stream(name, *some).bytes(16) for name, some in streams}
    assert len(drawn) == len(streams) > 50
    assert stream("outfits", 1, 2).bytes(16) == stream("outfits", 1, 2).bytes(16)
