"""Folders of `transformers` made by hand, and models with each of their heads."""

import json

import pytest
import safetensors.numpy

from cbert.errors import UserError
from cbert.model import heads, huggingface, text_bert
from tests.bert_reference import RANDOM_BERT
from tests.models import drawn

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
