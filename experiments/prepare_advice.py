"""What `prepare` advises in the end: a config to start from, and commands that train it."""

import pathlib
from typing import Any

from cbert.data.prepare_options import TRAINED
from cbert.model import huggingface
from cbert.training import suggest
from cbert.training.from_huggingface import HUGGINGFACE_PREFIX
from experiments import command


def lines(data_dir: str, name: str, vocabulary: str, numbers: dict[str, Any]) -> list[str]:
    """Writes a config that suits the data; returns lines that say how to train it.

    Args:
      data_dir: Where prepared data sets lie.
      name: The data set's name.
      vocabulary: Where the vocabulary of texts is from.
      numbers: The summary of the data.
    """
    path, argument, fresh = suggest.write(data_dir, name, numbers)
    state = "a config to start from is" if fresh else "your config, which stays as it is, is"
    methods = suggest.suggested_methods(bool(numbers["features"]))

    def training(name: str, argument: str, method: str) -> str:
        return "  " + command.to_copy("train", *suggest.arguments(path, name, argument, method))

    commands = [training(name, argument, method) for method in methods]
    advised = [f"{state} {path}; train it, from this directory, with", commands[0]]
    if len(commands) > 1:
        advised += ["and, to see what the context is worth, without it", commands[1]]
    if folder := _pretrained(vocabulary):
        argument = f"{argument},{HUGGINGFACE_PREFIX}{folder}"
        pretrained = training(f"{name}_pretrained", argument, methods[0])
        advised += ["or, from the weights beside the vocabulary, with", pretrained]
    return advised


def _pretrained(vocabulary: str) -> pathlib.Path | None:
    """The folder of the pretrained model whose vocabulary was given."""
    if vocabulary == TRAINED:
        return None
    path = pathlib.Path(vocabulary).expanduser()
    folder = path if path.is_dir() else path.parent
    return folder if huggingface.is_folder(folder) else None
