"""The names and shapes of BERT's parameters, here and in Hugging Face's `transformers`.

Legend: D model dimension, F width of a block's FNN, V entries of the vocabulary, L positions, S
segments, N labels.
"""

import dataclasses

import numpy as np

from cbert.model.parameter_tree import BLOCK, Path


@dataclasses.dataclass(frozen=True)
class Entry:
    """One of our parameters, and the tensors that it is made of.

    Attributes:
      path: Its path in our tree.
      tensors: The tensors' names, without the prefix `bert.`; several stand side by side along
        the last axis, as keys and values do.
      shape: The shape of each tensor, by the letters of the legend or as digits.
    """

    path: Path
    tensors: tuple[str, ...]
    shape: str

    @property
    def transposed(self) -> bool:
        """Whether a tensor is stored as outputs by inputs."""
        return self.path[-1] == "kernel"

    def join(self, tensors: dict[str, np.ndarray]) -> np.ndarray:
        """Our parameter from tensors by name."""
        parts = [tensors[name] for name in self.tensors]
        return np.concatenate([part.T if self.transposed else part for part in parts], axis=-1)

    def split(self, parameter: np.ndarray) -> dict[str, np.ndarray]:
        """The tensors of our parameter by name."""
        parts = np.split(np.asarray(parameter, np.float32), len(self.tensors), axis=-1)
        return {
            name: np.ascontiguousarray(part.T if self.transposed else part)
            for name, part in zip(self.tensors, parts, strict=True)
        }


def _dense(path: Path, inputs: str, outputs: str, *layers: str) -> list[Entry]:
    kernels, biases = (
        tuple(f"{layer}.{kind}" for layer in layers) for kind in ("weight", "bias")
    )
    return [
        Entry((*path, "kernel"), kernels, outputs + inputs),
        Entry((*path, "bias"), biases, outputs),
    ]


def _norm(path: Path, norm: str) -> list[Entry]:
    scale = Entry((*path, "scale"), (f"{norm}.weight",), "D")
    return [scale, Entry((*path, "bias"), (f"{norm}.bias",), "D")]


def _block(layer: int) -> list[Entry]:
    ours, theirs = f"{BLOCK}{layer}", f"encoder.layer.{layer}."
    attention = theirs + "attention."
    key_value = f"{attention}self.key", f"{attention}self.value"
    return [
        *_dense((ours, "attention", "query"), "D", "D", f"{attention}self.query"),
        *_dense((ours, "attention", "key_value"), "D", "D", *key_value),
        *_dense((ours, "attention", "out"), "D", "D", f"{attention}output.dense"),
        *_norm((ours, "attention_norm", "LayerNorm_0"), f"{attention}output.LayerNorm"),
        *_dense((ours, "fnn", "hidden"), "D", "F", theirs + "intermediate.dense"),
        *_dense((ours, "fnn", "out"), "F", "D", theirs + "output.dense"),
        *_norm((ours, "fnn_norm", "LayerNorm_0"), theirs + "output.LayerNorm"),
    ]


def encoder_entries(layers: int) -> list[Entry]:
    """The parameters of the embeddings and of every block."""
    tables = {"tokens": "word", "segments": "token_type", "positions": "position"}
    embeddings = [
        Entry(("embedding", ours), (f"embeddings.{theirs}_embeddings.weight",), shape)
        for (ours, theirs), shape in zip(tables.items(), ("VD", "SD", "LD"), strict=True)
    ]
    blocks = [entry for layer in range(layers) for entry in _block(layer)]
    return embeddings + _norm(("embedding", "norm"), "embeddings.LayerNorm") + blocks


HEAD_ENTRIES = [
    *_dense(("pooler", "dense"), "D", "D", "pooler.dense"),
    *_dense(("transform",), "D", "D", "cls.predictions.transform.dense"),
    *_norm(("transform_norm",), "cls.predictions.transform.LayerNorm"),
    Entry(("output_bias",), ("cls.predictions.bias",), "V"),
    *_dense(("next_sentence_classifier",), "D", "2", "cls.seq_relationship"),
    *_dense(("classifier",), "D", "N", "classifier"),
    *_dense(("span",), "D", "2", "qa_outputs"),
]

# A second copy of a tensor under another name, which some files have.
TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def canonical(name: str) -> str:
    """A tensor's name as above: no prefix, and today's names of a norm's parameters."""
    for old, new in (
        ("LayerNorm.gamma", "LayerNorm.weight"),
        ("LayerNorm.beta", "LayerNorm.bias"),
    ):
        if name.endswith(old):
            name = name.removesuffix(old) + new
    return name.removeprefix("bert.")


def stored(name: str, architecture: str) -> str:
    """The name under which a model of that class stores a tensor."""
    own = name.startswith(("embeddings.", "encoder.", "pooler."))
    return f"bert.{name}" if own and architecture != "BertModel" else name
