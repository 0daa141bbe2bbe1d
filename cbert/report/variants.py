"""Runs that differ only in the seed are one variant; what tells variants apart names them."""

import json
from typing import Any

import ml_collections

from cbert.errors import UserError
from cbert.model import conditioning
from cbert.report.run_directory import Run
from cbert.training import config as config_lib

METHOD, WIDTH = "model.method", "model.feed_forward"
CONSTANT = "model.constant_context"
Fields = dict[str, Any]


def group(runs: list[Run]) -> dict[str, dict[int, Run]]:
    """Label to seed to run: the methods in their order, then the control variants.

    Raises:
      UserError: two runs have the same config and seed.
    """
    found: dict[str, tuple[Fields, dict[int, Run]]] = {}
    for run in runs:
        fields = identity(run.config)
        _, seeds = found.setdefault(json.dumps(fields, sort_keys=True), (fields, {}))
        if run.seed in seeds:
            raise UserError(
                f"{seeds[run.seed].path} and {run.path} have the same config and seed "
                f"{run.seed}; move one of them away"
            )
        seeds[run.seed] = run
    labels = label([fields for fields, _ in found.values()])
    named = zip(labels, found.values(), strict=True)
    ordered = sorted(named, key=lambda pair: _order(pair[0], pair[1][0]))
    return {name: dict(sorted(seeds.items())) for name, (_, seeds) in ordered}


def identity(config: ml_collections.ConfigDict) -> Fields:
    """The fields that make a variant: all that change a result but the seed."""
    fields = config_lib.fields(config)
    del fields["seed"]
    return fields


def label(variants: list[Fields]) -> list[str]:
    """A name for each variant: its method, then the fields that tell it apart.

    A field is left out where the method has one value of it, and every method has that value.
    Two controls have names of their own: `constant context`, and `wide` for a none whose FNNs
    are wider than those of all other methods.
    """
    for usual in (_usual_width(variants), None):
        plain = [_without_notes(fields, usual) for fields in variants]
        differ = _differing([fields for fields, _ in plain])
        labels = [
            ", ".join([" ".join([fields[METHOD], *_shown(fields, differ)]), *notes])
            for fields, notes in plain
        ]
        if len(set(labels)) == len(labels):
            break  # Else several are wide: the width itself tells them apart.
    return labels


def _usual_width(variants: list[Fields]) -> int | None:
    widths = {fields[WIDTH] for fields in variants if fields[METHOD] != "none"}
    return widths.pop() if len(widths) == 1 else None


def _without_notes(fields: Fields, usual: int | None) -> tuple[Fields, list[str]]:
    """The fields as if it were no control, and the words that say it is one."""
    fields, notes = dict(fields), []
    if fields[CONSTANT]:
        fields[CONSTANT] = False
        notes.append("constant context")
    if usual and fields[METHOD] == "none" and fields[WIDTH] > usual:
        fields[WIDTH] = usual
        notes.append("wide")
    return fields, notes


def _differing(plain: list[Fields]) -> dict[str, dict[str, set[str]]]:
    """Field to method to its values as JSON, for every field that has several."""
    found = {}
    for name in sorted({name for fields in plain for name in fields} - {METHOD}):
        values: dict[str, set[str]] = {}
        for fields in plain:
            values.setdefault(fields[METHOD], set()).add(json.dumps(fields.get(name)))
        if len(set.union(*values.values())) > 1:
            found[name] = values
    return found


def _shown(fields: Fields, differ: dict[str, dict[str, set[str]]]) -> list[str]:
    """`learning_rate=0.001`, with the section only where the name alone is ambiguous."""
    short = config_lib.short_names(differ)
    return [
        f"{short[name]}={_text(fields[name])}"
        for name, values in differ.items()
        if name in fields and not _is_everywhere(values, fields[METHOD])
    ]


def _is_everywhere(values: dict[str, set[str]], method: str) -> bool:
    """Whether the method has one value, and every method has it."""
    return len(values[method]) == 1 and all(values[method] <= own for own in values.values())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _order(name: str, fields: Fields) -> tuple:
    method = fields[METHOD]
    known = conditioning.NAMES.index(method) if method in conditioning.NAMES else 99
    numbers = [
        (0, value, "") if isinstance(value, int | float) else (1, 0, str(value))
        for _, value in sorted(fields.items())
    ]
    return ", " in name, known, numbers
