"""What is said of the parameters that a run begins with."""

from collections.abc import Iterable, Sequence

import jax

from cbert.model.parameter_tree import Params

CLASSIFIER = "classifier"  # The head whose rows are a task's labels.


def print_use(
    source: str,
    joined: Params,
    not_found: Sequence[str],
    unused: Sequence[str],
    lines: Iterable[str] = (),
) -> None:
    """Prints how many parameters come from a source, and names the others.

    Args:
      source: What they come from.
      joined: All parameters of the model.
      not_found: Names of those that begin anew.
      unused: Names of those of the source that the model does not have.
      lines: What else there is to say, each line once.
    """
    used = len(jax.tree.leaves(joined)) - len(not_found)
    print(f"initialised from {source}: {used} parameters", flush=True)
    for line in dict.fromkeys(lines):
        print(line, flush=True)
    for what, names in (("begin anew", not_found), ("not used", unused)):
        if names:
            print(f"  {len(names)} {what}: {', '.join(names)}", flush=True)
