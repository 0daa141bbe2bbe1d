"""What `prepare` points out in texts and their labels, and what it advises."""

import json
import shlex
import shutil

import pytest
import tokenizers

import cbert
from cbert.data import builder
from cbert.data.summary import format_summary
from cbert.errors import UserError
from cbert.training import config as config_lib
from cbert.training import suggest
from experiments import prepare_advice
from tests.bert_reference import RANDOM_BERT
from tests.conftest import refused, run
from tests.test_text_prepare import PIECES, make_prepared, rows
from tests.test_text_records import write


def test_labels_that_differ_in_spaces_or_capitals_are_pointed_out(tmp_path, capsys):
    examples = rows()
    for n, example in enumerate(examples):
        example["label"] = ("pos", "neg", "pos ", "Neg")[n % 4]
    schema, _, _ = make_prepared(tmp_path, examples)
    assert len(schema.target.values) == 4
    assert "2 pairs of labels differ in spaces or capital letters" in capsys.readouterr().err
    for n, example in enumerate(examples):
        example["label"] = ("pos", "Pos")[n % 2]
    make_prepared(tmp_path, examples, overwrite=True)
    assert "1 pair of labels differs in spaces" in capsys.readouterr().err


def test_up_to_three_labels_that_training_lacks_are_named(tmp_path):
    examples = rows(20)
    for n, example in enumerate(examples):
        held_out = n >= 14
        example["label"] = f"new{n % 4}" if held_out else "xy"[n % 2]
        example["split"] = "validation" if held_out else "train"
    _, summary, _ = make_prepared(tmp_path, examples)
    assert summary["target"]["unknown_values"] == ["new2", "new3", "new0"]
    text = format_summary(summary, "leave_out")
    assert "with one that training lacks: 6, such as new2, new3, new0\n" in text


def test_words_for_what_is_missing_are_pointed_out(tmp_path, capsys):
    examples = rows(20, context={"plan": "free", "country": "NA", "note": ["None"]})
    for n, example in enumerate(examples):
        example["label"] = ("x", "NaN", "y", "z")[n % 4]
    examples[3]["text"] = "NaN"
    examples[5] |= {"text": "Nan a", "context": {"plan": "<NA>", "note": ["a"]}}
    make_prepared(tmp_path, examples)
    warnings = capsys.readouterr().err.splitlines()
    advice = (
        "; where it stands for a missing one, write null in JSON, and in CSV an empty cell "
        '(pandas: na_rep=""), or give missing=WORD'
    )
    assert [line for line in warnings if "missing one" in line] == [
        f"warning: {word} is a value like any other (records with it: {found}){advice}"
        for word, found in (("'NaN'", "'label' 5, 'text' 1"), ("'<NA>'", "'plan' 1"))
    ]


def test_training_texts_with_an_added_token_are_pointed_out(tmp_path, capsys):
    examples = rows(4)
    for number, text in enumerate(("a <url>", "a <url> <url>", "<url>x [SEP]", "a <user>")):
        examples[number]["text"] = text
    added = [{"content": text} for text in ("[SEP]", "<user>", "<url>", "<no>")]
    expected = (
        "the training texts hold tokens that were added to the vocabulary (texts with it: "
        "'<url>' 2, '<user>' 1); they are cut into pieces like any other text, so that the "
        "model reads other tokens there than in transformers\n"
    )
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"added_tokens_decoder": dict(enumerate(added))}))
    make_prepared(tmp_path, examples)
    assert f"warning: {tmp_path}/vocab.txt: {expected}" in capsys.readouterr().err
    codes = {piece: code for code, piece in enumerate(PIECES)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordPiece(codes, unk_token="[UNK]"))
    inner.normalizer = tokenizers.normalizers.BertNormalizer()
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    inner.add_tokens(["<user>", "<url>", "<no>"])
    inner.save(f"{tmp_path}/tokenizer.json")
    options = {"overwrite": True, "vocabulary": f"{tmp_path}/tokenizer.json"}
    make_prepared(tmp_path, examples, **options)
    assert f"warning: {tmp_path}/tokenizer.json: {expected}" in capsys.readouterr().err
    make_prepared(tmp_path, rows(4), **options)
    assert "added" not in capsys.readouterr().err


def test_labels_that_are_numbers_are_pointed_out(tmp_path, capsys):
    for number, wanted in (
        (lambda n: n % 3, ""),
        (lambda n: (0.5, 1, "nan")[n % 3], ""),  # It is none that target=number reads.
        (lambda n: n % 3 / 2, "3 different numbers"),
    ):
        examples = rows()
        for n, example in enumerate(examples):
            example["label"] = str(number(n))
        make_prepared(tmp_path, examples, overwrite=True)
        error = capsys.readouterr().err
        assert wanted in error
        assert bool(wanted) == ("for a regression give target=number" in error)
        make_prepared(tmp_path, examples, overwrite=True, target="label")
        assert "different numbers" not in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["label", "number"])
def test_the_target_says_whether_numbers_are_classes(tmp_path, capsys, kind):
    """Whole numbers that pandas made floats, because one was missing, have their own names."""
    for make in (str, float, int):
        examples = [{**row, "label": make(n % 3)} for n, row in enumerate(rows())]
        if make is str:
            examples[0]["label"] = " 1e0 " if kind == "number" else "1"
        schema, _, _ = make_prepared(tmp_path, examples, overwrite=True, target=kind)
        target = schema.target
        assert target.kind == kind
        if kind == "label":
            assert set(target.values) == {"0", "1", "2"}
        else:
            assert target.mean == pytest.approx(1.0, abs=0.2)
    assert "different" not in capsys.readouterr().err


def test_records_for_a_run_are_read_as_its_target(tmp_path):
    examples = [{**row, "label": n % 3} for n, row in enumerate(rows())]
    make_prepared(tmp_path, examples, target="label")
    schema = builder.directory(tmp_path, "own") / "schema.json"
    flags = [f"--input={tmp_path / 'in.jsonl'}", f"--data_dir={tmp_path}", "--name=again"]
    done = run("prepare", f"--schema={schema}", *flags)
    assert "with one that training lacks: 0" in done.stdout


def test_a_label_of_another_kind_than_the_schema_has_is_named_and_can_be_skipped(tmp_path):
    make_prepared(tmp_path, [{**row, "label": "xy"[n % 2]} for n, row in enumerate(rows())])
    write(tmp_path / "new.jsonl", *rows(3, label="x"), {"text": "a", "label": ["x"]})
    schema = builder.directory(tmp_path, "own") / "schema.json"
    flags = [f"--input={tmp_path / 'new.jsonl'}", f"--data_dir={tmp_path}", "--name=again"]
    needs = "the target needs a string; write one, or choose another target"
    wrong = f"{tmp_path}/new.jsonl:4: 'label' is ['x'], and {needs}"
    assert refused("prepare", f"--schema={schema}", *flags) == f"error: {wrong}\n"
    printed = run("prepare", f"--schema={schema}", *flags, "--skip_bad_rows=1").stdout
    assert printed.startswith(f"skipped {wrong}\n")


def test_a_label_that_is_no_number_is_named(tmp_path):
    examples = [{**row, "id": f"r{n}", "label": f"{n}"} for n, row in enumerate(rows())]
    for label, expected in (
        ("7_0", "in.jsonl:8: 'label' is '7_0', and a target of numbers needs a number; write"),
        ("1e300", "in.jsonl:8: 'label' is 1e[+]300; use a string"),
    ):
        examples[7]["label"] = label
        with pytest.raises(UserError, match=expected):
            make_prepared(tmp_path, examples, target="number")


def test_labels_of_csv_that_are_no_lists_are_refused_with_the_flag_that_splits_them(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("text,label\n" + "a b,x|y\n" * 60)
    flags = ["--kind=text", f"--input={path}", f"--data_dir={tmp_path}", "--name=own"]
    error = refused("prepare", *flags, "--target=labels")
    needs = "a list of strings; write one, in CSV with --multi_valued=label, or choose another"
    assert error == f"error: {path}:2: 'label' is 'x|y', and the target needs {needs} target\n"
    done = run("prepare", *flags, "--target=labels", "--multi_valued=label")
    assert "target      labels, 2 values" in done.stdout


def test_a_pretrained_folder_gives_its_vocabulary_and_is_advised(tmp_path):
    labelled = [{**row, "label": "xy"[n % 2]} for n, row in enumerate(rows(40))]
    path = write(tmp_path / "in.jsonl", *labelled)
    folder = tmp_path / "bert"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    command = [
        *("prepare", "--kind=text", f"--input={path}", f"--data_dir={tmp_path}", "--overwrite"),
        *("--name=own", f"--vocabulary={folder}"),
    ]
    assert "hf:" not in run(*command).stdout
    shutil.copy(RANDOM_BERT / "model.safetensors", folder)
    advised = run(*command).stdout.splitlines()[-1]
    assert f"config.py:classification,hf:{folder} --config.model.method=none" in advised
    error = refused(*command[:-1], f"--vocabulary={tmp_path}")
    assert f"{tmp_path}/vocab.txt: no such vocabulary" in error


@pytest.mark.parametrize(
    ("target", "argument"),
    [
        (lambda label: {"text": "a b", "label": label}, "masked_language"),
        (lambda label: {"text": "a b", "label": [label]}, "multi_label"),
        (lambda label: {"words": ["a", "b"], "tags": [label, label]}, "tagging"),
    ],
)
def test_only_labels_of_pairs_make_a_model_of_sentence_pairs(tmp_path, target, argument):
    examples = [
        {"split": row["split"], **target(("is_next", "not_next")[n % 2])}
        for n, row in enumerate(rows(20))
    ]
    schema, summary, _ = make_prepared(tmp_path, examples)
    path, suggested, _ = suggest.write(tmp_path, "own", summary)
    assert suggested == argument
    config = cbert.read_config(f"{path}:masked_language")
    head = config_lib.build_model(config, schema).head
    assert head.next_sentence == (argument == "masked_language")


def test_the_commands_that_are_advised_can_be_copied(tmp_path, monkeypatch):
    """They know the methods of one's own, and a folder whose name has a space."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    examples = [{**row, "context": {"plan": "ab"[n % 2]}} for n, row in enumerate(rows(20))]
    _, summary, _ = make_prepared(folder, examples)
    monkeypatch.setenv("CBERT_METHODS", "my methods.py")
    _, first, _, second = prepare_advice.lines(str(folder), "own", "", summary)
    for line, method in ((first, "gs"), (second, "none")):
        assert shlex.split(line) == [
            *("CBERT_METHODS=my methods.py", "python", "-m", "experiments.train"),
            f"--config={folder}/own/config.py:masked_language",
            *(f"--config.model.method={method}", f"--workdir=runs/own/{method}"),
        ]


def test_weights_are_advised_only_where_a_vocabulary_was_given(tmp_path, monkeypatch):
    """Those in the directory of the command are not beside a vocabulary called `train`."""
    _, summary, _ = make_prepared(tmp_path, rows(20))
    (tmp_path / "model.safetensors").touch()
    monkeypatch.chdir(tmp_path)
    advised = prepare_advice.lines(str(tmp_path), "own", "train", summary)
    assert len(advised) == 2
    assert advised[-1].endswith("--workdir=runs/own/none")


def test_texts_without_a_known_word_are_pointed_out(tmp_path, capsys):
    """A word of 101 letters is [UNK], and one of 100 is not."""
    for count, expected in ((3, True), (2, False)):
        examples = rows(20)
        for example in examples[:count]:
            example["text"] = "c" + 100 * "x"
        examples[count]["text"] = "c" + 99 * "x"
        make_prepared(tmp_path, examples, overwrite=True)
        warned = capsys.readouterr().err
        assert (f"{count} of 20 texts are [UNK] alone, so that" in warned) == expected


def test_a_cut_text_points_to_a_larger_length(tmp_path):
    reads = "a model reads the first {} tokens of a text"
    for text, line in (
        (
            "a " * 15,
            f"1 examples were cut; {reads.format(16)}; a larger max_length reads more\n",
        ),
        ("a " * 14, f"0 examples were cut; {reads.format(16)}\n"),
    ):
        summary = make_prepared(tmp_path, [*rows(), {"text": text}], overwrite=True)[1]
        assert f"longer      {line}" in format_summary(summary, "leave_out")
