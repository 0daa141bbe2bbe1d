"""Completes a set or a sequence, or a file of them, with a trained model.

python -m experiments.complete --workdir=runs/meals-gs --items='["Coffee, brewed", "Bagel"]' \\
  --context='{"occasion": "breakfast", "age": 34}' --k=5
python -m experiments.complete --workdir=runs/meals-gs --input=queries.jsonl \\
  --output=completions.jsonl
"""

import json

from absl import flags

from cbert.inference.queries import Completion, Query
from cbert.text_table import align
from experiments import command, query_flags
from experiments.query_flags import parsed

_ITEMS = flags.DEFINE_string("items", None, "JSON list of items, null for a masked one.")
_K = flags.DEFINE_integer("k", 5, "How many items to list.", lower_bound=1)
_SLOTS = flags.DEFINE_integer(
    "slots", 1, "Masked items to append where none is null.", lower_bound=0
)
_EXCLUDE = flags.DEFINE_string("exclude", "[]", "JSON list of items that are not listed.")
_ONLY = flags.DEFINE_string("only", "null", "JSON list of the items to choose from.")


# --help lists them, too.
flags.adopt_module_key_flags(query_flags)


def main() -> None:
    """Completes one query of the command line, or all of a file."""
    query_flags.check_one_input("items=JSON", _ITEMS.value is not None)
    query = Query(
        [] if _ITEMS.value is None else parsed(_ITEMS),
        parsed(query_flags.CONTEXT),
        _K.value,
        _SLOTS.value,
        parsed(_EXCLUDE),
        parsed(_ONLY),
    )
    predictor = query_flags.load_for_sets()
    if query_flags.INPUT.value is not None:
        query_flags.predict_file(predictor, query)
        return
    completion = predictor.complete_batch([query])[0]
    as_json = json.dumps(completion.to_dict())
    print(as_json if query_flags.JSON.value else format_completion(completion))


def format_completion(completion: Completion) -> str:
    """A table for each masked position; below, unknown items and values, missing features."""
    parts = []
    for slot, predictions in enumerate(completion.predictions, 1):
        rows = [[one.item, f"{one.probability:.2%}"] for one in predictions]
        head = "item" if len(completion.predictions) == 1 else f"slot {slot}"
        parts.append(align([[head, "probability"], *rows]))
    notes = query_flags.item_notes(completion.unknown_items, completion.cut)
    notes += query_flags.context_notes(completion.unknown_context, completion.missing_context)
    parts.append("\n".join(notes))
    return "\n\n".join(part for part in parts if part)


if __name__ == "__main__":
    command.run(main)
