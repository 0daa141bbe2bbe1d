"""The config to start from that is written beside prepared data."""

import re

import pytest

import cbert
from cbert.data import prepared
from cbert.schema import SEQUENCE, SET, Schema
from cbert.training import config as config_lib
from cbert.training import suggest


@pytest.mark.parametrize(
    ("kind", "examples", "batch", "steps", "dimension", "rate"),
    [
        (SET, 100, 16, 400, 32, 3e-3),
        (SET, 1_999, 16, 2_480, 32, 3e-3),  # A twentieth of 2 498 is 124.
        (SET, 4_999, 64, 1_560, 32, 3e-3),
        (SET, 5_000, 64, 1_560, 64, 3e-3),
        (SET, 199_999, 256, 15_620, 64, 3e-3),
        (SET, 200_000, 256, 15_620, 128, 1e-3),
        (SET, 1_000_000, 256, 50_000, 128, 1e-3),
        (SEQUENCE, 6_400, 64, 4_000, 64, 3e-3),  # 256 000 / 6 400 is 40 epochs.
        (SEQUENCE, 25_600, 256, 2_000, 64, 3e-3),
    ],
)
def test_sizes_follow_the_number_of_examples(kind, examples, batch, steps, dimension, rate):
    schema = Schema(kind, 3, ("a", "b"), (1, 1), ())
    fields = suggest._of_items(schema, examples)
    assert {name: value for name, (value, _) in fields.items() if name in CHOSEN} == {
        "model.dimension": dimension,
        "optimizer.learning_rate": rate,
        "optimizer.warmup_steps": steps // 20,
        "train.batch_size": batch,
        "train.steps": steps,
        "train.log_every": min(steps // 20, 100),
        "train.eval_every": steps // 20,
        "train.checkpoint_every": steps // 20,
        "train.length_buckets": 3,
    }
    assert fields["train.steps"][1] == f"{steps * batch / examples:.0f} epochs"


CHOSEN = (
    *("model.dimension", "optimizer.learning_rate", "optimizer.warmup_steps"),
    *("train.batch_size", "train.steps", "train.log_every", "train.eval_every"),
    *("train.checkpoint_every", "train.length_buckets"),
)


@pytest.mark.parametrize(
    ("kind", "context", "argument"),
    [("set", True, "gs"), ("sequence", False, "none"), ("text", True, "classification")],
)
def test_a_config_is_suggested_that_trains(tmp_path, kind, context, argument):
    records = [
        {
            **({"text": f"word{n % 7} here", "label": "ab"[n % 2]} if kind == "text" else {}),
            **({"items": [f"item{n % 7}", f"item{n % 5 + 7}"]} if kind != "text" else {}),
            "context": {"day": "mo" if n % 3 else "tu"} if context else {},
        }
        for n in range(90)
    ]
    text = cbert.TextOptions(max_length=8 if kind == "text" else None)
    options = cbert.PrepareOptions(kind=kind, text=text)
    data = cbert.prepare(records, "mine", tmp_path, options)
    schema = prepared.load_schema(str(tmp_path), "mine")
    assert suggest.default_argument(schema) == argument
    config = cbert.read_config(f"{data.config}:{argument}")
    config_lib.check(config)
    assert (config.data.dir, config.data.name) == (str(tmp_path), "mine")
    assert config.train.batch_size <= data.summary["examples"]["train"]
    assert config.train.patience
    assert config.train.steps == 20 * config.train.eval_every
    assert config.model.positions == (kind != "set")
    assert config.model.output_bias == ("popularity" if kind == "sequence" else "zero")
    masking = ("rate", 0.4) if kind == "sequence" else ("one", 0.15)
    assert (config.task.masked_item.masking, config.task.masked_item.mask_rate) == masking
    assert config.eval.masking == ("one" if kind == "text" else "each")
    assert config.model.transform_activation == ("gelu" if kind == "text" else "linear")
    assert config.model.method == ("gs" if context else "none")
    without_paths = data.config.read_text().replace(str(tmp_path), "")
    assert max(map(len, without_paths.splitlines())) < 100
    data.config.write_text("mine")
    assert suggest.write(tmp_path, "mine", data.summary) == (data.config, argument, False)
    assert data.config.read_text() == "mine"


@pytest.mark.parametrize(("kind", "steps"), [("set", 500), ("sequence", 2000)])
def test_few_sequences_are_read_more_often(tmp_path, kind, steps):
    """400 examples in batches of 16 are 25 steps an epoch: 20 epochs, and of sequences 80."""
    records = [
        {"items": [f"a{n % 7}", f"b{n % 5}"], "split": "train" if n < 400 else "validation"}
        for n in range(420)
    ]
    data = cbert.prepare(records, "mine", tmp_path, cbert.PrepareOptions(kind=kind))
    assert cbert.read_config(f"{data.config}:none").train.steps == steps


SETS = [{"items": [f"item{n % 7}", f"item{n % 5 + 7}"]} for n in range(90)]
TEXTS = [{"text": f"word{n % 7} here", "label": "ab"[n % 2]} for n in range(90)]


def again(records, folder):
    options = cbert.PrepareOptions("text" if "text" in records[0] else "set", overwrite=True)
    return cbert.prepare(records, "mine", folder, options).config


def test_a_config_that_was_not_edited_follows_the_data(tmp_path, capsys):
    again(SETS, tmp_path)
    path = again(TEXTS, tmp_path)
    assert "warning" not in capsys.readouterr().err
    config = cbert.read_config(path)
    config_lib.check(config)
    assert config.task.name == "classification"
    of_texts = path.read_text()
    again(SETS, tmp_path)
    assert again(TEXTS, tmp_path).read_text() == of_texts


def test_an_edited_config_stays_with_a_warning_where_the_data_are_others(tmp_path, capsys):
    path = again(SETS, tmp_path)
    edited = path.read_text().replace("0.003", "0.001")
    assert edited != path.read_text()
    path.write_text(edited)
    again(SETS, tmp_path)
    assert "warning" not in capsys.readouterr().err
    again(TEXTS, tmp_path)
    assert path.read_text() == edited
    (line,) = re.findall("warning: .*config.*", capsys.readouterr().err)
    assert line == (
        f"warning: {path} was made for other data, and stays because you may have edited it; "
        "delete it and prepare again with overwrite for one that suits these data"
    )
    path.write_bytes(b"\xff")
    again(TEXTS, tmp_path)
    assert path.read_bytes() == b"\xff"


def test_pairs_of_sentences_are_for_a_masked_language_model(tmp_path):
    records = [
        {"text": f"word{n % 7} here", "group": f"g{n // 5}", "id": str(n)} for n in range(200)
    ]
    text = cbert.TextOptions(max_length=16, pairs="next")
    options = cbert.PrepareOptions(kind="text", text=text)
    data = cbert.prepare(records, "mine", tmp_path, options)
    assert "masked_language" in data.config.read_text().split("get_config(")[1]
    config = cbert.read_config(f"{data.config}:masked_language")
    config_lib.check(config)
    assert config.task.masked_language.next_sentence
