"""A question about a passage in several windows is one query of an evaluation."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert import parallel, tasks
from cbert.data import columns, prepare, prepared, readers
from cbert.evaluation import evaluation_files, target_baselines
from cbert.evaluation.evaluation import Evaluation
from cbert.tasks import prediction
from cbert.tasks.span import Span
from cbert.training import config as config_lib
from tests.test_span_windows import with_stride
from tests.test_text_prepare import make_prepared
from tests.test_text_records import write
from tests.text_predictors import assemble

PASSAGE = "a b c d e f g h in rome"
# Six of ten tokens are a window's, three apart; `rome` is in the third of three.
ROWS = [
    ("q1", PASSAGE, "rome"),
    ("q2", PASSAGE, "in rome"),
    ("q3", "a b c d e f g h b c", None),
    ("q4", PASSAGE, None),
    ("q5", "in rome", "rome"),
    ("q6", PASSAGE, "a b c d e f g"),  # No window holds it whole.
]


def records():
    """Two questions a group, and one more for validation."""
    for number, (name, passage, answer) in enumerate([*ROWS, ("v", "in rome", "rome")]):
        given = {"text": answer, "start": passage.index(answer)} if answer else None
        pair = {"text": "who", "text_b": passage, "answer": given}
        split = "train" if name.startswith("q") else "validation"
        yield {"id": name, "group": f"group {number // 2}", "split": split, **pair}


class ByTokens(Span):
    """The task of a model whose logits are 1 at [CLS], 4 at `rome` and else 0."""

    def outputs(self, params, columns, positions=None, rngs=None):
        codes = columns["items"]
        logits = 1.0 * (codes == self.schema.codes["[CLS]"])
        logits += 4.0 * (codes == self.schema.codes["rome"])
        return jnp.stack([logits, logits], axis=-1)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """The evaluation of the questions by that model and the baselines."""
    folder = tmp_path_factory.mktemp("questions")
    schema, _, split = make_prepared(folder, list(records()), max_length=10, stride=3)
    task = ByTokens(None, schema)
    queries = task.queries(split, "")
    asked = task.asked(queries)
    given = {name: jnp.asarray(column[asked.rows]) for name, column in token_columns(split)}
    made = jax.jit(task.predict)(None, given, {})
    made = {name: np.asarray(values) for name, values in made.items()}
    baselines = target_baselines.of_spans(lambda _: split, schema, split, queries)
    predictions = {"model": task.joined(made, queries), **baselines}
    return Evaluation(task, "gs", 1, schema, split, queries, predictions, {}, "test")


def token_columns(split):
    return [
        ("items", split.items),
        ("segments", split.token_columns["segments"]),
        *((name, split.targets[name]) for name in ("start", "end")),
    ]


def by_question(evaluation, values):
    """Question to value."""
    names = evaluation.split.record_ids(evaluation.queries.rows)
    return dict(sorted(zip(names, values, strict=True)))


def nats(tokens, own, *others):
    """Minus the log-probability of the logit `own` beside others, and zeros."""
    zeros = [0] * (tokens - 1 - len(others))
    return np.log(np.exp([own, *others, *zeros]).sum()) - own


def test_metrics_are_those_of_questions(evaluated):
    assert len(evaluated.split) == 5 * 3 + 1
    measured = evaluated.measured["model"].values
    values = {name: by_question(evaluated, column) for name, column in measured.items()}
    # The model answers `rome` wherever it stands.
    assert list(values["exact_match"].values()) == [1, 0, 1, 0, 1, 0]
    f1 = [1, 2 * 1 / (1 + 2), 1, 0, 1, 0]
    assert list(values["f1"].values()) == pytest.approx(f1)
    assert list(values["answerable_accuracy"].values()) == [1, 1, 1, 0, 1, 1]
    # [CLS] who [SEP] and six words, six words or four, [SEP]; the mean over the windows.
    q1 = (nats(10, 1) + nats(10, 1) + nats(8, 4, 1)) / 3
    q4 = (nats(10, 1) + nats(10, 1) + nats(8, 1, 4)) / 3
    assert values["cross_entropy"]["q1"] == pytest.approx(q1, rel=1e-5)
    assert values["cross_entropy"]["q4"] == pytest.approx(q4, rel=1e-5)
    assert values["cross_entropy"]["q5"] == pytest.approx(nats(6, 4, 1), rel=1e-5)
    result = evaluation_files.summary(evaluated)
    assert (result["queries"], result["groups"]) == (6, 3)
    # Groups of two have 1, 1 and 1 exact matches, and 2, 1 and 2 right kinds of answer.
    known = result["results"]["model"]
    assert known["exact_match"] == {"mean": 0.5, "standard_error": 0}
    error = np.sqrt(3 / 2 * (2 * (1 / 3) ** 2 + (2 / 3) ** 2)) / 6
    assert known["answerable_accuracy"]["mean"] == pytest.approx(5 / 6)
    assert known["answerable_accuracy"]["standard_error"] == pytest.approx(error)


def test_baselines_answer_questions_too(evaluated):
    results = evaluation_files.summary(evaluated)["results"]
    # Two of six questions have no answer, and no passage begins with `rome`, one token.
    assert results["no answer"]["exact_match"]["mean"] == pytest.approx(2 / 6)
    assert results["first tokens"]["answerable_accuracy"]["mean"] == pytest.approx(4 / 6)
    found = evaluated.task.prediction_columns(
        evaluated.predictions["first tokens"], evaluated.queries
    )["prediction"]
    # The answers of windows have the lengths 1, 2 and 1.
    assert list(by_question(evaluated, found).values()) == ["a", "a", "a", "a", "in", "a"]


def test_the_table_has_a_row_a_question(evaluated):
    table = evaluation_files.columns(evaluated)
    order = np.argsort(table["id"])
    assert [table["id"][row] for row in order] == [f"q{n}" for n in range(1, 7)]
    assert [table["text_b"][row] for row in order] == [passage for _, passage, _ in ROWS]
    assert [table["answer"][row] for row in order] == [answer for *_, answer in ROWS]
    found = [table["prediction"][row] for row in order]
    assert found == ["rome", "rome", None, "rome", "rome", "rome"]
    # [CLS] who [SEP] g h in rome, and [CLS] who [SEP] in rome.
    assert [table["window"][row] for row in order] == [2, 2, 0, 2, 0, 2]
    assert [table["start"][row] for row in order] == [6, 6, 0, 6, 4, 6]
    read = {name: np.array(column, object) for name, column in table.items()}
    read["log_probability"] = table["log_probability"]
    predictions = evaluated.task.read_predictions(read)
    values = evaluated.task.metric_values(predictions, evaluated.task.read_queries(read))
    for name, column in evaluated.measured["model"].values.items():
        np.testing.assert_array_equal(values[name], column)


def test_some_examples_are_whole_passages(evaluated):
    some = columns.evenly_spaced(evaluated.split, 9)
    names = some.record_ids(np.arange(len(some)))
    kept = set(names)
    assert len(kept) == 9 * 6 // 16
    assert sorted(some.ids) == sorted(
        name for name in evaluated.split.ids if name.partition("#")[0] in kept
    )


def test_passages_that_do_not_overlap_keep_their_characters(tmp_path):
    passage = "a  b \n c d e f    g h rome."
    row = {"text": "who", "text_b": passage, "answer": {"text": "rome", "start": 22}}
    examples = [{"id": "v", "split": "validation", **row}, {"id": "q", "split": "train", **row}]
    schema, _, split = make_prepared(tmp_path, examples, max_length=10, stride=6)
    queries = Span(None, schema).queries(split, "")
    texts = [json.loads(split.texts[row])["text_b"] for row in queries.windows]
    assert texts == ["a  b \n c d e f", "g h rome."]
    assert list(queries.targets["passage"]) == ["a  b \n c d e f    g h rome."]
    found = {"start": np.array([5]), "end": np.array([5]), "window": np.array([1])}
    assert queries.answers(found) == ["rome"]
    assert queries.characters[1, 5].tolist() == [22, 26]


def test_an_answer_keeps_its_decomposed_accents(tmp_path):
    passage = "a b cafe\u0301 rome"
    row = {"text": "who", "text_b": passage, "answer": {"text": "cafe\u0301", "start": 4}}
    examples = [{"id": "v", "split": "validation", **row}, {"id": "q", "split": "train", **row}]
    schema, _, split = make_prepared(tmp_path, examples, max_length=128)
    queries = Span(None, schema).queries(split, "")
    found = {"start": split.targets["start"], "end": split.targets["end"]}
    assert queries.answers(found) == ["cafe\u0301"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Makes predictor, split, queries and predictions of a random model, with a stride."""

    def make(stride):
        folder = tmp_path_factory.mktemp("random")
        predictor = with_stride(assemble("span"), stride)
        random = np.random.default_rng(1)
        words = ("a", "blue", "please", "red", "seats", "table", "7", "8")
        rows = []
        for n in range(24):
            chosen = random.choice(words, random.integers(3, 40))
            pair = {"text": "is ?", "text_b": " ".join(chosen), "answer": None}
            context = {"mood": ("warm", "cold")[n % 2], "age": 20 + n}
            rows.append({"id": f"{n}#", "split": "test", "context": context, **pair})
        path = write(folder / "rows.jsonl", *rows)
        read = readers.read(path, "text")
        prepare.prepare(
            read, folder, "own", prepare.PrepareOptions(kind="text"), predictor.schema
        )
        schema = predictor.schema
        split = prepared.load(str(folder), "own", "test", schema)
        model = config_lib.build_model(predictor.config, schema)
        task = tasks.create(predictor.config, model, schema)
        queries = task.queries(split, "")
        params, data = predictor.program.params, parallel.replicate(split.columns)
        replicated = parallel.replicate(params)
        made = prediction.predict_all(task, replicated, data, split, queries, 16)
        return predictor, task, split, queries, made, {row["id"]: row for row in rows}

    return make


def test_an_evaluation_finds_what_a_predictor_does(measured):
    predictor, task, split, queries, made, rows = measured(3)
    assert len(split) > 2 * len(queries) == 2 * 24
    found = task.prediction_columns(made, queries)["prediction"]
    names = split.record_ids(queries.rows)
    assert sorted(names) == sorted(rows)
    for name, answer in zip(names, found, strict=True):
        row = rows[name]
        result = predictor.predict(row["text"], row["context"], row["text_b"])
        assert answer == (result.answer.text if result.answer else None)
    assert len(set(found)) > 3


def test_without_windows_predictions_are_those_of_the_examples(measured):
    predictor, task, split, queries, made, rows = measured(0)
    assert queries.rows.tolist() == list(range(24))
    assert split.record_ids(queries.rows) == list(split.ids)
    given = {name: jnp.asarray(column) for name, column in token_columns(split)}
    context = {name: jnp.asarray(column) for name, column in split.context.items()}
    asked = {**given, "context": context}
    alone = jax.jit(task.predict)(predictor.program.params, asked, {})
    assert sorted(made) == ["end", "log_probability", "start"]
    assert made["log_probability"].dtype == np.float32
    np.testing.assert_allclose(made["log_probability"], alone["log_probability"], atol=1e-5)
    for name in ("start", "end"):
        np.testing.assert_array_equal(made[name], alone[name])
    table = task.table(split, queries)
    assert table["text_b"] == [rows[name]["text_b"] for name in split.ids]
    assert columns.evenly_spaced(split, 7).ids == [split.ids[n * 24 // 7] for n in range(7)]
    # A joined log-probability of one window is that of the window, to the bit.
    raw = {**{name: np.asarray(alone[name]) for name in made}, "log_odds": np.zeros(24)}
    for name, column in task.joined(raw, queries).items():
        np.testing.assert_array_equal(column, raw[name])
