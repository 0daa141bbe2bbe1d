"""Config files: Python files whose `get_config(argument)` returns a config."""

import importlib.util
import os
import pathlib
import sysconfig
import traceback
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import ml_collections
import numpy as np

import cbert
from cbert.config import check_names, check_value, declarations, flat
from cbert.errors import UserError, check_kind, shown, warn
from cbert.field_names import check_name
from cbert.model import conditioning
from cbert.tasks import TASKS
from cbert.training import config as config_lib
from cbert.training.config_sections import sections

_ADVICE = "give the path of a config file, such as configs/base.py:gsu"

# The environment variable that names files, with commas, which register methods and tasks.
METHODS_VARIABLE = "CBERT_METHODS"
# Where the files lie that are no user's, and the names of Python's own modules.
_LIBRARIES = (*(sysconfig.get_path(name) for name in ("stdlib", "purelib")), "<")
_MODULE = "config_file"  # The name of a file's module, whatever the file's own is.

T = TypeVar("T")


def method_files() -> list[str]:
    """The absolute paths of the files that `CBERT_METHODS` names."""
    named = filter(None, os.environ.get(METHODS_VARIABLE, "").split(","))
    return [str(_find(path).absolute()) for path in named]


def load_methods() -> None:
    """Runs the files of `CBERT_METHODS`, whose methods and tasks every command then knows.

    Raises:
      UserError: there is no such file, or it raises an error.
    """
    for path in method_files():
        if not pathlib.Path(path).is_file():
            raise UserError(
                f"{METHODS_VARIABLE}: {path}: no such file; name one, or several separated by "
                "commas, or unset it"
            )
        load_module(path)


def read(source: str | pathlib.Path) -> ml_collections.ConfigDict:
    """The config that a file returns, or that of a run, locked: it takes no new field.

    Args:
      source: A config file, which may be followed by a colon and the argument of its
        `get_config`, such as `configs/base.py:gs`; or a run's work directory.

    Raises:
      UserError: there is no such file, or what it returns is not a config.
    """
    if pathlib.Path(source).expanduser().is_dir():
        return config_lib.load(pathlib.Path(source).expanduser()).lock()
    path, argument = parts(source)
    known = {*conditioning.NAMES, *TASKS}
    module = load_module(path)
    if {*conditioning.NAMES, *TASKS} > known:
        # The processes that this one starts, such as a sweep's, need them, too.
        os.environ[METHODS_VARIABLE] = ",".join([*method_files(), str(_find(path).absolute())])
    if not hasattr(module, "get_config"):
        raise UserError(f"{path} has no get_config(); write one, as configs/base.py has")
    config = _call(path, lambda: module.get_config(*([argument] if argument else [])))
    if not isinstance(config, ml_collections.ConfigDict):
        raise UserError(
            f"{path}: get_config() returned {type(config).__name__}, not a ConfigDict; "
            "begin with base.get_config of configs/base.py and return it"
        )
    try:
        check_names(config, sections())
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return config.lock()


def parts(source: str | pathlib.Path) -> tuple[str, str]:
    """The path in what `read` takes, which may have colons, and the argument after it."""
    if pathlib.Path(source).expanduser().is_dir():
        return str(source), ""
    words = str(source).split(":")
    known = (n for n in range(1, len(words) + 1) if _find(":".join(words[:n])).is_file())
    count = next(known, 1)
    return ":".join(words[:count]), ":".join(words[count:])


def read_sweep(path: str) -> list[dict[str, Any]] | None:
    """What the `sweep()` of a config file returns, by dotted names; None where it has none.

    Raises:
      UserError: there is no such file, or `sweep()` fails or returns something else than
        overrides of what a sweep may vary.
    """
    # A run's directory is a config, too, but no module.
    is_run = pathlib.Path(path).expanduser().is_dir()
    sweep = None if is_run else getattr(load_module(path), "sweep", None)
    if sweep is None:
        return None
    returned = _call(path, sweep)
    if isinstance(returned, Mapping | str) or not isinstance(returned, Iterable):
        raise UserError(f"{path}: sweep() returned {shown(returned)}; return a list of dicts")
    entries = _call(path, lambda: list(returned))
    if not entries:
        raise UserError(f"{path}: sweep() returned nothing; return a dict for each run")
    return [_checked_entry(path, entry) for entry in entries]


def _checked_entry(path: str, entry: Any) -> dict[str, Any]:
    """An entry of a `sweep()` by dotted names; raises `UserError`."""
    if not isinstance(entry, Mapping) or not all(isinstance(name, str) for name in entry):
        raise UserError(
            f"{path}: sweep() has {shown(entry)}; each entry is a dict from field to value"
        )
    overrides = flat(entry)
    if not isinstance(overrides.get("model.method", ""), str):
        raise UserError(
            f"{path}: sweep() has the method {shown(overrides['model.method'])}; give its name"
        )
    for name in overrides:
        if name == "seed":
            raise UserError(f"{path}: sweep() sets seed; leave it out, and give seeds=N")
        if name.startswith("data."):
            raise UserError(
                f"{path}: sweep() sets {name}, but a sweep is on one data set; leave it out"
            )
    return overrides


def override(config: ml_collections.ConfigDict, overrides: Mapping[str, Any]) -> None:
    """Sets fields by dotted name, or by nested mappings.

    Raises:
      UserError: there is no such field, or the value is impossible.
    """
    declared = declarations(sections())
    for name, value in flat(_as_dict(overrides)).items():
        check_name(name, declared)
        check_value(name, declared[name], value)
        config.update_from_flattened_dict({name: declared[name].kind(value)})


def _as_dict(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings as dicts, NumPy's numbers as Python's; raises `UserError` for others."""
    check_kind("overrides", overrides, Mapping, "a dict from field to value")
    for name in overrides:
        check_kind("a field in overrides", name, str, "its name, a string")

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return _as_dict(value)
        return value.item() if isinstance(value, np.generic) else value

    return {name: plain(value) for name, value in overrides.items()}


def load_module(path: str) -> types.ModuleType:
    """Runs a config file.

    Raises:
      UserError: there is no such file, or it raises an error.
    """
    file = _find(path)
    if not file.is_file():
        raise UserError(f"{path}: no such file; {_ADVICE}")
    specification = importlib.util.spec_from_file_location(_MODULE, file)
    if specification is None or specification.loader is None:
        raise UserError(f"{path} is not a Python file; {_ADVICE}")
    module, loader = importlib.util.module_from_spec(specification), specification.loader
    known = {*conditioning.NAMES}
    _call(path, lambda: loader.exec_module(module))
    for name in conditioning.NAMES - known:
        if not conditioning.hooks(name):
            warn(
                f"{path}: the method {name} overrides no hook of Method, so that it is plain "
                f"BERT; the hooks are {', '.join(conditioning.HOOKS)}"
            )
    return module


def _find(path: str) -> pathlib.Path:
    """A file by its path, or beside the package, where an installation has its own configs."""
    file = pathlib.Path(path).expanduser()
    installed = pathlib.Path(cbert.__file__).parent.parent / file
    return installed if installed.is_file() and not file.is_file() else file


def _call(path: str, function: Callable[[], T]) -> T:
    """Calls a function of the user's file, and turns whatever it raises into one line."""
    try:
        return function()
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except Exception as error:
        raise UserError(_explained(path, error)) from None


def _explained(path: str, error: Exception) -> str:
    """An error with its line in the user's file, and its place in what that imports."""
    frames = traceback.extract_tb(error.__traceback__)
    within = [f for f in frames if pathlib.Path(f.filename).name == pathlib.Path(path).name]
    location = f"{path}:{within[-1].lineno}" if within else path
    if isinstance(error, ImportError) and (
        error.name == _MODULE or "relative import" in str(error)
    ):
        return (
            f"{location}: a relative import, and the file is run on its own; import its "
            "package by name, which PYTHONPATH or an installation makes known"
        )
    line = f"{location}: {type(error).__name__}: {error}"
    own = [f for f in frames if not f.filename.startswith(_LIBRARIES)]
    if within and own and own[-1].filename != within[-1].filename:
        line += f" ({own[-1].filename}:{own[-1].lineno})"
    return line
