"""The flag --config: a config file, and overrides of its fields."""

import re
import sys

import ml_collections
from absl import flags
from ml_collections import config_flags

from cbert.config import declarations, overrides_help
from cbert.errors import UserError
from cbert.field_names import check_name
from cbert.model import conditioning
from cbert.training import config_file
from cbert.training.config_sections import sections

# A command's --help lists its own flags, so this one belongs to the module that defines it.
flags.disclaim_key_flags()


def define(default: str | None = None) -> flags.FlagHolder[ml_collections.ConfigDict]:
    """Defines --config; its --help lists every field."""
    fields = overrides_help(sections(), "config")
    help_text = f"configs/NAME.py:METHOD, or of texts configs/text.py:TASK. Fields:\n{fields}"
    holder = config_flags.DEFINE_config_file("config", None, help_text)
    flags.FLAGS["config"].parser = _Parser()
    if default is not None:
        flags.set_default(holder, default)
    return holder


def parts() -> tuple[str, str]:
    """The file, or the run's directory, that --config names, and the argument after it."""
    return config_file.parts(config_flags.get_config_filename(flags.FLAGS["config"]))


def methods(named: list[str]) -> list[str]:
    """The methods that a flag names; `all` stands for all of them."""
    return list(conditioning.NAMES) if named == ["all"] else named


class _Parser(flags.ArgumentParser):
    """The config that a file returns, before its fields are overridden."""

    def parse(self, argument: str) -> ml_collections.ConfigDict:
        """Raises `UserError` where the file or the name of an overridden field is wrong."""
        config = config_file.read(argument)
        for override in flags.FLAGS.read_flags_from_files(sys.argv[1:], force_gnu=False):
            if match := re.match(r"--?(?:no)?config\.([^=]*)", override):
                _check_override(match[1])
        return config.lock()


def _check_override(name: str) -> None:
    try:
        check_name(name, declarations(sections()))
    except UserError as error:
        raise UserError(f"--config.{name}: {error}") from None
