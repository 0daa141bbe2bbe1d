"""A run's directory: what it says of the run as that goes on."""

import json

from cbert.training import workdir
from tests.conftest import small


def test_a_run_that_goes_on_says_where_its_data_have_moved(schema, tmp_path):
    """Evaluations and the diagnosis of a run look there."""
    workdir.initialise_workdir(small(data__dir="before"), schema, tmp_path)
    path = tmp_path / workdir.CONFIG
    written = json.loads(path.read_text())
    path.write_text(json.dumps(written | {"model": written["model"] | {"later": {"a": 1}}}))
    moved = small(data__dir="after", train__log_every=7)
    workdir.initialise_workdir(moved, schema, tmp_path)
    assert workdir.read(tmp_path)[0].data.dir == "after"
    kept = json.loads(path.read_text())
    assert kept["data"] == {**written["data"], "dir": "after"}
    assert kept["model"] == {**written["model"], "later": {"a": 1}}
    assert kept["train"]["log_every"] == written["train"]["log_every"] != 7
