"""Writes bert_token_ids.json: what BertTokenizer of transformers makes of texts.

python tests/data/bert_token_ids.py ../shared/data     (needs transformers)
"""

import gzip
import hashlib
import itertools
import json
import pathlib
import sys
import tempfile

LINES = 10_000
NASTY = [
    "Crème brûlée, ŁÓDŹ; naïve café Ångström İstanbul ß ǅ ﬁ",
    "e\u0301e\u0301 a\u0308\u0304 \u1100\u1161\u11a8 한국어 조합",
    "中文字符 日本語テキスト 𠀀𠀁 mixed中and文latin",
    "a\x00b\x01c\x7fd\x85e\x9ff\ufffdg\tnew\nline\r\nend",
    "x" * 100,
    "x" * 101,
    "y" * 100_000,
    "😀😃 👩‍👩‍👧‍👦 🇩🇪 ❤️ e😀f",
    "zero\u200bwidth\u200cjoin\u200der \ufeffbom soft\u00adhyphen",
    "\u202eright to left\u202c عربى עברית ไทย हिन्दी",
    "no\u00a0break\u2003em\u3000ideographic\u2028line\u2029paragraph",
    "!!!???...,,,;;; -- —– «» “” ‘’ ¿¡ $€£¥ ^`|~ @#%&*",
    "don't can't it's U.S.A. 3.14 1,000,000 half-past e-mail@example.com http://a.b/c?d=e",
    "UNAFFABLE unaffable Pneumonoultramicroscopicsilicovolcanoconiosis",
    "\u0000", "\u200b", "   ", "́", "##ing ## [unused5]",
    "A" + "\u0300" * 500 + "B",
    "½ ² Ⅷ ① ㈱ ㎏ ™ ﷽",
    "\U000e0001\U000e0020tag \uf8ff private \U0010fffd",
]  # fmt: skip


def speeches(folder: pathlib.Path) -> list[str]:
    """The first lines of the speeches."""
    with gzip.open(folder / "speeches.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in itertools.islice(file, LINES)]


def digest(ids: list[list[int]]) -> str:
    """A hash of the token ids of texts."""
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()


def main() -> None:
    """Asks transformers for the token ids."""
    import transformers

    folder = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as model:
        vocabulary = (folder / "bert-base-uncased-vocab.txt").read_text(encoding="utf-8")
        (pathlib.Path(model) / "vocab.txt").write_text(vocabulary, encoding="utf-8")
        tokenizer = transformers.BertTokenizer.from_pretrained(model)
        lines = [tokenizer(text)["input_ids"] for text in speeches(folder)]
        nasty = [tokenizer(text)["input_ids"] for text in NASTY]
        pair = tokenizer(NASTY[12], NASTY[0], truncation="longest_first", max_length=32)
    written = {
        "transformers": transformers.__version__,
        "speeches": digest(lines),
        "tokens": sum(map(len, lines)),
        "nasty": nasty,
        "pair": [pair["input_ids"], pair["token_type_ids"]],
    }
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(written) + "\n")


if __name__ == "__main__":
    main()
