"""A WordPiece vocabulary, read from BERT's own files or trained on texts."""

import collections
import json
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import tokenizers
from tokenizers import trainers

from cbert import files
from cbert.data import text
from cbert.errors import UserError, shown
from cbert.schema import SEQUENCE, SET, SPECIAL_TOKENS, TEXT, TokenizerOptions, schema_file
from cbert.schema.tokenizer import PREFIX, UNKNOWN, check_vocabulary
from cbert.schema.values import check_names

TOKENIZER_CONFIG = "tokenizer_config.json"
_OF_FOLDERS = ("vocab.txt", "tokenizer.json")
# Tokenisers that cut as BERT's; BertJapaneseTokenizer and others have a vocab.txt, too.
_AS_BERT = (
    *("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"),
    *("PreTrainedTokenizer", "TokenizersBackend"),  # These say it in a tokenizer.json alone.
)
LEAST_SIZE, MOST_SIZE = 100, 1_000_000  # Of a vocabulary that is trained.
_MOST_LETTERS = 1000  # Rarer letters than that many are unknown.


def read(
    path: str | pathlib.Path, lowercase: bool | None = None
) -> tuple[tuple[str, ...], TokenizerOptions]:
    """The vocabulary of a `vocab.txt` or a `tokenizer.json`, and how its texts are normalised.

    The `schema.json` of prepared texts or of a run has both, too.

    Args:
      path: The file; the suffix `.json` and its fields decide how it is read. Or a folder of a
        pretrained model, which has one.
      lowercase: Whether a `vocab.txt` is one of small letters without accents. The file itself
        does not say it; by default `options_beside` does, and without them it is.

    Raises:
      UserError: the file is no WordPiece vocabulary of BERT, or says otherwise of letters.
    """
    path = _file_of(path)
    try:
        content = files.read_text(path)
        if path.suffix == ".json":
            items, options = _from_json(json.loads(content))
            if lowercase not in (None, options.lowercase):
                kept = "loses" if options.lowercase else "keeps"
                raise UserError(f"the file {kept} capital letters; leave lowercase out")
        else:
            lines = content.removeprefix("\ufeff").removesuffix("\n")
            items, options = tuple(lines.split("\n")), None
        check_vocabulary(items)  # First, because a file of something else has no such tokens.
        check_names(items, "tokens")
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except FileNotFoundError:
        raise UserError(f"{path}: no such vocabulary; give a vocab.txt or 'train'") from None
    except (ValueError, RecursionError, OSError) as error:
        raise UserError(f"{path}: not a readable vocabulary ({str(error)[:80]})") from None
    return items, options or _options_of_text_file(path, lowercase)


def options_beside(path: pathlib.Path) -> TokenizerOptions | None:
    """What the `tokenizer_config.json` in the folder of a `vocab.txt` says, if there is one.

    Raises:
      UserError: it cannot be read, or one of its options is neither true nor false.
    """
    config = path.parent / TOKENIZER_CONFIG
    if not config.is_file():
        return None
    raw = _object_in(config)
    lowercase, chinese = raw.get("do_lower_case", True), raw.get("tokenize_chinese_chars", True)
    accents = raw.get("strip_accents")
    accents = lowercase if accents is None else accents
    options = {
        "do_lower_case": lowercase,
        "strip_accents": accents,
        "tokenize_chinese_chars": chinese,
    }
    for name, value in options.items():
        if not isinstance(value, bool):
            raise UserError(f"{config}: {name} is {shown(value)}; it must be true or false")
    return TokenizerOptions(lowercase, accents, chinese)


def added_tokens(path: str | pathlib.Path) -> tuple[str, ...]:
    """Tokens that `transformers` finds in a text before it cuts it, and `read` does not know.

    Args:
      path: What `read` has read.
    """
    path = _file_of(path)
    raw: Any = None
    if path.suffix == ".json":
        raw = _object_in(path).get("added_tokens")
    elif (config := path.parent / TOKENIZER_CONFIG).is_file():
        raw = _object_in(config).get("added_tokens_decoder")
    listed = raw.values() if isinstance(raw, dict) else raw if isinstance(raw, list) else ()
    contents = (token.get("content") for token in listed if isinstance(token, dict))
    return tuple(one for one in contents if isinstance(one, str) and one not in SPECIAL_TOKENS)


def _file_of(path: str | pathlib.Path) -> pathlib.Path:
    """The file of a vocabulary, where a folder was given the one that it has."""
    path = pathlib.Path(path).expanduser()
    if path.is_dir():
        path = path / next((n for n in _OF_FOLDERS if (path / n).exists()), _OF_FOLDERS[0])
    return path


def _object_in(path: pathlib.Path) -> dict[str, Any]:
    """The object in a file of JSON; raises `UserError` for a damaged one."""
    try:
        raw = json.loads(files.read_text(path))
    except (ValueError, RecursionError, OSError) as error:
        raise UserError(f"{path}: not readable JSON ({str(error)[:80]})") from None
    return raw if isinstance(raw, dict) else {}


def _check_class_beside(path: pathlib.Path) -> None:
    """Refuses a `vocab.txt` whose folder names a tokeniser that is not BERT's."""
    for config in (path.parent / TOKENIZER_CONFIG, path.parent / "config.json"):
        name = _object_in(config).get("tokenizer_class") if config.is_file() else None
        if isinstance(name, str):
            if name.removesuffix("Fast") not in _AS_BERT:
                raise UserError(
                    f"{config}: tokenizer_class is {shown(name)}, which may cut texts "
                    "otherwise than BertTokenizer; in a copy of the folder write BertTokenizer "
                    "there, and where words differ give those that it cuts, as 'words'"
                )
            return


def _options_of_text_file(path: pathlib.Path, lowercase: bool | None) -> TokenizerOptions:
    _check_class_beside(path)
    if lowercase is not None:
        return TokenizerOptions(lowercase, strip_accents=lowercase)
    return options_beside(path) or TokenizerOptions()


def _from_json(raw: Any) -> tuple[tuple[str, ...], TokenizerOptions]:
    """The parts of a parsed `tokenizer.json`; raises `UserError` for another tokeniser."""
    if not isinstance(raw, dict):
        raise UserError("not a tokenizer.json; it must hold an object")
    if raw.get("kind") == TEXT:
        schema = schema_file.from_dict(raw)
        assert schema.tokenizer is not None
        return schema.items, schema.tokenizer
    if raw.get("kind") in (SET, SEQUENCE):
        raise UserError(f"a schema of {raw['kind']}s has no tokens; give that of texts")
    model = _part(raw, "model", "WordPiece")
    normalizer = _part(raw, "normalizer", "BertNormalizer")
    _part(raw, "pre_tokenizer", "BertPreTokenizer")
    for name, expected in {
        "unk_token": UNKNOWN,
        "continuing_subword_prefix": PREFIX,
        "max_input_chars_per_word": text.LONGEST_WORD,
    }.items():
        if model.get(name) != expected:
            raise UserError(
                f"model.{name} is {shown(model.get(name))}; it must be {expected!r}"
            )
    if normalizer.get("clean_text") is not True:
        raise UserError("normalizer.clean_text must be true")
    vocabulary = model.get("vocab")
    vocabulary = vocabulary if isinstance(vocabulary, dict) else {}
    codes = list(vocabulary.values())
    if (
        not codes
        or not all(type(code) is int for code in codes)
        or sorted(codes) != list(range(len(codes)))
    ):
        raise UserError("model.vocab must give each token a number, from 0 without gaps")
    lowercase = normalizer.get("lowercase")
    strip_accents = normalizer.get("strip_accents")
    options = TokenizerOptions(
        lowercase is True,
        lowercase is True if strip_accents is None else strip_accents is True,
        normalizer.get("handle_chinese_chars") is True,
    )
    return tuple(sorted(vocabulary, key=lambda token: vocabulary[token])), options


def _part(raw: dict[str, Any], name: str, kind: str) -> dict[str, Any]:
    part = raw.get(name)
    if isinstance(part, dict) and "continuing_subword_prefix" in part:
        part = {"type": "WordPiece", **part}  # Older files do not say it.
    if not isinstance(part, dict) or part.get("type") != kind:
        own = part.get("type") if isinstance(part, dict) else part
        raise UserError(f"{name} is {shown(own)}; a tokeniser of BERT has {kind}")
    return part


def train(
    texts: Callable[[], Iterable[str]], size: int, options: TokenizerOptions
) -> tuple[str, ...]:
    """A vocabulary of at most `size` pieces, of which words are made with the fewest.

    Equal texts give an equal vocabulary: the library numbers letters in the order of a hash
    table, and ties are decided by these numbers, so it is given the letters in order.

    Args:
      texts: Gives the texts each time that it is called.
      size: The most pieces; the special tokens come first, [PAD] in row 0.
      options: How texts are normalised.
    """
    splitter = text.build(SPECIAL_TOKENS, options)
    letters, continuing = _letters(texts(), splitter, min(_MOST_LETTERS, size // 4))
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=[*SPECIAL_TOKENS, *(PREFIX + letter for letter in continuing)],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        continuing_subword_prefix=PREFIX,
        show_progress=False,
    )
    inner = text.build(SPECIAL_TOKENS, options)
    inner.train_from_iterator((" ".join(_words(one, splitter)) for one in texts()), trainer)
    codes: dict[str, int] = inner.get_vocab()
    return tuple(sorted(codes, key=lambda piece: codes[piece]))


def _letters(
    texts: Iterable[str], splitter: tokenizers.Tokenizer, most: int
) -> tuple[list[str], list[str]]:
    """The most frequent letters, and those of them that stand inside or at the end of words."""
    counts: collections.Counter[str] = collections.Counter()
    continuing: set[str] = set()
    for one in texts:
        for word in _words(one, splitter):
            counts.update(word)
            continuing.update(word[1:])
    letters = sorted(counts, key=lambda letter: (-counts[letter], letter))[:most]
    return sorted(letters), sorted(continuing.intersection(letters))


def _words(content: str, splitter: tokenizers.Tokenizer) -> list[str]:
    """The words of a text, without those that are too long to have pieces.

    Training takes a time that is quadratic in the length of a word.
    """
    normalised = splitter.normalizer.normalize_str(content)
    words = splitter.pre_tokenizer.pre_tokenize_str(normalised)
    return [word for word, _ in words if len(word) <= text.LONGEST_WORD]
