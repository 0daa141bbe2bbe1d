"""Shows what a trained model reads of the context: its attention to each feature, or its gates.

python -m experiments.explain --workdir=runs/meals-cross --what=attention --split=test
python -m experiments.explain --workdir=runs/meals-gate --what=gates --examples=200
python -m experiments.explain --workdir=runs/meals-cross --items='["Bagel", null]' \\
  --context='{"occasion": "breakfast"}'
"""

import importlib.util
import json
import pathlib
from typing import Any

import numpy as np
from absl import flags

from cbert import files
from cbert.data import prepared
from cbert.data.columns import evenly_spaced
from cbert.errors import UserError
from cbert.evaluation import attention, evaluate, gates, sown
from cbert.inference.context import CheckedContext
from cbert.inference.queries import Query
from cbert.inference.text_queries import TextQuery
from cbert.model.attention import WEIGHTS
from cbert.model.conditioning.method import GATES
from cbert.report import heat_map, plot_helpers
from cbert.schema import Schema, schema_file
from cbert.training import config as config_lib
from experiments import command, query_flags
from experiments.query_flags import parsed

_SHOWN = {"attention": WEIGHTS, "gates": GATES}
_WHAT = flags.DEFINE_enum("what", "attention", [*_SHOWN], "What to show.")
_SPLIT = flags.DEFINE_string("split", "test", "The split whose examples are read.")
_EXAMPLES = flags.DEFINE_integer(
    "examples", 1000, "How many examples, at equal distances; 0 for all.", lower_bound=0
)
_ITEMS = flags.DEFINE_string("items", None, "In place of a split, a JSON list of items.")
_TEXT = flags.DEFINE_string("text", None, "In place of a split, a text.")
_TEXT_B = flags.DEFINE_string("text_b", None, "The second text of a pair.")
_BLOCK = flags.DEFINE_integer(
    "block", 0, "The block shown for items or a text; 0 for the mean of all.", lower_bound=0
)


def main() -> None:
    """Shows the means over a split, or the attention of one query."""
    workdir = pathlib.Path(query_flags.WORKDIR.value).expanduser()
    config, schema = config_lib.load(workdir), schema_file.load(workdir / "schema.json")
    sown.check(config.model.method, _SHOWN[_WHAT.value], _WHAT.value)
    if query_flags.INPUT.value is not None or query_flags.OUTPUT.value is not None:
        raise UserError("there is no file of queries here; give --items=JSON or --text=TEXT")
    if _ITEMS.value is None and _TEXT.value is None:
        _of_split(workdir, config, schema)
        return
    if _WHAT.value != "attention" or None not in (_ITEMS.value, _TEXT.value):
        raise UserError("give one of --items and --text, and --what=attention with it")
    if _BLOCK.value > config.model.layers:
        raise UserError(f"--block is {_BLOCK.value}; the model has {config.model.layers}")
    _of_query(config)


def _of_split(workdir: pathlib.Path, config: Any, schema: Schema) -> None:
    """Prints a table, and writes it and the heat map into the run's directory."""
    split = prepared.load(config.data.dir, config.data.name, _SPLIT.value, schema)
    restored = evaluate.restore(workdir, config, schema, query_flags.CHECKPOINT.value)
    split = evenly_spaced(split, _EXAMPLES.value)
    of_attention = _WHAT.value == "attention"
    measured = {
        "method": config.model.method,
        "step": restored.step,
        "data": config.data.name,
        "split": _SPLIT.value,
        **(attention if of_attention else gates).measure(restored, split),
    }
    target = workdir / "explain" / f"{_WHAT.value}.json"
    target.parent.mkdir(exist_ok=True)
    files.write_text(target, json.dumps(measured, indent=1, ensure_ascii=False) + "\n")
    if query_flags.JSON.value:
        print(json.dumps(measured))
        return
    print((attention.format_means if of_attention else gates.format_gates)(measured))
    written = str(target)
    if of_attention and importlib.util.find_spec("matplotlib"):
        image = target.with_suffix(".png")
        plot = heat_map.heat_map(measured, "attention", config.model.method)
        files.write_bytes(image, plot_helpers.render(plot))
        written += f" and {image.name}"
    print(
        f"\n{measured['examples']:,} examples of the {_SPLIT.value} split, "
        f"step {restored.step:,}; in {written}"
    )


def _of_query(config: Any) -> None:
    """Prints the attention of each position of one query."""
    given: CheckedContext
    context = parsed(query_flags.CONTEXT)
    unknown: list[str] = []
    if _TEXT.value is not None:
        texts = query_flags.load_for_texts()
        text = texts.check(TextQuery(_TEXT.value, context, _TEXT_B.value))
        schema, program, given = texts.schema, texts.program, text.context
        columns = {"items": text.tokens.codes, "segments": text.tokens.segments}
        positions = [schema.items[code] for code in text.tokens.codes]
    else:
        predictor = query_flags.load_for_sets()
        query = predictor.check(Query(parsed(_ITEMS), context))
        schema, program, given = predictor.schema, predictor.program, query.context
        columns = {"items": np.array(query.codes, np.int32)}
        named = iter(item for item in parsed(_ITEMS) if item is not None)
        masked = set(query.masked)
        positions = [
            "(masked)" if index in masked else next(named) for index in range(len(query.codes))
        ]
        unknown = query.unknown_items
    model = config_lib.build_model(config, schema)
    encoded = {name: schema.encode_feature(name, [x]) for name, x in given.values.items()}
    rows = {name: column[None] for name, column in columns.items()}
    weights = attention.of_one(model, program.params, {**rows, "context": encoded})
    shown = weights[_BLOCK.value - 1] if _BLOCK.value else weights.mean(axis=0)
    names = attention.names(model)
    if query_flags.JSON.value:
        print(json.dumps({"positions": positions, "names": names, "weights": weights.tolist()}))
        return
    print(attention.format_one(positions, names, shown))
    notes = [f"unknown items: {', '.join(unknown)}"] if unknown else []
    notes += query_flags.context_notes(given.unknown, given.missing)
    if notes:
        print("\n" + "\n".join(notes))


if __name__ == "__main__":
    command.run(main)
