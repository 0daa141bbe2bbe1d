"""The command that measures how long predictions take."""

import re

import pytest

from cbert.benchmark import latency
from cbert.schema.tokenizer import LEAST_LENGTH
from tests.conftest import refused, run
from tests.text_predictors import assemble, save


@pytest.mark.parametrize("task", ["masked_language", "classification", "tagging"])
def test_a_drawn_text_has_the_tokens_that_it_is_named_after(task):
    predictor = assemble(task)
    found = latency.kinds(predictor)
    assert [name for name, _, _ in found] == ["4 of 12 tokens"]
    for _, size, call in found:
        queries = call.args[0]
        assert len(queries) == size
        for query in queries:
            tokens = predictor.check(query).tokens
            assert len(tokens) == 12
            assert not tokens.cut
        assert len(call()) == size


def test_a_drawn_pair_has_them_together():
    words = ["red", "table", "a", "blue", "is", "please", "seat", "red", "a", "is", "blue", "a"]
    query = latency.text_query("span", True, words)
    assert (query.text, query.text_b) == ("blue is please seat", "red a is blue a")
    assert len(assemble("span").check(query).tokens) == 12
    shortest = latency.text_query("span", True, words[:LEAST_LENGTH])
    assert (shortest.text, shortest.text_b) == ("blue", "is")


def test_the_command_has_a_row_for_every_batch_size(tmp_path):
    save(assemble("classification"), tmp_path / "texts")
    done = run("latency", f"--workdir={tmp_path / 'texts'}", "--rounds=2")
    assert re.match(r"gs, 18 tokens, dimension 16: loaded in \d+\.\d s, ", done.stdout)
    rows = re.findall(r"^(\d+) of 12 tokens +([\d.]+) +([\d.]+) +([\d.]+)$", done.stdout, re.M)
    assert [int(row[0]) for row in rows] == [1, 4, 16, 64]
    for size, median, slow, each in rows:
        assert 0 < float(median) <= float(slow)
        assert float(each) == pytest.approx(float(median) / int(size), abs=0.006)


def test_sets_are_completed_in_every_batch_size_and_scored(predictor):
    sizes = predictor.program.batch_sizes
    *completed, scored = latency.kinds(predictor)
    assert [(name, count) for name, count, _ in completed] == [
        (f"complete {size}", size) for size in sizes
    ]
    assert [len(call()) for _, _, call in completed] == sizes
    name, count, call = scored
    assert (name, count, len(call().scores)) == ("score 4 items", 1, 4)


def test_a_directory_that_is_no_run_is_refused(tmp_path):
    assert str(tmp_path) in refused("latency", f"--workdir={tmp_path}")
    flags = (f"--workdir={tmp_path}", "--exported", "--checkpoint=last")
    assert "--checkpoint cannot be given together with --exported" in refused("latency", *flags)
