"""Variants: runs that differ only in the seed, named by the fields in which variants differ."""

import collections
import json
from typing import Any

import ml_collections

from cbert.errors import UserError
from cbert.field_names import short_names
from cbert.model import conditioning
from cbert.report.run_directory import RunDirectory
from cbert.training import config as config_lib
from cbert.training.config import METHOD, WIDTH

CONSTANT_CONTEXT, TASK = "model.constant_context", "task.name"
# What a label says of a control, after its fields and a comma.
CONSTANT, WIDE, NARROW = "constant context", "wide", "narrow"
Fields = dict[str, Any]
# Of one field: method to how many of its variants have each value, as JSON.
Counts = dict[str, collections.Counter[str]]


def group(runs: list[RunDirectory]) -> dict[str, dict[int, RunDirectory]]:
    """Label to seed to run: the methods in their order, then the control variants.

    Of runs that differ in options of other methods alone, the first stands for all.

    Raises:
      UserError: two runs have the same config and seed.
    """
    groups: dict[str, tuple[Fields, dict[int, RunDirectory]]] = {}
    for run in runs:
        fields = identity(run.config)
        _, seeds = groups.setdefault(json.dumps(fields, sort_keys=True), (fields, {}))
        if run.seed in seeds:
            if config_lib.fields(run.config) != config_lib.fields(seeds[run.seed].config):
                continue  # They differ in options of other methods, so this is the same run.
            raise UserError(
                f"{seeds[run.seed].path} and {run.path} have the same config and seed "
                f"{run.seed}; move one of them away"
            )
        seeds[run.seed] = run
    labels = label([fields for fields, _ in groups.values()])
    named = zip(labels, groups.values(), strict=True)
    ordered = sorted(named, key=lambda pair: _order(pair[0], pair[1][0]))
    return {name: dict(sorted(seeds.items())) for name, (_, seeds) in ordered}


def identity(config: ml_collections.ConfigDict) -> Fields:
    """The fields that make a variant: all fields that change its result, except the seed."""
    fields = config_lib.own_fields(config)
    del fields["seed"]
    return fields


def label(variants: list[Fields]) -> list[str]:
    """A name for each variant: its method, then the fields in which it differs from others.

    A field is left out where most variants of the method have its value and every other method
    has it, too; so `gs` is what its ablations, `gs dropout=0.1` and others, differ from.
    Controls have names of their own: `constant context`, and `wide` or `narrow` for a method
    whose feed-forward networks are wider or narrower than usual.
    """
    for usual in (_usual_width(variants), None):
        plain = [_without_notes(fields, usual) for fields in variants]
        differ = _differing([fields for fields, _ in plain])
        labels = [
            ", ".join([" ".join([fields[METHOD], *_field_texts(fields, differ)]), *notes])
            for fields, notes in plain
        ]
        if len(set(labels)) == len(labels):
            break  # Otherwise a name stands for several widths, and the width is named.
    return labels


def method_and_control(name: str) -> str:
    """A label without its fields: `gs, wide` of `gs dropout=0.1, wide`."""
    notes = [note for note in (CONSTANT, WIDE, NARROW) if note in name.split(", ")[1:]]
    return ", ".join([name.split()[0].removesuffix(","), *notes])


def _usual_width(variants: list[Fields]) -> int | None:
    """The width of most variants, the others being controls; None if there is none.

    If all methods have a second width, or as many variants have it, widths are a setting.
    """
    methods = collections.defaultdict(list)
    for fields in variants:
        methods[fields[WIDTH]].append(fields[METHOD])
    usual, *others = sorted(methods, key=lambda width: len(methods[width]), reverse=True)
    every = {fields[METHOD] for fields in variants}
    swept = any(
        len(methods[width]) == len(methods[usual]) or every == {*methods[width]}
        for width in others
    )
    return None if swept or not others else usual


def _without_notes(fields: Fields, usual: int | None) -> tuple[Fields, list[str]]:
    """The fields with the changes of a control undone, and the names of those changes."""
    fields, notes = dict(fields), []
    if fields[CONSTANT_CONTEXT]:
        fields[CONSTANT_CONTEXT] = False
        notes.append(CONSTANT)
    if usual and fields[WIDTH] != usual:
        notes.append(WIDE if fields[WIDTH] > usual else NARROW)
        fields[WIDTH] = usual
    return fields, notes


def _differing(plain: list[Fields]) -> dict[str, Counts]:
    """The counts of every field with several values."""
    differing = {}
    for name in sorted({name for fields in plain for name in fields} - {METHOD}):
        counts: Counts = collections.defaultdict(collections.Counter)
        for fields in plain:
            if name in fields:  # A method's section is that of its variants alone.
                counts[fields[METHOD]][json.dumps(fields[name])] += 1
        if len(set().union(*counts.values())) > 1:
            differing[name] = counts
    return differing


def _field_texts(fields: Fields, differ: dict[str, Counts]) -> list[str]:
    """Texts such as `learning_rate=0.001`; the section is added to an ambiguous name."""
    short = {**short_names(differ), TASK: TASK}  # Its last name alone is `name`.
    return [
        f"{short[name]}={_text(fields[name])}"
        for name, counts in differ.items()
        if name in fields and not _is_usual(counts, fields[METHOD], json.dumps(fields[name]))
    ]


def _is_usual(counts: Counts, method: str, value: str) -> bool:
    """Returns whether most of the method's variants have the value, and all other methods."""
    most = 2 * counts[method][value] > counts[method].total()
    return most and all(value in own for own in counts.values())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _order(name: str, fields: Fields) -> tuple:
    method = fields[METHOD]
    order = list(conditioning.NAMES)
    known = order.index(method) if method in order else len(order)
    numbers = [
        (0, value, "") if isinstance(value, int | float) else (1, 0, str(value))
        for _, value in sorted(fields.items())
    ]
    return ", " in name, known, numbers
