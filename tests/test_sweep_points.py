"""The variants of a sweep: names, mistakes, matched widths."""

import re

import pytest

from cbert.errors import UserError
from cbert.model.parameter_tree import table_1_count
from cbert.sweep import jobs, points
from cbert.training import config as config_lib
from configs import base, stylist
from tests.conftest import small


def names(**given):
    given = {"sweep": base.sweep(), "methods": [], "seeds": 1, "settings": [], **given}
    return [point.name for point in points.expand(small(), **given)]


def test_names_and_overrides():
    assert names() == [f"{method}-seed0" for method in ("none", "c", "np", "gs", "gsu")]
    assert names(methods=["gsu"], seeds=2, settings=["optimizer.learning_rate=3e-4,1e-3"]) == [
        "gsu-learning_rate=0.0003-seed0",
        "gsu-learning_rate=0.0003-seed1",
        "gsu-learning_rate=0.001-seed0",
        "gsu-learning_rate=0.001-seed1",
    ]
    point = points.expand(
        small(), base.sweep(), ["gs_constant"], 1, ["model.positions=true", "train.steps=7"]
    )[0]
    config = point.apply(small())
    assert config.model.method == "gs"
    assert config.model.constant_context is True
    assert config.model.positions is True
    assert config.train.steps == 7
    # A setting counts for more than what the sweep says.
    (point,) = points.expand(small(), [{"train.steps": 5}], [], 1, ["train.steps=7"])
    assert point.apply(small()).train.steps == 7
    # The runs' commands list their directories between commas.
    assert names(sweep=[{"train.frozen": "embedding,blocks_0"}]) == [
        "frozen=embedding+blocks_0-seed0"
    ]


def test_an_option_of_a_method_is_a_setting_of_that_method_alone():
    settings = ["model.gsu.update_norm=after,before", "model.dropout=0.0"]
    assert names(methods=["none", "gsu", "gsu_constant"], settings=settings) == [
        "none-dropout=0.0-seed0",
        "gsu-update_norm=after-dropout=0.0-seed0",
        "gsu-update_norm=before-dropout=0.0-seed0",
        "gsu_constant-update_norm=after-dropout=0.0-seed0",
        "gsu_constant-update_norm=before-dropout=0.0-seed0",
    ]


@pytest.mark.parametrize("end", ["_wide", "_narrow"])
def test_a_value_that_ends_like_a_control_makes_none(end):
    """The width of a run that begins with another one stays what the config says."""
    sweep = [{"model.method": "none", "train.init_from": f"pre{end}"}]
    (point,) = points.expand(small(), sweep, [], 1, [])
    assert point.overrides == {**sweep[0], "seed": 0}
    assert point.apply(small()).model.feed_forward == small().model.feed_forward


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"methods": ["gus"]},
            "methods has 'gus'; did you mean gs? It must be some of none, c, np, gs, gsu",
        ),
        ({"settings": ["optimizer.rate=1"]}, "no field 'optimizer.rate'; did you mean"),
        ({"settings": ["train.steps=many"]}, "train.steps is 'many'; give a value of type int"),
        ({"settings": ["train.steps"]}, "the setting 'train.steps' has no values; write it as"),
        ({"settings": ["seed=1"]}, "seed cannot be a setting; use seeds=..."),
        (
            {"settings": ["data.name=a,b"]},
            "data.name cannot be a setting",
        ),
        ({"settings": ["data.dir=a,b"]}, "data.dir cannot be a setting, for a sweep is on one"),
        ({"settings": ["train.steps=5", "train.steps=6"]}, "the settings name a field twice"),
        ({"sweep": [{"model.methd": "gs"}]}, "correct the config's sweep()"),
        ({"sweep": [{"train.steps": "many"}]}, "correct the config's sweep()"),
        ({"settings": ["train.steps=5,5"]}, "two runs would be called none-steps=5-seed0"),
        ({"methods": ["np", "np"]}, "two runs would be called np-seed0"),
        (
            {"methods": ["none", "gs"], "settings": ["model.gsu.update_norm=before"]},
            "update_norm is an option of gsu, which no run has; add gsu to the methods",
        ),
        ({"settings": ["model.heads=3"]}, "not a multiple of model.heads, 3"),
    ],
)
def test_mistakes(given, message):
    with pytest.raises(UserError, match=re.escape(message)):
        names(**given)


@pytest.mark.soak
def test_none_is_widened_to_at_least_the_parameters_of_gsu():
    from cbert.data.synthetic.stylist import schema

    config, catalogue = stylist.get_config(), schema(100, [])
    config.model.method = "none"
    wide = points.matched_width(config, catalogue)

    def count(method, width):
        config.model.update({"method": method, "feed_forward": width})
        return table_1_count(config_lib.build_model(config, catalogue))

    assert count("none", wide - 1) < count("gsu", 256) == 921856 <= count("none", wide)
    # Where the sweep sets the sizes, the width is matched at each of them.
    settings = ["model.dimension=32,64"]
    swept = points.expand(stylist.get_config(), [], ["none_wide"], 1, settings, catalogue)
    for point in swept:
        own = point.apply(stylist.get_config())
        config.model.dimension = own.model.dimension
        fields = [own.model.feed_forward - 1, own.model.feed_forward]
        assert count("none", fields[0]) < count("gsu", 256) <= count("none", fields[1])


def test_seeds_that_are_far_apart_take_none_of_them_back(tmp_path):
    """A kill between two saves leaves the first two, and seeds that were added the others."""
    made = [points.Point(f"gs-seed{n}", "gs", {points.SEED: n}) for n in range(4)]
    for seed, steps in enumerate([(90, 100), (80, 90), (20, 30), (20, 30)]):
        for step in (10, *steps):  # Of the best one and the last two.
            (tmp_path / f"gs-seed{seed}" / "checkpoints" / str(step)).mkdir(parents=True)
    queue = jobs.make(made, tmp_path, True, lambda *_: (), lambda _: ())
    names = ["gs-seed0, gs-seed1", "gs-seed2, gs-seed3"]
    assert [job.name for job in queue] == names
