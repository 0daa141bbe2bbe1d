"""The paper's size: 30 000 articles, D 128, H 8, N 4, C 736, outfits of mean 5."""

import ml_collections

from configs import base


def get_config(method: str = "gsu") -> ml_collections.ConfigDict:
    config = base.get_config(method)
    config.data.update({"name": "stylist", "stylist_articles": 30_000})
    config.train.update({"steps": 44_500, "eval_every": 1484, "checkpoint_every": 1484})
    return config


sweep = base.sweep
