"""Addresses in configurations and options: what is no port is one sentence, wherever it is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from aggregator.config import load_config as load_aggregator
from dcfpca.cli.init import app
from dcfpca.errors import BadInput
from dcfpca.wire.addresses import Address, all_dialled, dialled, listening, listening_or_none
from participant.config import load_config as load_participant

FILES = 'ca = "ca.crt"\ncert = "a.crt"\nkey = "a.key"\n'


@pytest.mark.parametrize("text", ["host:7443", "127.0.0.1:1", "[::1]:65535", "a.example.org:7443"])
def test_addresses_are_taken_as_they_are(text: str) -> None:
    assert dialled(text) == all_dialled(text) == listening(text) == listening_or_none(text) == text


def test_a_free_port_may_be_listened_on_but_not_dialled() -> None:
    assert listening("127.0.0.1:0") == "127.0.0.1:0"
    assert listening_or_none("") == ""
    with pytest.raises(ValueError, match="the port 0 must be between 1 and 65535"):
        dialled("127.0.0.1:0")


def test_every_one_of_several_addresses_is_checked() -> None:
    assert all_dialled("one:7443, two:7443") == "one:7443, two:7443"
    with pytest.raises(ValueError, match="the port 99999 must be between"):
        all_dialled("one:7443, two:99999")
    with pytest.raises(ValueError, match="several with commas between"):
        all_dialled("one:7443,")


def test_a_port_that_does_not_exist_is_named_by_both_configurations(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(f'[server]\nlisten = "127.0.0.1:99999"\n{FILES}[store]\npath = "store.db"\n')
    with pytest.raises(BadInput, match=r"server\.listen: the port 99999 must be between 0 and 65535"):
        load_aggregator(path)
    path.write_text(
        f'[aggregator]\naddress = "127.0.0.1:99999"\n[identity]\n{FILES}[data]\npath = "d.npy"\n'
        '[state]\ndir = "state"\n[results]\ndir = "results"\n'
    )
    with pytest.raises(BadInput, match=r"aggregator\.address: the port 99999 must be between 1 and 65535"):
        load_participant(path)


def test_a_port_that_does_not_exist_is_named_where_an_operator_types_it() -> None:
    with pytest.raises(BadInput, match="'host:99999' is not the address of an aggregator: the port 99999 must be"):
        Address.parse("host:99999")


@pytest.mark.parametrize(
    "arguments",
    [
        ["participant", "--name", "a", "--data", "d.npy", "--aggregator", "host:99999"],
        ["operator", "--name", "a", "--aggregator", "host:99999"],
        ["aggregator", "--listen", "0.0.0.0:99999"],
    ],
)
def test_init_writes_no_file_with_a_port_that_does_not_exist(tmp_path: Path, arguments: list[str]) -> None:
    done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "made.toml")])
    assert isinstance(done.exception, BadInput)
    assert "the port 99999 must be between" in str(done.exception)
    assert not (tmp_path / "made.toml").exists()
