"""A daemon that names no revocation list gets the consortium's through the aggregator, and its doctor looks at it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from participant.peer_verifier import FILE
from tests.support.services.federation import Federation


def test_a_site_keeps_the_list_that_the_aggregator_has(tmp_path: Path) -> None:
    with Federation(tmp_path) as made:
        shutil.copy(made.authority.crl_path, tmp_path / "lists.pem")
        made._server = {"crl": str(tmp_path / "lists.pem")}
        made.start_aggregator()
        made.add_site("alpha", np.ones((4, 30)))
        made.start_sites(["alpha"])
        said = made.processes["alpha"].await_action("revocation_list_kept", after=0)
        assert Path(said["file"]).name == FILE
        assert Path(said["file"]).read_bytes() == made.authority.crl_path.read_bytes()
