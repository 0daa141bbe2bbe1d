"""Every mistake in a query is refused in one line."""

import dataclasses
import functools
import sys
import tracemalloc

import numpy as np
import pandas
import pytest

import cbert
from cbert.errors import UserError
from cbert.inference.checks import Checker
from cbert.inference.queries import Query
from cbert.schema import SET, Schema

# A list in a list in a list, deeper than Python's own representation of it can go.
DEEP = functools.reduce(lambda inside, _: [inside], range(3000), [])
BAD_QUERIES = {
    "not a list": (Query("shirt"), "items must be a list of strings, not 'shirt'"),
    "item not a string": (Query(["a", 3]), "item 3 is not a string"),
    "item of lists": (Query([DEEP]), "item [[[[...]]]] is not a string"),
    "half a surrogate": (Query(["\ud800"]), "is not valid Unicode"),
    "repeat": (Query(["a", "a"]), "item 'a' occurs twice in a set"),
    "a list": (
        ["a"],
        "a query is ['a']; give a mapping with the fields of a record, or a Query",
    ),
    "no items": ({"context": {}}, "no 'items'; give a list of strings"),
    "an unknown field": ({"items": [], "n": 3}, "unknown field 'n'; drop it, or use one of it"),
    "nothing masked": (Query([], slots=0), "slots is 0 and no item is None"),
    "too many items": (Query([f"i{n}" for n in range(9)]), "holds 9 items; give at most 8"),
    "too many slots": (Query(["a"], slots=9), "make 10 positions; the model takes at most 9"),
    "endless slots": (Query(["a"], slots=10**9), "slots is 1000000000"),
    "k of 0": (Query(["a"], k=0), "k is 0; it must be a whole number from 1 to 80"),
    "k above": (Query(["a"], k=81), "k is 81"),
    "ten items, one masked": (Query([*"abcdefghi", None]), "items holds 9 items"),
    "k not whole": (Query(["a"], k=2.0), "k is 2.0"),
    "k true": (Query(["a"], k=True), "k is True"),
    "context a list": (Query(["a"], ["age"]), "context must be an object"),
    "no such feature": (Query(["a"], {"ocasion": "work"}), "did you mean 'occasion'?"),
    "far from any": (
        Query(["a"], {"xyz": 1}),
        "no context feature 'xyz'; leave it out; it has: age",
    ),
    "name not a string": (Query(["a"], {3: 1}), "no context feature 3"),
    "number as string": (
        Query(["a"], {"age": "34"}),
        "'age' is numerical, not '34'; give a number",
    ),
    "number as boolean": (Query(["a"], {"age": True}), "'age' is numerical"),
    "string as number": (
        Query(["a"], {"occasion": 3}),
        "'occasion' is categorical, not 3; give a str",
    ),
    "list as string": (Query(["a"], {"colours": "blue"}), "'colours' is multi_valued"),
    "mixed list": (Query(["a"], {"colours": ["blue", 3]}), "strings or numbers, not both"),
    "nested": (Query(["a"], {"age": {"years": 3}}), 'flatten it: write "age_years": 3'),
    "NaN in a list": (Query(["a"], {"colours": ["blue", float("nan")]}), "not both"),
    "endless nesting": (Query(["a"], {"colours": DEEP}), "a list holds strings or numbers"),
    "infinite": (Query(["a"], {"age": float("-inf")}), "context 'age' is -inf"),
    "huge": (Query(["a"], {"age": 10**400}), "use a finite number"),
    "many values": (Query(["a"], {"colours": None}), "holds"),
    "only nothing": (Query(["a"], only=[]), "leave no item to choose from"),
    "only a string": (Query(["a"], only="b"), "only must be a list of strings"),
    "only unknown": (Query(["a"], only=["kilt"]), "only names 'kilt'"),
    "exclude a number": (Query(["a"], exclude=[3]), "exclude holds 3"),
    "exclude half a surrogate": (
        Query(["a"], exclude=["\ud800"]),
        "excluded item '\\ud800' is not valid Unicode",
    ),
}


@pytest.mark.parametrize("name", BAD_QUERIES)
def test_a_bad_query_is_refused_in_one_line(predictor, name):
    query, message = BAD_QUERIES[name]
    if name == "many values":
        colours = predictor.schema.feature("colours")
        values = [*colours.values[: colours.max_values], "octarine"]
        query = dataclasses.replace(query, context={"colours": values})
    with pytest.raises(UserError) as error:
        predictor.complete_batch([Query(["b"]), query])
    assert str(error.value).startswith("queries.1: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(UserError) as alone:
        predictor.check(query)
    assert str(error.value) == f"queries.1: {alone.value}"


def test_what_was_not_checked_is_refused(predictor):
    encoded = predictor.check(Query(["a"]))
    with pytest.raises(UserError, match=r"^queries is Enc.*; give a list of what check "):
        predictor.predict_checked(encoded)
    with pytest.raises(UserError, match=r"^queries\.1 is \{.*\}; give what check returned$"):
        predictor.predict_checked([encoded, {"items": []}])


def test_an_excluded_item_that_training_never_saw_is_reported(predictor):
    first, *_ = predictor.schema.items
    asked = predictor.complete([], exclude=[first, "kilt", "kilt"])
    assert asked.unknown_items == ["kilt"]
    known = predictor.complete([], exclude=[first])
    assert asked.to_dict() == {**known.to_dict(), "unknown_items": ["kilt"]}


def test_many_queries_hold_little_of_a_large_vocabulary():
    names = tuple(f"i{number}" for number in range(100_000))
    checker = Checker(Schema(SET, 4, names, (1,) * len(names), ()), positions=False)
    checker.query(Query([names[0]]))  # The names' codes are made once.
    tracemalloc.start()
    encoded = [checker.query(Query([names[n]], exclude=[names[n + 1]])) for n in range(100)]
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 100 * 10_000  # A byte for each name would be ten times as much.
    mask = encoded[5].candidates.mask(len(names))
    assert np.flatnonzero(~mask).tolist() == [5, 6]


def test_contexts_may_be_the_rows_of_a_data_frame(predictor):
    """pandas writes NaN, NA or NaT for a missing value of any kind."""
    blue, *_ = predictor.schema.feature("colours").values
    frame = pandas.DataFrame(
        {
            "occasion": [np.nan, "regatta"],
            "age": pandas.array([pandas.NA, 30], "Int64"),
            "gender": [pandas.NaT, None],
            "colours": [np.array([blue, np.str_("octarine")], object), np.nan],
        }
    )
    one, other = predictor.complete([["kilt"]] * 2, frame.to_dict("records"))
    assert one == predictor.complete(["kilt"], {"colours": [blue, "octarine"]})
    assert one.missing_context == ["age", "gender", "occasion"]
    assert other == predictor.complete(["kilt"], {"age": 30, "occasion": "regatta"})
    assert other.missing_context == ["gender", "colours"]


def test_queries_may_be_mappings(predictor):
    row = {"items": np.array(["kilt", None], object), "context": {"age": 30}, "k": np.nan}
    assert predictor.complete_batch([row]) == [predictor.complete(["kilt", None], {"age": 30})]


def test_lists_may_be_arrays(predictor):
    """pandas reads the lists of a Parquet file as such."""
    one, other, *only = map(str, predictor.schema.items[:6])
    lists = pandas.Series([np.array([one], object), np.array([other, None], object)])
    expected = predictor.complete([[one], [other, None]], only=only, exclude=only[:1])
    names = {"only": np.array(only), "exclude": np.array(only[:1])}
    assert predictor.complete(lists.tolist(), **names) == expected
    assert predictor.complete(lists.to_numpy(), [{}, {}], **names) == expected
    assert predictor.complete(lists[1], **names) == expected[1]
    assert repr(predictor.score(lists[0])) == repr(predictor.score([one]))
    assert repr(predictor.score(np.array([one]))) == repr(predictor.score([one]))
    assert predictor.explain(lists[0], {}, other) == predictor.explain([one], {}, other)


def test_a_query_may_name_a_large_part_of_the_catalogue(predictor):
    """Each of many queries may, so that no function of Python is called for each name."""

    def calls(names):
        count = 0

        def note(frame, event, arg):
            nonlocal count
            count += event == "call"

        sys.setprofile(note)
        try:
            predictor.check({"items": [], "only": names, "exclude": names[:1]})
        finally:
            sys.setprofile(None)
        return count

    names = list(predictor.schema.items)
    assert calls(names[:2]) == calls(names) > 0


def test_numbers_of_numpy_are_numbers(predictor):
    """`k` and `slots` may be such, and a list may be a tuple of NumPy's strings."""
    items, colours = list(predictor.schema.items[:1]), predictor.schema.feature("colours")
    context = {"age": 34.0, "colours": list(colours.values[:2])}
    expected = predictor.complete(items, context, k=3, slots=2)
    context = {"age": np.float32(34), "colours": tuple(map(np.str_, colours.values[:2]))}
    given = predictor.complete(items, context, k=np.int64(3), slots=np.int64(2))
    assert given.to_dict() == expected.to_dict()


@pytest.mark.parametrize("sizes", [[], [0], [-1], [2.5], ["a"], 4, "12"])
def test_batch_sizes_that_cannot_be_compiled_are_refused_at_once(trained, sizes):
    with pytest.raises(UserError, match=r"^batch_sizes (is|has) "):
        cbert.load(trained, batch_sizes=sizes)


def test_what_a_message_shows_of_a_huge_number(predictor):
    with pytest.raises(UserError, match=r"age.* a number of 16610 bits"):
        predictor.complete([], {"age": 10**5000})
