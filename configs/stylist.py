"""Synthetic outfits at the paper's size: 30 000 articles, D 128, H 8, N 4, C 736.

An outfit has five articles on average.

    python -m experiments.describe --config=configs/stylist.py:gsu --articles=30000
    python -m experiments.prepare --synthetic=stylist --split_sets=380000,17000,17000 \\
      --articles=30000 --name=stylist
    python -m experiments.train --config=configs/stylist.py:gsu --workdir=runs/stylist-gsu

The parameter counts are the paper's to the last digit: none 546432, c 673664, np 640768,
gs 723328, gsu 921856. In bfloat16, on one core of a Xeon with AMX, an epoch takes two and a
half minutes. What sixteen of them gave, with one seed, is in docs/results/stylist.md.
"""

import ml_collections

from configs import base


def get_config(method: str = "gsu") -> ml_collections.ConfigDict:
    config = base.get_config(method)
    config.data.name = "stylist"
    config.train.update({"steps": 44_500, "eval_every": 1484, "checkpoint_every": 1484})
    return config


sweep = base.sweep
