"""The parts of an example: the vocabulary, the context's features and the target.

Each kind of feature is a class in a file of its own, a feature is an instance of it, and
`KINDS` is the registry. Nothing here needs JAX.

Items are coded from 0 in the order of the vocabulary, so that a code is a row of the
embedding table. Padding, unknown and masked items have codes below zero and can never be
candidates. Values of categorical and multi-valued features are coded from 3, after the three
codes that every such feature has.
"""

from cbert.schema.categorical import Categorical
from cbert.schema.feature import Feature
from cbert.schema.history import History
from cbert.schema.kinds import KINDS, recognise
from cbert.schema.multi_valued import MultiValued
from cbert.schema.numbers import NumberFeature
from cbert.schema.numerical import Numerical
from cbert.schema.schema import SEQUENCE, SET, TEXT, Schema
from cbert.schema.target import UNKNOWN_LABEL, Target
from cbert.schema.tokenizer import SPECIAL_TOKENS, TokenizerOptions
from cbert.schema.tokens import (
    MISSING_VALUE,
    PAD_VALUE,
    SPECIAL_VALUES,
    UNKNOWN_VALUE,
    TokenFeature,
)
from cbert.schema.values import FARTHEST, MASK_ITEM, PAD_ITEM, UNKNOWN_ITEM, is_finite
from cbert.schema.vector import Vector

__all__ = [
    "FARTHEST",
    "KINDS",
    "MASK_ITEM",
    "MISSING_VALUE",
    "PAD_ITEM",
    "PAD_VALUE",
    "SEQUENCE",
    "SET",
    "SPECIAL_TOKENS",
    "SPECIAL_VALUES",
    "TEXT",
    "UNKNOWN_ITEM",
    "UNKNOWN_LABEL",
    "UNKNOWN_VALUE",
    "Categorical",
    "Feature",
    "History",
    "MultiValued",
    "NumberFeature",
    "Numerical",
    "Schema",
    "Target",
    "TokenFeature",
    "TokenizerOptions",
    "Vector",
    "is_finite",
    "recognise",
]
