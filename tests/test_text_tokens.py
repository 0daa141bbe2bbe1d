"""Texts become the tokens that BERT's own tokeniser makes; vocabularies are read or trained."""

import itertools
import json
import random

import numpy as np
import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from cbert.data import vocabulary, windows
from cbert.data.text import Tokenizer, cut_sizes
from cbert.errors import UserError
from cbert.schema import SPECIAL_TOKENS, TEXT, Schema, TokenizerOptions
from tests.conftest import REAL_DATA, ROOT, run
from tests.data import bert_token_ids

EXPECTED = json.loads((ROOT / "tests" / "data" / "bert_token_ids.json").read_text())
PIECES = (*SPECIAL_TOKENS, "san", "jose", "##ph", ".", "a", "b", "una", "##ffa", "##ble")


def tokenizer(pieces=PIECES, max_length=12, masks=False, **options):
    options = TokenizerOptions(**options)
    schema = Schema(TEXT, max_length, tuple(pieces), (0,) * len(pieces), (), options)
    return Tokenizer(schema, masks)


def shown(tokens, pieces=PIECES):
    return " ".join(pieces[code] for code in tokens.codes)


@pytest.fixture(scope="module")
def bert():
    path = REAL_DATA / "bert-base-uncased-vocab.txt"
    if not path.exists():
        pytest.skip(f"BERT's vocabulary is not at hand ({path})")
    return vocabulary.read(path)[0]


def test_ten_thousand_sentences_have_the_token_ids_of_bert(bert):
    """The digest is that of transformers' BertTokenizer, see data/bert_token_ids.py."""
    texts = bert_token_ids.speeches(REAL_DATA)
    rows = tokenizer(bert, 10_000).encode_all([(text, None) for text in texts])
    assert len(rows) == 10_000
    assert sum(map(len, rows)) == EXPECTED["tokens"] == 476_853
    assert bert_token_ids.digest([row.codes.tolist() for row in rows]) == EXPECTED["speeches"]


@pytest.mark.parametrize("index", range(len(bert_token_ids.NASTY)))
def test_nasty_texts_have_the_token_ids_of_bert(bert, index):
    tokens = tokenizer(bert, 10_000).encode(bert_token_ids.NASTY[index])
    assert tokens.codes.tolist() == EXPECTED["nasty"][index]
    assert tokens.cut == 0


def test_a_pair_is_cut_as_transformers_cuts_it(bert):
    first, second = bert_token_ids.NASTY[12], bert_token_ids.NASTY[0]
    tokens = tokenizer(bert, 32).encode(first, second)
    assert [tokens.codes.tolist(), tokens.segments.tolist()] == EXPECTED["pair"]
    assert tokens.cut > 0


def test_segments_words_and_spans_by_hand():
    tokens = tokenizer().encode("San Joseph.", "b  unaffable")
    assert shown(tokens) == "[CLS] san jose ##ph . [SEP] b una ##ffa ##ble [SEP]"
    assert tokens.segments.tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1]
    assert tokens.words.tolist() == [-1, 0, 1, 1, 2, -1, 0, 1, 1, 1, -1]
    assert tokens.word_starts.tolist() == [-1, 0, 1, -1, 2, -1, 0, 1, -1, -1, -1]
    assert tokens.spans.tolist()[1:5] == [[0, 3], [4, 8], [8, 10], [10, 11]]
    assert tokens.spans.tolist()[6:] == [[0, 1], [3, 6], [6, 9], [9, 12], [0, 0]]


def test_accents_that_are_characters_of_their_own_belong_to_the_token_before():
    tokens = tokenizer().encode("Jo\u0301se\u0301\u0323 a\u0301")
    assert shown(tokens) == "[CLS] jose a [SEP]"
    assert tokens.spans.tolist()[1:3] == [[0, 7], [8, 10]]
    pieces = (*SPECIAL_TOKENS, "a", "##\u0301", "b")
    kept = tokenizer(pieces, strip_accents=False).encode("a\u0301 b")
    assert shown(kept, pieces) == "[CLS] a ##\u0301 b [SEP]"
    assert kept.spans.tolist()[1:4] == [[0, 1], [1, 2], [3, 4]]


def test_words_keep_their_index_where_one_has_no_piece():
    """The zero-width space leaves nothing, and `Joseph.` is two words to BERT."""
    tokens = tokenizer().encode(["San", "Joseph.", "\u200b", "a"])
    assert shown(tokens) == "[CLS] san jose ##ph . a [SEP]"
    assert tokens.word_starts.tolist() == [-1, 0, 1, -1, -1, 3, -1]


def test_what_does_not_fit_is_cut_and_counted():
    one = tokenizer(max_length=5).encode("a b a b a")
    assert (shown(one), one.cut) == ("[CLS] a b a [SEP]", 2)
    two = tokenizer(max_length=7).encode("a b a b", "b b")
    assert (shown(two), two.cut) == ("[CLS] a b [SEP] b b [SEP]", 2)
    assert cut_sizes([10, 100], 50) == [10, 40]
    assert cut_sizes([100, 100], 51) == [25, 26]
    assert cut_sizes([101, 100], 51) == [26, 25]


def test_a_special_token_in_a_text_is_text_unless_it_is_a_query():
    assert shown(tokenizer().encode("a [MASK] b")) == "[CLS] a [UNK] [UNK] [UNK] b [SEP]"
    query = tokenizer(masks=True).encode("a [MASK] b [SEP]")
    assert shown(query) == "[CLS] a [MASK] b [UNK] [UNK] [UNK] [SEP]"


def test_normalisation_is_that_of_the_schema():
    pieces = (*SPECIAL_TOKENS, "été", "ete", "Été", "中", "文", "中文")
    for options, expected in (
        ({}, "ete 中 文"),
        ({"strip_accents": False}, "été 中 文"),
        ({"lowercase": False, "strip_accents": False}, "Été 中 文"),
        ({"split_chinese_characters": False}, "ete 中文"),
    ):
        tokens = tokenizer(pieces, **options).encode("Été 中文")
        assert shown(tokens, pieces) == f"[CLS] {expected} [SEP]"


def test_windows_by_hand():
    """Words of 1, 1, 3, 1, 2, 1 tokens, windows of four, each beginning within two tokens."""
    words = np.array([0, 1, 2, 2, 2, 3, 4, 4, 5])
    assert windows.bounds(words, 4, 2) == [(0, 2), (2, 6), (5, 9)]
    assert windows.bounds(words, 9, 2) == [(0, 9)]
    many = windows.bounds(np.arange(200_000), 128, 8)
    assert (many[0], many[1], many[-1]) == ((0, 128), (8, 136), (199_872, 200_000))
    assert windows.bounds(words, 5, 100) == [(0, 5), (5, 9)]
    one_word = np.zeros(9, int)
    assert windows.bounds(one_word, 4, 2) == [(0, 4), (4, 8), (8, 9)]


def test_a_long_question_takes_no_token_of_a_window():
    """Beside three special tokens seven are left, of which the longer question keeps four."""
    reader, question, passage = tokenizer(max_length=10), "b b b b b", "a " * 13
    parts = [passage[slice(*part)] for part in windows.divide(question, passage, reader, 2)]
    assert shown(reader.encode(question, parts[0])) == "[CLS] b b b b [SEP] a a a [SEP]"
    assert all(reader.encode(question, part).cut == 1 for part in parts)


def test_windows_leave_no_token_out():
    source = random.Random(0)
    for _ in range(500):
        sizes = [source.randint(1, 8) for _ in range(source.randint(1, 40))]
        words = np.repeat(np.arange(len(sizes)), sizes)
        room, stride = source.randint(3, 12), source.randint(1, 12)
        bounds = windows.bounds(words, room, stride)
        assert {index for first, last in bounds for index in range(first, last)} == set(
            range(len(words))
        )
        assert all(0 < last - first <= room for first, last in bounds)
        assert all(one[0] < two[0] for one, two in itertools.pairwise(bounds))


def test_a_trained_vocabulary_by_hand():
    """The special tokens come first, then the letters.

    Of the pairs of letters that occur five times, `##u` and `##n` have the lowest numbers, so
    `bun` is made of `b` and `##un`, and there is no piece `bu`.
    """
    texts = ["hug pug hug", "Hugs bun"] * 5
    pieces = vocabulary.train(lambda: texts, 100, TokenizerOptions())
    assert pieces[:5] == SPECIAL_TOKENS == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    assert pieces[5:9] == ("##g", "##n", "##s", "##u")
    assert pieces[9:16] == ("b", "g", "h", "n", "p", "s", "u")
    assert {"hug", "pug", "hugs", "bun", "##g", "##ug"} <= set(pieces)
    tokens = tokenizer(pieces).encode("hug hugs bug x")
    assert shown(tokens, pieces) == "[CLS] hug hugs b ##ug [UNK] [SEP]"
    small = vocabulary.train(lambda: texts, 12, TokenizerOptions())
    assert len(small) == 12
    assert small[5:10] == (
        *("##g", "##u"),
        *("g", "h", "u"),
    )


def test_a_vocabulary_is_the_same_in_every_process(tmp_path):
    """Hash tables, whose order is random in each process, must not decide."""
    source = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(source.choices(letters, k=source.randint(1, 9))) for _ in range(900)]
    rows = [
        json.dumps({"text": " ".join(source.choices(words, k=12)), "group": str(number // 3)})
        for number in range(300)
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(rows))
    schemas = []
    for name in ("one", "other"):
        run(
            *("prepare", f"--input={tmp_path}/in.jsonl", "--kind=text", "--name=own"),
            *("--vocabulary_size=600", f"--data_dir={tmp_path}/{name}"),
        )
        schemas.append((tmp_path / name / "own" / "1.0.0" / "schema.json").read_bytes())
    assert schemas[0] == schemas[1]
    assert len(json.loads(schemas[0])["items"]) == 600


def test_words_of_a_million_letters_do_not_train(bert):
    """Training takes a time that is quadratic in the length of a word."""
    pieces = vocabulary.train(lambda: ["ab" * 500_000, "hello 中文"], 100, TokenizerOptions())
    assert set("helo") < set(pieces)
    assert "a" not in pieces
    assert len(tokenizer(bert, 512).encode("ab" * 500_000)) == 3


def library_file(path, **normalizer):
    """A tokenizer.json as the library writes it."""
    codes = {piece: code for code, piece in enumerate(PIECES)}
    inner = tokenizers.Tokenizer(models.WordPiece(codes, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(**normalizer)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.save(str(path))
    return path


def test_vocabularies_are_read_from_both_forms_of_file(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    for lowercase in (True, False):
        read = vocabulary.read(tmp_path / "vocab.txt", lowercase)
        assert read == (PIECES, TokenizerOptions(lowercase, lowercase))
    assert vocabulary.read(tmp_path / "vocab.txt") == (PIECES, TokenizerOptions())
    path = library_file(tmp_path / "tokenizer.json")
    assert vocabulary.read(path) == (PIECES, TokenizerOptions())
    older = json.loads(path.read_text())
    del older["model"]["type"]
    path.write_text(json.dumps(older))
    assert vocabulary.read(path) == (PIECES, TokenizerOptions())
    library_file(path, lowercase=False, strip_accents=True, handle_chinese_chars=False)
    assert vocabulary.read(path) == (PIECES, TokenizerOptions(False, True, False))


def test_the_config_beside_a_vocabulary_says_how_its_texts_are_normalised(tmp_path):
    path, config = tmp_path / "vocab.txt", tmp_path / "tokenizer_config.json"
    path.write_text("\n".join(PIECES) + "\n")
    for raw, expected in (
        ({}, (True, True, True)),
        ({"do_lower_case": False, "strip_accents": None}, (False, False, True)),
        ({"strip_accents": False, "tokenize_chinese_chars": False}, (True, False, False)),
    ):
        config.write_text(json.dumps(raw))
        assert vocabulary.read(path) == (PIECES, TokenizerOptions(*expected))
    assert vocabulary.read(path, lowercase=False)[1] == TokenizerOptions(False, False)
    for content, complaint in (
        ('{"do_lower_case": 1}', "do_lower_case is 1; it must be true or false"),
        ("{", "not readable JSON"),
    ):
        config.write_text(content)
        with pytest.raises(UserError, match=f"{config}: {complaint}"):
            vocabulary.read(path)


def test_a_tokeniser_that_is_not_bert_is_refused_by_its_name(tmp_path):
    """One such as that of a Japanese BERT has a vocab.txt, and cuts texts into other words."""
    path, tokens = tmp_path / "vocab.txt", tmp_path / "tokenizer_config.json"
    path.write_text("\n".join(PIECES) + "\n")
    named = {name: f'{{"tokenizer_class": "{name}"}}' for name in ("BertTokenizerFast", "Own")}
    tokens.write_text(named["BertTokenizerFast"])
    (tmp_path / "config.json").write_text(named["Own"])
    assert vocabulary.read(path) == (PIECES, TokenizerOptions())
    tokens.write_text("{}")
    for config in (tmp_path / "config.json", tokens):
        config.write_text(named["Own"])
        for lowercase in (None, False):
            with pytest.raises(UserError) as error:
                vocabulary.read(path, lowercase)
            assert str(error.value) == (
                f"{config}: tokenizer_class is 'Own', which may cut texts otherwise than "
                "BertTokenizer; in a copy of the folder write BertTokenizer there, and where "
                "words differ give those that it cuts, as 'words'"
            )


def test_other_tokenisers_and_damaged_files_are_refused_in_a_line(tmp_path):
    good = json.loads(library_file(tmp_path / "tokenizer.json").read_text())

    def refusal(content, name="tokenizer.json"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        with pytest.raises(UserError) as error:
            vocabulary.read(path)
        assert str(path) in str(error.value)
        return str(error.value)

    model = good["model"]
    assert "schema lacks the field 'max_items'" in refusal({"kind": "text"})
    assert "model is 'BPE'" in refusal({**good, "model": {**model, "type": "BPE"}})
    assert "pre_tokenizer is None" in refusal({**good, "pre_tokenizer": None})
    assert "max_input_chars_per_word is 7" in refusal(
        {**good, "model": {**model, "max_input_chars_per_word": 7}}
    )
    for codes in ({"a": 0, "b": 2}, {"a": "x"}, {}, None, {"a": True}):
        assert "model.vocab must" in refusal({**good, "model": {**model, "vocab": codes}})
    assert "not a tokenizer.json" in refusal([])
    assert "a schema of sequences has no tokens; give" in refusal({"kind": "sequence"})
    assert "not a readable vocabulary" in refusal("{")
    assert "no [MASK]" in refusal("\n".join([*PIECES[:4], "a", "a"]), "vocab.txt")
    assert "'a' is listed twice" in refusal("\n".join([*PIECES, "a"]), "vocab.txt")
    with pytest.raises(UserError, match="no such vocabulary"):
        vocabulary.read(tmp_path / "absent.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty/vocab\.txt: no such vocabulary"):
        vocabulary.read(tmp_path / "empty")
