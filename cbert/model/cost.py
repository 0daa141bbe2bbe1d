"""The cost of a model's forward pass: the multiply-adds of its matrix products."""

from cbert.model.conditioning.method import Sizes
from cbert.model.parameter_tree import Model
from cbert.schema import History


def multiply_adds(model: Model, length: float, queries: float) -> float:
    """Multiply-adds of the encoder and the dense layer after it, forward, for one example.

    Matrix products alone, without padding; the last block computes only the query positions.

    Args:
      model: The model.
      length: Tokens of the example; a mean is as good.
      queries: Masked positions.
    """
    encoder = model.encoder
    config, method = encoder.config, encoder.method
    context = sum(feature.width for feature in encoder.features)
    histories = tuple(
        (f.width, f.max_items) for f in encoder.features if isinstance(f, History)
    )
    features, options = len(encoder.features), encoder.options
    sizes = Sizes(config, context, features, length, queries, histories, options)
    size, width = config.dimension, config.feed_forward
    keys = length + method.extra_positions(sizes)
    total = queries * size**2
    for layer in range(config.layers):
        rows = keys if layer < config.layers - 1 else queries
        total += keys * 2 * size**2 + rows * (2 * size**2 + 2 * size * width)
        total += 2 * rows * keys * size
    total += (length + queries) * config.item_dimension * size
    return total + method.multiply_adds(sizes)
