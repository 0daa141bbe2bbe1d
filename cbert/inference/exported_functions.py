"""Functions and parameters as files, to be read without the model's code and without Flax."""

import functools
import pathlib
import re
import urllib.parse
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import numpy as np

from cbert.errors import UserError

PLATFORMS = ("cpu", "cuda")
# A program may call functions of the process by name. Ours name checks of shapes, and
# operations of XLA that StableHLO lacks.
_CALL = "custom_call"
_OWN_CALL = re.compile(rf"{_CALL} @(shape_assertion|mhlo\.\w+)\(")


def file_name(function: str, length: int | None = None) -> str:
    """The file of a function, for texts or sets of one padded length where it takes these."""
    return f"{function}.stablehlo" if length is None else f"{function}-{length}.stablehlo"


def exported(function: Callable, *shapes: Any) -> bytes:
    """A function as StableHLO, for arguments of these shapes."""
    from cbert.model import products  # What reads exported files needs no model's code.

    def traced(*arguments: Any) -> Any:  # JAX keeps what it traced of `function` elsewhere.
        return function(*arguments)

    with products.left_to_library():
        program = jax.export.export(jax.jit(traced), platforms=PLATFORMS)(*shapes)
    return bytes(program.serialize())


def parameter_shapes(params: Any) -> Any:
    """The shapes of parameters, as an argument of `exported`."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), params)


class Lazy:
    """An exported function, read when it is first called."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    @functools.cached_property
    def _exported(self) -> jax.export.Exported:
        try:
            program = jax.export.deserialize(bytearray(self._path.read_bytes()))
        except ValueError as error:
            raise UserError(f"{self._path}: {error}; export again with this jax") from None
        if _CALL in _OWN_CALL.sub("", program.mlir_module()):
            raise UserError(
                f"{self._path}: it calls functions that no exported model needs; do not use it"
            )
        return program

    def __call__(self, *arguments: Any) -> Any:
        return self._exported.call(*arguments)


class OfLength:
    """The exported function for the length of the codes `[R, L]`, its second argument."""

    def __init__(self, directory: pathlib.Path, function: str) -> None:
        self._of_length = functools.cache(lambda n: Lazy(directory / file_name(function, n)))

    def __call__(self, params: Any, codes: jax.Array, *rest: Any) -> Any:
        return self._of_length(codes.shape[1])(params, codes, *rest)


def flat(params: dict[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    """Parameters by path, `a/b`; a slash within a name is quoted.

    `flax.traverse_util` would do as much, but reading must not need Flax.
    """
    by_path = {}
    for name, value in params.items():
        path = prefix + urllib.parse.quote(name, safe="")
        if isinstance(value, dict):
            by_path.update(flat(value, path + "/"))
        else:
            by_path[path] = np.asarray(value)
    return by_path


def nested(path: pathlib.Path) -> dict[str, Any]:
    """The parameters in a file of `flat` ones."""
    params: dict[str, Any] = {}
    with np.load(path, allow_pickle=False) as arrays:
        for name in arrays.files:
            *parents, leaf = map(urllib.parse.unquote, name.split("/"))
            inside = params
            for parent in parents:
                inside = inside.setdefault(parent, {})
            inside[leaf] = arrays[name]
    return params
