from pathlib import Path

import pytest

from dcfpca.cli.main import main
from dcfpca.errors import BadInput
from dcfpca.operator.connection import connect_settings
from dcfpca.wire.addresses import Address

NOTHING: dict[str, str | None] = {"aggregator": None, "ca": None, "cert": None, "key": None}


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("head", ["", "[operator]\n"])
def test_keys_may_stand_at_top_level_or_under_operator(tmp_path: Path, head: str) -> None:
    text = head + 'aggregator = "host:1"\nca = "ca.crt"\ncert = "/abs/me.crt"\nkey = "me.key"\n'
    made = connect_settings(NOTHING, write(tmp_path / "op.toml", text))
    assert made.address == Address("host", 1)
    assert made.files.ca == tmp_path / "ca.crt"
    assert made.files.cert == Path("/abs/me.crt")


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "op.toml", 'aggregator = "host:1"\nca = "a"\ncert = "b"\nkey = "c"\n')
    made = connect_settings(NOTHING | {"aggregator": "other:2", "key": "mine.key"}, path)
    assert made.address == Address("other", 2)
    assert made.files.key == Path("mine.key")


def test_the_address_of_a_standby_stands_behind_a_comma() -> None:
    made = connect_settings(NOTHING | {"aggregator": "one:1, [::1]:2", "ca": "a", "cert": "b", "key": "c"}, None)
    assert made.addresses == (Address("one", 1), Address("::1", 2))


def test_everything_that_lacks_is_named_at_once() -> None:
    with pytest.raises(BadInput, match="aggregator, cert, key") as caught:
        connect_settings(NOTHING | {"ca": "x"}, None)
    assert "--aggregator --cert --key" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('aggregatr = "host:1"', "no key 'aggregatr'"),
        ("ca = 3", "ca must be text"),
        ("operator = 3", "no key 'operator'"),
        ("[server]\nlisten = 'x'", "no key 'server'"),
        ("ca = ", "not valid TOML"),
    ],
)
def test_a_wrong_config_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        connect_settings(NOTHING, write(tmp_path / "op.toml", text))


def test_a_missing_config_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        connect_settings(NOTHING, tmp_path / "none.toml")


@pytest.mark.parametrize("text", ["host:8443", "10.0.0.1:1", "[::1]:443", "a.b-c.example:65535"])
def test_an_address_reads_as_it_is_written(text: str) -> None:
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "host", ":1", "host:", "host:0", "host:65536", "host:x", "::1:443", "[::1]", "http://h"]
)
def test_what_is_no_address_says_how_to_write_one(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        Address.parse(text)
    assert "HOST:PORT" in caught.value.hint


def test_a_commands_own_option_may_be_called_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "op.toml", 'aggregator = "host:1"\nca = "a"\ncert = "b"\nkey = "c"\n')
    with pytest.raises(SystemExit):
        main(["run", "start", "--rank", "2", "--set", "rounds=3", "--config", str(path)])
    assert "cannot be read" in capsys.readouterr().err
