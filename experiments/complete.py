"""Completes a set or a sequence, or a file of them, with a trained model.

python -m experiments.complete --workdir=runs/meals-gsu --items='["Coffee, brewed", "Bagel"]' \\
  --context='{"occasion": "breakfast", "age": 34}' --k=5
python -m experiments.complete --workdir=runs/meals-gsu --input=queries.jsonl \\
  --output=answers.jsonl
"""

import json
from typing import Any

from absl import flags

import cbert
from cbert.errors import UserError, printable
from cbert.evaluation.compare import align
from cbert.serving import files
from cbert.serving.answers import Completion, Query
from experiments import command

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's directory.", required=True)
_CHECKPOINT = flags.DEFINE_string("checkpoint", "best", "best, last or a step.")
_ITEMS = flags.DEFINE_string("items", None, "JSON list of the visible items, null for hidden.")
_CONTEXT = flags.DEFINE_string("context", "{}", "JSON object of what is known.")
_K = flags.DEFINE_integer("k", 5, "How many items to list.")
_SLOTS = flags.DEFINE_integer("slots", 1, "Hidden items to append where none is null.")
_EXCLUDE = flags.DEFINE_string("exclude", "[]", "JSON list of items not to list.")
_ONLY = flags.DEFINE_string("only", "null", "JSON list of the items to choose from.")
_JSON = flags.DEFINE_bool("json", False, "Print one line of JSON instead of a table.")
_INPUT = flags.DEFINE_string("input", None, "JSON Lines of queries, or records.")
_OUTPUT = flags.DEFINE_string("output", None, "Where their answers go, as JSON Lines.")
_SKIP_BAD_ROWS = flags.DEFINE_integer(
    "skip_bad_rows", 0, "How many lines of the input may be left out.", lower_bound=0
)


def main() -> None:
    """Answers one query on the command line, or all of a file."""
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
    if _INPUT.value is None:
        answer = predictor.complete_batch([query])[0]
        print(json.dumps(answer.to_dict()) if _JSON.value else format_completion(answer))
        return
    count, skipped = files.complete(
        predictor, _INPUT.value, _OUTPUT.value, query, _SKIP_BAD_ROWS.value
    )
    for line in skipped:
        print(f"skipped {line}")
    print(f"{count:,} queries answered in {_OUTPUT.value}")


def _parsed(flag: flags.FlagHolder) -> Any:
    try:
        return json.loads(flag.value)
    except (ValueError, RecursionError) as error:
        shown = f"{flag.value:.60}"
        raise UserError(f"--{flag.name} is {shown!r}, not JSON ({str(error)[:60]})") from None


def format_completion(answer: Completion) -> str:
    """A table for each hidden position; what the model did not know or was not told below."""
    parts = []
    for place, found in enumerate(answer.predictions, 1):
        rows = [[one.item, f"{one.probability:.2%}"] for one in found]
        head = "item" if len(answer.predictions) == 1 else f"slot {place}"
        parts.append(align([[head, "probability"], *rows]))
    notes = [
        f"unknown items: {', '.join(map(printable, answer.unknown_items))}"
        if answer.unknown_items
        else "",
        *(
            f"unknown {printable(name)}: {', '.join(map(printable, values))}"
            for name, values in answer.unknown_context.items()
        ),
        f"missing: {', '.join(map(printable, answer.missing_context))}"
        if answer.missing_context
        else "",
    ]
    parts.append("\n".join(note for note in notes if note))
    return "\n\n".join(part for part in parts if part)


if __name__ == "__main__":
    command.run(main)
