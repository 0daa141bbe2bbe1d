"""The defaults, for any method on any prepared data set.

    python -m experiments.train --config=configs/base.py:gsu --config.data.name=NAME \\
      --workdir=DIR

What was measured with these defaults, and what each data set overrides, stands in the configs
beside this one: meals.py (real data), quickstart.py and stylist.py (synthetic).
"""

import ml_collections

from cbert.model import conditioning
from cbert.training import config as config_lib


def get_config(method: str = "gsu") -> ml_collections.ConfigDict:
    """The defaults, the same for every method."""
    config = config_lib.default()
    config.model.method = method
    return config.lock()


def sweep() -> list[dict]:
    """One point a method."""
    return [{"model.method": method} for method in conditioning.NAMES]
