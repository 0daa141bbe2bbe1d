"""Loading a model from a work directory; importing the package alone loads little."""

import shutil
import subprocess
import sys

import pytest
from absl import logging

import cbert
from cbert.errors import UserError
from cbert.inference.program import sizes_within
from cbert.training import checkpoint
from tests.conftest import ROOT


def test_work_directories_that_cannot_be_loaded(trained, tmp_path):
    with pytest.raises(UserError, match="is not a run's work directory"):
        cbert.load(tmp_path)
    file = tmp_path / "letter"
    file.write_text("dear reader")
    with pytest.raises(UserError, match="letter is not a run's work directory"):
        cbert.load(file)
    with pytest.raises(UserError, match="letter is not an exported model"):
        cbert.load_exported(file)
    exported = tmp_path / "exported"
    exported.mkdir()
    (exported / "card.json").write_text("{}")
    with pytest.raises(UserError, match=r"exported model.* read it with cbert.load_exported"):
        cbert.load(exported)
    with pytest.raises(UserError, match="use best, last or one of"):
        cbert.load(trained, checkpoint="1")
    bare = tmp_path / "bare"
    shutil.copytree(trained, bare, ignore=shutil.ignore_patterns("checkpoints"))
    with pytest.raises(UserError, match="no checkpoint; train first"):
        cbert.load(bare)
    (bare / "schema.json").unlink()
    with pytest.raises(UserError, match=r"has lost its schema.json; copy that of the data"):
        cbert.load(bare)


def test_the_last_checkpoint_and_a_step(trained):
    assert cbert.load(trained, "last").step == 6
    assert cbert.load(trained, 6).step == 6


def test_importing_the_package_is_light():
    code = "import cbert, sys; print(sorted({'jax', 'numpy', 'absl'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
    with pytest.raises(AttributeError, match="no attribute 'save'"):
        cbert.save  # noqa: B018


def test_opening_a_run_makes_no_library_louder():
    before = logging.get_verbosity()
    logging.set_verbosity(logging.FATAL)  # As commands do.
    try:
        with checkpoint._without_warnings():
            assert logging.get_verbosity() == logging.FATAL
        assert logging.get_verbosity() == logging.FATAL
    finally:
        logging.set_verbosity(before)


def test_the_sizes_to_compile_for():
    assert sizes_within(100, (64, 1, 64)) == [1, 64]
    assert sizes_within(6, [16, 4, 8]) == [4, 6]
    assert sizes_within(0, (4, 16)) == [1]  # A vocabulary of more items than a call has logits.
    for given in ((), "16", 16):
        with pytest.raises(UserError, match=r"batch_sizes is .*; give some, such as \(1, 4"):
            sizes_within(6, given)
    for given in ((4, 0), (1.5,)):
        with pytest.raises(UserError, match=r"batch_sizes has .*; give whole numbers"):
            sizes_within(6, given)
