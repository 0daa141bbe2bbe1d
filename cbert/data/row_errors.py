"""The error of one bad row, which a reader may leave out."""

from cbert.errors import UserError
from cbert.schema import values


class RowError(UserError):
    """A row that a reader may leave out; the reader adds its file and line."""


def check_text(text: str, what: str, longest: int = values.LONGEST_NAME) -> None:
    """Refuses text that is too long or has no UTF-8; raises `RowError`."""
    if len(text) <= longest and text.isascii():  # Most texts are; there are many of them.
        return
    try:
        values.check_text(text, what, longest)
    except UserError as error:
        raise RowError(error) from None
