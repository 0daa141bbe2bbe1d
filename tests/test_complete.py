"""Completing from the command line and from files."""

import json
import os

import pandas
import pytest

from cbert.data import tables
from cbert.errors import UserError
from cbert.inference import query_file
from cbert.inference.queries import Query
from cbert.inference.text_queries import TextQuery
from tests.conftest import lines, refused, run
from tests.text_predictors import assemble


@pytest.mark.soak
def test_the_command(trained, predictor):
    names = predictor.schema.items
    items = json.dumps([names[0], "kilt\x1b[2J"])
    flags = [f"--workdir={trained}", f"--items={items}", '--context={"occasion": "regatta"}']
    done = run("complete", *flags, "--k=3", "--slots=2", f"--exclude={json.dumps(names[1:2])}")
    tables = done.stdout.split("\n\n")
    expected = predictor.complete(
        [names[0], "kilt\x1b[2J"], {"occasion": "regatta"}, 3, 2, names[1:2]
    )
    for slot, (table, ranked) in enumerate(zip(tables, expected.predictions, strict=False), 1):
        head, *rows = table.splitlines()
        assert head.split() == ["slot", str(slot), "probability"]
        assert [row.split("  ")[0] for row in rows] == [one.item for one in ranked]
        assert [row.split()[-1] for row in rows] == [f"{one.probability:.2%}" for one in ranked]
    assert tables[2].splitlines()[:2] == [
        "unknown items: kilt\\x1b[2J",
        "unknown occasion: regatta",
    ]
    assert tables[2].splitlines()[2].startswith("missing: age, gender")
    line = refused("complete", f"--workdir={trained}", "--items=[]", "--context={age: 3}")
    assert line.startswith("error: --context is '{age: 3}', not JSON (Expecting property name")
    assert line.endswith("""; write it as in --context='{"FEATURE": "VALUE"}'\n""")
    line = refused("complete", f"--workdir={trained}", "--items=tea")
    assert line.endswith("""; write it as in --items='["NAME", "NAME"]'\n""")
    line = refused("predict", f"--workdir={trained}", "--text=a")
    assert line == f"error: {trained} is a run of sets; use experiments.complete\n"
    line = refused("explain", f"--workdir={trained}", "--what=features", "--text=a")
    assert line == f"error: {trained} is a run of sets; give --items\n"


def test_a_feature_that_is_unknown_throughout_a_file_is_named(predictor, tmp_path, capsys):
    source, target = tmp_path / "queries.jsonl", tmp_path / "completions.jsonl"
    blue = predictor.schema.feature("colours").values[0]
    several = (("xmas", "easter"), True), (("xmas", "work"), False)
    for occasions, warned in (*several, (("xmas",), False)):  # One is in its own result.
        context = {"age": 9, "colours": [blue, "octarine"]}
        rows = ({"items": [], "context": {"occasion": one, **context}} for one in occasions)
        source.write_text(lines(*rows))
        query_file.predict(predictor, source, target, Query([]))
        error = capsys.readouterr().err
        assert ("the values of occasion are unknown to the model in all" in error) == warned


def test_features_that_are_unknown_or_missing_in_a_file_are_counted(predictor, tmp_path):
    source, target = tmp_path / "queries.jsonl", tmp_path / "completions.jsonl"
    known = predictor.schema.feature("occasion").values[0]
    contexts = [{"occasion": "XMAS", "age": 9}, {"occasion": known.upper()}, {"age": 9}]
    rows = [{"items": [], "context": one} for one in contexts]
    source.write_text(lines(*rows))
    *_, notes = query_file.predict(predictor, source, target, Query([]))
    counted = "unknown: occasion 2; missing: gender 3, colours 3, age 1, occasion 1"
    assert notes.line() == counted
    new = [
        {**row, "items": ["a kilt", "a cap"][: number % 3]} for number, row in enumerate(rows)
    ]
    source.write_text(lines(*new))
    *_, notes = query_file.predict(predictor, source, target, Query([]))
    assert notes.line() == f"unknown items: 2; {counted}"
    gender = predictor.schema.feature("gender").values[0]
    whole = {"occasion": known, "age": 9, "gender": gender, "colours": []}
    source.write_text(lines({"items": [], "context": whole}))
    *_, notes = query_file.predict(predictor, source, target, Query([]))
    assert notes.line() == ""


def test_nothing_is_counted_of_a_context_that_the_model_does_not_read(tmp_path):
    source, target = tmp_path / "queries.jsonl", tmp_path / "predictions.jsonl"
    source.write_text(lines({"text": "red", "context": {"mood": "odd"}}))
    for method, line in (("none", ""), ("gs", "unknown: mood 1; missing: age 1")):
        predictor = assemble("classification", method, model__start_as_plain=False)
        *_, notes = query_file.predict(predictor, source, target, TextQuery())
        assert notes.line() == line


def test_a_file_of_queries(predictor, tmp_path, monkeypatch):
    monkeypatch.setattr(query_file, "BLOCK", 4)
    names = predictor.schema.items
    rows = [
        {"id": f"r{n}", "items": names[n : n + 1 + n % 3], "weight": n, "context": {"age": n}}
        for n in range(9)
    ]
    rows.append({"id": None, "items": [names[0], None], "k": 2, "only": names[3:9]})
    source, target = tmp_path / "queries.jsonl", tmp_path / "completions.jsonl"
    source.write_text(lines(*rows[:3], "", *rows[3:]))
    assert query_file.predict(predictor, source, target, Query([], k=3))[:2] == (10, [])
    completions = [json.loads(line) for line in target.read_text().splitlines()]
    assert [completion["line"] for completion in completions] == [1, 2, 3, *range(5, 12)]
    assert [completion.get("id") for completion in completions] == [
        *(f"r{n}" for n in range(9)),
        None,
    ]
    for row, completion in zip(rows, completions, strict=True):
        expected = predictor.complete(
            row["items"], row.get("context"), row.get("k", 3), only=row.get("only")
        ).to_dict()
        (predictions,), (ranked,) = completion["predictions"], expected["predictions"]
        assert [one["item"] for one in predictions] == [one["item"] for one in ranked]
        for one, other in zip(predictions, ranked, strict=True):
            assert one["probability"] == pytest.approx(other["probability"], rel=1e-4)
        for name in ("unknown_items", "unknown_context", "missing_context"):
            assert completion[name] == expected[name]
    # After a mistake in the file the earlier completions are unchanged.
    before = target.read_text()
    source.write_text(lines(*rows, {"items": "shirt"}))
    with pytest.raises(UserError, match=r"queries\.jsonl:11: items must be a list"):
        query_file.predict(predictor, source, target, Query([]))
    assert target.read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [target.name, source.name]


def test_a_null_of_parquet_is_an_empty_cell_of_csv(predictor, tmp_path):
    """A row without any feature has the context of the flag."""
    names = list(predictor.schema.items[:2])
    rows = pandas.DataFrame({"items": names, "occasion": ["work", None], "age": [30.0, None]})
    rows.to_csv(tmp_path / "in.csv", index=False)
    rows.assign(items=[[name] for name in names]).to_parquet(tmp_path / "in.parquet")
    default, missing = Query([], {"occasion": "party"}, k=1), {}
    for kind in ("csv", "parquet"):
        target = tmp_path / f"{kind}.jsonl"
        query_file.predict(predictor, tmp_path / f"in.{kind}", target, default)
        completions = [json.loads(line) for line in target.read_text().splitlines()]
        missing[kind] = [
            [name for name in ("occasion", "age") if name in completion["missing_context"]]
            for completion in completions
        ]
    assert missing == {"csv": [[], ["age"]], "parquet": [[], ["age"]]}


def test_whole_numbers_as_ids_of_parquet_stay_numbers(predictor, tmp_path):
    """pandas makes them 8.0 where another is missing."""
    rows = pandas.DataFrame({"items": [[], [], []], "id": [7, None, 8]})
    rows.to_parquet(tmp_path / "in.parquet")
    target = tmp_path / "out.jsonl"
    query_file.predict(predictor, tmp_path / "in.parquet", target, Query([], k=1))
    completions = [json.loads(line) for line in target.read_text().splitlines()]
    assert [completion.get("id") for completion in completions] == [7, None, 8]
    assert [type(completion.get("id")) for completion in completions[::2]] == [int, int]


def test_a_dropped_id_is_in_no_result(predictor, tmp_path):
    source, target = tmp_path / "queries.jsonl", tmp_path / "completions.jsonl"
    source.write_text(lines({"items": [predictor.schema.items[0]], "id": [1]}))
    query_file.predict(predictor, source, target, Query([], k=1), drop=("id",))
    assert "id" not in json.loads(target.read_text())


BAD_LINES = {
    "not JSON": ("{oops", "not JSON"),
    "not an object": ([1], "a query must be an object"),
    "no items": ({"context": {}}, "no 'items'"),
    "unknown field": ({"items": ["a"], "contxt": {}}, "unknown field 'contxt'"),
    "bad k": ({"items": ["a"], "k": "many"}, "k is 'many'"),
    "id that is true": ({"items": ["a"], "id": True}, "id is True"),
    "bad id": ({"items": ["a"], "id": ["x"]}, "id is ['x']"),
    "infinite": ('{"items": ["a"], "context": {"age": Infinity}}', "context 'age' is inf"),
}


def test_bad_lines_are_named_or_skipped(predictor, tmp_path):
    source, target = tmp_path / "queries.jsonl", tmp_path / "completions.jsonl"
    good = {"items": ["a"]}
    for row, message in BAD_LINES.values():
        source.write_text(lines(good, row, good))
        with pytest.raises(UserError) as error:
            query_file.predict(predictor, source, target, Query([]))
        assert str(error.value).startswith(f"{source}:2: ")
        assert message in str(error.value)
        assert [path.name for path in tmp_path.iterdir()] == [source.name]
    source.write_text(lines(good, *(row for row, _ in BAD_LINES.values()), good))
    with pytest.raises(UserError, match=r":3: .*\(after 1 skipped rows, the first .*:2: "):
        query_file.predict(predictor, source, target, Query([]), skip_bad_rows=1)
    count, skipped, _ = query_file.predict(
        predictor, source, target, Query([]), skip_bad_rows=8
    )
    assert (count, len(skipped)) == (2, 8)
    assert skipped[0].startswith(f"{source}:2: not JSON")
    assert [json.loads(line)["line"] for line in target.read_text().splitlines()] == [1, 10]


def test_columns_of_other_names_and_a_cell_that_is_no_number(predictor, tmp_path):
    name = predictor.schema.items[3]
    source, target = tmp_path / "queries.csv", tmp_path / "completions.jsonl"
    columns = tables.Columns({"items": "basket"}, separator=";")
    source.write_text(f'basket,age\n"{name};kilt",30\n"{name}",\n')

    def refusal(columns):
        with pytest.raises(UserError) as error:
            query_file.predict(predictor, source, target, Query([]), columns=columns)
        return str(error.value)

    done = query_file.predict(predictor, source, target, Query([]), columns=columns)
    assert done[:2] == (2, [])
    one, other = (json.loads(line) for line in target.read_text().splitlines())
    assert one["unknown_items"] == ["kilt"]
    assert ("age" in one["missing_context"], "age" in other["missing_context"]) == (False, True)
    source.write_text(f'basket,age\n"{name}",30\n"{name}",old\n')
    assert "csv:3: 'age' is 'old', not a number; empty means missing" in refusal(columns)
    assert "no column 'items', only 'basket', 'age'; rename one, or of a file map" in refusal(
        None
    )
    source.write_text("")
    assert "the file is empty; give a header and rows below it" in refusal(None)


def test_files_that_cannot_be_used(predictor, tmp_path):
    source = tmp_path / "queries.jsonl"
    source.write_text("")

    def refusal(*paths, **options):
        with pytest.raises(UserError) as error:
            query_file.predict(predictor, *paths, Query([]), **options)
        return str(error.value)

    completions = tmp_path / "completions.jsonl"
    nothing = f"{source}: no queries; give at least one, with 'items'"
    assert refusal(source, completions) == refusal(source, completions, drop="a") == nothing
    source.write_text("{}\n")
    line = f"no queries but 1 that were skipped, the first {source}:1: no 'items'"
    assert line in refusal(source, completions, skip_bad_rows=1)
    assert "no such file" in refusal(tmp_path / "none.jsonl", tmp_path / "completions.jsonl")
    for same in (source, os.path.relpath(source)):
        assert "not the input" in refusal(source, same)
    for name in ("out.tsv", "out.csv.gz", "OUT.XLSX", "out.text"):
        assert f"{name}: results are not written in this form; give" in refusal(
            source, tmp_path / name
        )
    assert "is not a file; give another path" in refusal(source, tmp_path)
    assert "no such directory" in refusal(source, tmp_path / "none" / "completions.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == [source.name]
