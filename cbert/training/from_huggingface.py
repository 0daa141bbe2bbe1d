"""A run that begins as a pretrained BERT in a folder of Hugging Face's form."""

import dataclasses
import pathlib

import jax
import numpy as np

from cbert.data import vocabulary
from cbert.errors import UserError
from cbert.model import huggingface
from cbert.model.parameter_tree import Params
from cbert.model.text_bert import TextBert
from cbert.schema import Schema, TokenizerOptions
from cbert.schema.target import NUMBER
from cbert.training.initial_parameters import CLASSIFIER, described, names_of, standardised

HUGGINGFACE_PREFIX = "hf:"  # What the folder of a Hugging Face model begins with.


class FromHuggingFace:
    """Puts a folder's parameters in place of fresh ones, matched by path and shape.

    What the folder does not have, such as the labels of another classifier, begins anew.

    Attributes:
      known: The parameters that the last call put in place, by name, and whether with all rows.
      lines: What there is to say of the last call.
    """

    def __init__(self, source: str, model: TextBert, schema: Schema) -> None:
        """Reads the parameters.

        Args:
          source: `hf:` and the folder.
          model: The model of the run that begins.
          schema: The schema of its data.

        Raises:
          UserError: the folder is not what it must be, or has another vocabulary.
        """
        self._source, self._model = source, model
        self.known: dict[str, bool] = {}
        self.lines: list[str] = []
        self._pretrained = _with_labels_of(schema, read_folder(source, schema))

    def __call__(self, params: Params) -> Params:
        """The parameters with the known ones in place, on the host."""
        joined, unmatched = huggingface.initialize_from(
            self._model, jax.device_get(params), self._pretrained
        )
        self.known = dict.fromkeys(names_of(joined) - {*unmatched.not_found}, True)
        self.lines = described(self._source, joined, unmatched.not_found, unmatched.unused)
        return jax.tree.map(np.asarray, joined)


def read_folder(source: str, schema: Schema) -> huggingface.Pretrained:
    """The content of a folder, `hf:` before its path, that has the vocabulary of the data.

    Raises:
      UserError: the folder is not what it must be, or has another vocabulary or normaliser.
    """
    if source == HUGGINGFACE_PREFIX:
        raise UserError(f"{source!r} names no folder; write {HUGGINGFACE_PREFIX}FOLDER")
    folder = pathlib.Path(source.removeprefix(HUGGINGFACE_PREFIX)).expanduser()
    pretrained = huggingface.read(folder)
    _check_vocabulary(folder, pretrained, schema)
    return pretrained


def _check_vocabulary(
    folder: pathlib.Path, pretrained: huggingface.Pretrained, schema: Schema
) -> None:
    """Refuses data of another vocabulary or normaliser, where the folder has its own."""
    _check_normaliser(folder, schema)
    if pretrained.vocabularies:
        path = pretrained.vocabularies[0]
        items, _ = vocabulary.read(path)
        if items != schema.items:
            raise UserError(
                f"the data have another vocabulary than {path}; prepare them with "
                f"vocabulary={path}"
            )
    elif pretrained.sizes[0] != len(schema.items):
        raise UserError(
            f"the data have a vocabulary of {len(schema.items)} tokens, and {folder} one of "
            f"{pretrained.sizes[0]}; prepare them with its vocabulary"
        )


def _check_normaliser(folder: pathlib.Path, schema: Schema) -> None:
    """Refuses data of another normaliser than the folder's, if its files say which that is."""
    path, options = _normaliser(folder)
    if options not in (None, schema.tokenizer):
        raise UserError(
            f"{folder} treats capital letters, accents or Chinese characters otherwise than "
            f"the data; prepare them with vocabulary={path}"
        )


def _normaliser(folder: pathlib.Path) -> tuple[pathlib.Path, TokenizerOptions | None]:
    """The file of a folder that has or stands beside its normaliser, and the normaliser."""
    path = folder / huggingface.TOKENIZER
    try:
        return path, vocabulary.read(path)[1]
    except UserError:
        path = folder / huggingface.VOCABULARY
        return path, vocabulary.options_beside(path)


def _with_labels_of(
    schema: Schema, pretrained: huggingface.Pretrained
) -> huggingface.Pretrained:
    """The pretrained model, its classifier's labels those of the schema, else without it.

    A classifier of one output gives a number in its units, and the model a standardised one.
    """
    target, labels = schema.target, schema.labels
    parameters, unused = dict(pretrained.parameters), pretrained.unused
    for path in [path for path in parameters if path[0] == CLASSIFIER]:
        values = parameters.pop(path)
        if labels and set(labels) <= set(pretrained.labels):
            order = [pretrained.labels.index(label) for label in labels]
            parameters[path] = values[..., order]
        elif target and target.kind == NUMBER and values.shape[-1] == 1:
            parameters[path] = standardised(path[1], values, target)
        else:
            unused = (*unused, "/".join(path))
    return dataclasses.replace(pretrained, parameters=parameters, unused=unused)
