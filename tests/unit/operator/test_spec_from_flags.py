from pathlib import Path

import pytest

from dcfpca.errors import BadInput
from dcfpca.operator.proposals import spec_from_flags


def spec_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "spec.toml"
    path.write_text(text)
    return path


def test_flags_win_over_the_file_and_absent_flags_do_not(tmp_path: Path) -> None:
    path = spec_file(tmp_path, 'method = "gradient"\nrank = 3\nrounds = 7\nexport = true')
    made = spec_from_flags(path, {"rounds": 9, "method": None, "export": None}, [])
    assert (made.method, made.rank, made.rounds, made.export) == ("gradient", 3, 9, True)


def test_a_proposal_that_says_nothing_of_units_finds_them(tmp_path: Path) -> None:
    assert spec_from_flags(None, {}, []).scaling == "auto"
    assert spec_from_flags(spec_file(tmp_path, "rank = 3"), {}, []).scaling == "auto"
    assert spec_from_flags(spec_file(tmp_path, 'scaling = "none"'), {}, []).scaling == "none"


@pytest.mark.parametrize(("given", "other"), [("rank", "max_rank"), ("max_rank", "rank")])
def test_rank_and_max_rank_replace_each_other(tmp_path: Path, given: str, other: str) -> None:
    made = spec_from_flags(spec_file(tmp_path, f"{other} = 3"), {given: 5}, [])
    assert getattr(made, given) == 5
    assert getattr(made, other) is None


def test_both_ranks_in_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"rank \(exact\) or max_rank .*not both"):
        spec_from_flags(spec_file(tmp_path, "rank = 3\nmax_rank = 4"), {}, [])


def test_set_takes_toml_values_and_bare_words_and_tables() -> None:
    made = spec_from_flags(
        None, {"rank": 2}, ["method=gradient", "export=true", "gradient.local_iterations=7", "seed = 5"]
    )
    assert (made.method, made.export, made.seed) == ("gradient", True, 5)
    assert made.gradient.local_iterations == 7


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["nonsense"], "key=value"),
        (["=3"], "key=value"),
        (["no_such_key=3"], "no_such_key: there is no such key"),
        (["rounds=1", "rounds.deeper=3"], "rounds is not a table"),
        (["rounds=none"], "rounds"),
    ],
)
def test_a_setting_that_cannot_be_is_named(settings: list[str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        spec_from_flags(None, {"rank": 2}, settings)


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"rank = = 3", "not valid TOML"), (b"\xff\xfe\x00", "is not valid TOML"), (b"closing_rounds = false", "rank")],
)
def test_a_file_that_is_no_spec_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "spec.toml"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=said):
        spec_from_flags(path, {}, [])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no-such\.toml cannot be read"):
        spec_from_flags(tmp_path / "no-such.toml", {}, [])
