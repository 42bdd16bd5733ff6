"""Bad input of every kind gets one clear sentence that says what to change; nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from aggregator.main import main as aggregator_main
from dcfpca.cli.main import main as operator_main
from dcfpca.errors import DcfpcaError
from dcfpca.identity import Role
from dcfpca.pki.ca_directory import create_authority
from dcfpca.pki.credential_files import issue_credentials
from dcfpca.text.command_runner import FAILED, MISUSED
from participant.main import main as participant_main
from participant.policy import ABOUT_DATA
from tests.support.services.federation import Federation

NAMES = ("alpha", "beta", "gamma")
ROWS = 8


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with Federation(tmp_path_factory.mktemp("bad-input")) as made:
        made.start_aggregator()
        draw = np.random.default_rng(5)
        for name in NAMES:
            made.add_site(name, draw.standard_normal((ROWS, 2)))
        made.start_sites(NAMES)
        yield made


@pytest.fixture
def alone(tmp_path: Path) -> Federation:
    """A site on its own; there is no aggregator, and none is reached."""
    made = Federation(tmp_path)
    made.address = "127.0.0.1:9"
    made.add_site("solo", np.ones((ROWS, 4)))
    return made


def site(federation: Federation, file: str = "participant.toml") -> Path:
    return federation.root / "sites" / "solo" / file


def complaint(
    main: Callable[[list[str]], None], config: Path, capsys: pytest.CaptureFixture[str], code: int = MISUSED
) -> str:
    """What `serve` says before it exits with this code: a sentence and a hint, and no traceback. Once it has read how
    to log, that is a line of its log."""
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--config", str(config)])
    said = capsys.readouterr().err
    assert ended.value.code == code, said
    assert "Traceback" not in said
    if not said.startswith("{"):
        assert "error: " in said
        assert "hint: " in said
        return said
    line = json.loads(said.splitlines()[-1])
    assert line["action"] == "ended"
    return f"{line['reason']} {line['hint']}"


def refused(federation: Federation, capsys: pytest.CaptureFixture[str], code: int = MISUSED) -> str:
    return " ".join(complaint(participant_main, site(federation), capsys, code).split())


def test_data_that_is_not_there(alone: Federation, capsys: pytest.CaptureFixture[str]) -> None:
    site(alone, "data.npy").unlink()
    assert "data.npy" in refused(alone, capsys)


@pytest.mark.parametrize("content", [b"", b"not an array", b"\x93NUMPY\x01\x00"], ids=["empty", "text", "cut-off"])
def test_data_that_cannot_be_read(alone: Federation, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    site(alone, "data.npy").write_bytes(content)
    assert "data.npy" in refused(alone, capsys)


@pytest.mark.parametrize("shape", [(ROWS, 0), (0, 4), (0, 0), (5,), (2, 2, 2)])
def test_data_without_entries_or_not_a_matrix(
    alone: Federation, capsys: pytest.CaptureFixture[str], shape: tuple[int, ...]
) -> None:
    np.save(site(alone, "data.npy"), np.zeros(shape))
    assert "data.npy" in refused(alone, capsys)


@pytest.mark.parametrize("kind", ["U3", "complex128"])
def test_data_that_is_not_numbers(alone: Federation, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    np.save(site(alone, "data.npy"), np.zeros((ROWS, 3), dtype=kind))
    assert "data.npy" in refused(alone, capsys)


def test_infinite_data(alone: Federation, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(site(alone, "data.npy"), np.full((ROWS, 3), np.inf))
    assert "infinite" in refused(alone, capsys)


def test_an_unknown_key_is_named(alone: Federation, capsys: pytest.CaptureFixture[str]) -> None:
    with site(alone).open("a") as file:
        file.write("\n[policies]\nprivate = true\n")
    assert "policies: there is no such key" in refused(alone, capsys)


def test_a_wrong_value_is_named_with_its_key(alone: Federation, capsys: pytest.CaptureFixture[str]) -> None:
    text = site(alone).read_text().replace("min_cohort = 2", 'min_cohort = "two"')
    site(alone).write_text(text)
    assert "policy.min_cohort" in refused(alone, capsys)


def test_configurations_that_are_missing_or_no_toml(alone: Federation, capsys: pytest.CaptureFixture[str]) -> None:
    for main in (participant_main, _aggregator):
        broken = alone.root / "broken.toml"
        broken.write_text("[server\n")
        assert "not valid TOML" in complaint(main, broken, capsys)
        assert "cannot be read" in complaint(main, alone.root / "absent.toml", capsys)


def _aggregator(given: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["dcfpca-aggregator", *given])
        aggregator_main()


def test_the_aggregator_names_an_unknown_key(alone: Federation, capsys: pytest.CaptureFixture[str]) -> None:
    config = alone.aggregator_config()
    with config.open("a") as file:
        file.write("\n[limit]\n")
    assert "limit: there is no such key" in complaint(_aggregator, config, capsys)


def test_an_expired_certificate(alone: Federation, capsys: pytest.CaptureFixture[str]) -> None:
    old = datetime.now(UTC) - timedelta(days=60)
    stale = create_authority(alone.root / "old-ca", "acme", old)
    issue_credentials(stale, Role.PARTICIPANT, "solo", alone.files["solo"].key.parent, now=old, days=30, force=True)
    alone.files["solo"].ca.write_bytes(stale.ca_path.read_bytes())
    assert "expired" in refused(alone, capsys, FAILED)


def test_a_certificate_of_the_wrong_role(alone: Federation, capsys: pytest.CaptureFixture[str]) -> None:
    mine = alone.files["solo"]
    issue_credentials(alone.authority, Role.OPERATOR, "solo", mine.key.parent, now=datetime.now(UTC), force=True)
    assert "operator" in refused(alone, capsys, FAILED)


def test_a_certificate_of_another_ca(alone: Federation, capsys: pytest.CaptureFixture[str]) -> None:
    other = create_authority(alone.root / "other-ca", "acme", datetime.now(UTC))
    alone.files["solo"].ca.write_bytes(other.ca_path.read_bytes())
    assert "CA" in refused(alone, capsys, FAILED)


def test_a_key_that_others_can_read(alone: Federation, capsys: pytest.CaptureFixture[str]) -> None:
    alone.files["solo"].key.chmod(0o644)
    assert "solo.key" in refused(alone, capsys, FAILED)


def test_an_aggregators_key_that_others_can_read(alone: Federation, capsys: pytest.CaptureFixture[str]) -> None:
    alone.files["agg"].key.chmod(0o640)
    assert "agg.key can be read or changed by other users" in complaint(
        _aggregator, alone.aggregator_config(), capsys, FAILED
    )


def test_an_operators_key_that_others_can_read(alone: Federation, capsys: pytest.CaptureFixture[str]) -> None:
    files = alone.files["op"]
    files.key.chmod(0o604)
    flags = ["--aggregator", "127.0.0.1:9", "--ca", str(files.ca), "--cert", str(files.certificate)]
    with pytest.raises(SystemExit) as stopped:
        operator_main(["run", "list", *flags, "--key", str(files.key)])
    assert stopped.value.code == FAILED
    assert "op.key can be read or changed by other users" in capsys.readouterr().err


@pytest.mark.slow
def test_an_aggregator_that_is_not_there_is_told_once_and_waited_for(alone: Federation) -> None:
    with alone:
        process = alone.start_site("solo")
        line = process.await_action("unreachable")
        assert "127.0.0.1:9" in line["reason"]
        assert process.stop() == 0
        assert [event["action"] for event in process.events()].count("unreachable") == 1


def test_an_aggregator_under_another_name(federation: Federation) -> None:
    port = federation.address.rsplit(":", 1)[1]
    # The same machine under a name that the aggregator's certificate does not carry.
    federation.add_site("misled", np.ones((ROWS, 3)), via=f"127.1:{port}")
    process = federation.start_site("misled")
    assert process.wait() == 1
    assert process.events()[-1]["action"] == "ended"
    assert "127.1" in process.text()
    assert "Traceback" not in process.text()


def test_a_certificate_that_the_aggregators_ca_did_not_sign(federation: Federation) -> None:
    other = create_authority(federation.root / "other-ca", "acme", datetime.now(UTC))
    out = federation.root / "identities" / "stranger"
    federation.files["stranger"] = issue_credentials(
        other, Role.PARTICIPANT, "stranger", out, now=datetime.now(UTC), days=30
    )
    federation.add_site("stranger", np.ones((ROWS, 3)))
    process = federation.start_site("stranger")
    assert process.wait() == 1
    assert process.events()[-1]["action"] == "ended"
    assert "Traceback" not in process.text()


def test_two_daemons_on_one_state_directory(federation: Federation) -> None:
    first = federation.processes["alpha"]
    second = federation.start_site("alpha")
    federation.processes["alpha"] = first
    assert second.wait() == 1
    assert "another participant daemon uses the state directory" in second.text()
    assert first.is_alive


def proposed(federation: Federation, **keys: object) -> str:
    """Why the proposal, or the run, came to nothing."""
    try:
        run_id = federation.propose(participants=NAMES, rounds=3, **keys)
    except DcfpcaError as error:
        return str(error)
    view = federation.follow(run_id)
    assert view.status == "failed"
    return view.reason


def test_a_rank_larger_than_the_rows(federation: Federation) -> None:
    assert f"the rank 9 is larger than the {ROWS} features" in proposed(federation, rank=9, rows=ROWS)


@pytest.mark.parametrize("method", ["subspace", "gradient"])
def test_a_rank_larger_than_all_columns_together(federation: Federation, method: str) -> None:
    reason = proposed(federation, rank=7, rows=ROWS, method=method)
    assert "Rank 7 does not fit 6 columns" in reason


def test_penalties_that_make_zero_the_solution(federation: Federation) -> None:
    settings = {"rho": 1e6, "lambda_": 0.1, "learning_rate": 0.1}
    reason = proposed(federation, rank=2, rows=ROWS, method="gradient", gradient=settings)
    assert "rho = 1e+06 is too large for lambda = 0.1 and a 8 × 6" in reason


@pytest.mark.slow
def test_missing_values_where_the_spec_or_the_site_forbids_them(federation: Federation) -> None:
    holes = np.ones((ROWS, 9))
    holes[0, 0] = np.nan
    for name, missing in (("holes", "allow"), ("strict", "refuse")):
        federation.add_site(name, holes, tables={"data": {"missing": missing}})
    federation.start_sites(("holes", "strict"))
    cohort = (*NAMES, "holes", "strict")
    run = federation.propose(rank=1, rounds=1, rows=ROWS, missing=False, participants=cohort)
    reasons = {one.participant: list(one.reasons) for one in federation.finish(run).refusals}
    assert reasons == {"holes": [ABOUT_DATA], "strict": [ABOUT_DATA]}
    for name, reason in (("holes", "the spec does not allow them"), ("strict", 'missing = "refuse"')):
        said = [line for line in federation.processes[name].lines if '"AboutData"' in line]
        assert any(reason in json.loads(line)["reason"] for line in said)
        federation.processes[name].stop()
