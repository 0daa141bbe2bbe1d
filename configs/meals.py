"""Meals: which food is missing from what a person ate, given the person and the occasion.

    python -m experiments.prepare --input=meals.jsonl.gz --min_count=5 --name=meals
    python -m experiments.train --config=configs/meals.py:gsu --workdir=runs/meals-gsu
    python -m experiments.evaluate --workdir=runs/meals-gsu

A run takes about 5 minutes on one core of an AMD EPYC (Zen 4). Test cross-entropy, mean of
three seeds: none 5.1443, c 5.0588, np 4.9919, gs 4.9858, gsu 4.9883; popularity 6.5123.
gsu had `--config.model.gsu.update_scale=0.0884`. Learning rate, dropout and initializer were
tuned alike for none, np and gsu: docs/results/meals.md.
"""

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
