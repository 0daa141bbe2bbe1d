"""The workload of the benchmark: random examples of the sizes of a config, in memory.

Legend: V items of the vocabulary, C context width.
"""

import dataclasses

import ml_collections
import numpy as np

from cbert.benchmark import text_workload
from cbert.data import prepared
from cbert.data.columns import Split, selected
from cbert.data.random_streams import stream
from cbert.model import cost
from cbert.schema import PAD_ITEM, SET, Categorical, Feature, Schema
from cbert.tasks import task_class, task_options
from cbert.training import config as config_lib
from cbert.training.run import Run, assemble, load_splits

EXAMPLES = 8192
# A text is dear, so there are as many as so many batches hold.
TEXT_BATCHES = 8
# The paper's examples have four to eight items, five in the mean.
LENGTH_FRACTIONS = {4: 0.46, 5: 0.26, 6: 0.14, 7: 0.09, 8: 0.05}


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of a workload.

    Attributes:
      items: V.
      context: C, made of features of width 92 and one of the remaining width.
      length: The items or tokens of each example; 0 stands for the paper's four to eight
        items, and for 128 tokens.
    """

    items: int = 30_000
    context: int = 736
    length: int = 0

    def lengths(self) -> np.ndarray:
        """The length of each set, `int [EXAMPLES]`."""
        if self.length:
            return np.full(EXAMPLES, self.length)
        values, fractions = zip(*LENGTH_FRACTIONS.items(), strict=True)
        return np.repeat(values, np.round(np.array(fractions) * EXAMPLES).astype(int))

    @property
    def tokens(self) -> int:
        """The length of each text."""
        return self.length or 128


def make_schema(config: ml_collections.ConfigDict, sizes: Sizes) -> Schema:
    """A schema for the config's task.

    Its features are categorical, of up to 92 dimensions and 100 values each. Texts have them
    only where the method reads them, because plain BERT has none.
    """
    if config_lib.has_items(config):
        names = tuple(str(item) for item in range(sizes.items))
        longest = int(sizes.lengths().max())
        return Schema(SET, longest, names, (1,) * sizes.items, _features(sizes))
    features = _features(sizes) if config_lib.reads_context(config) else ()
    return text_workload.make_schema(config.task.name, sizes.items, sizes.tokens, features)


def _features(sizes: Sizes) -> tuple[Feature, ...]:
    widths = [92] * (sizes.context // 92)
    if sizes.context % 92:
        widths.append(sizes.context % 92)
    values = tuple(str(value) for value in range(100))
    return tuple(
        Categorical(f"feature_{number}", width, values) for number, width in enumerate(widths)
    )


def make_split(config: ml_collections.ConfigDict, sizes: Sizes, schema: Schema) -> Split:
    """A split of uniformly drawn items, because the speed does not depend on the items."""
    random = stream("benchmark examples")
    lengths = sizes.lengths()
    is_text = not config_lib.has_items(config)
    count = TEXT_BATCHES * config.train.batch_size if is_text else len(lengths)
    context = {
        feature.name: random.integers(3, 103, (count, 1), np.int32)
        for feature in schema.features
    }
    if is_text:
        return text_workload.make_split(schema, count, context)
    items = random.integers(0, sizes.items, (count, schema.max_items), np.int32)
    items[np.arange(schema.max_items) >= lengths[:, None]] = PAD_ITEM
    names = [str(row) for row in range(count)]
    return Split(names, names, ["{}"] * count, items, context, None)


def make_run(
    config: ml_collections.ConfigDict, sizes: Sizes, seeds: int = 1
) -> tuple[Run, Split, Schema]:
    """A training run on the workload, the split that it trains on, and the schema."""
    config_lib.check(config)
    schema = make_schema(config, sizes)
    split = make_split(config, sizes, schema)
    validation = selected(split, range(min(len(split), config.train.batch_size)))
    return assemble(config, schema, split, validation, range(seeds)), split, schema


def prepared_run(
    config: ml_collections.ConfigDict, seeds: int = 1
) -> tuple[Run, Split, Schema]:
    """A training run on the config's prepared data, their training split, and their schema."""
    config_lib.check(config)
    schema = prepared.load_schema(config.data.dir, config.data.name)
    split, validation = load_splits(config, schema)
    return assemble(config, schema, split, validation, range(seeds)), split, schema


def operations(config: ml_collections.ConfigDict, schema: Schema, length: int) -> float:
    """The multiplications and additions that training on one example of `length` items needs.

    Only matrix products count, without padding and without anything that is computed twice. Of
    the last block, only the positions that the head reads count. The backward pass counts as
    two forward passes.
    """
    model = config_lib.build_model(config, schema)
    read, candidates, sampled = task_class(config).positions_and_candidates(
        task_options(config), schema, length
    )
    width = config.model.item_dimension or config.model.dimension
    scoring = read * width * (sampled or candidates)
    return 3 * 2 * (cost.multiply_adds(model, length, read) + scoring)
