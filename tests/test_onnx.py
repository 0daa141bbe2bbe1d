"""ONNX files give the logits of the JAX predictor, and run without JAX."""

import json
import logging
import os
import re
import subprocess
import sys

import jax
import numpy as np
import onnxruntime
import pytest

import cbert
from cbert.errors import UserError
from cbert.inference import onnx_export
from cbert.inference.item_functions import functions
from cbert.model.conditioning import NAMES
from cbert.schema import (
    MASK_ITEM,
    PAD_ITEM,
    SEQUENCE,
    SET,
    UNKNOWN_ITEM,
    Categorical,
    History,
    MultiValued,
    Numerical,
    Schema,
    Vector,
)
from cbert.training import config as config_lib
from tests.conftest import ROOT, run, some
from tests.test_predict import assemble

ITEMS = ("Bagel", "Coffee, brewed", "Cream", "Egg", "Milk", "Oatmeal", "Syrup", "Toast")
FEATURES = (
    Categorical("occasion", 3, ("breakfast", "lunch")),
    MultiValued("two words/é", 2, ("p", "q", "r"), 2),
    Numerical("age", 2, 40.0, 20.0, (20.0, 60.0)),
    Vector("image", 2, dimension=2),
    History("eaten", 2, max_items=3),
)
CONTEXTS = [
    {"occasion": "lunch", "two words/é": ["p", "r"], "age": 71, "image": [0.5, -2.0]},
    {},
    {"occasion": "dinner", "two words/é": [], "age": 20.0, "eaten": ["Egg", "Toast"]},
    {"eaten": ["Tea"]},
    {"occasion": "breakfast", "age": 34, "eaten": []},
]


def predictor_of(kind, max_items, method="gsu", **overrides):
    schema = Schema(kind, max_items, ITEMS, (1,) * len(ITEMS), FEATURES)
    return assemble(schema, method, **overrides)


def rows(schema, length, count):
    """Codes, encoded contexts and positions of `count` rows, the first of them the fullest."""
    numbers = np.random.default_rng(length)
    codes = numbers.integers(UNKNOWN_ITEM, len(ITEMS), (count, length)).astype(np.int32)
    codes[codes == PAD_ITEM] = 0
    codes[np.arange(length) > length - 1 - 3 * np.arange(count)[:, None]] = PAD_ITEM
    positions = numbers.integers(0, length - 3 * (count - 1), count).astype(np.int32)
    codes[np.arange(count), positions] = MASK_ITEM
    return codes, schema.encode_contexts(CONTEXTS[:count]), positions


def onnx_logits(path, codes, context, positions):
    columns = {f"context/{name}": column for name, column in context.items()}
    session = onnxruntime.InferenceSession(path)
    (logits,) = session.run(["logits"], {"codes": codes, "positions": positions, **columns})
    return logits


CASES = [*((name, [16]) for name in NAMES), ("gsu", [16, 20])]


@pytest.mark.parametrize("case", some(CASES, ("np", [16])))
def test_the_logits_of_the_predictor(case, tmp_path):
    method, lengths = case
    # With one block no state would be updated.
    sizes = {"model__positions": True, "model__layers": 2}
    predictor = predictor_of(SEQUENCE, lengths[-1], method, **sizes)
    onnx_export.write(predictor, tmp_path / "onnx", {})
    assert sorted(path.name for path in (tmp_path / "onnx").iterdir()) == [
        "card.json",
        *(f"logits-{length}.onnx" for length in lengths),
        "schema.json",
    ]
    program = predictor.program
    expected_of = jax.jit(program.functions.logits)
    for length in lengths:
        for count in (1, 5):
            inputs = rows(predictor.schema, length, count)
            expected = np.asarray(expected_of(program.params, *inputs))
            logits = onnx_logits(tmp_path / "onnx" / f"logits-{length}.onnx", *inputs)
            assert (logits.dtype, logits.shape) == (np.float32, (count, len(ITEMS)))
            np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)
            assert np.ptp(expected, axis=1).min() > 0.1


@pytest.mark.soak
def test_activations_are_float32_whatever_the_run_has(tmp_path):
    predictor = predictor_of(SET, 8, model__dtype="bfloat16")
    onnx_export.write(predictor, tmp_path / "onnx", {})
    config = predictor.config.copy_and_resolve_references()
    config.model.dtype = "float32"
    logits = functions(config_lib.build_model(config, predictor.schema)).logits
    inputs = rows(predictor.schema, 9, 2)
    np.testing.assert_allclose(
        onnx_logits(tmp_path / "onnx" / "logits-9.onnx", *inputs),
        logits(predictor.program.params, *inputs),
        rtol=0,
        atol=1e-4,
    )


def test_the_lines_of_the_docs_run_without_jax(tmp_path):
    predictor = predictor_of(SET, 8)
    onnx_export.write(predictor, tmp_path / "exported" / "meals", {})
    section = (ROOT / "docs" / "serving.md").read_text().split("### Without JAX\n")[1]
    (code,) = re.findall(r"```python\n(.*?)```", section.split("\n## ")[0], re.DOTALL)
    blocked = "".join(f"sys.modules[{name!r}] = " for name in ("jax", "jaxlib", "flax"))
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{blocked}None\n{code}np.save('logits', logits)"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    program = predictor.program
    expected = program.functions.logits(
        program.params,
        np.array([[1, 0, MASK_ITEM, *[PAD_ITEM] * 6]], np.int32),
        predictor.schema.encode_contexts([{"occasion": "breakfast", "age": 34}]),
        np.array([2], np.int32),
    )
    np.testing.assert_allclose(np.load(tmp_path / "logits.npy"), expected, rtol=0, atol=1e-4)
    best = np.argsort(-np.asarray(expected)[0])[:5]
    assert done.stdout == f"{[ITEMS[code] for code in best]}\n"


def test_the_command(predictor, trained, tmp_path):
    output = tmp_path / "onnx"
    done = run("export", f"--workdir={trained}", f"--output={output}", "--format=onnx")
    assert done.stderr == ""
    assert f"step {predictor.step} of" in done.stdout
    assert "3 files" in done.stdout
    card = json.loads((output / "card.json").read_text())
    assert (card["program"], card["lengths"], card["step"]) == ("onnx", [9], predictor.step)
    assert list(card["sha256"]) == ["logits-9.onnx", "schema.json"]
    session = onnxruntime.InferenceSession(output / "logits-9.onnx")
    assert card["inputs"] == {
        argument.name: {
            "dtype": {"tensor(int32)": "int32", "tensor(float)": "float32"}[argument.type],
            "shape": ["length" if size == 9 else size for size in argument.shape],
        }
        for argument in session.get_inputs()
    }
    with pytest.raises(UserError, match="exported as onnx; export the run again as stablehlo"):
        cbert.load_exported(output)


def test_refusals_leave_nothing(predictor, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(onnx_export, "_MOST_BYTES", 1000)
        with pytest.raises(UserError, match="an ONNX file holds 2; export as stablehlo"):
            onnx_export.write(predictor, tmp_path / "large", {})
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    with pytest.raises(UserError, match=r'optional extra onnx .*; run pip install ".\[onnx\]"'):
        onnx_export.write(predictor, tmp_path / "missing", {})
    assert list(tmp_path.iterdir()) == []


def test_a_caller_who_hid_more_still_does():
    logging.disable(logging.ERROR)
    try:
        with onnx_export._quiet():
            assert logging.root.manager.disable == logging.ERROR
        assert logging.root.manager.disable == logging.ERROR
    finally:
        logging.disable(logging.NOTSET)
