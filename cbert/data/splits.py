"""Splits decided by a stable hash of the group, never by the order of rows."""

import hashlib

from cbert.data.records import SPLITS, Record
from cbert.errors import UserError

SHARES = (80, 10, 10)


def uniform(text: str) -> float:
    """A number in [0, 1) that depends on the text alone, on every machine."""
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "little") / 2**64


def split_of(record: Record, shares: tuple[int, ...] = SHARES) -> str:
    """The record's own split, or the one its group falls into."""
    if record.split:
        return record.split
    point = uniform(record.group) * sum(shares)
    if point < shares[0]:
        return SPLITS[0]
    return SPLITS[1] if point < shares[0] + shares[1] else SPLITS[2]


def check_shares(shares: tuple[int, ...]) -> None:
    if len(shares) != 3 or min(shares) < 0 or shares[0] == 0:
        raise UserError(
            f"--split_shares is {','.join(map(str, shares))}; give three shares for "
            "train, validation and test, such as 80,10,10"
        )
