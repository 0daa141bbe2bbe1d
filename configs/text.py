"""Texts: the defaults for any prepared data of kind text, and the task as the argument.

    python -m experiments.prepare --kind=text --input=FILE --name=NAME
    python -m experiments.train --config=configs/text.py:classification \\
      --config.data.name=NAME --config.model.method=gs --workdir=runs/NAME-gs
    python -m experiments.evaluate --workdir=runs/NAME-gs

The argument is a task, and after a comma it may have one of BERT's sizes, as in
`configs/text.py:masked_language,small`. Each field of the size can be set on its own, and so
can the task: `--config.task.name=tagging`. In place of a size, `hf:DIR` takes size and weights
of a pretrained BERT, to which the context is added so that training begins with exactly that
model. Its data are prepared with its vocabulary, `--vocabulary=DIR/vocab.txt`.
"""

import dataclasses

import ml_collections

from cbert.errors import UserError
from cbert.model import conditioning, huggingface, presets
from cbert.training.from_huggingface import HUGGINGFACE_PREFIX
from configs import base


def get_config(argument: str = "classification") -> ml_collections.ConfigDict:
    """BERT of a size, trained from nothing, or a pretrained one; TINY without a size."""
    task, _, size = argument.partition(",")
    if task in conditioning.NAMES:
        raise UserError(
            f"the argument of a config of texts is the task, and {task!r} is a method; give it "
            f"by --config.model.method={task}"
        )
    config = base.get_config("none")
    config.task.name = task
    if size.startswith(HUGGINGFACE_PREFIX):
        chosen = huggingface.read(size.removeprefix(HUGGINGFACE_PREFIX)).config
        config.train.init_from = size
        config.model.update({**dataclasses.asdict(chosen), "start_as_plain": True})
    else:
        config.model.update(dataclasses.asdict(presets.bert(size or "tiny")))
    # With a deviation of 0.02 everywhere, as in BERT, a context begins too weak to be learnt.
    config.model.initializer = "scaled"
    config.train.update(
        {"batch_size": 64, "steps": 3000, "eval_every": 500, "checkpoint_every": 500}
    )
    config.optimizer.update(
        {"learning_rate": 5e-4, "schedule": "linear", "warmup_steps": 200, "weight_decay": 0.01}
    )
    if config.train.init_from:
        config.optimizer.learning_rate = 5e-5  # BERT was fine-tuned at 2e-5 to 5e-5.
    config.eval.masking = "one"
    return config


sweep = base.sweep
