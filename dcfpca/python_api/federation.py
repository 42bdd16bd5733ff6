"""The federation from Python: propose a run, watch its rounds, and take its model as arrays or data frames."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import Refused
from dcfpca.operator.client import Operator
from dcfpca.operator.connection import ConnectionSettings, connect_settings, connected, explained
from dcfpca.operator.downloads import download_export, model_arrays, request_reconstructions
from dcfpca.operator.proposals import spec_from_flags
from dcfpca.operator.run_stream import RetryPolicy, run_views
from dcfpca.python_api.result_files import component_names, optional_library
from dcfpca.python_api.run_snapshots import (
    Participant,
    RankError,
    Round,
    RunSnapshot,
    Verdict,
    participant_of,
    rank_curve_of,
    round_of,
    snapshot_of,
    verdict_of,
)
from dcfpca.run_references import LATEST, find_run, is_whole
from dcfpca.v1 import admin_pb2 as pb

CONFIG_VARIABLE = "DCFPCA_CONFIG"


class Federation(AbstractContextManager["Federation"]):
    """A connection to an aggregator as an operator. Every error is a DcfpcaError with a sentence and a hint.

    One federation may be used from several threads. It is closed by `close()`, or at the end of a `with` block.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings, self._open = settings, ExitStack()
        self._operator = self._open.enter_context(connected(settings))

    @classmethod
    def connect(
        cls,
        config: str | Path | None = None,
        *,
        aggregator: str | None = None,
        ca: str | Path | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
    ) -> Federation:
        """Connect by an operator's TOML file, by keyword arguments, or both; arguments override the file.

        Without either, the file that the environment variable DCFPCA_CONFIG names. Raises BadInput for missing settings
        and BadIdentity for a certificate that cannot be used; the aggregator is dialled at the first call.
        """
        flags = {"aggregator": aggregator, **{k: _text(v) for k, v in (("ca", ca), ("cert", cert), ("key", key))}}
        named = config or (os.environ.get(CONFIG_VARIABLE) if not any(flags.values()) else None)
        return cls(connect_settings(flags, Path(named) if named else None))

    def propose(self, spec: str | Path | None = None, /, **keys: Any) -> FederatedRun:
        """Propose a run: keys of the spec as arguments, over those of a spec file if one is given.

        `federation.propose(max_rank=8, scaling="robust")`. Raises BadInput naming a key that is wrong.
        """
        wanted = spec_from_flags(Path(spec) if spec else None, keys, ())
        with self.call() as operator:
            return FederatedRun(self, operator.propose(wanted.canonical(), uuid.uuid4().hex).run_id)

    def run(self, reference: str = LATEST) -> FederatedRun:
        """A run by its identifier, the beginning of it, or `latest`; Refused if there is none or several."""
        with self.call() as operator:
            whole = reference
            if not is_whole(reference):
                whole = find_run(reference, [view.run_id for view in operator.runs()])
            return FederatedRun(self, operator.run(whole).run_id)

    def runs(self, limit: int = 0) -> list[RunSnapshot]:
        """The runs, newest first, without their rounds; 0: all."""
        with self.call() as operator:
            return [snapshot_of(view) for view in operator.runs(limit)]

    def participants(self) -> list[Participant]:
        """Everyone who ever connected, in name order."""
        with self.call() as operator:
            return [participant_of(view) for view in operator.participants()]

    @contextmanager
    def call(self) -> Iterator[Operator]:
        """The typed calls of the wire, for what this class does not offer; their errors become DcfpcaErrors."""
        with explained(self._settings):
            yield self._operator

    def close(self) -> None:
        """Close the connection; runs go on."""
        self._open.close()

    def __exit__(self, *_: object) -> None:
        self.close()


class FederatedRun:
    """One run of a federation, by its identifier."""

    def __init__(self, federation: Federation, run_id: str) -> None:
        self._federation, self.run_id = federation, run_id

    def __repr__(self) -> str:
        return f"FederatedRun({self.run_id!r})"

    def snapshot(self) -> RunSnapshot:
        """The run now."""
        with self._federation.call() as operator:
            return snapshot_of(operator.run(self.run_id))

    def watch(self, patience: float = 600.0) -> Iterator[Round]:
        """Every finished round from the first on, as it comes, until the run is over or paused.

        Goes on through restarts of the aggregator; Unreachable when it is away for more than `patience` seconds.
        """
        with self._federation.call() as operator:
            for view in run_views(operator, self.run_id, RetryPolicy(patience)):
                yield from (round_of(one) for one in view.rounds)

    def result(self, patience: float = 600.0) -> PooledModel:
        """Wait for the end of the run, and return its model; Refused with the run's reason unless it finished.

        L, S and V of a site stay there: `dcfpca.read_result` reads them.
        """
        for _ in self.watch(patience):
            pass
        with self._federation.call() as operator:
            view = _finished(operator.run(self.run_id))
            return pooled_model(operator, view)

    def export(self, out: str | Path, wait: float = 60.0) -> dict[str, Any]:
        """Write U, the singular values and the reconstructions of public sites to a new directory; its manifest."""
        with self._federation.call() as operator:
            view = _finished(operator.run(self.run_id))
            exported = request_reconstructions(operator, view, wait)
            return download_export(operator, view, exported, Path(out))[1]

    def abort(self, reason: str = "") -> RunSnapshot:
        """Abort the run; one that is over stays as it is."""
        with self._federation.call() as operator:
            return snapshot_of(operator.abort(self.run_id, reason))

    def resume(self) -> RunSnapshot:
        """Let a paused run go on at the round it was in."""
        with self._federation.call() as operator:
            return snapshot_of(operator.resume(self.run_id))

    def finish(self, reason: str = "") -> RunSnapshot:
        """End the run with the consensus it has; the sites form their results from it."""
        with self._federation.call() as operator:
            return snapshot_of(operator.finish(self.run_id, reason))


def _finished(view: pb.RunView) -> pb.RunView:
    if view.status != "finished":
        hint = "`resume()` or `finish()` it" if view.status == "paused" else "propose another run"
        raise Refused(f"run {view.run_id} is {view.status}: {view.reason or 'no reason was given'}", hint)
    return view


def _text(path: str | Path | None) -> str | None:
    return None if path is None else str(path)


FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PooledModel:
    """The model of a finished run: U has a line for each feature, a column for each component.

    `features` is empty unless the spec named them; then lines go by number. With scaling U is in scaled units.
    """

    run_id: str
    verdict: Verdict | None
    U: FloatArray
    singular_values: FloatArray
    features: tuple[str, ...]
    rank_curve: tuple[RankError, ...]
    rounds: tuple[Round, ...]

    @property
    def rank(self) -> int:
        """The number of components."""
        return int(self.U.shape[1])

    def to_pandas(self) -> Any:
        """U as a pandas data frame: features by name or number, components from 1."""
        pandas = optional_library("pandas", "data frames")
        index = pandas.Index(self.features or range(self.U.shape[0]), name="feature")
        return pandas.DataFrame(self.U, index=index, columns=component_names(self.rank))

    def rank_frame(self) -> Any:
        """The error on hidden entries as a pandas data frame, by rank."""
        pandas = optional_library("pandas", "data frames")
        columns = ["rank", "error", "standard_error"]
        return pandas.DataFrame([asdict(one) for one in self.rank_curve], columns=columns).set_index("rank")


def pooled_model(operator: Operator, view: pb.RunView) -> PooledModel:
    """Fetch the model of a finished run, whose view carries all rounds."""
    U, values = model_arrays(operator, view.run_id)
    return PooledModel(
        view.run_id,
        verdict_of(view),
        U,
        values,
        tuple(json.loads(view.spec or b"{}").get("features") or ()),
        rank_curve_of(view),
        tuple(round_of(one) for one in view.rounds),
    )
