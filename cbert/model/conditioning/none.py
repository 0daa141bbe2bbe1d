"""[None]: no context, plain BERT."""

from cbert.model.conditioning.method import Method


class NoContext(Method):
    """Every hook is the identity."""

    uses_context = False
    starts_as_plain = True
