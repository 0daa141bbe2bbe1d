"""A model without its code: StableHLO and parameters, beside its schema and card.

    predictor = cbert.load_exported("exported/gsu")

Reading needs neither the model's code nor Flax, and the predictions are those of the run.
Files: `logits-L.stablehlo` for each padded length L, `context_vector.stablehlo`,
`parameters.npz`, and those of `export_directory`.

Legend: R rows, L positions.
"""

import functools
import pathlib
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.export
import ml_collections
import numpy as np

from cbert.errors import UserError
from cbert.inference import export_directory
from cbert.inference.checks import Checker
from cbert.inference.predictor import Predictor
from cbert.inference.program import BATCH_SIZES, Functions, Program
from cbert.schema import schema_file

PLATFORMS = ("cpu", "cuda")
_PARAMETERS, _CONTEXT_VECTOR = "parameters.npz", "context_vector.stablehlo"


def _logits_file(length: int) -> str:
    return f"logits-{length}.stablehlo"


def write(predictor: Predictor, directory: str | pathlib.Path, facts: dict[str, Any]) -> None:
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
    write_program = functools.partial(_write_program, predictor)
    export_directory.write(predictor, directory, facts, write_program)


def _write_program(predictor: Predictor, directory: pathlib.Path) -> None:
    program = predictor.program
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), program.params)
    (rows,) = jax.export.symbolic_shape("rows")
    for length in program.lengths:
        inputs = export_directory.input_shapes(predictor.schema, rows, length)
        logits = _exported(program.functions.logits, shapes, *inputs)
        (directory / _logits_file(length)).write_bytes(logits)
    _, context, _ = export_directory.input_shapes(predictor.schema, rows, 1)
    context_vector = _exported(program.functions.context_vector, shapes, context)
    (directory / _CONTEXT_VECTOR).write_bytes(context_vector)
    np.savez(directory / _PARAMETERS, **_flat(program.params))  # type: ignore[arg-type]


def _exported(function: Callable, *shapes: Any) -> bytes:
    exported = jax.export.export(jax.jit(function), platforms=PLATFORMS)(*shapes)
    return bytes(exported.serialize())


def load_exported(
    directory: str | pathlib.Path, batch_sizes: Sequence[int] = BATCH_SIZES
) -> Predictor:
    """A predictor from an exported model: its predictions are those of the run.

    Args:
      directory: The directory that `experiments.export` wrote.
      batch_sizes: The numbers of rows to compile for.

    Raises:
      UserError: a file is missing or not the one that was written, or was written for another
        platform or version.
    """
    directory = pathlib.Path(directory).expanduser()
    card = export_directory.read_card(directory, export_directory.STABLEHLO)
    platform = jax.export.default_export_platform()
    if platform not in card["platforms"]:
        raise UserError(
            f"{directory}: exported for {', '.join(card['platforms'])}, not for {platform}; "
            "set JAX_PLATFORMS=cpu"
        )
    schema = schema_file.load(directory / export_directory.SCHEMA)
    config = ml_collections.ConfigDict(card["config"])
    checker = Checker(schema, config.model.positions)
    params = jax.device_put(_nested(directory / _PARAMETERS), jax.local_devices()[0])
    functions = Functions(_Logits(directory), _Lazy(directory / _CONTEXT_VECTOR))
    program = Program(functions, params, schema, checker.longest, batch_sizes)
    return Predictor(schema, config, card["step"], checker, program)


class _Lazy:
    """An exported function, read when it is first called."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    @functools.cached_property
    def _exported(self) -> jax.export.Exported:
        try:
            return jax.export.deserialize(bytearray(self._path.read_bytes()))
        except ValueError as error:
            raise UserError(f"{self._path}: {error}; export again with this jax") from None

    def __call__(self, *arguments: Any) -> jax.Array:
        return self._exported.call(*arguments)


class _Logits:
    """The logits, from the exported function for the length of the codes."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._of_length = functools.cache(lambda n: _Lazy(directory / _logits_file(n)))

    def __call__(self, params: Any, codes: jax.Array, *rest: Any) -> jax.Array:
        return self._of_length(codes.shape[1])(params, codes, *rest)


def _flat(params: dict[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    """Parameters by path, `a/b`; a slash within a name is quoted.

    `flax.traverse_util` would do as much, but reading must not need Flax.
    """
    flat = {}
    for name, value in params.items():
        path = prefix + urllib.parse.quote(name, safe="")
        if isinstance(value, dict):
            flat.update(_flat(value, path + "/"))
        else:
            flat[path] = np.asarray(value)
    return flat


def _nested(path: pathlib.Path) -> dict[str, Any]:
    params: dict[str, Any] = {}
    with np.load(path, allow_pickle=False) as arrays:
        for name in arrays.files:
            *parents, leaf = map(urllib.parse.unquote, name.split("/"))
            inside = params
            for parent in parents:
                inside = inside.setdefault(parent, {})
            inside[leaf] = arrays[name]
    return params
