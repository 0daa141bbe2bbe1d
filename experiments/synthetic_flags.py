"""The flags of synthetic records, and the records that they ask for."""

import json
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from absl import flags

from cbert import files
from cbert.data import readers, records
from cbert.data.synthetic import stylist
from cbert.data.validator import Validator
from cbert.errors import UserError
from cbert.schema import Schema
from experiments import command

NAMES = ("sets", "articles", "seed", "interactions", "split_sets", "records")
_SETS = flags.DEFINE_integer("sets", 20_000, "Synthetic: how many outfits.", lower_bound=20)
_ARTICLES = flags.DEFINE_integer(
    "articles", 500, "Synthetic: size of the catalogue.", upper_bound=1_000_000
)
_SEED = flags.DEFINE_integer("seed", 0, "Synthetic: seed of catalogue and outfits.", 0)
_INTERACTIONS = flags.DEFINE_bool(
    "interactions", False, "Synthetic: tastes are made of three features at once."
)
_SPLIT_SETS = flags.DEFINE_list(
    "split_sets", None, "Synthetic: outfits of train, validation and test, instead of --sets."
)
_RECORDS = flags.DEFINE_string(
    "records", None, "Synthetic: also write the records to this file."
)


def check() -> None:
    """Raises `UserError` where the records cannot be written to `--records`."""
    target = _RECORDS.value and pathlib.Path(_RECORDS.value).expanduser()
    if target and (target.suffix != ".jsonl" or not target.parent.is_dir()):
        raise UserError(f"--records is {target}; give a .jsonl file in a directory that exists")


def schema(training: Iterable[records.Record]) -> Schema:
    """The schema of the outfits, whose vocabularies those of the training split have."""
    return stylist.schema(_ARTICLES.value, training, seed=_SEED.value)


def outfits() -> Iterator[records.Record]:
    """The synthetic records, which also go to the file that `--records` names."""
    sizes = stylist.sizes(_SETS.value)
    if _SPLIT_SETS.value:
        sizes = command.whole_numbers(_SPLIT_SETS)
    rows: Iterator[dict[str, Any]] = stylist.outfits(
        _ARTICLES.value, sizes, _SEED.value, _INTERACTIONS.value
    )
    if _RECORDS.value:
        path = pathlib.Path(_RECORDS.value).expanduser()
        files.replace(path, lambda temporary: _write_lines(temporary, rows))
        return readers.read(path)
    validator = Validator()
    return (validator(row, line) for line, row in enumerate(rows, 1))


def origin() -> str:
    """What a data set says of where it comes from."""
    tastes = "interactions of three features" if _INTERACTIONS.value else "sums over features"
    size, seed = _ARTICLES.value, _SEED.value
    return f"Stylist outfits of {size} articles, seed {seed}; tastes are {tastes}."


def _write_lines(path: pathlib.Path, rows: Iterator[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
