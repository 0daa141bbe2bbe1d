"""Where parameters and the optimizer's state lie: on every device, or split over them.

Legend: n devices, R rows of one device, V items, D model dimension.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from cbert import collectives, parallel
from cbert.model import parameter_tree
from cbert.model.contextual_bert import ContextualBert
from cbert.model.parameter_tree import Model, Params

# The last names of the paths of what is split: the parameters and their optimizer states.
SPLIT = (("embedding", "items"), ("embedding", "bias"))


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where a model's parameters and whatever has their paths lie.

    A split array is `[V, ...]` on the host and in checkpoints, `[n, R, ...]` on the devices,
    and `[R, ...]` inside a mapped function; see `item_shards`. Every other one is the same on
    all devices.

    Attributes:
      vocabulary: V.
      shards: n; 1 where nothing is split.
    """

    vocabulary: int = 0
    shards: int = 1

    def splits(self, path: tuple[Any, ...]) -> bool:
        """Whether the array of that path of JAX's keys is split."""
        names = [getattr(key, "key", None) for key in path]
        # A method of one's own may call a module `embedding`, too.
        of_items = not set(names) & set(parameter_tree.CONTEXT_PARTS)
        return self.shards > 1 and of_items and tuple(names[-2:]) in SPLIT

    def _map(self, split: Any, rest: Any, tree: Any) -> Any:
        """The tree with one function of its split arrays and another one of all others."""
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: split(leaf) if self.splits(path) else rest(leaf), tree
        )

    def axes(self, tree: Any) -> Any:
        """The axis over which a mapped function takes each array; None for no axis."""
        return self._map(lambda leaf: 0, lambda leaf: None, tree) if self.shards > 1 else None

    def shardings(self, tree: Any) -> Any:
        """The sharding of each array."""
        split, everywhere = parallel.divided(), parallel.everywhere()
        return self._map(lambda leaf: split, lambda leaf: everywhere, tree)

    def parts(self, tree: Any) -> Any:
        """Split arrays `[V, ...]` or `[n R, ...]` as `[n, R, ...]`."""

        def part(leaf: Any) -> Any:
            missing = -len(leaf) % self.shards
            if missing:
                leaf = np.pad(leaf, [(0, missing)] + [(0, 0)] * (leaf.ndim - 1))
            return leaf.reshape(self.shards, -1, *leaf.shape[1:])

        return self._map(part, lambda leaf: leaf, tree)

    def to_devices(self, tree: Any) -> Any:
        """A tree as checkpoints hold it, on the devices."""
        return self.put_parts(self.parts(tree))

    def put_parts(self, tree: Any) -> Any:
        """Puts a tree on the devices, whose arrays have the shapes that `parts` gives."""
        return jax.device_put(tree, self.shardings(tree))

    def to_host(self, tree: Any) -> Any:
        """The inverse of `to_devices`: split arrays on the host, without padding."""

        def whole(leaf: Any) -> np.ndarray:
            return np.asarray(leaf).reshape(-1, *leaf.shape[2:])[: self.vocabulary]

        return self._map(whole, lambda leaf: leaf, tree)

    def to_restore(self, shapes: Any) -> Any:
        """What to restore the parameters of these shapes into, before they are placed."""
        return self._map(
            lambda leaf: np.empty((self.vocabulary, *leaf.shape[1:]), leaf.dtype),
            parallel.replicated,
            shapes,
        )

    def sum_over_devices(self, gradients: Any) -> Any:
        """The sums over devices, inside a mapped function, of all that is not split.

        The gradients of split arrays are complete already.
        """
        summed = collectives.total(self._map(lambda leaf: None, lambda leaf: leaf, gradients))
        return jax.tree.map(
            lambda own, total: own if total is None else total, gradients, summed
        )

    def norm(self, gradients: Any) -> jax.Array:
        """The norm of all entries, inside a mapped function; split ones count once."""
        if self.shards == 1:
            return optax.tree.norm(gradients)
        split = self._map(lambda leaf: leaf, lambda leaf: None, gradients)
        rest = self._map(lambda leaf: None, lambda leaf: leaf, gradients)
        square = collectives.total(optax.tree.norm(split, squared=True))
        return jnp.sqrt(square + optax.tree.norm(rest, squared=True))


def choose(model: Model) -> Placement:
    """The placement of a model's parameters."""
    if not isinstance(model, ContextualBert):
        return Placement()
    return Placement(model.vocabulary, model.shards)


def initialize(model: Model, key: jax.Array) -> Params:
    """Fresh parameters, float32; split ones are made in parts, each on its device."""
    placement = choose(model)
    if placement.shards == 1:
        return parameter_tree.initialize(model, key)

    def parts(key: jax.Array) -> Any:
        return placement.parts(parameter_tree.draw(model, key))

    shardings = placement.shardings(jax.eval_shape(parts, key))
    options = parameter_tree.UNOPTIMISED
    return jax.jit(parts, out_shardings=shardings, compiler_options=options)(key)
