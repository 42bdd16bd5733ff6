"""Before a run a daemon reads data that has changed; while another run is open, or the file is damaged, it refuses."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from dcfpca.identity import Role
from dcfpca.pki.ca_directory import create_authority
from dcfpca.pki.credential_files import issue_credentials
from dcfpca.spec import RunSpec
from participant import daemon
from participant.config import Config, load_config
from participant.daemon import Daemon
from participant.local_site import open_site
from participant.policy import ABOUT_DATA, Refuse
from participant.review import review
from participant.session import Consent
from participant.state.store import Store

SPEC = RunSpec(rows=3, rank=1)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    now = datetime.now(UTC)
    authority = create_authority(tmp_path / "ca", "acme", now)
    files = issue_credentials(authority, Role.PARTICIPANT, "a", tmp_path, now=now)
    np.save(tmp_path / "data.npy", np.random.default_rng(0).normal(size=(3, 40)))
    (tmp_path / "participant.toml").write_text(
        f'[aggregator]\naddress = "a:1"\n[identity]\nca = "{files.ca}"\ncert = "{files.certificate}"\n'
        f'key = "{files.key}"\n[data]\npath = "data.npy"\n[state]\ndir = "state"\n[results]\ndir = "results"\n'
    )
    return load_config(tmp_path / "participant.toml")


def daemon_of(config: Config) -> Daemon:
    store = Store(config.state.dir, config.results.dir)
    made = object.__new__(Daemon)  # not connected
    made._config, made._site, made._store, made._drivers = config, open_site(config), store, {}
    return made


def rewrite(config: Config, columns: int) -> None:
    assert config.data.path is not None
    kept = np.load(config.data.path)[:, :39]
    more = np.random.default_rng(1).normal(size=(3, columns - 39))
    np.save(config.data.path.with_name("new.npy"), np.hstack([kept, more]))
    config.data.path.with_name("new.npy").replace(config.data.path)


def test_changed_data_is_read_anew_with_one_line_that_says_what_changed(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, said = daemon_of(config), list[str]()
    monkeypatch.setattr(daemon, "log", lambda action, **more: said.append(f"{action}: {more.get('changed')}"))
    asyncio.run(made._read_changed_data())
    assert not said
    rewrite(config, 45)
    asyncio.run(made._read_changed_data())
    assert said == ["data_read_again: samples gone or changed: 1, new or changed: 6"]
    assert made._site.facts.columns == 45
    assert made._site.columns(SPEC).shape == (3, 45)
    assert made._site.facts.used_columns is not None
    assert made._site.facts.used_columns(SPEC) == 45


def test_while_another_run_is_open_new_ones_are_refused_and_the_data_stays(config: Config) -> None:
    made = daemon_of(config)
    consent = Consent(SPEC, SPEC.digest(), True, (), False)
    made._store.save_joining("open", consent, made._site.column_set, "column", 1)
    rewrite(config, 45)
    asyncio.run(made._read_changed_data())
    assert made._site.facts.columns == 40
    refused = review(SPEC, made._site.facts)
    assert isinstance(refused, Refuse)
    assert "run open is not over" in refused.reasons[0]
    assert refused.why.leaving == (ABOUT_DATA,)  # that the data has changed is nobody else's business


def test_a_damaged_file_refuses_runs_until_it_is_mended(config: Config) -> None:
    made = daemon_of(config)
    assert config.data.path is not None
    sound = config.data.path.read_bytes()
    config.data.path.write_bytes(b"half a file")
    asyncio.run(made._read_changed_data())
    assert isinstance(review(SPEC, made._site.facts), Refuse)
    config.data.path.write_bytes(sound)
    asyncio.run(made._read_changed_data())
    assert not isinstance(review(SPEC, made._site.facts), Refuse)
