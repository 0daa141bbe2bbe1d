"""The parameters that a run begins with: fresh, of another run, or of a pretrained BERT."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import ml_collections
import numpy as np
from flax import traverse_util

from cbert.data import vocabulary
from cbert.errors import UserError
from cbert.model import huggingface, parameter_tree
from cbert.model.config import check_same
from cbert.schema import TEXT, Feature, Schema, TokenizerOptions
from cbert.training import checkpoint, item_vectors, named_rows
from cbert.training import config as config_lib
from cbert.training import workdir as workdir_lib
from cbert.training.item_vectors import ItemVectors
from cbert.training.named_rows import NamedRows
from cbert.training.run import Run
from cbert.training.state import TrainState

HUGGING_FACE = "hf:"  # What the folder of a Hugging Face model begins with.
POSITIONS = ("embedding", "positions")
CLASSIFIER = "classifier"
TRANSFORM = "transform"

Path = tuple[str, ...]
Params = Any


class Initializer:
    """Puts the parameters of `train.init_from` in place of fresh ones.

    They are matched by path and shape, and the rows of items and of a feature's values by name.
    What the other run does not know, such as the labels of another classifier, begins anew.
    """

    def __init__(self, source: str, model: Any, schema: Schema) -> None:
        """Reads the parameters.

        Args:
          source: A run's work directory, or `hf:` and the folder of a Hugging Face model.
          model: The model of the run that begins.
          schema: The schema of its data.

        Raises:
          UserError: the source is not what it must be, or has another vocabulary.
        """
        self._source, self._model = source, model
        self._pretrained: huggingface.Pretrained | None = None
        self._theirs: Any = None
        self._known: dict[Path, np.ndarray] = {}
        self._changed: set[str] = set()
        self._tables: dict[Path, tuple[NamedRows, int]] = {}
        if source.startswith(HUGGING_FACE):
            folder = pathlib.Path(source.removeprefix(HUGGING_FACE)).expanduser()
            pretrained = huggingface.read(folder)
            check_vocabulary(folder, pretrained, schema)
            self._pretrained = _with_labels_of(schema, pretrained)
        else:
            workdir = pathlib.Path(source).expanduser()
            config, theirs = _read_schema(workdir, schema)
            self._theirs = config_lib.build_model(config, theirs)
            self._known = _read_params(workdir, self._theirs)
            self._changed = _changed(theirs, schema)
            self._tables = named_rows.tables(theirs, schema)
            if (entries := named_rows.context(theirs, schema)) is not None:
                kernels = _context_kernels(config, theirs)
                self._tables |= dict.fromkeys(kernels, (entries, 0))

    def __call__(self, params: Params) -> Params:
        """The parameters with the known ones in place, on the host."""
        fresh = jax.device_get(params)
        if self._pretrained is not None:
            joined, unmatched = huggingface.initialize_from(
                self._model, fresh, self._pretrained
            )
            not_found, unused = unmatched.not_found, unmatched.unused
        else:
            self._check_choices(fresh)
            joined, not_found, unused = _join(fresh, self._known, self._changed, self._tables)
        used = len(jax.tree.leaves(joined)) - len(not_found)
        print(f"initialised from {self._source}: {used} parameters", flush=True)
        unmatched_names = {*not_found, *unused}
        lines = [
            rows.line()
            for path, (rows, _) in self._tables.items()
            if "/".join(path) not in unmatched_names
        ]
        for line in dict.fromkeys(lines):
            print(line, flush=True)
        _print_names("begin anew", not_found)
        _print_names("not used", unused)
        return jax.tree.map(np.asarray, joined)

    def _check_choices(self, params: Params) -> None:
        """Refuses another model of the same shapes, in which the parameters would mean less."""
        fields = ["heads", "activation", "norm_epsilon"]
        if TRANSFORM in params and any(path[0] == TRANSFORM for path in self._known):
            fields.append("transform_activation")
        ours, theirs = self._model.encoder.config, self._theirs.encoder.config
        check_same(fields, ours, theirs, f"that of {self._source}")


def read(config: ml_collections.ConfigDict, schema: Schema) -> list[Initializer | ItemVectors]:
    """What `train.init_from` and `train.item_embeddings` name, in the order of their use.

    Raises:
      UserError: one of them is not what it must be.
    """
    initializers: list[Initializer | ItemVectors] = []
    if source := config.train.init_from:
        model = config_lib.build_model(config, schema)
        initializers.append(Initializer(source, model, schema))
    if vectors := item_vectors.read(config, schema):
        initializers.append(vectors)
    return initializers


def initialised(run: Run, initializers: list[Initializer | ItemVectors]) -> list[TrainState]:
    """Each seed's state before the first step, after what was read is put in place.

    Raises:
      UserError: what was read does not fit the model.
    """
    if not initializers:
        return run.states()

    def begun(state: TrainState) -> TrainState:
        params = run.placement.to_host(state.params)
        for initializer in initializers:
            params = initializer(params)
        return dataclasses.replace(state, params=run.placement.to_devices(params))

    return [begun(state) for state in run.states()]


def _print_names(what: str, names: tuple[str, ...]) -> None:
    if names:
        print(f"  {len(names)} {what}: {', '.join(names)}", flush=True)


def check_vocabulary(
    folder: pathlib.Path, pretrained: huggingface.Pretrained, schema: Schema
) -> None:
    """Refuses data of another vocabulary or normaliser, where the folder has its own."""
    _check_normaliser(folder, schema)
    for path in pretrained.vocabularies:
        items, _ = vocabulary.read(path)
        if items != schema.items:
            raise UserError(
                f"the data have another vocabulary than {path}; prepare them with "
                f"vocabulary={path}"
            )
        return
    if pretrained.sizes[0] != len(schema.items):
        raise UserError(
            f"the data have a vocabulary of {len(schema.items)} tokens, and {folder} one of "
            f"{pretrained.sizes[0]}; prepare them with its vocabulary"
        )


def _check_normaliser(folder: pathlib.Path, schema: Schema) -> None:
    """Refuses data of another normaliser than the folder's, if its files say which that is."""
    path, options = _normaliser(folder)
    if options not in (None, schema.tokenizer):
        raise UserError(
            f"{folder} treats capital letters, accents or Chinese characters otherwise than "
            f"the data; prepare them with vocabulary={path}"
        )


def _normaliser(folder: pathlib.Path) -> tuple[pathlib.Path, TokenizerOptions | None]:
    """The file of a folder that has or stands beside its normaliser, and the normaliser."""
    path = folder / huggingface.TOKENIZER
    try:
        return path, vocabulary.read(path)[1]
    except UserError:
        path = folder / huggingface.VOCABULARY
        return path, vocabulary.options_beside(path)


def _with_labels_of(
    schema: Schema, pretrained: huggingface.Pretrained
) -> huggingface.Pretrained:
    """The pretrained model, its classifier's labels those of the schema, else without it."""
    labels = schema.target.values if schema.target else ()
    parameters, unused = dict(pretrained.parameters), pretrained.unused
    for path in [path for path in parameters if path[0] == CLASSIFIER]:
        values = parameters.pop(path)
        if labels and set(labels) <= set(pretrained.labels):
            order = [pretrained.labels.index(label) for label in labels]
            parameters[path] = values[..., order]
        else:
            unused = (*unused, "/".join(path))
    return dataclasses.replace(pretrained, parameters=parameters, unused=unused)


def _read_schema(
    workdir: pathlib.Path, schema: Schema
) -> tuple[ml_collections.ConfigDict, Schema]:
    """The config and the schema of a run; refuses another vocabulary or normaliser of texts."""
    config, theirs = workdir_lib.read(workdir)
    other = "vocabulary" if theirs.items != schema.items else "normaliser"
    differ = (theirs.items, theirs.tokenizer) != (schema.items, schema.tokenizer)
    if differ and TEXT in (theirs.kind, schema.kind):
        raise UserError(
            f"the data have another {other} than {workdir}; prepare them with "
            f"vocabulary={workdir / workdir_lib.SCHEMA}"
        )
    return config, theirs


def _read_params(workdir: pathlib.Path, model: parameter_tree.Model) -> dict[Path, np.ndarray]:
    """The best parameters of a run."""
    shapes = parameter_tree.shapes(model)
    with checkpoint.Checkpoints(workdir, read_only=True) as checkpoints:
        on_host = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), shapes)
        _, params = checkpoints.restore_params(checkpoint.BEST, on_host)
    return traverse_util.flatten_dict(params)


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


def _is_same(own: Feature | None, theirs: Feature) -> bool:
    """Returns whether two features are equal, however long their lists are."""
    return own is not None and own.with_entries(1) == theirs.with_entries(1)


def _join(
    params: Params,
    known: dict[Path, np.ndarray],
    changed: set[str],
    tables: Mapping[Path, tuple[NamedRows, int]],
) -> tuple[Params, tuple[str, ...], tuple[str, ...]]:
    """The parameters with the known ones; the names of fresh ones and of those not used."""
    flat = traverse_util.flatten_dict(params)
    used = set()
    for path in flat.keys() & known.keys():
        values = known[path]
        if path == POSITIONS:  # Shorter texts take the first positions.
            values = values[: len(flat[path])]
        if path in tables and values.shape[1:] == flat[path].shape[1:]:
            rows, special = tables[path]
            flat[path] = rows.fill(flat[path], values, special)
            used.add(path)
        elif values.shape == flat[path].shape and not changed & set(path):
            flat[path] = values
            used.add(path)
    not_found = tuple(sorted("/".join(path) for path in flat.keys() - used))
    unused = tuple(sorted("/".join(path) for path in known.keys() - used))
    return traverse_util.unflatten_dict(flat), not_found, unused
