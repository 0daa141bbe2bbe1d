"""All five methods on a small stylist data set, in minutes on two cores.

    make quickstart

A run takes about two minutes on one core of an AMD EPYC (Zen 4). Test cross-entropy, mean of
three seeds: none 4.7812, c 4.5399, np 4.4650, gs 4.4578, gsu 4.4924; popularity 5.6446,
Bayes-optimal 3.5450. gsu had `--config.model.gsu.update_scale=0.0884`. The learning rate was
not tuned: docs/results/stylist.md.
"""

import ml_collections

from configs import base


def get_config(method: str = "gsu") -> ml_collections.ConfigDict:
    config = base.get_config(method)
    config.data.update({"name": "stylist_quickstart", "stylist_articles": 500})
    config.model.update(
        {"dimension": 64, "heads": 4, "layers": 2, "feed_forward": 128, "dropout": 0.0}
    )
    config.train.update(
        {"steps": 3000, "eval_every": 500, "checkpoint_every": 500, "length_buckets": 3}
    )
    config.optimizer.update({"learning_rate": 3e-3, "warmup_steps": 100})
    return config


sweep = base.sweep
