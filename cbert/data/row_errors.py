"""The bad rows that a reader leaves out, and the error of the first that it may not."""

import pathlib
from collections.abc import Sequence

from cbert.errors import UserError

MOST_SHOWN = 5  # Bad rows that are shown; all of a long file would fill the screen.


class BadRows:
    """Counts the rows that are left out, and raises the first that may not be."""

    def __init__(self, path: str | pathlib.Path | None, limit: int = 0) -> None:
        """Of a file, or with None of Python's records; limit: how many may be left out."""
        self._place = "record " if path is None else f"{pathlib.Path(path).expanduser()}:"
        self._limit = limit
        self.messages: list[str] = []

    def add(self, line: int, error: UserError) -> None:
        """Raises `UserError` with the row's place where no more may be left out."""
        message = f"{self._place}{line}: {error}"
        if len(self.messages) >= self._limit:
            hint = ""
            if self.messages:
                hint = f" (after {self._limit} skipped rows, the first {self.messages[0]})"
            raise UserError(message + hint) from None
        self.messages.append(message)

    def first(self) -> str:
        """What an error adds where all rows were bad: how many, and the first one."""
        if not self.messages:
            return ""
        return f" but {len(self.messages):,} that were skipped, the first {self.messages[0]}"


def skipped_lines(messages: Sequence[str]) -> list[str]:
    """What a command prints of the rows that were left out: the first, and how many."""
    lines = [f"skipped {message}" for message in messages[:MOST_SHOWN]]
    if more := len(messages) - len(lines):
        lines.append(f"skipped {more:,} more, {len(messages):,} rows in all")
    return lines
