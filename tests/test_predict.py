"""The predictor gives the model's own numbers, and refuses impossible queries."""

import dataclasses
import functools
import json
import re

import jax
import numpy as np
import pytest

import cbert
from cbert.errors import UserError
from cbert.inference import query_file, stablehlo
from cbert.inference.checks import Checker
from cbert.inference.item_functions import functions
from cbert.inference.predictor import Predictor
from cbert.inference.program import Program, padded_lengths
from cbert.inference.queries import Query
from cbert.schema import (
    MASK_ITEM,
    SEQUENCE,
    UNKNOWN_ITEM,
    Categorical,
    History,
    MultiValued,
    Numerical,
    Schema,
    Vector,
)
from cbert.training import config as config_lib
from tests.conftest import ROOT, lines, small
from tests.models import drawn

CONTEXT = {"age": 34.0, "occasion": "work", "colours": ["blue"]}


@functools.cache
def applied(predictor):
    model = config_lib.build_model(predictor.config, predictor.schema)
    return jax.jit(model.apply)


def logits(predictor, codes, position, context):
    """All logits of one masked position, without padding or a batch; float64."""
    columns = predictor.schema.encode_contexts([context])
    encoded, table, bias = applied(predictor)(
        {"params": predictor.program.params},
        np.array([codes], np.int32),
        columns,
        np.array([[position]]),
    )
    encoded, table, bias = (np.asarray(x, np.float64) for x in (encoded, table, bias))
    return encoded[0, 0] @ table.T + bias


def softmax(x):
    weights = np.exp(x - x.max())
    return weights / weights.sum()


def assemble(schema, method="gsu", **overrides):
    """A predictor of drawn parameters, in which nothing is 0 or 1."""
    config = small(method, **overrides)
    model = config_lib.build_model(config, schema)
    params = drawn(model)
    checker = Checker(schema, config.model.positions)
    program = Program(functions(model), params, schema, checker.longest, (2,))
    uses_context = config_lib.reads_context(config)
    return Predictor(schema, config, 0, checker, program, uses_context=uses_context)


@pytest.fixture(scope="module")
def sequences():
    """Sequences of at most 20 letters, with positions, in a context of every kind."""
    letters = tuple("abcdefgh")
    features = (
        Categorical("author", 3, ("x", "y")),
        MultiValued("tags", 2, ("p", "q", "r"), 2),
        Numerical("year", 2, 2000.0, 10.0, (1990.0, 2010.0)),
        Vector("image", 2, dimension=2),
        History("heard", 2, max_items=3),
    )
    schema = Schema(SEQUENCE, 20, letters, (1,) * len(letters), features)
    return assemble(schema, model__positions=True)


def test_a_completion_is_the_models_softmax(predictor):
    items = list(predictor.schema.items[3:6])
    expected = softmax(logits(predictor, [3, 4, 5, MASK_ITEM], 3, CONTEXT))
    completion = predictor.complete(items, CONTEXT, k=77)
    listed = [code for code in np.argsort(-expected) if code not in (3, 4, 5)]
    (predictions,) = completion.predictions
    assert [one.item for one in predictions] == [
        predictor.schema.items[code] for code in listed
    ]
    assert [one.rank for one in predictions] == list(range(1, 78))
    np.testing.assert_allclose(
        [one.probability for one in predictions], expected[listed], rtol=1e-4
    )
    assert (completion.unknown_items, completion.unknown_context) == ([], {})
    given = set(CONTEXT)
    assert completion.missing_context == [
        f.name for f in predictor.schema.features if f.name not in given
    ]


def test_restricted_candidates_are_renormalised(predictor):
    names = predictor.schema.items
    logit = logits(predictor, [3, MASK_ITEM], 1, {})
    completion = predictor.complete([names[3]], only=names[3:13], exclude=[names[7]], k=80)
    (predictions,) = completion.predictions
    allowed = [code for code in range(4, 13) if code != 7]
    assert {one.item for one in predictions} == {names[code] for code in allowed}
    expected = dict(zip(allowed, softmax(logit[allowed]), strict=True))
    for one in predictions:
        assert one.probability == pytest.approx(expected[names.index(one.item)], rel=1e-4)
    assert sum(one.probability for one in predictions) == pytest.approx(1, abs=1e-6)


def test_a_batch_is_its_queries_one_by_one(predictor):
    names = predictor.schema.items
    queries = [
        Query(names[n : n + 1 + n % 4], {"age": 20.0 + n}, k=1 + n, slots=1 + n % 2)
        for n in range(7)  # There are ten rows, in batches of four.
    ]
    batched = predictor.complete_batch(queries)
    for query, completion in zip(queries, batched, strict=True):
        alone = predictor.complete_batch([query])[0]
        assert [len(one) for one in completion.predictions] == [query.k] * query.slots
        for one, other in zip(completion.predictions, alone.predictions, strict=True):
            assert [p.item for p in one] == [p.item for p in other]
            np.testing.assert_allclose(
                [p.probability for p in one], [p.probability for p in other], rtol=1e-4
            )
    lists, contexts = [list(q.items) for q in queries], [q.context for q in queries]
    assert predictor.complete(lists, contexts, k=1)[0] == batched[0]
    assert predictor.complete_batch([]) == []


@pytest.mark.soak
def test_what_explanations_say_of_the_model(sequences):
    plain = assemble(sequences.schema, "none", train__context_dropout=0.1, model__layers=1)
    explanation = plain.explain([], {"author": "x", "year": 2000}, "a")
    assert (explanation.outside_training, explanation.uses_context) == (False, False)
    assert set(explanation.features.values()) == {0.0}
    constant = assemble(sequences.schema, "gs", model__constant_context=True, model__layers=1)
    assert not constant.explain([], {"author": "x"}, "a").uses_context
    # The vocabulary has fewer items than the default k.
    few = dataclasses.replace(sequences.schema, items=("a", "b", "c"), counts=(1, 1, 1))
    assert assemble(few, "none", model__layers=1).explain([], {}, "a").log_odds < 5


def test_unknown_and_missing_are_reported_and_completed(predictor):
    context = {"occasion": "regatta", "colours": ["blue", "octarine"], "age": None}
    completion = predictor.complete(["kilt", "kilt-pin"], context)
    assert len(completion.predictions[0]) == 5
    assert completion.unknown_items == ["kilt", "kilt-pin"]
    assert completion.unknown_context == {"occasion": ["regatta"], "colours": ["octarine"]}
    assert "age" in completion.missing_context
    known = predictor.schema.items[0]
    scores = predictor.score(["kilt", known], context)
    assert (scores.scores[0].log_probability, scores.scores[0].rank) == (None, None)
    expected = softmax(logits(predictor, [UNKNOWN_ITEM, MASK_ITEM], 1, context))[0]
    assert scores.scores[1].log_probability == pytest.approx(np.log(expected), abs=1e-4)
    assert json.loads(json.dumps(scores.to_dict())) == scores.to_dict()
    assert predictor.score(["kilt"]).scores[0].rank is None


def test_masked_positions_of_a_sequence(sequences):
    context = {"author": "x", "tags": ["q", "r"], "year": 1995, "image": [0.5, -1]}
    items = ["a", None, "b", "c", None]
    completion = sequences.complete(items, context, k=8)
    codes = [0, MASK_ITEM, 1, 2, MASK_ITEM]
    for position, ranked in zip((1, 4), completion.predictions, strict=True):
        expected = softmax(logits(sequences, codes, position, context))
        assert {one.item for one in ranked} == set("abcdefgh")  # Repeats are allowed.
        for one in ranked:
            code = "abcdefgh".index(one.item)
            assert one.probability == pytest.approx(expected[code], rel=1e-4)
    assert completion.predictions[0] != completion.predictions[1]
    # A longer sequence is padded to another length.
    long = sequences.complete([*"abcabcabcabcabcabc", None, "d"], context, k=1)
    codes = [0, 1, 2] * 6 + [MASK_ITEM, 3]
    expected = softmax(logits(sequences, codes, 18, context)).max()
    assert long.predictions[0][0].probability == pytest.approx(expected, rel=1e-4)
    assert sequences.program.lengths == [16, 20]
    # Of one that is too long the latest 19 are read, and the unknown one is not among them.
    cut = sequences.complete(["kilt", *"abcabcabcabcabcabc", None, "d"], context, k=1)
    assert cut == dataclasses.replace(long, cut=True)
    assert not long.cut
    named = sequences.explain([*"dddabcabcabcabcabcabc", None, "d"], context, "h")
    assert named.cut
    assert not sequences.explain([*"abcabcabcabcabcabc", None, "d"], context, "h").cut
    assert padded_lengths(9) == [9]
    assert padded_lengths(100) == [16, 32, 64, 100]


def test_the_pseudo_perplexity_of_the_page(sequences):
    """An unknown letter is read, and not asked about."""
    page = (ROOT / "docs" / "data.md").read_text()
    (block,) = re.findall(r"```python\n(import numpy as np\n.*?)```", page, re.DOTALL)
    exec(block, names := {})
    context = {"author": "y", "year": 1999}
    codes, given = [0, UNKNOWN_ITEM, 2, 1], []
    for position in (0, 2, 3):
        masked = [*codes[:position], MASK_ITEM, *codes[position + 1 :]]
        given.append(softmax(logits(sequences, masked, position, context))[codes[position]])
    expected = pytest.approx(np.prod(given) ** (-1 / 3), rel=1e-4)
    assert names["pseudo_perplexity"](sequences, "a?cb", context) == expected


def test_long_sequences_of_a_file_are_counted(sequences, tmp_path):
    source, target = tmp_path / "queries.jsonl", tmp_path / "completions.jsonl"
    context = {"author": "x", "tags": [], "year": 1995, "image": [0.5, -1], "heard": []}
    source.write_text(lines(*({"items": ["a"] * n, "context": context} for n in (20, 19))))
    count, skipped, notes = query_file.predict(sequences, source, target, Query([], k=1))
    assert (count, skipped, notes.line()) == (2, [], "cut to their latest items: 1")
    first, second = map(json.loads, target.read_text().splitlines())
    assert (first["cut"], second["cut"]) == (True, False)


def test_the_context_vector_holds_each_features_embedding(sequences):
    tables = sequences.program.params["context_encoder"]
    vector = sequences.context_vector(
        {"author": "y", "tags": ["r", "p"], "year": 1990, "heard": ["c", "a"]}
    )
    items = np.asarray(sequences.program.params["embedding"]["items"])
    heard = tables["feature_heard"]
    tags = np.asarray(tables["feature_tags"]["embedding"])
    expected = [
        tables["feature_author"]["embedding"][4],
        (tags[3] + tags[5]) / 2,
        tables["feature_year"]["embedding"][2],
        tables["feature_image"]["missing"][0],
        (items[2] + items[0]) / 2 @ heard["kernel"] + heard["bias"],
    ]
    np.testing.assert_allclose(vector, np.concatenate(expected), rtol=1e-6)


def test_warming_up_leaves_nothing_to_compile(sequences):
    program = sequences.program

    def compiled():
        functions = program._logits, program._rank, program._score
        return [function._cache_size() for function in functions]

    sequences.warm_up()
    before = compiled()
    assert before[0] == 2
    sequences.complete(["a"])
    sequences.complete_batch([Query(["a"] * n) for n in (3, 19)])
    sequences.explain(["b"], {"year": 2000.0}, "c")
    assert compiled() == before


def test_every_length_is_exported(sequences, tmp_path):
    stablehlo.write(sequences, tmp_path / "exported", {})
    written = [path.name for path in (tmp_path / "exported").glob("logits-*")]
    assert sorted(written) == ["logits-16.stablehlo", "logits-20.stablehlo"]
    other = cbert.load_exported(tmp_path / "exported", batch_sizes=(2,))
    context = {"author": "y", "tags": [], "year": 1980, "heard": ["b", "z"]}
    for length in (3, 19):
        pair = [p.score([*"abcdefgh" * 3][:length], context) for p in (sequences, other)]
        one, expected = ([score.log_probability for score in scores.scores] for scores in pair)
        np.testing.assert_allclose(one, expected, atol=1e-5)


def test_other_refusals(predictor, sequences):
    names = predictor.schema.items

    def refusal(function, *arguments, **options):
        with pytest.raises(UserError) as error:
            function(*arguments, **options)
        return str(error.value)

    assert "items is empty" in refusal(predictor.score, [])
    assert "item None is not a string" in refusal(predictor.score, [names[0], None])
    assert "vocabulary; give one that is" in refusal(predictor.explain, [names[0]], {}, "kilt")
    assert "item holds ['a']" in refusal(predictor.explain, [names[0]], {}, ["a"])
    assert "is among the items" in refusal(predictor.explain, [names[0]], {}, names[0])
    assert "explain takes at most one" in refusal(sequences.explain, [None, None], {}, "a")
    assert "a list of as many" in refusal(predictor.complete, [["a"], ["b"]], [{}])
    assert "a list of as many" in refusal(predictor.complete, [["a"], ["b"]], {"age": 3})
    full = list(names[:8])
    assert "leave no item" in refusal(predictor.complete, full, only=full)
    assert len(predictor.complete(full, k=1).predictions) == 1
    # A model with learned positions has none after the last.
    early = refusal(sequences.complete, ["a", None, *"a" * 20])
    assert early == (
        "position 1 of 22 is to be predicted; the model takes the latest 20, give fewer items "
        "after it"
    )
    latest = "such as the latest ones"
    assert f"give at most 20, {latest}" in refusal(sequences.score, ["a"] * 21)
    # 1e29 divided by a deviation of 1e-12 is finite, but no float32.
    tiny = dataclasses.replace(sequences.schema.feature("year"), scale=1e-12)
    checker = Checker(dataclasses.replace(sequences.schema, features=(tiny,)), True)
    assert "too large beside" in refusal(checker.context, {"year": 1e29})
    assert checker.context({"year": np.int64(2000)}).values["year"] == 2000
