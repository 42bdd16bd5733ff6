"""Which runs are deleted by age and number, and what a deletion leaves."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from aggregator.config import StoreSection
from aggregator.run.state import Run, Status
from aggregator.service.serve import delete_expired, expired
from aggregator.store import audit
from dcfpca.v1 import admin_pb2 as pb
from tests.support.runs.rules import spec_of
from tests.support.services.service import Service, service
from tests.support.services.stores import OpenStore

DAY = 86400.0


def run(name: str, ended_days_ago: float, status: Status = Status.FINISHED) -> Run:
    return Run(run_id=name, created_at=0.0, status=status, ended_at=100 * DAY - ended_days_ago * DAY)


RUNS = [run("new", 1), run("old", 9), run("older", 20), run("open", 50, Status.PAUSED)]


@pytest.mark.parametrize(
    ("keep", "gone"),
    [
        ({}, []),
        ({"keep_runs": 2}, ["older"]),
        ({"keep_runs": 1}, ["old", "older"]),
        ({"keep_days": 10}, ["older"]),
        ({"keep_days": 0.5}, ["new", "old", "older"]),
        ({"keep_runs": 2, "keep_days": 5}, ["old", "older"]),
    ],
)
def test_runs_that_are_over_expire_by_number_and_age_and_open_ones_never(
    keep: dict[str, float], gone: list[str]
) -> None:
    section = StoreSection.model_validate({"path": "store.db"} | keep)
    assert expired(RUNS, section, 100 * DAY) == gone


async def aborted_run(made: Service, request_id: str) -> str:
    operator = made.operator()
    view = await operator.ProposeRun(pb.ProposeRunRequest(spec=spec_of().canonical(), request_id=request_id))
    await operator.AbortRun(pb.AbortRunRequest(run_id=view.run_id))
    return str(view.run_id)


async def actions_of(made: Service, run_id: str) -> list[str]:
    found = await made.run_registry.store.do(lambda store: audit.entries(store.connection))
    return [entry.action for entry in found if entry.run_id == run_id]


async def test_a_deleted_run_is_gone_with_its_files_and_stays_in_the_audit_log(
    open_store: OpenStore, tmp_path: Path
) -> None:
    async with service(tmp_path, open_store=open_store) as made:
        gone, kept = await aborted_run(made, "request-1"), await aborted_run(made, "request-2")
        exports = tmp_path / "store.db.exports" / gone / "a"
        exports.mkdir(parents=True)
        (exports / "L.npy").write_bytes(b"x")
        await made.operator().DeleteRun(pb.DeleteRunRequest(run_id=gone, reason="done with"))
        listed = await made.operator().ListRuns(pb.ListRunsRequest())
        assert [view.run_id for view in listed.runs] == [kept]
        assert not exports.exists()
        assert await actions_of(made, gone) == ["run_proposed", "run_aborted", "run_deleted"]
        with pytest.raises(grpc.RpcError) as caught:
            await made.operator().GetRun(pb.GetRunRequest(run_id=gone))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_run_that_is_not_over_is_not_deleted(tmp_path: Path) -> None:
    async with service(tmp_path) as made:
        request = pb.ProposeRunRequest(spec=spec_of().canonical(), request_id="request-1")
        view = await made.operator().ProposeRun(request)
        with pytest.raises(grpc.RpcError) as caught:
            await made.operator().DeleteRun(pb.DeleteRunRequest(run_id=view.run_id))
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "run abort" in str(caught.value.details())


async def test_retention_deletes_the_oldest_and_says_so_in_the_audit_log(open_store: OpenStore, tmp_path: Path) -> None:
    async with service(tmp_path, open_store=open_store) as made:
        first, second = await aborted_run(made, "request-1"), await aborted_run(made, "request-2")
        await delete_expired(made.run_registry, StoreSection(path=tmp_path / "store.db", keep_runs=1))
        assert list(made.run_registry.runners) == [second]
        assert (await actions_of(made, first))[-1] == "run_deleted"


async def test_32_watches_of_one_operator_leave_room_to_abort(tmp_path: Path) -> None:
    async with service(tmp_path) as made:
        operator = made.operator()
        request = pb.ProposeRunRequest(spec=spec_of().canonical(), request_id="request-1")
        view = await operator.ProposeRun(request)
        watches = [operator.WatchRun(pb.WatchRunRequest(run_id=view.run_id, after_round=-1)) for _ in range(32)]
        for watch in watches:
            await watch.read()
        ended = await operator.AbortRun(pb.AbortRunRequest(run_id=view.run_id))
        assert ended.status == "aborted"
        for watch in watches:
            watch.cancel()
