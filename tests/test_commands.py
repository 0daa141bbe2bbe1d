"""The commands as a user runs them: help, the whole road, and every kind of mistake."""

import gzip
import json
import shutil

import pyarrow.parquet
import pytest

from tests.conftest import refused, run

COMMANDS = ("prepare", "train", "evaluate", "describe")
GOOD = {"items": ["a", "b"], "context": {"day": "mon"}}


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command):
    assert f"python -m experiments.{command}" in run(command, "--help", check=1).stdout


def lines(*rows):
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


BAD_ROWS = {
    "not JSON": ("{oops", "not JSON"),
    "not an object": ("[1, 2]", "a record must be an object"),
    "no items": ({"context": {}}, "no 'items'"),
    "empty set": ({"items": []}, "'items' is empty"),
    "item not a string": ({"items": ["a", 3]}, "item 3 is not a string"),
    "repeat in a set": ({"items": ["a", "b", "a"]}, "item 'a' occurs twice in a set"),
    "kind changes": ({"items": ["a"], "context": {"day": 3}}, "it was categorical in line 1"),
    "not a number": ('{"items": ["a"], "context": {"x": NaN}}', "context 'x' is nan"),
    "infinite": ('{"items": ["a"], "context": {"x": 1e999}}', "context 'x' is inf"),
    "mixed list": (
        {"items": ["a"], "context": {"x": [1, "a"]}},
        "strings or numbers, not both",
    ),
    "nested": ({"items": ["a"], "context": {"x": {"y": 1}}}, "use a string, a number"),
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

    one = [{"items": ["a"], "context": {"day": "mon" if n % 2 else "tue"}} for n in range(30)]
    assert "vocabulary has 1 item" in refusal(one)
    assert "vocabulary has 0 item" in refusal(other_features(), "--min_count=100")
    assert "'shop' is always 'x'" in refusal(other_features(shop="x"))
    assert "'shop' is missing in all" in refusal(other_features(shop=None))
    assert "no value that occurs 20 times" in refusal(other_features(), "--value_min_count=20")
    assert "the validation split is empty" in refusal(
        [{**row, "group": "one"} for row in other_features()]
    )
    assert "--split_shares is 0,50,50" in refusal(other_features(), "--split_shares=0,50,50")
    assert "every example is longer" in refusal(other_features(), "--max_items=1")
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
    assert "exists; pass --overwrite" in refused(
        "prepare", *flags, "--name=two", "--skip_bad_rows=2"
    )
    run("prepare", *flags, "--name=two", "--skip_bad_rows=2", "--overwrite")


def test_a_schema_that_does_not_fit(tmp_path, data_dir):
    path = tmp_path / "in.jsonl"
    path.write_text(lines(*other_features()))
    schema = f"--schema={data_dir}/small/1.0.0/schema.json"
    flags = [f"--input={path}", f"--data_dir={tmp_path}/data", "--name=bad"]
    assert "none of the data's items is in its vocabulary" in refused("prepare", *flags, schema)
    run("prepare", f"--input={path}", f"--data_dir={tmp_path}/data", "--name=good")
    written = json.loads((tmp_path / "data/good/1.0.0/schema.json").read_text())

    def changed(**fields):
        other = tmp_path / "schema.json"
        other.write_text(json.dumps({**written, **fields}))
        return refused("prepare", *flags, f"--schema={other}")

    assert "--min_count has no place beside --schema" in refused(
        "prepare", *flags, schema, "--min_count=3"
    )
    numbers = {"name": "day", "kind": "numerical", "width": 4}
    vector = {"name": "day", "kind": "vector", "width": 4, "dimension": 2}
    assert "'day' is vector, not 'tue'" in changed(features=[vector])
    assert "'day' is numerical, not 'tue'" in changed(features=[numbers])
    assert "unknown field 'itemz'" in changed(itemz=[])
    assert "kind is 'bag'" in changed(kind="bag")
    assert "must be a whole number, not 'x'" in changed(max_items="x")
    assert "'a' is listed twice" in changed(items=["a", "a"])


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

    assert 'Did you mean "steps"' in refusal("--config.train.step=3")
    assert "invalid literal for int" in refusal("--config.train.steps=many")
    assert "train.steps is 0; it must be at least 1" in refusal("--config.train.steps=0")
    assert "model.dropout is 1.0" in refusal("--config.model.dropout=1")
    assert "learning_rate is nan" in refusal("--config.optimizer.learning_rate=nan")
    assert "model.method is 'gsx'" in refusal(config="base.py:gsx")
    assert "not a multiple of model.heads, 3" in refusal("--config.model.heads=3")
    assert "eval.masking is 'two'" in refusal("--config.eval.masking=two")
    assert "no prepared data" in refusal("--config.data.name=absent")
    assert "train.batch_size is 4096" in refusal("--config.train.batch_size=4096")
    assert "seed is 4294967296" in refusal("--config.seed=4294967296")
    assert "No such file" in refusal(config="absent.py:gsu")
    assert "unexpected argument 'now'" in refusal("now")
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def run_directory(data_dir, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "none"
    run(
        "train",
        "--config=configs/base.py:none",
        f"--config.data.dir={data_dir}",
        "--config.data.name=small",
        *SMALL,
        f"--workdir={workdir}",
    )
    return workdir


SMALL = (
    "--config.train.steps=4",
    "--config.train.batch_size=32",
    "--config.model.dimension=16",
    "--config.model.heads=2",
    "--config.model.layers=1",
    "--config.optimizer.warmup_steps=2",
    "--config.train.length_buckets=1",
    "--config.train.eval_every=2",
)


def test_work_directories_of_others(run_directory, data_dir, tmp_path):
    common = [
        "train",
        "--config=configs/base.py:np",
        f"--config.data.dir={data_dir}",
        "--config.data.name=small",
        *SMALL,
    ]
    error = refused(*common, f"--workdir={run_directory}")
    assert "belongs to another config: model.method (none there, np here)" in error
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    error = refused(*common, f"--workdir={tmp_path}/full")
    assert "is not a run's directory" in error
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["letter.txt"]


def test_checkpoints_that_cannot_be_used(run_directory, tmp_path):
    def refusal(workdir, *flags):
        return refused("evaluate", f"--workdir={workdir}", *flags)

    assert "is not a run's work directory" in refusal(tmp_path)
    assert "use best, last or one of: 4" in refusal(run_directory, "--checkpoint=3")
    assert "feature 'month' does not exist" in refusal(run_directory, "--by=month")
    absent = shutil.copytree(run_directory, tmp_path / "absent")
    shutil.rmtree(absent / "checkpoints" / "4")
    assert "no checkpoint; train first" in refusal(absent)
    gone = shutil.copytree(run_directory, tmp_path / "gone")
    (gone / "config.json").write_text("[]")
    assert "not a run's config" in refusal(gone)
    damaged = shutil.copytree(run_directory, tmp_path / "damaged")
    shutil.rmtree(damaged / "checkpoints" / "4" / "params")
    assert "damaged or of another model" in refusal(damaged)
    other = shutil.copytree(run_directory, tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    config["model"]["layers"] = 3
    (other / "config.json").write_text(json.dumps(config))
    assert "damaged or of another model" in refusal(other)


def test_a_run_evaluates_other_prepared_data(run_directory, tmp_path):
    run(
        "prepare",
        "--synthetic=stylist",
        "--articles=80",
        "--sets=200",
        "--name=other",
        f"--data_dir={tmp_path}",
        "--seed=0",
        f"--records={tmp_path}/records.jsonl",
    )
    done = run(
        "evaluate",
        f"--workdir={run_directory}",
        f"--data_dir={tmp_path}",
        "--name=other",
        "--masking=one",
    )
    assert "test split of other: 20 questions (one)" in done.stdout
    twin = shutil.copytree(run_directory, tmp_path / "twin")
    done = run("evaluate", f"--workdir={run_directory},{twin}", "--split=validation")
    assert "+0.0000 ± 0.0000" in done.stdout
    # The records that were written take the same road as anybody's file.
    run("prepare", f"--input={tmp_path}/records.jsonl", "--name=own", f"--data_dir={tmp_path}")


def test_data_without_a_context_need_the_method_none(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text(lines(*({"items": ["a", "b", "c"][n % 2 :]} for n in range(60))))
    run("prepare", f"--input={path}", "--name=bare", f"--data_dir={tmp_path}")
    common = [
        f"--config.data.dir={tmp_path}",
        "--config.data.name=bare",
        *SMALL,
        "--config.train.batch_size=16",
    ]
    error = refused("train", "--config=configs/base.py:gs", f"--workdir={tmp_path}/gs", *common)
    assert "the data have no context features" in error
    run("train", "--config=configs/base.py:none", f"--workdir={tmp_path}/none", *common)
    run("evaluate", f"--workdir={tmp_path}/none", "--split=train")


def test_four_devices_answer_as_one(run_directory, tmp_path):
    tables = []
    for count in (1, 4):
        run(
            "evaluate",
            f"--workdir={run_directory}",
            XLA_FLAGS=f"--xla_force_host_platform_device_count={count}",
        )
        tables.append(pyarrow.parquet.read_table(run_directory / "eval" / "test.parquet"))
    one, four = (table.to_pydict() for table in tables)
    for name in ("id", "place", "item", "rank"):
        assert one[name] == four[name]
    assert one["log_probability"] == pytest.approx(four["log_probability"], abs=1e-5)


def test_meals_take_the_same_road(meals, tmp_path):
    done = run(
        "prepare",
        f"--input={meals}",
        "--min_count=5",
        "--name=meals",
        f"--data_dir={tmp_path}/data",
    )
    assert "train 66,061  validation 8,534  test 8,070" in done.stdout
    run(
        "train",
        "--config=configs/meals.py:gsu",
        f"--config.data.dir={tmp_path}/data",
        f"--workdir={tmp_path}/run",
        *SMALL,
        "--config.train.batch_size=512",
    )
    done = run("evaluate", f"--workdir={tmp_path}/run", "--masking=one", "--by=occasion")
    assert "popularity given context" in done.stdout
    assert "breakfast" in done.stdout
