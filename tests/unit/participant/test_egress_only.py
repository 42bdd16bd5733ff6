"""One door: only `egress` reaches the calls that send, and nothing of the data or the keys shows anywhere else."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from dcfpca.errors import BadInput
from dcfpca.identity import Role
from dcfpca.pki.ca_directory import create_authority
from dcfpca.pki.credential_files import issue_credentials
from dcfpca.rpca.method import TensorMessage
from dcfpca.v1 import rounds_pb2
from participant.config import load_config
from participant.data.data_config import DataTable
from participant.data.readers import open_matrix
from participant.egress import Egress
from participant.link import Link
from participant.link.calls import METHODS
from participant.local_site import open_site
from participant.session.events import LocalStep
from tests.support.paths import ROOT
from tests.support.services.federation import to_toml

PACKAGE = ROOT / "participant"
DOOR, LINK = PACKAGE / "egress.py", PACKAGE / "link"
# What the link does besides sending: it listens, it fetches what the aggregator has, it opens and closes.
LISTENING = {"subscribe", "fetch", "fetch_sum", "revocation_list", "renew", "redial", "close"} | {
    "serving_elsewhere",  # asks the health service of the other addresses, with nothing in the question
    "move_to",
}
SENDING = {name for name, value in vars(Link).items() if callable(value) and not name.startswith("_")} - LISTENING
# Modules that can carry bytes elsewhere, and who may have them: databases and clusters of the site's own choosing.
CARRIERS = {"grpc", "socket", "ssl", "http", "urllib.request", "requests", "smtplib", "ftplib", "asyncio.streams"}


@cache
def modules() -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(PACKAGE.rglob("*.py"))]


def imported(tree: ast.Module) -> set[str]:
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return names | {f"{node.module}.{alias.name}" for node in froms for alias in node.names}


def is_link(node: ast.expr) -> bool:
    word = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return word.lstrip("_") == "link"


def test_every_call_that_sends_is_made_by_egress_and_by_nothing_else() -> None:
    assert {"send", "upload", "export", "refuse_export"} == SENDING
    callers = {
        (path.relative_to(PACKAGE).as_posix(), node.attr)
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in SENDING and is_link(node.value)
    }
    assert callers == {("egress.py", name) for name in SENDING}


@pytest.mark.parametrize("carrier", sorted(CARRIERS))
def test_nothing_but_the_link_imports_what_could_carry_bytes_elsewhere(carrier: str) -> None:
    guilty = {
        path.relative_to(PACKAGE).as_posix()
        for path, tree in modules()
        if not path.is_relative_to(LINK) and any((name + ".").startswith(carrier + ".") for name in imported(tree))
    }
    assert not guilty


def test_only_the_console_serves_pages_and_only_on_loopback() -> None:
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path, tree in modules()
        if any(name.startswith(("starlette", "uvicorn")) for name in imported(tree))
    }
    assert users == {"console/app.py", "console/gate.py"}
    assert (PACKAGE / "console" / "app.py").read_text().count('host="127.0.0.1"') == 1


def test_the_stubs_are_used_in_the_link_alone() -> None:
    users = {path for path, tree in modules() if any("pb2_grpc" in name for name in imported(tree))}
    assert users == {LINK / "calls.py"}


def test_every_call_of_the_service_that_carries_something_has_its_way_through_the_door() -> None:
    """A new call of RoundService needs a method of the link, so a method of egress, so a line in the ledger."""
    calls = {method.name for method in rounds_pb2.DESCRIPTOR.services_by_name["RoundService"].methods}
    source = (LINK / "calls.py").read_text(encoding="utf-8")
    assert {name for name in calls if name not in source} == set()
    door = {name for name, value in vars(Egress).items() if callable(value) and not name.startswith("_")}
    # Three messages of a secure run share one method; opening the stream is recorded by another.
    assert door == {"subscribed", "respond", "misfit", "tell", "submit", "export", "report", "refuse_export", "notify"}
    reading = {"Subscribe", "FetchConsensus", "FetchSum", "FetchRevocationList", "ResumeUpload"}
    # Besides what `send` carries: an update has two calls, in pieces and whole; files and refusals share one.
    assert calls - reading - set(METHODS.values()) == {"SubmitUpdate", "SubmitWhole", "ExportReconstruction"}


def test_no_number_of_the_site_shows_in_what_a_log_or_an_error_could_quote(tmp_path: Path) -> None:
    telling = np.full((3, 4), 12345.678)
    step = LocalStep(1, bytes(32), telling.ravel(), {"V": telling})
    assert "12345" not in repr([step, TensorMessage(telling, telling[0])])
    authority = create_authority(tmp_path / "ca", "acme", datetime.now(UTC))
    files = issue_credentials(authority, Role.PARTICIPANT, "ann", tmp_path / "ann", now=datetime.now(UTC))
    np.save(tmp_path / "data.npy", telling)
    tables = {
        "aggregator": {"address": "localhost:1"},
        "identity": {"ca": str(files.ca), "cert": str(files.certificate), "key": str(files.key)},
        "data": {"path": "data.npy"},
        "state": {"dir": "state"},
        "results": {"dir": "results"},
    }
    (tmp_path / "participant.toml").write_text(to_toml(tables))
    site = open_site(load_config(tmp_path / "participant.toml"))
    secret = files.key.read_text().splitlines()[1]
    assert "12345" not in repr(site)
    assert secret not in repr(site)
    assert secret[:16] not in repr(site.credentials) + repr(site.peer_verifier) + repr(authority)


def test_a_password_in_a_database_url_shows_nowhere() -> None:
    table = DataTable(query="SELECT 1", url="postgresql://me:geheim@host/db")
    assert "geheim" not in repr(table) + table.origin
    with pytest.raises(BadInput) as caught:
        open_matrix(DataTable(query="SELECT 1", url="postgresql://me:geheim@host:po rt/db"), Path("spool"))
    assert "geheim" not in str(caught.value) + caught.value.hint
