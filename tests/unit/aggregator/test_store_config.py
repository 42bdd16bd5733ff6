"""Where the aggregator finds its database, and that the password stays out of sight."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggregator.config import StoreSection, load_config
from aggregator.main import main
from dcfpca.errors import BadInput

SERVER = '[server]\nca = "a"\ncert = "b"\nkey = "c"\n'


def written(directory: Path, store: str) -> Path:
    path = directory / "aggregator.toml"
    path.write_text(f'{SERVER}[store]\npath = "store.db"\n{store}')
    return path


def test_without_a_url_the_store_is_a_sqlite_file(tmp_path: Path) -> None:
    assert load_config(written(tmp_path, "")).store.database_url() == ""


def test_the_url_may_stand_in_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql://me:s3cret@db/store\n")
    section = load_config(written(tmp_path, 'url_file = "url"')).store
    assert section.database_url() == "postgresql://me:s3cret@db/store"


@pytest.mark.parametrize(("content", "said"), [(None, "cannot be read"), ("mysql://s3cret", "does not hold")])
def test_a_file_without_a_url_is_named_and_not_shown(tmp_path: Path, content: str | None, said: str) -> None:
    if content:
        (tmp_path / "url").write_text(content)
    with pytest.raises(BadInput, match=said) as caught:
        load_config(written(tmp_path, 'url_file = "url"')).store.database_url()
    assert "s3cret" not in str(caught.value) + caught.value.hint


def test_a_url_of_another_kind_is_refused_without_showing_it(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"store\.url: it must begin with postgresql://") as caught:
        load_config(written(tmp_path, 'url = "mysql://me:s3cret@db"'))
    assert "s3cret" not in str(caught.value) + caught.value.hint


def test_the_password_is_not_in_what_is_printed_of_the_configuration() -> None:
    section = StoreSection(path=Path("store.db"), url="postgresql://me:s3cret@db/store")
    assert "s3cret" not in repr(section)


def test_a_backup_of_a_store_in_postgresql_is_left_to_pg_dump(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = written(tmp_path, 'url = "postgresql://me@db/store"')
    with pytest.raises(SystemExit) as caught:
        main(["backup", "--config", str(config), "--out", str(tmp_path / "copy")])
    assert caught.value.code == 2
    assert "pg_dump" in capsys.readouterr().err
