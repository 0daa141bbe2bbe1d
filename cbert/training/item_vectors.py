"""Vectors of items from a file, with which a run's item embeddings begin.

Legend: N vectors of the file, R of them of items, V items of the schema, E entries of a vector.
"""

import collections
import dataclasses
import pathlib

import jax
import ml_collections
import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.parquet

from cbert.errors import UserError, shown
from cbert.model.parameter_tree import Params
from cbert.schema import Schema


@dataclasses.dataclass
class ItemVectors:
    """The vectors of the items that a file names.

    Attributes:
      source: The file.
      rows: `int [R]`, the items' codes.
      vectors: `float32 [R, E]`, finite and not all zero.
      total: V.
      lines: What there is to say of the last call.
    """

    source: str
    rows: np.ndarray
    vectors: np.ndarray
    total: int
    lines: list[str] = dataclasses.field(default_factory=list)

    @property
    def known(self) -> dict[str, bool]:
        """The parameters that a call puts in place, by name, and whether with all rows."""
        return {"embedding/items": len(self.rows) == self.total}

    def __call__(self, params: Params) -> Params:
        """The parameters with the vectors in place, on the host.

        All vectors are multiplied by one number, with which their mean square is that of all
        embeddings: angles and relative lengths stay.
        """
        table = np.array(jax.device_get(params["embedding"]["items"]))
        factor = _root_mean_square(table) / _root_mean_square(self.vectors)
        table[self.rows] = factor * self.vectors
        self.lines = [
            f"item embeddings from {self.source}: {len(self.rows)} of {self.total} items by "
            f"name, {self.total - len(self.rows)} not in it; vectors times {factor:.4g}"
        ]
        embedding = {**params["embedding"], "items": table}
        return {**params, "embedding": embedding}


def _root_mean_square(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


def read(config: ml_collections.ConfigDict, schema: Schema) -> ItemVectors | None:
    """The vectors of a checked config's `train.item_embeddings`, None where it is empty.

    Raises:
      UserError: the file is not what it must be.
    """
    source = config.train.item_embeddings
    if not source:
        return None
    path = pathlib.Path(source).expanduser()
    names, vectors = _read(path)
    _check(path, names, vectors, config.model)
    codes = schema.codes
    pairs = [(row, codes[name]) for row, name in enumerate(names) if name in codes]
    if not pairs:
        raise UserError(
            f"{path} names none of the data's items: it has {shown(names[0])}, and the data "
            f"have {shown(schema.items[0])}; give the items the names that the records use"
        )
    theirs, own = np.array(pairs).T
    known = vectors[theirs].astype(np.float32)
    finite = np.isfinite(known).all(axis=1)
    if not finite.all():
        name = names[theirs[np.argmin(finite)]]
        raise UserError(f"{path}: the vector of {shown(name)} is not finite; leave it out")
    if not known.any():
        raise UserError(
            f"{path}: the vectors of the data's items are all zero; give other ones"
        )
    return ItemVectors(source, own, known, len(schema.items))


def _check(
    path: pathlib.Path, names: list[str], vectors: np.ndarray, model: ml_collections.ConfigDict
) -> None:
    """Refuses names and vectors that do not fit each other, or the model."""
    if vectors.ndim != 2 or vectors.dtype.kind not in "fiu":
        raise UserError(
            f"{path} holds {vectors.dtype} of the shape {list(vectors.shape)}; give numbers, a "
            "row for each item"
        )
    if len(names) != len(vectors) or not names:
        raise UserError(
            f"{path} has {len(vectors)} vectors and {len(names)} names; give one name a vector"
        )
    name, count = collections.Counter(names).most_common(1)[0]
    if count > 1:
        raise UserError(f"{path}: {shown(name)} has {count} vectors; leave one")
    width, given = model.item_dimension or model.dimension, vectors.shape[1]
    if given != width:
        field = "model.item_dimension" if model.item_dimension else "model.dimension"
        raise UserError(
            f"{path} has vectors of {given} entries, and {field} is {width}; set "
            f"model.item_dimension={given}, from which a learned map leads to model.dimension"
        )


def _read(path: pathlib.Path) -> tuple[list[str], np.ndarray]:
    """The names, and the vectors as an array of any shape."""
    readers = {".npy": _read_numpy, ".parquet": _read_parquet}
    if path.suffix not in readers:
        raise UserError(
            f"{path}: unknown format; use .npy, with the names in a .txt file of the same name "
            "beside it, or .parquet"
        )
    try:
        return readers[path.suffix](path)
    except FileNotFoundError as error:
        raise UserError(f"{error.filename or path}: no such file") from None
    except (OSError, ValueError, EOFError, pyarrow.ArrowException) as error:
        raise UserError(f"{path}: not readable ({str(error)[:200]}); write it again") from None


def _read_numpy(path: pathlib.Path) -> tuple[list[str], np.ndarray]:
    """The array, and the names from the text file beside it, one a line."""
    # Unlike `np.load`, it refuses an archive of arrays, whatever its name is.
    vectors = np.lib.format.open_memmap(path, mode="r")
    names = path.with_suffix(".txt").read_text("utf-8-sig")
    return names.removesuffix("\n").split("\n"), vectors


def _read_parquet(path: pathlib.Path) -> tuple[list[str], np.ndarray]:
    """The column of strings, and the column of lists or all columns of numbers."""
    table = pyarrow.parquet.read_table(path)
    texts = [name for name in table.column_names if _is_text(table[name].type)]
    rest = [name for name in table.column_names if name not in texts]
    if len(texts) != 1 or not rest:
        raise UserError(
            f"{path} has {len(texts)} columns of strings and {len(rest)} others; give one of "
            "names, numbers as strings, and a column of vectors or a column for each entry"
        )
    names = table[texts[0]]
    if any(table[name].null_count for name in (*texts, *rest)):
        raise UserError(f"{path} has missing names or vectors; leave these rows out")
    columns = [table[name].combine_chunks() for name in rest]
    if len(columns) > 1 or not _is_list(columns[0].type):
        vectors = np.stack([column.to_numpy(zero_copy_only=False) for column in columns], 1)
        return names.to_pylist(), vectors
    (lists,) = columns
    lengths = pyarrow.compute.unique(pyarrow.compute.list_value_length(lists)).to_pylist()
    if len(lengths) != 1:
        raise UserError(f"{path} has vectors of {len(lengths)} lengths; give them all one")
    return names.to_pylist(), lists.flatten().to_numpy(False).reshape(len(lists), -1)


def _is_text(kind: pyarrow.DataType) -> bool:
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    return pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)


def _is_list(kind: pyarrow.DataType) -> bool:
    types = pyarrow.types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
