"""The commands, each a module: `python -m experiments` lists them."""
