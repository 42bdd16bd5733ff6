"""What the simulated worlds have in common."""

from collections.abc import Iterator

import pytest

from dcfpca.rpca.gradient import objective


@pytest.fixture(autouse=True, scope="module")
def rough_fits() -> Iterator[None]:
    """Worlds are about who is in which sum, not about fits; and no fit to updates multiplied by huge factors ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objective, "INNER_LIMIT", 5)
        yield
