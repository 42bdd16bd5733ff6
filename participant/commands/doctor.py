"""`dcfpca-participant doctor`: checks files, data, policy, directories and the connection to the aggregator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from dcfpca.doctor import CheckResult, fail, ok, warn
from dcfpca.doctor.checks import check_aggregators, check_credentials, check_directory
from dcfpca.errors import DcfpcaError
from dcfpca.identity import Role
from dcfpca.pki.credential_files import Credentials
from dcfpca.pki.revocation import RevocationLists, read_list_file, read_lists
from dcfpca.pki.trust import SOON_DAYS
from dcfpca.wire.addresses import Address, TlsFiles
from participant.config import Config
from participant.data.facts import DataFacts, measure, orientation_doubt
from participant.data.readers import open_matrix
from participant.peer_verifier import KeptRevocationList
from participant.policy import LEAST_COLUMNS, SitePolicy

_NUMBER_BYTES = 8
_STATE_BYTES = 64 << 20
"""The least free space for the state: seeds, ledger, and two local steps of each open run."""


def examine(config: Config) -> Iterator[CheckResult]:
    """All checks of a site: first its own files and data, then the network."""
    identity = config.identity
    own, found = check_credentials(identity.ca, identity.cert, identity.key, Role.PARTICIPANT, datetime.now(UTC))
    yield from found
    if own is not None:
        yield from _revocations(config, own, datetime.now(UTC))
    facts = None
    try:
        facts, features = _measure(config)
    except DcfpcaError as error:
        yield fail("data", error)
    else:
        yield from judge_data(config, facts)
        yield from judge_orientation(facts, features)
    yield from judge_policy(config.policy)
    needed = facts.rows * facts.columns * _NUMBER_BYTES if facts else 0
    yield from check_directory("state", config.state.dir, max(_STATE_BYTES, needed // 4), "an open run")
    yield from check_directory("results", config.results.dir, needed)
    if own is not None:
        yield from _network(config, own)


def _measure(config: Config) -> tuple[DataFacts, tuple[str, ...]]:
    """The size of the matrix and the names of its features."""
    matrix = open_matrix(config.data, config.state.dir / "spool", config.engine.memory_limit)
    return measure(matrix.columns, config.data.origin), matrix.features


def _revocations(config: Config, own: Credentials, now: datetime) -> Iterator[CheckResult]:
    """The list that the configuration names, and the one that was fetched through the aggregator."""
    named, kept = config.identity.crl, KeptRevocationList.in_state(config.state.dir)
    try:
        if named is not None:
            yield judge_list(str(named), read_lists(read_list_file(named), str(named), own.authorities, now), now)
        if (fetched := kept.read(own.authorities, now)) is not None:
            yield judge_list(str(kept.path), fetched, now)
        elif named is None:
            sentence = "no revocation list has been fetched from the aggregator yet"
            yield warn("revocation list", sentence, "start the daemon once; the aggregator's [server] crl must be set")
    except DcfpcaError as error:
        yield fail("revocation list", error)


def judge_list(where: str, lists: RevocationLists, now: datetime) -> CheckResult:
    """Warn if the revocation list expires soon: after that, no peer's certificate is accepted."""
    if lists.until is not None and lists.until - now < timedelta(days=SOON_DAYS):
        sentence = f"{where} runs out on {lists.until:%Y-%m-%d}; after that this site accepts no peer"
        remedy = "the holder of the CA renews it with `dcfpca certs crl` and gives it to the aggregator"
        return warn("revocation list", sentence, remedy)
    return ok(
        "revocation list", f"{where} is signed by the CA and in force; {len(lists.marks)} certificates are revoked"
    )


def judge_data(config: Config, facts: DataFacts) -> Iterator[CheckResult]:
    """Whether the site can take part in any run with this matrix."""
    policy = config.policy
    size = f"{facts.rows} features × {facts.columns} samples"
    if facts.missing and config.data.missing == "refuse":
        sentence = f"{size}, of which {facts.missing} entries are missing: this site refuses every run"
        yield fail("data", sentence, 'set missing = "allow" in [data], or fill the gaps')
    elif facts.columns < (needed := policy.columns_needed(rank=1)):
        sentence = f"{size}, fewer columns than the {needed} of [policy] min_columns: this site refuses every run"
        yield fail("data", sentence, "add columns, or set min_columns in [policy] if the columns reveal little")
    else:
        gaps = f", {facts.missing} entries missing" if facts.missing else ""
        yield ok("data", f"{config.data.origin} is readable: {size}{gaps}")


def judge_orientation(facts: DataFacts, features: Sequence[str]) -> Iterator[CheckResult]:
    """Whether the rows look like persons: then U, which every participant receives, has a score for each."""
    if doubt := orientation_doubt(facts.rows, facts.columns, features):
        remedy = 'if the rows are persons or other samples, set orientation = "samples-in-rows" in [data]'
        yield warn("orientation", f"{doubt}; every participant receives a line of scores for each row", remedy)


def judge_policy(policy: SitePolicy) -> Iterator[CheckResult]:
    """Whether the policy contradicts itself or allows more than its author may intend."""
    doubts = list(_doubts(policy))
    yield from doubts
    if not doubts:
        kept = "never exports" if policy.private or not policy.allow_export else "exports when the spec announced it"
        yield ok("policy", f"takes part in cohorts of {policy.min_cohort} or more, and {kept}")


def _doubts(policy: SitePolicy) -> Iterator[CheckResult]:
    if not policy.methods:
        yield fail("policy", "no method is allowed: this site refuses every run", "name some in [policy] methods")
    if policy.private and policy.allow_export:
        sentence = "private and allow_export are both set; private wins, and nothing is exported"
        yield warn("policy", sentence, "remove the one that you do not want")
    if policy.min_cohort < 3:
        sentence = "min_cohort = 2: in a cohort of two, each can subtract its own update from the sum"
        yield warn("policy", sentence, "set min_cohort to 3 or more unless both sites agree to that")
    if 0 < policy.min_columns < LEAST_COLUMNS:
        sentence = f"min_columns = {policy.min_columns}: with no more columns than the rank, an update reveals them"
        yield warn(
            "policy", sentence, "set min_columns to 0 (three times the rank, and at least 20) unless you accept that"
        )
    if policy.allow_plain:
        sentence = "allow_plain: in a plain run the aggregator sees this site's own updates"
        yield warn("policy", sentence, "remove allow_plain unless you want such runs")


def _network(config: Config, own: Credentials) -> Iterator[CheckResult]:
    identity = config.identity
    try:
        addresses = Address.parse_all(config.aggregator.address, config.aggregator.proxy)
    except DcfpcaError as error:
        yield fail("aggregator", error)
        return
    yield from check_aggregators(addresses, TlsFiles(identity.ca, identity.cert, identity.key), own)
