"""The set of hashes holds what Python's set holds."""

import random

from cbert.data.hashing import HashSet


def test_a_set_of_hashes_equals_pythons():
    numbers = random.Random(0)
    # Small numbers share slots with large ones, whose last bits are equal.
    added = [numbers.randrange(2**64) for _ in range(3000)] + [n << 20 for n in range(1, 300)]
    others = [n + 1 for n in added] + [2**64 - 1, 1 << 40]
    known, ours = set(), HashSet()
    for hashed in added + added[:500]:
        assert (hashed in ours) == (hashed in known)
        ours.add(hashed)
        known.add(hashed)
    assert len(ours) == len(known)
    assert all(hashed in ours for hashed in known)
    assert [hashed in ours for hashed in others] == [hashed in known for hashed in others]
