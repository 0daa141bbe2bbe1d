"""Warnings of data that do not suit a run, or its errors, before it is evaluated on them."""

import json
import pathlib

import numpy as np

from cbert.data import prepared
from cbert.data.columns import Split
from cbert.data.text_records import Text
from cbert.errors import printable, shown, warn
from cbert.evaluation.intervals import effective_groups
from cbert.evaluation.metrics import group_codes
from cbert.schema import SEQUENCE, Schema
from cbert.schema.target import LABEL
from cbert.tasks.base import Queries
from cbert.tasks.masked_queries import LAST
from cbert.training import own_data

# Unequal groups that count as fewer equal ones than this, and as a smaller fraction of their
# number, make intervals wide.
FEW_GROUPS, LEAST_EQUAL = 20, 0.6


def warn_of_data(
    data_dir: str, name: str, schema: Schema, own: str, counted: str, workdir: pathlib.Path
) -> None:
    """Warns of other data than the model learned from, whatever their name or kind is.

    Args:
      data_dir: The directory of prepared data sets.
      name: The data that are evaluated.
      schema: The run's schema.
      own: The data that the run learned from.
      counted: The data whose training split baselines count; empty where there is none.
      workdir: The run's directory.
    """
    theirs = prepared.load_schema(data_dir, name)
    if name == own:
        warn_if_prepared_anew(data_dir, name, schema, workdir)
    else:
        baselines = f"the baselines are of the training split of {shown(counted)}"
        if not counted:
            baselines = "without a training split, baselines that count one are left out"
        warn(f"{shown(name)} is not what the model learned from, {shown(own)}; {baselines}")
    if theirs.kind != schema.kind:
        warn(f"{shown(name)} has {theirs.kind}s, and the model learned from {schema.kind}s")


def warn_if_prepared_anew(
    data_dir: str, name: str, schema: Schema, workdir: pathlib.Path
) -> None:
    """Warns where the data that a run learned from have another schema, or other examples."""
    same_schema = prepared.load_schema(data_dir, name) == schema
    change = own_data.changed(data_dir, name, workdir) if same_schema else "with another schema"
    if change:
        warn(
            f"{shown(name)} was prepared anew since the model learned from it, {change}; it "
            "may have seen examples that are held out now"
        )


def warn_of_overlap(data_dir: str, name: str, schema: Schema, masking: str) -> None:
    """Warns where a sequence of the same group may have shown what is asked about."""
    if schema.kind != SEQUENCE or masking == LAST:
        return
    if across := prepared.groups_across_splits(data_dir, name):
        warn(
            f"{across:,} groups of {shown(name)} lie in several splits; where their sequences "
            f"overlap, training has seen items that masking={masking} asks about: give "
            f"masking={LAST}"
        )


def warn_of_context(split: Split, schema: Schema, title: str) -> None:
    """Warns of context features that no example of the split gives, or gives a known value."""
    absent = {feature.name for feature in schema.features}
    others: set[str] = set()
    for context in split.contexts:
        if not absent:
            break
        given = {name for name, value in json.loads(context).items() if value is not None}
        others |= given
        absent -= given
    unknown = [
        feature.name
        for feature in schema.features
        if feature.name not in absent and not feature.any_known(split.context[feature.name])
    ]
    if absent:
        lacking, there = (printable(", ".join(sorted(names))) for names in (absent, others))
        warn(
            f"{title} has no value of the context features {lacking}, which are missing to the "
            f"model in every example; it has: {there or 'none'}"
        )
    if unknown:
        warn(
            f"{title} has no value that the model knows of the context features "
            f"{printable(', '.join(unknown))}"
        )


def warn_of_targets(split: Split, queries: Queries, schema: Schema, title: str) -> None:
    """Warns of examples that are not asked about, because the model cannot be right."""
    if schema.target is None or not queries.skipped:
        return
    errors = 0
    if schema.target.kind == LABEL:
        left_out = np.setdiff1d(np.arange(len(split)), queries.rows)
        errors = sum(Text.from_json(split.texts[row]).label is not None for row in left_out)
    lower = (
        f"; counting the {errors:,} with another label as errors would multiply accuracy by "
        f"{len(queries) / (len(queries) + errors):.6g}"
    )
    warn(
        f"{queries.skipped:,} of {len(split):,} examples of {title} have no "
        f"{schema.target.kind} that the model knows, and are in no metric"
        + (lower if errors else "")
    )


def warn_of_groups(split: Split, queries: Queries) -> None:
    """Warns of groups so unequal that they say as much as a few."""
    codes = group_codes(split.groups)
    weights = np.bincount(codes[queries.rows], queries.weights, codes.max() + 1)
    if not weights.any():
        return
    fractions = weights / weights.sum()
    effective = effective_groups(fractions)
    groups = np.count_nonzero(weights)
    if effective < min(FEW_GROUPS, LEAST_EQUAL * groups):
        name = split.groups[int(np.argmax(codes == fractions.argmax()))]
        warn(
            f"the group {shown(name)} has {fractions.max():.0%} of the queries, so that "
            f"{groups} groups say as much as {effective:.1f} equal ones, and intervals over "
            "groups are wide"
        )
