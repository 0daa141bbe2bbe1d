"""Exported models give the same numbers without the model's code; their files are checked."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

import cbert
from cbert.errors import UserError
from cbert.evaluation import evaluate, evaluation_files
from cbert.evaluation.evaluate import EvaluationOptions
from cbert.inference import (
    card,
    export_directory,
    exported_functions,
    huggingface_export,
    stablehlo,
)
from cbert.inference.queries import Query
from cbert.model import parameter_tree
from cbert.model.attention import LONG
from cbert.model.conditioning import NAMES
from tests.conftest import ROOT, some
from tests.models import SMALL, batch, build, made

# This script runs where the model's code cannot be imported.
WITHOUT_THE_MODEL = """
import json, sys
sys.modules["cbert.model"] = sys.modules["flax"] = sys.modules["cbert.training"] = None
import cbert
predictor = cbert.load_exported(sys.argv[1], batch_sizes=(4,))
items, context, item = json.loads(sys.argv[2])
print(json.dumps([
    predictor.complete(items, context, k=80, slots=2).to_dict(),
    predictor.score(items, context).to_dict(),
    predictor.explain(items, context, item).to_dict(),
    predictor.context_vector(context).tolist(),
]))
"""


@pytest.fixture(scope="module")
def exported(predictor, trained, tmp_path_factory):
    """The run's exported model; the run has a result of its step and one of another step."""
    workdir = tmp_path_factory.mktemp("export") / "gsu"
    shutil.copytree(trained, workdir)
    evaluation = evaluate.evaluate(workdir, EvaluationOptions(split="test"))
    measured = evaluation_files.summary(evaluation)
    evaluation_files.write(evaluation, measured, workdir)
    older = json.dumps({**measured, "step": predictor.step - 1})
    (workdir / "eval" / "validation.json").write_text(older)
    directory = workdir.parent / "exported"
    stablehlo.write(predictor, directory, card.facts(predictor, workdir))
    return directory


def test_the_same_numbers_without_the_models_code(predictor, exported):
    names = predictor.schema.items
    query = [[names[2], "kilt", names[5]], {"age": 50, "occasion": "regatta"}, names[0]]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_MODEL, str(exported), json.dumps(query)],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    completion, scores, explanation, vector = json.loads(done.stdout)
    items, context, item = query
    assert_close(completion, predictor.complete(items, context, k=80, slots=2).to_dict())
    assert_close(scores, predictor.score(items, context).to_dict())
    assert_close(explanation, predictor.explain(items, context, item).to_dict())
    assert_close(vector, predictor.context_vector(context).tolist())


def assert_close(one, other):
    """Asserts that two results are equal, numbers to 1e-5."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        one, other = list(one.values()), list(other.values())
    if isinstance(one, list):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_close(a, b)
    elif isinstance(one, float):
        assert one == pytest.approx(other, abs=1e-5)
    else:
        assert one == other


def test_any_batch_size(predictor, exported):
    """The number of rows is a symbol, so sizes work that were not exported."""
    other = cbert.load_exported(exported, batch_sizes=(1, 3))
    queries = [Query([name], {"age": 30}, k=3) for name in predictor.schema.items[:5]]
    pairs = zip(other.complete_batch(queries), predictor.complete_batch(queries), strict=True)
    for one, expected in pairs:
        assert_close(one.to_dict(), expected.to_dict())


@pytest.mark.parametrize("method", some(NAMES, "cross_attention", "history"))
def test_every_method_takes_rows_that_are_a_symbol(method, schema, train_split):
    model = build(schema, method)
    (rows,) = jax.export.symbolic_shape("rows")
    codes, context = batch(train_split)
    for length in (codes.shape[1], LONG):
        longer = np.resize(codes, (len(codes), length))
        arguments = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype),
            (longer, context, codes[:, :1]),
        )
        vectors, *_ = jax.eval_shape(
            model.apply, {"params": parameter_tree.shapes(model)}, *arguments
        )
        assert vectors.shape == (rows, 1, 16)


def test_a_model_of_bfloat16_is_exported_without_layouts(schema, train_split):
    """Its products on a CPU have constraints that a file may not hold."""
    model, params = made(
        schema, "gs", dataclasses.replace(SMALL, dtype="bfloat16", kernels="fast")
    )
    codes, context = batch(train_split)
    arguments = params, codes, context, codes[:, :1] * 0

    def vectors(params, *inputs):
        return model.apply({"params": params}, *inputs)[0]

    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arguments)
    read = jax.export.deserialize(bytearray(exported_functions.exported(vectors, *shapes)))
    here = jax.jit(vectors).lower(*arguments).as_text()
    assert "LayoutConstraint" in here
    assert "LayoutConstraint" not in read.mlir_module()
    own = np.asarray(jax.jit(vectors)(*arguments))
    # Both round to eight bits after every layer, in another order.
    np.testing.assert_allclose(read.call(*arguments), own, atol=0.05 * np.abs(own).max())


def test_an_older_card_says_by_its_config_whether_the_context_is_read(exported, tmp_path):
    shutil.copytree(exported, tmp_path / "older")
    older = json.loads((exported / "card.json").read_text())
    del older["uses_context"]
    for method, constant, reads in (
        ("gs", False, True),
        ("gs", True, False),
        ("none", False, False),
    ):
        older["config"]["model"] |= {"method": method, "constant_context": constant}
        (tmp_path / "older" / "card.json").write_text(json.dumps(older))
        read = export_directory.read_card(tmp_path / "older", "stablehlo")
        assert read["uses_context"] is reads


def test_the_card(exported, trained, predictor):
    written = json.loads((exported / "card.json").read_text())
    expected = "gsu", predictor.step, jax.__version__
    assert (written["method"], written["step"], written["jax"]) == expected
    assert written["data"]["name"] == "small"
    assert (written["data"]["items"], written["data"]["features"]["age"]) == (80, "numerical")
    assert written["platforms"] == ["cpu", "cuda"]
    assert list(written["metrics"]) == ["test"]  # The others are of another step.
    measured = json.loads((exported.parent / "gsu" / "eval" / "test.json").read_text())
    assert written["metrics"]["test"]["mrr"] == measured["results"]["model"]["mrr"]
    assert written["metrics"]["test"]["queries"] == measured["queries"] > 100
    assert any("without context dropout" in limit for limit in written["limits"])
    config = json.loads((trained / "config.json").read_text())
    config["data"]["dir"] = ""
    assert written["config"] == config
    assert written["uses_context"] is True
    names = {path.name for path in exported.iterdir()}
    assert set(written["sha256"]) == names - {"README.md", "card.json"}
    assert names == {
        "README.md",
        "card.json",
        "context_vector.stablehlo",
        "logits-9.stablehlo",
        "parameters.npz",
        "schema.json",
    }
    assert (exported / "schema.json").read_bytes() == (trained / "schema.json").read_bytes()
    revision = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    assert (written["git_revision"] or "").removesuffix("-dirty") == revision


def test_parameters_keep_their_names(tmp_path):
    params = {"a/b": {"kernel": np.arange(3.0)}, "a": {"b": {"é %2F": np.ones((1, 2))}}}
    np.savez(tmp_path / "parameters.npz", **exported_functions.flat(params))
    read = exported_functions.nested(tmp_path / "parameters.npz")
    assert jax.tree.structure(read) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, read, params)


def test_files_that_were_changed_are_refused(exported, tmp_path):
    def refusal(name, change):
        directory = tmp_path / "changed"
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(exported, directory)
        change(directory / name)
        with pytest.raises(UserError) as error:
            cbert.load_exported(directory)
        assert str(error.value).startswith(str(directory))
        return str(error.value)

    def flip(path):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)

    def rewrite(**fields):
        def change(path):
            card = json.loads(path.read_text())
            card.update(fields)
            path.write_text(json.dumps({k: v for k, v in card.items() if v is not None}))

        return change

    names = [path.name for path in exported.iterdir()]
    names = [name for name in names if name not in ("README.md", "card.json")]
    for name in names:
        assert f"{name}: not the file that was exported" in refusal(name, flip)
        assert f"{name}: no such file" in refusal(name, lambda path: path.unlink())
    missing = refusal("card.json", lambda path: path.unlink())
    assert "is not an exported model, which experiments.export makes of a run" in missing
    assert "not a card" in refusal("card.json", lambda path: path.write_text("[]"))
    assert "not a card" in refusal("card.json", rewrite(config=None))
    assert "format is 2, not 1; export again" in refusal("card.json", rewrite(format=2))
    assert "exported for tpu, not for cpu" in refusal("card.json", rewrite(platforms=["tpu"]))


def test_a_program_that_calls_the_process_is_refused(tmp_path):
    """This one made the process end with a segmentation fault when it was called."""
    target, number = "xla_ffi_python_cpu_callback", jax.ShapeDtypeStruct((1,), np.float32)

    def function(x):
        return jax.ffi.ffi_call(target, number)(x, index=np.uint64(0x4141414141))

    unsafe = [jax.export.DisabledSafetyCheck.custom_call(target)]
    program = jax.export.export(jax.jit(function), platforms=["cpu"], disabled_checks=unsafe)
    path = tmp_path / "logits-9.stablehlo"
    path.write_bytes(bytes(program(number).serialize()))
    with pytest.raises(UserError, match="it calls functions that no exported model needs"):
        exported_functions.Lazy(path)(np.ones(1, np.float32))


def test_an_export_is_whole_or_not_there(predictor, tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(UserError, match="exists; give a new directory"):
        stablehlo.write(predictor, tmp_path / "mine", {})
    with pytest.raises(TypeError):
        stablehlo.write(predictor, tmp_path / "new", {"not": {"JSON"}})
    with pytest.raises(UserError, match="completes sets, and transformers has none such"):
        huggingface_export.write(predictor, tmp_path / "hf", {})
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
