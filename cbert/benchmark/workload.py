"""The workload of the benchmark: random examples of the sizes of a config, in memory.

Legend: V items of the vocabulary, C context width.
"""

import dataclasses

import ml_collections
import numpy as np

from cbert.data import prepared
from cbert.data.masking import Masking
from cbert.model import cost
from cbert.schema import PAD_ITEM, SET, Categorical, Schema
from cbert.training import config as config_lib
from cbert.training.run import Run, assemble

EXAMPLES = 8192
# The paper's examples have four to eight items, five in the mean.
LENGTH_FRACTIONS = {4: 0.46, 5: 0.26, 6: 0.14, 7: 0.09, 8: 0.05}


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of a workload.

    Attributes:
      items: V.
      context: C, made of features of width 92 and one of the remaining width.
      length: The items of each example; 0 stands for the paper's four to eight.
    """

    items: int = 30_000
    context: int = 736
    length: int = 0

    def lengths(self) -> np.ndarray:
        """The length of each example, `int [EXAMPLES]`."""
        if self.length:
            return np.full(EXAMPLES, self.length)
        values, fractions = zip(*LENGTH_FRACTIONS.items(), strict=True)
        return np.repeat(values, np.round(np.array(fractions) * EXAMPLES).astype(int))


def make_schema(sizes: Sizes) -> Schema:
    """A schema with categorical features of up to 92 dimensions and 100 values each."""
    widths = [92] * (sizes.context // 92)
    if sizes.context % 92:
        widths.append(sizes.context % 92)
    values = tuple(str(value) for value in range(100))
    features = tuple(
        Categorical(f"feature_{number}", width, values) for number, width in enumerate(widths)
    )
    names = tuple(str(item) for item in range(sizes.items))
    longest = int(sizes.lengths().max())
    return Schema(SET, longest, names, (1,) * sizes.items, features)


def make_split(sizes: Sizes, schema: Schema) -> prepared.Split:
    """A split of uniformly drawn items, because the speed does not depend on the items."""
    random = np.random.default_rng(0)
    lengths = sizes.lengths()
    count = len(lengths)
    items = random.integers(0, sizes.items, (count, schema.max_items), np.int32)
    items[np.arange(schema.max_items) >= lengths[:, None]] = PAD_ITEM
    context = {
        feature.name: random.integers(3, 103, (count, 1), np.int32)
        for feature in schema.features
    }
    names = [str(row) for row in range(count)]
    return prepared.Split(names, names, ["{}"] * count, items, context, None)


def make_run(
    config: ml_collections.ConfigDict, sizes: Sizes, seeds: int = 1
) -> tuple[Run, prepared.Split]:
    """A training run on the workload, and the split that it trains on."""
    config_lib.check(config)
    schema = make_schema(sizes)
    split = make_split(sizes, schema)
    return assemble(config, schema, split, split, range(seeds)), split


def operations(
    config: ml_collections.ConfigDict, sizes: Sizes, length: float, masking: Masking
) -> float:
    """The multiplications and additions that training on one example of `length` items needs.

    Only matrix products count, without padding and without anything that is computed twice. Of
    the last block, only the masked positions count. The backward pass counts as two forward
    passes.
    """
    model = config_lib.build_model(config, make_schema(sizes))
    masked = float(masking.count(np.array([round(length)]))[0])
    scored = config.train.sampled_items or sizes.items
    scoring = masked * config.model.dimension * scored
    return 3 * 2 * (cost.multiply_adds(model, length, masked) + scoring)
