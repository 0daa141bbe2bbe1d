"""What targets of held-out texts may be: cut off, unknown to training, or of another kind."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert.data import prepare, prepared, readers
from cbert.data.prepare_options import TextOptions
from cbert.errors import UserError
from cbert.evaluation import data_warnings
from cbert.tasks.classification import Classification
from cbert.tasks.span import Span
from cbert.tasks.tagging import Tagging
from tests.test_text_prepare import by_id, make_prepared, rows
from tests.test_text_records import write


def test_a_schema_learns_from_training_alone(tmp_path):
    """Neither its pieces nor its values are those of other splits, however frequent."""
    known = {"text": "ab ba", "label": ["x", "y"], "context": {"day": "mon", "mood": "a"}}
    other = {"text": "zz zz", "label": ["z"], "context": {"day": "sun", "mood": "b"}}
    examples = [{**known, "split": "train"}] * 4 + [{**other, "split": "validation"}] * 9
    examples[0] = {**examples[0], "context": {"day": None, "mood": "c"}}
    examples[1] = {**examples[1], "context": {"day": "mon", "mood": "c"}}
    examples += [{**other, "split": "test"}] * 9
    text = TextOptions(vocabulary_size=100)
    options = prepare.PrepareOptions(kind="text", text=text)
    records = readers.read(write(tmp_path / "in.jsonl", *examples), "text")
    _, summary = prepare.prepare(records, tmp_path, "own", options)
    schema = prepared.load_schema(str(tmp_path), "own")
    assert not any("z" in piece for piece in schema.items)
    assert schema.counts[schema.codes["ab"]] == 4
    assert [feature.values for feature in schema.features] == [("mon",), ("a", "c")]
    assert (schema.target.values, schema.target.counts) == (("x", "y"), (4, 4))
    assert summary["unknown_occurrences"] == 36


def test_a_target_that_training_has_nowhere_is_refused(tmp_path):
    examples = rows()
    examples[0]["label"] = "x"  # The example of validation.
    with pytest.raises(UserError, match="target is 'label'; no training record has one; fill"):
        make_prepared(tmp_path, examples, target="label")
    with pytest.raises(UserError, match="training records have tags; give one of those"):
        make_prepared(tmp_path, rows(words=["a"], tags=["O"]), target="label")


def test_training_leaves_out_an_answer_that_was_cut_off(tmp_path):
    pair = {"text": "who", "text_b": "a " * 20 + "rome"}
    examples = rows(3, **pair)
    examples[1]["answer"] = {"text": "rome", "start": 40}
    examples[2]["answer"] = {"text": "a a", "start": 4}
    schema, _, train = make_prepared(tmp_path, examples)
    logits = jnp.stack([jnp.linspace(0, 1, 16), jnp.linspace(1, 0, 16)], axis=1)

    class Fixed(Span):
        def outputs(self, *_, **__):
            return jnp.tile(logits, (2, 1, 1))

    task = Fixed(None, schema)
    loss, metrics = task.loss(None, {**train.columns, "divisor": 2.0}, {})
    both = jax.nn.log_softmax(logits, axis=0)
    own = -(both[5, 0] + both[6, 1]) / 2
    assert float(loss) == pytest.approx(float(own) / 2, rel=1e-5)
    assert float(metrics["loss"][1]) == 1
    queries = task.queries(train, "")
    predictions = {"start": np.array([0, 5]), "end": np.array([0, 6])}
    values = task.metric_values(predictions, queries)
    order = [by_id(train)[name] for name in "12"]
    assert values["exact_match"][order].tolist() == [0, 1]
    assert values["answerable_accuracy"][order].tolist() == [0, 1]


def test_spans_of_tags_that_training_lacks_are_missed(tmp_path):
    examples = rows(6)
    for n, tags in enumerate(["O B-new I-new", "B-new I-new I-new", "B-x O O", "B-x I-x O"]):
        split = "train" if n > 1 else "validation"
        examples[n] |= {"words": ["a", "b", "c"], "tags": tags.split(), "split": split}
    schema, _, held_out = make_prepared(tmp_path, examples, split="validation")
    task = Tagging(None, schema)
    queries = task.queries(held_out, "")
    order = np.argsort([held_out.ids[row] for row in queries.rows])
    assert queries.weights[order].tolist() == [1, 0]
    out, begin = (schema.target.codes[tag] for tag in ("O", "B-x"))
    predicted = np.full((2, schema.max_items), out, np.int32)
    predicted[order[0], 1] = begin  # One span is found where there is none.
    predictions = {"tags": predicted, "log_probability": np.zeros(2)}
    for one in (queries, task.read_queries(task.table(held_out, queries))):
        tags = predicted if one is queries else predicted[:, 1:4]
        sums = task.corpus_metrics({**predictions, "tags": tags}, one).statistics
        assert sums[order].tolist() == [[0, 1, 1], [0, 0, 1]]
    accuracy = task.metric_values(predictions, queries)["accuracy"]
    assert accuracy[order].tolist() == [0, 0]
    assert task.table(held_out, queries)["tags"][order[1]] == ["B-new", "I-new", "I-new"]


def test_examples_with_labels_that_training_lacks_are_counted(tmp_path, capsys):
    examples = rows(11)
    labels = ["new", "newer", None, "x", "y", "x"]
    for n, example in enumerate(examples):
        example["label"] = labels[n] if n < 6 else "xy"[n % 2]
        example["split"] = "validation" if n < 6 else "train"
    schema, _, held_out = make_prepared(tmp_path, examples, split="validation")
    queries = Classification(None, schema).queries(held_out, "")
    data_warnings.warn_of_targets(held_out, queries, schema, "it")
    # Of five texts with a label three are asked about.
    assert capsys.readouterr().err == (
        "warning: 3 of 6 examples of it have no label that the model knows, and are in no "
        "metric; counting the 2 with another label as errors would multiply accuracy by "
        "0.6\n"
    )


def test_data_prepared_again_with_labels_of_another_kind_are_named(tmp_path):
    numbers = [{**row, "label": int(row["id"])} for row in rows()]
    schema, _, _ = make_prepared(tmp_path, numbers)
    strings = [{**row, "label": f"label {row['id']}"} for row in rows()]
    make_prepared(tmp_path, strings, overwrite=True)
    mistake = r"own/1.0.0: a record's label is 'label .* of the kind 'number'; take data that"
    with pytest.raises(UserError, match=mistake):
        prepared.load(str(tmp_path), "own", "train", schema)
