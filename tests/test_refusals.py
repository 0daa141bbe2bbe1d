"""Every kind of mistake in records, files, schemas and configs: one line, exit code 2."""

import gzip
import json
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT, lines, refused, run

GOOD = {"items": ["a", "b"], "context": {"day": "mon"}}

BAD_ROWS = {
    "not JSON": ("{oops", "not JSON"),
    "not an object": ("[1, 2]", "a record must be an object"),
    "no items": ({"context": {}}, "of strings, or of a file map it with --columns=items:NAME"),
    "empty set": ({"items": []}, "'items' is empty"),
    "item not a string": ({"items": ["a", 3]}, "item 3 is not a string"),
    "repeat in a set": ({"items": ["a", "b", "a"]}, "item 'a' occurs twice in a set"),
    "kind changes": ({"items": ["a"], "context": {"day": 3}}, "in line 1; make all its values"),
    "not a number": ('{"items": ["a"], "context": {"x": NaN}}', "context 'x' is nan"),
    "infinite": ('{"items": ["a"], "context": {"x": 1e999}}', "context 'x' is inf"),
    "mixed list": (
        {"items": ["a"], "context": {"x": [1, "a"]}},
        "strings or numbers, not both",
    ),
    "nested": ({"items": ["a"], "context": {"x": {"y": 1}}}, 'flatten it: write "x_y": 1'),
    "nested twice": (
        {"items": ["a"], "context": {"x": {"y": {"z": "b"}}}},
        "flatten it: write \"x_y_z\": 'b'",
    ),
    "an empty object": ({"items": ["a"], "context": {"x": {}}}, "use a string, a number"),
    "bad split": ({"items": ["a"], "split": "dev"}, "split is 'dev'"),
    "half a surrogate": ('{"items": ["\\ud800"]}', "not valid Unicode"),
    "too many digits": ('{"items": ["a"], "context": {"x": ' + "9" * 400 + "}}", "finite"),
    "rank of zero": (
        {"items": ["a"], "reference": {"log_probability": [-1.0], "rank": [0]}},
        "reference 'rank' holds 0",
    ),
    "deep nesting": ("[" * 100_000, "not JSON"),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_row_is_named_and_nothing_is_written(tmp_path, name):
    row, message = BAD_ROWS[name]
    path = tmp_path / "in.jsonl"
    path.write_text(lines(GOOD, row, GOOD))
    error = refused("prepare", f"--input={path}", "--name=bad", f"--data_dir={tmp_path}/data")
    assert f"{path}:2: " in error
    assert message in error
    assert not (tmp_path / "data" / "bad").exists()


def other_features(**context):
    return [
        {"items": ["a", "b"], "context": {"day": "mon" if n % 2 else "tue", **context}}
        for n in range(30)
    ]


def test_bad_files(tmp_path):
    def refusal(path, *flags):
        return refused(
            "prepare", f"--input={path}", "--name=bad", f"--data_dir={tmp_path}/data", *flags
        )

    assert "no such file" in refusal(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    assert "no records" in refusal(tmp_path / "empty.jsonl")
    whole = gzip.compress(lines(*other_features()).encode() * 50)
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[:-20])
    assert "truncated" in refusal(tmp_path / "cut.jsonl.gz")
    (tmp_path / "fake.jsonl.gz").write_text("hello")
    assert "not readable" in refusal(tmp_path / "fake.jsonl.gz")
    (tmp_path / "in.xlsx").write_text("hello")
    assert "unknown format" in refusal(tmp_path / "in.xlsx")
    (tmp_path / "no.csv").write_text("a,b\n1,2\n")
    assert "no column 'items'" in refusal(tmp_path / "no.csv")
    (tmp_path / "fake.parquet").write_text("hello")
    assert "not readable" in refusal(tmp_path / "fake.parquet")
    (tmp_path / "latin.csv").write_bytes(b"items\ncaf\xe9\n")
    assert "not UTF-8" in refusal(tmp_path / "latin.csv")
    broken = bytearray(whole)
    broken[20:60] = bytes(40)
    (tmp_path / "broken.jsonl.gz").write_bytes(broken)
    assert "not readable" in refusal(tmp_path / "broken.jsonl.gz")
    (tmp_path / "shifted.csv").write_text("items,day\nham, smoked,mon\n")
    assert "shifted.csv:2: the row has more cells" in refusal(tmp_path / "shifted.csv")
    assert not (tmp_path / "data").exists() or not any((tmp_path / "data").glob("*/1.0.0"))


def test_data_that_make_no_schema(tmp_path):
    def refusal(rows, *flags):
        path = tmp_path / "in.jsonl"
        path.write_text(lines(*rows))
        return refused(
            "prepare", f"--input={path}", "--name=bad", f"--data_dir={tmp_path}/data", *flags
        )

    (tmp_path / "file").touch()
    error = refusal(other_features(), f"--data_dir={tmp_path}/file")
    assert f"{tmp_path}/file is not a directory; choose another path" in error
    one = [{**row, "items": ["a", f"rare {n}"]} for n, row in enumerate(other_features())]
    assert "vocabulary has 1 item" in refusal(one)
    error = refusal(other_features(), "--min_count=100")
    assert "vocabulary has 0 item(s), at least 2 are needed; give --min_count=1, or" in error
    assert "'shop' is always 'x'" in refusal(other_features(shop="x"))
    assert "'shop' is missing in all" in refusal(other_features(shop=None))
    both = refusal(other_features(shop="x", place=None))
    assert "'shop' is always 'x' in training; 'place' is missing in all" in both
    assert both.strip().endswith("; give --drop=shop,place")
    # All of a long list does not fit into a line: what can be copied is whole.
    many = refusal(other_features(**{f"feature {n} of many": "x" for n in range(40)}))
    assert "; and 37 more; give --drop=feature 0 of many,feature 1 of many," in many
    assert many.strip().endswith(
        "feature 9 of many, and run again for those that do not fit here"
    )
    error = refusal(other_features(), "--value_min_count=20")
    assert "no value that occurs 20 times" in error
    assert "or give --value_min_count=N, a lower one" in error
    assert "the validation split is empty" in refusal(
        [{**row, "group": "one"} for row in other_features()]
    )
    error = refusal(other_features(), "--split_weights=0,50,50")
    assert "split_weights is 0,50,50; training needs more than 0, unless" in error
    error = refusal(other_features(), "--max_items=1")
    assert "every example is longer than 1; give --max_items=N, a larger one" in error
    assert "the data set's name is '../x'" in refusal(other_features(), "--name=../x")
    assert not any((tmp_path / "data").glob("*/1.0.0"))


def test_bad_rows_can_be_skipped_and_are_reported(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text(lines(*other_features(), "{oops", {"items": []}))
    flags = [f"--input={path}", f"--data_dir={tmp_path}/data"]
    assert f"{path}:32" in refused("prepare", *flags, "--name=one", "--skip_bad_rows=1")
    done = run("prepare", *flags, "--name=two", "--skip_bad_rows=2")
    assert f"skipped {path}:31: not JSON" in done.stdout
    assert f"skipped {path}:32: 'items' is empty" in done.stdout
    assert "exists; give another name, or --overwrite=true" in refused(
        "prepare", *flags, "--name=two", "--skip_bad_rows=2"
    )
    run("prepare", *flags, "--name=two", "--skip_bad_rows=2", "--overwrite")
    many = ({"items": []} for _ in range(1_002))
    path.write_text(lines(*other_features(), *many))
    done = run("prepare", *flags, "--name=many", "--skip_bad_rows=1002")
    shown = [f"skipped {path}:{n}: 'items' is empty" for n in range(31, 36)]
    printed = done.stdout.splitlines()
    assert [line.split(";")[0] for line in printed[:5]] == shown
    assert printed[5] == "skipped 997 more, 1,002 rows in all"
    assert printed[6].startswith("sets ")
    line = refused("prepare", *flags, "--name=fewer", "--skip_bad_rows=1001")
    assert f"{path}:1032: 'items' is empty" in line
    assert f"(after 1001 skipped rows, the first {path}:31: 'items' is empty" in line
    assert not list((tmp_path / "data").glob("fewer/1.0.0"))
    # Only what is advised is a flag, and not a name that looks like one.
    missing = refused("prepare", f"--input={tmp_path}/name=a.jsonl", *flags[1:], "--name=four")
    assert missing.startswith(f"error: {tmp_path}/name=a.jsonl: ")
    path.write_text('{"items": "abc"}\n{"items": []}\n')
    line = refused("prepare", *flags, "--name=three", "--skip_bad_rows=5")
    assert f"no records but 2 that were skipped, the first {path}:1: 'items' must be" in line


def test_a_schema_that_does_not_fit(tmp_path, data_dir):
    path = tmp_path / "in.jsonl"
    path.write_text(lines(*other_features()))
    schema = f"--schema={data_dir}/small/1.0.0/schema.json"
    flags = [f"--input={path}", f"--data_dir={tmp_path}/data", "--name=bad"]
    assert "none of the data's items is in its vocabulary" in refused("prepare", *flags, schema)
    run("prepare", f"--input={path}", f"--data_dir={tmp_path}/data", "--name=good")
    good = tmp_path / "data/good/1.0.0/schema.json"
    written = json.loads(good.read_text())
    of_good = (*flags[:2], f"--schema={good}", "--name=new")
    error = refused("prepare", *of_good, "--split_weights=0,0,0")
    assert "split_weights is 0,0,0; give --split_weights=80,10,10, say: three" in error
    done = run("prepare", *of_good, "--kind=set", "--split_weights=0,0,1", check=0)
    assert re.search(r"sets +test \d+ ", done.stdout)
    assert "duplicates" not in done.stdout  # There is no training example.

    def changed(**fields):
        other = tmp_path / "schema.json"
        other.write_text(json.dumps({**written, **fields}))
        return refused("prepare", *flags, f"--schema={other}")

    assert "--min_count cannot be given together with --schema" in refused(
        "prepare", *flags, schema, "--min_count=3"
    )
    assert f"--kind is text, and {good} is a schema of sets; leave" in refused(
        "prepare", *flags, f"--schema={good}", "--kind=text"
    )
    numbers = {"name": "day", "kind": "numerical", "width": 4}
    vector = {"name": "day", "kind": "vector", "width": 4, "dimension": 2}
    assert "'day' is a vector of 2 finite numbers, not 'tue'" in changed(features=[vector])
    assert "'day' is numerical, not 'tue'" in changed(features=[numbers])
    assert "unknown field 'itemz'" in changed(itemz=[])
    assert "kind is 'bag'" in changed(kind="bag")
    assert "must be a whole number, not 'x'" in changed(max_items="x")
    assert "'a' is listed twice" in changed(items=["a", "a"])
    del written["kind"]
    assert "schema lacks the field 'kind'; restore it as prepare wrote it" in changed()


def test_configs_are_refused_before_anything_is_compiled(tmp_path, data_dir):
    def refusal(*overrides, config="base.py:gsu"):
        return refused(
            "train",
            f"--config=configs/{config}",
            f"--workdir={tmp_path}/run",
            f"--config.data.dir={data_dir}",
            "--config.data.name=small",
            *overrides,
        )

    nope = (
        "error: --config.train.step: there is no field 'train.step'; did you mean train.steps?"
    )
    assert refusal("--config.train.step=3") == f"{nope}\n"
    assert "did you mean train." in refusal("--config.train.nope=1")
    assert "did you mean optimizer.learning_rate?" in refusal("--config.learning_rate", "1")
    for given, meant in {
        "optimizer.lr": "optimizer.learning_rate",
        "train.warmup": "optimizer.warmup_steps",
        "dropout": "model.dropout",
        "train.mask_rate": "task.masked_item.mask_rate or task.masked_language.mask_rate",
    }.items():
        assert f"did you mean {meant}?" in refusal(f"--config.{given}=1")
    assert "--config.train.steps=many: give a whole number" in refusal(
        "--config.train.steps=many"
    )
    assert "train.steps is 0; it must be at least 1" in refusal("--config.train.steps=0")
    assert "model.dropout is 1.0" in refusal("--config.model.dropout=1")
    assert "learning_rate is nan" in refusal("--config.optimizer.learning_rate=nan")
    assert "model.method is 'gsx'" in refusal(config="base.py:gsx")
    assert "give it by --config.model.method=gs" in refusal(config="text.py:gs")
    assert "'tagging' is a task; configs/text.py has" in refusal(config="base.py:tagging")
    error = refusal(config="text.py:tagging")
    assert "use masked_item, or prepare the data with --kind=text" in error
    assert "not a multiple of model.heads, 3" in refusal("--config.model.heads=3")
    assert "eval.masking is 'two'" in refusal("--config.eval.masking=two")
    error = refusal("--config.data.name=absent")
    assert "no prepared data" in error
    assert "or of a config set --config.data.dir=DIR, where it lies" in error
    meant = "no prepared data; did you mean small? Else prepare 'smal' first"
    assert meant in refusal("--config.data.name=smal")
    assert "train.batch_size is 4096" in refusal("--config.train.batch_size=4096")
    assert "seed is 4294967296" in refusal("--config.seed=4294967296")
    assert "configs/absent.py: no such file" in refusal(config="absent.py:gsu")
    assert "unexpected argument 'now'" in refusal("now")
    error = refusal("--config.data.name=")
    assert "data.name is empty; give --config.data.name=NAME, that of prepared data" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("array", ["numpy.ones(2**50)", "jax.numpy.zeros(2**44)"])
def test_memory_that_is_used_up_is_one_line(array):
    code = f"import jax, numpy; from experiments import command; command.run(lambda: {array})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no memory left (")
    assert done.stderr.endswith("); choose a smaller model or batch\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "own.py has no get_config(); write one"),
        ("def get_config(): pass", "get_config() returned NoneType, not a ConfigDict"),
        ("def get_config(: pass", "own.py: SyntaxError: "),
        ("def get_config():\n  return 1 / 0", "own.py:2: ZeroDivisionError: division by zero"),
        ("def get_config(method): pass", "own.py: TypeError: get_config() missing 1 required"),
        (
            "import ml_collections\n"
            "def get_config():\n"
            "  return ml_collections.ConfigDict({'seed': 0, 'train': {'step': 5}})\n",
            "own.py: there is no field 'train.step'; did you mean train.steps?",
        ),
        (
            "import ml_collections\n"
            "def get_config():\n"
            "  return ml_collections.ConfigDict({'seed': 0})\n",
            "own.py: data.name is missing; begin a config with base.get_config",
        ),
    ],
)
def test_a_config_file_that_returns_no_config(tmp_path, text, message):
    (tmp_path / "own.py").write_text(text)
    flags = (f"--config={tmp_path}/own.py", "--config.seed=3", f"--workdir={tmp_path}/run")
    error = refused("train", *flags)
    assert error.startswith(f"error: {tmp_path}/own.py")
    assert message in error
    assert not (tmp_path / "run").exists()
