"""The limits on the size and time of a request, and the error that refuses one."""

import dataclasses

from starlette.exceptions import HTTPException

CLIENT_LEFT = 499  # No client reads this status; it only ends the request.


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of one server.

    Attributes:
      body_bytes: The largest body.
      body_commas: The most commas in a body, which are counted before it is parsed.
      body_fields: The most colons and opening brackets in it.
      read_seconds: How long a request may take to arrive.
      response_seconds: How long its response may take to compute.
      write_seconds: How long a client may take to read its response.
      shutdown_seconds: How long requests under way may take after the signal to end.
      connections: The most connections at once.
      predictions: The most predictions of one response.
      text_characters: The most characters of a text or of the words of one.
      all_characters: The most characters of all texts of one request.
      window_tokens: The most tokens of all windows that the passages of one request make.
      response_characters: The most characters of the items that a response predicts.
    """

    body_bytes: int = 2**20
    body_commas: int = 100_000
    body_fields: int = 20_000
    read_seconds: float = 10.0
    response_seconds: float = 10.0
    write_seconds: float = 10.0
    shutdown_seconds: float = 7.0
    connections: int = 512
    predictions: int = 8192
    text_characters: int = 20_000
    all_characters: int = 100_000
    window_tokens: int = 100_000
    response_characters: int = 2**22


class RefusalError(HTTPException):
    """A request that gets a status and one sentence instead of a result."""

    def __init__(self, status: int, sentence: str) -> None:
        # Part of the body may be unread; what follows on the connection is then not HTTP.
        headers = {"Connection": "close"} if status in (408, 411, 413) else None
        super().__init__(status, sentence, headers)
