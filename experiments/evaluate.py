"""Evaluates checkpoints on prepared data; several runs make one table with paired differences.

python -m experiments.evaluate --workdir=runs/meals-gs --by=occasion --feature_importance
python -m experiments.evaluate --workdir=runs/meals-none,runs/meals-gs
"""

import json
from collections.abc import Sequence
from typing import Any

from absl import flags

from cbert.data.records import SPLITS, TEST
from cbert.errors import UserError, printable
from cbert.evaluation import baselines, compare, diagnosis, evaluation_files, label_tables
from cbert.evaluation import evaluate as evaluate_lib
from cbert.evaluation.evaluation import Evaluation
from cbert.tasks.metric import Metric
from cbert.text_table import align
from cbert.training.config_sections import EVAL_MASKINGS
from cbert.training.evaluations import MODEL
from experiments import command

_WORKDIR = flags.DEFINE_list(
    "workdir",
    None,
    "A run's directory; several, separated by commas, are compared.",
    required=True,
)
_SPLIT = flags.DEFINE_enum("split", TEST, list(SPLITS), "The split to evaluate on.")
_CHECKPOINT = flags.DEFINE_string("checkpoint", "best", "The checkpoint: best, last or a step.")
_DATA_DIR = flags.DEFINE_string(
    "data_dir",
    "",
    "Where the run's prepared data lie now, if they were moved; other data take --name.",
)
_NAME = flags.DEFINE_string(
    "name", "", "The name of the prepared data set; by default the run's."
)
_MASKING = flags.DEFINE_enum(
    "masking",
    None,
    EVAL_MASKINGS,
    "Mask each item of an example in turn, one, or the last of a sequence; by default as the "
    "run's config says.",
)
_BY = flags.DEFINE_multi_string(
    "by",
    [],
    "A context feature: print a table by its values, too; give --by again for another one.",
)
_FEATURE_IMPORTANCE = flags.DEFINE_bool(
    "feature_importance",
    False,
    "Measure how much worse the model is without each context feature, too.",
)
_JSON = flags.DEFINE_bool(
    "json", False, "Print one JSON object, work directory to results, and nothing else."
)


def main() -> None:
    """Evaluates each run, writes its results into its directory and prints them."""
    options = evaluate_lib.EvaluationOptions(
        _SPLIT.value,
        _CHECKPOINT.value,
        _DATA_DIR.value,
        _NAME.value,
        _MASKING.value or "",
        tuple(dict.fromkeys(_BY.value)),
        _FEATURE_IMPORTANCE.value,
    )
    evaluations, summaries, unwritten = {}, {}, []
    compare.check_comparable(_WORKDIR.value)
    for workdir in dict.fromkeys(_WORKDIR.value):
        evaluation = evaluate_lib.evaluate(workdir, options)
        summary = evaluation_files.summary(evaluation, options.by)
        try:
            evaluation_files.write(evaluation, summary, workdir)
        except OSError as error:  # What took long to compute is shown all the same.
            unwritten.append(f"{workdir} ({error.strerror or error})")
        evaluations[workdir], summaries[workdir] = evaluation, summary
    # Runs that cannot be compared are refused before anything is printed.
    base, *others = evaluations
    differences = {one: compare.paired(evaluations[base], evaluations[one]) for one in others}
    if _JSON.value:
        _print_json(base, summaries, differences)
    else:
        _print(options, evaluations, summaries, differences)
    if unwritten:
        raise UserError(
            "the results above could not be written to the directory eval of "
            f"{', '.join(unwritten)}; give it room and permission, then run the same command "
            "again"
        )


def _print_json(
    base: str, summaries: dict[str, dict[str, Any]], differences: dict[str, dict[str, Any]]
) -> None:
    """Prints the results by work directory, with `difference` for all runs but the first."""
    for workdir, difference in differences.items():
        summaries[workdir] = {**summaries[workdir], "difference": {"from": base, **difference}}
    print(json.dumps(summaries))


def _print(
    options: evaluate_lib.EvaluationOptions,
    evaluations: dict[str, Evaluation],
    summaries: dict[str, dict[str, Any]],
    differences: dict[str, dict[str, Any]],
) -> None:
    """Prints the runs side by side, or one run by slices, and what was asked for beside it.

    All three are by work directory; the first run has no difference.
    """
    names = list(evaluations)
    evaluation, summary = evaluations[names[-1]], summaries[names[-1]]
    every = (metric for one in evaluations.values() for metric in one.task.in_tables)
    metrics = list(dict.fromkeys(every))  # A task that extends another may have more.
    results = {name: summaries[name]["results"][MODEL] for name in names}
    if len(names) == 1:
        results = {evaluation.method: results[names[0]]}
    baseline_results = {
        name: result for name, result in summary["results"].items() if name != MODEL
    }
    masked = f" ({summary['masking']})" if summary["masking"] else ""
    print(
        f"\n{options.split} split of {summary['data']}: {summary['queries']:,} queries"
        f"{masked}, {summary['groups']:,} groups, {summary['skipped']:,} skipped"
        "; ± standard error over groups\n"
    )
    print(compare.format_results({**results, **baseline_results}, metrics))
    if differences:
        print("\n" + compare.format_paired(names[0], differences, evaluation.task.metrics[0]))
        print("an interval over groups says nothing about other seeds; reports carry both")
    else:
        _print_one(evaluation, summary)
    _print_asked(options, summaries, metrics)
    if shares := _shares(results, baseline_results):
        print("\n" + align([["", "share of the context's worth"], *shares]))


def _print_one(evaluation: Evaluation, summary: dict[str, Any]) -> None:
    """Prints where baselines are better than a run, its labels, and metrics by slices."""
    for line in diagnosis.better_baselines(evaluation, summary):
        print(f"\nnote: {line}")
    if evaluation.label_counts is not None and len(evaluation.label_counts) > 1:
        print("\n" + label_tables.format_labels(evaluation.label_counts, evaluation.name))
    for name in evaluation.task.slices(evaluation.split):
        title = name.replace("_", " ")
        slices = summary[f"by_{name}"]
        print("\n" + compare.format_slices(slices, title, evaluation.task.in_tables))


def _print_asked(
    options: evaluate_lib.EvaluationOptions,
    summaries: dict[str, dict[str, Any]],
    metrics: Sequence[Metric],
) -> None:
    """Prints each run by a feature's values and its feature importance, where asked for."""
    for name in options.by:
        for workdir, summary in summaries.items():
            print(f"\n{printable(workdir)}")
            print(compare.format_slices(summary[f"by_{name}"], name, metrics))
    measured = [one for one in summaries if summaries[one].get("feature_importance")]
    if options.feature_importance and measured:
        print("\nfeature importance, one query an example; ± over groups")
        for workdir in measured:
            print(f"\n{printable(workdir)}")
            importance = summaries[workdir]["feature_importance"]
            print(compare.format_feature_importance(importance, metrics[0]))


def _shares(results: dict[str, Any], baseline_results: dict[str, Any]) -> list[list[str]]:
    """How much of what the context is worth each run has made use of; empty if not known."""
    if baselines.WITHOUT_CONTEXT not in baseline_results:
        return []
    optima = [baseline_results[name]["cross_entropy"]["mean"] for name in baselines.OPTIMA]
    shares = []
    for name, result in results.items():
        share = compare.share_of_worth(result["cross_entropy"]["mean"], *optima)
        if share is not None:
            shares.append([name, f"{share:.1%}"])
    return shares


if __name__ == "__main__":
    command.run(main)
