"""Functions of the caller that training calls at a step, a validation and a checkpoint."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from cbert.errors import UserError, shown
from cbert.training.state import TrainState


@dataclasses.dataclass(frozen=True)
class Event:
    """What a callback is told.

    Attributes:
      step: Steps taken so far.
      workdir: The run's directory.
      state: The state after that step; the next step overwrites it, so copy what is to last.
        With `train.shard_items` the items' arrays are in parts, see `Placement`.
      metrics: At a step: sums and their `<name>_count`, `[steps]` each with an entry for each
        step of the dispatch, still on the device, so that reading them waits. At a validation:
        the task's metrics as numbers. At a checkpoint: nothing.
    """

    step: int
    workdir: pathlib.Path
    state: TrainState
    metrics: Mapping[str, Any]


Callback = Callable[[Event], object]


@dataclasses.dataclass(frozen=True)
class Callbacks:
    """Functions that training calls; one that returns true ends the run.

    The run then ends as by a signal: it saves, and the same call goes on. Where several
    processes train together, each calls its own functions, and all must return the same.

    Attributes:
      step: Called after every dispatch, which is a step unless `train.steps_per_dispatch` says
        otherwise.
      validation: Called after every validation.
      checkpoint: Called when a checkpoint is about to be written, in the background.
    """

    step: Callback | None = None
    validation: Callback | None = None
    checkpoint: Callback | None = None

    def __post_init__(self) -> None:
        """Raises `UserError` for what is no function."""
        for field in dataclasses.fields(self):
            given = getattr(self, field.name)
            if given is not None and not callable(given):
                raise UserError(
                    f"the callback {field.name} is {shown(given)}; give a function of an Event"
                )
