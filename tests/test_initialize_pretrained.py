"""A run that begins with a pretrained BERT, and goes through the real loop."""

import json

import jax
import numpy as np
import pytest

from cbert.data import prepare
from cbert.data.prepare_options import TextOptions
from cbert.data.validator import Validator
from cbert.errors import UserError
from cbert.model import huggingface, parameter_tree
from cbert.tasks import create
from cbert.training import config as config_lib
from cbert.training import loop
from cbert.training.initialize import from_source
from configs import text
from tests.bert_reference import RANDOM_BERT
from tests.test_text_tokens import library_file
from tests.text_data import load, rows


@pytest.mark.soak
def test_a_pretrained_bert_with_a_context_begins_as_itself(tmp_path):
    """A folder of `transformers` through the config, the real loop, and two methods."""
    folder = tmp_path / "bert"
    folder.mkdir()
    for path in RANDOM_BERT.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    known = huggingface.read(folder)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = [*special, "red", "blue", "7", "8", "please", "so"]
    tokens += [f"word{n}" for n in range(known.sizes[0] - len(tokens))]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    validator = Validator("text")
    read = (validator(row, line) for line, row in enumerate(rows(), 1))
    options = prepare.PrepareOptions(
        kind="text",
        text=TextOptions(vocabulary=str(folder / "vocab.txt"), max_length=12, target="label"),
    )
    prepare.prepare(read, tmp_path / "data", "texts_label", options)
    split, schema = load(tmp_path / "data", "label")
    vectors = {}
    for method in ("none", "gs"):
        config = text.get_config(f"masked_language,hf:{folder}")
        config.data.update({"name": "texts_label", "dir": str(tmp_path / "data")})
        config.model.method = method
        task = create(config, config_lib.build_model(config, schema), schema)
        params = parameter_tree.initialize(task.model, jax.random.key(1))
        began = from_source(f"hf:{folder}", task.model, schema)(params)
        columns = jax.tree.map(lambda column: column[:8], split.columns)
        vectors[method] = np.asarray(task.outputs(began, columns).vectors)
    np.testing.assert_allclose(vectors["none"], vectors["gs"], atol=1e-5)
    config.train.update({"steps": 2, "eval_every": 2, "checkpoint_every": 2, "batch_size": 16})
    loop.train(config, tmp_path / "run")
    rows_written = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(rows_written[-1])["step"] == 2
    library_file(folder / "tokenizer.json", lowercase=False)
    with pytest.raises(UserError, match="treats capital letters, accents or Chinese"):
        loop.train(config, tmp_path / "another")
    (folder / "tokenizer.json").unlink()
    beside = folder / "tokenizer_config.json"
    beside.write_text('{"do_lower_case": false}')
    with pytest.raises(UserError, match=f"prepare them with vocabulary={folder}/vocab.txt"):
        loop.train(config, tmp_path / "another")
    beside.unlink()
    (folder / "vocab.txt").write_text("\n".join([*tokens[:-1], "other"]) + "\n")
    with pytest.raises(UserError, match="the data have another vocabulary than"):
        loop.train(config, tmp_path / "another")
