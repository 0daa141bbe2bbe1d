"""Activations of frozen models, their files, and the linear probe on them."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet
import pytest
import scipy.special

from cbert import parallel
from cbert.data import prepared
from cbert.errors import UserError
from cbert.evaluation import activation_files, activations, probe
from cbert.model import huggingface, presets, text_bert
from cbert.model.heads import HiddenStatesHead
from cbert.model.pooling import pool as pool_states
from cbert.training import config as config_lib
from tests.conftest import refused, run, small, some
from tests.models import initialized
from tests.text_data import load, prepare_texts, small_text


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    prepare_texts(folder, "label")
    return folder


def frozen_model(config, schema):
    """A model with fresh parameters."""
    model = config_lib.build_model(config, schema)
    params = parallel.replicate(initialized(model, 0))
    return activations.FrozenModel(model, params, schema, {})


@pytest.fixture(scope="module")
def texts(directory):
    """A model whose method adds a position, and the test split."""
    split, schema = load(directory, "label", "test")
    config = small_text("classification", directory, method="np", model__layers=2)
    return frozen_model(config, schema), split


def test_a_text_of_a_segment_that_the_model_lacks_is_refused(texts):
    frozen, split = texts
    params = jax.tree.map(lambda leaf: leaf, frozen.params)
    params["embedding"]["segments"] = params["embedding"]["segments"][..., :0, :]
    lacking = dataclasses.replace(frozen, params=params)
    with pytest.raises(UserError, match="the data have a text_b; leave it out"):
        computed(lacking, split, "mean")


def computed(frozen, split, pooling, layers=(0, 1, 2), batch_size=16):
    """The activations of all shards; each layer's rows."""
    rows = {layer: [] for layer in layers}
    parts = activations.shards(frozen, split, layers, pooling, batch_size)
    for inside, values in parts:
        assert inside.start == len(rows[layers[0]])
        for layer in layers:
            rows[layer] += list(values[layer])
    return rows


@pytest.mark.soak
def test_activations_are_those_of_each_example_alone(texts, monkeypatch):
    frozen, split = texts
    monkeypatch.setattr(activations, "SHARD_BYTES", 1)  # A shard is then one batch.
    tokens = computed(frozen, split, "tokens")
    assert all(len(rows) == len(split) for rows in tokens.values())
    compute = jax.jit(functools.partial(activations.hidden_states, frozen.model))
    for row in (0, len(split) - 1):
        length = split.lengths[row]
        columns = jax.tree.map(lambda column, row=row: column[row : row + 1], split.columns)
        alone = {
            name: column[:, :length]
            for name, column in columns.items()
            if name in ("items", "segments")
        }
        hidden = compute(frozen.params, {**columns, **alone})
        for layer, rows in tokens.items():
            np.testing.assert_allclose(rows[row], hidden[layer][0], atol=1e-5)
    for pooling, pool in (("cls", lambda x: x[0]), ("mean", lambda x: x.mean(axis=0))):
        pooled = computed(frozen, split, pooling, batch_size=len(split))
        for layer, rows in pooled.items():
            expected = np.stack([pool(x) for x in tokens[layer]])
            np.testing.assert_allclose(np.stack(rows), expected, atol=1e-5)


@pytest.mark.soak
def test_the_first_layer_is_the_embedding_and_the_last_one_what_the_head_reads(texts):
    frozen, split = texts
    model, params = frozen.model, frozen.params
    columns = jax.tree.map(lambda column: jnp.asarray(column[:8]), split.columns)
    codes, segments = jnp.maximum(columns["items"], 0), columns["segments"].astype(jnp.int32)
    inputs = codes, segments, columns["items"] >= 0, columns["context"]
    hidden = jax.jit(functools.partial(activations.hidden_states, model))(params, columns)
    first = hidden[-1][:, 0]
    pooled = jnp.tanh(
        first @ params["pooler"]["dense"]["kernel"] + params["pooler"]["dense"]["bias"]
    )
    logits = pooled @ params["classifier"]["kernel"] + params["classifier"]["bias"]
    expected = model.apply({"params": params}, *inputs)
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    embedding = params["embedding"]
    x = embedding["tokens"][codes] + embedding["segments"][segments]
    x += embedding["positions"][: codes.shape[1]]
    centred = x - x.mean(axis=-1, keepdims=True)
    normal = centred / jnp.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
    np.testing.assert_allclose(hidden[0], normal, atol=1e-4)


def test_what_stands_for_an_example_is_float32():
    """The mean of 1 and 1 + 2^-7 is no bfloat16."""
    x = jnp.asarray([[[1.0], [1.0078125], [3.0]]], jnp.bfloat16)
    mask = jnp.asarray([[True, True, False]])
    for pooling, wanted in (("cls", 1.0), ("mean", 1.00390625), ("tokens", 3.0)):
        pooled = pool_states(x, mask, pooling)
        assert (pooled.dtype, float(pooled.max())) == (jnp.float32, wanted)


@pytest.mark.soak
def test_sets_have_activations_and_no_first_position(schema, data_dir):
    frozen = frozen_model(small("gsu", model__layers=2), schema)
    split = prepared.load(data_dir, "small", "test", schema)
    tokens = computed(frozen, split, "tokens", layers=(2,))[2]
    assert [len(rows) for rows in tokens] == split.lengths.tolist()
    mean = computed(frozen, split, "mean", layers=(2,))[2]
    np.testing.assert_allclose(mean[5], tokens[5].mean(axis=0), atol=1e-5)
    with pytest.raises(UserError, match=r"have no \[CLS\]; use 'mean'"):
        activations.check(frozen, "cls")


def test_layers_are_named_by_numbers_or_last(texts):
    frozen, _ = texts
    assert frozen.layer_numbers(["last", "0"]) == (0, 2)
    with pytest.raises(UserError, match="layers has '3'; use last or numbers from 0 to 2"):
        frozen.layer_numbers(["3"])
    with pytest.raises(UserError, match="name each layer once"):
        frozen.layer_numbers(["2", "last"])


@pytest.mark.parametrize("pooling", some(["mean", "tokens"], "tokens"))
def test_arrays_hold_what_the_table_holds(texts, tmp_path, pooling, monkeypatch):
    frozen, split = texts
    monkeypatch.setattr(activations, "SHARD_BYTES", 1)
    for form in activation_files.FORMATS:
        activation_files.write(
            tmp_path / form, frozen, {"test": split}, (0, 2), pooling, form, 16
        )
    table = pyarrow.parquet.read_table(tmp_path / "parquet" / "test.parquet")
    index = pyarrow.parquet.read_table(tmp_path / "npy" / "test.parquet")
    assert table["id"].to_pylist() == index["id"].to_pylist() == list(split.ids)
    assert index["group"].to_pylist() == list(split.groups)
    target = frozen.schema.target
    known = [target.codes.get(label, -1) for label in index["label"].to_pylist()]
    assert known == split.targets["label"].tolist()
    array = np.load(tmp_path / "npy" / "test_layer_2.npy")
    rows = table["layer_2"].to_pylist()
    if pooling == "tokens":
        assert index["tokens"].to_pylist() == split.lengths.tolist()
        rows = [vector for tokens in rows for vector in tokens]
    np.testing.assert_array_equal(array, np.array(rows, np.float32))
    read = [activation_files.read_layer(tmp_path / form, "test", 0) for form in ("npy",)]
    assert read[0].shape == array.shape


def test_what_is_no_directory_of_features_is_left_alone(texts, tmp_path):
    frozen, split = texts
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("kept")
    arguments = frozen, {"test": split}, (2,), "mean", "parquet", 64
    with pytest.raises(UserError, match="exists and holds no features"):
        activation_files.write(tmp_path / "mine", *arguments)
    assert (tmp_path / "mine" / "notes.txt").read_text() == "kept"
    activation_files.write(tmp_path / "new", *arguments)
    (tmp_path / "new" / "probe.json").write_text("of the old ones")
    activation_files.write(tmp_path / "new", *arguments)
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        "features.json",
        "test.parquet",
    }
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "new"}


def test_the_probe_is_where_the_gradient_is_zero():
    """The objective is convex, so that this is the only optimum."""
    random = np.random.default_rng(0)
    x = (random.normal(size=(300, 5)) * [1, 2, 3, 1, 1] + 4).astype(np.float32)
    x[:, 4] = 1  # It does not vary.
    labels = (x[:, :3] + random.normal(size=(300, 3))).argmax(axis=1)
    strength = 0.03
    fitted = probe.fit(x, labels, strength, 3)
    standardised = (x - x.mean(axis=0)) / np.where(x.std(axis=0) > 0, x.std(axis=0), 1)
    logits = standardised @ fitted.weights[:-1] + fitted.weights[-1]
    own = fitted.log_probabilities(x)
    np.testing.assert_allclose(own, scipy.special.log_softmax(logits, axis=1), atol=1e-4)
    residuals = np.exp(own) - np.eye(3)[labels]
    of_weights = standardised.T @ residuals / 300 + strength * fitted.weights[:-1]
    np.testing.assert_allclose(of_weights, 0, atol=1e-4)
    np.testing.assert_allclose(residuals.mean(axis=0), 0, atol=1e-4)  # Those of the biases.
    assert np.abs(fitted.weights[:3]).max() > 0.1


def test_the_probe_reads_nothing_from_rounding():
    """[CLS] before the first block differs between padded lengths by its last bit alone."""
    labels = np.arange(90) % 3 // 2
    x = np.where(labels, np.nextafter(np.float32(0.7), 1, dtype=np.float32), np.float32(0.7))
    own = probe.fit(x[:, None], labels, 1e-5, 2).log_probabilities(x[:, None])
    np.testing.assert_allclose(np.exp(own), [[2 / 3, 1 / 3]] * 90, atol=1e-4)


def test_the_strength_is_the_best_on_the_validation_split(monkeypatch):
    """What was learned needs the weakest penalty, and what misleads the strongest one."""
    monkeypatch.setattr(probe, "STRENGTHS", (1.0, 1e-2))
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    labels = (x[:, 0] > 0).astype(np.int32)
    for other, expected in ((labels, 1e-2), (1 - labels, 1.0)):
        split = {"train": labels, "validation": other}
        _, strength = probe._tuned(dict.fromkeys(split, x), split, 2)
        assert strength == expected


def test_a_strength_at_the_end_of_those_tried_is_pointed_out():
    strengths = {"0": 1.0, "1": 1e-2, "2": 1e-5, "3": 1e-5}
    summary = {"queries": 9, "strengths": strengths, "results": {}}
    *_, chosen, strongest, weakest = probe.format_results(summary).splitlines()
    assert chosen == "strength: 1 (layer 0), 0.01 (layer 1), 1e-05 (layer 2), 1e-05 (layer 3)"
    assert strongest.startswith("note: the strongest penalty that was tried, 1, is the best of")
    assert strongest.endswith("layer 0; one beyond it may be better")
    assert weakest.endswith(
        "tried, 1e-05, is the best of layer 2, 3; one beyond it may be better"
    )
    summary["strengths"] = {"1": 1e-2}
    assert probe.format_results(summary).endswith("strength: 0.01 (layer 1)")


@pytest.mark.soak
def test_a_pretrained_model_is_probed_by_the_command(directory, tmp_path):
    _, schema = load(directory, "label")
    config = presets.bert("tiny")
    config = type(config)(**{**vars(config), "dimension": 16, "heads": 2, "feed_forward": 32})
    sizes = len(schema.items), schema.max_items, 2
    model = text_bert.build(config, "none", (), sizes, HiddenStatesHead(config))
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("".join(f"{item}\n" for item in schema.items))
    huggingface.write(tmp_path / "bert", model, initialized(model, 0), (), [vocabulary])
    common = (f"--init_from=hf:{tmp_path / 'bert'}", f"--data_dir={directory}")
    output = tmp_path / "features"
    done = run(
        "features",
        *common,
        "--name=texts_label",
        "--layers=0,last",
        f"--output={output}",
        "--probe=label",
    )
    # The mean of the embeddings shows which words there are: a text is red or blue.
    written = json.loads((output / "probe.json").read_text())["results"]
    assert list(written) == ["layer 0", "layer 2", "majority"]
    labels = pyarrow.parquet.read_table(output / "test.parquet")["label"].to_pylist()
    blue = np.mean([label == "blue" for label in labels])
    assert written["majority"]["accuracy"]["mean"] == pytest.approx(blue)
    assert written["majority"]["macro_f1"]["mean"] == pytest.approx(2 * blue / (1 + blue) / 3)
    assert written["layer 0"]["accuracy"]["mean"] > 0.65
    shown = f"{100 * written['layer 0']['accuracy']['mean']:.2f} ±"
    assert shown in done.stdout
    error = refused("features", *common, f"--output={output}")
    assert error == "error: --init_from needs --name=NAME, a prepared data set\n"
