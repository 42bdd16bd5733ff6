"""A site dies, or its disk fails, at every write of a private run: it says the same again, and the run ends well."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing

import pytest

from dcfpca.rpca.synthetic import Recipe, generate
from participant.state.ledger import PRIVACY_CHARGE, Ledger
from tests.support.services.federation import Federation, running_federation
from tests.support.services.mortal_site import DIES_AT, DIES_OF, FAILED
from tests.support.services.processes import PATIENCE, Process

NAMES = ("alpha", "beta", "gamma")
MORTAL = "alpha"
SPEC = {
    "rank": 2,
    "participants": NAMES,
    "round_seconds": 30.0,
    "privacy": {"epsilon": 5.0, "rounds": 2, "max_error": 1.0, "clip": 1.0},
}
LONG = bool(os.environ.get("DCFPCA_LONG"))
STRIDE = 1 if LONG else 9
LEAST_WRITES = 20
MOMENT = 4.0
"""How long a site whose disk failed once may take to go on by itself, before it is started again."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900 if LONG else 240)]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    problem = generate(Recipe(rows=12, columns=900, rank=2, sparsity=0.05, counts=(300, 300, 300)), 3)
    sites = {name: own.array for name, own in zip(NAMES, problem.sites(), strict=True)}
    with running_federation(tmp_path_factory.mktemp("federation"), sites) as made:
        yield made


def start_mortal(federation: Federation, last: int, error: int) -> Process:
    config = federation.root / "sites" / MORTAL / "participant.toml"
    os.environ |= {DIES_AT: str(last), DIES_OF: str(error)}
    try:
        process = Process(
            "tests.support.services.mortal_site", ["serve", "--config", str(config)], federation.root / f"{MORTAL}.log"
        )
    finally:
        del os.environ[DIES_AT], os.environ[DIES_OF]
    federation.processes[MORTAL] = process
    return process


def check_undisturbed(federation: Federation, run_id: str, alone: Process) -> None:
    """Every site has the same result; the mortal one was charged once, and sent one update a round."""
    found = [federation.result(name, run_id) for name in NAMES if name != MORTAL]
    where = federation.root / "sites" / MORTAL / "results" / run_id / "manifest.json"
    if not where.exists():
        alone.await_action("results_written", run=run_id)
    manifests = [json.loads(text) for text in (where.read_text(), *(one.manifest for one in found))]
    assert len({manifest["files"]["U.npy"]["sha256"] for manifest in manifests}) == 1
    with closing(sqlite3.connect(federation.root / "sites" / MORTAL / "state" / "state.db")) as database:
        entries = [entry.item for entry in Ledger(database).entries(run_id)]
    assert [item.kind for item in entries].count(PRIVACY_CHARGE) == 1
    sent = defaultdict[int | None, set[bytes]](set)
    for item in entries:
        if item.kind.endswith("update"):
            sent[item.round].add(item.sha256)
    assert sorted(sent) == [0, 1, 2]  # type: ignore[type-var]
    assert all(len(digests) == 1 for digests in sent.values()), sent


@pytest.mark.parametrize("error", [0, errno.EIO, errno.ENOSPC], ids=["killed", "EIO", "ENOSPC"])
def test_a_site_that_fails_at_any_of_its_writes_says_the_same_and_loses_nothing(
    federation: Federation, error: int
) -> None:
    for last in range(1, 400, STRIDE):
        federation.processes[MORTAL].stop()
        mortal = start_mortal(federation, last, error)
        run_id = federation.propose(**SPEC)
        await_death(federation, run_id, mortal)
        over = mortal.is_alive and FAILED not in mortal.text()
        mortal.stop()
        again = federation.start_site(MORTAL)
        federation.finish(run_id)
        check_undisturbed(federation, run_id, again)
        if over:
            break
    assert last > LEAST_WRITES
    federation.processes[MORTAL].stop()
    assert files_left(federation, federation.start_site(MORTAL)) == []


def files_left(federation: Federation, site: Process) -> list[str]:
    """The secrets and steps of runs that the site still has after its start. One that was stopped between its results
    and the end of its run is told of that end again."""
    end, state = time.monotonic() + PATIENCE, federation.root / "sites" / MORTAL / "state"
    while True:
        left = [path.name for path in state.iterdir() if path.suffix in (".noise", ".step")]
        if not left or time.monotonic() > end:
            return left
        site.wait_briefly()


def await_death(federation: Federation, run_id: str, mortal: Process) -> None:
    """Return when the run is over or the site is dead; one whose disk failed may wait, and does not have to die."""
    end, failed = time.monotonic() + PATIENCE, False
    while mortal.is_alive and not federation.operator.run(run_id).ended_ms:
        if not failed and FAILED in mortal.text():
            end, failed = time.monotonic() + MOMENT, True
        if time.monotonic() > end:
            assert failed, f"neither did {MORTAL} fail nor did the run end"
            return
        mortal.wait_briefly()
