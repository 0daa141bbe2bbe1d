"""The scripts of docs/data_sets make records of what Python packages hold."""

import gzip
import json
import subprocess
import sys
import zipfile

from tests.conftest import ROOT

TABLE = """\
"TRANSACTION_DT","CUSTOMER_ID","AGE_GROUP","PIN_CODE","PRODUCT_SUBCLASS","PRODUCT_ID","AMOUNT"
"11/1/2000","7","45-49","115","tea","1","2"
"11/1/2000","7","45-49","115","egg","2","1"
"11/1/2000","7","45-49","115","tea","3","1"
"11/4/2000","7","45-49","115","ham","4","1"
"11/4/2000","7","45-49","115","tea","1","1"
"11/2/2000","8","  ","Unknown","tea","1","1"
"11/5/2000","8","  ","Unknown","egg","1","1"
"11/5/2000","8","  ","Unknown","rye","1","1"
"""


def test_baskets_know_only_what_was_bought_before(tmp_path):
    with zipfile.ZipFile(tmp_path / "table.zip", "w") as archive:
        archive.writestr("table.csv", "\ufeff" + TABLE)
    script = ROOT / "docs" / "data_sets" / "ta_feng.py"
    records = tmp_path / "records.jsonl.gz"
    subprocess.run(
        [sys.executable, script, tmp_path / "table.zip", records],
        check=True,
        capture_output=True,
    )
    with gzip.open(records, "rt") as file:
        first, second, third = map(json.loads, file)
    assert first["items"] == ["tea", "egg"]
    assert first["context"] == {
        "age": "45-49",
        "area": "115",
        "weekday": "Wednesday",
        "month": "November",
        "visits_before": 0,
        "days_since_last_visit": None,
        "bought_before": None,
    }
    # The latest comes last; what this basket holds does not count as bought before.
    assert second["context"]["bought_before"] == ["tea", "egg"]
    assert second["context"]["days_since_last_visit"] == 3
    # A visit for one class makes no record, but it was a visit.
    assert (third["id"], third["context"]["age"], third["context"]["area"]) == (
        *("8-2000-11-05", None),
        None,
    )
    assert third["context"]["visits_before"] == 1
