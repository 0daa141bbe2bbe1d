"""Full disks and directories that may not be written to, on a real file system of a few MiB."""

import errno
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time

import jax
import numpy as np
import pytest

from cbert import directories, files
from cbert.config import flat
from cbert.data import builder, prepare, prepared, readers
from cbert.errors import UserError
from cbert.evaluation import evaluate, evaluation_files
from cbert.training import config as config_lib
from cbert.training import loop
from cbert.training import run as run_lib
from cbert.training import state as state_lib
from cbert.training.checkpoint import Checkpoints
from tests.conftest import lines, refused, run, small

SIZE = 8 * 2**20


@pytest.fixture
def disk(tmp_path):
    """A file system of 8 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: pathlib.Path, leave: int = 0) -> pathlib.Path:
    """Fills the file system except for a number of bytes."""
    filler, left = folder / "filler", os.statvfs(folder)
    filler.write_bytes(bytes(max(left.f_bavail * left.f_frsize - leave, 0)))
    return filler


def read_only(folder: pathlib.Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("filler", directories.LOCK)
    }


def test_prepare(disk, tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text(
        lines(*({"items": [f"item {n % 7}", f"item {n % 5} too"]} for n in range(5000)))
    )
    records = list(readers.read(path))
    prepare.prepare(records[:200], disk / "data", "own", prepare.PrepareOptions())
    before = contents(disk)
    filler = fill(disk, leave=100_000)
    flags = [f"--input={path}", f"--data_dir={disk}/data"]
    error = refused("prepare", *flags, "--name=own", "--overwrite")
    assert f"{disk}/data" in error
    assert "the disk is full; free some space; then run the same command again" in error
    assert contents(disk) == before
    filler.unlink()
    prepare.prepare(records[:400], disk / "data", "own", prepare.PrepareOptions(overwrite=True))
    assert contents(disk) != before
    before = contents(disk)
    read_only(disk)
    error = refused("prepare", *flags, "--name=other")
    assert f"{disk}/data/other: the file system is read-only" in error
    assert contents(disk) == before


def test_a_command_that_cannot_write_ends_before_it_begins(disk, data_dir, trained, tmp_path):
    """No run is started, and nothing is compiled: the line is all that is printed.

    All commands ask `files.check_writable`, so that one of them tries all kinds of places.
    """
    records, file, link = tmp_path / "in.jsonl", tmp_path / "file", tmp_path / "link"
    link.symlink_to(tmp_path / "nothing")
    records.write_text(lines(*({"items": [f"item {n % 7}", "too"]} for n in range(300))))
    file.write_text("")
    shutil.copytree(trained, disk / "runs" / "gsu")
    run("evaluate", f"--workdir={disk}/runs/gsu", "--nofeature_importance")
    read_only(disk)
    config = small(data__dir=data_dir, train__patience=0)
    fields = [f"--config.{name}={value}" for name, value in flat(config.to_dict()).items()]
    trains = ("--config=configs/base.py:gsu", *fields)
    places = {
        f"{disk}/new": "the file system is read-only; choose another directory",
        f"{file}/new": f"{file} is not a directory; choose another path",
        f"{link}/new": f"{link} is not a directory; choose another path",
        "/proc/new": "No such file or directory; choose another path",
    }
    for command, flags, place in (
        ("train", trains, "workdir"),
        ("sweep", (*trains, "--methods=gs"), "workdir"),
        ("tune", trains, "workdir"),
        ("prepare", (f"--input={records}", "--name=own"), "data_dir"),
        ("export", (f"--workdir={tmp_path}/not_read_before",), "output"),
        ("features", (f"--workdir={tmp_path}/not_read_before",), "output"),
    ):
        for path in list(places)[: None if command == "train" else 2]:
            done = run(command, *flags, f"--{place}={path}", check=2)
            line = f"error: {path}(/own)?( cannot be made)?: {places[path]}.*\n"
            assert re.fullmatch(line, done.stderr)
            assert done.stdout == ""
    error = refused("report", f"--workdir={disk}/runs")
    assert f"{disk}/runs/report: the file system is read-only" in error
    listed = run("sweep", *trains, "--methods=gs", f"--workdir={disk}/new", "--dry_run").stdout
    assert "waiting" in listed


def test_the_column_cache(disk, data_dir, schema):
    """A full disk leaves no cache, and changes nothing else."""
    folder = disk / "small" / builder.VERSION
    shutil.copytree(builder.directory(data_dir, "small"), folder)
    shutil.rmtree(folder / "columns", ignore_errors=True)
    expected = prepared.load(data_dir, "small", "test", schema)
    filler = fill(disk)
    full = prepared.load(disk, "small", "test", schema)
    assert not list(folder.glob("columns/*"))
    filler.unlink()
    read_only(disk)
    for split in (full, prepared.load(disk, "small", "test", schema)):
        np.testing.assert_array_equal(split.items, expected.items)
        assert split.contexts == expected.contexts


def test_features(disk, trained):
    """An array that is mapped into memory would end the process with a bus error."""
    fill(disk, leave=32_000)
    output = f"{disk}/features"
    flags = (f"--output={output}", "--format=npy", "--pooling=tokens", "--layers=0,last")
    error = refused("features", f"--workdir={trained}", *flags)
    assert error.startswith(f"error: {output}: the disk is full; free some space; then run")
    assert [path.name for path in disk.iterdir()] == ["filler"]


@pytest.mark.soak
def test_train_and_evaluate(disk, trained, schema):
    config = config_lib.load(trained)
    config.train.checkpoint_every = 2
    size = sum(map(len, contents(trained / "checkpoints" / "6").values()))
    flags = (
        "--config=configs/base.py:gsu",
        *(f"--config.{name}={value}" for name, value in flat(config.to_dict()).items()),
    )
    # One and a half checkpoints fit, in blocks of 4 KiB a file.
    filler = fill(disk, leave=2 * size + 300_000)
    error = refused("train", *flags, f"--workdir={disk}/run")
    assert error.startswith(f"error: {disk}/run")
    assert ": the disk is full; free some space; then run the same command again" in error
    filler.unlink()
    with Checkpoints(disk / "run", read_only=True) as checkpoints:
        assert checkpoints.steps()
    loop.train(config, disk / "run")
    fresh = state_lib.to_saved(run_lib.set_up(config, schema).state)
    states = []
    for path in (trained, disk / "run"):
        with Checkpoints(path) as checkpoints:
            states.append(checkpoints.restore(fresh)[0])
    assert int(states[1].step) == 6
    assert jax.tree.all(jax.tree.map(np.array_equal, *states))
    metrics = [(path / "metrics.jsonl").read_text() for path in (trained, disk / "run")]
    assert metrics[0] == metrics[1]
    # The disk is full, then read-only: the earlier results stay.
    options = evaluate.EvaluationOptions(masking="one")
    evaluation = evaluate.evaluate(disk / "run", options)
    evaluation_files.write(evaluation, evaluation_files.summary(evaluation), disk / "run")
    before = contents(disk)
    filler = fill(disk)
    with pytest.raises(OSError, match=r"No space left .*/eval/test-one\.parquet'"):
        evaluation_files.write(evaluation, evaluation_files.summary(evaluation), disk / "run")
    filler.unlink()
    read_only(disk)
    for attempt in (
        lambda: evaluation_files.write(
            evaluation, evaluation_files.summary(evaluation), disk / "run"
        ),
        lambda: loop.train(config, disk / "run"),
    ):
        with pytest.raises(OSError, match=f"Read-only file system: '{disk}/run"):
            attempt()
    assert contents(disk) == before


def test_writers_with_one_process_id_do_not_share_a_file(tmp_path):
    """Two threads are such writers, and so are processes of two containers."""
    target, begun = tmp_path / "x", threading.Event()

    def write_slowly(path):
        path.write_bytes(b"slow")
        begun.set()
        assert first.is_alive()
        time.sleep(0.2)
        path.write_bytes(b"slow" * 1000)

    first = threading.Thread(target=files.replace, args=(target, write_slowly))
    first.start()
    begun.wait(10)
    files.replace(target, lambda path: path.write_bytes(b"fast"))
    assert target.read_bytes() == b"fast"
    first.join()
    assert target.read_bytes() == b"slow" * 1000
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_system_without_locks_is_written_to(tmp_path, monkeypatch):
    def refuse(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    files.write_text(tmp_path / "x", "text")
    assert (tmp_path / "x").read_text() == "text"


def test_the_address_of_a_store_makes_no_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    address = pathlib.Path("gs://bucket/run")
    line = (
        "gs://bucket/run is an address, and cbert writes to file systems alone; give a path, "
        "such as one where the store is mounted"
    )
    for path in (address, address.absolute()):
        with pytest.raises(UserError) as error:
            files.check_writable(path)
        assert str(error.value) == line
        with pytest.raises(UserError) as error, directories.whole_directory(path):
            pass
        assert str(error.value) == line
    assert list(tmp_path.iterdir()) == []
    for path in (tmp_path / "gs:", tmp_path / "at 12:" / "run", tmp_path / "run:3" / "x"):
        files.check_writable(path)  # These are names that a directory may have.
    (tmp_path / "gs:").mkdir()
    files.check_writable(address)


@pytest.mark.parametrize("name", ["run[1]", "a\\b"])
def test_a_path_in_which_orbax_loses_parameters_is_refused(data_dir, tmp_path, name):
    with pytest.raises(UserError, match=r"in its path, .* use another work directory"):
        loop.train(small(data__dir=data_dir), tmp_path / name / "gs")
    assert not list(tmp_path.iterdir())
