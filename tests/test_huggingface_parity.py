"""Outputs and gradients are those of `transformers`, for folders of theirs and of ours."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import flax
import jax
import numpy as np
import pytest

from cbert.model import heads, huggingface
from cbert.model.huggingface.names import HEAD_ENTRIES, TIED, encoder_entries, stored
from tests import bert_reference
from tests.huggingface_folders import HEADS, random_model
from tests.test_bert import weighted_sum
from tests.text_models import hidden_states, loaded, minilm


def peer(*arguments):
    """Runs `transformers_peer.py` where torch is: here, or by the Python of PEER_PYTHON."""
    python = os.environ.get("PEER_PYTHON", sys.executable)
    if python == sys.executable:
        for name in ("torch", "transformers"):
            if importlib.util.find_spec(name) is None:
                pytest.skip(f"needs the extra bench: {name} is not installed")
    script = pathlib.Path(__file__).with_name("transformers_peer.py")
    done = subprocess.run([python, script, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(np.load(arguments[3]))


def outputs_of(model, params, inputs):
    """A model's outputs by the names of `transformers_peer.py`."""
    done = model.apply({"params": params}, **inputs)
    if isinstance(done, heads.Pretraining):
        logits = done.vectors @ done.table.T + done.bias
        return {"tokens": logits, "next_sentence": done.next_sentence}
    if isinstance(model.head, heads.HiddenStatesHead):
        return dict(zip(("hidden", "pooled"), done, strict=True))
    if isinstance(model.head, heads.SpanHead):
        return {"start": done[..., 0], "end": done[..., 1]}
    return {"logits": done}


def check_parity(model, params, inputs, theirs):
    assert theirs["missing"].size == theirs["unexpected"].size == 0

    def loss(params):
        outputs = outputs_of(model, params, inputs)
        return weighted_sum(outputs), outputs

    gradients, outputs = jax.jit(jax.grad(loss, has_aux=True))(params)
    for name, values in outputs.items():
        np.testing.assert_allclose(values, theirs[name], atol=1e-4, err_msg=name)
    flat, compared = flax.traverse_util.flatten_dict(gradients), 0
    largest = max(np.linalg.norm(x) for x in jax.tree.leaves(gradients))
    for entry in encoder_entries(model.encoder.config.layers) + HEAD_ENTRIES:
        if entry.path in flat:
            for name, gradient in entry.split(flat.pop(entry.path)).items():
                expected = theirs[f"gradient:{stored(name, model.head.architecture)}"]
                # The exact gradient of a key's bias is zero.
                scale = max(np.linalg.norm(expected), 1e-3 * largest)
                assert np.linalg.norm(gradient - expected) < 1e-3 * scale, name
                compared += 1
    assert not flat
    named = {name for name in theirs if name.startswith("gradient:")}
    assert compared == len(named - {f"gradient:{copy}" for copy in TIED})


@pytest.mark.parametrize("architecture", HEADS)
def test_parity_with_transformers_both_ways(tmp_path, architecture):
    inputs = bert_reference.inputs()
    np.savez(tmp_path / "inputs.npz", **inputs)
    # A folder of theirs comes in.
    theirs = peer(
        architecture, tmp_path / "theirs", tmp_path / "inputs.npz", tmp_path / "theirs.npz"
    )
    model, params = random_model(architecture)
    pretrained = huggingface.read(tmp_path / "theirs")
    params, unmatched = huggingface.initialize_from(model, params, pretrained)
    assert unmatched == huggingface.Unmatched((), ())
    check_parity(model, params, inputs, theirs)
    # A folder of ours goes out.
    model, params = random_model(architecture)
    huggingface.write(tmp_path / "ours", model, params)
    theirs = peer(
        architecture, tmp_path / "ours", tmp_path / "inputs.npz", tmp_path / "ours.npz"
    )
    check_parity(model, params, inputs, theirs)


def test_parity_with_transformers_on_minilm_both_ways(tmp_path):
    inputs = bert_reference.inputs(length=40, vocabulary=30_522)
    np.savez(tmp_path / "inputs.npz", **inputs)
    model, params = loaded(minilm(), hidden_states)
    huggingface.write(tmp_path / "ours", model, params)
    for folder in (minilm(), tmp_path / "ours"):
        theirs = peer("BertModel", folder, tmp_path / "inputs.npz", tmp_path / "outputs.npz")
        check_parity(model, params, inputs, theirs)
