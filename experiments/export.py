"""Exports a trained model, with its schema and a card, to run without its code or without JAX.

python -m experiments.export --workdir=runs/gs --output=exported/gs
python -m experiments.export --workdir=runs/gs --output=exported/gs-onnx --format=onnx
python -m experiments.export --workdir=runs/plain --output=exported/plain --format=hf

ONNX needs the optional extra: pip install ".[onnx]".
"""

import pathlib

from absl import flags

import cbert
from cbert.inference import (
    card,
    export_directory,
    huggingface_export,
    onnx_export,
    stablehlo,
)
from cbert.inference.text_predictor import TextPredictor
from cbert.training import workdir
from experiments import command

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's directory.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "A new directory.", required=True)
_FORMAT = flags.DEFINE_enum(
    "format",
    export_directory.STABLEHLO,
    [export_directory.STABLEHLO, export_directory.ONNX, huggingface_export.HUGGINGFACE_FORMAT],
    "What runs it: JAX (stablehlo), any ONNX runtime (onnx), or transformers (hf, for texts "
    "without a context).",
)
_CHECKPOINT = flags.DEFINE_string("checkpoint", "best", "best, last or a step.")
_INTENDED_USE = flags.DEFINE_string(
    "intended_use", "", "A sentence for the card; by default, the kind of data it learned from."
)


def main() -> None:
    """Exports, and prints what was written."""
    output = export_directory.new_directory(_OUTPUT.value)
    predictor = cbert.load(_WORKDIR.value, _CHECKPOINT.value)
    path = pathlib.Path(_WORKDIR.value).expanduser()
    workdir.warn_unfinished(path, predictor.step, predictor.config.train.steps)
    facts = card.facts(predictor, _WORKDIR.value, _INTENDED_USE.value)
    if _FORMAT.value == huggingface_export.HUGGINGFACE_FORMAT:
        huggingface_export.write(predictor, _OUTPUT.value, facts)
        advice = f"read it with transformers, from_pretrained({_OUTPUT.value!r})"
    elif _FORMAT.value == export_directory.ONNX:
        onnx_export.write(predictor, _OUTPUT.value, facts)
        page = "docs/text.md" if isinstance(predictor, TextPredictor) else "docs/serving.md"
        advice = f"run it with onnxruntime, as {page} shows"
    else:
        stablehlo.write(predictor, _OUTPUT.value, facts)
        advice = f"read it with cbert.load_exported({_OUTPUT.value!r})"
    paths = list(output.iterdir())
    size = sum(path.stat().st_size for path in paths)
    print(
        f"step {predictor.step} of {_WORKDIR.value}: {len(paths)} files, "
        f"{size / 2**20:.1f} MiB, in {_OUTPUT.value}\n{advice}"
    )


if __name__ == "__main__":
    command.run(main)
