"""Writes the activations of a frozen model, and trains a linear probe on them.

python -m experiments.features --workdir=runs/turns --split=train,validation,test \\
  --layers=0,last --pooling=mean --output=features/turns --probe=label
python -m experiments.features --init_from=hf:DIR --name=turns --output=features/turns-bert
"""

import pathlib

from absl import flags

from cbert import files
from cbert.data import prepared
from cbert.errors import UserError
from cbert.evaluation import activation_files, activations, data_warnings, probe
from cbert.evaluation.activations import FrozenModel
from cbert.model.pooling import MEAN, POOLINGS
from cbert.training import config as config_lib
from experiments import command

_WORKDIR = flags.DEFINE_string("workdir", None, "The directory of the run that has the model.")
_INIT_FROM = flags.DEFINE_string(
    "init_from", None, "In place of a run, pretrained weights: hf:DIR."
)
_CHECKPOINT = flags.DEFINE_string("checkpoint", "best", "The checkpoint: best, last or a step.")
_NAME = flags.DEFINE_string(
    "name", "", "The name of the prepared data set; by default the run's."
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir", "", "The directory of prepared data sets; by default the run's, or data."
)
_SPLIT = flags.DEFINE_list("split", "train,validation,test", "The splits.")
_LAYERS = flags.DEFINE_list(
    "layers", activations.LAST, "Numbers of layers, 0 for the input of the first one, or last."
)
_POOLING = flags.DEFINE_enum(
    "pooling", MEAN, POOLINGS, "The first position, the mean over tokens, or every token."
)
_OUTPUT = flags.DEFINE_string("output", None, "The directory to write.", required=True)
_FORMAT = flags.DEFINE_enum(
    "format",
    activation_files.PARQUET,
    activation_files.FORMATS,
    "A column for each layer, or an array for each.",
)
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 64, "Examples at a time.", lower_bound=1)
_PROBE = flags.DEFINE_enum(
    "probe", None, ["label"], "Train a linear classifier of the label on each layer, too."
)


def main() -> None:
    """Writes the directory; with a probe, prints its table."""
    directory = pathlib.Path(_OUTPUT.value).expanduser()
    activation_files.check_directory(directory)
    files.check_writable(directory)
    frozen, data_dir, name = _frozen()
    layers = frozen.layer_numbers(_LAYERS.value)
    activations.check(frozen, _POOLING.value)
    if _PROBE.value:
        probe.check(frozen.schema, _SPLIT.value, _POOLING.value)
    splits = {
        split: prepared.load(data_dir, name, split, frozen.schema)
        for split in dict.fromkeys(_SPLIT.value)
    }
    activation_files.write(
        directory,
        frozen,
        splits,
        layers,
        _POOLING.value,
        _FORMAT.value,
        _BATCH_SIZE.value,
    )
    size = sum(path.stat().st_size for path in directory.iterdir())
    counts = ", ".join(f"{name} {len(split):,}" for name, split in splits.items())
    print(f"{size / 2**20:.1f} MiB in {directory}: {counts} examples")
    if _PROBE.value:
        print("\n" + probe.format_results(probe.measure(directory, layers)))


def _frozen() -> tuple[FrozenModel, str, str]:
    """The model, and the directory and the name of the data."""
    if _WORKDIR.value is not None and _INIT_FROM.value is None:
        workdir = pathlib.Path(_WORKDIR.value).expanduser()
        data = config_lib.load(workdir).data
        frozen = activations.frozen_run(_WORKDIR.value, _CHECKPOINT.value)
        data_dir, name = _DATA_DIR.value or data.dir, _NAME.value or data.name
        if name == data.name:
            data_warnings.warn_if_prepared_anew(data_dir, name, frozen.schema, workdir)
        return frozen, data_dir, name
    if _WORKDIR.value is not None or _INIT_FROM.value is None:
        raise UserError("give one of --workdir=RUN and --init_from=hf:DIR")
    if not _NAME.value:
        raise UserError("--init_from needs --name=NAME, a prepared data set")
    data_dir = _DATA_DIR.value or config_lib.default().data.dir
    schema = prepared.load_schema(data_dir, _NAME.value)
    return activations.frozen_pretrained(_INIT_FROM.value, schema), data_dir, _NAME.value


if __name__ == "__main__":
    command.run(main)
