"""The baselines with the parameters of gsu: by wider and by narrower feed-forward networks."""

import pytest

from cbert.data.synthetic import stylist as catalogue
from cbert.errors import UserError
from cbert.model.parameter_tree import table_1_count
from cbert.report import variants
from cbert.sweep import points
from cbert.training import config as config_lib
from configs import stylist
from tests.conftest import small

SCHEMA = catalogue.schema(100, [])
GSU = 921856


def count(config, **overrides):
    own = config.copy_and_resolve_references()
    own.model.update(overrides)
    return table_1_count(config_lib.build_model(own, SCHEMA))


def point(name, *settings):
    (only,) = points.expand(stylist.get_config(), [], [name], 1, settings, SCHEMA)
    assert only.variant.startswith(name)
    return only.apply(stylist.get_config())


def test_a_larger_method_is_narrowed_to_at_most_the_parameters_of_gsu():
    config = point("gsu_bi_narrow")
    width = config.model.feed_forward
    # Each of gsu_bi's three updates reads 128 more entries into 256: 98304 more parameters; a
    # hidden unit has 2 * 128 + 1 in each of four blocks: 95.6 of them.
    assert width == 256 - 96
    assert count(config) <= GSU < count(config, feed_forward=width + 1)
    assert point("user_concat_wide").model.feed_forward > 256


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gsu_bi_wide", "gsu_bi has more parameters than gsu, .* use gsu_bi_narrow"),
        ("none_narrow", "none has fewer parameters than gsu, .* use none_wide"),
    ],
)
def test_the_other_direction_is_refused(name, message):
    with pytest.raises(UserError, match=message):
        point(name)


def test_a_method_of_the_same_size_keeps_its_width():
    assert [point(f"gs_deep{way}").model.feed_forward for way in ("_wide", "_narrow")] == [
        256
    ] * 2


def test_a_method_too_large_at_every_width_is_refused():
    with pytest.raises(UserError, match="history has more parameters than gsu even if"):
        point("history_narrow", "model.history.blocks=9")
    # gsu_bi has to give up 96 hidden units, which is all but one of 97.
    assert point("gsu_bi_narrow", "model.feed_forward=97").model.feed_forward == 1
    with pytest.raises(UserError, match="gsu_bi has more parameters than gsu even if"):
        point("gsu_bi_narrow", "model.feed_forward=96")


def labels(*configs):
    return variants.label([variants.identity(config) for config in configs])


def test_the_report_calls_them_wide_and_narrow():
    plain = [small(method) for method in ("none", "gsu_bi", "gsu")]
    matched = [
        small("none", model__feed_forward=48),
        small("gsu_bi", model__feed_forward=20),
    ]
    assert labels(*plain, *matched)[3:] == ["none, wide", "gsu_bi, narrow"]
    other = small("none", model__feed_forward=20)
    assert labels(small("none"), other) == ["none feed_forward=32", "none feed_forward=20"]
