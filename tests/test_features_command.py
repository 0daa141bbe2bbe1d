"""The command that writes the activations of a run."""

import json
import re
import shlex

import numpy as np
import pandas
import pyarrow.parquet
import pytest

import cbert
from cbert.data import prepared
from cbert.schema import PAD_ITEM
from cbert.training import config as config_lib
from tests.conftest import ROOT, refused, run
from tests.models import encode


def test_the_page_shows_the_vectors_of_sets(trained, predictor, tmp_path):
    """The command of docs/library.md, on a run whose model has one block as the page's has."""
    page = (ROOT / "docs" / "library.md").read_text()
    (block,) = re.findall(r"^```\n(python -m experiments.features.*?)^```$", page, re.M | re.S)
    command = shlex.split(block.replace("\\\n", " ").splitlines()[0])
    own = {"runs/own": str(trained), "features/own": str(tmp_path / "own")}
    flags = ["=".join(own.get(part, part) for part in flag.split("=")) for flag in command[3:]]
    run("features", *flags)
    table = pandas.read_parquet(tmp_path / "own" / "test.parquet")
    assert list(table) == ["id", "group", "layer_0", "layer_1"]
    assert "the columns `id`, `group`, `layer_0` and `layer_1`" in page
    schema, data = predictor.schema, predictor.config.data
    split = prepared.load(data.dir, data.name, "test", schema)
    model = config_lib.build_model(predictor.config, schema)
    last = np.asarray(encode(model, predictor.program.params, split.items, split.context))
    means = [x[:length].mean(axis=0) for x, length in zip(last, split.lengths, strict=True)]
    np.testing.assert_allclose(np.stack(table["layer_1"]), means, atol=1e-5)


@pytest.mark.soak
def test_the_activations_of_a_run(trained, predictor, tmp_path):
    output = tmp_path / "features"
    common = (f"--workdir={trained}", f"--output={output}")
    assert "sets and sequences have no [CLS]" in refused("features", *common, "--pooling=cls")
    assert "a probe needs records with 'label'" in refused("features", *common, "--probe=label")
    assert not output.exists()
    done = run("features", *common, "--split=test", "--layers=0,last", "--format=npy")
    assert f"in {output}: test 60 examples" in done.stdout
    written = json.loads((output / "features.json").read_text())
    assert (written["layers"], written["step"]) == ([0, 1], predictor.step)
    schema, data = predictor.schema, predictor.config.data
    split = prepared.load(data.dir, data.name, "test", schema)
    model = config_lib.build_model(predictor.config, schema)
    x = encode(model, predictor.program.params, split.items, split.context)
    shown = (split.items != PAD_ITEM)[..., None]
    expected = (np.asarray(x) * shown).sum(axis=1) / shown.sum(axis=1)
    np.testing.assert_allclose(np.load(output / "test_layer_1.npy"), expected, atol=1e-5)
    table = pyarrow.parquet.read_table(output / "test.parquet").to_pydict()
    assert table == {"id": list(split.ids), "group": list(split.groups)}
    items = schema.items[:2]
    anew = [{"items": items, "context": {"occasion": "ab"[n % 2]}} for n in range(90)]
    cbert.prepare(anew, data.name, tmp_path / "anew")
    flags = f"--data_dir={tmp_path / 'anew'}", f"--output={tmp_path / 'others'}"
    said = run("features", f"--workdir={trained}", "--split=test", *flags).stderr
    assert f"{data.name!r} was prepared anew since the model learned from it" in said
