"""Starts and ends every command: a user's mistake becomes one line and exit code 2."""

import contextlib
import difflib
import io
import itertools
import math
import os
import pathlib
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from typing import NoReturn

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from absl import app, flags, logging

from cbert import errors, runtime
from cbert.errors import ADVICE, UserError, one_line
from experiments import system_errors

# As `config_file.METHODS_VARIABLE`, whose module takes a second to import.
_METHODS = "CBERT_METHODS"
# What the refusal of a method or a task that is not known adds.
_OWN = f"name the file of one that is yours in {_METHODS}"
# Flags of `prepare` that other commands advise to prepare the data with.
_OF_PREPARE = ("kind", "longer", "max_items", "max_length", "vocabulary")
# Flags whose value may be empty.
_TEXTS = ("text", "text_b")

# What absl and Python say of a flag, and what a person would.
_PLAIN = {
    r"flag --(\w+)=None: .* must have a value other than None\.": r"--\1 is missing; "
    r"give --\1=VALUE, which --help explains",
    r"invalid literal for int\(\) with base 10: '.*'": "give a whole number",
    "could not convert string to float: '.*'": "give a number",
    r"\('Non-boolean argument to boolean flag', .*\)": "give true or false",
    r"Found (--config\.\S+) in argv before a value for --config was specified": (
        r"\1 overrides a config; give --config=FILE before it"
    ),
}


def run(main: Callable[[], None]) -> None:
    """Parses the flags and calls `main`, which reads `flags.FLAGS`."""

    def guarded(arguments: list[str]) -> None:
        try:
            if len(arguments) > 1:
                fail(_unexpected(arguments[1]))
            _check_none_is_empty()
            main()
            sys.stdout.flush()  # Or Python would find out at its end, and leave with 120.
        except BrokenPipeError:
            _discard_output()
        except KeyboardInterrupt:
            _leave("interrupted; a run goes on with the same command", 130)
        except UserError as error:
            fail(f"{error}; {_OWN}" if getattr(error, "may_be_own", False) else error)
        except Exception as error:
            if line := system_errors.explain(error):
                _leave(f"error: {one_line(line)}", 2)
            if not isinstance(error, OSError):
                raise
            path, reason = error.filename, error.strerror
            fail(f"{path}: {reason}; choose another path" if path else error)

    _set_up_outputs()
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Libraries log an error before they raise it, which would be a second line.
    logging.set_verbosity(logging.FATAL)
    if os.environ.get(_METHODS):
        _load_methods()
    errors.reword = _with_flags
    sys.unraisablehook = _main_thread_only(sys.unraisablehook)
    runtime.set_up()
    app.run(guarded, flags_parser=_parse)


def _check_none_is_empty() -> None:
    """Refuses `--flag=`, which an unset variable of a shell leaves; a text may be empty."""
    for name in flags.FLAGS:
        flag = flags.FLAGS[name]
        if flag.present and flag.value in ("", []) and "." not in name and name not in _TEXTS:
            raise UserError(f"--{name} is empty; give a value, or leave it out")


def _set_up_outputs() -> None:
    """Makes the outputs fit for any terminal, log or daemon."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # Who started the command has closed it.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            setattr(sys, name, os.fdopen(nowhere, "w", errors="replace"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A log that is a file has each line at once, and one that is not in UTF-8 has escapes.
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")


def _load_methods() -> None:
    """Registers methods of the user's before any flag is read, which may name one of them."""
    from cbert.training import config_file  # It takes a second, which few commands need.

    try:
        config_file.load_methods()
    except UserError as error:
        fail(error)


def to_copy(module: str, *arguments: str) -> str:
    """A command to copy into a shell, with the variable that it needs for own methods.

    Who started `cbert` is told to, because the `python` of the shell may be another one.
    """
    files = os.environ.get(_METHODS)
    variable = f"{_METHODS}={shlex.quote(files)} " if files else ""
    is_installed = any(pathlib.Path(name).name == "cbert" for name in sys.orig_argv[1:2])
    program = f"cbert {module}" if is_installed else f"python -m experiments.{module}"
    return f"{variable}{program} {shlex.join(arguments)}"


def whole_numbers(flag: flags.FlagHolder) -> list[int]:
    """The numbers of a flag that takes a list; raises `UserError` where one is not whole."""
    texts = [text.strip() for text in flag.value]
    if not texts or not all(text.isdecimal() and len(text) < 19 for text in texts):
        raise UserError(f"--{flag.name} is {','.join(texts)!r:.60}; give whole numbers: 1,2,3")
    return [int(text) for text in texts]


def pairs(flag: flags.FlagHolder, last: bool = False) -> dict[str, str]:
    """The names and values of a flag that takes name:value,name:value.

    Args:
      flag: The flag.
      last: Whether the value follows the last colon, so that a name may have others, and not
        the first one.

    Raises:
      UserError: one is no such pair, or a name is there twice.
    """
    found: dict[str, str] = {}
    for pair in flag.value:
        name, _, value = pair.rpartition(":") if last else pair.partition(":")
        if not name or not value:
            raise UserError(f"--{flag.name} has {pair!r}; write name:value,name:value")
        if name in found:
            raise UserError(f"--{flag.name} names {name!r} twice")
        found[name] = value
    return found


def refuse(unwanted: Iterable[flags.FlagHolder | flags.Flag], owner: str) -> None:
    """Raises `UserError` for the first of the flags that was given, which its owner reads."""
    for flag in unwanted:
        if flag.present:
            raise UserError(f"--{flag.name} belongs to {owner}")


def _main_thread_only(report: Callable) -> Callable:
    """Makes a hook ignore other threads; TensorStore's repeat the errors that a save raises."""

    def hook(error: object) -> None:
        if threading.get_ident() == threading.main_thread().ident:
            report(error)

    return hook


def _discard_output() -> None:
    """Lets Python flush at its end although the reader of the output has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _leave(line: str, code: int) -> None:
    """Ends the process at once, because its threads may still compute or fail to write.

    Python would crash while a thread computes, and print what a failing one raises.
    """
    print(line, file=sys.stderr, flush=True)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code)


def _parse(arguments: list[str]) -> list[str]:
    """Parses flags and config overrides; a mistake in either ends in one line."""
    try:
        rest = flags.FLAGS(arguments)
        _check_numbers()
        return rest
    except BrokenPipeError:
        _discard_output()
        sys.exit(0)
    except SystemExit as error:
        # absl ends with 1 after it has printed the help that was asked for.
        sys.exit(0 if error.code == 1 else error.code)
    except flags.UnrecognizedFlagError as error:
        if error.flagname.startswith("config."):
            fail(f"--{error.flagname} overrides a config; give --config=FILE before it")
        fail(f"there is no flag --{error.flagname}{_near(error)}")
    except (flags.Error, UserError) as error:
        if "must have a value other than None" in str(error) and (stray := _stray(arguments)):
            fail(_unexpected(stray))  # Which may be the value of the flag that is missing.
        fail(_plain(str(error)))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        fail(f"a --config override was refused: {error.args[0] if error.args else error}")


def _check_numbers() -> None:
    """Refuses nan, which is within all bounds of a flag because no comparison with it holds."""
    for name, value in flags.FLAGS.flag_values_dict().items():
        if isinstance(value, float) and math.isnan(value):
            raise UserError(f"--{name} is {value}; give a number")


def _unexpected(argument: str) -> str:
    return f"unexpected argument {argument!r}; flags look like --name=value"


def _stray(arguments: list[str]) -> str | None:
    """The first argument that is neither a flag nor the value of the flag before it."""
    for before, argument in itertools.pairwise(arguments):
        takes_value = before.startswith("-") and "=" not in before
        if not argument.startswith("-") and not takes_value:
            return argument
    return None


def _near(error: flags.UnrecognizedFlagError) -> str:
    """What an unknown flag may have meant: a field of the config, or what absl suggests."""
    from cbert.training import config  # Few commands need it before they run.

    names = [f"config.{name}" for name in config.flat(config.default().to_dict())]
    fields = [name for name in names if name.endswith(f".{error.flagname}")]
    if not fields:
        last = {name.rpartition(".")[2]: name for name in names}
        close = difflib.get_close_matches(error.flagname, last, 1, cutoff=0.75)
        fields = [last[part] for part in close]
    near = fields if "config" in flags.FLAGS else []
    suggested = re.findall(r"Did you mean: (\w+)", str(error))
    near += [name for name in suggested if not _is_of_absl(name)]
    return f"; did you mean {' or '.join(f'--{name}' for name in near)}?" if near else ""


def _is_of_absl(name: str) -> bool:
    """Whether a flag is one that absl defines for every program."""
    return (flags.FLAGS.find_module_defining_flag(name) or "").startswith("absl")


def _plain(error: str) -> str:
    """The error of a flag without Python's own words."""
    for words, plain in _PLAIN.items():
        error = re.sub(words, plain, error)
    return error


def fail(error: object) -> NoReturn:
    """Prints one line and ends the process with exit code 2."""
    print(f"error: {_with_flags(one_line(error))}", file=sys.stderr)
    sys.exit(2)


def _with_flags(message: str) -> str:
    """A message with `--` before the flags that it advises to give, as `name=value`.

    The library, which knows no flags, leaves it out. A name with a dot is a field of a config.
    """

    def written(found: re.Match) -> str:
        name = f"config.{found[2]}" if "." in found[2] else found[2]
        known = name.partition(".")[0] in (*flags.FLAGS, *_OF_PREPARE)
        return f"{found[1]} --{name}=" if known else found[0]

    return re.sub(ADVICE, written, message)
