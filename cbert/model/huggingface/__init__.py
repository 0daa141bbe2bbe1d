"""BERT's weights from and to folders of Hugging Face's `transformers`, without that library."""

from cbert.model.huggingface.folder_files import TOKENIZER, VOCABULARY, is_folder
from cbert.model.huggingface.reader import Pretrained, Unmatched, initialize_from, read
from cbert.model.huggingface.writer import write

__all__ = [
    "TOKENIZER",
    "VOCABULARY",
    "Pretrained",
    "Unmatched",
    "initialize_from",
    "is_folder",
    "read",
    "write",
]
