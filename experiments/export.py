"""Exports a trained model to run without its code: StableHLO, parameters, schema and a card.

python -m experiments.export --workdir=runs/gsu --output=exported/gsu
"""

import json
import pathlib
import subprocess
from typing import Any

from absl import flags

import cbert
from cbert import export
from cbert.errors import UserError
from cbert.schema import Schema
from cbert.serving.predictor import Predictor
from experiments import command

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's directory.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "A new directory.", required=True)
_CHECKPOINT = flags.DEFINE_string("checkpoint", "best", "best, last or a step.")
_INTENDED_USE = flags.DEFINE_string("intended_use", "", "For the card; a default says it all.")


def main() -> None:
    """Exports, and prints what was written."""
    predictor = cbert.load(_WORKDIR.value, _CHECKPOINT.value)
    export.write(predictor, _OUTPUT.value, _facts(predictor))
    found = sorted(pathlib.Path(_OUTPUT.value).expanduser().iterdir())
    size = sum(path.stat().st_size for path in found)
    print(
        f"step {predictor.step} of {_WORKDIR.value}: {len(found)} files, "
        f"{size / 2**20:.1f} MiB, in {_OUTPUT.value}\n"
        f"read it with cbert.load_exported({_OUTPUT.value!r})"
    )


def _facts(predictor: Predictor) -> dict[str, Any]:
    """What the card says to people."""
    config, schema = predictor.config, predictor.schema
    return {
        "method": predictor.method,
        "data": {
            "name": config.data.name,
            "kind": schema.kind,
            "items": len(schema.items),
            "max_items": schema.max_items,
            "features": {feature.name: feature.kind for feature in schema.features},
        },
        "metrics": _metrics(predictor.step),
        "git_revision": _git_revision(),
        "intended_use": _INTENDED_USE.value
        or f"Completing {schema.kind}s of the items in schema.json, given the context features "
        "named there, drawn from the same population as the training data.",
        "limits": _limits(predictor, schema),
    }


def _metrics(step: int) -> dict[str, Any]:
    """By split, what `evaluate` measured of this step; of another step it would mislead."""
    found = {}
    for path in sorted(pathlib.Path(_WORKDIR.value).expanduser().glob("eval/*.json")):
        try:
            measured = json.loads(path.read_text(encoding="utf-8"))
            if measured["step"] == step:
                kept = ("data", "masking", "questions", "groups", "standard_errors")
                settings = {name: measured[name] for name in kept}
                found[path.stem] = {**settings, **measured["results"]["model"]}
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{path}: not a result; run experiments.evaluate again") from None
    return found


def _limits(predictor: Predictor, schema: Schema) -> list[str]:
    limits = [
        f"It knows the {len(schema.items)} items of schema.json; others are unknown to it, and "
        "are never proposed.",
        f"It was trained on at most {schema.max_items} items at a time.",
        "Its probabilities say what occurred together in the training data, not what is good, "
        "safe or available, and they repeat whatever bias those data have.",
    ]
    if predictor.config.train.context_dropout == 0:
        limits.append(
            "It was trained without context dropout: with features missing that were given "
            "throughout training, its answers are extrapolations."
        )
    return limits


def _git_revision() -> str | None:
    """The revision of this code, with -dirty where it was changed; None outside its tree."""
    here = pathlib.Path(__file__)
    git = ["git", "-C", str(here.parent)]
    try:
        subprocess.run(
            [*git, "ls-files", "--error-unmatch", here.name], check=True, capture_output=True
        )
        done = subprocess.run(
            [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            check=True,
            capture_output=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


if __name__ == "__main__":
    command.run(main)
