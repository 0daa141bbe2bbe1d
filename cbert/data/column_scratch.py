"""The columns of a split gathered in unnamed files, so that memory holds one block of it.

Legend: M examples, K entries of a row.
"""

import contextlib
import pathlib
import tempfile
from typing import IO, Any

import numpy as np
import pyarrow


class ColumnScratch(contextlib.ExitStack):
    """Appends blocks of columns and gives them as one batch; a context.

    The files lie in a directory, but have no name there: they end with the process.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        super().__init__()
        self._directory = directory
        self._files: dict[str, IO[bytes]] = {}
        self._types: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        self._ends: dict[str, int] = {}

    def _append(self, name: str, array: np.ndarray) -> None:
        if name not in self._files:
            file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115
            self._files[name] = self.enter_context(file)
        self._files[name].write(np.ascontiguousarray(array).tobytes())

    def add_array(self, name: str, rows: np.ndarray) -> None:
        """Appends rows `[M, K]` or `[M]`; all blocks of a column have one dtype and one K."""
        self._types[name] = rows.dtype, rows.shape[1:]
        self._append(name, rows)

    def add_texts(self, name: str, texts: list[str]) -> None:
        """Appends strings."""
        encoded = [text.encode() for text in texts]
        before = self._ends.get(name)
        if before is None:
            before = 0
            self._append(f"{name} ends", np.zeros(1, np.int64))
        ends = before + np.cumsum([len(text) for text in encoded], dtype=np.int64)
        self._ends[name] = int(ends[-1]) if len(ends) else before
        self._append(f"{name} ends", ends)
        self._append(name, np.frombuffer(b"".join(encoded), np.uint8))

    def batch(self, without: str = "") -> pyarrow.RecordBatch:
        """All columns in the files' own memory, but those whose name begins with `without`."""
        columns: dict[str, pyarrow.Array] = {}
        for name in self._ends:
            ends = self._mapped(f"{name} ends", np.dtype(np.int64))
            data = self._mapped(name, np.dtype(np.uint8))
            columns[name] = pyarrow.LargeStringArray.from_buffers(
                len(ends) - 1, pyarrow.py_buffer(ends), pyarrow.py_buffer(data)
            )
        for name, (dtype, shape) in self._types.items():
            if without and name.startswith(without):
                continue
            flat = pyarrow.array(self._mapped(name, dtype))
            columns[name] = (
                pyarrow.FixedSizeListArray.from_arrays(flat, shape[0]) if shape else flat
            )
        return pyarrow.RecordBatch.from_pydict(columns)

    def _mapped(self, name: str, dtype: np.dtype[Any]) -> np.ndarray:
        file = self._files[name]
        file.flush()
        if not file.tell():
            return np.zeros(0, dtype)  # An empty file cannot be mapped.
        return np.memmap(file, dtype, "r")
