"""Texts through the command: one of them, a file of them, and what it refuses."""

import json

import numpy as np
import pandas
import pytest

import cbert
from cbert.errors import UserError
from cbert.inference import query_file
from cbert.inference.text_queries import RegressionPrediction, TextQuery
from experiments import predict
from tests.conftest import lines, refused, run
from tests.text_predictors import assemble, save


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts") / "classification"
    save(assemble("classification"), folder)
    return folder


@pytest.mark.soak
def test_the_command_predicts_a_file_and_the_loaded_run_gives_the_same(workdir, tmp_path):
    rows = [
        {"id": "one", "text": "Please, 7 seats", "context": {"mood": "cold"}, "label": "x"},
        {"words": ["red", "table"], "k": 1},
        {"text": "red " * 20, "text_b": "is?", "context": {"mood": "odd"}},
    ]
    source, target = tmp_path / "queries.jsonl", tmp_path / "predictions.jsonl"
    source.write_text(lines(*rows, {"text": ""}))
    done = run(
        "predict",
        f"--workdir={workdir}",
        "--checkpoint=last",
        f"--input={source}",
        f"--output={target}",
        '--context={"age": 30}',
        "--skip_bad_rows=1",
    )
    assert f"skipped {source}:4: text is empty" in done.stdout
    counted = "unknown: mood 1; missing: age 2, mood 1; cut 1"
    assert done.stdout.endswith(f"3 queries predicted in {target}\n{counted}\n")
    written = [json.loads(line) for line in target.read_text().splitlines()]
    assert [one["line"] for one in written] == [1, 2, 3]
    assert [one.get("id") for one in written] == ["one", None, None]
    assert [len(one["labels"]) for one in written] == [3, 1, 3]
    assert [one["cut"] for one in written] == [False, False, True]
    assert [one["missing_context"] for one in written] == [["age"], ["mood"], ["age"]]
    assert written[2]["unknown_context"] == {"mood": ["odd"]}
    loaded = cbert.load(workdir, "last", batch_sizes=(4,))
    assert loaded.step == 3
    for predictor in (loaded, assemble("classification")):
        result = predictor.predict(rows[0]["text"], rows[0]["context"])
        for one, other in zip(result.labels, written[0]["labels"], strict=True):
            assert one.label == other["label"]
            assert one.probability == pytest.approx(other["probability"], abs=1e-5)


def test_refusals(workdir, tmp_path):
    line = refused("complete", f"--workdir={workdir}", "--checkpoint=last", "--items=[]")
    assert line == (
        f"error: {workdir} is a run of texts (classification); use experiments.predict\n"
    )
    line = refused("predict", f"--workdir={workdir}")
    assert line == "error: give one of --text=TEXT and --input=FILE\n"
    line = refused("predict", f"--workdir={workdir}", "--text=a", "--drop=age")
    assert line == "error: --drop belongs to a file of queries; give --input with it\n"
    line = refused("predict", f"--workdir={workdir}", "--text=a", '--words=["b"]')
    assert line == "error: give one of --text and --words\n"
    line = refused("predict", f"--workdir={workdir}", "--input=a", "--output=b", "--k=0")
    assert line == "error: flag --k=0: 0 is not a positive integer\n"
    predictor = assemble("classification")
    source, target = tmp_path / "queries.jsonl", tmp_path / "predictions.jsonl"
    for row, message in [
        ({"items": ["a"]}, "unknown field 'items'"),
        ({"text": "a", "mood": "warm"}, "; a feature belongs in context"),
        ({"context": {}}, "no 'text' or 'words'; give a text"),
        ({"text": "a", "k": "x"}, "k is 'x'"),
    ]:
        source.write_text(lines({"text": "a"}, row))
        with pytest.raises(UserError) as error:
            query_file.predict(predictor, source, target, TextQuery())
        assert str(error.value).startswith(f"{source}:2: ")
        assert message in str(error.value)
        assert not target.exists()


def test_what_a_line_lacks_is_that_of_the_command(tmp_path):
    predictor = assemble("classification")
    target, defaults = tmp_path / "predictions.jsonl", TextQuery(None, {"age": 30}, "is?", k=1)

    def predicted(name, text, **options):
        source = tmp_path / name
        source.write_text(text)
        assert query_file.predict(predictor, source, target, defaults, **options)[1] == []
        return [json.loads(line) for line in target.read_text().splitlines()]

    whole = predictor.predict("red", {"age": 30}, text_b="is?").labels[0].probability
    alone = predictor.predict("red", {"age": 30}).labels[0].probability
    assert abs(whole - alone) > 1e-3
    for one in predicted("in.csv", "id,text,text_b\n1,red,\n2,red,is?\n"):
        assert one["missing_context"] == ["mood"]
        assert one["labels"][0]["probability"] == pytest.approx(whole, abs=1e-6)
    nulls = lines({"text": "red", "text_b": None, "context": None, "k": 3})
    (one,) = predicted("in.jsonl", nulls)
    assert (one["missing_context"], len(one["labels"])) == (["mood"], 3)
    (one,) = predicted("in.jsonl", lines({"text": "red", "context": {}}))
    assert one["missing_context"] == ["mood", "age"]
    others = lines({"text": "red", "note": 1, "context": {"shop": 3, "age": 2}})
    (one,) = predicted("in.jsonl", others, drop=("note", "shop"))
    assert one["missing_context"] == ["mood"]
    refusals = {"note": "context feature 'shop'", "shop": "unknown field 'note'; drop it"}
    for dropped, message in refusals.items():
        with pytest.raises(UserError, match=message):
            predicted("in.jsonl", others, drop=(dropped,))


def test_nothing_is_said_of_labels_that_queries_happen_to_have(tmp_path, capsys):
    predictor, source = assemble("classification"), tmp_path / "in.csv"
    cells = "".join(f"red,{n}|{n + 1}x\n" for n in range(6))
    source.write_text(f"text,label\n{cells}")
    target = tmp_path / "predictions.jsonl"
    assert query_file.predict(predictor, source, target, TextQuery())[0] == 6
    assert "label" not in capsys.readouterr().err


def test_unknown_columns_are_refused_at_the_header_and_at_once(tmp_path):
    predictor, target = assemble("classification"), tmp_path / "predictions.jsonl"
    table = pandas.DataFrame(
        {"text": ["red"] * 2, "mod": "cold", "shop": 1, "zip": [None, "a"]}
    )
    table.to_csv(tmp_path / "in.csv", index=False)
    table.to_parquet(tmp_path / "in.parquet")
    nested = table[["mod", "shop", "zip"]].to_dict("records")
    pandas.DataFrame({"text": table.text, "context": nested}).to_parquet(
        tmp_path / "of.parquet"
    )
    for name in ("in.csv", "in.parquet", "of.parquet"):
        source = tmp_path / name
        with pytest.raises(UserError) as error:
            query_file.predict(predictor, source, target, TextQuery(), skip_bad_rows=9)
        assert str(error.value) == (
            f"{source}: the model knows 3 of the columns neither as fields nor as features "
            "(did you mean 'mood' by 'mod'?); rename them, or give drop=mod,shop,zip"
        )
        with pytest.raises(UserError, match="or give drop=zip,mod,shop"):
            query_file.predict(predictor, source, target, TextQuery(), drop=("zip",))
        drop = ("mod", "shop", "zip")
        assert query_file.predict(predictor, source, target, TextQuery(), drop=drop)[0] == 2


def test_what_is_dropped_must_be_in_the_file(tmp_path):
    predictor, target = assemble("classification"), tmp_path / "predictions.jsonl"
    defaults = TextQuery(context={"age": 30})

    def predicted(name, text, *drop):
        source = tmp_path / name
        source.write_text(text)
        query_file.predict(predictor, source, target, defaults, drop=drop)
        return [json.loads(line)["missing_context"] for line in target.read_text().splitlines()]

    table = "id,text,mood,shop,note\n1,red,cold,['b'],\n2,red,,c,\n"
    assert predicted("in.csv", table, "shop", "note", "id") == [["age"], ["mood"]]
    rows = lines({"text": "red", "context": {"mood": "cold", "shop": 3}}, {"text": "red"})
    assert predicted("in.jsonl", rows, "shop") == [["age"], ["mood"]]
    nested = pandas.DataFrame({"text": ["red"], "context": [{"mood": "cold"}]})
    nested.to_parquet(tmp_path / "in.parquet")
    query_file.predict(predictor, tmp_path / "in.parquet", target, defaults, drop=("context",))
    assert json.loads(target.read_text())["missing_context"] == ["mood"]
    target.unlink()
    for name, text, drop, message in (
        (
            "in.csv",
            "id,text,shop\n1,red,b\n",
            "shops",
            "did you mean shop? It must be one of id, text, ",
        ),
        ("in.jsonl", rows, "id", "it must be one of text, context, mood, shop"),
    ):
        with pytest.raises(UserError) as error:
            predicted(name, text, "shop", drop)
        assert f"{tmp_path / name}: drop names {drop!r}; {message}" in str(error.value)
        assert not target.exists()


SHOWN = {
    "masked_language": ("a [MASK] [MASK]", "is", ("[MASK] 2", "the second text follows: ")),
    "classification": ("red \x1b[31m", None, ("label", "missing: mood, age")),
    "multi_label": ("is", None, ("label", "probability", "\n\nhold, above one half: x\n\n")),
    "regression": ("red", None, ("missing: mood, age",)),
    "tagging": ("7 seats " * 8, None, ("word", "the text is longer than")),
    "span": ("is", "red seats", ("answer", "(none)")),
}


@pytest.mark.parametrize("task", SHOWN)
def test_what_a_person_reads(task):
    text, text_b, parts = SHOWN[task]
    shown = predict.format_prediction(assemble(task).predict(text, text_b=text_b))
    for part in parts:
        assert part in shown
    assert all(line.isprintable() for line in shown.splitlines())


@pytest.mark.parametrize("number", [1700000032.0, 1812.7645263671875])
def test_a_number_has_all_its_digits(number):
    prediction = RegressionPrediction(
        number=number, unknown_context={}, missing_context=[], cut=False
    )
    assert np.float32(predict.format_prediction(prediction)) == number


def test_that_no_label_holds_is_said():
    shown = predict.format_prediction(assemble("multi_label").predict("red"))
    assert "\n\nhold, above one half: none\n" in shown
