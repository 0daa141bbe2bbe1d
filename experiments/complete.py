"""Completes a set or a sequence, or a file of them, with a trained model.

python -m experiments.complete --workdir=runs/meals-gsu --items='["Coffee, brewed", "Bagel"]' \\
  --context='{"occasion": "breakfast", "age": 34}' --k=5
python -m experiments.complete --workdir=runs/meals-gsu --input=queries.jsonl \\
  --output=completions.jsonl
"""

import json
from typing import Any

from absl import flags

import cbert
from cbert.errors import UserError, printable
from cbert.evaluation.compare import align
from cbert.inference import completion_file
from cbert.inference.queries import Completion, Query
from experiments import command

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's directory.", required=True)
_CHECKPOINT = flags.DEFINE_string("checkpoint", "best", "best, last or a step.")
_ITEMS = flags.DEFINE_string("items", None, "JSON list of items, null for a masked one.")
_CONTEXT = flags.DEFINE_string("context", "{}", "JSON object: feature name to value.")
_K = flags.DEFINE_integer("k", 5, "How many items to list.")
_SLOTS = flags.DEFINE_integer("slots", 1, "Masked items to append where none is null.")
_EXCLUDE = flags.DEFINE_string("exclude", "[]", "JSON list of items that are not listed.")
_ONLY = flags.DEFINE_string("only", "null", "JSON list of the items to choose from.")
_JSON = flags.DEFINE_bool("json", False, "Print one line of JSON instead of a table.")
_INPUT = flags.DEFINE_string("input", None, "JSON Lines of queries, or records.")
_OUTPUT = flags.DEFINE_string("output", None, "JSON Lines of their completions.")
_SKIP_BAD_ROWS = flags.DEFINE_integer(
    "skip_bad_rows", 0, "How many lines of the input may be left out.", lower_bound=0
)


def main() -> None:
    """Completes one query of the command line, or all of a file."""
    if (_ITEMS.value is None) == (_INPUT.value is None):
        raise UserError("give one of --items=JSON and --input=FILE")
    if (_INPUT.value is None) != (_OUTPUT.value is None):
        raise UserError("--input and --output belong together; give both or neither")
    query = Query(
        [] if _ITEMS.value is None else _parsed(_ITEMS),
        _parsed(_CONTEXT),
        _K.value,
        _SLOTS.value,
        _parsed(_EXCLUDE),
        _parsed(_ONLY),
    )
    predictor = cbert.load(_WORKDIR.value, _CHECKPOINT.value)
    if _INPUT.value is None or _OUTPUT.value is None:
        completion = predictor.complete_batch([query])[0]
        as_json = json.dumps(completion.to_dict())
        print(as_json if _JSON.value else format_completion(completion))
        return
    count, skipped = completion_file.complete(
        predictor, _INPUT.value, _OUTPUT.value, query, _SKIP_BAD_ROWS.value
    )
    for line in skipped:
        print(f"skipped {line}")
    print(f"{count:,} queries completed in {_OUTPUT.value}")


def _parsed(flag: flags.FlagHolder) -> Any:
    try:
        return json.loads(flag.value)
    except (ValueError, RecursionError) as error:
        shown = f"{flag.value:.60}"
        raise UserError(f"--{flag.name} is {shown!r}, not JSON ({str(error)[:60]})") from None


def format_completion(completion: Completion) -> str:
    """A table for each masked position; below, unknown items and values, missing features."""
    parts = []
    for slot, predictions in enumerate(completion.predictions, 1):
        rows = [[one.item, f"{one.probability:.2%}"] for one in predictions]
        head = "item" if len(completion.predictions) == 1 else f"slot {slot}"
        parts.append(align([[head, "probability"], *rows]))
    notes = [
        f"unknown items: {', '.join(map(printable, completion.unknown_items))}"
        if completion.unknown_items
        else "",
        *(
            f"unknown {printable(name)}: {', '.join(map(printable, values))}"
            for name, values in completion.unknown_context.items()
        ),
        f"missing: {', '.join(map(printable, completion.missing_context))}"
        if completion.missing_context
        else "",
    ]
    parts.append("\n".join(note for note in notes if note))
    return "\n\n".join(part for part in parts if part)


if __name__ == "__main__":
    command.run(main)
