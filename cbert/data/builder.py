"""Prepared data: a TFDS data set of array_record files, written without TensorFlow.

An example keeps the record itself, as text, so that any schema can encode it later.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterator

import numpy as np
import tensorflow_datasets as tfds

from cbert import files, progress
from cbert.data.records import Record
from cbert.errors import UserError
from cbert.schema import Schema, schema_file

VERSION = "1.0.0"
_WRITING = ".writing-"


def directory(data_dir: str | pathlib.Path, name: str) -> pathlib.Path:
    """Where the prepared data set of that name lies; raises `UserError` for a bad name."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise UserError(f"the data set's name is {name!r}; use a-z, 0-9 and _, a letter first")
    return pathlib.Path(data_dir).expanduser() / name / VERSION


def check_new(data_dir: str | pathlib.Path, name: str, overwrite: bool) -> pathlib.Path:
    """The directory to write to; raises `UserError` where it exists and may not be replaced."""
    target = directory(data_dir, name)
    if target.exists() and not overwrite:
        raise UserError(f"{target} exists; pass --overwrite or another --name")
    return target


def write(
    data_dir: str | pathlib.Path,
    name: str,
    splits: dict[str, list[Record]],
    schema: Schema,
    overwrite: bool = False,
) -> pathlib.Path:
    """Writes the splits and `schema.json`, whole or not at all; returns their directory.

    Raises:
      UserError: the data set exists and `overwrite` is off, the name is not legal, or another
        process is writing this data set.
    """
    folder = directory(data_dir, name).parent
    with files.Lock(folder, "--name"):
        target = check_new(data_dir, name, overwrite)
        for left_by_a_kill in folder.glob(f"{_WRITING}*"):
            shutil.rmtree(left_by_a_kill, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=_WRITING) as temporary:
            build = _builder_class(name)
            builder = build(splits, data_dir=temporary, file_format="array_record")
            _prepare_quietly(builder)
            schema_file.save(schema, pathlib.Path(builder.data_dir) / "schema.json")
            _replace(target, builder.data_dir, pathlib.Path(temporary) / "replaced")
    return target


def _replace(target: pathlib.Path, written: str, replaced: pathlib.Path) -> None:
    """Moves what was written into place; what it replaces comes back where that fails."""
    if target.exists():
        os.rename(target, replaced)
    try:
        os.rename(written, target)
    except BaseException:
        if replaced.exists() and not target.exists():
            os.rename(replaced, target)
        raise


def _prepare_quietly(builder: tfds.core.DatasetBuilder) -> None:
    """TFDS greets and draws bars of its own; ours is enough."""
    tfds.disable_progress_bar()
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        builder.download_and_prepare()


def _builder_class(dataset_name: str) -> type[tfds.core.GeneratorBasedBuilder]:
    class Prepared(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        """Records as they were given, split by group."""

        name = dataset_name
        VERSION = tfds.core.Version(VERSION)

        def __init__(self, records: dict[str, list[Record]], **arguments) -> None:
            self._records = records
            super().__init__(**arguments)

        def _info(self) -> tfds.core.DatasetInfo:
            text, features = tfds.features.Text(), tfds.features
            return tfds.core.DatasetInfo(
                builder=self,
                description=self.__doc__,
                features=features.FeaturesDict(
                    {
                        "id": text,
                        "group": text,
                        "items": features.Sequence(text),
                        "context": text,
                        "reference": {
                            "log_probability": features.Sequence(np.float32),
                            "rank": features.Sequence(np.int32),
                        },
                    }
                ),
            )

        def _split_generators(self, dl_manager: None) -> dict[str, Iterator]:
            del dl_manager  # Nothing is downloaded.
            return {split: self._generate_examples(split) for split in self._records}

        def _generate_examples(self, split: str) -> Iterator:
            bar = progress.bar(self._records[split], desc=f"writing {split}", unit=" sets")
            for record in bar:
                yield record.id, to_example(record)

    return Prepared


def to_example(record: Record) -> dict:
    """The record as the features of a TFDS example."""
    return {
        "id": record.id,
        "group": record.group,
        "items": record.items,
        "context": json.dumps(record.context, ensure_ascii=False),
        "reference": record.reference or {"log_probability": [], "rank": []},
    }
