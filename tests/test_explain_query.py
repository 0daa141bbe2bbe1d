"""The command that says what each feature of the context changes in one prediction."""

import json

import numpy as np
import pytest

from experiments import explain_query
from tests.conftest import refused, run
from tests.text_predictors import assemble, save

CONTEXT = {"mood": "cold", "age": 31}


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A run of texts whose method, gs, has neither attention to features nor gates."""
    folder = tmp_path_factory.mktemp("texts") / "classification"
    save(assemble("classification"), folder)
    return folder


def asked(workdir, *flags):
    return ["explain", f"--workdir={workdir}", "--checkpoint=last", *flags]


def test_a_text_of_gs(workdir):
    context = f"--context={json.dumps(CONTEXT)}"
    query = asked(workdir, "--what=features", "--text=red", "--text_b=is 7", context)
    shown = json.loads(run(*query, "--json").stdout)
    expected = assemble("classification").explain("red", CONTEXT, "is 7").to_dict()
    near = {name: pytest.approx(expected["features"][name], abs=1e-5) for name in CONTEXT}
    assert shown["features"] == near
    assert shown | {"features": 0, "probability": 0, "log_odds": 0} == (
        expected | {"features": 0, "probability": 0, "log_odds": 0}
    )
    line = refused(*asked(workdir, "--text=red"))
    assert "the method gs has no attention to show; these have: " in line
    assert "use --what=features with --items=JSON or --text=TEXT" in line


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--item=a"], "--item belongs to a query; give --items or --text"),
        ([], "--what=features is of one query; give --items or --text"),
        (["--text=a", '--words=["b"]'], "give one of --items, --text and --words"),
        (["--text=a", "--split=test"], "--split belongs to a split; leave it out, or --text"),
        (["--text=a", "--examples=3"], "--examples belongs to a split; leave it out"),
        (["--text=a", "--block=1"], "--block belongs to --what=attention; leave it out"),
        (["--text=a", "--item=b"], "--item belongs to --items; the first prediction of a text"),
        (["--items=[]"], "the prediction of one item; give --item=NAME"),
        (["--items=[]", "--item=a", "--text_b=b"], "--text_b belongs to --text; leave it out"),
        (["--items=[]", "--item=a"], "is a run of texts (classification); give --text"),
    ],
)
def test_flags_that_do_not_belong(workdir, flags, message):
    line = refused(*asked(workdir, "--what=features", *flags))
    assert message in line
    assert line.count("\n") == 1


@pytest.mark.soak
def test_an_item(trained, predictor):
    seen, item = predictor.schema.items[:2]
    context = {"occasion": "work", "age": 34, "colours": ["octarine"]}
    flags = [f"--items={json.dumps([seen, 'kilt'])}", f"--item={item}"]
    done = run(
        *("explain", f"--workdir={trained}", "--what=features"),
        *(*flags, f"--context={json.dumps(context)}"),
    )
    explained = predictor.explain([seen, "kilt"], context, item)
    prediction, table, notes = done.stdout.split("\n\n")
    assert prediction.splitlines()[1] == f"{item}  {explained.probability:>11.2%}"
    head, *rows = [line.split() for line in table.splitlines()]
    assert head == ["feature", "value", "change", "in", "log-odds"]
    changes = {name: float(change) for name, *_, change in rows}
    assert changes == {
        name: pytest.approx(explained.features[name], abs=2e-3) for name in context
    }
    sizes = [abs(change) for change in changes.values()]
    assert sizes == sorted(sizes, reverse=True)
    assert ["age", "34"] in [row[:2] for row in rows]
    assert notes.splitlines()[:3] == [
        "unknown items: kilt",
        "unknown colours: octarine",
        "missing: gender",
    ]


SHOWN = {
    "masked_language": ({"text": "a [MASK]"}, ("prediction", "%")),
    "classification": ({"text": "red " * 20}, ("the text is longer than", "log-odds")),
    "regression": ({"text": "red"}, ("change\n", "+")),
    "tagging": ({"words": ["7\x1b", "seats"]}, ("word", "tag", "probability")),
    "span": ({"text": "is", "text_b": "red seats"}, ("prediction", "%")),
}


@pytest.mark.parametrize("task", SHOWN)
def test_what_a_person_reads(task):
    query, parts = SHOWN[task]
    predictor = assemble(task)
    explained = predictor.explain(context={"mood": "x" * 50}, **query)
    word = "" if explained.word is None else query["words"][explained.word]
    shown = explain_query.format_features(explained, {"mood": "x" * 50}, word)
    assert all(line.isprintable() for line in shown.splitlines())
    for part in (*parts, "unknown mood: x", "missing: age", f" {'x' * 37}..."):
        assert part in shown
    if task == "regression":
        assert np.float32(shown.split()[0]) == explained.prediction
    assert ("take the changes as hints" in shown) == predictor.outside_training


def test_a_model_without_context_changes_nothing():
    explained = assemble("classification", "none").explain("red", CONTEXT)
    shown = explain_query.format_features(explained, CONTEXT)
    assert shown.endswith("the model does not read the context, so that no feature changes it")
