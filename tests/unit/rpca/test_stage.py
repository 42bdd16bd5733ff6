"""No stage lacks a check; every honest sum keeps the laws of its stage, also in fixed point; and each broken one is
named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from dcfpca.rpca.column_blocks import split
from dcfpca.rpca.method import Consensus, FloatArray, Layout, TensorMessage, Total
from dcfpca.rpca.stage import Site, Stage
from dcfpca.secagg import fixed_point
from dcfpca.secagg.fixed_point import fits, lifted, next_exponents
from dcfpca.spec import parse_spec
from dcfpca.terms import Terms

HOOKS = ("answer", "merged", "advance", "plausible", "difference", "conserved")
NAMES = tuple(f"f{k}" for k in range(16))
SPECS: dict[str, dict[str, Any]] = {
    "subspace": {"rank": 3},
    "bound": {"max_rank": 6, "closing_rounds": False},
    "auto": {"scaling": "robust"},
    "counted": {"missing_features": "allow", "max_rank": 4},
    "gradient": {"rank": 3, "method": "gradient", "rounds": 15},
    "gradient alone": {"rank": 3, "method": "gradient", "rounds": 15, "closing_rounds": False, "scaling": "robust"},
}


@pytest.mark.parametrize("lacking", HOOKS)
def test_a_stage_without_one_of_its_hooks_cannot_be_constructed(lacking: str) -> None:
    hooks = {name: lambda *_: "" for name in HOOKS if name != lacking}
    with pytest.raises(TypeError, match=lacking):
        type("Lacking", (Stage,), hooks)("lacking", down=Layout(0, 0), up=Layout(0, 0))
    whole = type("Whole", (Stage,), {**hooks, lacking: lambda *_: ""})
    with pytest.raises(TypeError, match="'down' and 'up'"):
        whole("lacking")


@pytest.mark.parametrize("name", SPECS)
def test_every_stage_may_be_followed_by_stages_that_there_are(name: str) -> None:
    method = Terms.of(spec_of(name)).method
    stages = [stage.name for stage in method.stages]
    assert len(set(stages)) == len(stages)
    assert all(set(stage.then) <= set(stages) for stage in method.stages)


def spec_of(name: str, precision: int = 64) -> Any:
    return parse_spec({"features": NAMES, "precision": precision, **SPECS[name]})


def table(noise: float) -> FloatArray:
    """Three directions, features in units that differ by a million, gross errors, gaps, one constant and one binary
    feature."""
    rng = np.random.default_rng(4)
    M = rng.standard_normal((16, 3)) @ rng.standard_normal((3, 260)) + noise * rng.standard_normal((16, 260))
    M = np.where(rng.random(M.shape) < 0.04, 25.0 * rng.standard_normal(M.shape), M)
    M[5], M[9] = 7.0, M[9] > 0.0
    M[rng.random(M.shape) < 0.06] = np.nan
    return np.asarray(M * np.geomspace(1e3, 1e-3, 16)[:, None])


def in_fixed_point(terms: Terms, told: Consensus, sites: Sequence[Site], exponents: tuple[int, ...]) -> Total:
    """The sum as a secure sum opens it, and how far it may be off."""
    layout, bits = terms.blocks[told.stage], terms.spec.precision
    vectors = [site.answer(told).flat() for site in sites]
    while not all(fits(vector, layout, exponents) for vector in vectors):
        exponents = lifted(layout, exponents, 1, bits)
    total = np.sum([fixed_point.encode(vector, layout, exponents, len(sites), bits) for vector in vectors], axis=0)
    numbers = fixed_point.decode(total, layout, exponents, len(sites), bits)
    message = TensorMessage.unflatten(terms.method.stage(told.stage).up, numbers)
    rounding = fixed_point.rounding_of(terms.method.stage(told.stage).up, exponents, len(sites), bits)
    return Total(message, len(sites), rounding)


@cache
def played(name: str, noise: float, precision: int) -> tuple[Terms, list[tuple[Consensus, Total]]]:
    """Every round of a run over secure sums of so many bits."""
    terms = Terms.of(spec_of(name, precision))
    sites = [terms.method.site(own) for own in split(table(noise), (90, 100, 70))]
    told, rounds, exponents = terms.method.begin(), [], terms.blocks[terms.method.stages[0].name].first_exponents
    while told.outcome is None:
        total = in_fixed_point(terms, told, sites, exponents)
        rounds.append((told, total))
        after = terms.method.advance(told, total)
        same = terms.blocks[after.stage] == terms.blocks[told.stage]
        layout = terms.blocks[after.stage]
        ended = exponents if same else layout.first_exponents
        exponents = next_exponents(layout, ended, total.sums.flat(), precision) if same else ended
        told = after
    return terms, rounds


@pytest.mark.parametrize("precision", [64, 32])
@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize("name", SPECS)
def test_every_sum_of_an_honest_run_keeps_the_laws_of_its_stage(name: str, noise: float, precision: int) -> None:
    terms, rounds = played(name, noise, precision)
    for told, total in rounds:
        assert terms.method.conserved(told, total) == "", (told.round, told.stage)


def scaled_counts(factor: float) -> Callable[[Total], Total]:
    """One member adds a share to all counts, of which there are as many as entries."""
    return lambda total: with_tensor(total, factor * total.sums.tensor)


def with_tensor(total: Total, tensor: FloatArray) -> Total:
    return replace(total, sums=TensorMessage(tensor, total.sums.scalars))


def with_scalar(place: int, value: float, *, times: bool = False) -> Callable[[Total], Total]:
    def change(total: Total) -> Total:
        scalars = total.sums.scalars.copy()
        scalars[place] = scalars[place] * value if times else scalars[place] + value
        return replace(total, sums=TensorMessage(total.sums.tensor, scalars))

    return change


def with_entry(row: int, column: int, value: float) -> Callable[[Total], Total]:
    def change(total: Total) -> Total:
        tensor = total.sums.tensor.copy()
        tensor[row, column] += value
        return with_tensor(total, tensor)

    return change


LIES: list[tuple[str, str, Callable[[Total], Total], str]] = [
    ("counted", "count", with_entry(0, 0, 9.0), "larger than it can be"),
    ("counted", "count", with_entry(0, 0, -0.5), "not a whole number"),
    ("auto", "median", with_entry(2, 3, -200.0), "negative"),
    ("auto", "deviation", with_entry(2, 3, 5.0), "do not add up"),
    ("subspace", "open", with_scalar(0, -259.0), "fewer columns than sites"),
    ("subspace", "open", with_scalar(130, 1e6), "more entries"),
    ("subspace", "fit", with_scalar(0, 0.1), "columns that they had"),
    ("subspace", "fit", with_scalar(2, 3.0), "more residuals"),
    ("subspace", "fit", scaled_counts(-1.0), "squares along U is negative"),
    ("gradient", "fit", with_scalar(0, 2.0, times=True), "columns that they had"),
    ("gradient", "fit", with_scalar(2, -1e3), "squares of V is negative"),
    ("gradient", "fit", with_scalar(1, 7.0), "larger than it can be"),
    ("subspace", "refine", with_entry(4, 30, 2.0 / 260.0), "not of the same entries"),
    ("subspace", "refine", with_entry(4, 3, -9.0), "pull of a feature's entries"),
    ("subspace", "refine", with_entry(4, 0, 9.0), "pull of a feature along a direction"),
    ("subspace", "refine", with_entry(4, 4, 9.0), "not between zero and one"),
    ("subspace", "refine", with_scalar(5, -9.0), "squares of coefficients is negative"),
    ("subspace", "refine", with_scalar(-1, 0.5 / 260.0), "not a whole number"),
    ("subspace", "refine", with_scalar(-1, 3.0), "larger than it can be"),
    ("subspace", "refine", with_scalar(-1, 5.0 / 260.0), "along a direction are not of all columns"),
    ("subspace", "validate", with_scalar(0, 99.0), "more entries"),
    ("subspace", "validate", with_scalar(3, 99.0), "above the cap of errors"),
    ("subspace", "null", scaled_counts(1.3), "not a whole number"),
    ("subspace", "null", scaled_counts(31.0), "more entries than there are columns"),
    ("auto", "null", with_entry(3, 20, 1.0 / 260.0), "do not add up"),
    ("subspace", "null", with_scalar(0, 0.3), "columns that they had"),
    ("subspace", "null", with_scalar(30, 0.3), "distances are not those of all columns"),
    ("subspace", "null", with_scalar(4, -9.0), "do not have a direction"),
    ("subspace", "null", with_scalar(-90, 13.0 / 260.0), "how odd columns are"),
]


@pytest.mark.parametrize(("name", "stage", "lie", "reason"), LIES)
def test_a_sum_that_no_true_updates_have_is_named(
    name: str, stage: str, lie: Callable[[Total], Total], reason: str
) -> None:
    terms, rounds = played(name, 0.2, 64)
    told, total = [one for one in rounds if one[0].stage == stage][-1]
    assert terms.method.conserved(told, total) == ""
    found = terms.method.conserved(told, lie(total))
    assert found
    assert reason in found
