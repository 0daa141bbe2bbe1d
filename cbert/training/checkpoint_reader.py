"""Reading checkpoints: which of them is usable, and what is in it.

Every checkpoint is verified before anything in it is used, in two ways. Its checksums say that
its files are as they were written (see `checksums.py`). Its config says that it belongs to the
run in whose directory it lies, and was not copied from another run.

A process that is killed between a checkpoint and its checksums leaves one that can be restored
but not verified, and so did version 0.1, which wrote no checksums. A verified
checkpoint is preferred to such a one even if it is older: the run repeats some steps, arrives
at the same bits, and trusts nothing. A checkpoint that cannot be verified is used, with a
warning, only if no other can be, or if it is asked for by name.

Nothing in a checkpoint can run code. Its files are JSON, and arrays that TensorStore reads.
Neither Orbax nor this module unpickles, evaluates or imports what a file names.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

import orbax.checkpoint as ocp

from cbert import errors
from cbert.errors import UserError
from cbert.training import checksums, workdir
from cbert.training.state import Progress

CONFIG_ITEM = "config"


class CheckpointReader:
    """Reads the checkpoints of one run.

    The items of a checkpoint are given by name with the arguments of their restoring, such as
    `params=ocp.args.StandardRestore(shapes)`, and `progress` becomes a `Progress`.
    """

    def __init__(
        self, path: pathlib.Path, fields: Mapping[str, Any], manager: ocp.CheckpointManager
    ) -> None:
        """Reads nothing yet.

        Args:
          path: The directory of the checkpoints.
          fields: The run's fields that change results, by dotted name.
          manager: Orbax's manager of that directory.
        """
        self._path, self._fields, self._manager = path, fields, manager

    def steps(self) -> list[int]:
        """The steps whose checkpoints are on the disk, whether damaged or not."""
        return workdir.checkpoint_steps(self._path)

    def newest(self, steps: list[int], **items: Any) -> tuple[int, dict[str, Any]]:
        """The newest usable step, as the top of this module defines usable, and its items.

        Raises:
          UserError: none of the steps is usable, or the newest belongs to another run.
        """
        faults: list[str] = []
        unverified: list[int] = []
        for step in reversed(steps):
            try:
                if checksums.verify(self._path / str(step)):
                    return step, self._read_instead(step, faults, items)
                unverified.append(step)
                faults.append(f"step {step} has no {checksums.NAME}")
            except checksums.DamagedError as error:
                faults.append(f"step {step} is damaged ({error})")
        for step in unverified:
            try:
                return step, self._read_instead(step, faults, items)
            except UserError as error:
                faults.append(str(error))
        raise UserError(
            f"{self._path}: no checkpoint is whole: {'; '.join(faults)}; restore the files or "
            "train in a fresh work directory"
        )

    def is_usable(self, step: int) -> bool:
        """Whether the files of a checkpoint are as they were written, as far as is known."""
        try:
            checksums.verify(self._path / str(step))
        except checksums.DamagedError:
            return False
        return True

    def best(self) -> int:
        """The step that the newest usable checkpoint knows as the best.

        Raises:
          UserError: no checkpoint is usable, or the best one is damaged or gone.
        """
        last, items = self.newest(self.steps(), progress=ocp.args.JsonRestore())
        step = items["progress"].best_step or last
        advice = f"use the checkpoint last, of step {last}"
        # A run that is being trained deletes its old best before the new one has checksums.
        if step not in self.steps():
            raise UserError(
                f"{self._path}: the best checkpoint, of step {step}, is gone; if the run is "
                f"being trained, run the same command again, or else {advice}"
            )
        if step != last:
            self._verify(step, f"it is the best; {advice}")
        return step

    def named(self, which: str) -> int:
        """The step that a string of digits names.

        Raises:
          UserError: there is no checkpoint of that step, or it is damaged.
        """
        known = ", ".join(map(str, self.steps()))
        if which not in map(str, self.steps()):
            raise UserError(f"checkpoint is {which!r}; use best, last or one of: {known}")
        self._verify(int(which), f"use best, last or one of: {known}")
        return int(which)

    def read(self, step: int, **items: Any) -> dict[str, Any]:
        """The items of a step, whose config is compared with the run's before.

        Raises:
          UserError: the checkpoint is damaged, of another model or of another run.
        """
        path = self._path / str(step)
        if (path / CONFIG_ITEM).exists():
            found = self._items(step, config=ocp.args.JsonRestore())
            self._check_config(path, found[CONFIG_ITEM])
        elif "params" in items:
            errors.warn(f"{path} holds no config: it may be another run's")
        return self._items(step, **items)

    def _verify(self, step: int, advice: str) -> None:
        """Raises `UserError` if a checkpoint is damaged, and warns if that cannot be known."""
        try:
            verified = checksums.verify(self._path / str(step))
        except checksums.DamagedError as error:
            raise UserError(f"{self._path / str(step)} is damaged: {error}; {advice}") from None
        if not verified:
            errors.warn(f"{self._path / str(step)} has no {checksums.NAME}: not verified")

    def _read_instead(
        self, step: int, faults: list[str], items: dict[str, Any]
    ) -> dict[str, Any]:
        """The items of a step, with a warning about the faults of newer ones."""
        read = self.read(step, **items)
        if faults:
            errors.warn(f"{self._path}: {'; '.join(faults)}; step {step} is used")
        return read

    def _check_config(self, path: pathlib.Path, fields: Any) -> None:
        """Refuses a checkpoint whose config differs from the run's.

        Only fields that both have are compared; another version may know others.
        """
        if not isinstance(fields, dict):
            raise UserError(f"{path}: its config is damaged; use another checkpoint")
        differences = [
            f"{name} ({errors.shown(fields[name])} in the checkpoint, {value!r} in the run)"
            for name, value in sorted(self._fields.items())
            if name in fields and fields[name] != value
        ]
        if differences:
            raise UserError(
                f"{path} belongs to another run: {'; '.join(differences)}; restore the run's "
                "config.json if it was edited; if the checkpoint was copied here, use the work "
                "directory that it was saved in, or remove it"
            )

    def _items(self, step: int, **items: Any) -> dict[str, Any]:
        """What Orbax restores."""
        try:
            read = dict(self._manager.restore(step, args=ocp.args.Composite(**items)))
            if "progress" in items:
                read["progress"] = Progress.from_dict(read["progress"])
            return read
        except Exception as error:  # Orbax raises errors of many types over damaged files.
            raise UserError(
                f"{self._path / str(step)}: the checkpoint is damaged or of another model "
                f"({errors.one_line(error)[:200]}); use another checkpoint or a fresh work "
                "directory"
            ) from None
