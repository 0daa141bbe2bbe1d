"""Shows what a context does: what a trained model reads of it, and what each feature changes.

    python -m experiments.explain --workdir=runs/meals-cross --what=attention --split=test
    python -m experiments.explain --workdir=runs/meals-gate --what=gates --examples=200
    python -m experiments.explain --workdir=runs/meals-gs --what=state
    python -m experiments.explain --workdir=runs/meals-cross --items='["Bagel", null]' \\
      --context='{"occasion": "breakfast"}'
    python -m experiments.explain --workdir=runs/meals-gs --what=features --items='["Bagel"]' \\
      --item="Coffee, brewed" --context='{"occasion": "breakfast", "age": 34}'
    python -m experiments.explain --workdir=runs/turns --what=features \\
      --text="What's their phone number?" --context='{"domain": "Restaurants"}'
"""

import importlib.util
import json
import pathlib
from typing import Any

import ml_collections
from absl import flags

from cbert import files
from cbert.data import prepared
from cbert.data.columns import Split, evenly_spaced
from cbert.data.records import SPLITS, TEST, TRAIN
from cbert.errors import UserError
from cbert.evaluation import attention, gates, model_state, sown
from cbert.evaluation.restore import Restored, restore
from cbert.inference.queries import Query
from cbert.inference.text_queries import TextQuery
from cbert.report import heat_map, plot_helpers
from cbert.schema import Schema
from cbert.training import workdir as workdir_lib
from experiments import command, explain_query, query_flags
from experiments.query_flags import parsed

_FORMATS = {
    sown.ATTENTION: attention.format_means,
    "gates": gates.format_gates,
    "state": model_state.format_state,
}
_FEATURES = "features"  # What each feature changes in one prediction.
_WHAT = flags.DEFINE_enum(
    "what",
    sown.ATTENTION,
    [*_FORMATS, _FEATURES],
    "What to show; features is of one query.",
)
_SPLIT = flags.DEFINE_enum("split", TEST, list(SPLITS), "The split whose examples are read.")
_DATA_DIR = flags.DEFINE_string(
    "data_dir", "", "Where the run's prepared data lie now, if they were moved."
)
_EXAMPLES = flags.DEFINE_integer(
    "examples", 1000, "How many examples, at equal distances; 0 for all.", lower_bound=0
)
_ITEMS = flags.DEFINE_string("items", None, "In place of a split, a JSON list of items.")
_ITEM = flags.DEFINE_string("item", None, "features: the item whose prediction is explained.")
_TEXT = flags.DEFINE_string("text", None, "In place of a split, a text.")
_TEXT_B = flags.DEFINE_string("text_b", None, "The second text of a pair.")
_WORDS = flags.DEFINE_string("words", None, "JSON list of the words to tag, not --text.")
_BLOCK = flags.DEFINE_integer(
    "block", 0, "attention: the block shown for a query; 0 for the mean of all.", lower_bound=0
)
_OF_SPLITS = (_SPLIT, _DATA_DIR, _EXAMPLES)
_OF_QUERIES = (_ITEM, _BLOCK, _TEXT_B, query_flags.CONTEXT)


for _name in ("workdir", "checkpoint", "context", "json"):
    flags.declare_key_flag(_name)


def main() -> None:
    """Shows means over a split, or the attention or the features of one query."""
    workdir = pathlib.Path(query_flags.WORKDIR.value).expanduser()
    config, schema = workdir_lib.read(workdir)
    config.data.dir = _DATA_DIR.value or config.data.dir
    if _WHAT.value in sown.SHOWN:
        sown.check(config.model.method, _WHAT.value)
    if any(flag.present for flag in query_flags.OF_FILES):
        raise UserError("there is no file of queries here; give --items=JSON or --text=TEXT")
    query = _query()
    if query is None:
        _of_split(workdir, config, schema)
    elif _WHAT.value == _FEATURES:
        explain_query.show_features(query, _ITEM.value)
    else:
        explain_query.show_attention(config, query, _BLOCK.value)


def _query() -> Query | TextQuery | None:
    """The query of the command line, None for a split; raises `UserError` for a stray flag."""
    given = [flag for flag in (_ITEMS, _TEXT, _WORDS) if flag.value is not None]
    if not given:
        command.refuse(_OF_QUERIES, "a query; give --items or --text")
        if _WHAT.value == _FEATURES:
            raise UserError("--what=features is of one query; give --items or --text")
        return None
    if len(given) > 1 or _WHAT.value not in (sown.ATTENTION, _FEATURES):
        raise UserError(
            "give one of --items, --text and --words, and --what=attention or features with it"
        )
    command.refuse(_OF_SPLITS, f"a split; leave it out, or --{given[0].name}")
    if _WHAT.value == _FEATURES:
        command.refuse((_BLOCK,), "--what=attention; leave it out")
    else:
        command.refuse((_ITEM,), "--what=features; leave it out")
    context = parsed(query_flags.CONTEXT)
    if _ITEMS.value is not None:
        command.refuse((_TEXT_B,), "--text; leave it out")
        if _WHAT.value == _FEATURES and _ITEM.value is None:
            raise UserError(
                "--what=features is of the prediction of one item; give --item=NAME"
            )
        return Query(parsed(_ITEMS), context)
    command.refuse((_ITEM,), "--items; the first prediction of a text is explained")
    words = None if _WORDS.value is None else parsed(_WORDS)
    return TextQuery(_TEXT.value, context, _TEXT_B.value, words)


def _of_split(workdir: pathlib.Path, config: ml_collections.ConfigDict, schema: Schema) -> None:
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
    # What took long to compute is shown, whether or not it can be written.
    print(json.dumps(measured) if query_flags.JSON.value else _FORMATS[_WHAT.value](measured))
    folder = workdir / workdir_lib.EXPLANATIONS
    try:
        written = _write(folder, measured)
    except OSError as error:
        raise UserError(
            f"the results above could not be written to {folder} ({error.strerror or error}); "
            "give it room and permission, then run the same command again"
        ) from None
    if not query_flags.JSON.value:
        print(
            f"\n{measured['examples']:,} examples of the {_SPLIT.value} split, "
            f"step {restored.step:,}; in {written}"
        )


def _write(folder: pathlib.Path, measured: dict[str, Any]) -> str:
    """Writes what was measured, and a heat map of attention; returns where."""
    target = folder / f"{_WHAT.value}.json"
    image = target.with_suffix(".png")
    is_drawn = _WHAT.value == sown.ATTENTION and importlib.util.find_spec("matplotlib")
    folder.mkdir(exist_ok=True)
    image.unlink(missing_ok=True)  # It must not stand beside a table of something else.
    files.write_text(target, json.dumps(measured, indent=1, ensure_ascii=False) + "\n")
    if not is_drawn:
        return str(target)
    plot = heat_map.heat_map(measured, sown.ATTENTION, measured["method"])
    files.write_bytes(image, plot_helpers.render(plot))
    return f"{target} and {image.name}"


def _measured(
    restored: Restored, config: ml_collections.ConfigDict, schema: Schema, split: Split
) -> dict[str, Any]:
    if _WHAT.value == sown.ATTENTION:
        return attention.measure(restored, split)
    if _WHAT.value == "gates":
        return gates.measure(restored, split)
    train = prepared.load(config.data.dir, config.data.name, TRAIN, schema)
    norms = model_state.gradient_norms(restored, config, schema, train)
    return {**model_state.measure(restored, split), "gradients": norms}


if __name__ == "__main__":
    command.run(main)
