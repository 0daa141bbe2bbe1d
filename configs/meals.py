"""Meals: which food is missing from what a person ate, given the person and the occasion."""

import ml_collections

from configs import base


def get_config(method: str = "gsu") -> ml_collections.ConfigDict:
    config = base.get_config(method)
    config.data.name = "meals"
    config.model.update({"dimension": 64, "heads": 4, "layers": 2, "feed_forward": 128})
    config.train.update(
        {"steps": 6000, "eval_every": 500, "checkpoint_every": 1000, "length_buckets": 4}
    )
    config.optimizer.update({"learning_rate": 3e-3, "warmup_steps": 300})
    return config


sweep = base.sweep
