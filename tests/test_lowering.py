"""The training step as a program for GPUs and TPUs, which can be made where there is none."""

import re

import jax
import pytest

from cbert import parallel
from cbert.data import prepared
from cbert.model.conditioning import NAMES
from cbert.training import run as run_lib
from tests import text_data
from tests.conftest import small, some

PRODUCT = re.compile(r"dot_general .*: \(tensor<(?:\d+x)*(\w+)>, tensor<(?:\d+x)*(\w+)>\)")


def lowered(monkeypatch, schema, platform, config):
    """The step of a config in StableHLO, chosen as on that platform."""
    kind = {"cuda": "gpu"}.get(platform, platform)
    monkeypatch.setattr(parallel, "platform", lambda: kind)
    made = run_lib.set_up(config, schema)
    fed, _, length = made.source.feed(0, 1)
    inputs = made.state, made.resident, fed, made.indices, made.key, length
    return (
        jax.jit(made.step, static_argnums=5)
        .trace(*inputs)
        .lower(lowering_platforms=(platform,))
        .as_text()
    )


@pytest.mark.parametrize("method", some(NAMES, "gsu"))
@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_all_products_of_a_step_in_bfloat16_are_of_bfloat16(
    monkeypatch, data_dir, schema, platform, method
):
    """So are those of the backward pass and of the output layer, which are most of a step."""
    config = small(method, data__dir=data_dir, model__dtype="bfloat16")
    check_products(lowered(monkeypatch, schema, platform, config))


def test_so_are_those_of_texts_whose_attention_is_dropped(monkeypatch, tmp_path):
    text_data.prepare_texts(tmp_path, "label")
    config = text_data.small_text(
        "masked_language", tmp_path, model__dtype="bfloat16", model__attention_dropout=0.1
    )
    schema = prepared.load_schema(config.data.dir, config.data.name)
    check_products(lowered(monkeypatch, schema, "cuda", config))


def check_products(text):
    products = PRODUCT.findall(text)
    assert len(products) > 20
    assert set(products) == {("bf16", "bf16")}
    assert "LayoutConstraint" not in text
