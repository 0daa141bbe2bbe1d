"""The summary of prepared data: its numbers, and the same as text."""

from collections.abc import Mapping
from typing import Any

from cbert import schema as schema_lib
from cbert.data.overview import Overview
from cbert.data.prepare_options import LATEST, LEAVE_OUT, SUBSAMPLE
from cbert.data.records import SPLITS, TRAIN
from cbert.data.token_usage import TokenUsage
from cbert.errors import printable
from cbert.schema import Feature, Schema, Target
from cbert.schema.target import NUMBER
from cbert.schema.tokenizer import MOST_LENGTH

MOST_SHOWN, MOST_UNKNOWN = 5, 3  # Values of a target.
_TREATMENTS = {
    LEAVE_OUT: "left out",
    SUBSAMPLE: "subsampled",
    LATEST: "cut to their latest items",
}


def summarize(
    overview: Overview,
    schema: Schema,
    longer: int,
    tokens: TokenUsage | None = None,
    repeats: int = 0,
) -> dict[str, Any]:
    """The numbers that `format_summary` prints.

    Args:
      overview: Has seen every record.
      schema: The schema of the data set.
      longer: The number of records that had more items than allowed, or were cut.
      tokens: The token counts of a text data set; has seen every record, too.
      repeats: The number of items that were dropped because their set had them before.
    """
    lengths = overview.lengths()
    groups, groups_across = overview.groups()
    sizes = {split: len(overview.indices(split)) for split in SPLITS}
    features = {
        feature.name: _of_feature(feature, overview, schema) for feature in schema.features
    }
    unknown = [count for item, count in overview.items.items() if item not in schema.codes]
    return {
        "kind": schema.kind,
        "examples": {split: size for split, size in sizes.items() if size},
        "groups": groups,
        "items": int(lengths.sum()),
        "vocabulary": len(schema.items),
        "unknown_items": len(unknown),
        "unknown_occurrences": tokens.unknown if tokens else sum(unknown),
        "lengths": {
            "min": int(lengths.min()),
            "mean": float(lengths.mean()),
            "max": int(lengths.max()),
        },
        **_beyond_training(overview, schema.kind),
        "longer": longer,
        **({"repeats": repeats} if repeats else {}),
        "max_items": schema.max_items,
        "duplicates_across_splits": overview.duplicates(),
        "groups_across_splits": groups_across,
        "features": features,
        "ignored_features": sorted(set(overview.observed) - set(features)),
        **({"weights": weights} if (weights := overview.weights()) else {}),
        **({"target": _of_target(schema.target, tokens)} if tokens and schema.target else {}),
    }


def _beyond_training(overview: Overview, kind: str) -> dict[str, Any]:
    """Sequences that are longer than those whose positions a model learns."""
    longest, count = overview.beyond_training()
    if kind != schema_lib.SEQUENCE or not (longest and count):
        return {}
    return {"beyond_training": {"longest": longest, "examples": count}}


def _of_feature(feature: Feature, overview: Overview, schema: Schema) -> dict[str, Any]:
    return {
        "kind": feature.kind,
        "values": feature.value_count,
        "width": feature.width,
        "missing": 1 - overview.observed.get(feature.name, 0) / len(overview),
        "unseen": _unseen(feature, overview.held_out.get(feature.name, {}), schema),
    }


def _of_target(target: Target, tokens: TokenUsage) -> dict[str, Any]:
    return {
        "kind": target.kind,
        "values": len(target.values),
        **({"mean": target.mean, "deviation": target.scale} if target.kind == NUMBER else {}),
        "most_frequent": dict(zip(target.values[:MOST_SHOWN], target.counts, strict=False)),
        "missing": tokens.missing,
        "unknown": tokens.unknown_targets,
        "unknown_values": [name for name, _ in tokens.unknown_values.most_common(MOST_UNKNOWN)],
        "cut": tokens.cut_answers,
    }


def _unseen(feature: Feature, held_out: Mapping[str, int], schema: Schema) -> float:
    """The fraction of a feature's strings outside training that the schema does not know."""
    unknown = sum(held_out[string] for string in feature.unknown(held_out, schema.codes))
    return unknown / max(sum(held_out.values()), 1)


def format_summary(summary: dict[str, Any], longer: str) -> str:
    """The summary as aligned text.

    Args:
      summary: From `summarize`.
      longer: The treatment of longer examples, one of `prepare_options.LONGER`.
    """
    is_text = summary["kind"] == schema_lib.TEXT
    held_out = sum(summary["examples"].values()) - summary["examples"].get(TRAIN, 0)
    sizes = "  ".join(f"{split} {count:,}" for split, count in summary["examples"].items())
    lines = [
        f"{summary['kind'] + 's':<12}{sizes}  (groups {summary['groups']:,})",
        *(_text_lines(summary) if is_text else _item_lines(summary, longer)),
    ]
    if TRAIN in summary["examples"]:
        lines.append(
            f"duplicates  {summary['duplicates_across_splits']:,} of {held_out:,} examples of "
            f"other splits have the {'text' if is_text else 'items'} of a training example"
        )
    if summary["groups_across_splits"]:
        lines.append(
            f"groups      {summary['groups_across_splits']:,} lie in several splits, by their "
            "records' own 'split': what is known of them in training helps elsewhere"
        )
    if "beyond_training" in summary:
        beyond = summary["beyond_training"]
        lines.append(
            f"positions   {beyond['examples']:,} examples of other splits have more items than "
            f"the longest of training, {beyond['longest']}: a model has not learned the "
            "positions beyond it"
        )
    if "weights" in summary:
        least, largest = summary["weights"]
        lines.append(
            f"weights     {least:g} to {largest:g}, by 'weight': what examples count in the "
            "training loss; a feature of the context needs another name"
        )
    if unseen := [name for name, f in summary["features"].items() if f["unseen"] > 0.5]:
        lines.append(
            f"unseen      {printable(', '.join(unseen))}: most values outside training do not "
            "occur in it, so that what is learnt of them cannot be used there"
        )
    if summary["ignored_features"]:
        ignored = printable(", ".join(summary["ignored_features"]))
        lines.append(f"ignored     {ignored} (not in the schema)")
    return "\n".join([*lines, *_feature_lines(summary["features"])])


def _item_lines(summary: dict[str, Any], longer: str) -> list[str]:
    lengths = summary["lengths"]
    lines = [
        f"items       {summary['items']:,} of {summary['vocabulary']:,} kinds; "
        f"{lengths['min']} to {lengths['max']} an example, mean {lengths['mean']:.2f}",
        f"unknown     {summary['unknown_items']:,} items outside the vocabulary, "
        f"{summary['unknown_occurrences']:,} occurrences",
        f"longer      {summary['longer']:,} examples above max_items, {_TREATMENTS[longer]}",
    ]
    if "repeats" in summary:
        lines.append(
            f"repeats     {summary['repeats']:,} items dropped that their set had before"
        )
    return lines


def _text_lines(summary: dict[str, Any]) -> list[str]:
    lengths, length = summary["lengths"], summary["max_items"]
    advice = "; a larger max_length reads more" * (
        summary["longer"] > 0 and length < MOST_LENGTH
    )
    lines = [
        f"tokens      {summary['items']:,} of a vocabulary of {summary['vocabulary']:,}; "
        f"{lengths['min']} to {lengths['max']} an example, mean {lengths['mean']:.2f}",
        f"unknown     {summary['unknown_occurrences']:,} words are [UNK]",
        f"longer      {summary['longer']:,} examples were cut; a model reads the first "
        f"{length} tokens of a text{advice}",
    ]
    if "target" not in summary:
        lines.append("target      none, so that the task is the masked language model's")
    else:
        target = summary["target"]
        line = f"target      {target['kind']}"
        if target["values"]:
            line += f", {target['values']:,} values"
        if "mean" in target:
            line += f", mean {target['mean']:.6g}, deviation {target['deviation']:.6g}"
        line += f"; examples without one: {target['missing']:,}"
        if target["values"]:
            line += f", with one that training lacks: {target['unknown']:,}"
        if target["unknown"]:
            line += f", such as {', '.join(map(printable, target['unknown_values']))}"
        lines.append(line)
        if target["values"]:
            counts = target["most_frequent"].items()
            named = ", ".join(f"{printable(value)} {count:,}" for value, count in counts)
            more = target["values"] - len(counts)
            lines.append(f"training    {named}{f' and {more:,} more' * (more > 0)}")
        if target["cut"]:
            lines.append(
                f"cut off     {target['cut']:,} answers, with the end of their passage: "
                "training leaves them out; a larger max_length or a stride keeps them"
            )
    return lines


def _feature_lines(features: dict[str, dict[str, Any]]) -> list[str]:
    rows = {printable(name): numbers for name, numbers in features.items()}
    width = max(map(len, ("feature", *rows)))
    head = f"\n{'feature':<{width}}  {'kind':<12}  values  width  missing  unseen"
    return [head] + [
        f"{name:<{width}}  {row['kind']:<12}  {row['values']:>6}  {row['width']:>5}"
        f"  {row['missing']:>7.1%}  {row['unseen']:>6.1%}"
        for name, row in rows.items()
    ]
