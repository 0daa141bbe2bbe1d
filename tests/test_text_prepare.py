"""Text data sets are prepared and read back as columns."""

import numpy as np
import pytest

import cbert
from cbert.data import in_memory, prepare, prepared, readers
from cbert.data.prepare_options import TextOptions
from cbert.data.summary import format_summary
from cbert.errors import UserError
from cbert.schema import SPECIAL_TOKENS, schema_file
from cbert.tasks.multi_label import MultiLabel
from tests.conftest import refused, run
from tests.test_text_records import write
from tests.test_text_tokens import library_file

PIECES = (*SPECIAL_TOKENS, *"abcdefgh", "##x", ".", "who", "rome", "in")


def make_prepared(folder, rows, overwrite=False, split="train", **options):
    """Prepares rows with the vocabulary `PIECES`; returns schema, summary and a split."""
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    path = write(folder / "in.jsonl", *rows)
    text = TextOptions(**{"vocabulary": str(folder / "vocab.txt"), "max_length": 16, **options})
    read = readers.read(path, "text", target=text.target)
    all_options = prepare.PrepareOptions(kind="text", overwrite=overwrite, text=text)
    _, summary = prepare.prepare(read, folder, "own", all_options)
    schema = prepared.load_schema(str(folder), "own")
    return schema, summary, prepared.load(str(folder), "own", split, schema)


def rows(count=10, **fields):
    """Equal records, the first of them for validation."""
    return [
        {"id": str(n), "text": "a b", "split": "train" if n else "validation", **fields}
        for n in range(count)
    ]


def by_id(split):
    return {name: row for row, name in enumerate(split.ids)}


def test_labels_become_codes_and_what_training_has_not_is_unknown(tmp_path):
    examples = rows()
    for number, label in enumerate(["odd", "x", "y", "y", None]):
        examples[number]["label"] = label
    examples[4]["text"] = "cx . zzz"
    assert make_prepared(tmp_path, examples)[0].max_items == 16
    schema, summary, train = make_prepared(tmp_path, examples, overwrite=True, max_length=None)
    assert (schema.kind, schema.items, schema.max_items) == ("text", PIECES, 6)
    assert (schema.target.kind, schema.target.values) == ("label", ("y", "x"))
    assert (schema.target.counts, schema.target.pairs) == ((2, 1), "none")
    counts = {piece: n for piece, n in zip(schema.items, schema.counts, strict=True) if n}
    assert counts == {"a": 8, "b": 8, "c": 1, "##x": 1, ".": 1, "[UNK]": 1}
    row = by_id(train)
    assert [train.targets["label"][row[name]] for name in "1234"] == [1, 0, 0, -1]
    codes = [schema.codes[piece] for piece in ("[CLS]", "c", "##x", ".", "[UNK]", "[SEP]")]
    assert train.items[row["4"]].tolist() == codes
    assert train.lengths[row["1"]] == 4
    validation = prepared.load(str(tmp_path), "own", "validation", schema)
    assert validation.targets["label"].tolist() == [-1]
    assert summary["target"] == {
        "kind": "label",
        "values": 2,
        "most_frequent": {"y": 2, "x": 1},
        "missing": 6,
        "unknown": 1,
        "unknown_values": ["odd"],
        "cut": 0,
    }
    assert summary["unknown_occurrences"] == 1
    assert (
        "target      label, 2 values; examples without one: 6, with one that training lacks: "
        "1, such as odd\ntraining    y 2, x 1\n"
    ) in format_summary(summary, "leave_out")
    assert schema_file.load(tmp_path / "own/1.0.0/schema.json") == schema


def test_label_lists_and_numbers(tmp_path, capsys):
    examples = rows()
    for number, label in enumerate([["x"], ["x", "y", "x"], [], ["y", "z"], None]):
        examples[number]["label"] = label
    schema, _, train = make_prepared(tmp_path, examples)
    assert schema.target.values == ("y", "x", "z")
    row = by_id(train)
    table = [train.targets["labels"][row[name]].tolist() for name in "1234"]
    assert table == [[1, 1, 0], [0, 0, 0], [1, 0, 1], [-1, -1, -1]]
    examples[0]["label"] = ["y", "odd", "other"]
    schema, _, held_out = make_prepared(tmp_path, examples, overwrite=True, split="validation")
    assert held_out.targets["labels"].tolist() == [[1, 0, 0]]
    task = MultiLabel(None, schema)
    queries = task.queries(held_out, "")
    assert task.table(held_out, queries)["labels"] == [["odd", "other", "y"]]
    predictions = {
        "probability": np.array([[0.9, 0.1, 0.1]]),
        "log_probability": np.zeros(1),
    }
    for one in (queries, task.read_queries(task.table(held_out, queries))):
        assert task.metric_values(predictions, one)["exact_match"].tolist() == [0]
        measured = task.corpus_metrics(predictions, one)(np.ones(1))
        # One label is found, and two are missed, which are one label to macro-F1.
        assert measured["micro_f1"] == pytest.approx(2 * 1 / (2 * 1 + 2))
        assert measured["macro_f1"] == pytest.approx((1 + 0) / 2)
    examples = rows(5)
    for number, label in enumerate([9, 1, 2, 6]):
        examples[number]["label"] = label
    schema, summary, train = make_prepared(tmp_path, examples, overwrite=True)
    warned = capsys.readouterr().err
    assert "the labels are 3 different whole numbers" in warned
    assert "if they are classes, give target=label" in warned
    shown = format_summary(summary, "leave_out")
    assert "target      number, mean 3, deviation 2.16025; examples" in shown
    row = by_id(train)
    assert (schema.target.kind, schema.target.mean) == ("number", 3.0)
    assert schema.target.scale == pytest.approx((14 / 3) ** 0.5)
    numbers = [train.targets["number"][row[name]] for name in "1234"]
    np.testing.assert_array_equal(numbers, np.array([1, 2, 6, np.nan], np.float32))
    examples[0]["label"] = 1e13
    with pytest.raises(UserError, match=r"record '0': 'label' is 1e\+13, too large beside"):
        make_prepared(tmp_path, examples, overwrite=True)
    with pytest.raises(UserError, match="every label is 7; give records with another one"):
        make_prepared(tmp_path, rows(5, label=7), overwrite=True)


def test_where_words_end_is_told_from_their_punctuation_marks(tmp_path):
    words = {"white_space": ["ax.", "b?", ".", "c"], "punctuation": ["ax", ".", "...", "b?"]}
    for word_ends, sentence in words.items():
        examples = rows(words=sentence, tags=["O", "B", "O", "O"])
        schema, _, _ = make_prepared(tmp_path, examples, target="tags", overwrite=True)
        assert schema.target.word_ends == word_ends


def test_tags_stand_at_the_first_piece_of_each_word(tmp_path):
    examples = rows()
    examples[0] |= {"words": ["a", "bx"], "tags": ["O", "B-odd"]}
    examples[1] |= {"words": ["ax", "\u200b", "b.", "cx"], "tags": ["B", "I", "O", "O"]}
    del examples[1]["text"]
    schema, summary, train = make_prepared(tmp_path, examples, max_length=None)
    assert schema.target.values == ("O", "B", "I")
    row = by_id(train)["1"]
    assert [PIECES[c] for c in train.items[row]] == [
        "[CLS]",
        "a",
        "##x",
        "b",
        ".",
        "c",
        "##x",
        "[SEP]",
    ]
    assert train.token_columns["tags"][row].tolist() == [-1, 1, -1, 0, -1, 0, -1, -1]
    assert train.token_columns["word_starts"][row].tolist() == [-1, 0, -1, 2, -1, 3, -1, -1]
    untagged = by_id(train)["2"]
    assert (train.token_columns["word_starts"][untagged] == -1).all()
    validation = prepared.load(str(tmp_path), "own", "validation", schema)
    assert validation.token_columns["tags"][0, :4].tolist() == [-1, 0, -1, -1]
    assert validation.token_columns["word_starts"][0, :4].tolist() == [-1, 0, 1, -1]
    assert summary["target"]["unknown"] == 1


def test_numbers_that_float32_cannot_tell_apart_are_refused(tmp_path):
    examples = rows(label=1.7e9)
    for number, example in enumerate(examples):
        example["label"] += number
    with pytest.raises(UserError, match=r"around 1.7e\+09 with a deviation of \d.* subtract"):
        make_prepared(tmp_path, examples)
    assert not (tmp_path / "own").exists()


def test_the_vocabulary_of_prepared_texts_and_their_whole_schema(tmp_path, capsys):
    first, _, _ = make_prepared(tmp_path, rows(text="Who is in Rome"), lowercase=False)
    schema = tmp_path / "own" / "1.0.0" / "schema.json"
    labelled = [{**row, "label": "xy"[n % 2]} for n, row in enumerate(rows(split="train"))]
    labelled[0]["split"] = "validation"
    second, _, train = make_prepared(tmp_path, labelled, vocabulary=str(schema), overwrite=True)
    assert (second.items, second.tokenizer) == (first.items, first.tokenizer)
    assert not second.tokenizer.lowercase
    assert sorted(second.target.values) == ["x", "y"]
    assert list(train.targets) == ["label"]
    records = readers.read(write(tmp_path / "in.jsonl", *labelled), "text")
    options = prepare.PrepareOptions(kind="text")
    prepare.prepare(records, tmp_path, "other", options, first)
    warned = capsys.readouterr().err
    assert "the records have label, and the schema has no target" in warned


def test_one_label_alone_is_refused(tmp_path):
    with pytest.raises(UserError, match="every list of labels is empty; give records with"):
        make_prepared(tmp_path, rows(label=[]))
    with pytest.raises(UserError, match="every label is 'x'; give records with another one"):
        make_prepared(tmp_path, rows(label="x"))
    with pytest.raises(UserError, match="every tag is 'O'; give records with another one"):
        make_prepared(tmp_path, rows(words=["a"], tags=["O"]))


def test_several_targets_ask_for_a_choice(tmp_path):
    examples = rows(words=["a"], tags=["O"], label="x")
    examples[2] |= {"tags": ["B"], "label": "y"}
    with pytest.raises(UserError, match="several targets; choose one of target=label, tags"):
        make_prepared(tmp_path, examples)
    assert not (tmp_path / "own").exists()
    with pytest.raises(UserError, match="target is 'answer'; the training records have label"):
        make_prepared(tmp_path, examples, target="answer")
    schema, _, train = make_prepared(tmp_path, examples, target="tags")
    assert (schema.target.kind, list(train.targets)) == ("tags", [])
    schema, _, train = make_prepared(tmp_path, examples, target="none", overwrite=True)
    assert schema.target is None
    assert set(train.columns) == {"items", "context", "segments"}


def test_a_batch_cuts_every_column_of_tokens(tmp_path):
    examples = rows(words=["a", "bx"], tags=["O", "B"])
    examples[3] |= {"words": list("abcdefg"), "tags": ["O"] * 7}
    _, _, train = make_prepared(tmp_path, examples, max_length=None)
    assert train.items.shape == (9, 9)
    batch = in_memory.gather_rows(train.columns, np.array([4, 0]), 5)
    assert {name: column.shape for name, column in batch.items() if name != "context"} == {
        "items": (2, 5),
        "segments": (2, 5),
        "tags": (2, 5),
        "word_starts": (2, 5),
    }
    labels = np.arange(9)
    batch = in_memory.gather_rows({**train.columns, "label": labels}, np.array([4, 0]), 5)
    assert batch["label"].tolist() == [4, 0]


def test_the_cache_holds_texts_targets_and_token_columns(tmp_path):
    examples = rows(text="who", text_b="in rome", answer={"text": "rome", "start": 3})
    schema, _, train = make_prepared(tmp_path, examples)
    assert len(list((tmp_path / "own/1.0.0/columns").iterdir())) == 1
    again = prepared.load(str(tmp_path), "own", "train", schema)
    assert (again.ids, again.texts) == (train.ids, train.texts)
    assert set(again.columns) == {"items", "context", "segments", "start", "end"}
    for name, column in train.columns.items():
        if name != "context":
            assert again.columns[name].dtype == column.dtype
            np.testing.assert_array_equal(again.columns[name], column)
    assert train.targets["start"].tolist() == [4] * 9


def test_a_schema_of_items_reads_no_texts_and_the_reverse(tmp_path, data_dir, schema):
    text_schema, _, _ = make_prepared(tmp_path, rows())
    with pytest.raises(UserError, match="hold texts; the schema is one of the kind 'set'"):
        prepared.load(str(tmp_path), "own", "train", schema)
    with pytest.raises(UserError, match="hold items; the schema is one of the kind 'text'"):
        prepared.load(data_dir, "small", "train", text_schema)


def test_flags_of_texts_and_of_items_do_not_mix(tmp_path):
    path = write(tmp_path / "in.jsonl", *rows())

    def refusal(*flags):
        return refused(
            "prepare", f"--input={path}", "--name=own", f"--data_dir={tmp_path}", *flags
        )

    refused_items = refusal("--kind=text", "--max_items=3")
    assert "max_items can be given for sets and sequences only, and the" in refused_items
    assert "pairs can be given for texts only" in refusal("--pairs=next")
    library_file(tmp_path / "tokenizer.json", lowercase=True)
    for given in (tmp_path, tmp_path / "tokenizer.json"):
        assert "tokenizer.json: the file loses capital letters; leave lowercase out" in refusal(
            "--kind=text", f"--vocabulary={given}", "--nolowercase"
        )
    assert "x.json: no such vocabulary" in refusal(
        "--kind=text", f"--vocabulary={tmp_path}/x.json"
    )
    assert "--max_length=513" in refusal("--kind=text", "--max_length=513")
    assert not (tmp_path / "own").exists()


def test_a_schema_gives_labels_of_csv_their_kind(tmp_path):
    """Prepared again by its own schema, a number in CSV is a number."""
    rows = [(f"word{n % 7} other{n % 5}", n / 10, f"g{n // 3}") for n in range(90)]
    records = [{"text": text, "label": label, "group": who} for text, label, who in rows]
    options = cbert.PrepareOptions("text", text=cbert.TextOptions(vocabulary_size=100))
    first = cbert.prepare(records, "first", tmp_path, options)
    table = "\n".join(["text,rating,who", *(",".join(map(str, row)) for row in rows)])
    (tmp_path / "in.csv").write_text(table)
    columns = "--columns=label:rating,group:who"
    source, schema = f"--input={tmp_path}/in.csv", f"--schema={first.directory}/schema.json"
    run("prepare", source, columns, schema, f"--data_dir={tmp_path}", "--name=again")
    again = prepared.load(
        str(tmp_path), "again", "train", prepared.load_schema(tmp_path, "again")
    )
    once = prepared.load(
        str(tmp_path), "first", "train", prepared.load_schema(tmp_path, "first")
    )
    assert sorted(again.targets["number"]) == sorted(once.targets["number"])


def test_existing_data_are_refused_before_records_are_read(tmp_path):
    (tmp_path / "own" / "1.0.0").mkdir(parents=True)
    untouched = iter([{"items": ["a"]}])
    with pytest.raises(UserError, match="exists; give another name, or overwrite=true"):
        cbert.prepare(untouched, "own", tmp_path)
    assert next(untouched) == {"items": ["a"]}
