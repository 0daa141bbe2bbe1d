"""[None]: no context, plain BERT."""

from typing import Any

from cbert.model.conditioning.method import Method


class NoContext(Method):
    """Every hook is the identity."""

    starts_as_plain = True

    @classmethod
    def reads_context(cls, options: Any) -> bool:
        return False
