"""Prepared data: a TFDS data set of array_record files, written without TensorFlow.

TFDS would keep a split in memory to shuffle it. Here the order and the sizes of the files are
those that TFDS gives, but the examples come one by one from where they wait on disk.
"""

import pathlib
import re

import numpy as np
import tensorflow_datasets as tfds
from array_record.python import array_record_module
from tensorflow_datasets.core.utils import shard_utils

from cbert import directories, progress
from cbert.data import examples
from cbert.data.record_store import RecordView
from cbert.errors import UserError
from cbert.schema import TEXT, Schema, schema_file

VERSION = "1.0.0"
# Every record can be read alone; the default compression takes three times as long for 8 %.
_FORM = "group_size:1,snappy"
GROUPS_ACROSS_SPLITS = "groups_across_splits"  # Its name in TFDS's metadata.json.
AS_GIVEN = "Records as they were given, split by group."


def directory(data_dir: str | pathlib.Path, name: str) -> pathlib.Path:
    """The directory of a prepared data set; raises `UserError` for a name that is not legal."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise UserError(f"the data set's name is {name!r}; use a-z, 0-9 and _, a letter first")
    return pathlib.Path(data_dir).expanduser() / name / VERSION


def check_new(data_dir: str | pathlib.Path, name: str, overwrite: bool) -> pathlib.Path:
    """The directory to write to; raises `UserError` where it exists and may not be replaced."""
    target = directory(data_dir, name)
    if target.exists() and not overwrite:
        raise UserError(f"{target} exists; give another name, or overwrite=true")
    return target


def write(
    data_dir: str | pathlib.Path,
    name: str,
    splits: dict[str, RecordView],
    schema: Schema,
    overwrite: bool = False,
    is_weighted: bool = False,
    groups_across_splits: int = 0,
    description: str = AS_GIVEN,
) -> pathlib.Path:
    """Writes the splits and `schema.json`, whole or not at all; returns their directory.

    Args:
      data_dir: Where prepared data sets lie.
      name: The data set's name.
      splits: The records of each split.
      schema: The data set's schema.
      overwrite: Whether to replace a data set of that name.
      is_weighted: Whether some record has a weight other than 1.
      groups_across_splits: The number of groups in several splits, which evaluations read.
      description: What `dataset_info.json` says of the data.

    Raises:
      UserError: the data set exists and `overwrite` is off, the name is not legal, or another
        process is writing this data set.
    """
    folder = directory(data_dir, name).parent
    with directories.Lock(folder, "name"):
        target = directory(data_dir, name)
        directories.remove_unfinished(target, alone=True)
        check_new(data_dir, name, overwrite)
        with directories.whole_directory(target) as written:
            across = {GROUPS_ACROSS_SPLITS: groups_across_splits}
            infos = [_write_split(written, name, *split) for split in splits.items()]
            tfds.folder_dataset.write_metadata(
                data_dir=written,
                features=examples.features(schema.kind == TEXT, is_weighted),
                split_infos=infos,
                version=VERSION,
                description=description,
                metadata=tfds.core.MetadataDict(across) if groups_across_splits else None,
                check_data=False,
            )
            schema_file.save(schema, written / schema_file.FILE)
    return target


def _write_split(
    folder: pathlib.Path, name: str, split: str, records: RecordView
) -> tfds.core.SplitInfo:
    """Writes the files of one split."""
    size = records.size()
    count = shard_utils.ShardConfig.calculate_number_shards(size, len(records))
    bar = progress.bar(desc=f"writing {split}", total=len(records), unit=" examples")
    serialised = records.shuffled().serialised()
    lengths = np.diff([0, *shard_utils.get_shard_boundaries(len(records), count)]).tolist()
    for index, length in enumerate(lengths):
        path = folder / f"{name}-{split}.array_record-{index:05d}-of-{count:05d}"
        writer = array_record_module.ArrayRecordWriter(str(path), _FORM)
        for _ in range(length):
            writer.write(next(serialised))
            bar.update()
        writer.close()
    bar.close()
    template = tfds.core.ShardedFileTemplate(
        data_dir=folder, dataset_name=name, split=split, filetype_suffix="array_record"
    )
    return tfds.core.SplitInfo(
        name=split, shard_lengths=lengths, num_bytes=size, filename_template=template
    )
