"""What the benchmark trains on: random sets of the sizes of a config, in memory.

Legend: B examples, L padded length, M sets, D model dimension, V items, C context width.
"""

import dataclasses

import ml_collections
import numpy as np

from cbert.data import source
from cbert.data.masking import Masking
from cbert.model import cost
from cbert.schema import PAD_ITEM, SET, Categorical, Schema
from cbert.training import config as config_lib
from cbert.training.run import Run, assemble

SETS = 8192
# The paper's sets have four to eight items, five in the mean.
LENGTH_SHARES = {4: 0.46, 5: 0.26, 6: 0.14, 7: 0.09, 8: 0.05}


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What a workload measures along.

    Attributes:
      items: V.
      context: C; features of 92 and what is left over.
      length: Items of each set, 0 for the paper's four to eight.
    """

    items: int = 30_000
    context: int = 736
    length: int = 0

    def lengths(self) -> np.ndarray:
        """`int [SETS]`."""
        if self.length:
            return np.full(SETS, self.length)
        values, shares = zip(*LENGTH_SHARES.items(), strict=True)
        return np.repeat(values, np.round(np.array(shares) * SETS).astype(int))


def make_schema(sizes: Sizes) -> Schema:
    """Categorical features of up to 92 dimensions and 100 values each."""
    widths = [92] * (sizes.context // 92)
    if sizes.context % 92:
        widths.append(sizes.context % 92)
    values = tuple(str(value) for value in range(100))
    features = tuple(
        Categorical(f"feature_{place}", width, values) for place, width in enumerate(widths)
    )
    names = tuple(str(item) for item in range(sizes.items))
    longest = int(sizes.lengths().max())
    return Schema(SET, longest, names, (1,) * sizes.items, features)


def make_split(sizes: Sizes, schema: Schema) -> source.Split:
    """Sets of uniform items; targets do not matter to speed."""
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
    return source.Split(names, names, ["{}"] * count, items, context, None)


def make_run(
    config: ml_collections.ConfigDict, sizes: Sizes, seeds: int = 1
) -> tuple[Run, source.Split]:
    """A training run on the workload, and the sets it trains on."""
    config_lib.check(config)
    schema = make_schema(sizes)
    split = make_split(sizes, schema)
    return assemble(config, schema, split, split, range(seeds)), split


def operations(
    config: ml_collections.ConfigDict, sizes: Sizes, length: float, masking: Masking
) -> float:
    """Multiplications and additions that training one set of `length` items needs.

    Matrix products alone, no padding, nothing computed twice; of the last block only what the
    hidden positions need; the backward pass is twice the forward pass.
    """
    model = config_lib.build_model(config, make_schema(sizes))
    asked = float(masking.count(np.array([round(length)]))[0])
    scored = config.train.sampled_items or sizes.items
    scoring = asked * config.model.dimension * scored
    return 3 * 2 * (cost.multiply_adds(model, length, asked) + scoring)
