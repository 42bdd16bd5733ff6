"""The documented path of a round is the one that real processes take, and it does not grow unnoticed."""

import pytest

from docs.round_path import PAGE, documented, traced_paths

pytestmark = pytest.mark.slow
GROWTH = 1.1
# Traces of one tree differ by a hop, and a tenth of four hops is less than one.
SLACK = {"thread hops": 1}


@pytest.mark.timeout(240)
def test_the_path_of_a_round_is_as_documented_and_has_not_grown() -> None:
    page = PAGE.read_text(encoding="utf-8")
    figures = documented(page)

    for where, path in traced_paths().items():
        for name, value in path.figures().items():
            most = GROWTH * figures[where][name] + SLACK.get(name, 0)
            assert value <= most, f"{where}: {value} {name}, documented {figures[where][name]}"
        unknown = [file for file in path.files if f"| `{file}` |" not in page]
        assert len(unknown) <= (GROWTH - 1.0) * len(path.files), f"not on the page, run `make docs`: {unknown}"
