"""The command that writes the activations of a run."""

import json

import numpy as np
import pyarrow.parquet
import pytest

from cbert.data import prepared
from cbert.schema import PAD_ITEM
from cbert.training import config as config_lib
from tests.conftest import refused, run
from tests.models import encode


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
