"""Processes that are killed while they write, and files that must not be written to."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import pytest

from cbert import directories, files
from cbert.data import prepare, prepared, readers
from cbert.errors import UserError
from cbert.schema import schema_file
from cbert.training import checksums
from cbert.training import config as config_lib
from cbert.training.checkpoint import Checkpoints
from cbert.training.state import Progress
from tests.conftest import PROCESSES, ROOT, small
from tests.test_checkpoints import parameters, state
from tests.test_records import ROWS, read, write

# A writer is killed before it replaces a directory, the next one just before the N-th time that
# it removes something, for every N. The third clears what both left, but for empty directories.
CLEAR = """
import os, pathlib, signal, sys
from cbert import directories
target = pathlib.Path(sys.argv[1])
def write(stop=0, number=0):
    if process := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    seen = 0
    def watch(event, _):
        nonlocal seen
        if event in ("os.remove", "os.rmdir"):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(watch)
    with directories.whole_directory(target) as written:
        for name in "abc":
            (written / name).write_text("x")
        if stop:
            os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0)
assert write() == 0
codes = []
while not codes or codes[-1]:
    write(stop=1)
    codes.append(write(number=len(codes) + 1))
    assert write() == 0
    left = {path.name for path in target.parent.glob("*/*")}
    assert left == set("abc"), (codes, left)
print(codes)
"""


def test_a_writer_that_is_killed_while_it_clears_leaves_no_files(tmp_path):
    """Its lock, by which the next writer knows what was left, is removed last."""
    command = [sys.executable, "-c", CLEAR, str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    # Of each of two: three files, their directory, the lock, and the one around them.
    assert done.stdout == f"{[-signal.SIGKILL] * 12 + [0]}\n", done.stderr


def test_a_directory_is_replaced_where_its_link_leads(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk/out")
    for text in ("old", "new"):
        with directories.whole_directory(tmp_path / "link") as written:
            (written / "x").write_text(text)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "disk" / "out" / "x").read_text() == text
    assert {path.name for path in tmp_path.iterdir()} == {"disk", "link"}
    assert {path.name for path in (tmp_path / "disk").iterdir()} == {"out"}


def overwrite(folder: str, number: int) -> None:
    """Replaces a data set by one of fewer records.

    It kills its process just before the N-th time that it renames or removes something in the
    data set's folder.
    """
    seen = 0

    def watch(event, arguments):
        nonlocal seen
        moved = event in ("os.rename", "shutil.rmtree")
        moved = moved and str(arguments[0]).startswith(f"{folder}/own")
        if moved or event == "ctypes.dlsym":
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    records = list(readers.read(f"{folder}/in.jsonl"))[:50]
    sys.addaudithook(watch)
    prepare.prepare(records, folder, "own", prepare.PrepareOptions(overwrite=True))


def killed_at(folder: pathlib.Path, number: int) -> bool:
    process = PROCESSES.Process(target=overwrite, args=(str(folder), number))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def test_a_data_set_is_there_wherever_its_replacement_is_killed(tmp_path):
    records = read(write(tmp_path / "in.jsonl", ROWS))
    sizes = []
    for number in range(1, 100):
        prepare.prepare(records, tmp_path, "own", prepare.PrepareOptions(overwrite=True))
        killed = killed_at(tmp_path, number)
        schema = prepared.load_schema(str(tmp_path), "own")
        splits = prepared.split_names(str(tmp_path), "own")
        sizes.append(sum(len(prepared.load(str(tmp_path), "own", s, schema)) for s in splits))
        if not killed:
            break
    assert sizes.count(60) >= 2
    assert sizes.count(50) >= 2
    assert sizes == sorted(sizes, reverse=True)
    # The next preparation clears what the last killed one left.
    prepare.prepare(records, tmp_path, "own", prepare.PrepareOptions(overwrite=True))
    assert {path.name for path in (tmp_path / "own").iterdir()} == {"1.0.0", "lock"}
    assert {path.name for path in tmp_path.iterdir()} == {"own", "in.jsonl"}


def test_a_data_set_that_was_moved_aside_comes_back(tmp_path):
    """A kill may leave it there if the file system cannot exchange directories."""
    records = read(write(tmp_path / "in.jsonl", ROWS))
    prepare.prepare(records, tmp_path, "own", prepare.PrepareOptions())
    left = tmp_path / "own" / ".writing-killed"
    left.mkdir()
    (tmp_path / "own" / "1.0.0").rename(left / "1.0.0.replaced")
    with pytest.raises(UserError, match="exists; give another name"):
        prepare.prepare(records, tmp_path, "own", prepare.PrepareOptions())
    assert len(prepared.split_names(str(tmp_path), "own")) == 3
    assert not left.exists()


def test_files_of_killed_writers_are_removed_and_those_of_others_are_not(tmp_path):
    code = """
        import pathlib, sys, time
        from cbert import files
        def write(path):
            path.write_text("half")
            print("written", flush=True)
            time.sleep(60)
        files.replace(pathlib.Path(sys.argv[1]), write)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "a [1].json")]
    writers = []
    try:
        for _ in range(2):
            writer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            writers.append(writer)
            assert writer.stdout.readline() == "written\n"
        writers[0].kill()
        writers[0].wait()
        assert len(list(tmp_path.iterdir())) == 2
        files.write_text(tmp_path / "a [1].json", "whole")
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {"a [1].json", f"a [1].json.{writers[1].pid}.tmp"}
        assert (tmp_path / "a [1].json").read_text() == "whole"
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


def test_a_file_that_is_removed_before_it_has_its_lock_is_made_anew(tmp_path, monkeypatch):
    """As by another writer that took it for a killed one's."""
    target, lock = tmp_path / "a.json", files.try_lock

    def lock_too_late(file):
        monkeypatch.setattr(files, "try_lock", lock)
        files.remove_left_by_kills(tmp_path.iterdir())
        return lock(file)

    def write(temporary):
        temporary.write_text("whole")
        files.remove_left_by_kills([temporary])
        assert temporary.exists()

    monkeypatch.setattr(files, "try_lock", lock_too_late)
    files.replace(target, write)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["whole"]


def test_directories_of_killed_writers_are_removed_and_those_of_others_are_not(tmp_path):
    code = """
        import pathlib, sys, time
        from cbert import directories
        with directories.whole_directory(pathlib.Path(sys.argv[1])) as written:
            (written / "x").write_text("half")
            print(written.parent.name, flush=True)
            time.sleep(60)
    """
    (tmp_path / ".writing-of a user").mkdir()
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / name)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "one", "one", "other")
    ]
    try:
        made = [writer.stdout.readline().strip() for writer in writers]
        for writer, number in zip(writers, (signal.SIGKILL, signal.SIGTERM), strict=False):
            writer.send_signal(number)
            writer.wait()
        # The second one was killed between the two renames of a replacement.
        (tmp_path / made[1] / "one").rename(tmp_path / made[1] / "one.replaced")
        with directories.whole_directory(tmp_path / "one") as written:
            assert (tmp_path / "one" / "x").read_text() == "half"  # It came back.
            (written / "x").write_text("whole")
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {"one", ".writing-of a user", *made[2:]}
        assert (tmp_path / "one" / "x").read_text() == "whole"
        assert [path.name for path in (tmp_path / "one").iterdir()] == ["x"]
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


def test_a_best_checkpoint_that_was_just_replaced(tmp_path):
    """Its successor is written before its checksums, and is not used without them."""
    config_lib.save(small(), tmp_path)
    with Checkpoints(tmp_path) as checkpoints:
        for step, best in ((1, 1), (2, 1), (3, 1), (4, 4)):
            checkpoints.save(state(step), Progress(2.5, best))
    (tmp_path / "checkpoints" / "4" / checksums.NAME).unlink()
    expected = (
        "the best checkpoint, of step 1, is gone; if the run is being trained, run the same "
        "command again, or else use the checkpoint last, of step 3"
    )
    with pytest.raises(UserError, match=expected):
        parameters(tmp_path, "best")


def test_a_pipe_in_place_of_a_schema_is_refused(tmp_path):
    os.mkfifo(tmp_path / "schema.json")
    with pytest.raises(UserError, match=r"schema\.json is not a file; give another path"):
        schema_file.load(tmp_path / "schema.json")


def test_a_file_in_place_of_a_data_set_is_refused_before_records_are_read(tmp_path):
    (tmp_path / "own").write_text("")
    records = map(pytest.fail, ["read"])
    with pytest.raises(UserError, match="own is not a directory; choose another path"):
        prepare.prepare(records, tmp_path, "own", prepare.PrepareOptions())


def test_a_pipe_of_a_process_is_no_file_to_replace():
    """As `/dev/stdout` is one in `command | head`."""
    ends = os.pipe()
    try:
        with pytest.raises(UserError, match=f"/dev/fd/{ends[1]} is not a file; give another"):
            files.write_text(pathlib.Path(f"/dev/fd/{ends[1]}"), "text")
    finally:
        for end in ends:
            os.close(end)


def test_a_lock_is_a_file_and_never_a_link(tmp_path):
    precious = tmp_path / "precious.txt"
    precious.write_text("precious")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / directories.LOCK).symlink_to(precious)
    (tmp_path / "piped").mkdir()
    os.mkfifo(tmp_path / "piped" / directories.LOCK)
    for name in ("linked", "piped"):
        with (
            pytest.raises(UserError, match="is not a file"),
            directories.Lock(tmp_path / name, "--x"),
        ):
            pass
    assert precious.read_text() == "precious"
    with directories.Lock(tmp_path / "own", "--x"):
        assert (
            (tmp_path / "own" / directories.LOCK)
            .read_text()
            .startswith(f"process {os.getpid()}")
        )
