"""Speeches: BERT's pretraining on sentences of presidents, given who spoke and when.

    python -m experiments.prepare --kind=text --input=speeches.jsonl.gz --name=speeches \\
      --vocabulary=train --vocabulary_size=8000
    python -m experiments.train --config=configs/speeches.py:gs --workdir=runs/speeches-gs
    python -m experiments.evaluate --workdir=runs/speeches-gs --by=president

For next-sentence prediction the data are prepared with `--pairs=next`, and the run is given
`--config.task.masked_language.next_sentence=true`. Two fifths of the tokens are masked and not
BERT's 15 %, with which a small model learns far later: docs/results/speeches.md.
"""

import ml_collections

from configs import text


def get_config(method: str = "gs") -> ml_collections.ConfigDict:
    config = text.get_config("masked_language")
    config.data.name = "speeches"
    config.model.method = method
    config.task.masked_language.mask_rate = 0.4
    config.train.update({"steps": 10_000, "length_buckets": 4})
    config.optimizer.update({"learning_rate": 1e-3, "warmup_steps": 500})
    return config


sweep = text.sweep
