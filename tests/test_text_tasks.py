"""The tasks of texts: what is masked, what is learnt, and what an evaluation writes."""

import functools
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet
import pytest

from cbert import tasks
from cbert.data.masking import Masking, mask
from cbert.errors import UserError
from cbert.evaluation import compare, evaluation_files
from cbert.evaluation import evaluate as evaluate_lib
from cbert.evaluation.bigram import Bigram
from cbert.model import conditioning
from cbert.schema import PAD_ITEM
from cbert.tasks.base import Examples
from cbert.tasks.masked_queries import eligible, query_tokens
from cbert.training import config as config_lib
from cbert.training import loop
from tests import steps
from tests.conftest import some
from tests.models import drawn
from tests.text_data import load, prepare_texts, small_text

KEY = jax.random.key(5)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for target in ("label", "tags"):
        prepare_texts(folder, target)
    return folder


def examples(task, split, rows=64):
    """The first rows of a split as the batch of one device."""
    columns = jax.tree.map(lambda column: jnp.asarray(column[:rows]), split.columns)
    constants = jax.tree.map(jnp.asarray, task.constants())
    return Examples(columns, constants, np.arange(rows), rows)


def create(config, schema, train=None):
    """The task of a config, and parameters of its model."""
    model = config_lib.build_model(config, schema)
    task = tasks.create(config, model, schema, train)
    return task, drawn(model)


def test_tokens_are_masked_exactly_and_never_special_ones(directory):
    split, schema = load(directory, "label")
    config = small_text("masked_language", directory)
    config.task.masked_language.update({"mask_rate": 0.4, "corrupt": False})
    task, _ = create(config, schema, split)
    batch = jax.jit(task.batch)((KEY, KEY), examples(task, split))
    codes, shown = split.items[:64], np.asarray(batch["items"])
    masked = shown == schema.codes["[MASK]"]
    tokens = (codes != PAD_ITEM).sum(1) - 2  # All but [CLS] and [SEP].
    wanted = np.maximum(np.floor(tokens * 0.4 + 0.5), 1)
    assert masked.sum(1).tolist() == wanted.tolist()
    assert np.asarray(batch["weights"]).sum(1).tolist() == wanted.tolist()
    special = [schema.codes[token] for token in ("[CLS]", "[SEP]")]
    assert not np.isin(codes[masked], [PAD_ITEM, *special]).any()
    assert (shown == codes)[~masked].all()
    all_tokens = (split.items != PAD_ITEM).sum(1) - 2
    expected = np.maximum(np.floor(all_tokens * 0.4 + 0.5), 1).mean()
    assert batch["divisor"] == pytest.approx(64 * expected)


def test_words_are_masked_whole_and_no_more_than_fit():
    words = [1, 1, 3, 2, 1, 4]  # Pieces of each word.
    continues = np.concatenate([[False] + [True] * (size - 1) for size in words])
    rows, length = 3000, len(continues)
    codes = np.tile(np.arange(length, dtype=np.int32), (rows, 1))
    masked_words = functools.partial(
        mask,
        batch_size=rows,
        masking=Masking("rate", 0.4),
        vocabulary=length,
        eligible=jnp.ones((rows, length), bool),
        mask_code=99,
        continues=jnp.asarray(np.tile(continues, (rows, 1))),
    )
    shown, _, _, weights = jax.jit(masked_words)(KEY, jnp.asarray(codes), np.arange(rows))
    masked = np.asarray(shown) == 99
    assert np.asarray(weights).sum(1).tolist() == masked.sum(1).tolist()
    ends = np.cumsum(words)
    whole = np.stack(
        [masked[:, end - size : end].sum(1) for size, end in zip(words, ends, strict=True)], 1
    )
    assert ((whole == 0) | (whole == words)).all()
    # 0.4 of 12 positions are 5, and a word left out would not have fitted.
    left = 5 - masked.sum(1)
    assert (left >= 0).all()
    smallest = np.where(whole == 0, words, 99).min(1)
    assert (left < smallest).all()
    # The word of four pieces is masked where it comes before too many others.
    assert 0.1 < (whole[:, 5] > 0).mean() < 0.5


def test_what_is_masked_is_not_seen(directory):
    split, schema = load(directory, "label")
    config = small_text("masked_language", directory)
    config.task.masked_language.corrupt = False
    task, params = create(config, schema, split)
    given, make_batch = examples(task, split), jax.jit(task.batch)
    batch = make_batch((KEY, KEY), given)
    rows, positions = np.arange(64)[:, None], np.asarray(batch["positions"])
    changed = np.array(given.columns["items"])
    real = np.asarray(batch["weights"]) > 0
    other = np.where(real, schema.codes["red"], changed[rows, positions])
    changed[rows, positions] = other
    again = make_batch(
        (KEY, KEY), given.replace(columns={**given.columns, "items": jnp.asarray(changed)})
    )
    assert (np.asarray(again["targets"]) != np.asarray(batch["targets"])).any()
    outputs = jax.jit(task.outputs)
    one, another = (
        np.asarray(outputs(params, each, each["positions"]).vectors)[real]
        for each in (batch, again)
    )
    np.testing.assert_array_equal(one, another)


@pytest.mark.parametrize("method", some(conditioning.NAMES, "gsu"))
def test_every_method_trains_on_masked_tokens(directory, method):
    # With one block no state would be updated.
    sizes = {"train__steps": 10, "model__layers": 1 if method == "none" else 2}
    config = small_text("masked_language", directory, method=method, **sizes)
    _, schema = load(directory, "label")
    _, rows = steps.steps(config, schema, 10)
    losses = [row["loss"] / row["loss_count"] for row in rows]
    assert np.isfinite(losses).all()
    assert np.mean(losses[-3:]) < np.mean(losses[:3])


def evaluated(workdir, config, **options):
    loop.train(config, workdir)
    evaluation = evaluate_lib.evaluate(workdir, evaluate_lib.EvaluationOptions(**options))
    summary = evaluation_files.summary(evaluation, options.get("by", ()))
    evaluation_files.write(evaluation, summary, workdir)
    return evaluation, summary


LEARNS = {"train__steps": 150, "train__eval_every": 50, "train__checkpoint_every": 50}


@pytest.mark.soak
def test_classification_needs_the_context(directory, tmp_path):
    """Half of the texts are red, and the label of these is a coin that only the mood shows."""
    results = {}
    for method in ("none", "gs"):
        config = small_text("classification", directory, method=method, **LEARNS)
        results[method] = evaluated(tmp_path / method, config, by=("mood",))
    (none, without), (gs, with_context) = results["none"], results["gs"]
    assert with_context["results"]["model"]["accuracy"]["mean"] > 0.95
    assert with_context["results"]["model"]["macro_f1"]["mean"] > 0.95
    assert without["results"]["model"]["accuracy"]["mean"] < 0.9
    assert with_context["masking"] == ""
    with pytest.raises(UserError, match="the task classification masks nothing"):
        evaluate_lib.evaluate(tmp_path / "gs", evaluate_lib.EvaluationOptions(masking="each"))
    paired = compare.paired(none, gs)
    assert paired["high"] < -0.2  # It is worth half of log 2, or .35 nats.
    # What the files say is what the evaluation found.
    written = json.loads((tmp_path / "gs" / "eval" / "test.json").read_text())
    assert written["results"] == json.loads(json.dumps(with_context["results"]))
    assert set(written["by_mood"]) == {"warm", "cold"}
    table = pyarrow.parquet.read_table(tmp_path / "gs" / "eval" / "test.parquet").to_pydict()
    accuracy = np.mean(np.array(table["label"]) == np.array(table["prediction"]))
    assert accuracy == pytest.approx(written["results"]["model"]["accuracy"]["mean"])
    assert all(1 / 3 <= probability <= 1 for probability in table["probability"])
    assert " " in table["text"][0]
    # The baselines know how frequent labels are, and how frequent they are given the mood.
    assert set(table["majority_prediction"]) == {"blue"}
    blue = np.mean(np.array(table["label"]) == "blue")
    majority, given = (
        written["results"][name] for name in ("majority", "majority given context")
    )
    assert majority["accuracy"]["mean"] == pytest.approx(blue)
    assert majority["cross_entropy"]["mean"] == pytest.approx(1.5 * np.log(2), abs=0.1)
    assert given["cross_entropy"]["mean"] == pytest.approx(np.log(2), abs=0.1)


@pytest.mark.soak
def test_tagging_needs_the_context(directory, tmp_path):
    results = {}
    for method in ("none", "gs"):
        config = small_text("tagging", directory, "tags", method, **LEARNS)
        _, results[method] = evaluated(tmp_path / method, config)
    with_context = results["gs"]["results"]["model"]
    assert with_context["span_f1"]["mean"] > 0.95
    assert results["none"]["results"]["model"]["span_f1"]["mean"] < 0.75
    table = pyarrow.parquet.read_table(tmp_path / "gs" / "eval" / "test.parquet").to_pydict()
    words = sum(len(tags) for tags in table["tags"])
    right = sum(
        one == other
        for tags, predicted in zip(table["tags"], table["prediction"], strict=True)
        for one, other in zip(tags, predicted, strict=True)
    )
    assert with_context["accuracy"]["mean"] == pytest.approx(right / words)
    for tags, text in zip(table["tags"], table["text"], strict=True):
        assert len(tags) == len(text.split())


@pytest.mark.soak
def test_a_run_goes_on_as_if_it_had_not_stopped(directory, tmp_path):
    config = small_text("classification", directory, model__dropout=0.1)
    loop.train(config, tmp_path)
    whole = (tmp_path / "metrics.jsonl").read_text()
    checkpoints = tmp_path / "checkpoints"
    (tmp_path / "finished.json").unlink()
    for step in ("6", "4"):
        if (checkpoints / step).exists():
            (checkpoints / step).rename(tmp_path.parent / f"{tmp_path.name}-{step}")
    loop.train(config, tmp_path)
    again = (tmp_path / "metrics.jsonl").read_text()

    def losses(text):
        rows = [json.loads(line) for line in text.splitlines()]
        return {row["step"]: row["loss"] for row in rows if "loss" in row}

    assert losses(again) == losses(whole)


@pytest.mark.soak
def test_masked_language_beside_its_baselines(directory, tmp_path):
    config = small_text("masked_language", directory, train__steps=40)
    evaluation, summary = evaluated(tmp_path, config, masking="each")
    results = summary["results"]
    assert list(results) == [
        "model",
        "unigram",
        "unigram given context",
        "bigram interpolated",
    ]
    for result in results.values():
        assert result["pseudo_perplexity"]["mean"] == pytest.approx(
            np.exp(result["cross_entropy"]["mean"])
        )
    table = pyarrow.parquet.read_table(tmp_path / "eval" / "test-each.parquet").to_pydict()
    assert summary["queries"] == len(table["token"])
    assert not {"[CLS]", "[SEP]", "[PAD]"} & set(table["token"])
    assert summary["queries"] == int((evaluation.split.lengths - 2).sum())


def test_the_bigram_baseline_is_a_distribution_and_right_by_hand(directory):
    split, schema = load(directory, "label")
    queries = query_tokens(split, schema, "one")
    counts = np.bincount(query_tokens(split, schema, "each").items, minlength=len(schema.items))
    bigram = Bigram(split.items, counts)
    bigram.interpolation = 0.7
    log_probability, rank = bigram.predict(split.items, queries)
    row, position = int(queries.rows[0]), int(queries.positions[0])
    left, right = split.items[row, [position - 1, position + 1]]
    unigram = (counts + 0.5) / (counts + 0.5).sum()
    pairs = np.zeros((len(counts), len(counts)))
    for items in split.items:
        for a, b in itertools.pairwise(items):
            if b != PAD_ITEM:
                pairs[a, b] += 1
    totals = pairs.sum(1, keepdims=True)
    chain = np.where(totals, 0.7 * pairs / np.maximum(totals, 1) + 0.3 * unigram, unigram)
    joint = chain[left] * chain[:, right]
    own = joint[queries.items[0]]
    assert log_probability[0] == pytest.approx(np.log(own / joint.sum()), rel=1e-4)
    assert rank[0] == (joint >= own * (1 - 1e-6)).sum()
    bigram.tune(split.items, queries)  # Of pairs that it has counted it needs no unigram.
    assert bigram.interpolation == 0.9


def test_masks_of_an_evaluation_are_the_same_for_every_order(directory):
    split, schema = load(directory, "label")
    one = query_tokens(split, schema, "one")
    assert len(one) == len(split)
    assert eligible(split.items, schema)[one.rows, one.positions].all()
    assert len(set(one.positions.tolist())) > 3
    with pytest.raises(UserError, match="'last', which sequences of items alone have"):
        query_tokens(split, schema, "last")


def test_a_task_that_does_not_fit_the_data_is_refused(directory, schema):
    _, texts = load(directory, "label")
    cases = [
        ("tagging", texts, "which needs records with 'tags', and the data have the target"),
        ("classification", schema, "but the data are not texts"),
        ("masked_item", texts, "but the data are texts"),
    ]
    for task, data, message in cases:
        config = small_text(task, directory)
        with pytest.raises(UserError, match=message):
            config_lib.build_model(config, data)
    config = small_text("masked_language", directory)
    config.task.masked_language.next_sentence = True
    with pytest.raises(UserError, match="labels are not is_next and not_next"):
        config_lib.build_model(config, texts)
