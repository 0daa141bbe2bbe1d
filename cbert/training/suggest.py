"""A config file for a data set, to start from: sizes that suit what was prepared."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from cbert import files, tasks
from cbert.data import builder, prepared
from cbert.data.hashing import hash64
from cbert.data.masking import RATE
from cbert.data.records import TRAIN
from cbert.errors import UserError, warn
from cbert.model import conditioning
from cbert.model.config import POPULARITY
from cbert.schema import SEQUENCE, TEXT, Schema
from cbert.tasks.masked_queries import LAST

# Field to its value and, where it helps, why.
Fields = Mapping[str, tuple[Any, str]]

EPOCHS, VALIDATIONS, PATIENCE = 20, 20, 5
LEAST_STEPS, MOST_STEPS = 400, 50_000
# What the neighbours of an item say is learned after a plateau, longer than 20 epochs of few
# sequences: training reads so many of them, at most so often.
LEAST_SEQUENCES, MOST_EPOCHS = 256_000, 80
# Training examples up to which a size is suggested: dimension, heads, blocks, feed-forward.
SIZES = {5_000: (32, 4, 2, 64), 200_000: (64, 4, 2, 128)}
LARGEST_SIZE = (128, 8, 4, 256)
MASK_RATE = 0.4  # Of sequences.

_SOURCE = '''"""{title}

    python -m experiments.train --config={path}:{argument} --workdir=runs/{name}/{run}
    python -m experiments.evaluate --workdir=runs/{name}/{run}

{note}
"""

import ml_collections

from configs import {base}


def get_config(argument: str = "{argument}") -> ml_collections.ConfigDict:
    config = {base}.get_config(argument)
    config.update_from_flattened_dict(
        {{
{fields}
        }}
    )
    return config


sweep = {base}.sweep
'''
# The last line of a file that `write` writes, with a hash of the lines above.
_MARK = "# prepare wrote this file ({hash:016x}), and replaces it unless it was edited.\n"


def write(
    data_dir: str | pathlib.Path, name: str, summary: Mapping[str, Any]
) -> tuple[pathlib.Path, str, bool]:
    """Writes `config.py` into a prepared data set's directory, unless an edited one is there.

    A warning names an edited one, unless it began as the config of the same data.

    Args:
      data_dir: Where prepared data sets lie.
      name: The data set's name.
      summary: That of the data set, see `summary.summarize`.

    Returns:
      The file, the argument that suits it, and whether it was written.
    """
    schema = prepared.load_schema(str(data_dir), name)
    path = builder.directory(data_dir, name).parent / "config.py"
    argument = default_argument(schema)
    text = _marked(_suggested(path, data_dir, name, schema, summary))
    before = _read(path)
    if path.exists() and before != _marked("".join(before.splitlines(keepends=True)[:-1])):
        if text.splitlines()[-1] not in before:
            warn(
                f"{path} was made for other data, and stays because you may have edited it; "
                "delete it and prepare again with overwrite for one that suits these data"
            )
        return path, argument, False
    files.write_text(path, text)
    return path, argument, True


def _suggested(
    path: pathlib.Path,
    data_dir: str | pathlib.Path,
    name: str,
    schema: Schema,
    summary: Mapping[str, Any],
) -> str:
    """The text of a config file for data of a schema and a summary."""
    examples = summary["examples"][TRAIN]
    kinds = "tokens" if schema.kind == TEXT else "items"
    title = (
        f"{name}: a config to start from, made for {examples:,} {schema.kind}s of at most "
        f"{schema.max_items} {kinds}."
    )
    fields = {
        "data.name": (name, ""),
        "data.dir": (str(data_dir), ""),
        **(_of_text(schema, examples) if schema.kind == TEXT else _of_items(schema, examples)),
        **(_of_sequences(summary) if schema.kind == SEQUENCE else {}),
    }
    what = "a task and a size" if schema.kind == TEXT else "the conditioning method"
    note = f"The argument is {what}. `experiments.tune` searches for better values."
    base = "text" if schema.kind == TEXT else "base"
    return source(path, name, default_argument(schema), title, note, fields, base)


def _marked(text: str) -> str:
    """The text with a last line by which one that was edited is known."""
    return text + _MARK.format(hash=hash64(text))


def _read(path: pathlib.Path) -> str:
    """The text of a file, empty where it cannot be read."""
    try:
        return files.read_text(path)
    except (OSError, ValueError, UserError):
        return ""


def suggested_methods(has_features: bool) -> tuple[str, ...]:
    """The methods to train: one with the context if there is one, and then one without it."""
    return ("gs", "none") if has_features else ("none",)


def default_argument(schema: Schema) -> str:
    """The argument of a config file that suits a schema: a method, or a task of texts."""
    if schema.kind == TEXT:
        if schema.target and not schema.target.is_next_sentence:
            return tasks.of_target(schema.target.kind)
        return tasks.MaskedLanguage.name
    return suggested_methods(bool(schema.features))[0]


def arguments(path: pathlib.Path, name: str, argument: str, method: str) -> list[str]:
    """Those of the command `train` for a method; `argument` is it, or a task of texts."""
    of_items = argument in conditioning.NAMES
    return [
        f"--config={path}:{method if of_items else argument}",
        *([] if of_items else [f"--config.model.method={method}"]),
        f"--workdir=runs/{name}/{method}",
    ]


def tuned_name(method: str) -> str:
    """The work directory's name of a method with a config of `tune`."""
    return f"{method}-tuned"


def source(
    path: pathlib.Path,
    name: str,
    argument: str,
    title: str,
    note: str,
    fields: Fields,
    base: str,
    tuned: bool = False,
) -> str:
    """The text of a config file that overrides some fields of `configs/<base>.py`.

    The run that it names is another one where the fields were `tuned`, because a work directory
    belongs to one config.
    """
    lines = [
        f'            "{field}": {_literal(value)},' + (f"  # {why}" if why else "")
        for field, (value, why) in fields.items()
    ]
    method = fields["model.method"][0] if "model.method" in fields else argument
    return _SOURCE.format(
        path=str(path).replace("\\", "\\\\").replace('"', '\\"'),  # It is in a docstring.
        run=tuned_name(method) if tuned else method,
        name=name,
        argument=argument,
        title=title,
        note=note,
        base=base,
        fields="\n".join(lines),
    )


def _literal(value: Any) -> str:
    """A value as Python writes it, strings in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _of_items(schema: Schema, examples: int) -> Fields:
    """The fields of a model of sets or sequences."""
    sizes = next((size for most, size in SIZES.items() if examples < most), LARGEST_SIZE)
    dimension, heads, layers, feed_forward = sizes
    batch_size = 256 if examples >= 20_000 else 64 if examples >= 2_000 else 16
    epochs = EPOCHS
    if schema.kind == SEQUENCE:
        epochs = max(EPOCHS, min(MOST_EPOCHS, LEAST_SEQUENCES // examples))
    return {
        "model.dimension": (dimension, ""),
        "model.heads": (heads, ""),
        "model.layers": (layers, ""),
        "model.feed_forward": (feed_forward, ""),
        "model.positions": (schema.kind == SEQUENCE, "whether order matters"),
        "model.transform_activation": ("linear", "better than relu, the paper's"),
        "optimizer.learning_rate": (1e-3 if sizes == LARGEST_SIZE else 3e-3, ""),
        **_schedule(examples, min(batch_size, examples), min(4, schema.max_items), epochs),
    }


def _of_sequences(summary: Mapping[str, Any]) -> Fields:
    """What sequences need beside the fields of items."""
    last = {"eval.masking": (LAST, "training may have the other items, as it has the groups")}
    return {
        "model.embedding_norm": (True, "learns sooner what the neighbours say"),
        "model.output_bias": (POPULARITY, ""),
        "task.masked_item.masking": (RATE, "a step learns more than with one item"),
        "task.masked_item.mask_rate": (MASK_RATE, ""),
        **(last if summary["groups_across_splits"] else {}),
    }


def _of_text(schema: Schema, examples: int) -> Fields:
    """The fields of a model of texts, beside the size that the argument gives."""
    batch_size = 64 if examples >= 2_000 else 16
    pairs = {"task.masked_language.next_sentence": (True, "the pairs' labels are learned, too")}
    default_method = suggested_methods(bool(schema.features))[0]
    return {
        "model.method": (default_method, "the conditioning method"),
        **(pairs if schema.target and schema.target.is_next_sentence else {}),
        **_schedule(examples, min(batch_size, examples), 4),
    }


def _schedule(examples: int, batch_size: int, buckets: int, epochs: int = EPOCHS) -> Fields:
    """Batch, steps, validations and patience."""
    steps = min(max(epochs * examples // batch_size, LEAST_STEPS), MOST_STEPS)
    every = steps // VALIDATIONS
    rounded = every * VALIDATIONS * batch_size / examples
    return {
        "optimizer.warmup_steps": (every, "a twentieth of all steps"),
        "train.batch_size": (batch_size, ""),
        "train.steps": (every * VALIDATIONS, f"{rounded:.0f} epochs"),
        "train.log_every": (min(every, 100), ""),
        "train.eval_every": (every, f"{VALIDATIONS} validations"),
        "train.checkpoint_every": (every, ""),
        "train.patience": (PATIENCE, "validations without a new best one that end the run"),
        "train.length_buckets": (buckets, "programs to compile"),
    }
