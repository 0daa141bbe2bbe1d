"""The flag --config: a config file, and overrides of its fields."""

import importlib.util
import pathlib
import re
import sys
import traceback
import types
from collections.abc import Callable
from typing import TypeVar

import ml_collections
from absl import flags
from ml_collections import config_flags

from cbert.config import check_name, check_names, declarations, overrides_help
from cbert.errors import UserError
from cbert.training import config as config_lib

T = TypeVar("T")

# A command's --help lists its own flags, so this one belongs to the module that defines it.
flags.disclaim_key_flags()


def define(default: str | None = None) -> flags.FlagHolder[ml_collections.ConfigDict]:
    """Defines --config; its --help lists every field."""
    sections = config_lib.sections()
    help_text = f"configs/NAME.py:METHOD. Fields:\n{overrides_help(sections, 'config')}"
    holder = config_flags.DEFINE_config_file("config", None, help_text)
    flags.FLAGS["config"].parser = _Parser()
    if default is not None:
        flags.set_default(holder, default)
    return holder


class _Parser(flags.ArgumentParser):
    """The config that a file returns, before its fields are overridden."""

    def parse(self, argument: str) -> ml_collections.ConfigDict:
        """Raises `UserError` where the file or the name of an overridden field is wrong."""
        path, _, method = argument.partition(":")
        module = load_module(path)
        if not hasattr(module, "get_config"):
            raise UserError(f"{path} has no get_config(); write one, as configs/base.py has")
        config = _call(path, lambda: module.get_config(*([method] if method else [])))
        if not isinstance(config, ml_collections.ConfigDict):
            raise UserError(
                f"{path}: get_config() returned {type(config).__name__}, not a ConfigDict; "
                "begin with base.get_config of configs/base.py and return it"
            )
        try:
            check_names(config, config_lib.sections())
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        for override in flags.FLAGS.read_flags_from_files(sys.argv[1:], force_gnu=False):
            if match := re.match(r"--?(?:no)?config\.([^=]*)", override):
                _check_override(match[1])
        return config.lock()


def _check_override(name: str) -> None:
    try:
        check_name(name, declarations(config_lib.sections()))
    except UserError as error:
        raise UserError(f"--config.{name}: {error}") from None


def load_module(path: str) -> types.ModuleType:
    """Runs a config file.

    Raises:
      UserError: there is no such file, or it raises an error.
    """
    if not pathlib.Path(path).is_file():
        raise UserError(f"{path}: no such file; give --config=configs/NAME.py:METHOD")
    specification = importlib.util.spec_from_file_location("config_file", path)
    if specification is None or specification.loader is None:
        raise UserError(f"{path} is not a Python file; give --config=configs/NAME.py:METHOD")
    module, loader = importlib.util.module_from_spec(specification), specification.loader
    _call(path, lambda: loader.exec_module(module))
    return module


def _call(path: str, function: Callable[[], T]) -> T:
    """Calls a function of the user's file, and turns whatever it raises into one line."""
    try:
        return function()
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [str(frame.lineno) for frame in frames if frame.filename == path]
        location = ":".join([path, *lines[-1:]])
        raise UserError(f"{location}: {type(error).__name__}: {error}") from None
