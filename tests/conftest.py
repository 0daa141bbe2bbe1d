"""Small prepared data and small models, made once a session."""

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import tempfile

os.environ["JAX_PLATFORMS"] = "cpu"
# Most of a test's time is compilation: optimise less, and keep programs for the next run.
if "PYTEST_XDIST_WORKER" not in os.environ:  # Workers inherit it.
    _CACHES = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = os.path.join(_CACHES, "cbert-tests")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["XLA_FLAGS"] = (
        os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"
    )
    # XLA ends a process with a flag that it does not know, and not every 0.11 knows these.
    if importlib.metadata.version("jaxlib").startswith("0.10."):
        os.environ["XLA_FLAGS"] += (
            " --xla_cpu_use_fusion_emitters=false"
            " --xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE"
            # The workers keep all cores busy, so splitting a program only adds work.
            " --xla_cpu_parallel_codegen_split_count=1"
        )

import gc
import multiprocessing
import pathlib
import runpy
import subprocess
import sys
from collections.abc import Iterable, Iterator

import jax
import pytest

import cbert
from cbert import runtime
from cbert.data import prepare, prepared
from cbert.data.infer_schema import SchemaAccumulator
from cbert.data.records import Record
from cbert.data.synthetic import stylist
from cbert.data.validator import Validator
from cbert.schema import Schema
from cbert.training import loop
from configs import base

# The commands set these flags of XLA: with the same ones they share programs with the tests.
runtime.choose_for_gpu()
runtime.overlap_kernels()
# Traces make millions of objects, which stay, so collecting often only takes time.
gc.set_threshold(100_000, 20, 20)

MOST_RESIDENT = 2 * 2**30  # Bytes; two workers then fit into a small machine.
ROOT = pathlib.Path(__file__).parent.parent
REAL_DATA = ROOT.parent / "shared" / "data"
ALLOWED_HOSTS = "--allowed_hosts=cbert.example,Other.Example"
ARTICLES, SETS = 80, [320, 60, 60]
# One or two of each kind: all twelve would make every model's programs twice as large.
FEATURES = ("age", "gender", "colours", "occasion")
# These files take longest, and mostly wait for other processes.
LONG = (
    *("test_sweep", "test_stopping", "test_commands", "test_tour"),
    *("test_own_options", "test_outside_methods"),
)


# The test files of one group share a fixture that takes long to make, and run in one process.
SHARED_FIXTURES = {
    **dict.fromkeys(
        (
            *("complete", "explain_query", "export", "features_command", "onnx"),
            *("page", "predict"),
            *("serving", "serving_limits", "server_metrics", "event_loop"),
        ),
        "a trained model",
    ),
    **dict.fromkeys(
        ("text_predictor", "text_exports", "text_serving", "predict_command"),
        "predictors of texts",
    ),
    "feature_importance": "a run with the importance of its features",
    "methods_page": "the code of the page of methods",
    "initialize": "a pretrained run",
    "stopping": "an unbroken run",
    "sweep": "sweeps",
    "commands": "a run directory",
    "report": "two evaluated runs",
    "target_baselines": "data with targets",
    "text_reports": "reports of texts",
    "own_options": "a sweep with a method of one's own",
    "own_tasks": "runs of tasks of one's own",
}


@pytest.hookimpl(optionalhook=True)  # xdist may be absent.
def pytest_xdist_make_scheduler(config, log):
    """Tests that share a fixture run in one process, every other test in any process."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            name = pathlib.PurePath(nodeid.split("::")[0]).stem.removeprefix("test_")
            return SHARED_FIXTURES.get(name, nodeid)

    return Scheduling(config, log)


def pytest_collection_modifyitems(items):
    """Runs long tests first, so that no worker is left with one at the end."""
    items.sort(key=lambda item: item.path.stem not in LONG)


# This process has imported what commands need and is forked for each, so that a command begins
# in a tenth of a second instead of three.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "tests.conftest",  # Where `_command` is.
        "cbert.evaluation.evaluate",
        "cbert.report.writers",
        "matplotlib.figure",
        "pandas",
        "cbert.serving.app",
        "pyarrow.parquet",
    ]
)


def run(module: str, *arguments: str, check: int = 0, **environment: str):
    """Runs a command in a process of its own, and checks its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [pathlib.Path(folder) / name for name in ("stdout", "stderr")]
        command = [f"experiments.{module}", *map(str, arguments)]
        process = PROCESSES.Process(target=_command, args=(command, environment, outputs))
        process.start()
        process.join(timeout=600)
        texts = [path.read_text() for path in outputs]
    assert process.exitcode == check, "".join(texts)
    return subprocess.CompletedProcess(command, process.exitcode, *texts)


def _command(command: list[str], environment: dict[str, str], outputs: list[pathlib.Path]):
    """Runs in the new process and does what `python -m` does."""
    os.environ.update(environment)
    os.chdir(ROOT)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    sys.argv = command
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)


def refused(module: str, *arguments: str) -> str:
    """Runs a command that must end in one line and exit code 2; returns the line."""
    done = run(module, *arguments, check=2)
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.fixture(autouse=True, scope="module")
def bounded_memory() -> Iterator[None]:
    """Lets go of the compiled programs of earlier tests once they take much memory."""
    yield
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    if pages * os.sysconf("SC_PAGE_SIZE") > MOST_RESIDENT:
        jax.clear_caches()


def some(values, *kept) -> list:
    """Parameters of a test: those that are not kept are left to `make soak`."""
    return [
        value if value in kept else pytest.param(value, marks=pytest.mark.soak)
        for value in values
    ]


def lines(*rows) -> str:
    """Rows as JSON Lines; a row that is a string is written as it is."""
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


def small(method: str = "gsu", **overrides):
    """The base config, small; overrides are written with `__` for the dot."""
    config = base.get_config(method)
    config.data.name = "small"
    config.model.update({"dimension": 16, "heads": 2, "layers": 1, "feed_forward": 32})
    config.train.update(
        {
            "steps": 6,
            "batch_size": 32,
            "eval_every": 3,
            "checkpoint_every": 3,
            "log_every": 2,
            "length_buckets": 1,
        }
    )
    config.optimizer.warmup_steps = 2
    config.eval.batch_size = 64
    for field, value in overrides.items():
        config.update_from_flattened_dict({field.replace("__", "."): value})
    return config


def infer(records: Iterable[Record], accumulator: SchemaAccumulator | None = None) -> Schema:
    """The schema of a training split, as `prepare` infers it."""
    accumulator = accumulator or SchemaAccumulator()
    for record in records:
        accumulator.observe(record)
    return accumulator.finish()


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory) -> str:
    """A prepared stylist data set called `small`, with some of its features."""
    directory = tmp_path_factory.mktemp("data")
    validator = Validator()
    rows = enumerate(stylist.outfits(ARTICLES, SETS), 1)
    outfits = (validator(_with_few_features(row), number) for number, row in rows)
    prepare.prepare(outfits, directory, "small", prepare.PrepareOptions(), _schema)
    return str(directory)


def _with_few_features(row: dict) -> dict:
    context = row["context"]
    return {**row, "context": {name: context[name] for name in FEATURES if name in context}}


def _schema(training):
    schema = stylist.schema(ARTICLES, training)
    kept = tuple(feature for feature in schema.features if feature.name in FEATURES)
    return dataclasses.replace(schema, features=kept)


@pytest.fixture(scope="session")
def schema(data_dir):
    return prepared.load_schema(data_dir, "small")


@pytest.fixture(scope="session")
def train_split(data_dir, schema):
    return prepared.load(data_dir, "small", "train", schema)


@pytest.fixture(scope="session")
def trained(data_dir, tmp_path_factory) -> pathlib.Path:
    """The work directory of a short run on `small`."""
    workdir = tmp_path_factory.mktemp("runs") / "gsu"
    config = small(data__dir=data_dir, model__layers=1, optimizer__learning_rate=0.03)
    loop.train(config, workdir)
    return workdir


@pytest.fixture(scope="session")
def predictor(trained):
    """A predictor of that run that is quick to compile."""
    return cbert.load(trained, batch_sizes=(4,))


@contextlib.contextmanager
def serving(*flags: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """A server in a process of its own, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments.serve", "--port=0", "--batch=4", *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        assert " at http://127.0.0.1:" in line, process.stderr.read()
        yield process, line.split(" at ")[1].split(";")[0]
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def served(trained) -> Iterator[str]:
    """The address of a server that compares that run with itself; it must end quietly."""
    flags = ("--read_seconds=2", "--write_seconds=2", "--response_seconds=120", ALLOWED_HOSTS)
    with serving(f"--workdir={trained}", f"--compare={trained}", *flags) as (process, address):
        yield address
        process.terminate()
        assert process.communicate(timeout=30) == ("ended\n", "")
        assert process.returncode == 0


@pytest.fixture
def meals():
    """The real meals file; tests that need it are skipped where it is absent."""
    path = REAL_DATA / "meals.jsonl.gz"
    if not path.exists():
        pytest.skip(f"the meals file is not at hand ({path})")
    return path
