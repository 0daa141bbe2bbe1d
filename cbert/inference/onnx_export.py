"""A model as ONNX, which runs without JAX.

    session = onnxruntime.InferenceSession("exported/gsu/logits-9.onnx")

Files: `logits-L.onnx` for each padded length L, with the parameters inside, and those of
`export_directory`. Each takes `codes` int32 `[R, L]`, `positions` int32 `[R]` and, for each
feature, its coded rows `context/NAME`; it gives `logits` float32 `[R, V]`.

Legend: R rows, any number of them; L positions; V real items.
"""

import contextlib
import functools
import logging
import pathlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.export

from cbert.errors import UserError
from cbert.inference import export_directory
from cbert.inference.load import functions
from cbert.inference.predictor import Predictor
from cbert.training import config as config_lib

_MOST_BYTES = 2**31  # An ONNX file is one protocol buffer, which holds no more.


def write(predictor: Predictor, directory: str | pathlib.Path, facts: dict[str, Any]) -> None:
    """Exports a predictor's model; the directory appears whole or not at all.

    Args:
      predictor: From `cbert.load`.
      directory: A new directory.
      facts: Further facts for the card.

    Raises:
      UserError: the directory exists, the extra `onnx` is not installed, or the model is too
        large.
    """
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(predictor.program.params))
    if size >= _MOST_BYTES:
        raise UserError(
            f"the parameters take {size / 2**30:.1f} GiB and an ONNX file holds 2; "
            f"export as {export_directory.STABLEHLO}"
        )
    facts = {
        **facts,
        "program": export_directory.ONNX,
        "lengths": predictor.program.lengths,
        "inputs": {
            name: {
                "dtype": str(array.dtype),
                "shape": [size if isinstance(size, int) else str(size) for size in array.shape],
            }
            for name, array in _inputs(predictor, "length").items()
        },
    }
    write_program = functools.partial(_write_program, predictor)
    export_directory.write(predictor, directory, facts, write_program)


def _write_program(predictor: Predictor, directory: pathlib.Path) -> None:
    logits, params = _plain_logits(predictor), predictor.program.params
    features = [feature.name for feature in predictor.schema.features]

    def on_columns(codes: jax.Array, positions: jax.Array, *columns: jax.Array) -> jax.Array:
        return logits(params, codes, dict(zip(features, columns, strict=True)), positions)

    for length in predictor.program.lengths:
        inputs = _inputs(predictor, str(length))
        with _quiet():
            _to_onnx()(
                on_columns,
                list(inputs.values()),
                model_name="logits",
                input_names=list(inputs),
                output_names=["logits"],
                return_mode="file",
                output_path=directory / f"logits-{length}.onnx",
            )


def _inputs(predictor: Predictor, length: str) -> dict[str, jax.ShapeDtypeStruct]:
    """The inputs of a file by their names; `length` is a number or the name of a symbol."""
    shape = jax.export.symbolic_shape(f"rows, {length}")
    codes, context, positions = export_directory.input_shapes(predictor.schema, *shape)
    columns = {f"context/{name}": column for name, column in context.items()}
    return {"codes": codes, "positions": positions, **columns}


def _plain_logits(predictor: Predictor) -> Callable[..., jax.Array]:
    """The logits by the plain kernels in float32.

    onnxruntime refuses what jax2onnx makes of the fast kernels, and has no bfloat16 on a CPU.
    """
    config = predictor.config.copy_and_resolve_references()
    config.model.update({"kernels": "plain", "dtype": "float32"})
    return functions(config_lib.build_model(config, predictor.schema)).logits


def _to_onnx() -> Callable[..., Any]:
    try:
        from jax2onnx import to_onnx
    except ImportError as error:
        raise UserError(
            f'ONNX needs the optional extra onnx ({error}); run pip install ".[onnx]"'
        ) from None
    return to_onnx


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides warnings of jax2onnx about plugins that it skips and types that it leaves open."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Explicitly requested dtype", UserWarning)
            yield
    finally:
        logging.disable(logging.NOTSET)
