"""Reading a folder of Hugging Face's `transformers`.

Legend: V entries of the vocabulary.
"""

import dataclasses
import pathlib
from typing import Any

import numpy as np
from flax import traverse_util

from cbert.config import section_fields
from cbert.errors import UserError, shown
from cbert.model import presets
from cbert.model.config import ModelConfig, check_same
from cbert.model.huggingface import folder_files
from cbert.model.huggingface.names import HEAD_ENTRIES, TIED, canonical, encoder_entries
from cbert.model.parameter_tree import BLOCK, Params, Path
from cbert.model.text_bert import TextBert

# Their name of each field of a model, and their default where it is not written.
FIELDS = {
    "hidden_size": ("dimension", 768),
    "num_attention_heads": ("heads", 12),
    "num_hidden_layers": ("layers", 12),
    "intermediate_size": ("feed_forward", 3072),
    "hidden_act": ("activation", "gelu"),
    "hidden_dropout_prob": ("dropout", 0.1),
    "attention_probs_dropout_prob": ("attention_dropout", 0.1),
    "layer_norm_eps": ("norm_epsilon", 1e-12),
}
SIZES = {
    "vocab_size": presets.VOCABULARY,
    "max_position_embeddings": presets.MAX_LENGTH,
    "type_vocab_size": 2,
}
# Fields that may have no other value, because BERT is then another model.
FIXED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
# Other names of an activation.
ACTIVATIONS = {"gelu_python": "gelu"}
# Ours may have fewer rows than theirs: their positions are more, or their vocabulary is padded.
POSITIONS = ("embedding", "positions")
FIRST_ROWS = (POSITIONS, ("embedding", "tokens"), ("output_bias",))
SEGMENTS = ("embedding", "segments")
ENCODER_ALONE = "save the encoder alone, as BertModel, for a task with a head of its own"
MOST_LABELS = 1_000_000  # A damaged file may claim any number.


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A folder's content.

    Attributes:
      config: BERT's sizes and choices.
      sizes: V, the most tokens of a text, and the number of segments.
      parameters: Our parameters by path, float32.
      labels: The names of a classifier's labels; empty where there is no classifier.
      unused: Tensors of the file that no parameter of ours is made of.
      vocabularies: Those of `folder_files.VOCABULARIES` that the folder has.
    """

    config: ModelConfig
    sizes: tuple[int, int, int]
    parameters: dict[Path, np.ndarray]
    labels: tuple[str, ...]
    unused: tuple[str, ...]
    vocabularies: tuple[pathlib.Path, ...]


def read(folder: str | pathlib.Path) -> Pretrained:
    """Reads a folder of a BERT model.

    Raises:
      UserError: a file is missing or damaged, or the model is another than BERT; the message
        names the file and what is wrong with it.
    """
    folder = pathlib.Path(folder).expanduser()
    path = folder / folder_files.CONFIG
    raw = folder_files.read_config(path)
    config, sizes = _model_config(raw, path)
    weights, tensors = folder_files.read_tensors(folder)
    tensors = _by_canonical_name(tensors, weights)
    labels = _labels(raw, path) if "classifier.weight" in tensors else ()
    parameters, unused = _join(tensors, config, sizes, len(labels), weights)
    paths = (folder / name for name in folder_files.VOCABULARIES)
    vocabularies = tuple(path for path in paths if path.is_file())
    return Pretrained(config, sizes, parameters, labels, unused, vocabularies)


def _model_config(
    raw: dict[str, Any], path: pathlib.Path
) -> tuple[ModelConfig, tuple[int, int, int]]:
    if raw.get("model_type", "bert") != "bert":  # Old files have none.
        raise UserError(
            f"{path}: model_type is {shown(raw['model_type'])}; it must be bert, the only "
            "architecture that is read; give another folder"
        )
    for name, value in FIXED.items():
        if raw.get(name) not in (None, value):
            raise UserError(
                f"{path}: {name} is {shown(raw[name])}; it must be {value}; give another folder"
            )
    declared, chosen = section_fields(ModelConfig), {}
    for name, (field, default) in FIELDS.items():
        chosen[field] = raw.get(name, default)
        if field == "activation" and isinstance(chosen[field], str):
            chosen[field] = ACTIVATIONS.get(chosen[field], chosen[field])
        if complaint := declared[field].complaint(chosen[field]):
            raise UserError(
                f"{path}: {name} is {shown(chosen[field])}; it must be {complaint}; give "
                "another folder"
            )
    sizes = tuple(raw.get(name, default) for name, default in SIZES.items())
    for name, size in zip(SIZES, sizes, strict=True):
        if type(size) is not int or size < 1:
            raise UserError(f"{path}: {name} is {shown(size)}; it must be a number from 1")
    if chosen["dimension"] % chosen["heads"]:
        raise UserError(
            f"{path}: hidden_size is {chosen['dimension']}, not a multiple of "
            f"num_attention_heads, {chosen['heads']}; give another folder"
        )
    chosen["transform_activation"] = chosen["activation"]
    return dataclasses.replace(presets.bert("base"), **chosen), sizes


def _by_canonical_name(
    tensors: dict[str, np.ndarray], path: pathlib.Path
) -> dict[str, np.ndarray]:
    named: dict[str, np.ndarray] = {}
    for name, values in tensors.items():
        if canonical(name) in named:
            raise UserError(
                f"{path}: it has two tensors for {shown(canonical(name))}; leave one"
            )
        named[canonical(name)] = values
    return named


def _join(
    tensors: dict[str, np.ndarray],
    config: ModelConfig,
    sizes: tuple[int, int, int],
    labels: int,
    path: pathlib.Path,
) -> tuple[dict[Path, np.ndarray], tuple[str, ...]]:
    """Our parameters by path, and the names of the tensors that are not used."""
    for copy, original in TIED.items():
        if copy in tensors:
            values = tensors.pop(copy)
            if not np.array_equal(values, tensors.setdefault(original, values)):
                raise UserError(
                    f"{path}: {copy} differs from {original}; they must be tied; "
                    f"{ENCODER_ALONE}"
                )
    size_names = dict(zip("VLS", sizes, strict=True))
    size_names |= {"D": config.dimension, "F": config.feed_forward, "2": 2, "N": labels}
    # A config may claim more layers than any file holds.
    layers = min(config.layers, len(tensors))
    parameters: dict[Path, np.ndarray] = {}
    used: set[str] = set()
    for entry in encoder_entries(layers) + HEAD_ENTRIES:
        absent = [name for name in entry.tensors if name not in tensors]
        if absent and entry.path[0].startswith(("embedding", BLOCK)):
            raise UserError(
                f"{path}: there is no tensor {absent[0]}; {folder_files.CONFIG} needs it"
            )
        if absent:
            continue
        expected = [size_names[letter] for letter in entry.shape]
        advice = ENCODER_ALONE if entry in HEAD_ENTRIES else "give another folder"
        for name in entry.tensors:
            _check_tensor(path, name, tensors[name], expected, advice)
        parameters[entry.path] = entry.join(tensors)
        used.update(entry.tensors)
    return parameters, tuple(sorted(tensors.keys() - used))


def _check_tensor(
    path: pathlib.Path, name: str, values: np.ndarray, expected: list[int], advice: str
) -> None:
    """Refuses a tensor of another shape, or with values that are not finite."""
    shape = list(values.shape)
    if shape != expected:
        raise UserError(
            f"{path}: {name} has the shape {shape}, and by {folder_files.CONFIG} it must have "
            f"{expected}; {advice}"
        )
    if not np.isfinite(values).all():
        raise UserError(
            f"{path}: the tensor {shown(name)} has values that are not finite; "
            "download it again"
        )


def _labels(raw: dict[str, Any], path: pathlib.Path) -> tuple[str, ...]:
    """The names of a classifier's labels; without names and number there are two, as theirs."""
    names = raw.get("id2label")
    if names is None:
        count = raw.get("num_labels", 2)
        if type(count) is not int or not 0 < count < MOST_LABELS:
            raise UserError(f"{path}: num_labels is {shown(count)}; it must be a number from 1")
        return tuple(f"LABEL_{index}" for index in range(count))
    if not isinstance(names, dict) or sorted(names) != sorted(map(str, range(len(names)))):
        raise UserError(f"{path}: id2label is {shown(names)}; it must name labels from 0")
    ordered = tuple(names[str(index)] for index in range(len(names)))
    if not all(isinstance(name, str) for name in ordered):
        raise UserError(f"{path}: id2label is {shown(names)}; the names must be strings")
    return ordered


@dataclasses.dataclass(frozen=True)
class Unmatched:
    """What a pretrained model and a model do not have in common.

    Attributes:
      not_found: Parameters of the model that stay as they were initialised.
      unused: Tensors of the file and parameters that the model does not have.
    """

    not_found: tuple[str, ...]
    unused: tuple[str, ...]


def initialize_from(
    model: TextBert, params: Params, pretrained: Pretrained
) -> tuple[Params, Unmatched]:
    """A model's parameters with the pretrained ones in place of those that have their path.

    A model of shorter texts takes the first positions, one of a smaller vocabulary the first
    tokens, and a segment that the pretrained model lacks begins anew.

    Raises:
      UserError: a choice or a size of the two differs.
    """
    ours, theirs = model.encoder.config, pretrained.config
    flat = traverse_util.flatten_dict(params)
    common = flat.keys() & pretrained.parameters.keys()
    fields = [*(field for field, _ in FIELDS.values()), "positions", "embedding_norm"]
    if any(path[0] == "transform" for path in common):
        fields += ["transform_activation", "transform_norm"]
    compared = [field for field in fields if not field.endswith("dropout")]
    check_same(compared, ours, theirs, "the pretrained model's")
    for path in common:
        values, shape = pretrained.parameters[path], flat[path].shape
        if path in FIRST_ROWS:
            values = values[: shape[0]]
        if path == SEGMENTS and values.shape[1:] == shape[1:]:
            values = np.concatenate([values, flat[path][len(values) :]])[: shape[0]]
        if path == POSITIONS and len(values) < shape[0]:
            raise UserError(
                f"the data have texts of up to {shape[0]} tokens, and the pretrained model "
                f"reads {len(values)}; prepare them with max_length={len(values)}"
            )
        if values.shape != shape:
            raise UserError(
                f"the parameter {'/'.join(path)} has the shape {list(shape)}, and the "
                f"pretrained one {list(values.shape)}"
            )
        flat[path] = values
    not_found = sorted("/".join(path) for path in flat.keys() - pretrained.parameters.keys())
    unused = sorted("/".join(path) for path in pretrained.parameters.keys() - flat.keys())
    unmatched = Unmatched(tuple(not_found), tuple(unused) + pretrained.unused)
    return traverse_util.unflatten_dict(flat), unmatched
