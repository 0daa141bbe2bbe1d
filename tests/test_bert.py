"""Text models are BERT exactly."""

import dataclasses
import math

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert.errors import UserError
from cbert.model import conditioning, heads, parameter_tree, presets, text_bert
from cbert.model.huggingface.names import HEAD_ENTRIES, canonical, encoder_entries
from cbert.schema import History
from tests import bert_reference
from tests.bert_reference import RANDOM_BERT
from tests.models import drawn
from tests.text_models import hidden_states, loaded, minilm

INPUTS = bert_reference.inputs()
PLAIN_STARTS = [name for name, method in conditioning.METHODS.items() if method.starts_as_plain]


def pretraining_outputs(model, params, context=None, rngs=None, **inputs):
    """All that BERT's pretraining gives, by the names of the reference."""
    inputs = {**(inputs or INPUTS), "context": context, "rngs": rngs}
    done = jax.jit(model.apply)({"params": params}, **inputs)
    logits = done.vectors @ done.table.T + done.bias
    return {"tokens": logits, "next_sentence": done.next_sentence}


# Compiled as a whole: operation by operation, the compilations take several times as long.
compiled_outputs = jax.jit(pretraining_outputs, static_argnums=0)


def weighted_sum(outputs):
    """One number that depends on every output, as in `transformers_peer.py`."""
    return sum(
        (x * jnp.cos(jnp.arange(x.size)).reshape(x.shape)).sum() for x in outputs.values()
    )


def bert_formula(size, head):
    """Parameters of BERT by its sizes alone."""
    n, d, _ = presets.SIZES[size]
    dense = lambda a, b: a * b + b  # noqa: E731
    embeddings = (30_522 + 512 + 2) * d + 2 * d
    block = 4 * dense(d, d) + dense(d, 4 * d) + dense(4 * d, d) + 2 * 2 * d
    pooler = dense(d, d)
    pretraining = dense(d, d) + 2 * d + 30_522 + dense(d, 2)
    return embeddings + n * block + pooler + (pretraining if head == "pretraining" else 0)


@pytest.mark.parametrize(
    ("size", "head", "count"),
    [
        ("base", "plain", 109_482_240),
        ("base", "pretraining", 110_106_428),
        ("large", "plain", 335_141_888),
        ("large", "pretraining", 336_226_108),
    ],
)
def test_counts_of_bert(size, head, count):
    config = presets.bert(size)
    classes = {
        "plain": heads.HiddenStatesHead(config),
        "pretraining": heads.PretrainingHead(config, presets.VOCABULARY),
    }
    sizes = presets.VOCABULARY, presets.MAX_LENGTH
    model = text_bert.build(config, "none", (), sizes, classes[head])
    counts = parameter_tree.parameter_sizes(model).values()
    assert sum(counts) == count == bert_formula(size, head)


@pytest.mark.parametrize("kernels", ["plain", "fast"])
def test_outputs_equal_an_independent_forward_pass(kernels):
    expected = bert_reference.pretraining(
        bert_reference.load(RANDOM_BERT), **INPUTS, layers=2, heads=4
    )
    model, params = loaded(RANDOM_BERT, kernels=kernels)
    outputs = compiled_outputs(model, params, **INPUTS)
    encoder, params = loaded(RANDOM_BERT, hidden_states, kernels=kernels)
    apply = jax.jit(encoder.apply)
    outputs["hidden"], outputs["pooled"] = apply({"params": params}, **INPUTS)
    assert outputs.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(outputs[name], values, atol=1e-5, err_msg=name)


def test_outputs_equal_those_that_transformers_computed():
    """`random_bert/outputs.npz` was written by `transformers_peer.py --double`."""
    model, params = loaded(RANDOM_BERT)
    outputs = compiled_outputs(model, params, **INPUTS)
    expected = np.load(RANDOM_BERT / "outputs.npz")
    for name in outputs:
        np.testing.assert_allclose(outputs[name], expected[name], atol=1e-5, err_msg=name)


@pytest.mark.parametrize("kernels", ["plain", "fast"])
def test_gradients_equal_a_float64_reference(kernels):
    model, params = loaded(RANDOM_BERT, kernels=kernels)
    gradients = jax.jit(
        jax.grad(lambda params: weighted_sum(pretraining_outputs(model, params)))
    )(params)
    gradients = flax.traverse_util.flatten_dict(gradients)
    with jax.enable_x64(True):

        def loss(tensors):
            p = {canonical(name): x for name, x in tensors.items()}
            done = bert_reference.pretraining(
                p, **INPUTS, layers=2, heads=4, xp=jnp, erf=jax.scipy.special.erf
            )
            return weighted_sum({name: done[name] for name in ("tokens", "next_sentence")})

        exact = jax.tree.map(jnp.asarray, bert_reference.load(RANDOM_BERT))
        exact = jax.tree.map(np.asarray, jax.jit(jax.grad(loss))(exact))
    for entry in encoder_entries(2) + HEAD_ENTRIES:
        if entry.path in gradients:
            for name, gradient in entry.split(gradients.pop(entry.path)).items():
                error = np.linalg.norm(gradient - exact[name])
                assert error < 1e-4 * max(np.linalg.norm(exact[name]), 1), name
    assert not gradients


def test_positions_asked_for_are_those_of_all():
    model, params = loaded(RANDOM_BERT)
    apply = jax.jit(model.apply)
    every = apply({"params": params}, **INPUTS)
    positions = np.array([[3, 1], [0, 5], [7, 2]], np.int32)
    some = apply({"params": params}, **INPUTS, positions=positions)
    rows = np.arange(3)[:, None]
    np.testing.assert_allclose(some.vectors, every.vectors[rows, positions], atol=1e-5)
    np.testing.assert_allclose(some.next_sentence, every.next_sentence, atol=1e-5)


def test_the_other_heads_read_what_they_should():
    """Each head's logits from the last hidden states by hand."""
    _, params = loaded(RANDOM_BERT, hidden_states)
    expected = bert_reference.pretraining(
        bert_reference.load(RANDOM_BERT), **INPUTS, layers=2, heads=4
    )
    for head, name, read, shape in (
        (lambda config, _: heads.ClassificationHead(config, 3), "classifier", "pooled", (3, 3)),
        (lambda config, _: heads.TaggingHead(config, 5), "classifier", "hidden", (3, 10, 5)),
        (lambda config, _: heads.SpanHead(config), "span", "hidden", (3, 10, 2)),
    ):
        model, params = loaded(RANDOM_BERT, head)
        logits = jax.jit(model.apply)({"params": params}, **INPUTS)
        assert logits.shape == shape
        own = params[name]
        by_hand = expected[read] @ np.asarray(own["kernel"]) + np.asarray(own["bias"])
        np.testing.assert_allclose(logits, by_hand, atol=1e-5)


def test_padding_never_matters():
    model, params = loaded(RANDOM_BERT)
    other = INPUTS["tokens"].copy()
    other[~INPUTS["mask"]] = 7
    one = compiled_outputs(model, params, **INPUTS)
    two = compiled_outputs(model, params, **(INPUTS | {"tokens": other}))
    for name in one:
        seen = INPUTS["mask"] if name == "tokens" else np.ones(3, bool)
        assert (np.asarray(one[name])[seen] == np.asarray(two[name])[seen]).all()


def test_bfloat16_is_close_to_float32():
    model, params = loaded(RANDOM_BERT)
    half, _ = loaded(RANDOM_BERT, dtype="bfloat16")
    # Compiled as a whole, XLA may leave out a rounding that the model asks for.
    every = pretraining_outputs(half, params)
    for name, exact in compiled_outputs(model, params, **INPUTS).items():
        rounded = every[name]
        assert rounded.dtype == jnp.float32
        # A bfloat16 has 8 bits: two layers keep about 1 % of the spread.
        assert 0 < np.abs(rounded - exact).max() < 0.05 * np.std(exact)
        if name == "next_sentence":  # The last layer does not round what it returns.
            assert (rounded != rounded.astype(jnp.bfloat16)).all()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("method", "kernels"),
    [("np", "plain"), ("gsu", "fast")],
)
def test_remat_keeps_gradients_and_saves_memory(schema, train_split, method, kernels):
    """Dropout is on: the second computation of a block must drop the same entries."""
    config = dataclasses.replace(
        presets.bert("tiny"), dimension=16, heads=4, feed_forward=64, layers=4
    )
    inputs = bert_reference.inputs(rows=8, length=32)
    context = {name: column[:8] for name, column in train_split.context.items()}
    results, saved = [], []
    for remat in (False, True):
        chosen = dataclasses.replace(config, remat=remat, kernels=kernels)
        head = heads.PretrainingHead(chosen, 50)
        model = text_bert.build(chosen, method, schema.features[:3], (50, 32), head)
        params = drawn(model)
        rngs = {"dropout": jax.random.key(1)}

        def loss(params, model=model, rngs=rngs):
            return weighted_sum(pretraining_outputs(model, params, context, rngs, **inputs))

        results.append(jax.jit(jax.value_and_grad(loss))(params))
        residuals = jax.eval_shape(lambda params, loss=loss: jax.vjp(loss, params)[1], params)
        saved.append(sum(x.size for x in jax.tree.leaves(residuals)))
    for one, other in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5 * max(1, np.abs(one).max()))
    # What is saved for the backward pass, the parameters among it.
    assert saved[1] < 0.5 * saved[0], saved


@pytest.mark.soak
def test_minilm_equals_an_independent_forward_pass():
    model, params = loaded(minilm(), hidden_states)
    inputs = bert_reference.inputs(length=40, vocabulary=30_522)
    hidden, _ = jax.jit(model.apply)({"params": params}, **inputs)
    expected = bert_reference.forward(
        bert_reference.load(minilm()), **inputs, layers=6, heads=12
    )
    np.testing.assert_allclose(hidden, expected, atol=1e-4)


def test_what_no_text_model_can_be_is_refused(schema):
    config = dataclasses.replace(presets.bert("tiny"), start_as_plain=True)
    head = heads.HiddenStatesHead(config)
    for method in sorted(conditioning.METHODS.keys() - set(PLAIN_STARTS)):
        with pytest.raises(UserError, match="start_as_plain is true, but the method"):
            text_bert.build(config, method, schema.features, (50, 12), head)
    with pytest.raises(UserError, match="no context features"):
        text_bert.build(config, "gs", (), (50, 12), head)
    with pytest.raises(UserError, match="a history of items, and a text has none"):
        text_bert.build(config, "gs", (History("bought", 8, 4),), (50, 12), head)
    with pytest.raises(UserError, match="no BERT of size 'huge'; choose one of tiny, mini"):
        presets.bert("huge")
    model, params = loaded(RANDOM_BERT)
    long = {name: np.tile(x, (1, 2)) for name, x in INPUTS.items()}
    with pytest.raises(UserError, match="has 20 tokens, and the model has 12 positions"):
        model.apply({"params": params}, **long)


def test_every_preset_is_what_its_name_says():
    assert math.prod(presets.SIZES["base"]) == 12 * 768 * 12
    widths = {
        size: presets.bert(size).dimension // presets.bert(size).heads for size in presets.SIZES
    }
    assert widths == {**dict.fromkeys(presets.SIZES, 64), "minilm": 32}
