"""The parameters that a run begins with: fresh, of another run, or of a pretrained BERT."""

import dataclasses
import pathlib
from typing import Any

import ml_collections

from cbert.errors import UserError, warn
from cbert.model import huggingface, parameter_tree
from cbert.model.config import POPULARITY
from cbert.model.parameter_tree import Path
from cbert.schema import Schema
from cbert.training import config as config_lib
from cbert.training import item_vectors
from cbert.training import optimizer as optimizer_lib
from cbert.training.from_huggingface import HUGGINGFACE_PREFIX, FromHuggingFace
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
    if source.startswith(HUGGINGFACE_PREFIX):
        return FromHuggingFace(source, model, schema)
    if huggingface.is_folder(pathlib.Path(source).expanduser()):
        raise UserError(f"{source} has Hugging Face's form; set train.init_from=hf:{source}")
    return FromRun(source, model, schema)


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


def initialised(
    config: ml_collections.ConfigDict, run: Run, initializers: list[Initializer]
) -> list[TrainState]:
    """Each seed's state before the first step, after what was read is put in place.

    Says what was put in place, of several seeds for the last one: they differ in random numbers
    alone. Says how many parameters are frozen, and warns where some of them are random.

    Raises:
      UserError: what was read does not fit the model.
    """

    def begun(state: TrainState) -> TrainState:
        params = run.placement.to_host(state.params)
        for initializer in initializers:
            params = initializer(params)
        return dataclasses.replace(state, params=run.placement.to_devices(params))

    states = [begun(state) if initializers else state for state in run.states()]
    for line in (line for initializer in initializers for line in initializer.lines):
        print(line, flush=True)
    if config.train.frozen:
        _report_frozen(config, run.task.schema, initializers)
    return states


def _report_frozen(
    config: ml_collections.ConfigDict, schema: Schema, initializers: list[Initializer]
) -> None:
    """Prints how many parameters are frozen, in a warning where some of them are random."""
    model = config_lib.build_model(config, schema)  # That of the run may have padded items.
    sizes = parameter_tree.parameter_sizes(model)
    known = {"embedding/bias": True} if config.model.output_bias == POPULARITY else {}
    for initializer in initializers:
        for name, whole in initializer.known.items():
            known[name] = known.get(name, False) or whole
    frozen: set[Path] = set()
    random = []
    for part in optimizer_lib.frozen_parts(config, model):
        paths = [path for path in sizes if optimizer_lib.is_part(path, part)]
        frozen.update(paths)
        found = {known.get("/".join(path)) for path in paths}
        if found != {True}:
            random.append(f"{part} ({'all' if found == {None} else 'some'})")
    count = sum(sizes[path] for path in frozen)
    line = f"{count:,} of {sum(sizes.values()):,} parameters are frozen"
    if random:
        warn(
            f"train.frozen: {line}, and those of {', '.join(random)} are random; leave these "
            "parts out, or set train.init_from=RUN, one that has them"
        )
    else:
        print(line, flush=True)
