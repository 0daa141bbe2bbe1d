"""The directory of an exported model: its program, its schema, and a card with checksums.

Legend: R rows, L positions, K entries of a feature's coded rows.
"""

import hashlib
import json
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from cbert import directories, files
from cbert.errors import UserError, one_line
from cbert.inference import signatures
from cbert.inference.base import BasePredictor
from cbert.schema import Schema, schema_file

FORMAT = 1
STABLEHLO, ONNX = "stablehlo", "onnx"
CARD = "card.json"


def write(
    predictor: BasePredictor,
    directory: str | pathlib.Path,
    facts: dict[str, Any],
    write_program: Callable[[pathlib.Path], None],
) -> None:
    """Exports a predictor's model; the directory appears whole or not at all.

    Args:
      predictor: Its schema, config and step are written.
      directory: A new directory.
      facts: Further facts for the card.
      write_program: Writes the files of the program into a directory.

    Raises:
      UserError: the directory exists.
    """
    directory = new_directory(directory)
    with directories.whole_directory(directory) as written:
        write_program(written)
        schema_file.save(predictor.schema, written / schema_file.FILE)
        _write_card(predictor, written, facts)


def new_directory(directory: str | pathlib.Path) -> pathlib.Path:
    """The path of a directory to be made, in which files can be made.

    Raises:
      OSError, UserError: it exists, or cannot be made; see `files.check_writable`.
    """
    path = pathlib.Path(directory).expanduser()
    if path.exists():
        raise UserError(f"{path} exists; give a new directory")
    files.check_writable(path)
    return path


def _write_card(
    predictor: BasePredictor, directory: pathlib.Path, facts: dict[str, Any]
) -> None:
    config = predictor.config.to_dict()
    config["data"]["dir"] = ""  # A path of the machine that trained it.
    # People may edit the page, and nothing reads it.
    written = [path for path in sorted(directory.iterdir()) if path.name != signatures.PAGE]
    card = {
        "format": FORMAT,
        **facts,
        "step": predictor.step,
        "uses_context": predictor.uses_context,
        "config": config,
        "sha256": {path.name: _digest(path) for path in written},
    }
    text = json.dumps(card, indent=1, ensure_ascii=False)
    (directory / CARD).write_text(text + "\n", encoding="utf-8")


def read_card(directory: str | pathlib.Path, program: str) -> dict[str, Any]:
    """The card of an exported model, once every file is the one that was written.

    Args:
      directory: The directory of the exported model.
      program: `STABLEHLO` or `ONNX`, the form that the caller can run.

    Raises:
      UserError: a file is missing or was changed, the card is not one, or the model was
        exported in the other form.
    """
    path = pathlib.Path(directory) / CARD
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        written, sums = card["format"], dict(card["sha256"])
        if written == FORMAT:
            model = card["config"]["model"]  # Older cards do not say what they read.
            reads = model["method"] != "none" and not model["constant_context"]
            card.setdefault("uses_context", reads)
            _ = card["step"]
            # Cards without this field are older than ONNX.
            form = card.get("program", STABLEHLO)
            _ = card["platforms"] if form == STABLEHLO else card["inputs"]
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{path}: no such file; {directory} is not an exported model, which "
            "experiments.export makes of a run"
        ) from None
    except (ValueError, KeyError, TypeError, OSError) as error:
        reason = one_line(error)[:80]
        raise UserError(f"{path}: not a card ({reason}); export again") from None
    if written != FORMAT:
        raise UserError(f"{path}: format is {written!r}, not {FORMAT}; export again")
    if form != program:
        raise UserError(f"{directory}: exported as {form}; export the run again as {program}")
    for name, digest in sums.items():
        file = path.parent / name
        if not file.is_file():
            raise UserError(f"{file}: no such file; copy the whole directory again")
        if _digest(file) != digest:
            raise UserError(f"{file}: not the file that was exported; copy it again")
    return card


def _digest(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def input_shapes(
    schema: Schema, rows: Any, length: Any
) -> tuple[jax.ShapeDtypeStruct, dict[str, jax.ShapeDtypeStruct], jax.ShapeDtypeStruct]:
    """The inputs of the logits: codes `[R, L]`, context `[R, K]`, positions `[R]`.

    R and L may be symbolic dimensions.
    """
    codes = jax.ShapeDtypeStruct((rows, length), jnp.int32)
    return codes, _context_shapes(schema, rows), jax.ShapeDtypeStruct((rows,), jnp.int32)


def text_input_shapes(
    schema: Schema, rows: Any, length: Any
) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct, dict[str, jax.ShapeDtypeStruct]]:
    """The inputs of a text model: tokens and segments `[R, L]`, context `[R, K]`."""
    tokens = jax.ShapeDtypeStruct((rows, length), jnp.int32)
    return tokens, tokens, _context_shapes(schema, rows)


def _context_shapes(schema: Schema, rows: Any) -> dict[str, jax.ShapeDtypeStruct]:
    missing = {feature.name: feature.missing() for feature in schema.features}
    return {
        name: jax.ShapeDtypeStruct((rows, *array.shape[1:]), array.dtype)
        for name, array in missing.items()
    }
