"""A run that begins with the parameters of another one."""

import dataclasses
import pathlib

import jax
import ml_collections
import numpy as np
from flax import traverse_util

from cbert.errors import UserError
from cbert.model import parameter_tree
from cbert.model.conditioning.method import Method
from cbert.model.config import check_same
from cbert.model.parameter_tree import Model, Params, Path
from cbert.schema import TEXT, Feature, NumberFeature, Numerical, Schema, Target
from cbert.schema.target import NUMBER
from cbert.training import config as config_lib
from cbert.training import named_rows
from cbert.training import workdir as workdir_lib
from cbert.training.checkpoint import BEST, read_params
from cbert.training.initial_parameters import (
    CLASSIFIER,
    described,
    in_units,
    names_of,
    standardised,
)
from cbert.training.named_rows import NamedRows

# Deviations by which mean and deviation of the same numbers may differ.
NEAR = 0.1
POSITIONS = ("embedding", "positions")
TRANSFORM, CONDITIONING = "transform", "conditioning"


class FromRun:
    """Puts the best parameters of another run in place of fresh ones.

    They are matched by path and shape, and the rows of items and of a feature's values by name.
    What the other run does not know begins anew, and so do the parameters of a conditioning
    method where the other run's method is another one, unless one of them extends the other.

    Attributes:
      known: The parameters that the last call put in place, by name, and whether with all rows.
      lines: What there is to say of the last call.
    """

    def __init__(self, source: str, model: Model, schema: Schema) -> None:
        """Reads the parameters.

        Args:
          source: The other run's work directory.
          model: The model of the run that begins.
          schema: The schema of its data.

        Raises:
          UserError: the directory is not what it must be, or has another vocabulary.
        """
        self._source, self._model = source, model
        self.known: dict[str, bool] = {}
        self.lines: list[str] = []
        workdir = pathlib.Path(source).expanduser()
        config, theirs = _read_schema(workdir, schema)
        self._theirs = config_lib.build_model(config, theirs)
        _, params = read_params(workdir, BEST, self._theirs, _on_host)
        self._known = traverse_util.flatten_dict(params)
        if not _related(model.encoder.method, self._theirs.encoder.method):
            # The parameters of two methods may be of the same shapes and mean something else.
            known = self._known.items()
            self._known = {path: leaf for path, leaf in known if CONDITIONING not in path}
        self._read_context = config_lib.reads_context(config)
        self._changed = _changed(theirs, schema)
        _change_units(self._known, theirs.target, schema.target)
        self._tables = named_rows.tables(theirs, schema)
        if (entries := named_rows.context(theirs, schema)) is not None:
            kernels = _context_kernels(config, theirs)
            self._tables |= dict.fromkeys(kernels, entries)

    def __call__(self, params: Params) -> Params:
        """The parameters with the known ones in place, on the host."""
        fresh = jax.device_get(params)
        self._check_choices(fresh)
        joined, not_found, unused = _join(fresh, self._known, self._changed, self._tables)
        self.known = dict.fromkeys(names_of(joined) - {*not_found}, True)
        lines = []
        for path, rows in self._tables.items():
            if (name := "/".join(path)) in self.known:
                lines.append(rows.line())
                self.known[name] = rows.are_all_known
        positions = "/".join(POSITIONS)
        if positions in self.known:
            count, there = len(joined["embedding"]["positions"]), len(self._known[POSITIONS])
            if count > there:
                lines.append(f"  positions: {there} of {count} known, {count - there} new")
                self.known[positions] = False
        self.lines = described(self._source, joined, not_found, unused, lines)
        return jax.tree.map(np.asarray, joined)

    def _check_choices(self, params: Params) -> None:
        """Refuses another model of the same shapes, in which the parameters would mean less."""
        fields = ["dimension", "heads", "activation", "norm_epsilon"]
        if TRANSFORM in params and any(path[0] == TRANSFORM for path in self._known):
            fields.append("transform_activation")
        if self._read_context:
            fields.append("value_pooling")
        if CONDITIONING in params and any(CONDITIONING in path for path in self._known):
            fields.append("start_as_plain")  # Most methods have another form with it.
        ours, theirs = self._model.encoder.config, self._theirs.encoder.config
        check_same(fields, ours, theirs, f"that of {self._source}")


def _related(one: type[Method], other: type[Method]) -> bool:
    """Whether one method extends the other, as gsu does gs."""
    return issubclass(one, other) or issubclass(other, one)


def _read_schema(
    workdir: pathlib.Path, schema: Schema
) -> tuple[ml_collections.ConfigDict, Schema]:
    """The config and the schema of a run.

    Refuses texts beside sets or sequences, and another vocabulary or normaliser of texts.
    """
    config, theirs = workdir_lib.read(workdir)
    if (theirs.kind == TEXT) != (schema.kind == TEXT):
        raise UserError(
            f"{workdir} is a run of {theirs.kind}s, and the data are of {schema.kind}s; name a "
            f"run of {schema.kind}s"
        )
    differ = (theirs.items, theirs.tokenizer) != (schema.items, schema.tokenizer)
    if differ and schema.kind == TEXT:
        other = "vocabulary" if theirs.items != schema.items else "normaliser"
        raise UserError(
            f"the data have another {other} than {workdir}; prepare them with "
            f"vocabulary={workdir / workdir_lib.SCHEMA}"
        )
    return config, theirs


def _on_host(shapes: Params) -> Params:
    """What parameters of these shapes are restored into."""
    return jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), shapes)


def _context_kernels(config: ml_collections.ConfigDict, schema: Schema) -> list[Path]:
    """The kernels by which the context vector is multiplied: a wider one makes them longer.

    A feature's own kernel is none of them, though it is as long where there is one feature.
    """
    if not schema.features:
        return []
    first, *others = schema.features
    wider = dataclasses.replace(first, width=first.width + 1)
    both = [
        traverse_util.flatten_dict(parameter_tree.shapes(config_lib.build_model(config, one)))
        for one in (schema, dataclasses.replace(schema, features=(wider, *others)))
    ]
    return [
        path
        for path, leaf in both[0].items()
        if leaf.shape[:1] == (schema.context_width,)
        and both[1][path].shape[:1] == (schema.context_width + 1,)
        and f"feature_{first.name}" not in path
    ]


def _changed(theirs: Schema, schema: Schema) -> set[str]:
    """The modules whose rows mean something else in another schema.

    Tokens of a feature whose values alone differ stay, for their table is matched by name.
    """
    features = {feature.name: feature for feature in schema.features}
    by_name = named_rows.features(theirs, schema)
    changed = {
        f"feature_{feature.name}"
        for feature in theirs.features
        if feature.name not in by_name and not _is_same(features.get(feature.name), feature)
    }
    same_target = theirs.target == schema.target or (
        theirs.target is not None
        and schema.target is not None
        and theirs.target.values == schema.target.values
    )
    if not same_target:
        changed.add(CLASSIFIER)
    return changed


def _change_units(
    known: dict[Path, np.ndarray], theirs: Target | None, target: Target | None
) -> None:
    """Makes the last layer of a regression give the same numbers by the units of others."""
    if not (theirs and target and theirs.kind == target.kind == NUMBER):
        return
    for path in [path for path in known if path[0] == CLASSIFIER]:
        known[path] = standardised(path[1], in_units(path[1], known[path], theirs), target)


def _is_same(own: Feature | None, theirs: Feature) -> bool:
    """Returns whether two features are alike, however long their lists are.

    More data move the mean and the deviation of numbers a little, and the edges of their bins.
    """
    if own is None:
        return False
    if isinstance(own, NumberFeature) and isinstance(theirs, NumberFeature):
        moved = max(abs(own.mean - theirs.mean), abs(own.scale - theirs.scale))
        if moved <= NEAR * theirs.scale:
            own = dataclasses.replace(own, mean=theirs.mean, scale=theirs.scale)
            if isinstance(own, Numerical) and isinstance(theirs, Numerical):
                same_bins = len(own.edges) == len(theirs.edges)
                own = dataclasses.replace(own, edges=theirs.edges) if same_bins else own
    return own.with_entries(1) == theirs.with_entries(1)


def _join(
    params: Params,
    known: dict[Path, np.ndarray],
    changed: set[str],
    tables: dict[Path, NamedRows],
) -> tuple[Params, tuple[str, ...], tuple[str, ...]]:
    """The parameters with the known ones; the names of fresh ones and of those not used."""
    flat = traverse_util.flatten_dict(params)
    used = set()
    for path in flat.keys() & known.keys():
        values = known[path]
        if path == POSITIONS and values.shape[1:] == flat[path].shape[1:]:
            # Shorter texts take the first positions, and longer ones have new ones after them.
            values = np.concatenate([values, flat[path][len(values) :]])[: len(flat[path])]
        if path in tables and values.shape[1:] == flat[path].shape[1:]:
            flat[path] = tables[path].fill(flat[path], values)
            used.add(path)
        elif values.shape == flat[path].shape and not changed & set(path):
            flat[path] = values
            used.add(path)
    not_found = tuple(sorted("/".join(path) for path in flat.keys() - used))
    unused = tuple(sorted("/".join(path) for path in known.keys() - used))
    return traverse_util.unflatten_dict(flat), not_found, unused
