"""The configuration file: every mistake is one sentence that names the file and the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from dcfpca.errors import BadInput
from participant.config import load_config

GOOD = """
[aggregator]
address = "localhost:8443"
[identity]
ca = "ca.crt"
cert = "a.crt"
key = "keys/a.key"
[data]
path = "data.npy"
[state]
dir = "state"
[results]
dir = "/var/results"
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "participant.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_relative_paths_are_beside_the_file_and_absolute_ones_stay(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, GOOD))
    assert config.identity.key == tmp_path / "keys" / "a.key"
    assert config.results.dir == Path("/var/results")


def test_several_addresses_are_separated_by_commas(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace('"localhost:8443"', '"one:8443, [::1]:8443"'))
    assert load_config(path).aggregator.address == "one:8443, [::1]:8443"


def test_the_defaults_deny(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, GOOD))
    assert not config.policy.allow_plain
    assert not config.policy.allow_export
    assert config.policy.min_cohort == 3
    assert config.data.missing == "refuse"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD + "[policy]\nprivat = true\n", "policy.privat: there is no such key"),
        (GOOD + "[polizy]\n", "polizy: there is no such key"),
        (GOOD.replace('"localhost:8443"', '"localhost"'), "aggregator.address"),
        (GOOD.replace("[state]", "[engine]"), "state"),
        (GOOD + "[policy]\nmin_cohort = 1\n", "policy.min_cohort"),
        (GOOD + '[policy]\nmethods = ["pca"]\n', "policy.methods"),
        (GOOD + "[policy\n", "not valid TOML"),
        (
            GOOD.replace('path = "data.npy"', 'path = "d.csv"\nfeatures = "age"'),
            "features: it must be a list in brackets",
        ),
        (GOOD.replace('path = "data.npy"', "path = 3"), "data.path: it must be a path in quotes"),
        (GOOD.replace('cert = "a.crt"', ""), "identity.cert: it is missing"),
        (GOOD + '[policy]\nprivate = "si"\n', "policy.private: it must be true or false"),
        (GOOD + "[policy]\nmax_rank = 0\n", "policy.max_rank: it must be 1 or more"),
        (GOOD + '[engine]\nmemory_limit = "2 gigs"\n', 'memory_limit: it must be a size such as "512 MiB"'),
        (GOOD.replace('"localhost:8443"', '"here"'), "aggregator.address: it must be host:port"),
        (GOOD.replace('"localhost:8443"', '"one:8443,"'), "aggregator.address: it must be host:port"),
    ],
)
def test_a_mistake_is_named_with_its_key_and_the_file(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        load_config(write(tmp_path, text))
    assert words in str(caught.value)
    assert "participant.toml" in str(caught.value)
    assert caught.value.hint


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nowhere\.toml cannot be read"):
        load_config(tmp_path / "nowhere.toml")
