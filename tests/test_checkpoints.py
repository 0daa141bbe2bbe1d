"""Damaged and foreign checkpoints are detected, named, and never used without a warning."""

import json
import os
import pathlib
import random
import shutil
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cbert import parallel
from cbert.data.batching import Batches
from cbert.errors import UserError
from cbert.training import checksums, loop
from cbert.training import config as config_lib
from cbert.training import run as run_lib
from cbert.training import state as state_lib
from cbert.training.checkpoint import Checkpoints
from cbert.training.state import Progress, TrainState
from tests.conftest import small, some


def state(step: int) -> TrainState:
    """A state whose numbers are a function of its step."""
    kernel = jnp.arange(600.0).reshape(20, 30) + step
    params = {"one": {"kernel": kernel, "bias": jnp.full(5, step / 7)}}
    opt_state = {"mu": kernel / 3, "count": jnp.asarray(step)}
    return parallel.replicate(TrainState(jnp.asarray(step, jnp.int32), params, opt_state))


def progress(step: int) -> Progress:
    return Progress(2.5, 1, step - 1, {"loss": step / 3})


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A work directory with step 1, the best, and the last two steps, 3 and 4."""
    workdir = tmp_path_factory.mktemp("saved")
    config_lib.save(small(), workdir)
    with Checkpoints(workdir) as checkpoints:
        for step in (1, 2, 3, 4):
            checkpoints.save(state(step), progress(step))
    assert checkpoints.steps() == [1, 3, 4]
    return workdir


def names(saved, step: int = 4) -> list[str]:
    folder = saved / "checkpoints" / str(step)
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def flip(path) -> None:
    content = bytearray(path.read_bytes())
    bit = random.Random(path.name).randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def truncate(path) -> None:
    os.truncate(path, path.stat().st_size // 2)


delete = pathlib.Path.unlink


def restored(workdir) -> int:
    """Restores as a run that resumes does; returns the step to which all numbers belong."""
    with Checkpoints(workdir) as checkpoints:
        restored_state, known = checkpoints.restore(state(0))
    step = int(restored_state.step)
    assert jax.tree.all(jax.tree.map(np.array_equal, restored_state, state(step)))
    assert known == progress(step)
    return step


def parameters(workdir, which: str) -> int:
    """Restores the parameters alone, as an evaluation does; returns their step."""
    with Checkpoints(workdir, read_only=True) as checkpoints:
        step, params = checkpoints.restore_params(which, state(0).params)
    assert jax.tree.all(jax.tree.map(np.array_equal, params, state(step).params))
    return step


def warning(capsys) -> str:
    line = capsys.readouterr().err
    assert line.startswith("warning: ")
    assert line.count("\n") == 1
    return line


def test_whole_checkpoints_are_used_in_silence(saved, capsys):
    assert restored(saved) == parameters(saved, "last") == parameters(saved, "4") == 4
    assert parameters(saved, "best") == parameters(saved, "1") == 1
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("turn", some([0, 1, 2], 0))
def test_every_file_is_guarded(saved, tmp_path, capsys, turn):
    """Each of the turns does another kind of damage to a file."""
    files = names(saved)
    assert len(files) > 15
    for index, name in enumerate(files):
        damage = (flip, truncate, delete)[(index + turn) % 3]
        workdir = tmp_path / str(index)
        shutil.copytree(saved, workdir)
        damage(workdir / "checkpoints" / "4" / name)
        assert parameters(workdir, "last") == 3
        line = warning(capsys)
        assert f"{name}" in line
        assert "step 3 is used" in line
        if (damage, name) != (delete, checksums.NAME):
            with pytest.raises(UserError, match=r"is damaged: .*best, last or one of: 1, 3, 4"):
                parameters(workdir, "4")
        assert restored(workdir) == 3
        assert name in warning(capsys)
        left = {path.name for path in (workdir / "checkpoints").iterdir()}
        assert left == {"1", "3", "4.unusable"}


def test_the_steps_set_aside_are_saved_again(saved, tmp_path, capsys):
    workdir = shutil.copytree(saved, tmp_path / "run")
    for _ in range(2):
        flip(workdir / "checkpoints" / "4" / "params" / "_METADATA")
        with Checkpoints(workdir) as checkpoints:
            checkpoints.restore(state(0))
            checkpoints.save(state(4), progress(4))
        capsys.readouterr()
        assert restored(workdir) == 4
        assert capsys.readouterr().err == ""


def test_the_best_is_never_replaced_by_another(saved, tmp_path, capsys):
    workdir = shutil.copytree(saved, tmp_path / "run")
    flip(workdir / "checkpoints" / "1" / "params" / "manifest.ocdbt")
    with pytest.raises(UserError, match=r"manifest\.ocdbt is .*checkpoint last, of step 4"):
        parameters(workdir, "best")
    assert parameters(workdir, "last") == restored(workdir) == 4
    assert capsys.readouterr().err == ""
    # Once the last two are damaged as well, there is no checkpoint to resume from.
    for step in "34":
        flip(workdir / "checkpoints" / step / "progress" / "metadata")
    for restore in (restored, lambda run: parameters(run, "last")):
        with pytest.raises(UserError, match=r"is whole: step 4 .*; step 3 .*; step 1 is"):
            restore(workdir)
    assert {path.name for path in (workdir / "checkpoints").iterdir()} == {"1", "3", "4"}


def test_a_run_goes_back_to_a_step(saved, tmp_path):
    """A process that reads alone sets nothing aside and deletes nothing."""
    workdir = shutil.copytree(saved, tmp_path / "run")
    flip(workdir / "checkpoints" / "4" / "params" / "_METADATA")
    for reads, after, left in ((True, 1, "1 3 4"), (False, 1, "1 4.unusable")):
        with Checkpoints(workdir, read_only=reads) as checkpoints:
            steps = [checkpoints.restore(state(0), n)[0].step for n in (None, 3, 2, 0)]
            assert list(map(int, steps)) == [3, 3, 1, 0]
            checkpoints.delete_after(after)
        assert {path.name for path in (workdir / "checkpoints").iterdir()} == {*left.split()}


def test_without_checksums_a_checkpoint_counts_for_less(saved, tmp_path, capsys):
    workdir = shutil.copytree(saved, tmp_path / "run")
    (workdir / "checkpoints" / "1" / checksums.NAME).unlink()
    assert parameters(workdir, "best") == 1
    assert f"has no {checksums.NAME}: not verified" in warning(capsys)
    shutil.rmtree(workdir / "checkpoints" / "3")
    (workdir / "checkpoints" / "4" / checksums.NAME).unlink()
    assert parameters(workdir, "last") == restored(workdir) == 4
    assert capsys.readouterr().err.count(f"step 4 has no {checksums.NAME}") == 2
    # A checkpoint that cannot even be restored is passed over.
    shutil.rmtree(workdir / "checkpoints" / "4" / "params")
    assert restored(workdir) == 1
    assert "step 1 is used" in warning(capsys)


RATE = "optimizer.learning_rate (0.5 in the checkpoint, 0.001 in the run)"
SEED = "seed (7 in the checkpoint, 0 in the run)"
ALL = f"model.method ('c' in the checkpoint, 'gsu' in the run); {RATE}; {SEED}"


@pytest.mark.parametrize(
    ("overrides", "differences"),
    [
        ({"seed": 7}, SEED),
        ({"method": "c", "seed": 7, "optimizer__learning_rate": 0.5}, ALL),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(saved, tmp_path, overrides, differences):
    workdir, other = shutil.copytree(saved, tmp_path / "run"), tmp_path / "other"
    other.mkdir()
    config_lib.save(small(**overrides), other)
    with Checkpoints(other) as checkpoints:
        checkpoints.save(state(6), progress(6))
    foreign = shutil.copytree(other / "checkpoints" / "6", workdir / "checkpoints" / "6")
    for restore in (
        restored,
        lambda run: parameters(run, "last"),
        lambda run: parameters(run, "6"),
    ):
        with pytest.raises(UserError) as refusal:
            restore(workdir)
        first = f"{differences}; restore the run's config.json if it was edited; "
        assert f"{foreign} belongs to another run: {first}" in str(refusal.value)
    # The run's own checkpoints are as usable as before.
    assert parameters(workdir, "4") == 4
    shutil.rmtree(foreign)
    assert restored(workdir) == 4


def test_what_changes_no_result_makes_no_other_run(saved, tmp_path):
    """Such fields are the data's directory, and fields that only one version knows."""
    workdir = shutil.copytree(saved, tmp_path / "run")
    config = small(data__dir="elsewhere", train__steps_per_dispatch=4)
    config_lib.save(config, workdir)
    assert restored(workdir) == 4
    path = workdir / "checkpoints" / "4" / "config" / "metadata"
    fields = json.loads(path.read_text())
    assert fields["model.method"] == "gsu"
    assert "data.dir" not in fields
    path.write_text(json.dumps({**fields, "model.later": 1, "train.later": "a"}))
    checksums.write(workdir / "checkpoints" / "4")
    assert restored(workdir) == 4


def test_a_checkpoint_without_a_config_is_used_with_a_warning(saved, tmp_path, capsys):
    """Earlier versions wrote checkpoints without a config."""
    workdir = shutil.copytree(saved, tmp_path / "run")
    folder = workdir / "checkpoints" / "4"
    shutil.rmtree(folder / "config")
    checksums.write(folder)
    for restore in (restored, lambda run: parameters(run, "last")):
        assert restore(workdir) == 4
        assert (
            warning(capsys) == f"warning: {folder} holds no config: it may be another run's\n"
        )


class KilledError(Exception):
    pass


def test_a_run_goes_on_from_the_newest_whole_checkpoint_bit_for_bit(
    trained, schema, tmp_path, capsys, monkeypatch
):
    """Step 6 of a finished run is damaged, and the run goes on from step 3, unfinished."""
    config = config_lib.load(trained)
    batches = Batches.several

    def several(self, step, most):
        if step == 5:
            raise KilledError
        return batches(self, step, most)

    damaged = tmp_path / "damaged"
    with monkeypatch.context() as patch:
        patch.setattr(Batches, "several", several)
        with pytest.raises(KilledError):
            loop.train(config, damaged)
    last = shutil.copytree(trained / "checkpoints" / "6", damaged / "checkpoints" / "6")
    flip(last / "opt_state" / "manifest.ocdbt")
    mark, marked = shutil.copy(trained / "finished.json", damaged / "finished.json"), []
    capsys.readouterr()
    loop.train(config, damaged, loop.Callbacks(step=lambda _: marked.append(mark.exists())))
    assert (marked, mark.exists()) == ([False] * 3, True)
    output = capsys.readouterr()
    # The damaged checkpoint was set aside, and was removed when the run finished.
    assert not list((damaged / "checkpoints").glob("*.unusable"))
    assert "opt_state/manifest.ocdbt is damaged" in output.err
    assert f"resuming {damaged} at step 3" in output.out
    metrics = [(run / "metrics.jsonl").read_text() for run in (trained, damaged)]
    assert metrics[0] == metrics[1]
    fresh = parallel.replicate(state_lib.to_saved(run_lib.set_up(config, schema).state))
    ends = []
    for run in (trained, damaged):
        with Checkpoints(run) as checkpoints:
            ends.append(checkpoints.restore(fresh))
    assert int(ends[0][0].step) == 6
    assert jax.tree.all(jax.tree.map(np.array_equal, ends[0][0], ends[1][0]))
    assert ends[0][1] == ends[1][1]


_UNPICKLED, _HOOKED = [], []


def _watch(event: str, arguments: tuple) -> None:
    if event == "pickle.find_class" and _HOOKED:
        _UNPICKLED.append(arguments)


def test_restoring_unpickles_nothing(saved):
    sys.addaudithook(_watch)
    _HOOKED.append(True)
    try:
        assert restored(saved) == parameters(saved, "best") + 3 == 4
    finally:
        _HOOKED.clear()
    assert _UNPICKLED == []
