"""A model without its code: StableHLO, parameters, schema and a card, in one directory.

    predictor = cbert.load_exported("exported/gsu")

Reading needs neither the model's code nor Flax; the answers are those of the run. Files:
`logits-L.stablehlo` for each padded length L, `context_vector.stablehlo`, `parameters.npz`,
`schema.json` and `card.json`, which says what the model is and holds the checksums.
"""

import functools
import hashlib
import json
import pathlib
import tempfile
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import ml_collections
import numpy as np

from cbert.errors import UserError
from cbert.inference.checks import Checker
from cbert.inference.predictor import Predictor
from cbert.inference.program import BATCH_SIZES, Functions, Program
from cbert.schema import Schema, schema_file

PLATFORMS = ("cpu", "cuda")
FORMAT = 1
_CARD, _SCHEMA, _PARAMETERS = "card.json", "schema.json", "parameters.npz"
_CONTEXT_VECTOR = "context_vector.stablehlo"


def _logits_file(length: int) -> str:
    return f"logits-{length}.stablehlo"


def write(predictor: Predictor, directory: str | pathlib.Path, facts: dict[str, Any]) -> None:
    """Exports a predictor's model; the directory appears whole or not at all.

    Args:
      predictor: From `cbert.load`.
      directory: A new directory.
      facts: What the card says beside what reading needs.

    Raises:
      UserError: the directory exists.
    """
    directory = pathlib.Path(directory).expanduser()
    if directory.exists():
        raise UserError(f"{directory} exists; give a new directory")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".writing-") as temporary:
        written = pathlib.Path(temporary) / directory.name
        written.mkdir()
        _write(predictor, written, facts)
        written.rename(directory)


def _write(predictor: Predictor, directory: pathlib.Path, facts: dict[str, Any]) -> None:
    program = predictor.program
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), program.params)
    (rows,) = jax.export.symbolic_shape("rows")
    context = _context_shapes(predictor.schema, rows)
    places = jax.ShapeDtypeStruct((rows,), jnp.int32)
    for length in program.lengths:
        codes = jax.ShapeDtypeStruct((rows, length), jnp.int32)
        logits = _exported(program.functions.logits, shapes, codes, context, places)
        (directory / _logits_file(length)).write_bytes(logits)
    context_vector = _exported(program.functions.context_vector, shapes, context)
    (directory / _CONTEXT_VECTOR).write_bytes(context_vector)
    np.savez(directory / _PARAMETERS, **_flat(program.params))  # type: ignore[arg-type]
    schema_file.save(predictor.schema, directory / _SCHEMA)
    config = predictor.config.to_dict()
    config["data"]["dir"] = ""  # A path of the machine that trained it.
    card = {
        "format": FORMAT,
        **facts,
        "step": predictor.step,
        "jax": jax.__version__,
        "platforms": PLATFORMS,
        "config": config,
        "sha256": {path.name: _digest(path) for path in sorted(directory.iterdir())},
    }
    text = json.dumps(card, indent=1, ensure_ascii=False)
    (directory / _CARD).write_text(text + "\n", encoding="utf-8")


def _exported(function: Callable, *shapes: Any) -> bytes:
    exported = jax.export.export(jax.jit(function), platforms=PLATFORMS)(*shapes)
    return bytes(exported.serialize())


def _context_shapes(schema: Schema, rows: Any) -> dict[str, jax.ShapeDtypeStruct]:
    coded = {feature.name: feature.missing() for feature in schema.features}
    return {
        name: jax.ShapeDtypeStruct((rows, *array.shape[1:]), array.dtype)
        for name, array in coded.items()
    }


def load_exported(
    directory: str | pathlib.Path, batch_sizes: Sequence[int] = BATCH_SIZES
) -> Predictor:
    """A predictor from an exported model: the same questions, the same answers.

    Args:
      directory: What `experiments.export` wrote.
      batch_sizes: The numbers of questions to compile for.

    Raises:
      UserError: a file is missing or not the one that was written, or was written for another
        platform or version.
    """
    directory = pathlib.Path(directory).expanduser()
    card = read_card(directory)
    platform = jax.export.default_export_platform()
    if platform not in card["platforms"]:
        raise UserError(
            f"{directory}: exported for {', '.join(card['platforms'])}, not for {platform}; "
            "set JAX_PLATFORMS=cpu"
        )
    schema = schema_file.load(directory / _SCHEMA)
    config = ml_collections.ConfigDict(card["config"])
    checker = Checker(schema, config.model.positions)
    params = jax.device_put(_nested(directory / _PARAMETERS), jax.local_devices()[0])
    functions = Functions(_Logits(directory), _Lazy(directory / _CONTEXT_VECTOR))
    program = Program(functions, params, schema, checker.longest, batch_sizes)
    return Predictor(schema, config, card["step"], checker, program)


def read_card(directory: str | pathlib.Path) -> dict[str, Any]:
    """The card of an exported model, once every file is the one that was written."""
    path = pathlib.Path(directory) / _CARD
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        written, sums = card["format"], dict(card["sha256"])
        if written == FORMAT:
            _ = card["platforms"], card["config"], card["step"]
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; {directory} is not an exported model") from None
    except (ValueError, KeyError, TypeError, OSError) as error:
        reason = " ".join(str(error).split())[:80]
        raise UserError(f"{path}: not a card ({reason}); export again") from None
    if written != FORMAT:
        raise UserError(f"{path}: format is {written!r}, not {FORMAT}; export again")
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
    """The exported function of the length that is asked for."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._of_length = functools.cache(lambda n: _Lazy(directory / _logits_file(n)))

    def __call__(self, params: Any, codes: jax.Array, *rest: Any) -> jax.Array:
        return self._of_length(codes.shape[1])(params, codes, *rest)


def _flat(params: dict[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    """Parameters by path, `a/b`; a slash within a name is quoted."""
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
