"""A text model as a folder that `transformers` opens, where its BERT computes the same."""

import json
import pathlib
import tempfile
from typing import Any

import jax
import numpy as np

from cbert.errors import UserError, shown
from cbert.inference import card, export_directory
from cbert.inference.predictor import Predictor
from cbert.inference.text_predictor import TextPredictor
from cbert.model.huggingface import VOCABULARY, writer
from cbert.schema import Schema
from cbert.schema.tokenizer import CLS, MASK, PAD, SEP, UNKNOWN
from cbert.tasks.multi_label import MultiLabel
from cbert.tasks.regression import Regression
from cbert.training import config as config_lib
from cbert.training.initial_parameters import CLASSIFIER, in_units

HUGGINGFACE_FORMAT = "hf"


def write(
    predictor: Predictor | TextPredictor, directory: str | pathlib.Path, facts: dict[str, Any]
) -> None:
    """Writes weights, config, vocabulary and card; the directory appears whole or not at all.

    A regression model gives the number in the records' units: the target's mean and scale are
    in its last layer.

    Args:
      predictor: From `cbert.load`.
      directory: A new directory.
      facts: The facts for the card, from `card.facts`.

    Raises:
      UserError: the directory exists, the model is not one of texts, `transformers` has no BERT
        that computes the same, or no `vocab.txt` can hold the vocabulary.
    """
    if not isinstance(predictor, TextPredictor):
        raise UserError(
            f"the model completes {predictor.schema.kind}s, and transformers has none such; "
            "export it as stablehlo or onnx"
        )
    directory = export_directory.new_directory(directory)
    schema = predictor.schema
    model = config_lib.build_model(predictor.config, schema)
    params = jax.tree.map(np.asarray, predictor.program.params)
    settings: dict[str, Any] = {"pad_token_id": schema.codes[PAD]}
    if predictor.task == MultiLabel.name:
        settings["problem_type"] = "multi_label_classification"
    elif predictor.task == Regression.name:
        settings["problem_type"] = "regression"
        params[CLASSIFIER] = {
            name: in_units(name, values, schema.known_target)
            for name, values in params[CLASSIFIER].items()
        }
    labels = schema.labels if hasattr(model.head, "labels") else ()
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "README.md"
        page.write_text(card.as_markdown(facts, directory.name), encoding="utf-8")
        files = [page, *_tokenizer_files(schema, pathlib.Path(folder))]
        writer.write(directory, model, params, labels, files, settings)


def _tokenizer_files(schema: Schema, folder: pathlib.Path) -> list[pathlib.Path]:
    """`vocab.txt` and `tokenizer_config.json`, from which `BertTokenizer` is made."""
    assert schema.tokenizer is not None
    for token in schema.items:
        if token.splitlines() != [token] or token != token.strip():
            raise UserError(
                f"the token {shown(token)} has a line break or a space at its end, which a "
                "vocab.txt cannot hold; export the model as stablehlo or onnx"
            )
    vocabulary, config = folder / VOCABULARY, folder / "tokenizer_config.json"
    vocabulary.write_text("".join(f"{token}\n" for token in schema.items), encoding="utf-8")
    options = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": schema.tokenizer.lowercase,
        "strip_accents": schema.tokenizer.strip_accents,
        "tokenize_chinese_chars": schema.tokenizer.split_chinese_characters,
        "model_max_length": schema.max_items,
        "pad_token": PAD,
        "unk_token": UNKNOWN,
        "cls_token": CLS,
        "sep_token": SEP,
        "mask_token": MASK,
    }
    config.write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")
    return [vocabulary, config]
