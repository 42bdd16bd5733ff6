"""Tables as their owners have them: ids, labels, dates, semicolons, spreadsheets, and lines that are all empty."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dcfpca.errors import BadInput
from participant.data.data_config import DataTable
from participant.data.facts import MatrixParts, measure, without_empty_samples
from participant.data.matrix import select_features
from participant.data.readers import open_matrix

CSV = """patient,age,chol,ward,seen,diagnosis
P1,63,233,north,2024-01-31,1
P2,37,250,south,2024-02-01,0
P3,41,?,north,2024-02-02,0
P4,56,236,south,2024-02-03,1
"""
ROWS = {"orientation": "samples-in-rows", "missing": "allow"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "d.csv").write_text(CSV)
    return tmp_path / "d.csv"


def opened(path: Path, **keys: Any) -> Any:
    return open_matrix(DataTable(path=path, **keys), path.parent / "spool")


def test_text_and_dates_are_named_together_with_the_lines_to_write(path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        opened(path, **ROWS)
    assert "column patient holds text, different in every line" in str(caught.value)
    assert "column ward holds text with 2 values" in str(caught.value)
    assert "column seen holds dates" in str(caught.value)
    assert 'id_column = "patient" and exclude = ["ward", "seen"]' in caught.value.hint


def test_what_the_hint_says_is_accepted_and_gives_ids(path: Path) -> None:
    matrix = opened(path, **ROWS, id_column="patient", exclude=("ward", "seen"))
    assert matrix.features == ("age", "chol", "diagnosis")
    assert matrix.ids == ("P1", "P2", "P3", "P4")
    np.testing.assert_array_equal(matrix.columns.read(0, 4)[1], [233, 250, np.nan, 236])


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ({"features": ("chol", "age")}, ("chol", "age")),
        ({"features": ("[ac]*",)}, ("age", "chol")),
        ({"features": ("chol", "a*")}, ("chol", "age")),
        ({"exclude": ("ward", "seen", "diag*")}, ("age", "chol")),
        ({"features": ("age", "c*"), "exclude": ("chol",)}, ("age",)),
    ],
)
def test_features_are_chosen_by_name_and_by_pattern(path: Path, keys: dict[str, Any], names: tuple[str, ...]) -> None:
    assert opened(path, **ROWS, id_column="patient", **keys).features == names


@pytest.mark.parametrize("key", ["features", "exclude", "id_column"])
def test_a_misspelt_column_is_refused_with_the_closest_name(path: Path, key: str) -> None:
    wrong: Any = "patiant" if key == "id_column" else ("chool",)
    with pytest.raises(BadInput) as caught:
        opened(path, **ROWS, **{key: wrong})
    assert caught.value.hint == f"did you mean {'patient' if key == 'id_column' else 'chol'}?"


@pytest.mark.parametrize("keys", [{}, {"features": ("chol", "age")}, {"features": ("age", "chol")}])
def test_a_word_among_numbers_is_blamed_on_its_own_cell(path: Path, keys: dict[str, Any]) -> None:
    path.write_text(CSV.replace("250", "high"))
    left_out = {} if keys else {"exclude": ("ward", "seen")}
    with pytest.raises(BadInput, match="no number in line 3, column chol"):
        opened(path, **ROWS, id_column="patient", **keys, **left_out)


def test_semicolons_and_decimal_commas_are_recognised_and_told(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("id;height;weight\na;1,5;60\nb;1,75;NA\nc;1,6;71\n")
    matrix = opened(tmp_path / "d.csv", **ROWS, id_column="id")
    np.testing.assert_array_equal(matrix.columns.read(0, 3), [[1.5, 1.75, 1.6], [60, np.nan, 71]])
    assert matrix.notes == (
        "read with semicolons between entries and a comma as the decimal point, as its first lines are written",
    )


def test_a_delimiter_in_the_configuration_is_not_second_guessed(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("a;b,c;d\n1;2,3;4\n")
    with pytest.raises(BadInput, match=r"column a;b|column c;d"):
        opened(tmp_path / "d.csv", **ROWS, delimiter=",")


def test_lines_that_are_samples_are_recognised_by_the_names_of_the_columns(path: Path) -> None:
    matrix = opened(path, missing="allow", id_column="patient", exclude=("ward", "seen"))
    assert matrix.columns.shape == (3, 4)
    assert matrix.notes == ("read with samples in rows, because patient is one of its columns",)
    path.write_text("age,chol\n" + "1,2\n" * 9)
    turned = opened(path, missing="allow")
    assert turned.columns.shape == (2, 9)
    assert "named like features (age, chol)" in turned.notes[0]


def test_numbered_columns_are_samples(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("s1,s2\n" + "1,2\n" * 9)
    matrix = opened(tmp_path / "d.csv")
    assert (matrix.columns.shape, matrix.ids, matrix.notes) == ((9, 2), ("s1", "s2"), ())


def test_a_wrong_orientation_is_refused_where_the_names_contradict_it(path: Path) -> None:
    with pytest.raises(BadInput, match="has patient as a column, not as a line") as caught:
        opened(path, orientation="features-in-rows", id_column="patient")
    assert 'orientation = "samples-in-rows"' in caught.value.hint


def test_an_array_is_turned_if_that_fits_the_file_of_names(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.arange(6.0).reshape(3, 2))
    (tmp_path / "names.txt").write_text("age\nchol\n")
    matrix = opened(tmp_path / "d.npy", feature_names=tmp_path / "names.txt", exclude=("age",))
    np.testing.assert_array_equal(matrix.columns.read(0, 3), [[1, 3, 5]])
    with pytest.raises(BadInput, match="2 names for the 3 features"):
        opened(tmp_path / "d.npy", feature_names=tmp_path / "names.txt", orientation="features-in-rows")


def test_samples_without_an_entry_are_left_out_and_ids_stay_aligned(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("id,a,b\nx,1,2\ny,NA,?\nz,3,\nw,,4\n")
    matrix = opened(tmp_path / "d.csv", **ROWS, id_column="id")
    facts = measure(matrix.columns, "d.csv")
    used = without_empty_samples(matrix, facts)
    assert facts.empty == (1,)
    assert used.ids == ("x", "z", "w")
    np.testing.assert_array_equal(used.columns.read(0, 3), [[1, 3, np.nan], [2, np.nan, 4]])
    np.testing.assert_array_equal(used.columns.read(1, 2), [[3], [np.nan]])


def test_a_run_with_fewer_features_leaves_out_the_samples_that_have_none_of_them(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("a,b\n1,2\n,\n3,\n,4\n")
    matrix = opened(tmp_path / "d.csv", **ROWS)
    used = without_empty_samples(matrix, measure(matrix.columns, "d.csv"))
    part = MatrixParts(used, has_missing=True).part(("b",), "d.csv")
    np.testing.assert_array_equal(part.columns.read(0, 2), [[2, 4]])
    assert [part.id_at(place) for place in (0, 1)] == ["line 2", "line 5"]
    np.testing.assert_array_equal(
        select_features(used, ("b", "a"), "d.csv").columns.read(1, 3), [[np.nan, 4], [3, np.nan]]
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [("id,a\nx,1\n,2\n", "no id in entry 2, column id"), ("id,a\nx,1\ny,2\nx,3\n", "same id in entries 1 and 3")],
)
def test_ids_must_be_there_and_unique(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "d.csv").write_text(text)
    with pytest.raises(BadInput, match=said):
        opened(tmp_path / "d.csv", **ROWS, id_column="id")


def test_a_workbook_is_read_like_the_same_csv(tmp_path: Path, path: Path) -> None:
    lines = [line.split(",") for line in CSV.splitlines()]
    write_workbook(tmp_path / "d.xlsx", lines)
    keys = {**ROWS, "id_column": "patient", "exclude": ("ward", "seen")}
    sheet, text = opened(tmp_path / "d.xlsx", **keys), opened(path, **keys)
    assert (sheet.features, sheet.ids) == (text.features, text.ids)
    np.testing.assert_array_equal(sheet.columns.read(0, 4), text.columns.read(0, 4))


def test_a_wrong_cell_of_a_workbook_is_named_as_the_spreadsheet_does(tmp_path: Path) -> None:
    lines = [line.split(",") for line in CSV.replace("250", "high").splitlines()]
    write_workbook(tmp_path / "d.xlsx", lines)
    with pytest.raises(BadInput, match="no number in cell C3"):
        opened(tmp_path / "d.xlsx", **ROWS, features=("age", "chol"))


def write_workbook(path: Path, lines: list[list[str]]) -> None:
    """A workbook with one sheet; entries that are numbers are stored as such."""
    rows = []
    for number, line in enumerate(lines, start=1):
        cells = [_cell(f"{chr(65 + place)}{number}", entry) for place, entry in enumerate(line)]
        rows.append(f'<row r="{number}">{"".join(cells)}</row>')
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    package = "http://schemas.openxmlformats.org/package/2006"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{package}/content-types"><Default Extension="rels" ContentType='
            '"application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/xl/workbook.xml" ContentType="{kind}.sheet.main+xml"/>'
            f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{kind}.worksheet+xml"/></Types>',
        )
        file.writestr("_rels/.rels", _relation(package, office, "officeDocument", "xl/workbook.xml"))
        file.writestr("xl/_rels/workbook.xml.rels", _relation(package, office, "worksheet", "worksheets/sheet1.xml"))
        file.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets><sheet name="heart" sheetId="1" r:id="r1"/></sheets>'
            "</workbook>",
        )
        file.writestr(
            "xl/worksheets/sheet1.xml",
            f'<worksheet xmlns="{main}"><sheetData>{"".join(rows)}</sheetData></worksheet>',
        )


def _relation(package: str, office: str, kind: str, target: str) -> str:
    return (
        f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" Type="{office}/{kind}" '
        f'Target="{target}"/></Relationships>'
    )


def _cell(place: str, entry: str) -> str:
    if entry.isdigit():
        return f'<c r="{place}"><v>{entry}</v></c>'
    return f'<c r="{place}" t="inlineStr"><is><t>{entry}</t></is></c>'


@pytest.mark.parametrize(("encoding", "said"), [("latin-1", "LATIN-1"), ("utf-16", "UTF-16"), ("utf-8-sig", "")])
def test_other_encodings_are_read_and_told(tmp_path: Path, encoding: str, said: str) -> None:
    (tmp_path / "data.csv").write_text("größe,gewicht\n1.5,70\n1.6,71\n1.7,72\n", encoding=encoding)
    matrix = open_matrix(DataTable(path=tmp_path / "data.csv", orientation="samples-in-rows"))
    assert matrix.features == ("größe", "gewicht")
    np.testing.assert_array_equal(matrix.columns.read(0, 3), [[1.5, 1.6, 1.7], [70, 71, 72]])
    assert [said in note for note in matrix.notes] == ([True] if said else [])


def test_a_compressed_table_is_read_and_a_workbook_under_another_name_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "data.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n3,4\n5,6\n"))
    matrix = open_matrix(DataTable(path=tmp_path / "data.csv.gz", orientation="samples-in-rows"))
    np.testing.assert_array_equal(matrix.columns.read(0, 3), [[1, 3, 5], [2, 4, 6]])
    (tmp_path / "sheet.csv").write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(BadInput, match="is an Excel workbook") as refused:
        open_matrix(DataTable(path=tmp_path / "sheet.csv"))
    assert "xlsx" in (refused.value.hint or "")


def test_categories_dates_and_bounds_are_numbers_and_what_is_not_listed_is_refused_without_being_shown(
    tmp_path: Path,
) -> None:
    path = tmp_path / "data.csv"
    path.write_text("stage,seen,crp\nII,1970-01-03,<0.5\nI,NA,3.1\n?,1970-02-01,0.7\n")
    keys: dict[str, Any] = {"path": path, "orientation": "samples-in-rows", "dates": ("seen",)}
    matrix = open_matrix(DataTable(**keys, categories={"stage": ("I", "II")}))
    read = matrix.columns.read(0, 3)
    np.testing.assert_array_equal(read, [[1, 0, np.nan], [2, np.nan, 31], [0.5, 3.1, 0.7]])
    assert any("<0.5" in note and "crp" in note for note in matrix.notes)
    with pytest.raises(BadInput, match="column stage a value that") as refused:
        open_matrix(DataTable(**keys, categories={"stage": ("I", "III")}))
    assert "II" not in str(refused.value)
    with pytest.raises(BadInput, match="has no column sage"):
        open_matrix(DataTable(**keys, categories={"sage": ("I", "II")}))


def test_words_without_order_are_a_feature_each(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("age,arm,cd4\n40,B,300\n50,?,310\n60,A,320\n")
    keys: dict[str, Any] = {"path": path, "orientation": "samples-in-rows", "one_hot": ("arm",)}
    matrix = open_matrix(DataTable(**keys, categories={"arm": ("A", "B", "C")}))
    assert matrix.features == ("age", "arm=A", "arm=B", "arm=C", "cd4")
    read = matrix.columns.read(0, 3)
    np.testing.assert_array_equal(read[1:4], [[0, np.nan, 1], [1, np.nan, 0], [0, np.nan, 0]])
    np.testing.assert_array_equal(read[[0, 4]], [[40, 50, 60], [300, 310, 320]])
    with pytest.raises(ValueError, match="list the words of arm in categories"):
        DataTable(**keys)
    path.write_text("age,arm,arm=A\n40,B,300\n50,A,310\n60,A,320\n")
    with pytest.raises(BadInput, match="two features named arm=A"):
        open_matrix(DataTable(**keys, categories={"arm": ("A", "B")}))


def test_samples_without_ids_are_called_by_their_line(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    for text, ids in (
        ("a,b\n1,2\n,\n5,6\n\n", ["line 2", "line 4"]),
        ("a,b\n1,2\n\n,\n5,6\n", ["0", "2"]),  # which line a reader shows is not known
    ):
        path.write_text(text)
        matrix = opened(path, **ROWS)
        used = without_empty_samples(matrix, measure(matrix.columns, path))
        assert list(used.all_ids()) == ids
    path.write_text("1,2\n3,4\n5,6\n")
    assert list(opened(path, **ROWS, header=False).all_ids()) == ["line 1", "line 2", "line 3"]


def test_a_column_of_repeated_words_says_that_lines_are_samples_whatever_the_names(tmp_path: Path) -> None:
    lines = ["id,arm,cd40,cd80", *(f"P{k},{'AB'[k % 2]},{300 + k},{900 + k}" for k in range(20))]
    (tmp_path / "d.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(BadInput, match="column id holds text") as refused:
        open_matrix(DataTable(path=tmp_path / "d.csv"))
    assert 'id_column = "id" and exclude = ["arm"]' in refused.value.hint
