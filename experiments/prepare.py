"""Prepares a data set: records of a file, or synthetic ones, to TFDS splits and a schema.

python -m experiments.prepare --input=meals.jsonl.gz --name=meals --data_dir=data
python -m experiments.prepare --synthetic=stylist --sets=20000 --articles=500 --name=stylist
"""

from absl import flags

from cbert import errors
from cbert.data import builder, infer_target, prepare, readers, row_errors, summary, tables
from cbert.data.prepare_options import (
    LONGER,
    NEXT,
    OF_VOCABULARY,
    REPEATS,
    TRAINED,
    PrepareOptions,
    TextOptions,
)
from cbert.data.records import TRAIN
from cbert.data.vocabulary import LEAST_SIZE, MOST_SIZE
from cbert.errors import UserError
from cbert.schema import SEQUENCE, SET, TEXT, History, Schema, schema_file
from cbert.schema.tokenizer import LEAST_LENGTH, MOST_LENGTH
from experiments import command, prepare_advice, synthetic_flags

_INPUT = flags.DEFINE_string(
    "input", None, "JSON Lines or a JSON list (plain or .gz), CSV or Parquet file."
)
_SYNTHETIC = flags.DEFINE_enum("synthetic", None, ["stylist"], "Make the records instead.")
_NAME = flags.DEFINE_string("name", None, "Name of the prepared data set.", required=True)
_DATA_DIR = flags.DEFINE_string("data_dir", "data", "Where prepared data sets lie.")
_KIND = flags.DEFINE_enum(
    "kind", SET, [SET, SEQUENCE, TEXT], "Sets, sequences (order and repeats matter), or texts."
)
_MIN_COUNT = flags.DEFINE_integer(
    "min_count", 2, "Items that occur less often in training become unknown.", lower_bound=1
)
_VALUE_MIN_COUNT = flags.DEFINE_integer(
    "value_min_count", 2, "The same for values of context features.", lower_bound=1
)
_MAX_ITEMS = flags.DEFINE_integer(
    "max_items", None, "The most items of an example.", lower_bound=1
)
_LONGER = flags.DEFINE_enum(
    "longer",
    LONGER[0],
    LONGER,
    "Leave longer examples out, keep a random part, or of sequences the latest items.",
)
_REPEATS = flags.DEFINE_enum(
    "repeats", REPEATS[0], REPEATS, "Sets: refuse items that are there twice, or drop them."
)
_SPLIT_WEIGHTS = flags.DEFINE_list(
    "split_weights", ["80", "10", "10"], "How large train, validation and test shall be."
)
_WIDTHS = flags.DEFINE_list("widths", [], "Embedding widths, such as age:16,occasion:8.")
_DROP = flags.DEFINE_list("drop", [], "Context features to leave out.")
_SCHEMA = flags.DEFINE_string("schema", None, "Use this schema.json instead of inferring one.")
_SKIP_BAD_ROWS = flags.DEFINE_integer(
    "skip_bad_rows", 0, "How many bad rows may be left out.", lower_bound=0
)
_COLUMNS = flags.DEFINE_list(
    "columns", [], "field:column, such as items:foods,group:person; of JSON Lines field:name."
)
_SEPARATOR = flags.DEFINE_string("separator", "|", "CSV: between the values of a list.")
_MISSING = flags.DEFINE_list(
    "missing", [], "CSV: cells that stand for a missing value, such as n/a,-1."
)
_CATEGORICAL = flags.DEFINE_list(
    "categorical", [], "CSV and Parquet: columns of numbers that are names."
)
_NUMERICAL = flags.DEFINE_list("numerical", [], "CSV: columns where all must be numbers.")
_MULTI_VALUED = flags.DEFINE_list("multi_valued", [], "CSV: columns that hold lists of names.")
_HISTORY = flags.DEFINE_list("history", [], "Features that hold lists of the data's items.")
_VOCABULARY = flags.DEFINE_string(
    "vocabulary",
    TRAINED,
    "Texts: a vocab.txt or tokenizer.json of BERT, the folder of a pretrained model, the "
    "schema.json of a run, or 'train'.",
)
_VOCABULARY_SIZE = flags.DEFINE_integer(
    "vocabulary_size",
    8000,
    "Texts: the most pieces of a trained vocabulary.",
    LEAST_SIZE,
    MOST_SIZE,
)
_LOWERCASE = flags.DEFINE_bool(
    "lowercase",
    None,
    "Texts: whether they lose capital letters and accents; by default what the files of the "
    "vocabulary say.",
)
_MAX_LENGTH = flags.DEFINE_integer(
    "max_length",
    None,
    "Texts: the most tokens that a model reads; by default as many as the longest text has, "
    "but at most 128.",
    LEAST_LENGTH,
    MOST_LENGTH,
)
_TARGET = flags.DEFINE_enum(
    "target",
    None,
    list(infer_target.CHOICES),
    "Texts: what is predicted, if there are several.",
)
_PAIRS = flags.DEFINE_enum(
    "pairs", None, [NEXT], "Texts: make pairs for next-sentence prediction."
)
_PACK = flags.DEFINE_bool("pack", False, "Texts: join consecutive sentences of a document.")
_STRIDE = flags.DEFINE_integer(
    "stride",
    None,
    "Texts: tokens between windows of long passages with answers.",
    lower_bound=1,
)
_STRATIFY = flags.DEFINE_bool(
    "stratify", False, "Texts: give each split its share of every label."
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace a data set of the same name.")
flags.adopt_module_key_flags(synthetic_flags)

_OF_INPUT = (
    *("repeats", "split_weights", "skip_bad_rows", "columns", "separator", "missing"),
    *("categorical", "numerical", "multi_valued"),
)
_OF_SCHEMA = (
    *("min_count", "value_min_count", "max_items", "widths", "history"),
    *OF_VOCABULARY,
)
_OF_TEXT = (*OF_VOCABULARY, "pairs", "pack", "stride", "stratify")


def main() -> None:
    """Reads or makes the records, prepares them and prints the summary."""
    if (_INPUT.value is None) == (_SYNTHETIC.value is None):
        raise UserError("give one of --input=FILE and --synthetic=stylist")
    _check_combinations()
    builder.check_new(_DATA_DIR.value, _NAME.value, _OVERWRITE.value)
    schema = schema_file.load(_SCHEMA.value) if _SCHEMA.value else None
    if schema and _KIND.present and _KIND.value != schema.kind:
        raise UserError(
            f"--kind is {_KIND.value}, and {_SCHEMA.value} is a schema of {schema.kind}s; "
            "leave --kind out"
        )
    options = _options(schema.kind if schema else _KIND.value)
    bad_rows = row_errors.BadRows(_INPUT.value or "", _SKIP_BAD_ROWS.value)
    destination = _DATA_DIR.value, _NAME.value, options
    if _INPUT.value:
        columns = _columns(schema)
        target = schema.target.kind if schema and schema.target else options.text.target
        given = readers.read(
            _INPUT.value,
            options.kind,
            columns,
            bad_rows,
            options.drop,
            target,
            options.repeats,
            schema.features if schema else (),
        )
        written, numbers = prepare.prepare(given, *destination, schema)
    else:
        if options.kind != SET:
            raise UserError(
                f"{_SCHEMA.value} is a schema of {options.kind}s; stylist makes sets"
            )
        outfits, origin = synthetic_flags.outfits(), synthetic_flags.origin()
        written, numbers = prepare.prepare(
            outfits, *destination, schema or synthetic_flags.schema, origin
        )
    # All is written before anything is printed, because who reads it may stop, as `head` does.
    # With a schema, the data may be there to evaluate only.
    suggested = []
    if TRAIN in numbers["examples"]:
        suggested = prepare_advice.lines(
            _DATA_DIR.value, _NAME.value, _VOCABULARY.value, numbers
        )
    for line in row_errors.skipped_lines(bad_rows.messages):
        print(errors.reword(line))
    print(summary.format_summary(numbers, options.longer))
    print("\n".join(["", f"written to {written}", *suggested]))


def _options(kind: str) -> PrepareOptions:
    """What the flags say; the kind may be the schema's."""
    return PrepareOptions(
        kind=kind,
        min_count=_MIN_COUNT.value,
        value_min_count=_VALUE_MIN_COUNT.value,
        max_items=_MAX_ITEMS.value,
        longer=_LONGER.value,
        repeats=_REPEATS.value,
        split_weights=tuple(command.whole_numbers(_SPLIT_WEIGHTS)),
        widths=_widths(),
        kinds=dict.fromkeys(_HISTORY.value, History.kind),
        drop=tuple(_DROP.value),
        overwrite=_OVERWRITE.value,
        text=TextOptions(
            vocabulary=_VOCABULARY.value,
            vocabulary_size=_VOCABULARY_SIZE.value,
            lowercase=_LOWERCASE.value,
            max_length=_MAX_LENGTH.value,
            target=_TARGET.value,
            pairs=_PAIRS.value or "",
            pack=_PACK.value,
            stride=_STRIDE.value or 0,
            stratify=_STRATIFY.value,
        ),
    )


def _check_combinations() -> None:
    """Refuses flags that would change nothing, because another one decides the same."""
    beside = {
        "--synthetic": ("kind", *_OF_INPUT, *_OF_SCHEMA, *_OF_TEXT) if _SYNTHETIC.value else (),
        "--input": synthetic_flags.NAMES if _INPUT.value else (),
        "--schema": _OF_SCHEMA if _SCHEMA.value else (),
    }
    for other, names in beside.items():
        for name in names:
            if flags.FLAGS[name].present:
                raise UserError(
                    f"--{name} cannot be given together with {other}, which decides it"
                )
    synthetic_flags.check()


def _columns(schema: Schema | None) -> tables.Columns:
    names = command.pairs(_COLUMNS)
    columns = tables.Columns(
        names,
        _SEPARATOR.value,
        tuple(_CATEGORICAL.value),
        tuple(_NUMERICAL.value),
        tuple(_MULTI_VALUED.value),
        tuple(_HISTORY.value),
        tables.kinds_of(schema, names.get("label", "label")) if schema else {},
        missing=tuple(_MISSING.value),
    )
    columns.check_kinds()
    return columns


def _widths() -> dict[str, int]:
    pairs = command.pairs(_WIDTHS, last=True)
    for name, width in pairs.items():
        if not width.isdecimal() or len(width) > 9:
            raise UserError(f"--widths gives {name!r} {width!r:.60}; give a whole number")
    return {name: int(width) for name, width in pairs.items()}


if __name__ == "__main__":
    command.run(main)
