"""Real daemons that a `LyingAggregator` attacks, and what a test may say about what it got out of them."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np

from dcfpca.rpca.method import Consensus, FloatArray, TensorMessage
from dcfpca.rpca.synthetic import Recipe, generate
from dcfpca.v1 import rounds_pb2 as pb
from tests.support.hostile.lying_aggregator import Heard, LyingAggregator
from tests.support.hostile.played_run import PlayedRun
from tests.support.hostile.secure_play import FixedCohortPlay
from tests.support.services.federation import Federation, relative
from tests.support.services.processes import Line

NAMES = ("ann", "bob", "cem", "dea")
VICTIM = "dea"
OTHERS = NAMES[:3]
ROWS, RANK = 24, 2
SOON = 15.0
"""Seconds within which a site reacts to a message."""
REFUSALS = ("assignment_refused", "run_refused")


@contextmanager
def attacked_sites(root: Path, rows: int = ROWS, **policy: Any) -> Iterator[LyingAggregator]:
    """Four daemons, each a process with its own data of so many rows, connected to a liar."""
    recipe = Recipe(rows=rows, columns=40, rank=RANK, sparsity=0.05, counts=(14, 10, 9, 7))
    problem = generate(recipe, seed=3)
    with Federation(root) as federation, LyingAggregator(federation) as liar:
        for name, own in zip(NAMES, problem.sites(), strict=True):
            federation.add_site(name, own.array, **policy)
        federation.start_sites(NAMES)
        yield liar


class Watch:
    """What sites say about a run in their logs from now on."""

    def __init__(self, run: PlayedRun) -> None:
        self._run_id, self._processes = run.run_id, run.liar.federation.processes
        self._after = {name: len(process.lines) for name, process in self._processes.items()}

    def refusal(self, name: str, kind: str = "") -> Line:
        """The first refusal of this kind that the site has logged since; waits for it."""
        return self.said(name, lambda line: line["action"] in REFUSALS and (not kind or line.get("kind") == kind))

    def said(self, name: str, wanted: Callable[[Line], bool]) -> Line:
        """The first such line about the run that the site has logged since; waits for it."""
        process, after = self._processes[name], self._after[name]
        return process.await_line(lambda line: line.get("run") == self._run_id and wanted(line), SOON, after)


def settled(run: PlayedRun, names: Iterable[str] = NAMES) -> None:
    """Wait until these sites have dealt with everything they were told of the run, silently or not.

    Assignments are taken in order, and a request for an export is always answered. The second one is told when whatever
    followed from earlier assignments has had as long as the answer to the first.
    """
    for _ in range(2):
        export_id = uuid.uuid4().hex
        for name in names:
            run.tell(name, export_wanted=pb.ExportWanted(export_id=export_id))
        for name in names:
            run.liar.await_heard(_export_answer(name, export_id), patience=SOON)


def _export_answer(name: str, export_id: str) -> Callable[[Heard], bool]:
    return lambda one: (one.site, one.call) == (name, "ExportReconstruction") and one.request.export_id == export_id


def refused(opened: pb.RoundOpened, liar: LyingAggregator, after: int = 0) -> list[str]:
    """The sites that sent no update and no misfit for a round from place `after` on."""
    calls = ("SubmitUpdate", "ReportMisfit")
    sent = {one.site for one in liar.heard[after:] if one.call in calls and one.request.ref == opened.ref}
    return [name for name in NAMES if name not in sent]


def begun(liar: LyingAggregator, played: int = 2, **spec: Any) -> FixedCohortPlay:
    """A run of all sites, set up, in which so many rounds were honestly summed."""
    run = FixedCohortPlay(liar, NAMES, **spec)
    assert all(answer.accept for answer in run.enrol().values())
    run.set_up()
    for _ in range(played):
        run.play_round()
    return run


def sent_answers(
    run: FixedCohortPlay, opened: pb.RoundOpened, watch: Watch, after: int, names: Iterable[str] = NAMES
) -> dict[str, Heard]:
    """What each of these sites has sent once it has either answered this round or refused it."""
    answers = {}

    def is_answer(line: Line) -> bool:
        # The line about the update of the round before may come after the watch began.
        sent = line["action"] == "update_sent" and line["round"] == opened.ref.round
        return sent or line["action"] in REFUSALS

    for name in names:
        watch.said(name, is_answer)
        for one in run.liar.heard[after:]:
            if (one.site, one.call) == (name, "SubmitUpdate") and one.request.ref == opened.ref:
                answers[name] = one
    return answers


def assert_nothing_learned(
    run: FixedCohortPlay, opened: pb.RoundOpened, answers: Mapping[str, Heard], updates: Mapping[str, FloatArray]
) -> None:
    """No set of the updates that were sent, added up, gives anything near the sum of the true ones."""
    sent = sorted(answers)
    for members in chain.from_iterable(combinations(sent, count) for count in range(1, len(sent) + 1)):
        seen = run.total(opened, [answers[name] for name in members]).numbers
        assert relative(seen, np.sum([updates[name] for name in members], axis=0)) > 1.0, members


def manifest_of(run: PlayedRun, name: str) -> dict[str, Any]:
    """What a site says of its result."""
    results = state_of(run.liar, name).parent / "results"
    found: dict[str, Any] = json.loads((results / run.run_id / "manifest.json").read_text())
    return found


def await_results(run: FixedCohortPlay, watch: Watch, checked: bool, names: Iterable[str] = NAMES) -> None:
    """Wait until these sites have written results, whose manifests call the consensus checked or not."""
    for name in names:
        watch.said(name, lambda line: line["action"] == "results_written")
        assert manifest_of(run, name)["consensus_verified"] is checked


def turned(consensus: Consensus, angle: float) -> Consensus:
    """The same consensus with its first two directions turned into each other: as plausible, and another one."""
    tensor = consensus.broadcast.tensor.copy()
    first, second = tensor[:, 0].copy(), tensor[:, 1].copy()
    tensor[:, 0] = np.cos(angle) * first + np.sin(angle) * second
    tensor[:, 1] = np.cos(angle) * second - np.sin(angle) * first
    return with_broadcast(consensus, TensorMessage(tensor, consensus.broadcast.scalars))


def with_broadcast(consensus: Consensus, broadcast: TensorMessage) -> Consensus:
    """The same consensus but for what is announced."""
    return replace(consensus, broadcast=broadcast)


def at_round(consensus: Consensus, round: int) -> Consensus:
    """The same consensus under another number."""
    return replace(consensus, round=round)


def restart(liar: LyingAggregator, name: str, *, rebooted: bool = False) -> None:
    """Kill a daemon, as if with its machine if wanted, and start it again."""
    federation = liar.federation
    federation.processes[name].kill()
    if rebooted:
        with closing(sqlite3.connect(state_of(liar, name) / "state.db")) as database, database:
            assert database.execute("UPDATE boot SET boot_id = 'another'").rowcount == 1
    federation.start_site(name).await_action("connected")


def state_of(liar: LyingAggregator, name: str) -> Path:
    """The state directory of a site."""
    return liar.federation.root / "sites" / name / "state"


def found_on_disk(liar: LyingAggregator, name: str, secrets: Iterable[bytes]) -> list[str]:
    """The files of a site's state directory that have one of these secrets in them."""
    files = [path for path in state_of(liar, name).rglob("*") if path.is_file()]
    wanted = list(secrets)
    return [path.name for path in files if any(secret in path.read_bytes() for secret in wanted)]
