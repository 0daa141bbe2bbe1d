"""The parameters that a run begins with: fresh, of another run, or of a pretrained BERT."""

import dataclasses
from typing import Any

import ml_collections

from cbert.schema import Schema
from cbert.training import config as config_lib
from cbert.training import item_vectors
from cbert.training.from_hugging_face import HUGGING_FACE, FromHuggingFace
from cbert.training.from_run import FromRun
from cbert.training.item_vectors import ItemVectors
from cbert.training.run import Run
from cbert.training.state import TrainState

Initializer = FromRun | FromHuggingFace | ItemVectors


def from_source(source: str, model: Any, schema: Schema) -> FromRun | FromHuggingFace:
    """What puts the parameters of `train.init_from` in place of fresh ones.

    Args:
      source: A run's work directory, or `hf:` and the folder of a Hugging Face model.
      model: The model of the run that begins.
      schema: The schema of its data.

    Raises:
      UserError: the source is not what it must be, or has another vocabulary.
    """
    kind = FromHuggingFace if source.startswith(HUGGING_FACE) else FromRun
    return kind(source, model, schema)


def read(config: ml_collections.ConfigDict, schema: Schema) -> list[Initializer]:
    """What `train.init_from` and `train.item_embeddings` name, in the order of their use.

    Raises:
      UserError: one of them is not what it must be.
    """
    initializers: list[Initializer] = []
    if source := config.train.init_from:
        model = config_lib.build_model(config, schema)
        initializers.append(from_source(source, model, schema))
    if vectors := item_vectors.read(config, schema):
        initializers.append(vectors)
    return initializers


def initialised(run: Run, initializers: list[Initializer]) -> list[TrainState]:
    """Each seed's state before the first step, after what was read is put in place.

    Raises:
      UserError: what was read does not fit the model.
    """
    if not initializers:
        return run.states()

    def begun(state: TrainState) -> TrainState:
        params = run.placement.to_host(state.params)
        for initializer in initializers:
            params = initializer(params)
        return dataclasses.replace(state, params=run.placement.to_devices(params))

    return [begun(state) for state in run.states()]
