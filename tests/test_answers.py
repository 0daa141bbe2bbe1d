"""Answers in passages become tokens, cut or in windows."""

import json

import numpy as np
import pytest

from cbert.data import prepare, prepared, readers
from cbert.data.prepare_options import TextOptions
from cbert.data.summary import format_summary
from cbert.errors import UserError
from cbert.schema import schema_file
from tests.test_text_prepare import by_id, make_prepared, rows


def test_answers_become_tokens_and_cut_ones_are_counted(tmp_path):
    pair = {"text": "who", "text_b": "a in Romex b"}
    examples = rows(7, **pair)
    examples[1]["answer"] = {"text": "Romex b", "start": 5}
    examples[2] = {**examples[2], "text": "a b rome", "answer": {"text": "rome", "start": 4}}
    del examples[2]["text_b"]
    examples[3]["answer"] = {"text": "in", "start": 2}
    examples[4] |= {"text_b": "a " * 20 + "rome", "answer": {"text": "rome", "start": 40}}
    # Of this one the model reads the beginning.
    examples[6] |= {"text_b": "a " * 20 + "rome", "answer": {"text": "a " * 10, "start": 20}}
    schema, summary, train = make_prepared(tmp_path, examples)
    row = by_id(train)
    spans = np.stack([train.targets["start"], train.targets["end"]], axis=1)
    # [CLS] who [SEP] a in rome ##x b [SEP]
    assert [spans[row[name]].tolist() for name in "123456"] == [
        [5, 7],
        [3, 3],
        [4, 4],
        [-1, -1],
        [0, 0],
        [-1, -1],
    ]
    assert train.token_columns["segments"][row["1"], :9].tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert (summary["longer"], schema.target.values, schema.target.pairs) == (2, (), "some")
    printed = format_summary(summary, "leave_out")
    assert "target      answer; examples without one: 2\ncut off     2 answers" in printed


@pytest.mark.parametrize(
    ("split", "answer", "whole"),
    [
        ("train", "Romex b", True),
        ("train", "x", False),
        ("train", "Rome", False),
        ("train", "c " * 20, True),  # It is cut off, and training leaves it out.
        ("validation", "Rome", True),
    ],
)
def test_whether_answers_are_whole_words_is_what_training_says(tmp_path, split, answer, whole):
    passage = "a Romex b " + "c " * 20
    examples = rows(4, text=passage)
    examples[1]["answer"] = {"text": "Romex", "start": 2}
    examples[2]["answer"] = {"text": answer, "start": passage.index(answer)}
    examples[2]["split"] = split
    schema, _, _ = make_prepared(tmp_path, examples)
    assert schema.target.whole_words == whole


def test_windows_hold_the_answer_where_they_hold_it_whole(tmp_path):
    """`who` and three special tokens leave six of ten tokens to a window, three apart."""
    passage = "a b c d e f g h rome in"
    examples = rows(3, text="who", text_b=passage)
    examples[1]["answer"] = {"text": " h rome ", "start": 13}  # Its spaces do not count.
    schema, summary, train = make_prepared(tmp_path, examples, max_length=10, stride=3)
    row = by_id(train)
    texts = [json.loads(train.texts[row[f"1#{n}"]]) for n in range(3)]
    assert [text["text_b"] for text in texts] == [
        "a b c d e f",
        "d e f g h rome",
        "g h rome in",
    ]
    assert [text.get("answer") for text in texts] == [
        None,
        {"text": "h rome", "start": 8},
        {"text": "h rome", "start": 2},
    ]
    starts = [train.targets["start"][row[f"1#{n}"]] for n in range(3)]
    ends = [train.targets["end"][row[f"1#{n}"]] for n in range(3)]
    assert (starts, ends) == ([0, 7, 4], [0, 8, 5])
    assert sorted(train.ids) == ["1#0", "1#1", "1#2", "2#0", "2#1", "2#2"]
    assert (summary["longer"], schema.max_items, schema.target.pairs) == (0, 10, "all")
    assert schema.target.stride == 3
    with pytest.raises(UserError, match="stride makes windows of passages with answers"):
        make_prepared(tmp_path, rows(label="x"), stride=3, target="none", overwrite=True)


def test_the_schema_says_how_passages_are_divided(tmp_path):
    """Other data that are prepared with it have the same windows; an older one has none."""
    examples = rows(3, text="who", text_b="a b c d e f g h rome in")
    examples[1]["answer"] = {"text": "rome", "start": 16}
    schema, _, _ = make_prepared(tmp_path, examples, max_length=10, stride=3)
    raw = json.loads(schema_file.text(schema))
    assert schema_file.from_dict(raw) == schema

    def ids(known, stride=0):
        options = prepare.PrepareOptions(
            kind="text", overwrite=True, text=TextOptions(stride=stride)
        )
        read = readers.read(tmp_path / "in.jsonl", "text")
        prepare.prepare(read, tmp_path, "other", options, known)
        written = prepared.load_schema(str(tmp_path), "other")
        split = prepared.load(str(tmp_path), "other", "train", written)
        return sorted(split.ids), written.target.stride

    assert ids(schema) == (["1#0", "1#1", "1#2", "2#0", "2#1", "2#2"], 3)
    assert ids(schema, stride=6) == (["1#0", "1#1", "2#0", "2#1"], 6)
    del raw["target"]["stride"]
    assert ids(schema_file.from_dict(raw)) == (["1", "2"], 0)
    for stride, kind, message in (
        (-1, "answer", "target.stride is -1; it must be a whole number from 0"),
        (3, "number", "target.stride is 3, but only answers have windows"),
    ):
        raw["target"] |= {"stride": stride, "kind": kind}
        with pytest.raises(UserError, match=message):
            schema_file.from_dict(raw)
