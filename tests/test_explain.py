"""What a model reads of the context: attention to features, and gates."""

import dataclasses
import functools
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cbert
from cbert import parallel
from cbert.data.columns import Split, evenly_spaced
from cbert.errors import UserError
from cbert.evaluation import attention, gates, model_state, sown
from cbert.evaluation.restore import Restored, restore
from cbert.model import conditioning
from cbert.model.attention import WEIGHTS, Attention
from cbert.model.config import ModelConfig
from cbert.report import plot_helpers, report_data, sections
from cbert.schema import SEQUENCE, Categorical, History, Schema
from cbert.tasks.masked_item import MaskedItem
from cbert.tasks.masked_queries import LAST
from cbert.training import loop
from cbert.training import workdir as workdir_lib
from tests import report_runs
from tests.conftest import refused, run, small, some
from tests.models import SMALL, build, initialized, made

TWO = dataclasses.replace(SMALL, layers=2)


def zeroed(params, *names):
    """The parameters with those that have one of the names in their path set to zero."""

    def change(path, leaf):
        inside = {str(getattr(key, "key", key)) for key in path}
        return jnp.zeros_like(leaf) if inside & set(names) else leaf

    return jax.tree_util.tree_map_with_path(change, params)


def restored(schema, method, config=TWO, zero=(), **options):
    """A task with parameters."""
    model, params = made(schema, method, config, **options)
    task = MaskedItem(model, schema)
    return Restored(task, 7, parallel.replicate(zeroed(params, *zero)), 32)


@pytest.mark.parametrize("form", ["auto", "plain"])
def test_the_weights_are_those_of_the_forms(form):
    """With values that are the unit vectors, the output is the weights themselves."""
    config = ModelConfig(dimension=4, heads=1, layers=1, kernels=form, dropout=0.0)
    random = np.random.default_rng(0)
    x = np.float32(random.normal(size=(1, 3, 4)))
    bias = np.float32(random.normal(size=(1, 3, 3)))
    mask = np.array([[True, True, False]])
    params = jax.jit(Attention(config).init)(jax.random.key(0), x, x, mask)["params"]
    keys = params["key_value"]["kernel"][:, :4]
    values = np.linalg.pinv(x[0]) @ np.eye(3, 4)
    params["key_value"]["kernel"] = np.concatenate([keys, values], axis=1)
    params["out"]["kernel"] = np.eye(4)
    apply = functools.partial(Attention(config).apply, mutable=["intermediates"])
    read, kept = jax.jit(apply)({"params": params}, x, x, mask, bias)
    (weights,) = kept["intermediates"]["attention_weights"]
    np.testing.assert_allclose(weights[0, 0], read[0, :, :3], atol=1e-5)
    assert weights[0, 0, :, 2].max() == 0


@pytest.mark.soak
def test_equal_logits_are_equal_weights(schema, train_split):
    """Without query and key each observed feature and the null token get the same."""
    split = evenly_spaced(train_split, 40)
    missing = schema.features[0]
    column = np.repeat(np.asarray(missing.missing()), len(split), axis=0)
    column[:10] = split.context[missing.name][:10]
    split = dataclasses.replace(split, context={**split.context, missing.name: column})
    measured = attention.measure(restored(schema, "cross_attention", zero=("query",)), split)
    observed = np.ones((len(split), len(schema.features) + 1))
    model = build(schema, "cross_attention", TWO)
    context = split.context

    def is_observed(encoder):
        return encoder.embed_context(context).observed

    of_features = model.encoder.apply({"params": initialized(model, 0)}, method=is_observed)
    observed[:, :-1] = np.stack([*of_features.values()], axis=1)
    expected = (observed / observed.sum(axis=1, keepdims=True)).mean(axis=0)
    assert [*measured["weights"]] == [*(f.name for f in schema.features), "(null)"]
    for name, mean, there in zip(
        measured["weights"], expected, observed.mean(axis=0), strict=True
    ):
        np.testing.assert_allclose(measured["weights"][name], [mean, mean], atol=1e-5)
        assert measured["present"][name] == pytest.approx(there)
    assert measured["present"][missing.name] <= 0.25
    assert measured["examples"] == 40


@pytest.fixture(scope="module")
def tiny(data_dir, tmp_path_factory):
    """The work directory of a short run whose method attends to the features."""
    workdir = tmp_path_factory.mktemp("runs") / "cross"
    config = small("cross_attention", data__dir=data_dir, train__steps=3, model__layers=2)
    loop.train(config, workdir)
    return workdir


@pytest.mark.soak
@pytest.mark.parametrize("case", some([("prefix", True), ("np", False)], ("np", False)))
def test_positions_that_a_method_adds(schema, train_split, case):
    """Without query and key L tokens and what was added get the same, or nothing if gated."""
    method, gated = case
    split = evenly_spaced(train_split, 20)
    config = dataclasses.replace(TWO, start_as_plain=gated)
    zero = ("query", "gates")
    measured = attention.measure(restored(schema, method, config, zero), split)
    tokens = measured["weights"].pop("(tokens)")
    if gated:
        np.testing.assert_allclose(tokens, 1, atol=1e-5)
        assert [*measured["weights"]] == [feature.name for feature in schema.features]
        np.testing.assert_allclose([*measured["weights"].values()], 0, atol=1e-5)
    else:
        expected = (1 / (split.lengths + 1)).mean()
        np.testing.assert_allclose(measured["weights"]["(context)"], expected, atol=1e-5)
        np.testing.assert_allclose(tokens, 1 - expected, atol=1e-5)


def test_the_items_of_a_history_count_together():
    features = (History("bought", 4, max_items=3), Categorical("mood", 4, ("hot",)))
    keys = conditioning.method_class("history").keys(features, 5, None)
    assert keys == ("bought", "bought", "bought", "mood", "(empty)")


def test_gates_fall_into_ranges(schema, train_split):
    """A gate of late_gate whose weights are zero is the sigmoid of its bias."""
    split = evenly_spaced(train_split, 20)
    given = restored(schema, "late_gate", zero=("gate_hidden", "gate_context"))
    bias = jnp.log(jnp.full(16, 3.0)).at[:4].set(-jnp.log(9.0))
    given.params["conditioning"]["gate_hidden"]["bias"] = parallel.replicate(bias)
    measured = gates.measure(given, split)["gates"]["gate"]
    # The sigmoid of log 3 is 3/4, and that of -log 9 is 1/10.
    assert measured["mean"] == pytest.approx(0.75 * 0.75 + 0.25 * 0.1)
    fractions = dict(zip(gates.RANGES, measured["fractions"], strict=True))
    assert fractions["from 0.7 to 0.8"] == pytest.approx(0.75)
    assert sum(fractions.values()) == pytest.approx(1)
    lines = gates.format_gates({"gates": {"gate": measured}}).splitlines()
    assert lines[9] == "% from 0.7 to 0.8   75.0"


def test_what_is_read_is_asked_as_an_evaluation_asks(trained):
    """The last item of the second sequence is unknown, so that it is asked nothing."""
    schema = Schema(SEQUENCE, 3, ("a", "b"), (2, 1), (Categorical("mood", 2, ("hot",)),))
    items = schema.encode_items([["a", "b"], ["a", "x"], ["b"]])
    context = schema.encode_recorded([{"mood": "hot"}] * 3)
    split = Split([*"123"], [*"123"], ["{}"] * 3, items, context, None)
    given = dataclasses.replace(restored(schema, "late_gate", SMALL), masking=LAST)
    assert gates.measure(given, split)["examples"] == 2
    config, schema = workdir_lib.read(trained)
    config.eval.masking = LAST
    assert restore(trained, config, schema, "best").masking == LAST


@pytest.mark.parametrize("method", ["np", "cross_attention"])
def test_attention_is_summed_by_name_in_each_block(schema, method):
    """Three tokens, the last of which is padding; the last block computes one position."""
    model, names = build(schema, method, TWO), 2 if method == "np" else len(schema.features) + 1
    keys = 4 if method == "np" else names
    drawn = [np.random.default_rng(rows).random((1, 4, rows, keys)) for rows in (3, 1)]
    sown_by = [{WEIGHTS: (jnp.asarray(weights),)} for weights in drawn]
    if method == "np":
        kept = {f"blocks_{layer}": {"attention": own} for layer, own in enumerate(sown_by)}
    else:
        own = {f"attention_{layer}": own for layer, own in enumerate(sown_by)}
        kept = {"conditioning": own}
    mask = jnp.array([[True, True, False]])
    found = jax.jit(functools.partial(attention.means, model))(kept, mask)["weights"][0]
    for layer, weights in enumerate((drawn[0][0, :, :2], drawn[1][0])):
        expected = weights.mean(axis=(0, 1))
        if method == "np":
            expected = [expected[:3].sum(), expected[3]]
        np.testing.assert_allclose(found[layer], expected, rtol=1e-5)


def test_a_method_without_attention_is_refused():
    line = (
        "the method gsu has no attention to show; these have: np, prefix, .*, history; for "
        "every method, use what=features with items=JSON or text=TEXT"
    )
    with pytest.raises(UserError, match=line):
        sown.check("gsu", "attention")
    with pytest.raises(UserError, match="has no gates to show; these have: mag, late_gate"):
        sown.check("gsu", "gates")


@pytest.mark.soak
def test_the_command(tiny):
    done = run("explain", f"--workdir={tiny}", "--examples=30")
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["attention", "%", *("block", "1", "block", "2"), "present"]
    written = json.loads((tiny / "explain" / "attention.json").read_text())
    about = written["method"], written["step"], written["examples"]
    assert about == ("cross_attention", 3, 30)
    weights = written["weights"]
    np.testing.assert_allclose(np.sum([*weights.values()], axis=0), 1, atol=1e-5)
    shown = rows[: len(weights)]
    assert [row.split()[0] for row in shown] == [*weights]
    assert shown[0].split()[1] == f"{100 * next(iter(weights.values()))[0]:.1f}"
    drawn = (tiny / "explain" / "attention.png").read_bytes()
    assert drawn.startswith(b"\x89PNG")
    run("explain", f"--workdir={tiny}", "--examples=20", "--json")
    assert (tiny / "explain" / "attention.png").read_bytes() != drawn
    done = run("explain", f"--workdir={tiny}", "--examples=30", "--what=state")
    state = json.loads((tiny / "explain" / "state.json").read_text())
    assert len(state["rms"]) == len(state["effective_rank"]) == 2
    assert f"{state['rms'][1]:.4f}" in done.stdout
    assert [*state["gradients"]] == [*model_state.PARTS]
    assert "no gates to show" in refused("explain", f"--workdir={tiny}", "--what=gates")
    moved = refused("explain", f"--workdir={tiny}", f"--data_dir={tiny}/moved")
    assert f"{tiny}/moved" in moved
    assert "the blocks are 1 to 2" in refused(
        "explain", f"--workdir={tiny}", "--items=[null]", "--block=3"
    )


@pytest.mark.soak
def test_what_cannot_be_written_is_shown(tiny, tmp_path):
    shutil.copytree(tiny, tmp_path / "run", ignore=shutil.ignore_patterns("explain"))
    (tmp_path / "run" / "explain").write_text("a file")
    done = run("explain", f"--workdir={tmp_path}/run", "--examples=30", check=2)
    assert done.stdout.split()[:3] == ["attention", "%", "block"]
    line = f"the results above could not be written to {tmp_path}/run/explain (File exists)"
    assert done.stderr.startswith(f"error: {line}; give it room")


@pytest.mark.soak
def test_one_query(tiny):
    """A feature that is missing gets nothing; what the rest gets is shown by position."""
    predictor = cbert.load(tiny)
    item, schema = predictor.schema.items[0], predictor.schema
    feature = next(each for each in schema.features if isinstance(each, Categorical))
    context = json.dumps({feature.name: feature.values[0]})
    done = run(
        *("explain", f"--workdir={tiny}", f"--items={json.dumps([item, None])}"),
        *(f"--context={context}", "--json"),
    )
    shown = json.loads(done.stdout)
    assert shown["positions"] == [item, "(masked)"]
    weights = np.array(shown["weights"])
    assert weights.shape == (2, 2, len(schema.features) + 1)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)
    read = dict(zip(shown["names"], weights.max(axis=(0, 1)), strict=True))
    assert {name for name, weight in read.items() if weight} == {feature.name, "(null)"}


def test_reports_show_what_was_measured(tmp_path):
    weights = {"(tokens)": [0.7, 0.9], "(context)": [0.3, 0.1]}
    measured = {"weights": weights, "step": 6, "split": "test", "examples": 50}
    # Of prefix an earlier checkpoint was measured, of cross_attention another split.
    cases = ("np", 6, "test"), ("prefix", 5, "test"), ("cross_attention", 6, "train")
    for method, step, split in cases:
        folder = report_runs.write_run(tmp_path, method, 0) / "explain"
        folder.mkdir()
        text = json.dumps({**measured, "step": step, "split": split})
        (folder / "attention.json").write_text(text)
    state = {"rms": [0.25, 1.5], "effective_rank": [3.0, 12.25], "dead_units": [0.5]}
    state |= {"gradients": {"encoder": 2.5, "head": 0.125}, "step": 6}
    path = tmp_path / "np-0" / "explain" / "state.json"
    path.write_text(json.dumps({**measured, **state}))
    data = report_data.load(tmp_path, "test", "np")
    (section,) = sections._attention(data)
    (plot,) = section.plots
    assert "The most goes to (tokens)" in plot.alt
    assert plot_helpers.render(plot).startswith(b"\x89PNG")
    (table,) = sections._state(data)[0].tables
    row = ("np", "0.250, 1.500", "3.0, 12.2", "50", "", "2.5", "", "0.125")
    assert table.rows == [row]
    (tmp_path / "np-0" / "explain" / "attention.json").write_text("{}")
    with pytest.raises(UserError, match=r"attention\.json: damaged"):
        sections._attention(data)
