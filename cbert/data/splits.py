"""Splits decided by a stable hash of the group, never by the order of rows."""

from cbert.data.hashing import uniform
from cbert.data.records import TEST, TRAIN, VALIDATION, Record
from cbert.errors import UserError, shown

WEIGHTS = (80, 10, 10)


def split_of(record: Record, weights: tuple[int, ...] = WEIGHTS) -> str:
    """The record's own split, or the one its group falls into."""
    if record.split:
        return record.split
    point = uniform(record.group) * sum(weights)
    if point < weights[0]:
        return TRAIN
    return VALIDATION if point < weights[0] + weights[1] else TEST


def check_weights(weights: object, needs_training: bool = True) -> None:
    """Raises `UserError` unless there are three weights, and one for training if needed."""
    given = weights if isinstance(weights, list | tuple) else ()
    whole = all(type(weight) is int and weight >= 0 for weight in given)
    written = ",".join(map(shown, given)) or shown(weights)
    if needs_training and len(given) == 3 and whole and any(given) and not given[0]:
        raise UserError(
            f"split_weights is {written}; training needs more than 0, unless a schema is given"
        )
    if len(given) != 3 or not whole or not any(given):
        raise UserError(
            f"split_weights is {written}; give split_weights=80,10,10, say: three whole "
            "numbers for train, validation and test"
        )
