"""Sentences of a document are joined to pairs, and packed."""

import collections
import json

import pytest

from cbert.data.hashing import uniform
from cbert.errors import UserError
from tests.test_text_prepare import make_prepared, rows


def documents(count, length, split="train"):
    return [
        {
            "id": f"{split}{d}-{n}",
            "group": f"{split}{d}",
            "text": f"a b c. {d} {n}",
            "split": split,
        }
        for n in range(length)
        for d in range(count)
    ]


def test_pairs_are_counted_exactly(tmp_path):
    """Each sentence but the last of a document is a first one; its hash decides its second."""
    examples = documents(40, 6) + documents(2, 6, "validation")
    schema, summary, train = make_prepared(tmp_path, examples, pairs="next")
    assert summary["examples"] == {"train": 200, "validation": 10}
    assert schema.target.values == ("is_next", "not_next")  # As in BERT, whatever their counts.
    is_next = sum(uniform(f"next train{d}-{n}") < 0.5 for d in range(40) for n in range(5))
    assert schema.target.counts == (is_next, 200 - is_next)
    assert 80 < is_next < 120
    others = collections.Counter()
    for name, text, label in zip(
        train.ids, map(json.loads, train.texts), train.targets["label"], strict=True
    ):
        document, number = (int(part) for part in name.removeprefix("train").split("-"))
        assert text["text"] == f"a b c. {document} {number}"
        _, _, _, other, following = text["text_b"].split()
        assert (label == 0) == (uniform(f"next {name}") < 0.5)
        if label == 0:
            assert (int(other), int(following)) == (document, number + 1)
        else:
            assert int(other) != document
            others[other] += 1
    assert len(others) > 30
    alone = documents(1, 6) + documents(1, 6, "validation")
    with pytest.raises(UserError, match="pairs=next needs two documents in each split"):
        make_prepared(tmp_path, alone, pairs="next", overwrite=True)
    short = documents(3, 6) + documents(3, 1, "validation")
    with pytest.raises(UserError, match="the validation split has no pairs, because none of"):
        make_prepared(tmp_path, short, pairs="next", overwrite=True)


def test_documents_that_packing_joins_whole_have_no_pairs(tmp_path):
    examples = documents(3, 4) + documents(3, 4, "validation")
    message = "the train split has no pairs, .* where pack joined them give max_length=N,"
    with pytest.raises(UserError, match=message):
        make_prepared(tmp_path, examples, pairs="next", pack=True, max_length=99)
    _, summary, _ = make_prepared(tmp_path, examples, pairs="next", pack=True, max_length=16)
    assert summary["examples"] == {"train": 9, "validation": 9}


def test_packing_joins_sentences_of_a_document_a_context_and_a_weight(tmp_path):
    """Fourteen tokens fit; a sentence has four, then eight, with its number unknown six."""
    examples = documents(2, 5) + documents(2, 1, "validation")
    for example in examples[:10]:
        example["context"] = {"party": "x" if example["id"] < "train1-3" else "y"}
        example["weight"] = 2.0 if "train0-3" <= example["id"] < "train1" else 1.0
    schema, summary, train = make_prepared(tmp_path, examples, pack=True)
    packed = {
        name: json.loads(text)["text"]
        for name, text in zip(train.ids, train.texts, strict=True)
    }
    assert packed == {
        "train0-0": "a b c. 0 0 a b c. 0 1",
        "train0-2": "a b c. 0 2",
        "train0-3": "a b c. 0 3 a b c. 0 4",
        "train1-0": "a b c. 1 0 a b c. 1 1",
        "train1-2": "a b c. 1 2",
        "train1-3": "a b c. 1 3 a b c. 1 4",
    }
    weights = dict(zip(train.ids, train.weights.tolist(), strict=True))
    assert weights == {name: 1 + (name == "train0-3") for name in packed}
    assert (summary["longer"], schema.max_items) == (0, 16)
    with pytest.raises(UserError, match="record '0' has 'label'; pack and pairs take records"):
        make_prepared(tmp_path, rows(label="x"), pack=True, overwrite=True)


def test_packed_texts_fill_what_a_model_reads(tmp_path):
    """Three tokens and four are seven; a pair of seven and seven needs 17 tokens."""
    examples = [
        {**example, "text": ["a b c", "d e f g"][int(example["id"][-1]) % 2]}
        for split in ("train", "validation")
        for example in documents(6, 4, split)
    ]
    for max_length, options, count in (
        (8, {}, 24),
        (9, {}, 12),
        (16, {"pairs": "next"}, 18),
    ):
        options |= {"max_length": max_length, "pack": True, "overwrite": True}
        _, summary, _ = make_prepared(tmp_path, examples, **options)
        assert (summary["examples"]["train"], summary["longer"]) == (count, 0)
