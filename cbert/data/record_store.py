"""Records on disk while a data set is prepared, so that memory does not grow with them.

Legend: M records.
"""

import array
import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Iterator

import numpy as np
from tensorflow_datasets.core import hashing

from cbert.data import examples
from cbert.data.records import Record


class RecordStore:
    """Keeps records in a temporary file that has no name, so a killed process leaves none."""

    def __init__(self, directory: pathlib.Path) -> None:
        """directory: Where the file takes its room; raises `OSError` naming it."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115
        except OSError as error:
            error.filename = str(directory)
            raise
        self._ends = array.array("Q", [0])
        self._keys = bytearray()
        self._hashers: dict[str, hashing.Hasher] = {}
        self._is_flushed = True

    def close(self) -> None:
        """Removes the records."""
        self._file.close()

    def __len__(self) -> int:
        return len(self._ends) - 1

    def append(self, record: Record, split: str) -> None:
        """Adds a record at the end."""
        data = examples.to_bytes(record)
        self._file.write(data)
        self._is_flushed = False
        self._ends.append(self._ends[-1] + len(data))
        if split not in self._hashers:
            self._hashers[split] = hashing.Hasher(split)
        self._keys += self._hashers[split].hash_key(record.id).to_bytes(16, "big")

    def read(self, index: int) -> bytes:
        """The example of a record, counted in the order of `append`."""
        if not self._is_flushed:
            self._file.flush()
            self._is_flushed = True
        start, end = self._ends[index], self._ends[index + 1]
        return os.pread(self._file.fileno(), end - start, start)

    def keys(self) -> np.ndarray:
        """TFDS's hash of each record's split and id, two halves, `uint64 [M, 2]`."""
        return np.frombuffer(bytes(self._keys), ">u8").reshape(-1, 2).astype(np.uint64)

    def sizes(self) -> np.ndarray:
        """Bytes of each example, `int64 [M]`."""
        return np.diff(np.array(self._ends, np.int64))


@dataclasses.dataclass(frozen=True)
class RecordView:
    """Some records of a store, read anew each time that they are iterated over.

    Attributes:
      store: The store that holds them.
      indices: The indices of the records in their order, `int64 [M]`.
    """

    store: RecordStore
    indices: np.ndarray

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[Record]:
        return map(examples.from_bytes, self.serialised())

    def __getitem__(self, index: int) -> Record:
        return examples.from_bytes(self.store.read(self.indices[index]))

    def serialised(self) -> Iterator[bytes]:
        """The records as serialised examples."""
        return (self.store.read(index) for index in self.indices)

    def shuffled(self) -> "RecordView":
        """The records in the order of TFDS, that of a hash of split and id."""
        high, low = self.store.keys()[self.indices].T
        return RecordView(self.store, self.indices[np.lexsort((low, high))])

    def size(self) -> int:
        """Bytes of all their examples."""
        return int(self.store.sizes()[self.indices].sum())
