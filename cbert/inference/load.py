"""A predictor from a run's work directory.

    predictor = cbert.load("runs/gsu")  # A run of sets or sequences.
    predictor.complete(["Coffee, brewed", "Bagel"], {"occasion": "breakfast"}, k=5)
    predictor = cbert.load("runs/turns")  # A run of texts.
    predictor.predict("Is it far?", {"domain": "hotel"})

It needs nothing but the work directory: config, schema and checkpoints.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import ml_collections

from cbert import parallel, tasks
from cbert.errors import UserError, check_path
from cbert.inference import item_functions, text_functions
from cbert.inference.checks import Checker
from cbert.inference.export_directory import CARD
from cbert.inference.predictor import Predictor
from cbert.inference.program import BATCH_SIZES, Program
from cbert.inference.text_predictor import TextPredictor
from cbert.inference.text_program import TextProgram
from cbert.schema import TEXT
from cbert.tasks import MaskedItem, Task
from cbert.training import checkpoint as checkpoint_lib
from cbert.training import config as config_lib
from cbert.training import workdir as workdir_lib


def load(
    workdir: str | pathlib.Path,
    checkpoint: str | int = checkpoint_lib.BEST,
    batch_sizes: Sequence[int] = BATCH_SIZES,
) -> Predictor | TextPredictor:
    """Loads a run's model onto the first device; compiles nothing.

    Args:
      workdir: The run's directory.
      checkpoint: `best`, `last` or a step.
      batch_sizes: The numbers of rows to compile for; more rows are predicted in parts.

    Returns:
      A `Predictor` of a run of sets or sequences, a `TextPredictor` of a run of texts.

    Raises:
      UserError: the work directory or the checkpoint is not what it must be, or nothing is
        known of how to predict with the task.
    """
    check_path("workdir", workdir)
    workdir = pathlib.Path(workdir).expanduser()
    if (workdir / CARD).is_file() and not (workdir / workdir_lib.CONFIG).exists():
        raise UserError(
            f"{workdir} is an exported model, not a run's work directory; read it with "
            "cbert.load_exported"
        )
    config, schema = workdir_lib.read(workdir)
    _check_task(tasks.task_class(config))
    model = config_lib.build_model(config, schema)
    step, params = checkpoint_lib.read_params(workdir, str(checkpoint), model, _on_first_device)
    uses_context = config_lib.reads_context(config)
    config = _as_extended(config)
    if schema.kind == TEXT:
        of_texts = text_functions.functions(model, config, schema)
        text_program = TextProgram(of_texts, params, schema, batch_sizes)
        return TextPredictor(schema, config, step, text_program, uses_context=uses_context)
    checker = Checker(schema, config.model.positions)
    of_items = item_functions.functions(model)
    program = Program(of_items, params, schema, checker.longest, batch_sizes)
    return Predictor(schema, config, step, checker, program, uses_context=uses_context)


def _check_task(task: type[Task]) -> None:
    """Refuses a task whose predictions only it knows; raises `UserError`."""
    base = tasks.extends(task)
    if base is None:
        raise UserError(
            f"the task {task.name} extends none of cbert's, so that there is no predictor, "
            "page or export for it; evaluate its runs"
        )
    changes = tasks.changed(task, base)
    if base is MaskedItem:  # The predictor asks the model itself.
        changes = [name for name in changes if name != "predict"]
    if changes:
        raise UserError(
            f"the task {task.name} has another {changes[0]} than {base.name}, so that there is "
            "no predictor, page or export for it; evaluate its runs"
        )


def _on_first_device(shapes: Any) -> Any:
    """What parameters of these shapes are restored into."""
    device = jax.sharding.SingleDeviceSharding(parallel.first_device())
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=device), shapes
    )


def _as_extended(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """The config with the task here that a task of one's own extends, and with its options."""
    task = tasks.task_class(config)
    name = tasks.extended(task)
    if name == task.name:
        return config
    config = config.copy_and_resolve_references()
    own = config.task.get(task.name, {})
    section = config.task.get(name, {})
    section.update({field: own[field] for field in section if field in own})
    config.task.name = name
    return config
