"""What `prepare` may be told, and which of it is impossible."""

import dataclasses
import os
from collections.abc import Mapping

from cbert import schema as schema_lib
from cbert.data import splits, vocabulary
from cbert.data.infer_target import CHOICES
from cbert.data.validator import DROP, REFUSE
from cbert.errors import UserError, check_choice, check_kind, shown
from cbert.schema import TEXT, History
from cbert.schema.tokenizer import LEAST_LENGTH, MOST_LENGTH
from cbert.schema.values import check_size

TRAINED = "train"  # The vocabulary that is trained on the training split.
NEXT = "next"  # Pairs for next-sentence prediction.
LEAVE_OUT, SUBSAMPLE, LATEST = LONGER = ("leave_out", "subsample", "latest")
# What a schema that is given decides, and of it what only texts have.
_OF_SCHEMA = ("min_count", "value_min_count", "max_items", "widths", "kinds")
_OF_ITEMS = ("min_count", "max_items", "longer")
OF_VOCABULARY = ("vocabulary", "vocabulary_size", "lowercase", "max_length", "target")
REPEATS = (REFUSE, DROP)


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """The options of `prepare` for texts.

    Attributes:
      vocabulary: A `vocab.txt`, a `tokenizer.json`, the folder of a pretrained model, the
        `schema.json` of prepared texts or of a run, or `train`.
      vocabulary_size: The most pieces of a vocabulary that is trained.
      lowercase: Whether texts lose capital letters and accents. By default the vocabulary's
        file says it, or a `tokenizer_config.json` beside it; where none does, they do.
      max_length: The most tokens that a model reads of an example, [CLS] and [SEP] included;
        by default as many as the longest example has, but at most 128.
      target: The kind of target where the records have several; `none` for none.
      pairs: `next` makes pairs for next-sentence prediction, empty makes none.
      pack: Whether consecutive sentences of a document are joined.
      stride: Tokens between the windows that a long passage is cut into; 0 for no windows, or
        for those of a schema that is given.
      stratify: Whether the labels decide the splits, so that each split has its share of every
        label, in place of a hash of the group alone.
    """

    vocabulary: str = TRAINED
    vocabulary_size: int = 8000
    lowercase: bool | None = None
    max_length: int | None = None
    target: str | None = None
    pairs: str = ""
    pack: bool = False
    stride: int = 0
    stratify: bool = False

    def check(self) -> None:
        """Raises `UserError` where an option is impossible, or two exclude each other."""
        a_file = f"the path of a file, or {TRAINED!r}"
        check_kind("vocabulary", self.vocabulary, str | os.PathLike, a_file)
        least, most = vocabulary.LEAST_SIZE, vocabulary.MOST_SIZE
        check_size("vocabulary_size", self.vocabulary_size, least, most)
        if self.vocabulary != TRAINED and self.vocabulary_size != TextOptions.vocabulary_size:
            raise UserError(
                f"vocabulary_size belongs to vocabulary={TRAINED}; leave it out beside a file"
            )
        check_kind("lowercase", self.lowercase, bool | None, "True, False or None")
        if self.max_length is not None:
            check_size("max_length", self.max_length, LEAST_LENGTH, MOST_LENGTH)
        if self.target is not None:
            check_choice("target", self.target, CHOICES)
        if self.pairs not in ("", NEXT):
            raise UserError(f"pairs is {shown(self.pairs)}; it must be {NEXT!r} or empty")
        check_kind("pack", self.pack, bool, "True or False")
        check_kind("stratify", self.stratify, bool, "True or False")
        check_size("stride", self.stride, least=0)
        if self.stride and (self.pack or self.pairs):
            raise UserError("stride cuts passages with answers; it goes without pack and pairs")


@dataclasses.dataclass(frozen=True)
class PrepareOptions:
    """What `prepare` may be told.

    Attributes:
      kind: `set`, `sequence` or `text`.
      min_count: Items that occur less often in training become unknown.
      value_min_count: The same for the strings of context features.
      max_items: The most items of an example; None for the most of any record.
      longer: What is done with longer examples, one of `LONGER`.
      split_weights: How large train, validation and test shall be.
      widths: Embedding width by feature, where the default is not wanted.
      kinds: Kind by feature, where the values alone do not decide it.
      drop: Features to leave out.
      overwrite: Whether a data set of the same name is replaced.
      text: What only texts need.
      repeats: What is done where a set has an item twice, one of `REPEATS`.
    """

    kind: str = schema_lib.SET
    min_count: int = 2
    value_min_count: int = 2
    max_items: int | None = None
    longer: str = LEAVE_OUT
    split_weights: tuple[int, ...] = splits.WEIGHTS
    widths: dict[str, int] = dataclasses.field(default_factory=dict)
    kinds: dict[str, str] = dataclasses.field(default_factory=dict)
    drop: tuple[str, ...] = ()
    overwrite: bool = False
    text: TextOptions = dataclasses.field(default_factory=TextOptions)
    repeats: str = REFUSE

    def check(self, needs_training: bool = True) -> None:
        """Raises `UserError` naming the option that is impossible.

        A schema that is given needs no training split.
        """
        self._check_types()
        splits.check_weights(self.split_weights, needs_training)
        self.text.check()
        check_choice("kind", self.kind, (schema_lib.SET, schema_lib.SEQUENCE, TEXT))
        self._check_kind()
        check_choice("longer", self.longer, LONGER)
        if self.longer == LATEST and self.kind != schema_lib.SEQUENCE:
            raise UserError(f"longer={LATEST} is for sequences; the kind is {self.kind!r}")
        if self.longer != LEAVE_OUT and self.max_items is None and needs_training:
            raise UserError(f"longer={self.longer} needs a limit; give max_items=N, too")
        check_choice("repeats", self.repeats, REPEATS)
        if self.repeats == DROP and self.kind != schema_lib.SET:
            raise UserError(f"repeats={DROP} is for sets; the kind is {self.kind!r}")
        for name, kind in self.kinds.items():
            check_choice(f"the kind of {shown(name)}", kind, tuple(schema_lib.KINDS))
        for name, width in self.widths.items():
            check_size(f"the width of {shown(name)}", width)
        check_size("min_count", self.min_count)
        check_size("value_min_count", self.value_min_count)
        if self.max_items is not None:
            check_size("max_items", self.max_items)

    def _check_kind(self) -> None:
        """Refuses options of texts for items, and the reverse: they would change nothing."""
        if self.kind == TEXT:
            default = PrepareOptions()
            names = [n for n in _OF_ITEMS if getattr(self, n) != getattr(default, n)]
            names += [History.kind] * (History.kind in self.kinds.values())
            whose, fix = "sets and sequences", "leave that out"
        else:
            fields = dataclasses.fields(TextOptions)
            names = [f.name for f in fields if getattr(self.text, f.name) != f.default]
            whose, fix = "texts", f"leave that out, or give kind={TEXT}"
        if names:
            raise UserError(
                f"{', '.join(names)} can be given for {whose} only, and the kind is "
                f"{self.kind!r}; {fix}"
            )

    def _check_types(self) -> None:
        """Raises `UserError` where an option that has parts is of another type."""
        check_kind("drop", self.drop, list | tuple | set | frozenset, "a list of names")
        for name in self.drop:
            check_kind("a name in drop", name, str, "a string")
        check_kind("widths", self.widths, Mapping, "a dict from feature to width")
        check_kind("kinds", self.kinds, Mapping, "a dict from feature to kind")
        check_kind("overwrite", self.overwrite, bool, "True or False")
        check_kind("text", self.text, TextOptions, "TextOptions")


def beside_schema(options: PrepareOptions, schema: schema_lib.Schema) -> PrepareOptions:
    """The options for data of a given schema, which decides some.

    Raises:
      UserError: one of these was given, or an option is of another type.
    """
    options._check_types()
    if options.kind not in (schema_lib.SET, schema.kind):
        raise UserError(
            f"kind is {options.kind!r}, and the schema is of {schema.kind}s; leave kind out"
        )
    default = PrepareOptions()
    given = [n for n in _OF_SCHEMA if getattr(options, n) != getattr(default, n)]
    text = [n for n in OF_VOCABULARY if getattr(options.text, n) != getattr(default.text, n)]
    if names := ", ".join([*given, *text]):
        raise UserError(f"{names} cannot be given together with schema, which decides it")
    return dataclasses.replace(options, kind=schema.kind)
