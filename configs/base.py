"""The defaults, for any method on any prepared data set.

    python -m experiments.train --config=configs/base.py:gs --config.data.name=NAME \\
      --workdir=DIR

The configs beside this one say what each data set overrides and what was measured with it:
meals.py (real sets), quickstart.py and stylist.py (synthetic sets), and text.py, with sgd.py,
speeches.py and restaurant8k.py, of texts.
"""

import ml_collections

from cbert import tasks
from cbert.errors import UserError
from cbert.model import conditioning
from cbert.training import config as config_lib


def get_config(method: str = "gs") -> ml_collections.ConfigDict:
    """The defaults, the same for every method."""
    if method in tasks.TASKS:
        raise UserError(
            f"the argument of this config is the method, and {method!r} is a task; "
            "configs/text.py has the configs of texts"
        )
    config = config_lib.default()
    config.model.method = method
    return config.lock()


def sweep() -> list[dict]:
    """One run for each of the paper's methods."""
    return [{"model.method": method} for method in conditioning.PAPER]
