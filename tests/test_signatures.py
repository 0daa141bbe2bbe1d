"""The page of an export: its functions take what it says, and give what it says."""

import json
import re

import jax
import numpy as np
import pytest

import cbert
from cbert.inference import exported_functions, stablehlo
from cbert.schema import schema_file
from tests.text_predictors import assemble

ROWS = 3


def tables(text):
    """Each heading of a page with the rows of its table, as dicts."""
    for block in text.split("\n## ")[1:]:
        heading, *lines = block.splitlines()
        head, _, *rows = [line[2:-2].split(" | ") for line in lines if line.startswith("| ")]
        yield heading, [dict(zip(head, row, strict=True)) for row in rows]


def array(said, value=0):
    """An array as a page describes it."""
    dtype, shape = re.fullmatch(r"(\w+) \[(.*)\]", said).groups()
    sizes = [ROWS if size == "rows" else int(size) for size in shape.split(", ")]
    return np.full(sizes, value, dtype)


def numbers(said):
    """The numbers of a row where a feature is missing."""
    for part in said.split(", "):
        number, _, times = part.partition(" × ")
        yield from [float(number)] * int(times or 1)


@pytest.mark.parametrize("of_texts", [False, True])
def test_the_functions_take_and_give_what_the_page_says(of_texts, predictor, tmp_path):
    own = assemble("masked_language") if of_texts else predictor
    directory = tmp_path / "exported"
    stablehlo.write(own, directory, {})
    page = (directory / "README.md").read_text()
    *functions, (heading, features) = tables(page)
    assert heading == "`context`"
    context = {
        row["feature"]: array(row["array"])
        + np.array([*numbers(row["a row where it is missing"])])
        for row in features
    }
    schema = schema_file.load(directory / "schema.json")
    for name, wanted in schema.encode_contexts([{}] * ROWS).items():
        np.testing.assert_array_equal(context[name], wanted)
        context[name] = context[name].astype(wanted.dtype)
    params = exported_functions.nested(directory / "parameters.npz")
    called = set()
    for heading, rows in functions:
        arguments = re.fullmatch(r"`\w+\((.*)\)`", heading)[1].split(", ")
        for row in rows:
            path = directory / row.pop("file")
            given = {"params": params, "context": context}
            given |= {name: array(said) for name, said in row.items() if name in arguments}
            read = jax.export.deserialize(bytearray(path.read_bytes()))
            made = read.call(*(given[name] for name in arguments))
            made = made if isinstance(made, dict) else {"": made}
            for name, output in made.items():
                said = array(row[f"output {name}".rstrip()])
                assert (output.shape, output.dtype) == (said.shape, said.dtype)
            called.add(path.name)
    assert called == {path.name for path in directory.glob("*.stablehlo")}
    # Nothing that reads the export reads the page, so that it may be edited.
    assert "README.md" not in json.loads((directory / "card.json").read_text())["sha256"]
    (directory / "README.md").write_text(f"Mine.\n{page}")
    assert cbert.load_exported(directory).schema == schema
