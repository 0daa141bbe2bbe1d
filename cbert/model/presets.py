"""The model configs of BERT, by the names of its sizes.

The sizes are those of Devlin et al. (2019), section 3, of Turc et al. (2019), table 1, and of
MiniLM (Wang et al., 2020) with six layers.
"""

from collections.abc import Mapping
from types import MappingProxyType

from cbert.errors import UserError
from cbert.model.config import ModelConfig

# Name to layers, dimension and heads.
SIZES: Mapping[str, tuple[int, int, int]] = MappingProxyType(
    {
        "tiny": (2, 128, 2),
        "mini": (4, 256, 4),
        "small": (4, 512, 8),
        "minilm": (6, 384, 12),
        "base": (12, 768, 12),
        "large": (24, 1024, 16),
    }
)
VOCABULARY = 30_522  # of BERT's English, uncased models
MAX_LENGTH = 512


def bert(size: str) -> ModelConfig:
    """BERT of one of `SIZES`, exactly; raises `UserError` with the names there are."""
    if size not in SIZES:
        raise UserError(f"there is no BERT of size {size!r}; choose one of {', '.join(SIZES)}")
    layers, dimension, heads = SIZES[size]
    return ModelConfig(
        dimension=dimension,
        heads=heads,
        layers=layers,
        feed_forward=4 * dimension,
        activation="gelu",
        dropout=0.1,
        attention_dropout=0.1,
        positions=True,
        embedding_norm=True,
        transform_activation="gelu",
        transform_norm=True,
        norm_epsilon=1e-12,
        initializer="bert",
    )
