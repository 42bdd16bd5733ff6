"""Rules of a site: codes that mean missing are gone before the fit, breaches are findings, `check` proposes rules."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from dcfpca.errors import BadInput
from dcfpca.rpca.column_blocks import ArrayColumns
from participant.data.data_config import DataTable, RulesTable
from participant.data.facts import profile_features
from participant.data.matrix import Matrix
from participant.data.readers import open_matrix
from participant.data.rules import Breach, breaches
from participant.data.suggested_rules import proposed_rules
from participant.findings.worklist import read_worklist
from participant.results.flag_tables import write_rule_table

NAMES = ("id", "age", "cd4", "sex", "dia", "sys")
LINES = [
    ("a", 30, 300, 1, 80, 120),
    ("b", 31, 9999, 2, 80, 121),
    ("c", -1, 320, 1, 125, 110),
    ("d", 200, 330, 2, 78, 118),
    ("e", 34, 310, 3, 82, ""),
    ("f", 33, -5, 2, 82, 122),
]


def table(folder: Path, rules: RulesTable) -> DataTable:
    text = "\n".join(",".join(map(str, line)) for line in (NAMES, *LINES))
    (folder / "data.csv").write_text(text + "\n")
    made = DataTable(path=folder / "data.csv", id_column="id", missing="allow", orientation="samples-in-rows")
    made.take_rules(rules)
    return made


def read(folder: Path, rules: RulesTable) -> Matrix:
    return open_matrix(table(folder, rules))


def test_a_code_that_means_missing_is_missing_and_counted(tmp_path: Path) -> None:
    matrix = read(tmp_path, RulesTable(missing={"cd4": (9999.0,), "age": (-1.0,)}))
    M = matrix.columns.read(0, 6)
    assert np.isnan(M[1, 1])
    assert np.isnan(M[0, 2])
    assert np.count_nonzero(np.isnan(M)) == 3  # and the empty cell
    assert "codes that mean missing, by [rules]: age (1), cd4 (1)" in matrix.notes


def test_every_breach_is_found_and_nothing_else(tmp_path: Path) -> None:
    rules = RulesTable(
        missing={"cd4": (9999.0,), "age": (-1.0,)},
        range={"age": (0.0, 120.0)},
        codes={"sex": (1.0, 2.0)},
        non_negative=("cd*",),
        ordered=(("dia", "sys"),),
    )
    matrix = read(tmp_path, rules)
    assert set(breaches(matrix.columns, matrix.features, matrix.rules)) == {
        Breach(3, "age", 200.0, "outside 0 … 120"),
        Breach(4, "sex", 3.0, "none of 1, 2"),
        Breach(5, "cd4", -5.0, "negative"),
        Breach(2, "dia", 125.0, "above sys"),
    }


def test_a_rule_about_a_feature_that_is_not_there_is_refused_with_the_closest_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no feature cd40, which \[rules\] names") as refused:
        read(tmp_path, RulesTable(missing={"cd40": (9999.0,)}))
    assert "cd4" in (refused.value.hint or "")


def test_the_proposed_rules_are_toml_that_the_configuration_takes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weight, coin = np.round(rng.normal(75, 10, 200), 1), rng.integers(1, 3, 200).astype(float)
    weight[[3, 50]], coin[7] = 9999.0, coin[7]
    temperature = np.round(rng.normal(0, 10, 200), 1)
    lines = ["weight,sex,temperature", *(f"{a},{b:g},{c}" for a, b, c in zip(weight, coin, temperature, strict=True))]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    matrix = open_matrix(DataTable(path=tmp_path / "data.csv", orientation="samples-in-rows"))
    proposed = proposed_for(matrix)
    assert proposed.missing == {"weight": (9999.0,)}
    assert proposed.codes == {"sex": (1.0, 2.0)}
    assert proposed.non_negative == ("weight",)  # and not the temperature
    assert not proposed.range
    assert not proposed.ordered


def proposed_for(matrix: Matrix) -> RulesTable:
    values = matrix.columns.read(0, matrix.columns.shape[1])
    text = "\n".join(proposed_rules(list(profile_features(matrix)), values))
    return RulesTable.model_validate(tomllib.loads(text)["rules"])


def test_scales_and_orders_are_proposed_only_where_chance_does_not_make_them() -> None:
    rng = np.random.default_rng(1)
    systolic = np.round(rng.normal(125, 18, 1200))
    diastolic = np.round(systolic - np.maximum(rng.normal(45, 10, 1200), 5))
    systolic[5], diastolic[5] = diastolic[5], systolic[5]  # an error does not hide the order
    mean = np.round((systolic + diastolic) / 2, 1)
    percent = np.clip(np.round(rng.normal(60, 40, 1200)), 0, 100)
    pulse = np.round(rng.normal(75, 8, 1200))  # overlaps with both, and has no order
    tall = np.round(rng.normal(170, 4, 1200))  # nearly always above: by its level alone
    features = ("systolic", "diastolic", "mean", "percent", "pulse", "tall")
    columns = ArrayColumns(np.stack([systolic, diastolic, mean, percent, pulse, tall]))
    proposed = proposed_for(Matrix(columns, features))
    assert proposed.range == {"percent": (0.0, 100.0)}
    assert set(proposed.ordered) == {("diastolic", "mean"), ("mean", "systolic")}
    assert "percent" not in proposed.non_negative


def test_a_breach_is_in_the_worklist_marked_as_a_rule_and_a_flagged_one_says_both(tmp_path: Path) -> None:
    outliers = "id,feature,observed,expected,z,exceeded_by,values,cause,corrected\n"
    outliers += "a,cd4,-300,310,-40,1,600,the sign,300\nb,age,90,40,6,1,600,,\n"
    (tmp_path / "outliers.csv").write_text(outliers)
    (tmp_path / "samples.csv").write_text("id,p_value,flagged,flagged_entries,largest_z\n")
    found = [Breach(0, "cd4", -300.0, "negative"), Breach(2, "sex", 3.0, "none of 1, 2")]
    write_rule_table(tmp_path, found, ["a", "b", "c"])
    rule, both, model = read_worklist(tmp_path)  # what breaks a rule comes first
    assert both.story == "breaks a rule: negative; the sign: 300 was meant"
    assert (rule.sample, rule.story, rule.place.value) == ("c", "breaks a rule: none of 1, 2", "3")
    assert (model.sample, model.story) == ("b", "")
