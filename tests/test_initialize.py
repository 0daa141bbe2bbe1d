"""Runs that begin with other parameters."""

import dataclasses
import shutil

import numpy as np
import pytest

from cbert import experiment
from cbert.data import prepare, prepared
from cbert.data.prepare_options import TextOptions
from cbert.data.validator import Validator
from cbert.errors import UserError
from cbert.evaluation.restore import restore
from cbert.model import huggingface
from cbert.schema import schema_file
from cbert.tasks import create
from cbert.training import config as config_lib
from cbert.training import initialize, loop
from cbert.training import run as run_lib
from cbert.training.from_huggingface import _with_labels_of
from cbert.training.from_run import _context_kernels, _related
from cbert.training.initialize import from_source
from tests import steps
from tests.bert_reference import RANDOM_BERT
from tests.models import drawn
from tests.text_data import load, prepare_texts, rows, small_text


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    prepare_texts(folder, "label")
    schema = prepared.load_schema(str(folder), "texts_label")
    (folder / "vocab.txt").write_text("\n".join(schema.items) + "\n")
    validator = Validator("text")
    read = (validator(row, line) for line, row in enumerate(rows("tags"), 1))
    options = prepare.PrepareOptions(
        kind="text",
        text=TextOptions(vocabulary=str(folder / "vocab.txt"), max_length=16, target="tags"),
    )
    prepare.prepare(read, folder, "texts_tags", options)
    return folder


@pytest.fixture(scope="module")
def pretrained(directory, tmp_path_factory):
    """A short run of the masked language model."""
    workdir = tmp_path_factory.mktemp("runs") / "pretrained"
    loop.train(small_text("masked_language", directory, train__steps=3), workdir)
    return workdir


def best_params(workdir):
    config = config_lib.load(workdir)
    schema = schema_file.load(workdir / "schema.json")
    restored = restore(workdir, config, schema, "best")
    return steps.flat(restored.params)


def test_a_classifier_begins_with_the_encoder_of_a_run(directory, pretrained):
    _, schema = load(directory, "label")
    config = small_text("classification", directory)
    task = create(config, config_lib.build_model(config, schema), schema)
    params = drawn(task.model)
    source = from_source(str(pretrained), task.model, schema)
    began = steps.flat(source(params))
    known, fresh = best_params(pretrained), steps.flat(params)
    new = {"pooler/dense/kernel", "pooler/dense/bias", "classifier/kernel", "classifier/bias"}
    assert began.keys() - known.keys() == new
    for name, values in began.items():
        expected = fresh[name] if name in new else known[name]
        np.testing.assert_array_equal(values, expected, err_msg=name)
    first, anew, rest = source.lines
    assert first == f"initialised from {pretrained}: {len(began) - 4} parameters"
    assert anew.startswith("  4 begin anew: classifier/bias, classifier/kernel, pooler")
    unused = sorted(known.keys() - began.keys())
    assert rest == f"  {len(unused)} not used: {', '.join(unused)}"
    assert "output_bias" in unused


def test_a_features_values_are_matched_by_name(directory, pretrained):
    _, schema = load(directory, "label")
    mood = schema.features[0]
    turned = dataclasses.replace(mood, values=(*mood.values[:0:-1], "new"))
    changed = dataclasses.replace(schema, features=(turned, *schema.features[1:]))
    config = small_text("masked_language", directory)
    task = create(config, config_lib.build_model(config, changed), changed)
    params = drawn(task.model)
    source = from_source(str(pretrained), task.model, changed)
    began = steps.flat(source(params))
    name, number = f"context_encoder/feature_{mood.name}/embedding", len(mood.values)
    known, fresh = best_params(pretrained)[name], steps.flat(params)[name]
    expected = np.concatenate([known[:3], known[:3:-1], fresh[-1:]])
    np.testing.assert_array_equal(began[name], expected)
    line = f"  values of {mood.name}: {number - 1} of {number} known by name, 1 new"
    assert line in source.lines
    other = dataclasses.replace(schema, items=(*schema.items[:-1], "new"))
    with pytest.raises(UserError, match="the data have another vocabulary than"):
        from_source(str(pretrained), task.model, other)
    for kind in ("set", "sequence"):
        sets = dataclasses.replace(schema, kind=kind, tokenizer=None, items=("a", "b"))
        expected = f"is a run of texts, and the data are of {kind}s; name a run of {kind}s"
        with pytest.raises(UserError, match=expected):
            from_source(str(pretrained), task.model, sets)
    cased = dataclasses.replace(schema.tokenizer, lowercase=False)
    with pytest.raises(UserError, match="the data have another normaliser than"):
        from_source(str(pretrained), task.model, dataclasses.replace(schema, tokenizer=cased))


def test_longer_texts_have_the_known_positions_and_new_ones_after_them(directory, pretrained):
    _, schema = load(directory, "label")
    config = small_text("masked_language", directory)
    known = best_params(pretrained)["embedding/positions"]
    for more in (-3, 0, 5):
        other = dataclasses.replace(schema, max_items=len(known) + more)
        task = create(config, config_lib.build_model(config, other), other)
        params = drawn(task.model)
        source = from_source(str(pretrained), task.model, other)
        began = steps.flat(source(params))
        line = f"  positions: {len(known)} of {len(known) + more} known, {more} new"
        assert (line in source.lines) == (more > 0)
        assert source.known["embedding/positions"] == (more <= 0)
        fresh = steps.flat(params)["embedding/positions"]
        expected = np.concatenate([known, fresh[len(known) :]])[: len(fresh)]
        np.testing.assert_array_equal(began["embedding/positions"], expected)


@pytest.mark.parametrize(
    ("method", "kernel"), [("prefix", []), ("cross_attention", []), ("gs", ["hidden/kernel"])]
)
def test_kernels_over_the_whole_context_where_there_is_one_feature(directory, method, kernel):
    """A token's kernel is the feature's own; its path says so, since its shape does not."""
    _, schema = load(directory, "label")
    one = dataclasses.replace(schema, features=schema.features[:1])
    config = small_text("classification", directory, method=method)
    found = ["/".join(path[-2:]) for path in _context_kernels(config, one)]
    assert found == kernel


@pytest.mark.parametrize(
    "choice",
    [
        *("heads 1", "activation relu", "norm_epsilon 0.001"),
        *("transform_activation relu", "value_pooling sum", "start_as_plain True"),
    ],
)
def test_another_model_of_the_same_shapes_is_refused(directory, pretrained, choice):
    name, value = choice.split()
    _, schema = load(directory, "label")
    config = small_text("masked_language", directory)
    config.model[name] = type(config.model[name])(value)
    model = config_lib.build_model(config, schema)
    with pytest.raises(UserError, match=f"model.{name} is {value}, and that of"):
        from_source(str(pretrained), model, schema)(drawn(model))


@pytest.mark.parametrize(
    ("theirs", "ours", "taken"), [("c", "late_concat", False), ("gs", "gsu", True)]
)
def test_a_methods_parameters_are_those_of_methods_that_extend_it(
    directory, tmp_path, theirs, ours, taken
):
    """c and late_concat have matrices of one name and shape in different places."""
    config = small_text("masked_language", directory, method=theirs, train__steps=3)
    loop.train(config, tmp_path / theirs)
    _, schema = load(directory, "label")
    other = config_lib.build_model(config, schema).encoder.method
    config.model.method = ours
    model = config_lib.build_model(config, schema)
    method = model.encoder.method
    assert _related(method, other) == _related(other, method) == taken
    params = drawn(model)
    began = steps.flat(from_source(str(tmp_path / theirs), model, schema)(params))
    fresh, known = steps.flat(params), best_params(tmp_path / theirs)
    own = [name for name in began if "conditioning/" in name]
    same = [name for name in own if name in known and known[name].shape == fresh[name].shape]
    assert len(same) >= 2
    for name, values in began.items():
        is_known = name in known and (taken or name not in own)
        expected = known[name] if is_known else fresh[name]
        np.testing.assert_array_equal(values, expected, err_msg=name)


def test_a_run_that_read_no_context_leaves_the_choice_of_pooling(directory, tmp_path):
    config = small_text("masked_language", directory, method="none", train__steps=3)
    loop.train(config, tmp_path / "none")
    config.model.update({"method": "gs", "value_pooling": "sum"})
    _, schema = load(directory, "label")
    model = config_lib.build_model(config, schema)
    began = steps.flat(from_source(str(tmp_path / "none"), model, schema)(drawn(model)))
    kernel = "blocks_0/attention/query/kernel"
    np.testing.assert_array_equal(began[kernel], best_params(tmp_path / "none")[kernel])


def test_what_seeds_begin_with_is_said_once(directory, pretrained, capsys):
    """Each seed begins with the other run's parameters."""
    config = small_text("tagging", directory, "tags", train__init_from=str(pretrained))
    _, schema = load(directory, "tags")
    run = run_lib.set_up(config, schema, [0, 1, 2])
    states = initialize.initialised(config, run, initialize.read(config, schema))
    expected = best_params(pretrained)["embedding/tokens"]
    for state in states:
        began = steps.flat(state.params)["embedding/tokens"]
        np.testing.assert_array_equal(began, expected)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in printed][1:] == ["  2 begin anew", "  5 not used"]
    assert printed[0].startswith(f"initialised from {pretrained}: ")


def test_only_a_fresh_run_reads_them(directory, pretrained, tmp_path, capsys):
    config = small_text("tagging", directory, "tags", train__init_from=str(pretrained))
    loop.train(config, tmp_path / "run")
    assert capsys.readouterr().out.count("initialised from") == 1
    (tmp_path / "run" / "finished.json").unlink()
    loop.train(config, tmp_path / "run")
    printed = capsys.readouterr().out
    assert "resuming" in printed
    assert "initialised from" not in printed
    # A process that was killed in its first save left no checkpoint, so the run begins anew.
    (tmp_path / "run" / "finished.json").unlink()
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.rename(path.with_name(f"{path.name}.orbax-checkpoint-tmp"))
    loop.train(config, tmp_path / "run")
    assert capsys.readouterr().out.count("initialised from") == 1


@pytest.mark.parametrize(
    ("frozen", "overrides", "parts"),
    [
        ("embedding,blocks_0", {}, None),
        ("embedding, pooler", {}, "pooler (all)"),
        ("blocks_0,embedding", {"model__feed_forward": 8}, "blocks_0 (some)"),
        ("conditioning", {"model__method": "np"}, "conditioning (all)"),
    ],
)
def test_frozen_parts_that_begin_anew_are_named(
    directory, pretrained, capsys, frozen, overrides, parts
):
    options = {"train__init_from": str(pretrained), "train__frozen": frozen, **overrides}
    config = small_text("classification", directory, **options)
    params = steps.flat(experiment.build(config).state.params)
    names = tuple(part.strip() for part in frozen.split(","))
    count = sum(leaf.size for name, leaf in params.items() if name.startswith(names))
    total = sum(leaf.size for leaf in params.values())
    printed, line = capsys.readouterr(), f"{count:,} of {total:,} parameters are frozen"
    if parts is None:
        assert (printed.out.splitlines()[-1], printed.err) == (line, "")
    else:
        start = f"warning: train.frozen: {line}, and those of {parts}"
        assert printed.err.startswith(start)
        assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("source", "message"),
    [("typo", "no such file"), ("hf:typo", "config.json: No such file")],
)
def test_a_source_that_is_refused_claims_no_work_directory(
    directory, tmp_path, source, message
):
    config = small_text("tagging", directory, "tags", train__init_from=source)
    with pytest.raises(UserError, match=message):
        loop.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_pretrained_bert_of_another_size_claims_no_work_directory(directory, tmp_path):
    """Its sizes are compared when the model is built, and before the directory is written."""
    _, schema = load(directory, "tags")
    shutil.copytree(RANDOM_BERT, tmp_path / "bert")
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(schema.items) + "\n")
    source = f"hf:{tmp_path}/bert"
    config = small_text("tagging", directory, "tags", train__init_from=source)
    with pytest.raises(UserError, match="and the pretrained model's is"):
        loop.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_classifier_is_taken_by_the_names_of_its_labels(directory):
    _, schema = load(directory, "label")
    values = schema.target.values
    kernel = np.arange(8.0).reshape(2, 4)
    classifier = {("classifier", "kernel"): kernel, ("classifier", "bias"): np.arange(4.0)}
    theirs = dataclasses.replace(
        huggingface.read(RANDOM_BERT),
        parameters={**classifier, ("pooler", "bias"): np.ones(2)},
        labels=("other", *reversed(values)),
    )
    taken = _with_labels_of(schema, theirs)
    order = [1 + list(reversed(values)).index(value) for value in values]
    np.testing.assert_array_equal(taken.parameters["classifier", "kernel"], kernel[:, order])
    assert taken.parameters["classifier", "bias"].tolist() == order
    assert taken.unused == theirs.unused
    for labels in (("LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3"), (*values[1:], "a", "b")):
        left = _with_labels_of(schema, dataclasses.replace(theirs, labels=labels))
        assert set(left.parameters) == {("pooler", "bias")}
        assert left.unused[-2:] == ("classifier/kernel", "classifier/bias")
