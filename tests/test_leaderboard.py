"""Tables of predictions: those of `evaluate` pass with equal numbers, others are refused."""

import dataclasses
import json
import types

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

from cbert.data import prepared
from cbert.errors import UserError
from cbert.evaluation import evaluation_files, leaderboard, task_baselines
from cbert.evaluation.evaluation import Evaluation
from cbert.evaluation.leaderboard import Benchmark
from cbert.evaluation.measured import Measured
from cbert.tasks.metric import without_sums
from cbert.training.evaluations import MODEL
from tests.conftest import ROOT, refused, run
from tests.text_data import prepare_texts

DATA = {
    "masked_item": "small",
    "masked_language": "texts_label",
    "classification": "texts_label",
    "tagging": "texts_tags",
}


@dataclasses.dataclass(frozen=True)
class Given:
    """What is asked, and the table and the JSON file that an evaluation wrote about it."""

    asked: Evaluation
    path: object
    summary: dict


@pytest.fixture(scope="module")
def directory(data_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for target in ("label", "tags"):
        prepare_texts(folder, target)
    return {name: data_dir if name == "small" else str(folder) for name in DATA.values()}


@pytest.fixture(scope="module")
def given(directory, tmp_path_factory):
    """Task to the evaluation of its strongest baseline, in place of a model."""
    known = {}

    def of(name):
        if name not in known:
            known[name] = _evaluated(name, directory, tmp_path_factory.mktemp(name))
        return known[name]

    return of


def _evaluated(name, directory, folder):
    data = DATA[name]
    masking = {"masked_item": "each", "masked_language": "one"}.get(name, "")
    asked = leaderboard.ask(Benchmark(name, "", "", masking), directory[data], data)
    queries = asked.task.queries(asked.split, masking)

    def load(split):
        return prepared.load(directory[data], data, split, asked.schema)

    baselines = task_baselines.predictions(asked.task, load, asked.schema, asked.split, queries)
    predictions = [one for label, one in baselines.items() if "given context" in label][-1]
    evaluation = dataclasses.replace(asked, queries=queries, predictions={MODEL: predictions})
    evaluation_files.write(evaluation, evaluation_files.summary(evaluation), folder)
    summary = json.loads((folder / "eval" / "test.json").read_text())
    return Given(asked, folder / "eval" / "test.parquet", summary)


@pytest.mark.parametrize("name", DATA)
def test_a_table_of_evaluate_has_the_numbers_of_its_json(given, tmp_path, name):
    one = given(name)
    (scored,) = leaderboard.score(one.asked, [one.path])
    summary = scored.summarize()
    assert summary == one.summary["results"]["model"]
    # Of one seed the errors are over groups, too.
    for metric, estimate in leaderboard.estimates([scored]).items():
        expected = summary[metric]
        assert float(estimate.mean) == expected["mean"]
        assert float(estimate.error) == pytest.approx(expected["standard_error"], abs=1e-6)
    # In CSV, with its rows in another order, it is the same table.
    table = pyarrow.parquet.read_table(one.path)
    table = table.take(np.random.default_rng(0).permutation(len(table)))
    for place, field in enumerate(table.schema):
        if pyarrow.types.is_list(field.type):
            cells = ["|".join(tags) for tags in table[field.name].to_pylist()]
            table = table.set_column(place, field.name, pyarrow.array(cells))
    pyarrow.csv.write_csv(table, tmp_path / "mine.csv")
    (again,) = leaderboard.score(one.asked, [tmp_path / "mine.csv"])
    for metric, measured in again.summarize().items():
        assert measured["mean"] == pytest.approx(summary[metric]["mean"], abs=1e-6)


def first(columns, **values):
    """Other values in the first row."""
    for name, value in values.items():
        columns[name][0] = value


def rows(columns, indices):
    for name, values in columns.items():
        columns[name] = [values[index] for index in indices]


def other(columns):
    """A label that is not that of the first row."""
    return "warm" if columns["label"][0] == "blue" else "blue"


BAD = [
    ("masked_item", lambda c: rows(c, range(2, len(c["id"]))), r"2 missing, such as '"),
    ("masked_item", lambda c: first(c, position=99), r"1 missing, .*; 1 extra, such as '"),
    ("masked_item", lambda c: rows(c, [0, *range(len(c["id"]))]), r"1 double, such as '"),
    ("masked_item", lambda c: c.pop("rank"), r"lacks the column 'rank'; it has id, "),
    ("masked_item", lambda c: first(c, log_probability=0.5), r"is 0\.5; it must be finite"),
    ("masked_item", lambda c: first(c, log_probability=-np.inf), r"is -inf; it must be finite"),
    ("masked_item", lambda c: first(c, log_probability=None), r"missing in 1 rows; fill"),
    ("masked_item", lambda c: first(c, rank=0), r"is 0; ranks go from 1 to 80"),
    ("masked_item", lambda c: first(c, rank=81), r"is 81; ranks go from 1 to 80"),
    (
        "masked_item",
        lambda c: first(c, rank=3, log_probability=np.log(0.34)),
        r"at most the probability 1/rank \(1 such",
    ),
    (
        "masked_language",
        lambda c: first(c, rank=1, log_probability=-9.0),
        r"at least the probability 1/",
    ),
    ("classification", lambda c: first(c, prediction="green"), r"is green; it must be one of"),
    ("classification", lambda c: first(c, probability=0.2), r"a probability from 1/3 to 1"),
    (
        "classification",
        lambda c: first(c, prediction=c["label"][0], log_probability=-0.1, probability=0.5),
        r"is 0\.5; the prediction is the true label",
    ),
    (
        "classification",
        lambda c: first(c, prediction=other(c), log_probability=-0.1, probability=0.5),
        r"is -0\.1; the true label is too probable beside",
    ),
    (
        "classification",
        lambda c: first(c, prediction=other(c), log_probability=np.log(0.3), probability=0.8),
        r"is -1\.2\d+; the true label is too probable beside",
    ),
    ("classification", lambda c: first(c, label=other(c)), r"^\S+: label of the query 'text-"),
    ("classification", lambda c: first(c, text="Hello"), r"is 'Hello', and in the prepared"),
    (
        "classification",
        lambda c: c.update(probability=["high"] * len(c["id"])),
        r"'probability' is string and cannot be read as double",
    ),
    ("tagging", lambda c: c["prediction"][0].pop(), r"one tag for each word"),
    ("tagging", lambda c: c["prediction"][0].append("O"), r"one tag for each word"),
    (
        "tagging",
        lambda c: first(c, prediction=["B-x"] * len(c["tags"][0])),
        r"one of the 3 tags",
    ),
]


@pytest.mark.parametrize(("name", "change", "message"), BAD)
def test_wrong_tables_are_refused(given, tmp_path, name, change, message):
    one, path = given(name), tmp_path / "mine.parquet"
    columns = pyarrow.parquet.read_table(one.path).to_pydict()
    change(columns)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    with pytest.raises(UserError, match=message) as refusal:
        leaderboard.score(one.asked, [path])
    assert str(refusal.value).startswith(f"{path}: ")


def test_the_error_of_unequal_groups_by_hand():
    """One group has three quarters of the weight and the mean 1, the other one has 5.

    The mean is 2, and the influences are -3/4 and 3/4. With h = 10/16 the factor is h over
    9/16 (1 - 24/16 + h) + 1/16 (1 - 8/16 + h), which is 40/9.
    """
    measured = Measured({"loss": np.array([1.0, 5.0])}, without_sums(2), np.array([3, 1]))
    seed = types.SimpleNamespace(
        measured={MODEL: measured},
        groups=np.arange(2),
        queries=types.SimpleNamespace(weights=measured.weights),
        summarize=lambda inside: measured.summarize(np.arange(2), inside),
    )
    estimate = leaderboard.estimates([seed])["loss"]
    assert float(estimate.mean) == 2.0
    assert float(estimate.error) ** 2 == pytest.approx(40 / 9 * 2 * 9 / 16)


def test_the_same_table_is_not_two_seeds(given, tmp_path):
    one, other = given("tagging"), tmp_path / "other.parquet"
    columns = pyarrow.parquet.read_table(one.path).to_pydict()
    first(columns, log_probability=-5.0)
    pyarrow.parquet.write_table(pyarrow.table(columns), other)
    assert len(leaderboard.score(one.asked, [one.path, other])) == 2
    for paths in ([one.path, one.path], [one.path, other, other]):
        message = f"^{paths[-2]} and {paths[-1]} hold the same predictions"
        with pytest.raises(UserError, match=message):
            leaderboard.score(one.asked, paths)


def test_the_fingerprint_is_that_of_the_questions(given):
    asked = given("masked_item").asked
    own, queries, split = leaderboard.fingerprint(asked), asked.queries, asked.split
    order = np.arange(len(queries))[::-1]
    names = ("rows", "positions", "items")
    turned = {name: getattr(queries, name)[order] for name in names}
    other_order = dataclasses.replace(asked, queries=dataclasses.replace(queries, **turned))
    assert leaderboard.fingerprint(other_order) == own
    items = split.items.copy()
    items[0, :2] = items[0, 1::-1]
    for changed in ({"contexts": ["{}", *split.contexts[1:]]}, {"items": items}):
        other = dataclasses.replace(asked, split=dataclasses.replace(split, **changed))
        assert leaderboard.fingerprint(other) != own


def test_ambiguous_texts_have_another_label_elsewhere(given):
    asked = given("classification").asked
    table = asked.task.table(asked.split, asked.queries)
    both = list(zip(table["text"], table["label"], strict=True))
    expected = [any(t == u and a != b for u, b in both) for t, a in both]
    assert leaderboard.ambiguous(asked).tolist() == expected
    assert not leaderboard.ambiguous(given("masked_language").asked).any()
    # Of pairs, both texts count.
    pairs = {"text": ["a", "a", "a"], "text_b": ["b", "c", "b"], "label": ["x", "y", "y"]}
    task = types.SimpleNamespace(table=lambda *_: pairs)
    asked = types.SimpleNamespace(task=task, split=None, queries=None)
    assert leaderboard.ambiguous(asked).tolist() == [True, False, True]


@pytest.mark.soak
def test_the_command_prints_the_row(given, directory, tmp_path):
    one, queries = given("classification"), tmp_path / "queries.parquet"
    flags = ["--task=sgd_acts", f"--data_dir={directory['texts_label']}", "--name=texts_label"]
    tables = [f"--table={one.path}", f"--queries={queries}"]
    done = run("score", *flags, *tables, "--by=mood", "--entry=a|b")
    own = one.summary["results"]["model"]["cross_entropy"]
    cell = f"{own['mean']:.4f} ± {own['standard_error']:.4f}"
    assert f"\n| a\\|b | groups | {cell} | " in done.stdout
    assert "a rank needs 5 seeds, and the tables are 1" in done.stderr
    columns = pyarrow.parquet.read_table(one.path).select(["id", "group", "text", "label"])
    assert pyarrow.parquet.read_table(queries).drop_columns("context").equals(columns)


def test_what_only_scores_have_needs_a_table():
    assert "give --table=FILE to score it" in refused("score", "--task=sgd_acts")
    queries = "--task=sgd_acts", "--queries=queries.parquet"
    error = refused("score", *queries, "--entry=mine")
    assert "--entry belongs to the scores of a table" in error


def test_a_masked_query_shows_the_other_items(given):
    asked = given("masked_item").asked
    for query in leaderboard.queries(asked).to_pylist()[:20]:
        assert query["shown"].index(None) == query["position"]
        assert query["item"] not in query["shown"]
        assert len(query["shown"]) == query["visible_items"] + 1


def test_the_page_has_each_task_and_its_fingerprint():
    page = (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8")
    for name, benchmark in leaderboard.BENCHMARKS.items():
        assert f"| `{name}` | " in page
        assert f"`{benchmark.fingerprint}`" in page
