"""The flags and the flow that `complete`, `predict` and `explain` share."""

import json
from typing import Any

from absl import flags

import cbert
from cbert import errors
from cbert.data import row_errors
from cbert.data.tables import Columns
from cbert.errors import UserError, printable
from cbert.inference import query_file
from cbert.inference.predictor import Predictor
from cbert.inference.queries import Query
from cbert.inference.text_predictor import TextPredictor
from cbert.inference.text_queries import TextQuery
from experiments import command

WORKDIR = flags.DEFINE_string("workdir", None, "The run's directory.", required=True)
CHECKPOINT = flags.DEFINE_string("checkpoint", "best", "best, last or a step.")
CONTEXT = flags.DEFINE_string("context", "{}", "JSON object: feature name to value.")
JSON = flags.DEFINE_bool("json", False, "Print one line of JSON instead of a table.")
INPUT = flags.DEFINE_string("input", None, "Queries, or records: .jsonl, .csv or .parquet.")
COLUMNS = flags.DEFINE_list("columns", [], "field:column, such as items:foods, as for prepare.")
SEPARATOR = flags.DEFINE_string("separator", "|", "CSV: between the values of a list.")
MISSING = flags.DEFINE_list(
    "missing", [], "CSV: cells that stand for a missing value, as for prepare."
)
DROP = flags.DEFINE_list("drop", [], "Fields and context features of the file to leave out.")
OUTPUT = flags.DEFINE_string("output", None, "Their results: .jsonl, .csv or .parquet.")
SKIP_BAD_ROWS = flags.DEFINE_integer(
    "skip_bad_rows", 0, "How many lines of the input may be left out.", lower_bound=0
)
OF_FILES = (INPUT, OUTPUT, COLUMNS, SEPARATOR, MISSING, DROP, SKIP_BAD_ROWS)


def load_for_sets(advice: str = "use experiments.predict") -> Predictor:
    """The run's predictor; refuses a run of texts, with the advice."""
    predictor = cbert.load(WORKDIR.value, CHECKPOINT.value)
    if isinstance(predictor, TextPredictor):
        raise UserError(f"{WORKDIR.value} is a run of texts ({predictor.task}); {advice}")
    return predictor


def load_for_texts(advice: str = "use experiments.complete") -> TextPredictor:
    """The run's predictor; refuses a run of sets or sequences, with the advice."""
    predictor = cbert.load(WORKDIR.value, CHECKPOINT.value)
    if isinstance(predictor, Predictor):
        raise UserError(f"{WORKDIR.value} is a run of {predictor.schema.kind}s; {advice}")
    return predictor


def check_one_input(name: str, given: bool) -> None:
    """Raises `UserError` unless either a query or a file of queries was given."""
    if given == (INPUT.value is not None):
        raise UserError(f"give one of --{name} and --input=FILE")
    if (INPUT.value is None) != (OUTPUT.value is None):
        raise UserError("--input and --output belong together; give both or neither")
    if INPUT.value is None:
        command.refuse(OF_FILES, "a file of queries; give --input with it")


def predict_file(predictor: Predictor | TextPredictor, defaults: Query | TextQuery) -> None:
    """Predicts the file of --input, and prints how many queries it has and what they lack."""
    assert INPUT.value is not None
    assert OUTPUT.value is not None
    columns = Columns(command.pairs(COLUMNS), SEPARATOR.value, missing=tuple(MISSING.value))
    count, skipped, notes = query_file.predict(
        predictor,
        INPUT.value,
        OUTPUT.value,
        defaults,
        SKIP_BAD_ROWS.value,
        columns,
        DROP.value,
    )
    for line in row_errors.skipped_lines(skipped):
        print(errors.reword(line))
    done = "predicted" if isinstance(predictor, TextPredictor) else "completed"
    print(f"{count:,} queries {done} in {OUTPUT.value}")
    if line := notes.line():
        print(line)


def parsed(flag: flags.FlagHolder) -> Any:
    """The value of a flag of JSON."""
    try:
        return json.loads(flag.value)
    except (ValueError, RecursionError) as error:
        shown = f"{flag.value:.60}"
        example = '{"FEATURE": "VALUE"}' if flag is CONTEXT else '["NAME", "NAME"]'
        raise UserError(
            f"--{flag.name} is {shown!r}, not JSON ({str(error)[:120]}); write it as in "
            f"--{flag.name}='{example}'"
        ) from None


def item_notes(unknown: list[str], cut: bool) -> list[str]:
    """Lines that name the items that are unknown, and say so where a sequence was cut."""
    notes = [f"unknown items: {', '.join(map(printable, unknown))}"] if unknown else []
    if cut:
        notes.append("the sequence is longer than the model takes; its latest items were read")
    return notes


def text_notes(cut: bool) -> list[str]:
    """A line that says so where a text was cut."""
    return ["the text is longer than the model's longest and was cut"] if cut else []


def context_notes(unknown: dict[str, list[str]], missing: list[str]) -> list[str]:
    """Lines that name the values that are unknown and the features that are missing."""
    notes = [
        f"unknown {printable(name)}: {', '.join(map(printable, values))}"
        for name, values in unknown.items()
    ]
    return notes + ([f"missing: {', '.join(map(printable, missing))}"] if missing else [])
