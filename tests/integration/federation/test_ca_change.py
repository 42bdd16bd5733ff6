"""The consortium changes its CA, then revokes somebody, while real services run: nobody restarts, no round is lost."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from dcfpca.identity import Role
from dcfpca.pki.ca_directory import Authority, create_authority, list_records, revoke_certificates
from dcfpca.pki.credential_files import issue_credentials
from dcfpca.rpca.synthetic import Recipe, generate
from tests.support.services.federation import Federation

NAMES = ("alpha", "beta", "gamma")
# More rounds than there is time for: the run goes on for as long as the change takes.
SPEC = {"rank": 2, "rounds": 100_000, "tolerance": 0.0, "participants": NAMES, "round_seconds": 600.0}
SECONDS = 10.0


def replace(path: Path, body: bytes) -> None:
    """All at once, as whoever rolls out files should."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(body)
    partial.chmod(0o600)
    partial.replace(path)


def move_to(federation: Federation, following: Authority, role: Role, name: str) -> None:
    """A certificate and key of the next CA, in the place of the former ones."""
    hosts = ["localhost", "127.0.0.1"] if role is Role.AGGREGATOR else []
    out = federation.root / "moved" / name
    made = issue_credentials(following, role, name, out, now=datetime.now(UTC), hosts=hosts, days=30)
    replace(federation.files[name].key, made.key.read_bytes())
    replace(federation.files[name].certificate, made.certificate.read_bytes())


@pytest.mark.slow
def test_a_change_of_ca_and_a_revocation_by_list_take_effect_in_the_middle_of_a_run(tmp_path: Path) -> None:
    problem = generate(Recipe(rows=24, columns=33, rank=2, sparsity=0.05, counts=(14, 10, 9)), 3)
    with Federation(tmp_path) as made:
        shutil.copy(made.authority.crl_path, tmp_path / "lists.pem")
        made._server = {"crl": str(tmp_path / "lists.pem")}
        aggregator = made.start_aggregator()
        for name, own in zip(NAMES, problem.sites(), strict=True):
            made.add_site(name, own.array, max_rounds=SPEC["rounds"])
        made.start_sites(NAMES)
        seen = {name: len(process.lines) for name, process in made.processes.items()}
        run = made.propose(**SPEC)
        aggregator.await_action("consensus_reached", after=seen["agg"], round=2)

        following = create_authority(tmp_path / "next-ca", "acme", datetime.now(UTC) - timedelta(minutes=1))
        both = made.authority.ca_path.read_bytes() + following.ca_path.read_bytes()
        for name in ("agg", *NAMES):
            replace(made.files[name].ca, both)
        aggregator.await_action("credentials_reloaded", after=seen["agg"])
        for name in NAMES:
            made.processes[name].await_action("credentials_renewed", after=seen[name])
        seen = {name: len(process.lines) for name, process in made.processes.items()}
        move_to(made, following, Role.AGGREGATOR, "agg")
        aggregator.await_action("credentials_reloaded", after=seen["agg"])
        move_to(made, following, Role.PARTICIPANT, "alpha")
        made.processes["alpha"].await_action("credentials_renewed", after=seen["alpha"])
        made.processes["alpha"].await_action("connected", after=seen["alpha"])
        for _ in range(20):
            aggregator.await_action("consensus_reached", after=len(aggregator.lines))
        view = made.operator.abort(run, "seen enough")
        assert view.status == "aborted", "it was still going on"
        assert [done.round for done in view.rounds] == list(range(len(view.rounds)))
        assert all(list(done.survivors) == sorted(NAMES) for done in view.rounds)

        seen = {name: len(process.lines) for name, process in made.processes.items()}
        revoke_certificates(
            following,
            tuple(one for one in list_records(following.directory).records if one.identity.endswith("/alpha")),
            datetime.now(UTC),
            x509.ReasonFlags.key_compromise,
        )
        replace(tmp_path / "lists.pem", made.authority.crl_path.read_bytes() + following.crl_path.read_bytes())
        aggregator.await_action("participant_disconnected", SECONDS, after=seen["agg"], participant="alpha")
        made.processes["alpha"].await_action("unauthenticated", SECONDS, after=seen["alpha"])
        assert {one.name: one.state for one in made.operator.participants()} == {
            "alpha": "revoked",
            "beta": "connected",
            "gamma": "connected",
        }
