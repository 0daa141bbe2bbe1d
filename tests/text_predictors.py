"""Predictors of a small text model with parameters away from their initial values."""

import dataclasses
import functools

import jax.numpy as jnp

from cbert.inference import text_functions
from cbert.inference.text_predictor import TextPredictor
from cbert.inference.text_program import TextProgram
from cbert.schema import TEXT, Categorical, Numerical, Schema, Target
from cbert.schema.tokenizer import SPECIAL_TOKENS, TokenizerOptions
from cbert.training import config as config_lib
from cbert.training.checkpoint import Checkpoints
from cbert.training.state import Progress, TrainState
from cbert.training.workdir import initialise_workdir
from tests.models import drawn
from tests.text_data import small_text

WORDS = ("a", "blue", "is", "please", "red", "seat", "table", "##s", "?", "'", "7", "8", "é")
VOCABULARY = (*SPECIAL_TOKENS, *WORDS)
FEATURES = (
    Categorical("mood", 3, ("warm", "cold")),
    Numerical("age", 2, 40.0, 20.0, (20.0, 60.0)),
)
TARGETS = {
    "masked_language": Target("label", ("not_next", "is_next"), (5, 4)),
    "classification": Target("label", ("x", "y", "z"), (3, 2, 1)),
    "multi_label": Target("labels", ("x", "y", "z"), (3, 2, 1)),
    "regression": Target("number", mean=5000.0, scale=10.0),
    "tagging": Target("tags", ("O", "B-time", "I-time"), (3, 2, 1)),
    "span": Target("answer"),
}


def schema(task, features=FEATURES, max_length=12, word_ends="punctuation"):
    target = dataclasses.replace(TARGETS[task], word_ends=word_ends)
    counts = (1,) * len(VOCABULARY)
    options = TokenizerOptions(lowercase=True, strip_accents=False)
    return Schema(TEXT, max_length, VOCABULARY, counts, features, options, target)


@functools.lru_cache
def assemble(
    task,
    method="gs",
    max_length=12,
    context_features=True,
    word_ends="punctuation",
    **overrides,
):
    """A predictor whose biases and scales are away from 0 and 1, so that each is needed."""
    features = FEATURES if context_features else ()
    of_task = schema(task, features, max_length, word_ends)
    config = small_text(task, "/nowhere", method=method, model__layers=1, **overrides)
    if task == "masked_language":
        config.task.masked_language.next_sentence = True
    model = config_lib.build_model(config, of_task)
    functions = text_functions.functions(model, config, of_task)
    program = TextProgram(functions, drawn(model), of_task, (4,))
    uses_context = config_lib.reads_context(config)
    return TextPredictor(of_task, config, 3, program, uses_context=uses_context)


def save(predictor, workdir):
    """A run's work directory with the predictor's parameters as its last checkpoint."""
    workdir.mkdir(parents=True)
    initialise_workdir(predictor.config, predictor.schema, workdir)
    state = TrainState(
        jnp.asarray(predictor.step), predictor.program.params, {"count": jnp.zeros(())}
    )
    with Checkpoints(workdir) as checkpoints:
        checkpoints.save(state, Progress())
