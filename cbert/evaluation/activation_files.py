"""A directory of activations: a table for each split, as Parquet or with arrays beside it.

Legend: M examples of a split, L positions, D model dimension.
"""

import contextlib
import json
import pathlib
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow
import pyarrow.parquet

from cbert import directories, files
from cbert.data.columns import Split
from cbert.data.text_records import Text
from cbert.errors import UserError
from cbert.evaluation import activations
from cbert.evaluation.activations import Activations, FrozenModel
from cbert.model.pooling import EVERY_TOKEN
from cbert.schema.target import LABEL, LABELS, NUMBER

PARQUET, NPY = "parquet", "npy"
FORMATS = (PARQUET, NPY)
DESCRIPTION = "features.json"


def check_directory(directory: pathlib.Path) -> None:
    """Raises `UserError` where a directory is in use for something else."""
    if directory.is_dir() and not any(directory.iterdir()):
        return
    if directory.exists() and not (directory / DESCRIPTION).is_file():
        raise UserError(f"{directory} exists and holds no features; give a new directory")


def write(
    directory: pathlib.Path,
    frozen: FrozenModel,
    splits: dict[str, Split],
    layers: tuple[int, ...],
    pooling: str,
    form: str,
    batch_size: int,
) -> None:
    """Writes the activations of the splits; the directory appears whole or not at all.

    Args:
      directory: New, or written by an earlier call, which it then replaces.
      frozen: The model.
      splits: Name to split.
      layers, pooling, batch_size: See `activations.shards`.
      form: `parquet` or `npy`.

    Raises:
      UserError: the directory is in use, or the pooling is not one of the data.
    """
    check_directory(directory)
    activations.check(frozen, pooling)
    description = {
        **frozen.description,
        "layers": layers,
        "pooling": pooling,
        "format": form,
        "dimension": frozen.model.encoder.config.dimension,
        "splits": {name: len(split) for name, split in splits.items()},
    }
    with directories.whole_directory(directory) as written:
        for name, split in splits.items():
            _write_split(written, name, frozen, split, description, batch_size)
        text = json.dumps(description, indent=1, ensure_ascii=False)
        files.write_text(written / DESCRIPTION, text + "\n")


def _write_split(
    folder: pathlib.Path,
    name: str,
    frozen: FrozenModel,
    split: Split,
    description: dict[str, Any],
    batch_size: int,
) -> None:
    """Writes one split shard by shard, a row group each."""
    layers, pooling = description["layers"], description["pooling"]
    kind = frozen.schema.target.kind if frozen.schema.target else ""
    with contextlib.ExitStack() as stack:
        arrays = None
        if description["format"] == NPY:
            count = int(split.lengths.sum()) if pooling == EVERY_TOKEN else len(split)
            shape = count, description["dimension"]
            new = (_new_array(array_path(folder, name, layer), shape) for layer in layers)
            arrays = dict(zip(layers, map(stack.enter_context, new), strict=True))
        writer = None
        for rows, values in activations.shards(frozen, split, layers, pooling, batch_size):
            columns = _examples(split, rows, kind)
            if arrays is None:
                columns |= {_column(layer): _nested(values[layer]) for layer in layers}
            else:
                _append(arrays, values)
                if pooling == EVERY_TOKEN:
                    columns["tokens"] = split.lengths[rows]
            shard = pyarrow.table(columns)
            if writer is None:
                writer = stack.enter_context(
                    pyarrow.parquet.ParquetWriter(folder / f"{name}.parquet", shard.schema)
                )
            writer.write_table(shard.cast(writer.schema))


def array_path(folder: pathlib.Path, split: str, layer: int) -> pathlib.Path:
    """The array of a layer in the format `npy`."""
    return folder / f"{split}_{_column(layer)}.npy"


def _column(layer: int) -> str:
    return f"layer_{layer}"


def _new_array(path: pathlib.Path, shape: tuple[int, int]) -> BinaryIO:
    """A file that has all of an array but its rows, which are then written in order.

    A mapped one would end the process without a word where the disk is full.
    """
    file = path.open("wb")
    descr = np.lib.format.dtype_to_descr(np.dtype(np.float32))
    header: dict[str, Any] = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file


def _append(arrays: dict[int, BinaryIO], values: Activations) -> None:
    """Writes a shard's rows."""
    for layer, array in arrays.items():
        rows = np.concatenate(values[layer]) if type(values[layer]) is list else values[layer]
        array.write(np.asarray(rows, np.float32).tobytes())


def _examples(split: Split, rows: slice, kind: str) -> dict[str, Any]:
    """The columns that name the examples of a shard, with their label, labels or number."""
    columns = {
        "id": pyarrow.array(split.ids[rows], pyarrow.string()),
        "group": pyarrow.array(split.groups[rows], pyarrow.string()),
    }
    types = {
        LABEL: pyarrow.string(),
        LABELS: pyarrow.list_(pyarrow.string()),
        NUMBER: pyarrow.float64(),
    }
    if kind in types:
        labels = [Text.from_json(text).label for text in split.texts[rows]]
        columns[kind] = pyarrow.array(labels, types[kind])
    return columns


def _nested(values: np.ndarray | list[np.ndarray]) -> pyarrow.Array:
    """`[M, D]` as lists of D numbers; of M arrays `[L, D]`, lists of such lists."""
    if isinstance(values, np.ndarray):
        return pyarrow.FixedSizeListArray.from_arrays(values.ravel(), values.shape[1])
    offsets = np.cumsum([0, *map(len, values)], dtype=np.int32)
    inner = np.concatenate(values)
    vectors = pyarrow.FixedSizeListArray.from_arrays(inner.ravel(), inner.shape[1])
    return pyarrow.ListArray.from_arrays(offsets, vectors)


def read_table(directory: pathlib.Path, split: str, names: Sequence[str]) -> pyarrow.Table:
    """Columns of a split's table."""
    return pyarrow.parquet.read_table(directory / f"{split}.parquet", columns=[*names])


def read_layer(directory: pathlib.Path, split: str, layer: int) -> np.ndarray:
    """The pooled activations of a layer, `float32 [M, D]`."""
    path = array_path(directory, split, layer)
    if path.exists():
        return np.load(path, mmap_mode="r")
    column = read_table(directory, split, [_column(layer)]).column(0).combine_chunks()
    return column.flatten().to_numpy().reshape(len(column), -1)
