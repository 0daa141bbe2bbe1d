"""Shows what a trained model reads of the context: attention, gates, or the state it is in.

    python -m experiments.explain --workdir=runs/meals-cross --what=attention --split=test
    python -m experiments.explain --workdir=runs/meals-gate --what=gates --examples=200
    python -m experiments.explain --workdir=runs/meals-gs --what=state
    python -m experiments.explain --workdir=runs/meals-cross --items='["Bagel", null]' \\
      --context='{"occasion": "breakfast"}'
"""

import dataclasses
import importlib.util
import json
import pathlib
from typing import Any

import numpy as np
from absl import flags

from cbert import files
from cbert.data import prepared
from cbert.data.columns import Split, evenly_spaced
from cbert.data.records import SPLITS, TEST, TRAIN
from cbert.errors import UserError, printable
from cbert.evaluation import attention, gates, model_state, sown
from cbert.evaluation.restore import Restored, restore
from cbert.inference.context import CheckedContext
from cbert.inference.predictor import Predictor
from cbert.inference.queries import Query
from cbert.inference.text_predictor import TextPredictor
from cbert.inference.text_queries import TextQuery
from cbert.report import heat_map, plot_helpers
from cbert.schema import Schema
from cbert.training import config as config_lib
from cbert.training import workdir as workdir_lib
from experiments import command, query_flags
from experiments.query_flags import parsed

_FORMATS = {
    "attention": attention.format_means,
    "gates": gates.format_gates,
    "state": model_state.format_state,
}
_WHAT = flags.DEFINE_enum("what", "attention", [*_FORMATS], "What to show.")
_SPLIT = flags.DEFINE_enum("split", TEST, list(SPLITS), "The split whose examples are read.")
_DATA_DIR = flags.DEFINE_string(
    "data_dir", "", "Where the run's prepared data lie now, if they were moved."
)
_EXAMPLES = flags.DEFINE_integer(
    "examples", 1000, "How many examples, at equal distances; 0 for all.", lower_bound=0
)
_ITEMS = flags.DEFINE_string("items", None, "In place of a split, a JSON list of items.")
_TEXT = flags.DEFINE_string("text", None, "In place of a split, a text.")
_TEXT_B = flags.DEFINE_string("text_b", None, "The second text of a pair.")
_BLOCK = flags.DEFINE_integer(
    "block", 0, "The block shown for items or a text; 0 for the mean of all.", lower_bound=0
)


for _name in ("workdir", "checkpoint", "context", "json"):
    flags.declare_key_flag(_name)


def main() -> None:
    """Shows the means over a split, or the attention of one query."""
    workdir = pathlib.Path(query_flags.WORKDIR.value).expanduser()
    config, schema = workdir_lib.read(workdir)
    config.data.dir = _DATA_DIR.value or config.data.dir
    if _WHAT.value in sown.SHOWN:
        sown.check(config.model.method, _WHAT.value)
    if any(flag.present for flag in query_flags.OF_FILES):
        raise UserError("there is no file of queries here; give --items=JSON or --text=TEXT")
    if _ITEMS.value is None and _TEXT.value is None:
        for flag in (_BLOCK, _TEXT_B, query_flags.CONTEXT):
            if flag.present:
                raise UserError(f"--{flag.name} belongs to a query; give --items or --text")
        _of_split(workdir, config, schema)
        return
    if _WHAT.value != "attention" or None not in (_ITEMS.value, _TEXT.value):
        raise UserError("give one of --items and --text, and --what=attention with it")
    if _BLOCK.value > config.model.layers:
        raise UserError(f"--block is {_BLOCK.value}; the blocks are 1 to {config.model.layers}")
    _of_query(config)


def _of_split(workdir: pathlib.Path, config: Any, schema: Schema) -> None:
    """Prints a table, and writes it and the heat map into the run's directory."""
    split = prepared.load(config.data.dir, config.data.name, _SPLIT.value, schema)
    restored = restore(workdir, config, schema, query_flags.CHECKPOINT.value)
    split = evenly_spaced(split, _EXAMPLES.value)
    measured = {
        "method": config.model.method,
        "step": restored.step,
        "data": config.data.name,
        "split": _SPLIT.value,
        **_measured(restored, config, schema, split),
    }
    target = workdir / workdir_lib.EXPLANATIONS / f"{_WHAT.value}.json"
    target.parent.mkdir(exist_ok=True)
    files.write_text(target, json.dumps(measured, indent=1, ensure_ascii=False) + "\n")
    if query_flags.JSON.value:
        print(json.dumps(measured))
        return
    print(_FORMATS[_WHAT.value](measured))
    written = str(target)
    if _WHAT.value == "attention" and importlib.util.find_spec("matplotlib"):
        image = target.with_suffix(".png")
        plot = heat_map.heat_map(measured, "attention", config.model.method)
        files.write_bytes(image, plot_helpers.render(plot))
        written += f" and {image.name}"
    print(
        f"\n{measured['examples']:,} examples of the {_SPLIT.value} split, "
        f"step {restored.step:,}; in {written}"
    )


def _measured(restored: Restored, config: Any, schema: Schema, split: Split) -> dict[str, Any]:
    if _WHAT.value == "attention":
        return attention.measure(restored, split)
    if _WHAT.value == "gates":
        return gates.measure(restored, split)
    train = prepared.load(config.data.dir, config.data.name, TRAIN, schema)
    norms = model_state.gradient_norms(restored, config, schema, train)
    return {**model_state.measure(restored, split), "gradients": norms}


@dataclasses.dataclass(frozen=True)
class _Encoded:
    """A query as the model reads it.

    Attributes:
      predictor: The run's.
      positions: What stands at each position, as a person reads it.
      columns: The columns of tokens, each `[L]`.
      context: The checked context.
      notes: Lines about what is unknown.
    """

    predictor: Predictor | TextPredictor
    positions: list[str]
    columns: dict[str, np.ndarray]
    context: CheckedContext
    notes: list[str]


def _of_query(config: Any) -> None:
    """Prints the attention of each position of one query."""
    encoded = _encoded_items() if _TEXT.value is None else _encoded_text()
    schema, given = encoded.predictor.schema, encoded.context
    model = config_lib.build_model(config, schema)
    context = schema.encode_contexts([given.values])
    rows = {name: column[None] for name, column in encoded.columns.items()}
    params = encoded.predictor.program.params
    weights = attention.of_one(model, params, {**rows, "context": context})
    names = attention.names(model)
    if query_flags.JSON.value:
        shown = {"positions": encoded.positions, "names": names, "weights": weights.tolist()}
        print(json.dumps(shown))
        return
    of_block = weights[_BLOCK.value - 1] if _BLOCK.value else weights.mean(axis=0)
    print(attention.format_one(encoded.positions, names, of_block))
    notes = encoded.notes + query_flags.context_notes(given.unknown, given.missing)
    if notes:
        print("\n" + "\n".join(notes))


def _encoded_items() -> _Encoded:
    predictor = query_flags.load_for_sets("give --text")
    items = parsed(_ITEMS)
    query = predictor.check(Query(items, parsed(query_flags.CONTEXT)))
    shown = items + [None] * (len(query.codes) - len(items))
    positions = ["(masked)" if item is None else item for item in shown]
    unknown = ", ".join(map(printable, query.unknown_items))
    return _Encoded(
        predictor,
        positions,
        {"items": np.array(query.codes, np.int32)},
        query.context,
        [f"unknown items: {unknown}"] if unknown else [],
    )


def _encoded_text() -> _Encoded:
    predictor = query_flags.load_for_texts("give --items")
    query = predictor.check(TextQuery(_TEXT.value, parsed(query_flags.CONTEXT), _TEXT_B.value))
    tokens = query.tokens
    return _Encoded(
        predictor,
        [predictor.schema.items[code] for code in tokens.codes],
        {"items": tokens.codes, "segments": tokens.segments},
        query.context,
        ["the text is longer than the model's longest and was cut"] if tokens.cut else [],
    )


if __name__ == "__main__":
    command.run(main)
