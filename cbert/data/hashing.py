"""Hashes of text that are the same on every machine and in every process, and a set of them."""

import array
import hashlib


def hash64(text: str) -> int:
    """A hash of 64 bits, for splits, and for comparing texts without keeping them."""
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def uniform(text: str) -> float:
    """A number in [0, 1) that depends on the text alone."""
    return hash64(text) / 2**64


class HashSet:
    """A set of hashes of 64 bits in one table, a fifth of the memory of Python's set."""

    def __init__(self) -> None:
        self._table = array.array("Q", bytes(8 * 1024))  # Zero is an empty slot.
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, hashed: int) -> bool:
        return self._table[self._slot(hashed or 1)] != 0

    def add(self, hashed: int) -> None:
        """Adds a hash; 0 counts as 1."""
        slot = self._slot(hashed or 1)
        self._count += self._table[slot] == 0
        self._table[slot] = hashed or 1
        if 3 * self._count > 2 * len(self._table):
            known, self._table = self._table, array.array("Q", bytes(16 * len(self._table)))
            for one in known:
                if one:
                    self._table[self._slot(one)] = one

    def _slot(self, hashed: int) -> int:
        """The slot that holds the hash, or the empty one where it belongs."""
        table, last = self._table, len(self._table) - 1
        slot = hashed & last
        while table[slot] and table[slot] != hashed:
            slot = (slot + 1) & last
        return slot
