"""Hashes of text that are the same on every machine and in every process."""

import hashlib


def hash64(text: str) -> int:
    """A hash of 64 bits, for splits, and for comparing texts without keeping them."""
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
