"""Whether tasks ask the same, and measure the same: one of a user's own may extend another.

Members are compared as they are written in the classes, so that a subclass that does not
override one has the same.
"""

from collections.abc import Iterable
from inspect import getattr_static

from cbert.tasks.base import Task

# The members of a task that say what is asked, and those of what is measured of predictions,
# whichever metric decides.
ASKED = ("queries", "joined")
MEASURES = (*ASKED, "metric_values", "corpus_metrics")


def measured_alike(one: type[Task], other: type[Task]) -> bool:
    """Whether two tasks ask the same queries and measure the same of their predictions.

    It is so for the same task, and where one extends the other, or both a third one, and
    neither changes what is asked or measured, or which metric decides.
    """
    return alike(one, other, (*MEASURES, "metrics"))


def asked_alike(one: type[Task], other: type[Task]) -> bool:
    """Whether one task extends another, asks the same queries, and the same metric decides.

    What it measures of predictions may be more, or something else.
    """
    related = issubclass(one, other) or issubclass(other, one)
    first = (getattr_static(task, "metrics", None) for task in (one, other))
    deciding = [of[:1] if isinstance(of, tuple) else of for of in first]
    return related and alike(one, other, ASKED) and deciding[0] == deciding[1]


def alike(one: type[Task], other: type[Task], names: Iterable[str]) -> bool:
    """Whether two tasks have the same members of these names, or lack the same."""
    return all(
        getattr_static(one, name, None) == getattr_static(other, name, None) for name in names
    )
