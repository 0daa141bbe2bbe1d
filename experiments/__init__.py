"""The commands, each a module: `python -m experiments` lists them."""

from cbert import runtime

# A command is run by importing this package first, before its own imports start threads.
runtime.keep_memory()
