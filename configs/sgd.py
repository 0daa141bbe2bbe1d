"""SGD: what a user's turn in a dialogue does, given what the system has just said.

    python -m experiments.prepare --kind=text --input=sgd.jsonl.gz --name=sgd_acts \\
      --target=label --max_length=32
    python -m experiments.train --config=configs/sgd.py:gs --workdir=runs/sgd-gs
    python -m experiments.evaluate --workdir=runs/sgd-gs --by=turn

`--config=configs/sgd.py:gs,hf:DIR` begins with a pretrained BERT, for which the data are
prepared with its vocabulary, `--vocabulary=DIR/vocab.txt`.

The acts are one label. Slots are tags of the same turns:

    python -m experiments.prepare --kind=text --input=sgd.jsonl.gz --name=sgd_slots \\
      --target=tags --max_length=64
    python -m experiments.train --config=configs/sgd.py:gs --config.task.name=tagging \\
      --config.data.name=sgd_slots --config.optimizer.learning_rate=2e-3 \\
      --workdir=runs/sgd-slots-gs

docs/results/dialogues.md has what both reach with the vocabulary of a pretrained BERT, with the
context and without.
"""

import ml_collections

from configs import text


def get_config(argument: str = "gs") -> ml_collections.ConfigDict:
    """A method, and after a comma a size or a pretrained BERT, as in configs/text.py."""
    method, _, size = argument.partition(",")
    config = text.get_config(f"classification,{size}")
    config.data.name = "sgd_acts"
    config.model.method = method
    config.train.update({"steps": 4000, "length_buckets": 4})
    return config


sweep = text.sweep
