"""Features whose values look like the names of examples, which no model can learn from."""

from cbert.errors import shown, warn

_FEWEST = 100  # Among fewer values many a quantity has a different one in each example.
_NEARLY = 0.9


def point_out(name: str, different: int, observed: int) -> None:
    """Warns of a feature with a value of its own in nearly every example that has one.

    Args:
      name: The feature's name.
      different: How many different values it has in training.
      observed: How many training examples have a value.
    """
    if observed >= _FEWEST and different >= _NEARLY * observed:
        warn(
            f"feature {shown(name)} has another value in nearly every example, as an id has; "
            f"if it is one, rename it id or group, give columns=id:{name}, or drop={name}; of "
            "a time, take what repeats, such as month and weekday, into columns of their own"
        )
