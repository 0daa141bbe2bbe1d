"""The data that a run learns from: others that are prepared under their name are noticed."""

import json
import pathlib

import ml_collections

from cbert import files
from cbert.data import prepared
from cbert.data.records import TRAIN, VALIDATION
from cbert.errors import UserError, shown
from cbert.training.workdir import CONFIG, DATA


def note(config: ml_collections.ConfigDict, workdir: pathlib.Path) -> None:
    """Writes the sizes of a new run's data; one that has begun keeps what it has."""
    if not (workdir / CONFIG).exists():
        sizes = prepared.sizes(config.data.dir, config.data.name)
        files.write_text(workdir / DATA, json.dumps(sizes) + "\n")


def check(config: ml_collections.ConfigDict, workdir: pathlib.Path) -> None:
    """Raises `UserError` where a run that goes on would learn from other data than before.

    Data that are prepared with the schema of others differ in their examples alone.
    """
    data_dir, name = config.data.dir, config.data.name
    if change := changed(data_dir, name, workdir):
        raise UserError(
            f"{workdir} began with other data: {shown(name)} was prepared anew, {change}; use "
            "another work directory, whose train.init_from may be this one"
        )


def changed(data_dir: str, name: str, workdir: pathlib.Path) -> str:
    """What differs between prepared data and those that a run began with, in words.

    It is empty where nothing does, and for runs without the file.
    """
    before, now = files.read_object(workdir / DATA), prepared.sizes(data_dir, name)
    for split in (TRAIN, VALIDATION):
        if before is not None and before.get(split) != now.get(split):
            counts = [(sizes.get(split) or {}).get("examples", 0) for sizes in (before, now)]
            if counts[0] == counts[1]:
                return f"with other examples in {split}"
            return f"with {counts[1]:,} examples in {split} in place of {counts[0]:,}"
    return ""
