"""The options of the WordPiece tokeniser of a text data set."""

import dataclasses

from cbert.errors import UserError

PAD, UNKNOWN, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD, UNKNOWN, CLS, SEP, MASK)
PREFIX = "##"  # What a piece that does not begin a word begins with.
# Tokens of an example, [CLS] and [SEP] included: at least one token of each of two texts.
LEAST_LENGTH, MOST_LENGTH = 5, 512


@dataclasses.dataclass(frozen=True)
class TokenizerOptions:
    """The options of BERT's normaliser, which prepares a text before it is cut into pieces.

    Attributes:
      lowercase: Whether capital letters become small ones.
      strip_accents: Whether letters lose their accents.
      split_chinese_characters: Whether every Chinese character is a word of its own.
    """

    lowercase: bool = True
    strip_accents: bool = True
    split_chinese_characters: bool = True


def check_vocabulary(items: tuple[str, ...]) -> None:
    """Raises `UserError` where a vocabulary lacks one of BERT's special tokens."""
    for token in SPECIAL_TOKENS:
        if token not in items:
            raise UserError(
                f"the vocabulary has no {token}; it must hold {', '.join(SPECIAL_TOKENS)}"
            )
