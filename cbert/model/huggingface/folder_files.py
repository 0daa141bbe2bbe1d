"""The files of a Hugging Face folder: its config and its tensors."""

import importlib.util
import json
import pathlib
from typing import Any

import numpy as np
import safetensors

from cbert.errors import UserError, one_line, shown

CONFIG, SAFETENSORS, TORCH = "config.json", "model.safetensors", "pytorch_model.bin"
READ = ("F64", "F32", "F16", "BF16", "I64", "I32", "BOOL")
VOCABULARY, TOKENIZER = "vocab.txt", "tokenizer.json"
VOCABULARIES = (VOCABULARY, TOKENIZER)


def is_folder(path: pathlib.Path) -> bool:
    """Whether a folder holds the weights of a Hugging Face model."""
    return any((path / name).is_file() for name in (SAFETENSORS, TORCH))


def read_config(path: pathlib.Path) -> dict[str, Any]:
    """The JSON object of `config.json`; raises `UserError`."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror}; give a folder that has {CONFIG} and {SAFETENSORS}"
        ) from None
    except (ValueError, RecursionError) as error:
        reason = one_line(error)[:80]
        raise UserError(f"{path}: it is not JSON ({reason}); download it again") from None
    if not isinstance(config, dict):
        raise UserError(f"{path}: it is {shown(config)}, not an object; download it again")
    return config


def read_tensors(folder: pathlib.Path) -> tuple[pathlib.Path, dict[str, np.ndarray]]:
    """The file of the weights, and its tensors by name as float32.

    Raises:
      UserError: there is none, it is damaged, or reading it needs torch.
    """
    for name, read in ((SAFETENSORS, _safetensors), (TORCH, _torch)):
        path = folder / name
        if path.is_file():
            return path, read(path)
    if any(folder.glob("*.index.json")):
        raise UserError(
            f"{folder}: the weights are in several files; save the model again in one, with "
            "save_pretrained and a larger max_shard_size"
        )
    raise UserError(f"{folder}: there is no {SAFETENSORS} and no {TORCH}; give another folder")


def _safetensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    tensors = {}
    try:
        with safetensors.safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118 (the file is no mapping)
                if (kind := file.get_slice(name).get_dtype()) not in READ:
                    raise UserError(
                        f"{path}: the tensor {shown(name)} is of the type {kind}; give "
                        f"weights of one of {', '.join(READ)}"
                    )
                tensors[name] = file.get_tensor(name).astype(np.float32)
    except (safetensors.SafetensorError, OSError, ValueError, TypeError) as error:
        raise UserError(
            f"{path}: it is not a whole safetensors file ({one_line(error)[:120]}); "
            "download it again"
        ) from None
    return tensors


def _torch(path: pathlib.Path) -> dict[str, np.ndarray]:
    if importlib.util.find_spec("torch") is None:
        raise UserError(
            f"{path}: reading it needs torch; install torch, or use a folder with {SAFETENSORS}"
        )
    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        return {
            name: tensor.detach().to(torch.float32).numpy()
            for name, tensor in state.items()
            if isinstance(name, str)
        }
    except Exception as error:  # A damaged file ends in whatever its bytes happen to ask for.
        raise UserError(
            f"{path}: it is not a file of tensors ({one_line(error)[:120]}); download it again"
        ) from None
