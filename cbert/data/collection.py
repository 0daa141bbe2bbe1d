"""The records of a data set while it is prepared: on disk, with a few numbers of each."""

import pathlib

import numpy as np

from cbert.data.overview import Overview
from cbert.data.record_store import RecordStore, RecordView
from cbert.data.records import SPLITS, Record


class Collection:
    """Records and their splits. Use it as a context manager, which removes it in the end."""

    def __init__(self, directory: pathlib.Path, kind: str) -> None:
        """directory: The directory for the records' temporary file; kind: The schema's kind."""
        self._store = RecordStore(directory)
        self.overview = Overview(kind)

    def __enter__(self) -> "Collection":
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def __len__(self) -> int:
        return len(self._store)

    def add(self, record: Record, split: str) -> None:
        """Adds a record at the end."""
        self._store.append(record, split)
        self.overview.add(record, split)

    def everything(self) -> RecordView:
        """All records, in the order in which they came."""
        return RecordView(self._store, np.arange(len(self._store)))

    def by_split(self) -> dict[str, RecordView]:
        """The records of each split, in the order in which they came."""
        return {
            split: RecordView(self._store, self.overview.indices(split)) for split in SPLITS
        }

    def by_document(self, split: str) -> tuple[RecordView, np.ndarray]:
        """A split's records, those of a group following each other, and their groups' hashes.

        Groups have the order of their first records, and records the order in which they came.
        """
        indices = self.overview.indices(split)
        groups = self.overview.group_hashes()[indices]
        _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
        order = np.argsort(first[inverse], kind="stable")
        return RecordView(self._store, indices[order]), groups[order]
