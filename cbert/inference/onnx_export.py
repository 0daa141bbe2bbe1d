"""A model as ONNX, which runs without JAX.

    session = onnxruntime.InferenceSession("exported/gsu/logits-9.onnx")

Files: one for each padded length L, with the parameters inside, and those of
`export_directory`. For sets and sequences `logits-L.onnx` takes `codes` int32 `[R, L]`,
`positions` int32 `[R]` and, for each feature, its coded rows `context/NAME`; it gives `logits`
float32 `[R, V]`. For texts `outputs-L.onnx` takes `tokens` and `segments`, int32 `[R, L]`, and
the context; it gives float32 `logits`: `[R, L, V]` of tokens, `[R, T]` of labels, `[R, L, T]`
of tags, `[R, L, 2]` of a span's ends; `next_sentence [R, 2]`; or `number [R]`.

Legend: R rows, any number of them; L positions; V real items or tokens; T labels.
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

from cbert.errors import UserError, missing_extra
from cbert.inference import export_directory, item_functions, text_functions
from cbert.inference.predictor import Predictor
from cbert.inference.text_predictor import TextPredictor
from cbert.tasks.regression import Regression
from cbert.training import config as config_lib

_LOGITS = "logits"
_MOST_BYTES = 2**31  # An ONNX file is one protocol buffer, which holds no more.


def write(
    predictor: Predictor | TextPredictor,
    directory: str | pathlib.Path,
    facts: dict[str, Any],
) -> None:
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


def _write_program(predictor: Predictor | TextPredictor, directory: pathlib.Path) -> None:
    name, outputs, function = _plain_function(predictor)
    for length in predictor.program.lengths:
        inputs = _inputs(predictor, str(length))
        with _quiet():
            model = _to_onnx()(
                function,
                list(inputs.values()),
                model_name=name,
                input_names=list(inputs),
                output_names=outputs,
            )
        path = directory / f"{name}-{length}.onnx"
        path.write_bytes(model.SerializeToString())


def _inputs(
    predictor: Predictor | TextPredictor, length: str
) -> dict[str, jax.ShapeDtypeStruct]:
    """The inputs of a file by their names; `length` is a number or the name of a symbol."""
    shape = jax.export.symbolic_shape(f"rows, {length}")
    if isinstance(predictor, TextPredictor):
        tokens, segments, context = export_directory.text_input_shapes(predictor.schema, *shape)
        inputs = {"tokens": tokens, "segments": segments}
    else:
        codes, context, positions = export_directory.input_shapes(predictor.schema, *shape)
        inputs = {"codes": codes, "positions": positions}
    return {**inputs, **{f"context/{name}": column for name, column in context.items()}}


def _plain_function(
    predictor: Predictor | TextPredictor,
) -> tuple[str, list[str], Callable[..., Any]]:
    """The name of the files, the names of the outputs, and a function of the inputs in order.

    It has the plain kernels in float32: onnxruntime refuses what jax2onnx makes of the fast
    kernels, and has no bfloat16 on a CPU.
    """
    config, params = predictor.config.copy_and_resolve_references(), predictor.program.params
    config.model.update({"kernels": "plain", "dtype": "float32"})
    schema, features = predictor.schema, [one.name for one in predictor.schema.features]
    model = config_lib.build_model(config, schema)

    def on_items(codes: jax.Array, positions: jax.Array, *columns: jax.Array) -> jax.Array:
        context = dict(zip(features, columns, strict=True))
        return item_functions.functions(model).logits(params, codes, context, positions)

    if not isinstance(predictor, TextPredictor):
        return _LOGITS, [_LOGITS], on_items
    of_texts, outputs = text_functions.functions(model, config, schema), _outputs(predictor)

    def on_texts(tokens: jax.Array, segments: jax.Array, *columns: jax.Array) -> Any:
        context = dict(zip(features, columns, strict=True))
        made = of_texts.outputs(params, tokens, segments, context)
        if of_texts.token_logits:
            made[_LOGITS] = of_texts.token_logits(params, made["vectors"])
        return tuple(made[name] for name in outputs)

    return "outputs", outputs, on_texts


def _outputs(predictor: TextPredictor) -> list[str]:
    """The names of a text model's outputs."""
    if predictor.task == Regression.name:
        return ["number"]
    return [_LOGITS, *(["next_sentence"] if predictor.says_what_follows else [])]


def _to_onnx() -> Callable[..., Any]:
    try:
        from jax2onnx import to_onnx
    except ImportError as error:
        raise missing_extra("ONNX", "onnx", error) from None
    return to_onnx


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides warnings of jax2onnx about plugins that it skips and types that it leaves open."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Explicitly requested dtype", UserWarning)
            yield
    finally:
        logging.disable(before)
