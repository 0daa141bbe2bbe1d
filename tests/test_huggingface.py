"""Folders of `transformers` come in and go out: equal numbers, and one line for damage."""

import dataclasses
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

import flax
import jax
import numpy as np
import pytest
import safetensors.numpy

from cbert.errors import UserError
from cbert.model import heads, huggingface, text_bert
from cbert.model.huggingface.names import HEAD_ENTRIES, TIED, encoder_entries, stored
from tests import bert_reference
from tests.bert_reference import RANDOM_BERT
from tests.models import drawn
from tests.test_bert import weighted_sum
from tests.text_models import hidden_states, loaded, minilm

CONFIG = json.loads((RANDOM_BERT / "config.json").read_text())
TENSORS = safetensors.numpy.load_file(RANDOM_BERT / "model.safetensors")
HEADS = {
    "BertModel": lambda config: heads.HiddenStatesHead(config),
    "BertForPreTraining": lambda config: heads.PretrainingHead(config, 50),
    "BertForSequenceClassification": lambda config: heads.ClassificationHead(config, 3),
    "BertForTokenClassification": lambda config: heads.TaggingHead(config, 3),
    "BertForQuestionAnswering": lambda config: heads.SpanHead(config),
}


def folder_of(path, config=CONFIG, tensors=TENSORS):
    """A folder made by hand."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    safetensors.numpy.save_file(tensors, path / "model.safetensors")
    return path


def refusal(folder) -> str:
    with pytest.raises(UserError) as error:
        huggingface.read(folder)
    return str(error.value)


def random_model(architecture):
    """A model of that head whose parameters are no special ones."""
    config = huggingface.read(RANDOM_BERT).config
    model = text_bert.build(config, "none", (), (50, 12), HEADS[architecture](config))
    return model, drawn(model)


@pytest.mark.parametrize("architecture", HEADS)
def test_what_is_written_is_read_bit_for_bit(tmp_path, architecture):
    model, params = random_model(architecture)
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    labels = ("no", "yes", "perhaps") if "labels" in vars(model.head) else ()
    huggingface.write(tmp_path / "made", model, params, labels, [tmp_path / "vocab.txt"])
    assert sorted(os.listdir(tmp_path)) == ["made", "vocab.txt"]
    pretrained = huggingface.read(tmp_path / "made")
    assert pretrained.config == model.encoder.config
    assert pretrained.sizes == (50, 12, 2)
    assert pretrained.labels == labels
    assert pretrained.unused == ()
    assert [path.name for path in pretrained.tokenizer_files] == ["vocab.txt"]
    flat = flax.traverse_util.flatten_dict(params)
    assert pretrained.parameters.keys() == flat.keys()
    for path, values in flat.items():
        assert (pretrained.parameters[path] == values).all()
    with pytest.raises(UserError, match="is there already; give a new folder"):
        huggingface.write(tmp_path / "made", model, params)


def test_the_tensors_written_are_those_that_transformers_wrote(tmp_path):
    model, params = loaded(RANDOM_BERT)
    huggingface.write(tmp_path / "made", model, params)
    written = safetensors.numpy.load_file(tmp_path / "made" / "model.safetensors")
    assert written.keys() == TENSORS.keys()
    for name, values in TENSORS.items():
        assert (written[name] == values).all(), name
    config = json.loads((tmp_path / "made" / "config.json").read_text())
    for name in config.keys() & CONFIG.keys() - {"id2label", "label2id"}:
        assert config[name] == CONFIG[name], name
    assert config["architectures"] == ["BertForPreTraining"]


def test_keys_and_values_stand_side_by_side():
    kernel = huggingface.read(RANDOM_BERT).parameters[
        ("blocks_1", "attention", "key_value", "kernel")
    ]
    read = "bert.encoder.layer.1.attention.self."
    assert (kernel[:, :16] == TENSORS[read + "key.weight"].T).all()
    assert (kernel[:, 16:] == TENSORS[read + "value.weight"].T).all()


def test_what_does_not_match_is_named(tmp_path):
    tensors = TENSORS | {"classifier2.weight": np.zeros((2, 2), np.float32)}
    pretrained = huggingface.read(folder_of(tmp_path / "one", tensors=tensors))
    model, params = random_model("BertForTokenClassification")
    loaded_params, unmatched = huggingface.initialize_from(model, params, pretrained)
    assert unmatched.not_found == ("classifier/bias", "classifier/kernel")
    assert "pooler/dense/kernel" in unmatched.unused
    assert "classifier2.weight" in unmatched.unused
    one, two = unmatched.lines()
    assert one == "parameters that begin anew: classifier/bias, classifier/kernel"
    assert two.startswith("weights not used: next_sentence_classifier/bias, ")
    assert loaded_params["classifier"] is not None
    assert (loaded_params["classifier"]["kernel"] == params["classifier"]["kernel"]).all()
    tokens = TENSORS["bert.embeddings.word_embeddings.weight"]
    assert (loaded_params["embedding"]["tokens"] == tokens).all()


def test_shorter_texts_take_the_first_positions_and_other_sizes_are_refused():
    pretrained = huggingface.read(RANDOM_BERT)
    for choices, sizes, message in (
        ({}, (50, 8), None),
        ({}, (51, 12), r"embedding/tokens has the shape \[51, 16\], and the pretrained"),
        ({}, (50, 13), "embedding/positions"),
        ({"heads": 2}, (50, 12), "model.heads is 2, and the pretrained model's is 4"),
        ({"norm_epsilon": 1e-6}, (50, 12), "model.norm_epsilon is 1e-06"),
        ({"dropout": 0.0}, (50, 12), None),
    ):
        config = dataclasses.replace(pretrained.config, **choices)
        model = text_bert.build(config, "none", (), sizes, heads.HiddenStatesHead(config))
        params = drawn(model)
        if message:
            with pytest.raises(UserError, match=message):
                huggingface.initialize_from(model, params, pretrained)
        else:
            filled, _ = huggingface.initialize_from(model, params, pretrained)
            positions = TENSORS["bert.embeddings.position_embeddings.weight"]
            assert (filled["embedding"]["positions"] == positions[: sizes[1]]).all()


def test_older_names_and_types_are_read(tmp_path):
    """Norms called gamma and beta, copies of tied tensors, half precision, no prefix."""
    expected = huggingface.read(RANDOM_BERT).parameters
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): values
        for name, values in TENSORS.items()
    }
    table = TENSORS["bert.embeddings.word_embeddings.weight"]
    old["cls.predictions.decoder.weight"] = table
    old["cls.predictions.decoder.bias"] = TENSORS["cls.predictions.bias"]
    read = huggingface.read(folder_of(tmp_path / "old", tensors=old))
    assert read.unused == ()
    assert all((read.parameters[path] == values).all() for path, values in expected.items())
    half = {name.removeprefix("bert."): x.astype(np.float16) for name, x in TENSORS.items()}
    read = huggingface.read(folder_of(tmp_path / "half", tensors=half))
    for path, values in expected.items():
        assert read.parameters[path].dtype == np.float32
        assert (read.parameters[path] == values.astype(np.float16)).all()


def test_configs_that_say_the_same_in_other_words_are_read(tmp_path):
    expected = huggingface.read(RANDOM_BERT)
    others = {"hidden_act": "gelu_python", "position_embedding_type": None}
    others |= {"tie_word_embeddings": False}
    config = {name: value for name, value in CONFIG.items() if name != "model_type"} | others
    buffer = {"bert.embeddings.mask": np.full(3, -np.inf, np.float32)}
    read = huggingface.read(folder_of(tmp_path / "one", config, TENSORS | buffer))
    assert read.config == expected.config
    assert read.unused == ("embeddings.mask",)
    head = {
        "classifier.weight": np.ones((3, 16), np.float32),
        "classifier.bias": np.zeros(3, np.float32),
    }
    config = {name: value for name, value in CONFIG.items() if name != "id2label"}
    folder = folder_of(tmp_path / "three", config | {"num_labels": 3}, TENSORS | head)
    assert huggingface.read(folder).labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_a_padded_vocabulary_and_one_segment_fit():
    """The first rows are taken, and a segment that is not there begins anew."""
    pretrained = huggingface.read(RANDOM_BERT)
    parameters = dict(pretrained.parameters)
    parameters["embedding", "segments"] = parameters["embedding", "segments"][:1]
    one_segment = dataclasses.replace(pretrained, parameters=parameters)
    config = pretrained.config
    model = text_bert.build(config, "none", (), (48, 12), heads.PretrainingHead(config, 48))
    params = drawn(model)
    filled, unmatched = huggingface.initialize_from(model, params, one_segment)
    table = TENSORS["bert.embeddings.word_embeddings.weight"]
    assert (filled["embedding"]["tokens"] == table[:48]).all()
    assert (filled["output_bias"] == TENSORS["cls.predictions.bias"][:48]).all()
    segments = filled["embedding"]["segments"]
    assert (segments[0] == parameters["embedding", "segments"][0]).all()
    assert (segments[1] == params["embedding"]["segments"][1]).all()
    assert unmatched.not_found == ()
    other = dataclasses.replace(config, transform_activation="relu")
    model = text_bert.build(other, "none", (), (48, 12), heads.PretrainingHead(other, 48))
    with pytest.raises(UserError, match="transform_activation is relu, and the"):
        huggingface.initialize_from(model, params, pretrained)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "roberta"}, "model_type is 'roberta'; it must be bert"),
        ({"model_type": None}, "model_type is None; it must be bert"),
        ({"hidden_act": "gelu_new"}, "hidden_act is 'gelu_new'; it must be one of relu, gelu"),
        ({"position_embedding_type": "relative_key"}, "it must be absolute"),
        ({"is_decoder": True}, "is_decoder is True; it must be False"),
        ({"hidden_size": "16"}, "hidden_size is '16'; it must be a whole number"),
        ({"hidden_size": True}, "hidden_size is True; it must be a whole number"),
        ({"hidden_size": 18}, "hidden_size is 18, not a multiple of num_attention_heads, 4"),
        (
            {"hidden_size": 32},
            "has the shape [50, 16], and by config.json it must have [50, 32]",
        ),
        ({"num_hidden_layers": 3}, "there is no tensor encoder.layer.2.attention.self.query"),
        ({"num_hidden_layers": 2**31 - 1}, "there is no tensor encoder.layer.2."),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0; it must be at least 1"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps is nan; it must be above 0"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob is 1.0; it must be at least 0"),
        ({"vocab_size": 0}, "vocab_size is 0; it must be a number from 1"),
        ({"vocab_size": 49}, "word_embeddings.weight has the shape [50, 16]"),
        ({"intermediate_size": 25}, "intermediate.dense.weight has the shape [24, 16]"),
    ],
)
def test_configs_of_other_models_are_refused(tmp_path, changes, message):
    line = refusal(folder_of(tmp_path / "one", CONFIG | changes))
    assert message in line
    assert str(tmp_path / "one") in line


def test_files_that_are_not_there_or_not_whole_are_refused(tmp_path):
    assert "config.json: No such file or directory; give a folder" in refusal(tmp_path / "no")
    one = folder_of(tmp_path / "one")
    for text in ("", "{", "[1]", "null", "[" * 100_000, '{"a": ' + "9" * 5000 + "}", "\x00"):
        (one / "config.json").write_text(text)
        assert str(one / "config.json") in refusal(one)
    (one / "config.json").write_bytes(b"\xff\xfe")
    assert "it is not JSON" in refusal(one)
    (one / "config.json").write_text(json.dumps(CONFIG))
    (one / "model.safetensors").rename(one / "model-00001-of-00002.safetensors")
    (one / "model.safetensors.index.json").write_text("{}")
    assert "the weights are in several files; save the model again in one" in refusal(one)
    (one / "model.safetensors.index.json").unlink()
    assert "there is no model.safetensors and no pytorch_model.bin" in refusal(one)
    (one / "pytorch_model.bin").write_bytes(b"not a zip file")
    line = refusal(one)
    if importlib.util.find_spec("torch"):
        assert "pytorch_model.bin: it is not a file of tensors" in line
    else:
        assert "reading it needs torch; install torch, or use a folder with" in line


def test_tensors_that_are_wrong_are_refused(tmp_path):
    first = "bert.embeddings.word_embeddings.weight"
    table = TENSORS[first]
    untied = {"cls.predictions.decoder.weight": table + 1}
    for number, (changes, message) in enumerate(
        [
            ({first: table.T.copy()}, "has the shape [16, 50]"),
            ({first: table * np.nan}, "has values that are not finite"),
            ({first: table[0]}, "has the shape [16]"),
            (untied, "decoder.weight differs from embeddings.word_embeddings.weight"),
            ({"embeddings.word_embeddings.weight": table}, "it has two tensors for"),
            ({first: table.astype(np.complex64)}, "is of the type C64"),
        ]
    ):
        line = refusal(folder_of(tmp_path / str(number), tensors=TENSORS | changes))
        assert message in line
    for name in TENSORS:
        if name.startswith("bert.") and "pooler" not in name:
            shutil.rmtree(tmp_path / "without", ignore_errors=True)
            kept = {other: x for other, x in TENSORS.items() if other != name}
            line = refusal(folder_of(tmp_path / "without", tensors=kept))
            assert f"there is no tensor {name.removeprefix('bert.')};" in line


def damaged(folder, random):
    """Damages one of the two files: cut, bytes changed, or bytes inserted."""
    path = folder / ("config.json", "model.safetensors")[min(random.integers(4), 1)]
    data = bytearray(path.read_bytes())
    # The header of a safetensors file is where damage does the most.
    at = int(random.integers(len(data) if random.integers(2) else min(6000, len(data))))
    match random.integers(3):
        case 0:
            data = data[:at]
        case 1:
            for position in random.integers(at, min(at + 40, len(data)), random.integers(1, 5)):
                data[position] = random.integers(256)
        case 2:
            data[at:at] = random.bytes(random.integers(1, 9))
    path.write_bytes(data)


def test_damaged_folders_are_refused_in_one_line_or_read(tmp_path):
    outcomes = {"read": 0, "refused": 0}
    for seed in range(1000):
        shutil.rmtree(tmp_path / "one", ignore_errors=True)
        shutil.copytree(RANDOM_BERT, tmp_path / "one")
        damaged(tmp_path / "one", np.random.default_rng(seed))
        line = ""
        try:
            huggingface.read(tmp_path / "one")
        except UserError as error:
            line = str(error)
        assert not line or str(tmp_path / "one") in line
        outcomes["refused" if line else "read"] += 1
    assert outcomes["read"] > 50
    assert outcomes["refused"] > 500


def test_a_context_is_written_only_where_it_has_no_effect(tmp_path, schema):
    features = schema.features[:2]
    for method in ("c", "gs"):
        model, params = loaded(
            RANDOM_BERT, method=method, features=features, start_as_plain=True
        )
        huggingface.write(tmp_path / method, model, params)
        written = safetensors.numpy.load_file(tmp_path / method / "model.safetensors")
        assert all((written[name] == values).all() for name, values in TENSORS.items())
        part = "out" if method == "c" else "value_1"
        bias = params["conditioning"][part]["bias"]
        params["conditioning"][part]["bias"] = bias.at[0].set(1e-30)
        with pytest.raises(UserError, match="a context changes what the model computes"):
            huggingface.write(tmp_path / "open", model, params)
    for method, plain in (("np", True), ("gs", False)):
        model, params = loaded(
            RANDOM_BERT, method=method, features=features, start_as_plain=plain
        )
        with pytest.raises(UserError, match="write a model of the method none"):
            huggingface.write(tmp_path / "open", model, params)
    model, params = loaded(RANDOM_BERT)
    other = dataclasses.replace(model.encoder.config, transform_norm=False)
    model = text_bert.build(other, "none", (), (50, 12), heads.PretrainingHead(other, 50))
    with pytest.raises(UserError, match="transform_norm is False, and BERT's is True"):
        huggingface.write(tmp_path / "open", model, params)
    assert not (tmp_path / "open").exists()


def peer(*arguments):
    """Runs `transformers_peer.py` where torch is: here, or by the Python of PEER_PYTHON."""
    python = os.environ.get("PEER_PYTHON", sys.executable)
    if python == sys.executable:
        for name in ("torch", "transformers"):
            if importlib.util.find_spec(name) is None:
                pytest.skip(f"needs the extra bench: {name} is not installed")
    script = pathlib.Path(__file__).with_name("transformers_peer.py")
    done = subprocess.run([python, script, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(np.load(arguments[3]))


def outputs_of(model, params, inputs):
    """A model's outputs by the names of `transformers_peer.py`."""
    done = model.apply({"params": params}, **inputs)
    if isinstance(done, heads.Pretraining):
        logits = done.vectors @ done.table.T + done.bias
        return {"tokens": logits, "next_sentence": done.next_sentence}
    if isinstance(model.head, heads.HiddenStatesHead):
        return dict(zip(("hidden", "pooled"), done, strict=True))
    if isinstance(model.head, heads.SpanHead):
        return {"start": done[..., 0], "end": done[..., 1]}
    return {"logits": done}


def check_parity(model, params, inputs, theirs):
    assert theirs["missing"].size == theirs["unexpected"].size == 0

    def loss(params):
        outputs = outputs_of(model, params, inputs)
        return weighted_sum(outputs), outputs

    gradients, outputs = jax.jit(jax.grad(loss, has_aux=True))(params)
    for name, values in outputs.items():
        np.testing.assert_allclose(values, theirs[name], atol=1e-4, err_msg=name)
    flat, compared = flax.traverse_util.flatten_dict(gradients), 0
    largest = max(np.linalg.norm(x) for x in jax.tree.leaves(gradients))
    for entry in encoder_entries(model.encoder.config.layers) + HEAD_ENTRIES:
        if entry.path in flat:
            for name, gradient in entry.split(flat.pop(entry.path)).items():
                expected = theirs[f"gradient:{stored(name, model.head.architecture)}"]
                # The exact gradient of a key's bias is zero.
                scale = max(np.linalg.norm(expected), 1e-3 * largest)
                assert np.linalg.norm(gradient - expected) < 1e-3 * scale, name
                compared += 1
    assert not flat
    named = {name for name in theirs if name.startswith("gradient:")}
    assert compared == len(named - {f"gradient:{copy}" for copy in TIED})


@pytest.mark.parametrize("architecture", HEADS)
def test_parity_with_transformers_both_ways(tmp_path, architecture):
    inputs = bert_reference.inputs()
    np.savez(tmp_path / "inputs.npz", **inputs)
    # A folder of theirs comes in.
    theirs = peer(
        architecture, tmp_path / "theirs", tmp_path / "inputs.npz", tmp_path / "theirs.npz"
    )
    model, params = random_model(architecture)
    pretrained = huggingface.read(tmp_path / "theirs")
    params, unmatched = huggingface.initialize_from(model, params, pretrained)
    assert unmatched == huggingface.Unmatched((), ())
    check_parity(model, params, inputs, theirs)
    # A folder of ours goes out.
    model, params = random_model(architecture)
    huggingface.write(tmp_path / "ours", model, params)
    theirs = peer(
        architecture, tmp_path / "ours", tmp_path / "inputs.npz", tmp_path / "ours.npz"
    )
    check_parity(model, params, inputs, theirs)


def test_parity_with_transformers_on_minilm_both_ways(tmp_path):
    inputs = bert_reference.inputs(length=40, vocabulary=30_522)
    np.savez(tmp_path / "inputs.npz", **inputs)
    model, params = loaded(minilm(), hidden_states)
    huggingface.write(tmp_path / "ours", model, params)
    for folder in (minilm(), tmp_path / "ours"):
        theirs = peer("BertModel", folder, tmp_path / "inputs.npz", tmp_path / "outputs.npz")
        check_parity(model, params, inputs, theirs)
