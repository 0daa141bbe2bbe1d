"""The program of an exported text model; see `stablehlo`.

Files: for each padded length L `outputs-L.stablehlo`, `cls-L.stablehlo` and
`mean-L.stablehlo`; `token_logits.stablehlo` of a masked language model.
"""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import ml_collections

from cbert.inference import export_directory
from cbert.inference.exported_functions import (
    Lazy,
    OfLength,
    exported,
    file_name,
    parameter_shapes,
)
from cbert.inference.text_checks import MASKED_LANGUAGE
from cbert.inference.text_predictor import TextPredictor
from cbert.inference.text_program import FIRST_TOKEN, MEAN, TextFunctions, TextProgram
from cbert.schema import Schema

_OUTPUTS, _TOKEN_LOGITS = "outputs", "token_logits"


def write_program(predictor: TextPredictor, directory: pathlib.Path) -> dict[str, Callable]:
    """Writes the functions of a predictor, with any number of rows.

    Returns the functions by the names of their files.
    """
    program, functions = predictor.program, predictor.program.functions
    params = parameter_shapes(program.params)
    (rows,) = jax.export.symbolic_shape("rows")
    written = {_OUTPUTS: functions.outputs, **functions.embeddings}
    for name, function in written.items():
        for length in program.lengths:
            inputs = export_directory.text_input_shapes(predictor.schema, rows, length)
            whole = exported(function, params, *inputs)
            (directory / file_name(name, length)).write_bytes(whole)
    if functions.token_logits:
        width = predictor.config.model.dimension
        vectors = jax.ShapeDtypeStruct((rows, width), jnp.float32)
        whole = exported(functions.token_logits, params, vectors)
        (directory / file_name(_TOKEN_LOGITS)).write_bytes(whole)
        written[_TOKEN_LOGITS] = functions.token_logits
    return written


def read(
    directory: pathlib.Path,
    schema: Schema,
    config: ml_collections.ConfigDict,
    card: dict[str, Any],
    params: Any,
    batch_sizes: Sequence[int],
) -> TextPredictor:
    """The predictor of a directory whose schema, card and parameters were read."""
    names_tokens = config.task.name == MASKED_LANGUAGE
    functions = TextFunctions(
        OfLength(directory, _OUTPUTS),
        {pooling: OfLength(directory, pooling) for pooling in (FIRST_TOKEN, MEAN)},
        Lazy(directory / file_name(_TOKEN_LOGITS)) if names_tokens else None,
    )
    program = TextProgram(functions, params, schema, batch_sizes)
    uses_context = card["uses_context"]
    return TextPredictor(schema, config, card["step"], program, uses_context=uses_context)
