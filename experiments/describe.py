"""Prints a model's parameters by module, and the count of the paper's Table 1.

    python -m experiments.describe --config=configs/meals.py:gs
    python -m experiments.describe --config=configs/stylist.py --articles=30000 --methods=all
    python -m experiments.describe --fields > docs/config.md

It reads the schema of the prepared data; with --articles it needs none: the schema is that of
synthetic outfits.
"""

import collections

import ml_collections
from absl import flags

from cbert.config import reference
from cbert.data import prepared
from cbert.data.synthetic import stylist
from cbert.errors import UserError
from cbert.model import cost, parameter_tree
from cbert.schema import Schema
from cbert.sweep import points
from cbert.text_table import align
from cbert.training import config as config_lib
from cbert.training.config_sections import sections
from experiments import command, config_flag

_CONFIG = config_flag.define()
_METHODS = flags.DEFINE_list(
    "methods", [], "Prints a row for each: methods and controls, or all methods: all."
)
_ARTICLES = flags.DEFINE_integer(
    "articles", None, "Describes a model of outfits from so many synthetic articles.", 1
)
_LENGTH = flags.DEFINE_integer("length", 5, "With --methods: tokens of an example.", 1)
_FIELDS = flags.DEFINE_bool("fields", False, "Prints every field of a config as Markdown.")

_FIELDS_HEAD = """# The config, field by field

A config is a Python file whose `get_config(method)` returns an `ml_collections.ConfigDict`.
`configs/base.py` returns every default; the files beside it override what their data need. Any
field can be set on the command line as `--config.SECTION.FIELD=VALUE` and swept by
`--set=SECTION.FIELD=A,B`. Fields that do not exist and impossible values are refused before
anything is compiled. This page is written by `python -m experiments.describe --fields`.
"""


def main() -> None:
    """Prints the page of fields, or counts parameters, of which only shapes are made."""
    if _FIELDS.value:
        print(_FIELDS_HEAD + "\n" + reference(sections()), end="")
        return
    config = _CONFIG.value
    if config is None:
        raise UserError(
            "give --config=configs/NAME.py:METHOD (of texts configs/text.py:TASK), or --fields"
        )
    if _ARTICLES.value is not None and not config.data.name:
        config.data.name = "stylist"  # No data are read.
    config_lib.check(config)
    schema = _schema(config)
    if _METHODS.value:
        _compare(config, schema)
        return
    model = config_lib.build_model(config, schema)
    sizes = parameter_tree.parameter_sizes(model)
    modules: dict[tuple[str, bool], int] = collections.Counter()
    for path, size in sizes.items():
        modules[path[0], parameter_tree.is_in_table_1(path)] += size
    rows = [
        [name, f"{size:,}", "" if counted else "not counted"]
        for (name, counted), size in modules.items()
    ]
    print(
        f"method {config.model.method}: {len(schema.items):,} items, context vector "
        f"{schema.context_width}\n"
    )
    print(align([["module", "parameters", ""], *rows, ["all", f"{sum(sizes.values()):,}", ""]]))
    print(
        "\nparameters (without context embeddings and the last dense layer): "
        f"{parameter_tree.table_1_count(model)}"
    )


def _compare(config: ml_collections.ConfigDict, schema: Schema) -> None:
    """One row a method: parameters, and the cost of an example with one masked position."""
    rows = []
    named = config_flag.methods(_METHODS.value)
    for point in points.expand(config, [], named, 1, [], schema):
        model = config_lib.build_model(point.apply(config), schema)
        adds = cost.multiply_adds(model, _LENGTH.value, 1) / 1e6
        rows.append([point.variant, f"{parameter_tree.table_1_count(model)}", f"{adds:.2f}"])
    print(align([["method", "parameters", "million multiply-adds"], *rows]))


def _schema(config: ml_collections.ConfigDict) -> Schema:
    if _ARTICLES.value is not None:
        return stylist.schema(_ARTICLES.value, [])
    return prepared.load_schema(config.data.dir, config.data.name)


if __name__ == "__main__":
    command.run(main)
