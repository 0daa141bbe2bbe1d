"""Writing a folder that Hugging Face's `transformers` opens."""

import json
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import safetensors.numpy
from flax import traverse_util

from cbert.directories import whole_directory
from cbert.errors import UserError
from cbert.model.config import ModelConfig
from cbert.model.heads import PretrainingHead
from cbert.model.huggingface import folder_files
from cbert.model.huggingface.names import HEAD_ENTRIES, encoder_entries, stored
from cbert.model.huggingface.reader import FIELDS, FIXED, SIZES
from cbert.model.parameter_tree import CONTEXT_PARTS, Params, Path
from cbert.model.text_bert import TextBert


def write(
    folder: str | pathlib.Path,
    model: TextBert,
    params: Params,
    labels: Sequence[str] = (),
    files: Sequence[pathlib.Path] = (),
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Writes a folder, whole or not at all.

    Args:
      folder: A new one, or an empty one.
      model: The model.
      params: Its parameters; they are written as float32.
      labels: The names of a classifier's labels, by default `LABEL_0` and so on.
      files: Files that are copied beside it, such as those of the vocabulary.
      settings: Further fields of `config.json`.

    Raises:
      UserError: the folder is not empty, or `transformers` has no BERT that computes the same.
    """
    folder = pathlib.Path(folder)
    flat = traverse_util.flatten_dict(params)
    _check_exact(model, flat)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already; give a new folder")
    config = {**_config(model, labels), **(settings or {})}
    tensors = _tensors(model, flat)
    with whole_directory(folder) as whole:
        (whole / folder_files.CONFIG).write_text(json.dumps(config, indent=2) + "\n")
        safetensors.numpy.save_file(tensors, whole / folder_files.SAFETENSORS, {"format": "pt"})
        for source in files:
            shutil.copyfile(source, whole / source.name)


def _check_exact(model: TextBert, flat: dict[Path, Any]) -> None:
    config, method = model.encoder.config, model.encoder.method
    wanted: dict[str, Any] = {"positions": True, "embedding_norm": True}
    if isinstance(model.head, PretrainingHead):
        wanted |= {"transform_norm": True, "transform_activation": config.activation}
    for field, value in wanted.items():
        if getattr(config, field) != value:
            raise UserError(
                f"model.{field} is {getattr(config, field)}, and BERT's is {value}; such a "
                "model cannot be written for transformers"
            )
    reads = method.reads_context(model.encoder.options)
    computes = reads or any(path[0] == "conditioning" for path in flat)
    if computes and not _is_closed(config, method.zero_is_plain, flat):
        what = "a context changes" if reads else "the conditioning changes"
        raise UserError(
            f"{what} what the model computes, and BERT of transformers reads none; write a "
            "model of the method none"
        )
    known = {entry.path for entry in encoder_entries(config.layers) + HEAD_ENTRIES}
    others = [path for path in flat if path not in known and path[0] not in CONTEXT_PARTS]
    if others:
        raise UserError(
            f"the model has {'/'.join(others[0])}, which BERT of transformers has not; such a "
            "model cannot be written for it"
        )


def _is_closed(config: ModelConfig, parts: tuple[str, ...], flat: dict[Path, Any]) -> bool:
    """Whether a context is shut out exactly, see `Method.zero_is_plain`."""
    if not config.start_as_plain or not parts:
        return False
    closing = [
        values
        for path, values in flat.items()
        if path[0] == "conditioning" and path[1].startswith(parts)
    ]
    # Names that no parameter has, such as misspelt ones, shut nothing out.
    return bool(closing) and not any(map(np.any, closing))


def _config(model: TextBert, labels: Sequence[str]) -> dict[str, Any]:
    config, head = model.encoder.config, model.head
    sizes = model.encoder.embedding_sizes
    default_sizes = tuple(SIZES.values())
    written = {
        "architectures": [head.architecture],
        "model_type": "bert",
        "initializer_range": 0.02,
        "dtype": "float32",
        **FIXED,
        **{theirs: getattr(config, ours) for theirs, (ours, _) in FIELDS.items()},
        **dict(zip(SIZES, sizes + default_sizes[len(sizes) :], strict=True)),
    }
    if count := getattr(head, "labels", 0):
        names = list(labels) or [f"LABEL_{index}" for index in range(count)]
        if len(names) != count or len(set(names)) != count:
            raise UserError(f"the classifier has {count} labels, and {len(set(names))} names")
        written["id2label"] = {str(index): name for index, name in enumerate(names)}
        written["label2id"] = {name: index for index, name in enumerate(names)}
    return written


def _tensors(model: TextBert, flat: dict[Path, Any]) -> dict[str, np.ndarray]:
    tensors = {}
    for entry in encoder_entries(model.encoder.config.layers) + HEAD_ENTRIES:
        if entry.path in flat:
            for name, values in entry.split(flat[entry.path]).items():
                tensors[stored(name, model.head.architecture)] = values
    return tensors
