"""The mapping from the columns of a table to the fields of a record, and the largest row."""

import collections
import dataclasses
import difflib
import gzip
import pathlib
import typing
from collections.abc import Mapping, Sequence

from cbert.errors import UserError, shown, warn
from cbert.schema import MultiValued, Numerical, Schema
from cbert.schema.target import LABELS, NUMBER

# The most that a line, a cell, or the rows that are held at once may take, in bytes. A small
# file that unpacks to more is refused before it does.
MAX_ROW = 16 * 2**20
MAPPED = ("id", "group", "items", "split", "weight")
_KINDS = ("categorical", "numerical", "multi_valued", "history")
MAPPED_OF_TEXT = (
    *("id", "group", "split", "weight", "text", "text_b", "words", "tags"),
    *("label", "answer", "answer_start"),
)


@dataclasses.dataclass(frozen=True)
class Columns:
    """The mapping from a table's columns to a record's fields.

    Attributes:
      names: Field (one of `fields`) to the column, or the name in JSON Lines, that holds it.
      separator: The separator of the values of a list in one CSV cell.
      categorical: Columns to take as strings although they hold numbers.
      numerical: CSV columns to take as numbers; a cell that is none is refused.
      multi_valued: CSV columns that hold lists of strings.
      history: Columns that hold lists of items.
      of_schema: Features to their kinds by a schema, for columns without a kind here.
      of_schema_only: Whether a column that is none of `of_schema` is refused.
      fields: The fields that a record has beside its context, `MAPPED` or `MAPPED_OF_TEXT`.
      dropped: Columns that are not read; a row has them as features that are missing.
      missing: Cells of CSV that stand for a missing value, as empty ones do.
    """

    names: dict[str, str] = dataclasses.field(default_factory=dict)
    separator: str = "|"
    categorical: tuple[str, ...] = ()
    numerical: tuple[str, ...] = ()
    multi_valued: tuple[str, ...] = ()
    history: tuple[str, ...] = ()
    of_schema: Mapping[str, str] = dataclasses.field(default_factory=dict)
    of_schema_only: bool = False
    fields: tuple[str, ...] = MAPPED
    dropped: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def is_missing(self, cell: str) -> bool:
        """Whether a cell of CSV holds spaces alone, or stands for a missing value."""
        return not cell.strip() or cell.strip() in self.missing

    @property
    def kinds(self) -> dict[str, str]:
        """Column to the kind that was given for it, by the name of its argument."""
        named = ("categorical", "numerical", "multi_valued")
        return {column: kind for kind in named for column in getattr(self, kind)}

    def check(self, field_of: dict[str, str], path: pathlib.Path) -> None:
        """Raises `UserError` for a table without items or texts, and kinds of no feature.

        Args:
          field_of: What each column stands for, see `field_of_column`.
          path: The file, for errors.
        """
        needed = ("items",) if "items" in self.fields else ("text", "words")
        if not set(needed) & set(field_of.values()):
            advice = f"rename one, or of a file map it with columns={needed[0]}:COLUMN"
            hold_texts = needed == ("items",) and not {"text", "words"}.isdisjoint(field_of)
            if hold_texts and not self.of_schema_only:
                advice = "the records hold texts, so give kind=text"
            there = f", only {', '.join(map(shown, field_of))}" if field_of else ""
            raise UserError(f"{path}: no column {needed[0]!r}{there}; {advice}")
        if self.of_schema_only:
            self._check_known(field_of, path)
        features = [name for name, field in field_of.items() if field in ("context", "label")]
        for name, kind in self.kinds.items():
            if name not in features:
                column = self.names.get(name)
                names = f"{shown(name)}, which is the column {shown(column)}; name that"
                if column not in features:
                    names = f"{shown(name)}; it may name: {', '.join(features)}"
                raise UserError(f"{kind} names {names}")

    def _check_known(self, field_of: dict[str, str], path: pathlib.Path) -> None:
        """Raises `UserError` that names all columns of which the schema has no feature."""
        # A column `context` of Parquet holds the features, which are here beside it.
        known = {*self.of_schema, *self.dropped, "context"}
        unknown = [n for n, field in field_of.items() if field == "context" and n not in known]
        if not unknown:
            return
        near = [(name, difflib.get_close_matches(name, self.of_schema, 1)) for name in unknown]
        hints = [f" (did you mean {found[0]!r} by {name!r}?)" for name, found in near if found]
        raise UserError(
            f"{path}: the model knows {len(unknown)} of the columns neither as fields nor as "
            f"features{''.join(hints[:1])}; rename them, or give "
            f"drop={','.join([*self.dropped, *unknown])}"
        )

    def check_names(self) -> None:
        """Raises `UserError` where `names` has an unknown field, or one column twice."""
        for field in self.names:
            if field not in self.fields:
                texts = "items" in self.fields and field in ("text", "words")
                raise UserError(
                    f"columns maps {shown(field)}; the fields are {', '.join(self.fields)}"
                    f"{'; where the records hold texts, give kind=text' if texts else ''}"
                )
        for column, times in collections.Counter(self.names.values()).items():
            if times > 1:
                fields = [field for field, own in self.names.items() if own == column]
                raise UserError(
                    f"columns maps {shown(column)} to {' and '.join(fields)}; name another for "
                    "one"
                )

    def check_kinds(self) -> None:
        """Raises `UserError` where two kinds name one column."""
        given = [(name, kind) for kind in _KINDS for name in getattr(self, kind)]
        first = dict(reversed(given))
        for name, kind in given:
            if first[name] != kind:
                raise UserError(f"{first[name]} and {kind} both name {shown(name)}; use one")

    def completed(self, header: Sequence[str]) -> "Columns":
        """With the schema's kinds for the columns that were given none."""
        known = {name for kind in _KINDS for name in getattr(self, kind)}
        more = {
            kind: tuple(
                name
                for name, own in self.of_schema.items()
                if own == kind and name in header and name not in known
            )
            for kind in _KINDS
        }
        return dataclasses.replace(
            self, **{kind: getattr(self, kind) + names for kind, names in more.items()}
        )


def kinds_of(schema: Schema, label: str = "label") -> dict[str, str]:
    """The kinds of a schema's features, and of labels that are lists or numbers."""
    kinds = {feature.name: feature.kind for feature in schema.features}
    of_label = {LABELS: MultiValued.kind, NUMBER: Numerical.kind}
    if schema.target and schema.target.kind in of_label:
        kinds[label] = of_label[schema.target.kind]
    return kinds


def open_binary(path: pathlib.Path) -> typing.BinaryIO:
    """Opens a file for reading, through gzip where its name ends in `.gz`."""
    if path.suffix.lower() == ".gz":
        return typing.cast(typing.BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")


def too_large(path: pathlib.Path, line: int, last: int = 0) -> UserError:
    """The error for a row above the limit, which may go from a line to another."""
    advice = "close the quote that it leaves open" if last > line else "split it"
    return UserError(f"{path}:{line}: the row takes more than {MAX_ROW} bytes; {advice}")


def field_of_column(
    columns: Columns, available: list[str], path: pathlib.Path
) -> dict[str, str]:
    """Column name to the record's field, `context` for all that are not mapped.

    Raises:
      UserError: two columns have one name or one has none, or `columns` names what does not
        exist.
    """
    check_unique(available, path)
    if "" in available:
        raise UserError(
            f"{path}: column {available.index('') + 1} has no name; name it, or leave it out "
            "(pandas: index=False)"
        )
    columns.check_names()
    for column in columns.names.values():
        if column not in available:
            raise UserError(
                f"{path}: no column {shown(column)}; it has: {', '.join(map(shown, available))}"
            )
    mapped = {column: field for field, column in columns.names.items()}
    # What is dropped need not be of the form that a field of its name has.
    taken = {*columns.names, *columns.dropped}
    unmapped = {field: field for field in columns.fields if field not in taken}
    field_of = {name: mapped.get(name) or unmapped.get(name, "context") for name in available}
    for name, field in field_of.items():
        meant = name.strip().lower()
        if field != "context" or name in columns.dropped:
            continue
        if meant in columns.fields and meant not in field_of.values():
            warn(
                f"{path}: the column {shown(name)} is taken as a feature of the context; "
                f"rename it {meant!r}, or of a file give columns={meant}:COLUMN, if it is that"
            )
    return field_of


def check_unique(names: list[str], path: pathlib.Path) -> None:
    """Raises `UserError` where two columns have one name."""
    name, count = max(collections.Counter(names).items(), key=lambda p: p[1], default=("", 0))
    if count > 1:
        raise UserError(f"{path}: two columns are called {shown(name)}; rename one")
