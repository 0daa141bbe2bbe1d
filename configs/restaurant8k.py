"""Restaurant8k: the slots in a reply to a booking assistant, given the slots it asked for.

    python -m experiments.prepare --kind=text --input=restaurant8k.jsonl.gz \\
      --vocabulary=DIR/vocab.txt --name=restaurant8k --max_length=64
    python -m experiments.train --config=configs/restaurant8k.py:gs --workdir=runs/r8k-gs
    python -m experiments.evaluate --workdir=runs/r8k-gs

DIR/vocab.txt is BERT's vocabulary, as in the folders of pretrained weights; without it one is
trained. The same reply, "13", has other tags under another request.
"""

import ml_collections

from configs import text


def get_config(method: str = "gs") -> ml_collections.ConfigDict:
    config = text.get_config("tagging")
    config.data.name = "restaurant8k"
    config.model.update({"method": method, "dimension": 64, "feed_forward": 256})
    config.train.update(
        {"steps": 800, "eval_every": 200, "checkpoint_every": 400, "length_buckets": 2}
    )
    config.optimizer.update({"learning_rate": 2e-3, "warmup_steps": 100})
    return config


sweep = text.sweep
