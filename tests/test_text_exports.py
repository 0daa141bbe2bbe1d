"""Exported text models give the numbers of the run, each in the form that it was written in."""

import ast
import json
import os
import re
import subprocess
import sys

import jax
import numpy as np
import onnxruntime
import pytest

from cbert.data import vocabulary
from cbert.errors import UserError
from cbert.inference import card, huggingface_export, onnx_export, stablehlo
from cbert.inference.context import columns
from cbert.inference.text_program import TextRows
from cbert.inference.text_queries import TextQuery
from cbert.model import conditioning, huggingface
from cbert.schema import PAD_ITEM
from cbert.training import config as config_lib
from cbert.training.from_huggingface import FromHuggingFace
from tests.conftest import ROOT, run, some
from tests.test_huggingface_parity import peer
from tests.text_predictors import TARGETS, VOCABULARY, assemble, save

# This script runs where the model's code cannot be imported.
WITHOUT_THE_MODEL = """
import json, sys
for name in ("cbert.model", "cbert.tasks", "cbert.training", "flax"):
    sys.modules[name] = None
import cbert
predictor = cbert.load_exported(sys.argv[1], batch_sizes=(4,))
row = json.loads(sys.argv[2])
print(json.dumps([
    predictor.predict(**row).to_dict(),
    predictor.explain(**row).to_dict(),
    predictor.embed([row["text"]], [row["context"]], pooling="mean").tolist(),
    predictor.embed([row["text"]], [row["context"]]).tolist(),
]))
"""
QUERY = {"text": "A [MASK] is red", "text_b": "7 [MASK]", "context": {"mood": "cold"}}


def flattened(value):
    """The numbers and the strings in a result."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from flattened(one)
    else:
        yield value


@pytest.mark.soak
@pytest.mark.parametrize("task", some(TARGETS, "masked_language"))
def test_stablehlo_without_the_models_code(task, tmp_path):
    predictor = assemble(task)
    stablehlo.write(predictor, tmp_path / "exported", {})
    row = {**QUERY, "text_b": None} if task == "tagging" else QUERY
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_MODEL, str(tmp_path / "exported"), json.dumps(row)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    expected = [
        predictor.predict(**row).to_dict(),
        predictor.explain(**row).to_dict(),
        predictor.embed([row["text"]], [row["context"]], pooling="mean").tolist(),
        predictor.embed([row["text"]], [row["context"]]).tolist(),
    ]
    for one, other in zip(flattened(json.loads(done.stdout)), flattened(expected), strict=True):
        close = pytest.approx(other, abs=1e-4) if isinstance(other, float) else other
        assert one == close


CASES = [(task, method) for task in TARGETS for method in conditioning.NAMES]


@pytest.mark.soak
@pytest.mark.parametrize("case", some(CASES, ("classification", "none")))
def test_onnx_gives_the_outputs_of_the_predictor(case, tmp_path):
    task, method = case
    predictor = assemble(task, method)
    onnx_export.write(predictor, tmp_path / "onnx", {})
    card = json.loads((tmp_path / "onnx" / "card.json").read_text())
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "outputs-12.onnx")
    assert list(card["inputs"]) == [one.name for one in session.get_inputs()]
    program, drawn = predictor.program, np.random.default_rng(0)
    for rows in (1, 3):
        tokens = drawn.integers(0, len(VOCABULARY), (rows, 12)).astype(np.int32)
        tokens[0, 9:] = PAD_ITEM
        segments = (np.arange(12) > 5).astype(np.int32) * np.ones_like(tokens)
        contexts = [{"mood": "warm", "age": 20 * n} for n in range(rows)]
        context = predictor.schema.encode_contexts(contexts)
        made = program.functions.outputs(program.params, tokens, segments, context)
        if task == "masked_language":
            vectors = made.pop("vectors").reshape(-1, 16)
            logits = program.functions.token_logits(program.params, vectors)
            made = {"logits": logits.reshape(rows, 12, -1), **made}
        columns = {f"context/{name}": column for name, column in context.items()}
        inputs = {"tokens": tokens, "segments": segments, **columns}
        outputs = session.run(list(made), inputs)
        for one, other in zip(outputs, made.values(), strict=True):
            assert (one.dtype, one.shape) == (np.float32, other.shape)
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-4)


def test_the_lines_of_the_docs_run_without_jax(tmp_path):
    predictor = assemble("classification", max_length=16)
    onnx_export.write(predictor, tmp_path / "exported" / "turns-onnx", {})
    (code,) = re.findall(
        r"onnxruntime runs it.*?```python\n(.*?)```",
        (ROOT / "docs" / "text.md").read_text(),
        re.DOTALL,
    )
    code = code.replace('"domain": "Restaurants"', '"mood": "cold"')
    blocked = "".join(f"sys.modules[{name!r}] = " for name in ("jax", "jaxlib", "flax"))
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{blocked}None\n{code}print(logits.tolist())"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    labels, logits = map(ast.literal_eval, done.stdout.splitlines())
    result = predictor.predict("What's their phone number?", {"mood": "cold"})
    assert labels == [one.label for one in result.labels]
    probabilities = [one.probability for one in result.labels]
    expected = np.sort(np.asarray(jax.nn.softmax(np.array(logits[0]))))[::-1]
    np.testing.assert_allclose(probabilities, expected, atol=1e-4)


def test_a_folder_of_transformers_holds_the_model_and_its_vocabulary(tmp_path):
    predictor = assemble("regression", "none", model__start_as_plain=False)
    result = {"data": "", "masking": "", "queries": 9, "groups": 3, "standard_errors": ""}
    error = {"mean": 2.5, "standard_error": 0.25}
    result |= {"step": predictor.step, "results": {"model": {"mean_absolute_error": error}}}
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "test.json").write_text(json.dumps(result))
    facts = card.facts(predictor, tmp_path)
    assert facts["intended_use"].startswith("Texts for the task regression, drawn from")
    assert facts["data"]["features"] == {}  # The method none reads none.
    facts = card.facts(predictor, tmp_path, "Rating tables.")
    huggingface_export.write(predictor, tmp_path / "hf", facts)
    page = (tmp_path / "hf" / "README.md").read_text().split("\n")
    assert page[3:9] == [
        *("pipeline_tag: text-classification", "---", "", "# hf", ""),
        "Rating tables.",
    ]
    assert 'model = AutoModelForSequenceClassification.from_pretrained("hf")' in page
    assert "| test | mean_absolute_error | 2.5000 | 0.2500 |" in page
    read = huggingface.read(tmp_path / "hf")
    params = predictor.program.params
    for name in ("query", "out"):
        path = ("blocks_0", "attention", name, "kernel")
        ours = params["blocks_0"]["attention"][name]["kernel"]
        np.testing.assert_array_equal(read.parameters[path], ours)
    # The last layer gives the number in its units: the target's mean is 5000, its scale 10.
    bias = read.parameters[("classifier", "bias")]
    np.testing.assert_allclose(bias, params["classifier"]["bias"] * 10 + 5000, rtol=1e-6)
    written = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert written["problem_type"] == "regression"
    assert [path.name for path in read.vocabularies] == ["vocab.txt"]
    assert (tmp_path / "hf" / "vocab.txt").read_text().split("\n") == [*VOCABULARY, ""]
    options = json.loads((tmp_path / "hf" / "tokenizer_config.json").read_text())
    assert (options["do_lower_case"], options["strip_accents"]) == (True, False)
    of_run = vocabulary.read(tmp_path / "hf" / "vocab.txt")
    assert of_run == (predictor.schema.items, predictor.schema.tokenizer)


# What transformers needs to build its BERT and its tokenizer.
CONFIG = {
    "model_type": "bert",
    "vocab_size": len(VOCABULARY),
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 12,
    "type_vocab_size": 2,
    "pad_token_id": VOCABULARY.index("[PAD]"),
}
TOKENIZER = {
    "tokenizer_class": "BertTokenizer",
    "model_max_length": 12,
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "mask_token": "[MASK]",
}


@pytest.mark.parametrize("task", some(TARGETS, "classification"))
def test_a_folder_of_transformers_read_back_is_the_model(task, tmp_path):
    predictor = assemble(task, "none", context_features=False, model__start_as_plain=False)
    huggingface_export.write(predictor, tmp_path / "hf", card.facts(predictor, tmp_path))
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert {name: config[name] for name in CONFIG} == CONFIG
    options = json.loads((tmp_path / "hf" / "tokenizer_config.json").read_text())
    assert {name: options[name] for name in TOKENIZER} == TOKENIZER
    if task == "classification":
        assert config["architectures"] == ["BertForSequenceClassification"]
        assert config["id2label"] == {"0": "x", "1": "y", "2": "z"}
    program, schema = predictor.program, predictor.schema
    model = config_lib.build_model(predictor.config, schema)
    blank = jax.tree.map(np.zeros_like, program.params)
    params, unmatched = huggingface.initialize_from(
        model, blank, huggingface.read(tmp_path / "hf")
    )
    assert unmatched == huggingface.Unmatched((), ())
    tokens = np.arange(18, dtype=np.int32).reshape(2, 9)
    inputs = tokens, tokens % 2, schema.encode_contexts([{}, {}])
    outputs = jax.jit(program.functions.outputs)
    ours, read = outputs(program.params, *inputs), outputs(params, *inputs)
    if task == "regression":  # The folder's model gives the number in the records' units.
        read["number"] = (read["number"] - schema.target.mean) / schema.target.scale
    for name, values in ours.items():
        np.testing.assert_allclose(read[name], values, rtol=1e-6, atol=1e-6)
    begun = FromHuggingFace(f"hf:{tmp_path / 'hf'}", model, schema)(blank)
    for name, values in outputs(begun, *inputs).items():
        np.testing.assert_allclose(values, ours[name], rtol=1e-5, atol=1e-5)


def as_transformers(predictor, outputs):
    """One text's outputs by the names of `transformers_peer.py`."""
    if predictor.task == "span":
        return dict(zip(("start", "end"), outputs["logits"].T, strict=True))
    if predictor.task == "regression":
        return {"logits": outputs["number"][None]}
    if predictor.task == "masked_language":
        program = predictor.program
        tokens = program.functions.token_logits(program.params, outputs["vectors"])
        return {"tokens": tokens, "next_sentence": outputs["next_sentence"]}
    return outputs


@pytest.mark.soak
@pytest.mark.parametrize("task", TARGETS)
def test_transformers_opens_an_exported_folder(task, tmp_path):
    """Its tokenizer makes our tokens of texts, and its model our outputs of these."""
    predictor = assemble(task, "none", context_features=False, model__start_as_plain=False)
    save(predictor, tmp_path / "run")
    flags = (f"--workdir={tmp_path / 'run'}", "--checkpoint=last", "--format=hf")
    run("export", *flags, f"--output={tmp_path / 'hf'}")
    texts = {"text": ["Please, a RED seat?", "is É"], "text_b": ["7 tables", "a blue seat's"]}
    if task == "tagging":
        del texts["text_b"]
    np.savez(tmp_path / "texts.npz", **texts)
    (architecture,) = json.loads((tmp_path / "hf" / "config.json").read_text())["architectures"]
    theirs = peer(
        architecture, tmp_path / "hf", tmp_path / "texts.npz", tmp_path / "outputs.npz"
    )
    assert theirs["missing"].size == theirs["unexpected"].size == 0
    page = (tmp_path / "hf" / "README.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    python = os.environ.get("PEER_PYTHON", sys.executable)
    subprocess.run([python, "-c", code], cwd=tmp_path, check=True)
    rows = [dict(zip(texts, row, strict=True)) for row in zip(*texts.values(), strict=True)]
    encoded = [predictor.check(TextQuery(**row)) for row in rows]
    tokens = [query.tokens for query in encoded]
    positions = [np.arange(len(each)) for each in tokens]
    context = columns(predictor.schema, [query.context.values for query in encoded])
    outputs = predictor.program.outputs(TextRows(tokens, positions, context))
    for index, of_row in enumerate(outputs):
        length = len(tokens[index])
        assert theirs["input_ids"][index, :length].tolist() == tokens[index].codes.tolist()
        for name, values in as_transformers(predictor, of_row).items():
            values_of_theirs = theirs[name][index][: len(values)]
            np.testing.assert_allclose(values_of_theirs, values, rtol=1e-4, atol=1e-4)


def test_a_folder_of_transformers_is_refused_where_it_cannot_be_exact(tmp_path):
    predictor = assemble("classification")
    with pytest.raises(UserError, match="BERT of transformers reads none"):
        huggingface_export.write(predictor, tmp_path / "hf", card.facts(predictor, tmp_path))
    # A register reads no context, and yet it is none of BERT's.
    predictor = assemble("classification", "gsu_bi", model__gsu_bi__context=False)
    with pytest.raises(UserError, match="the conditioning changes what the model computes"):
        huggingface_export.write(predictor, tmp_path / "hf", card.facts(predictor, tmp_path))
    assert not (tmp_path / "hf").exists()
    predictor = assemble("classification", "none", context_features=False)
    params = {**predictor.program.params, "extra": {"kernel": np.ones((2, 2))}}
    model = config_lib.build_model(predictor.config, predictor.schema)
    with pytest.raises(UserError, match="has extra/kernel, which BERT of transformers has not"):
        huggingface.write(tmp_path / "hf", model, params)
    assert not (tmp_path / "hf").exists()
