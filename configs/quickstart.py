"""All five methods on a small stylist data set, in minutes on two cores.

    make quickstart

A run takes a minute or two on one core. Test cross-entropy, mean of five seeds: none 4.8843,
c 4.6567, np 4.4882, gs 4.4742, gsu 4.5258; popularity 5.7152, Bayes-optimal 3.6018. Dropout and
learning rate were chosen on the validation split: docs/results/stylist.md.
"""

import ml_collections

from configs import base


def get_config(method: str = "gs") -> ml_collections.ConfigDict:
    config = base.get_config(method)
    config.data.name = "stylist_quickstart"
    config.model.update(
        {"dimension": 64, "heads": 4, "layers": 2, "feed_forward": 128, "dropout": 0.0}
    )
    config.train.update(
        {"steps": 3000, "eval_every": 500, "checkpoint_every": 500, "length_buckets": 3}
    )
    config.optimizer.update({"learning_rate": 3e-3, "warmup_steps": 100})
    return config


sweep = base.sweep
