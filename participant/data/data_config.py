"""The `[data]` table of the participant's configuration: where the matrix is and how to read it."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from dcfpca.config_file import FilePath, Section

Orientation = Literal["features-in-rows", "samples-in-rows"]
MISSING_MARKERS = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "-nan", "#N/A")


Numbers = tuple[float, ...]


class RulesTable(Section):
    """What values may be, by the names of features or patterns (`"cd4*"`); a breach is a finding, marked as a rule."""

    missing: dict[str, Numbers] = Field(
        {}, description="Codes that mean: not observed, such as { cd4 = [9999, -1] }; they are missing before the fit."
    )
    range: dict[str, tuple[float, float]] = Field({}, description="Least and greatest, such as { age = [0, 120] }.")
    codes: dict[str, Numbers] = Field({}, description="The only values, such as { sex = [1, 2] }.")
    non_negative: tuple[str, ...] = Field((), description='Features that are never below 0, such as ["cd4*"].')
    ordered: tuple[tuple[str, str], ...] = Field(
        (), description='Pairs of which the first is never above the second, such as [["diastolic", "systolic"]].'
    )


class DataTable(Section):
    """The local matrix: a file, a folder of part files, or what a query returns."""

    path: FilePath | None = Field(None, description="The file, or a folder whose files are parts of one matrix.")
    format: str = Field("", description="How to read it; empty: by the file's ending.")
    orientation: Orientation | Literal[""] = Field(
        "",
        description="features-in-rows: a column is a sample. samples-in-rows: a line is a sample. Empty: the names of "
        "a table "
        "decide, otherwise features-in-rows.",
    )
    missing: Literal["allow", "refuse"] = Field("refuse", description="Whether NaN entries count as unobserved.")
    id_column: str = Field("", description="The column of a samples-in-rows table that holds the samples' ids.")
    person_column: str = Field(
        "",
        description="The column of a samples-in-rows table that says whose each sample is, where a person has several:"
        " differential privacy then protects persons.",
    )
    persons: FilePath | None = Field(
        None, description="A text file with one line per sample that says the same, for other formats."
    )
    features: tuple[str, ...] = Field(
        (), description='Which features to use, by name or pattern ("lab_*") and in this order; empty: all.'
    )
    exclude: tuple[str, ...] = Field((), description="Which features to leave out, by name or pattern.")
    feature_names: FilePath | None = Field(
        None, description="A text file with one feature name per line, for formats that carry no names."
    )
    feature_column: str = Field("", description="The column of a features-in-rows table that holds the feature names.")
    dataset: str = Field(
        "",
        description="The array inside an HDF5, Zarr or npz file, or the sheet of an Excel file; empty: the only one.",
    )
    delimiter: str = Field("", max_length=1, description="Delimiter of a CSV file; empty: as its first lines show.")
    header: bool = Field(True, description="Whether the first line of a CSV file names its columns.")
    decimal: str = Field("", max_length=1, description="Decimal point of CSV numbers; empty: as the first lines show.")
    missing_markers: tuple[str, ...] = Field(
        MISSING_MARKERS, description="Entries of CSV and Excel that mean: not observed."
    )
    categories: dict[str, tuple[str, ...]] = Field(
        {}, description='Columns of words and their order, such as { stage = ["I", "II", "III"] }: 0, 1, 2.'
    )
    one_hot: tuple[str, ...] = Field(
        (),
        description="Those of `categories` whose words have no order; each word becomes a feature of 0 and 1, such as "
        "`arm=A`.",
    )
    dates: tuple[str, ...] = Field((), description="Columns of dates (2024-01-31), read as days since 1970.")
    query: str = Field("", description="SQL whose rows are samples and whose columns are features; give an ORDER BY.")
    url: str = Field("", repr=False, description="SQLAlchemy URL of a database server; empty: DuckDB on local files.")

    _rules: RulesTable = PrivateAttr(default_factory=RulesTable)

    @property
    def rules(self) -> RulesTable:
        """`[rules]`: a table of its own in the file, but whoever reads the data reads it by these."""
        return self._rules

    def take_rules(self, rules: RulesTable) -> None:
        """Have the data read by these rules; called while the configuration is read."""
        self._rules = rules

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if self.path is None and not self.query:
            raise ValueError("path: say where the matrix is, or give a query")
        if self.url and not self.query:
            raise ValueError("query: a database needs one")
        if self.person_column and self.persons:
            raise ValueError("person_column, persons: give one of them, not both")
        if unlisted := [name for name in self.one_hot if name not in self.categories]:
            raise ValueError(f"one_hot: list the words of {unlisted[0]} in categories, the same at every site")
        if len(set(self.features)) != len(self.features):
            raise ValueError("features: a name is given twice")
        return self

    @property
    def origin(self) -> str:
        """What sentences call it; no part of a URL, which may hold a password."""
        if not self.query:
            return str(self.path)
        return "of [data] query"
