"""A store belongs to one consortium: the one whose aggregator began its audit log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aggregator.store.audit import Signer, append, check_consortium
from aggregator.store.store import Store
from dcfpca.errors import BadInput
from tests.support.services.stores import OpenStore

SIGNER = Signer(lambda data: b"signature", b"certificate")


@pytest.fixture
def store(open_store: OpenStore, tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path / "store.db")
    yield made
    made.close()


def begun(store: Store, actor: str) -> None:
    append(store.connection, SIGNER, at_ms=0, actor=actor, action="aggregator_started", run_id="", detail={})


def test_a_new_store_is_anybodys(store: Store) -> None:
    check_consortium(store.connection, "acme")


def test_the_store_of_another_consortium_is_refused(store: Store) -> None:
    begun(store, "spiffe://acme/aggregator/agg")
    check_consortium(store.connection, "acme")
    with pytest.raises(BadInput, match="consortium 'acme', and this aggregator's is 'other'"):
        check_consortium(store.connection, "other")


def test_another_aggregator_of_the_same_consortium_may_take_a_store_over(store: Store) -> None:
    begun(store, "spiffe://acme/aggregator/agg")
    begun(store, "spiffe://acme/aggregator/next")
    check_consortium(store.connection, "acme")
