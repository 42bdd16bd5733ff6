"""The site's report in a real browser: it fits a phone, is legible in the dark, prints, and can be searched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from participant.commands.results import build_report
from tests.support.inputs.site_report import manifest, site_with
from tests.support.surroundings.browser import CHROMIUM, WHY_NOT, Browser, chromium

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHROMIUM, reason=WHY_NOT)]
SHOWN = "[...document.querySelectorAll('.card h3')].filter((h) => h.offsetHeight).map((h) => h.innerText)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Errors in three samples: in lab a of sample 4, lab b of sample 11, lab c of sample 23."""
    root, rng = tmp_path_factory.mktemp("site"), np.random.default_rng(0)
    L, S = np.outer(rng.normal(size=13), rng.normal(size=40)), np.zeros((13, 40))
    S[0, 4], S[1, 11], S[2, 23] = 9.0, -8.0, 7.0
    config = site_with(root, L + S + 0.1 * rng.normal(size=L.shape), L, S, 'feature_names = "names.txt"')
    (root / "site.html").write_text(build_report(config, manifest()))
    return root / "site.html"


def test_the_search_box_leaves_the_samples_that_have_all_words(browser: Browser, report: Path) -> None:
    page = browser.page(report.as_uri())
    assert page.evaluate(SHOWN) == ["sample 4", "sample 11", "sample 23"]
    page.evaluate("search.value = 'LAB b'; search.dispatchEvent(new Event('input'))")
    assert page.evaluate(SHOWN) == ["sample 11"]
    page.evaluate("search.value = ''; search.dispatchEvent(new Event('input'))")
    assert len(page.evaluate(SHOWN)) == 3
    page.evaluate("only.click()")
    assert page.evaluate(SHOWN) == []  # this run has no null, by which samples would be flagged


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_cut_off_and_every_row_of_a_small_matrix_has_its_name(
    browser: Browser, report: Path, width: int, dark: bool
) -> None:
    page = browser.page(report.as_uri(), width, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    cut = "[...document.querySelectorAll('.card *')].filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth)"
    assert page.evaluate(f"{cut}.length") == 0
    rows = "[...document.querySelectorAll('.map')].map((m) => Math.abs(m.querySelector('ul').offsetHeight - "
    assert max(page.evaluate(f"{rows}m.querySelector('img').offsetHeight))")) <= 4
