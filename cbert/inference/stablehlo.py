"""A model without its code: StableHLO and parameters, beside its schema and card.

    predictor = cbert.load_exported("exported/gsu")

Reading needs neither the model's code nor Flax, and the predictions are those of the run.
Files: `parameters.npz`, those of `export_directory`, and `README.md`, the page of `signatures`;
of a model of sets or sequences `logits-L.stablehlo` for each padded length L and
`context_vector.stablehlo`, of a model of texts those of `text_stablehlo`.
"""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.export
import ml_collections
import numpy as np

from cbert import parallel
from cbert.errors import UserError, check_path
from cbert.inference import export_directory, signatures, text_stablehlo
from cbert.inference.checks import Checker
from cbert.inference.exported_functions import (
    PLATFORMS,
    Lazy,
    OfLength,
    exported,
    file_name,
    flat,
    nested,
    parameter_shapes,
)
from cbert.inference.predictor import Predictor
from cbert.inference.program import BATCH_SIZES, Functions, Program
from cbert.inference.text_predictor import TextPredictor
from cbert.schema import TEXT, schema_file

_PARAMETERS, _LOGITS, _CONTEXT_VECTOR = "parameters.npz", "logits", "context_vector"


def write(
    predictor: Predictor | TextPredictor, directory: str | pathlib.Path, facts: dict[str, Any]
) -> None:
    """Exports a predictor's model; the directory appears whole or not at all.

    Args:
      predictor: From `cbert.load`.
      directory: A new directory.
      facts: Further facts for the card.

    Raises:
      UserError: the directory exists.
    """
    facts = {
        **facts,
        "program": export_directory.STABLEHLO,
        "jax": jax.__version__,
        "platforms": PLATFORMS,
    }
    write_program: Callable[[Any, pathlib.Path], dict[str, Callable]] = _write_program
    if isinstance(predictor, TextPredictor):
        write_program = text_stablehlo.write_program

    def write_files(made: pathlib.Path) -> None:
        functions = write_program(predictor, made)
        page = signatures.page(made, functions, predictor.schema)
        (made / signatures.PAGE).write_text(page, encoding="utf-8")
        np.savez(made / _PARAMETERS, **flat(predictor.program.params))  # type: ignore[arg-type]

    export_directory.write(predictor, directory, facts, write_files)


def _write_program(predictor: Predictor, directory: pathlib.Path) -> dict[str, Callable]:
    """Writes the functions of a predictor; returns them by the names of their files."""
    program, functions = predictor.program, predictor.program.functions
    params = parameter_shapes(program.params)
    (rows,) = jax.export.symbolic_shape("rows")
    for length in program.lengths:
        inputs = export_directory.input_shapes(predictor.schema, rows, length)
        logits = exported(functions.logits, params, *inputs)
        (directory / file_name(_LOGITS, length)).write_bytes(logits)
    _, context, _ = export_directory.input_shapes(predictor.schema, rows, 1)
    context_vector = exported(functions.context_vector, params, context)
    (directory / file_name(_CONTEXT_VECTOR)).write_bytes(context_vector)
    return {_LOGITS: functions.logits, _CONTEXT_VECTOR: functions.context_vector}


def load_exported(
    directory: str | pathlib.Path, batch_sizes: Sequence[int] = BATCH_SIZES
) -> Predictor | TextPredictor:
    """A predictor from an exported model: its predictions are those of the run.

    Args:
      directory: The directory that `experiments.export` wrote.
      batch_sizes: The numbers of rows to compile for.

    Raises:
      UserError: a file is missing or not the one that was written, or was written for another
        platform or version.
    """
    check_path("directory", directory)
    directory = pathlib.Path(directory).expanduser()
    card = export_directory.read_card(directory, export_directory.STABLEHLO)
    platform = jax.export.default_export_platform()
    if platform not in card["platforms"]:
        raise UserError(
            f"{directory}: exported for {', '.join(card['platforms'])}, not for {platform}; "
            "set JAX_PLATFORMS=cpu"
        )
    schema = schema_file.load(directory / schema_file.FILE)
    config = ml_collections.ConfigDict(card["config"])
    params = jax.device_put(nested(directory / _PARAMETERS), parallel.first_device())
    if schema.kind == TEXT:
        return text_stablehlo.read(directory, schema, config, card, params, batch_sizes)
    checker = Checker(schema, config.model.positions)
    context_vector = Lazy(directory / file_name(_CONTEXT_VECTOR))
    functions = Functions(OfLength(directory, _LOGITS), context_vector)
    program = Program(functions, params, schema, checker.longest, batch_sizes)
    uses_context = card["uses_context"]
    return Predictor(schema, config, card["step"], checker, program, uses_context=uses_context)
