"""BERT's forward pass, written from its equations, with the tensor names of `transformers`.

It knows nothing of the model under test. `xp` is NumPy or `jax.numpy`; both compute in float64
when the tensors are.
"""

import pathlib

import numpy as np
import safetensors.numpy
import scipy.special

RANDOM_BERT = pathlib.Path(__file__).parent / "random_bert"


def load(folder, prefix="bert."):
    """Reads the tensors of a folder as float64; the encoder's lose their prefix."""
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    return {name.removeprefix(prefix): x.astype(np.float64) for name, x in tensors.items()}


def inputs(rows=3, length=10, vocabulary=50, seed=0):
    """Tokens, segments and mask; all but the first row are padded.

    Token 0 does not occur: it is the padding of `transformers`, whose row has no gradient.
    """
    random = np.random.default_rng(seed)
    tokens = random.integers(1, vocabulary, (rows, length)).astype(np.int32)
    lengths = np.array([length - row for row in range(rows)])
    return {
        "tokens": tokens,
        "segments": np.tile((np.arange(length) >= length // 2).astype(np.int32), (rows, 1)),
        "mask": np.arange(length) < lengths[:, None],
    }


def dense(p, name, x):
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def norm(p, name, x):
    x = x - x.mean(-1, keepdims=True)
    x = x / ((x**2).mean(-1, keepdims=True) + 1e-12) ** 0.5
    return x * p[f"{name}.weight"] + p[f"{name}.bias"]


def gelu(x, erf):
    return x * (1 + erf(x / 2**0.5)) / 2


def forward(p, tokens, segments, mask, layers, heads, xp=np, erf=scipy.special.erf):
    """The last hidden states `[B, L, D]`."""
    e = "embeddings."
    x = p[e + "word_embeddings.weight"][tokens]
    x = x + p[e + "position_embeddings.weight"][: tokens.shape[1]]
    x = norm(p, e + "LayerNorm", x + p[e + "token_type_embeddings.weight"][segments])
    width = x.shape[-1] // heads
    for layer in range(layers):
        name = f"encoder.layer.{layer}."
        query, key, value = (
            dense(p, f"{name}attention.self.{part}", x) for part in ("query", "key", "value")
        )
        read = []
        for head in range(heads):
            own = slice(head * width, (head + 1) * width)
            logits = query[..., own] @ key[..., own].swapaxes(1, 2) / width**0.5
            weights = xp.exp(logits - logits.max(-1, keepdims=True)) * mask[:, None]
            read.append(weights / weights.sum(-1, keepdims=True) @ value[..., own])
        y = dense(p, f"{name}attention.output.dense", xp.concatenate(read, -1))
        x = norm(p, f"{name}attention.output.LayerNorm", x + y)
        y = dense(p, f"{name}output.dense", gelu(dense(p, f"{name}intermediate.dense", x), erf))
        x = norm(p, f"{name}output.LayerNorm", x + y)
    return x


def pretraining(p, tokens, segments, mask, layers, heads, xp=np, erf=scipy.special.erf):
    """Pooled output, logits of the tokens, logits of the next sentence."""
    x = forward(p, tokens, segments, mask, layers, heads, xp, erf)
    pooled = xp.tanh(dense(p, "pooler.dense", x[:, 0]))
    y = gelu(dense(p, "cls.predictions.transform.dense", x), erf)
    y = norm(p, "cls.predictions.transform.LayerNorm", y)
    logits = y @ p["embeddings.word_embeddings.weight"].T + p["cls.predictions.bias"]
    return {
        "hidden": x,
        "pooled": pooled,
        "tokens": logits,
        "next_sentence": dense(p, "cls.seq_relationship", pooled),
    }
