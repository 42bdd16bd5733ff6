"""Store, state and results that daemons of 0.2.0 wrote before stages had names, under today's daemons.

Four runs had finished (secure, plain, plain with closing rounds, gradient), a secure and a plain one were open.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509

from aggregator.store import audit
from aggregator.store.database import open_database
from aggregator.store.examination import examine
from dcfpca.cli.run_results import verify_audit_log
from participant.results.reading import load_model, read_manifests
from participant.state.ledger import verify
from participant.state.store import Store
from tests.support.services.federation import Federation

KEPT = Path(__file__).parents[2] / "vectors" / "kept-services"
SECURE, CLOSED = "20261118-8d7e4659", "20261118-2773ea14"
OPEN = ("20261118-65a3d855", "20261118-b5aada00")
SITES = ("alpha", "beta", "gamma")


def restored(script: Path, path: Path) -> Path:
    with sqlite3.connect(path) as db:
        db.executescript(script.read_text())
    db.close()
    return path


def restored_state(directory: Path) -> Path:
    shutil.copytree(KEPT / "state", directory, ignore=shutil.ignore_patterns("*.sql"))
    restored(KEPT / "state" / "state.sql", directory / "state.db")
    return directory


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    """The services of today over what the earlier ones left; beta and gamma have empty directories."""
    restored(KEPT / "store.sql", tmp_path / "store.db")
    with Federation(tmp_path) as made:
        made.start_aggregator()
        for name in SITES:
            made.add_site(name, np.load(KEPT / "data.npy"))
        home = tmp_path / "sites" / "alpha"
        restored_state(home / "state")
        shutil.copytree(KEPT / "results", home / "results")
        yield made


def test_every_entry_of_the_audit_log_is_still_signed_and_no_run_is_called_damaged(tmp_path: Path) -> None:
    store = open_database(restored(KEPT / "store.sql", tmp_path / "store.db"))
    authority = x509.load_pem_x509_certificate((KEPT / "ca.crt").read_bytes())
    entries = audit.entries(store)
    assert verify_audit_log(entries, [authority]) == len(entries) > 0
    findings = examine(store)
    assert (findings.runs, findings.file, findings.damaged) == (6, (), ())
    store.close()


def test_a_site_keeps_its_ledger_its_results_and_the_cohorts_that_the_differencing_rule_counts(tmp_path: Path) -> None:
    store = Store(restored_state(tmp_path / "state"))
    entries = list(store.ledger.entries())
    verify(entries)
    assert entries
    assert {run.run for run in store.past_runs("next")} >= {SECURE}
    store.close()
    assert {one["run"] for one in read_manifests(KEPT / "results")} == {SECURE, CLOSED}
    for run_id in (SECURE, CLOSED):
        U = load_model(KEPT / "results", run_id)
        np.testing.assert_allclose(U.T @ U, np.eye(2), atol=1e-12)


@pytest.mark.slow
def test_today_s_daemons_show_finished_runs_and_what_to_do_with_open_ones_and_begin_new_ones(
    federation: Federation,
) -> None:
    listed = {view.run_id: view for view in federation.operator.runs()}
    assert [view.status for view in listed.values()].count("finished") == 4
    for run_id in (SECURE, CLOSED):
        view = federation.operator.run(run_id)
        assert [one.participant for one in view.enrolled] == list(SITES)
        assert [done.round for done in view.rounds] == list(range(len(view.rounds))) != []
        assert "its model is U.npy in the results of every site" in view.reason
    for run_id in OPEN:
        view = listed[run_id]
        assert view.status == "paused"
        assert "the format 'subspace/1' and not 'subspace/5'" in view.reason
        assert "run what wrote it, another build of 0.2.0, to finish it (`dcfpca run finish`) while" in view.reason
        assert "or delete it (`dcfpca run delete`) and propose it again" in view.reason
        assert "damaged" not in view.reason
    federation.start_sites(SITES)
    assert {line["run"] for line in federation.processes["alpha"].events() if line["action"] == "run_not_resumed"} == {
        *OPEN
    }
    keys = {"rank": 2, "rounds": 4, "closing_rounds": False, "participants": SITES}
    assert federation.run(**keys).status == "finished"
    for run_id in OPEN:
        federation.operator.delete(run_id, "upgraded")
    report = str(federation.root / "site.html")
    for words in (("results",), ("results", "--run", CLOSED, "--report", report), ("ledger", "--verify")):
        told = federation.site_command("alpha", *words)
        assert told.returncode == 0, told.stderr
