"""BERT of `transformers` on a folder, in a process of its own: it needs torch, not JAX.

    python tests/transformers_peer.py BertModel FOLDER INPUTS.npz OUTPUTS.npz

A folder that is not there is made, with random weights. The inputs are tokens, or texts for the
folder's own tokenizer. The outputs hold each output by name, the tokens as `input_ids`, the
gradient of the outputs' weighted sum by each parameter as `gradient:NAME`, and the names of
parameters that the folder lacks or has too many of.
"""

import pathlib
import sys

import numpy as np
import torch
import transformers

OUTPUTS = {
    "last_hidden_state": "hidden",
    "pooler_output": "pooled",
    "prediction_logits": "tokens",
    "seq_relationship_logits": "next_sentence",
    "logits": "logits",
    "start_logits": "start",
    "end_logits": "end",
}
CONFIG = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
}
LABELS = {"BertForSequenceClassification": 3, "BertForTokenClassification": 3}


def make(architecture: str, folder: pathlib.Path) -> None:
    """Saves a model none of whose parameters is 0 or 1."""
    torch.manual_seed(0)
    config = transformers.BertConfig(**CONFIG, num_labels=LABELS.get(architecture, 2))
    model = getattr(transformers, architecture)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)


def tokenized(folder: pathlib.Path, texts: dict) -> dict:
    """The inputs that the folder's tokenizer makes of texts or of pairs."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    segments = (texts[name].tolist() for name in ("text", "text_b") if name in texts)
    made = tokenizer(*segments, padding=True, return_tensors="np")
    names = {"tokens": "input_ids", "segments": "token_type_ids", "mask": "attention_mask"}
    return {ours: made[theirs] for ours, theirs in names.items()}


def run(architecture: str, folder: pathlib.Path, inputs: dict, double: bool) -> dict:
    """Outputs and gradients of the model in a folder."""
    model, info = getattr(transformers, architecture).from_pretrained(
        folder, output_loading_info=True
    )
    model = model.double().eval() if double else model.eval()
    if "text" in inputs:
        inputs = tokenized(folder, inputs)
    done = model(
        input_ids=torch.tensor(inputs["tokens"]).long(),
        token_type_ids=torch.tensor(inputs["segments"]).long(),
        attention_mask=torch.tensor(inputs["mask"]).long(),
    )
    outputs = {ours: done[theirs] for theirs, ours in OUTPUTS.items() if theirs in done}
    loss = sum(
        (output * torch.cos(torch.arange(output.numel()).reshape(output.shape))).sum()
        for output in outputs.values()
    )
    loss.backward()
    results = {name: output.detach().numpy() for name, output in outputs.items()}
    results["input_ids"] = inputs["tokens"]
    for name, parameter in model.named_parameters():
        results[f"gradient:{name}"] = parameter.grad.numpy()
    names = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
    return results | dict(zip(("missing", "unexpected"), map(np.array, names), strict=True))


if __name__ == "__main__":
    chosen, model_folder = sys.argv[1], pathlib.Path(sys.argv[2])
    if not model_folder.exists():
        make(chosen, model_folder)
    results = run(chosen, model_folder, dict(np.load(sys.argv[3])), "--double" in sys.argv)
    np.savez(sys.argv[4], **results)
