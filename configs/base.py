"""The defaults, for any method on any prepared data set.

    python -m experiments.train --config=configs/base.py:gsu --config.data.name=NAME \\
      --workdir=DIR

What was measured with these defaults, and what each data set overrides, stands in the configs
beside this one: meals.py (real data), quickstart.py and stylist.py (synthetic).
"""

import dataclasses

import ml_collections

from cbert.model.layers import Hyperparameters


def get_config(method: str = "gsu") -> ml_collections.ConfigDict:
    """The defaults, the same for every method."""
    config = ml_collections.ConfigDict()
    config.seed = 0
    config.model = ml_collections.ConfigDict(
        {"method": method, **dataclasses.asdict(Hyperparameters())}
    )
    config.data = ml_collections.ConfigDict({"dir": "data", "name": "", "stylist_articles": 0})
    config.train = ml_collections.ConfigDict(
        {
            "steps": 10_000,
            "batch_size": 256,
            "masking": "one",
            "mask_rate": 0.15,
            "corrupt": False,
            "context_dropout": 0.0,
            "length_buckets": 8,
            "sampled_items": 0,
            "steps_per_dispatch": 1,
            "log_every": 100,
            "eval_every": 1000,
            "checkpoint_every": 1000,
            "patience": 0,
            "on_nonfinite": "stop",
        }
    )
    config.optimizer = ml_collections.ConfigDict(
        {
            "learning_rate": 1e-3,
            "schedule": "cosine",
            "warmup_steps": 500,
            "weight_decay": 0.01,
            "clip_norm": 1.0,
            "b1": 0.9,
            "b2": 0.999,
        }
    )
    config.eval = ml_collections.ConfigDict({"masking": "each", "batch_size": 256})
    config.lock()
    return config


def sweep() -> list[dict]:
    """One point a method."""
    return [{"model.method": method} for method in ("none", "c", "np", "gs", "gsu")]
