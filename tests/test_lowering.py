"""The training step as a program for GPUs and TPUs, which can be made where there is none."""

import re

import pytest

from cbert.benchmark import workload
from cbert.model.conditioning import NAMES
from tests.compile_for import lower, moved
from tests.conftest import small, some
from tests.text_data import small_text

PRODUCT = re.compile(r"dot_general .*: \(tensor<(?:\d+x)*(\w+)>, tensor<(?:\d+x)*(\w+)>\)")
METHODS = [name for name in NAMES if name != "history"]  # It needs a feature that is a list.


def check_products(config, platform):
    """All are of bfloat16, those of the backward pass and of the output layer, too.

    Only the sums of rows of a table that a GPU makes by products stay exact.
    """
    text = lower(config, workload.Sizes(items=100, context=100, length=6), platform).as_text()
    lines = [line for line in text.splitlines() if "dot_general" in line]
    exact = [line for line in lines if "HIGHEST" in line]
    assert 0 < len(exact) <= 5 if platform == "cuda" else not exact
    products = PRODUCT.findall("\n".join(line for line in lines if line not in exact))
    assert len(products) > 10
    assert set(products) == {("bf16", "bf16")}
    assert "LayoutConstraint" not in text


@pytest.mark.parametrize("method", some(METHODS, "gsu"))
@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_products_of_sets(platform, method):
    check_products(small(method, model__dtype="bfloat16"), platform)


def test_products_of_a_loss_over_sampled_items():
    config = small("none", model__dtype="bfloat16", task__masked_item__sampled_items=32)
    check_products(config, "cuda")


def test_products_of_texts_whose_attention_is_dropped():
    config = small_text(
        "masked_language", "", model__dtype="bfloat16", model__attention_dropout=0.1
    )
    check_products(config, "cuda")


@pytest.mark.parametrize("heads", some([2, 4], 2))
def test_a_gpu_stores_what_layers_make_in_bfloat16(heads):
    """In float32 are the logits of attention and what it reads, before that is divided.

    A kernel stores neither, where heads are wide enough: it runs once a pass and layer.
    """
    config = small_text("masked_language", "", model__dtype="bfloat16", model__layers=2)
    sizes = {"dimension": 32, "feed_forward": 48, "attention_dropout": 0.1, "heads": heads}
    config.model.update(sizes)
    config.train.batch_size = 5
    text = lower(config, workload.Sizes(items=100, length=6), "cuda").as_text()
    lines = [line for line in text.splitlines() if "HIGHEST" not in line]
    made = re.findall(r"dot_general .*-> tensor<(\S+)x(\w+)>", "\n".join(lines))
    assert {kind for shape, kind in made if re.fullmatch("30x(32|48|64)", shape)} == {"bf16"}
    of_heads = [kind for shape, kind in made if shape.count("x") == 3]
    if heads == 2:
        assert text.count("gpu.triton") == 4
        assert not of_heads
    else:
        assert "gpu.triton" not in text
        assert of_heads.count("f32") == 4 < of_heads.count("bf16")


def test_what_kernels_move_is_counted_in_bytes():
    program = """
ENTRY %main (a: f32[4,2]) -> f32[3] {
  %a = f32[4,2]{1,0} parameter(0)
  %b = bf16[2]{0} fusion(%a), kind=kLoop, calls=%c
  %d = f32[8]{0} bitcast(%a)
  ROOT %e = (f32[3]{0}, pred[5]{0}) custom-call(%d, %b), custom_call_target="x"
}"""
    assert moved(program) == (4 + 32) + (12 + 5 + 32 + 4)
