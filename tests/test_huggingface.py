"""Folders of `transformers` come in and go out with the same bits, however they are spelt."""

import dataclasses
import json
import os

import flax
import numpy as np
import pytest
import safetensors.numpy

from cbert.errors import UserError
from cbert.model import conditioning, heads, huggingface, text_bert
from cbert.training.initial_parameters import described
from cbert.training.initialize import from_source
from tests.bert_reference import RANDOM_BERT
from tests.huggingface_folders import CONFIG, HEADS, TENSORS, folder_of, random_model
from tests.models import drawn
from tests.text_models import loaded


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
    assert [path.name for path in pretrained.vocabularies] == ["vocab.txt"]
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
    _, anew, unused = described("hf:one", loaded_params, unmatched.not_found, unmatched.unused)
    assert anew == "  2 begin anew: classifier/bias, classifier/kernel"
    start = f"  {len(unmatched.unused)} not used: next_sentence_classifier/bias, "
    assert unused.startswith(start)
    assert loaded_params["classifier"] is not None
    assert (loaded_params["classifier"]["kernel"] == params["classifier"]["kernel"]).all()
    tokens = TENSORS["bert.embeddings.word_embeddings.weight"]
    assert (loaded_params["embedding"]["tokens"] == tokens).all()


def test_shorter_texts_take_the_first_positions_and_other_sizes_are_refused():
    pretrained = huggingface.read(RANDOM_BERT)
    for choices, sizes, message in (
        ({}, (50, 8), None),
        ({}, (51, 12), r"embedding/tokens has the shape \[51, 16\], and the pretrained"),
        ({}, (50, 13), "up to 13 tokens, and the .* reads 12; prepare them with max_length=12"),
        ({"heads": 2}, (50, 12), "is 2, and the pretrained model's is 4; set model.heads=4"),
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


def test_a_folder_that_is_taken_for_a_run_is_told_apart(schema):
    with pytest.raises(UserError, match=f"s form; set train.init_from=hf:{RANDOM_BERT}"):
        from_source(str(RANDOM_BERT), None, schema)
    with pytest.raises(UserError, match="'hf:' names no folder; write hf:FOLDER"):
        from_source("hf:", None, schema)


def test_a_misspelt_name_shuts_no_context_out(tmp_path, schema):
    class Misspelt(conditioning.METHODS["c"]):
        zero_is_plain = ("outs",)

    model, params = loaded(
        RANDOM_BERT, method="c", features=schema.features[:2], start_as_plain=True
    )
    params["conditioning"]["out"]["bias"] = params["conditioning"]["out"]["bias"] + 1
    model = model.clone(encoder=model.encoder.clone(method=Misspelt))
    with pytest.raises(UserError, match="a context changes what the model computes"):
        huggingface.write(tmp_path / "open", model, params)
