"""What a config file's `sweep()` may return, and how the processes of a run may be started."""

import pathlib
import re

import pytest
from absl import flags

from cbert import parallel
from cbert.errors import UserError
from cbert.training import config_file
from experiments import job_commands


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  pass", "sweep() returned None; return a list of dicts"),
        (
            "  return {'model.method': 'gs'}",
            "sweep() returned {'model.method': 'gs'}; return a l",
        ),
        ("  return []", "sweep() returned nothing; return a dict for each run"),
        ("  yield {'seed': 7}", "sweep() sets seed; leave it out, and give seeds"),
        ("  return [{'data': {'name': 'x'}}]", "sweep() sets data.name, but a sweep is on one"),
        ("  return ['none']", "sweep() has 'none'; each entry is a dict from field to value"),
        ("  return [{'model.method': ['gs']}]", "sweep() has the method ['gs']; give its name"),
        ("  return {}['gs']", "own.py:2: KeyError: 'gs'"),
    ],
)
def test_a_sweep_that_is_no_list_of_overrides(tmp_path, text, message):
    (tmp_path / "own.py").write_text(f"def sweep():\n{text}\n")
    with pytest.raises(UserError, match=re.escape(message)):
        config_file.read_sweep(str(tmp_path / "own.py"))


def test_a_sweep_may_nest_its_fields_and_be_a_generator(tmp_path):
    (tmp_path / "own.py").write_text("def sweep():\n  yield {'model': {'method': 'gs'}}\n")
    assert config_file.read_sweep(str(tmp_path / "own.py")) == [{"model.method": "gs"}]
    (tmp_path / "other.py").write_text("")
    assert config_file.read_sweep(str(tmp_path / "other.py")) is None


@pytest.mark.parametrize(
    ("given", "tasks", "message"),
    [
        (("", 2, 1), "1", "process 1 of 2 has no coordinator; give that"),
        (("", 0, 1), "1", "process 1 of 0 has no coordinator"),
        (("host:1", 2, 2), "1", "the process number is 2 of 2"),
        (("", 0, 0), "abc", "SLURM_NTASKS is 'abc', unset it to train alone"),
    ],
)
def test_processes_that_cannot_meet(monkeypatch, given, tasks, message):
    monkeypatch.setenv("SLURM_NTASKS", tasks)
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    with pytest.raises(UserError, match=re.escape(message)):
        parallel.connect(*given)


def test_directories_with_commas_are_one_value_of_a_list_each():
    paths = [pathlib.Path("runs/a,b"), pathlib.Path('runs/"c"'), pathlib.Path("runs/d")]
    written = job_commands.evaluate("test", False, paths)
    (value,) = [one.partition("=")[2] for one in written if one.startswith("--workdir=")]
    assert flags.ListParser().parse(value) == [str(path) for path in paths]
