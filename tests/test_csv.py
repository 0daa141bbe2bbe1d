"""What the cells of a CSV file are taken for, and what is pointed out."""

import re

import pytest

import cbert
from cbert.data import readers, tables
from cbert.errors import UserError
from tests.conftest import refused, run
from tests.test_records import read


def test_csv_columns_are_mapped(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text(
        "meal,person,foods,age,zip,tags\n1,p,tea|egg,34,01234,u|v\n2,p,tea,,04321,\n"
        '3,q,"tea|ham, smoked",5.5,00001,v\n'
    )
    columns = tables.Columns(
        {"items": "foods", "group": "person", "id": "meal"},
        categorical=("zip",),
        multi_valued=("tags",),
    )
    parsed = read(path, columns=columns)
    assert [record.items for record in parsed] == [
        ["tea", "egg"],
        ["tea"],
        ["tea", "ham, smoked"],
    ]
    assert [record.group for record in parsed] == ["p", "p", "q"]
    assert parsed[0].context == {"age": 34.0, "zip": "01234", "tags": ["u", "v"]}
    assert parsed[1].context == {"zip": "04321", "tags": None}


def test_spaces_around_names_and_cells_are_left_out(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text(
        "items , group, occasion ,age,tags\ntea | egg, one , lunch ,  31, a | b\nham, ,  , ,\n"
    )
    spaced, empty = read(path, columns=tables.Columns(multi_valued=("tags",)))
    assert (spaced.items, spaced.group) == (["tea", "egg"], "one")
    assert spaced.context == {"occasion": "lunch", "age": 31.0, "tags": ["a", "b"]}
    assert (empty.items, empty.group) == (["ham"], "row-3")
    assert empty.context == {"tags": None}
    path.write_text("text, label\n a dog , x \n")
    (record,) = read(path, kind="text")
    assert (record.text.text, record.text.label) == (" a dog ", "x")


def test_codes_with_underscores_are_no_numbers(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("items,shelf,price\ntea,1_2,1e1\negg,12,-3\n")
    contexts = [record.context for record in read(path)]
    assert contexts == [{"shelf": "1_2", "price": 10.0}, {"shelf": "12", "price": -3.0}]


def test_a_forgotten_separator_is_pointed_out(tmp_path, capsys):
    rows = [{"items": [pair], "context": {"day": pair}} for pair in ["a,b", "b,c"] * 30]
    cbert.prepare(rows, "joined", tmp_path)
    assert "every example has one item, so that only the" in capsys.readouterr().err
    cbert.prepare([{"items": row["items"][0].split(",")} for row in rows], "apart", tmp_path)
    assert "one item" not in capsys.readouterr().err
    proteins = [{"items": [f"MKV{number:b}"]} for number in range(60)]
    with pytest.raises(UserError, match="the vocabulary has 0 item"):
        cbert.prepare(proteins, "proteins", tmp_path)
    assert "put a separator between the letters" in capsys.readouterr().err


def test_a_word_among_numbers_is_pointed_out(tmp_path, capsys):
    path = tmp_path / "in.csv"
    path.write_text("items,age,town\ntea,3,Bonn\negg,NA,Rom\nham,5,Oslo\nrye,5,Kiel\n")
    assert [record.context["age"] for record in read(path)] == ["3", "NA", "5", "5"]
    assert capsys.readouterr().err == (
        f"warning: {path}: column 'age': 75 % of the cells are numbers; others are 'NA', so "
        "that it is categorical; give missing=WORD,WORD for what stands for a missing value, "
        "or categorical=age for names\n"
    )


def test_numbers_with_commas_are_pointed_out(tmp_path, capsys):
    path = tmp_path / "in.csv"
    path.write_text(
        'items,price,people,tags\ntea,"1,5","1,200",a\negg,2,,"1,2"\nrye,3,7,"b,c"\n'
    )
    contexts = [record.context for record in read(path)]
    assert [context["price"] for context in contexts] == ["1,5", "2", "3"]
    warnings = capsys.readouterr().err.splitlines()
    assert [line.split("such as ")[0] for line in warnings] == [
        f"warning: {path}: column '{name}' holds numbers with commas, "
        for name in ("price", "people")
    ]
    assert "such as '1,5', so that it is categorical" in warnings[0]
    list(readers.read(path, columns=tables.Columns(categorical=("price", "people"))))
    assert not capsys.readouterr().err


DIRTY = 'items,age,town\ntea,n/a,Rome\nsoup,57 Jahre,-1\negg,31,n/a \nham,-1,\nrye,"1,5",x\n'


def test_all_bad_cells_of_a_numerical_column_are_told_at_once(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text(DIRTY)
    columns = tables.Columns(numerical=("age",))
    with pytest.raises(UserError) as refusal:
        read(path, columns=columns)
    assert str(refusal.value) == (
        f"{path}:2: 'age' is 'n/a', not a number (3 cells are not: 'n/a', '57 Jahre', '1,5'); "
        "empty means missing, as WORD does with missing=WORD"
    )
    path.write_text("items,age\ntea,\nham,3\nsoup,57 Jahre\n")
    with pytest.raises(UserError, match=r"in.csv:4: 'age' is '57 Jahre', not a number; empty"):
        read(path, columns=columns)


def test_words_that_stand_for_missing_values(tmp_path, capsys):
    path = tmp_path / "in.csv"
    path.write_text(DIRTY)
    columns = tables.Columns(missing=("n/a", "57 Jahre", "1,5", "-1"))
    contexts = [record.context for record in read(path, columns=columns)]
    towns = [{"town": "Rome"}, {}, {"age": 31.0}, {}, {"town": "x"}]
    assert contexts == [towns[0], *({}, {"age": 31.0}, {}), towns[4]]
    assert not capsys.readouterr().err
    path.write_text("text,label\none,a\ntwo,n/a\nthree,\n")
    columns = tables.Columns(multi_valued=("label",), missing=("n/a",))
    labels = [record.text.label for record in readers.read(path, "text", columns)]
    assert labels == [["a"], None, []]
    (tmp_path / "in.jsonl").write_text('{"items": ["a"]}\n')
    columns = tables.Columns(missing=("n/a",))
    with pytest.raises(UserError, match=r"missing is for CSV; .*in.jsonl is not"):
        read(tmp_path / "in.jsonl", columns=columns)


def test_a_command_takes_words_that_stand_for_missing_values(tmp_path):
    ages = ["n/a", "-1", *map(str, range(20, 80))]
    rows = [f"tea|{'soup' if n % 2 else 'egg'},{age}" for n, age in enumerate(ages)]
    (tmp_path / "in.csv").write_text("\n".join(["items,age", *rows]))
    data = (f"--input={tmp_path}/in.csv", f"--data_dir={tmp_path}", "--name=own")
    line = refused("prepare", *data, "--numerical=age", "--missing=-1")
    assert line.endswith("empty means missing, as WORD does with --missing=WORD\n")
    done = run("prepare", *data, "--missing=n/a,-1")
    assert re.search(r"age +numerical .* 3\.2%", done.stdout)


@pytest.mark.parametrize("space", ["", " "])
def test_codes_with_zeros_before_them_are_pointed_out(tmp_path, capsys, space):
    path = tmp_path / "in.csv"
    spaced = f"{space}01234{space}"
    path.write_text(f"items,zip,share,cents\ntea,10115,0.5,0\negg,{spaced},00.5,100\n")
    assert [record.context["zip"] for record in read(path)] == [10115.0, 1234.0]
    assert capsys.readouterr().err == (
        f"warning: {path}: column 'zip' holds numbers with zeros before them, such as '01234', "
        "which are lost; where they are codes, give categorical=zip, and where not, give "
        "numerical=zip\n"
    )
    for columns in (tables.Columns(categorical=("zip",)), tables.Columns(numerical=("zip",))):
        zips = [record.context["zip"] for record in read(path, columns=columns)]
        assert zips == (["10115", "01234"] if columns.categorical else [10115.0, 1234.0])
    assert not capsys.readouterr().err


def test_cells_that_look_like_lists_are_pointed_out(tmp_path, capsys):
    path = tmp_path / "in.csv"
    rows = ["tea,a|b,|", "egg,b|c,x|", "ham,a,y", "rye,c|d|a,z", "oat,b|a,w|v"]
    path.write_text("\n".join(["items,topics,marks", *rows]))
    assert [record.context["topics"] for record in read(path)][:2] == ["a|b", "b|c"]
    assert capsys.readouterr().err == (
        f"warning: {path}: column 'topics' holds '|' within cells, such as 'a|b', and each is "
        "one value; where these are lists, give multi_valued=topics\n"
    )
    list(readers.read(path, columns=tables.Columns(categorical=("topics",))))
    assert not capsys.readouterr().err


def test_lists_with_another_separator_are_pointed_out(tmp_path, capsys):
    path = tmp_path / "in.csv"
    rows = ["tea,a;b,u|v;w,x,p;q", "egg|ham,a,u,y,r", "rye,c;d,,z,"]
    path.write_text("\n".join(["items,topics,marks,tags,bought", *rows]))
    lists = {"multi_valued": ("topics", "marks", "tags"), "history": ("bought",)}
    assert read(path, columns=tables.Columns(**lists))[0].context["topics"] == ["a;b"]
    assert capsys.readouterr().err == "".join(
        f"warning: {path}: column '{name}' holds lists, and none of its first cells holds '|', "
        f"so that '{cell}' is one value; separator says what stands between values\n"
        for name, cell in (("topics", "a;b"), ("bought", "p;q"))
    )
    rows = [row.replace("|", "+").replace(";", "|") for row in rows]
    path.write_text("\n".join(["items,topics,marks,tags,bought", *rows]))
    assert read(path, columns=tables.Columns(**lists))[0].context["topics"] == ["a", "b"]
    assert not capsys.readouterr().err


def test_a_command_warns_with_its_flags(tmp_path):
    rows = [f"tea|{n},{n}|{n + 1},{n}" for n in range(60)]
    (tmp_path / "in.csv").write_text("\n".join(["items,topics,Split", *rows]))
    data = (f"--input={tmp_path}/in.csv", f"--data_dir={tmp_path}", "--name=own")
    done = run("prepare", *data, "--value_min_count=1", "--min_count=1")
    assert "are lists, give --multi_valued=topics\n" in done.stderr
    assert "rename it 'split', or of a file give --columns=split:COLUMN, if" in done.stderr


@pytest.mark.parametrize("word", ["nan", "-inf", "1e999"])
def test_what_is_not_finite_is_a_word(tmp_path, capsys, word):
    path = tmp_path / "in.csv"
    path.write_text(f"items,age\ntea,3\negg,{word}\n")
    assert [record.context["age"] for record in read(path)] == ["3", word]
    said = f"column 'age': 50 % of the cells are numbers; others are '{word}', so that"
    assert said in capsys.readouterr().err


def test_many_words_among_numbers_are_pointed_out(tmp_path, capsys):
    """The dirtier a column is, the more it needs the warning."""
    path = tmp_path / "in.csv"
    words = ["n/a", "57 Jahre", "unknown", "?", "n/a"]
    ages = [*words[:3], *map(str, range(20, 114)), "", "1,5", *words[3:]]
    # A column of names has some that look like numbers; it is one of words all the same.
    names = ["4711", "1848", *(f"brand {n}" for n in range(len(ages) - 2))]
    rows = zip(ages, names, strict=True)
    path.write_text("\n".join(["items,age,name", *(f'tea,"{a}",{n}' for a, n in rows)]))
    assert read(path)[3].context == {"age": "20", "name": "brand 1"}
    assert capsys.readouterr().err == (
        f"warning: {path}: column 'age': 95 % of the cells are numbers; others are 'n/a', "
        "'57 Jahre', 'unknown', ..., so that it is categorical; give missing=WORD,WORD for "
        "what stands for a missing value, or categorical=age for names\n"
    )


def test_words_that_come_first_hide_no_numbers(tmp_path, capsys):
    path = tmp_path / "in.csv"
    rows = [*(f"tea,word {n}" for n in range(800)), *(f"tea,{n}" for n in range(1200))]
    path.write_text("\n".join(["items,age", *rows]))
    read(path)
    assert "60 % of the cells are numbers; others are 'word 0'," in capsys.readouterr().err


def test_labels_that_look_like_lists_are_pointed_out(tmp_path, capsys):
    path = tmp_path / "in.csv"
    path.write_text("text,label\none,a|b\ntwo,b|c\nthree,a\nfour,c|d|a\nfive,b|a\n")
    assert [record.text.label for record in readers.read(path, "text")][:2] == ["a|b", "b|c"]
    assert "column 'label' holds '|' within cells, such as 'a|b'" in capsys.readouterr().err
    lists = readers.read(path, "text", tables.Columns(multi_valued=("label",)))
    assert [record.text.label for record in lists][:2] == [["a", "b"], ["b", "c"]]
    assert not capsys.readouterr().err


def test_a_row_over_several_lines_is_named_by_its_first(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text('items,note\na,"one\n\ntwo"\n,"three\nfour"\n')
    with pytest.raises(UserError, match=r"in.csv:5: 'items' is empty"):
        list(readers.read(path))


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("note", ["note", '"note"', '"the note, or; what\tis noted"'])
def test_the_header_tells_what_stands_between_cells(tmp_path, delimiter, note):
    path = tmp_path / "in.tsv"
    rows = ["id", "items", note], ["1", "tea|milk", '"a, b; c\td"'], ["2", "tea", "one"]
    path.write_text("\n".join(map(delimiter.join, rows)))
    one, two = readers.read(path)
    assert (one.id, one.items) == ("1", ["tea", "milk"])
    assert one.context == {note.strip('"'): "a, b; c\td"}
    assert two.context == {note.strip('"'): "one"}


def test_a_name_in_the_header_of_a_tsv_may_hold_a_comma(tmp_path):
    path = tmp_path / "in.tsv"
    path.write_text("items\tprice, EUR\ntea|milk\t3\ntea\t4.5\n")
    assert [record.context for record in readers.read(path)] == [
        {"price, EUR": 3.0},
        {"price, EUR": 4.5},
    ]


@pytest.mark.parametrize("name", ['"size\n(""cm"", kg)"', 'size"'])
def test_a_name_in_the_header_may_have_lines_and_quotes(tmp_path, name):
    (tmp_path / "in.csv").write_text(f'{name};items\n8;"a|b, c"\n9;d\n')
    (first, second) = read(tmp_path / "in.csv")
    assert first.items == ["a", "b, c"]
    assert list(second.context) == ['size\n("cm", kg)' if "cm" in name else 'size"']
