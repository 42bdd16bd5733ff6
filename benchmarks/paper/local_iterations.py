"""The ablation of K, the local iterations per round: faster at first, and a higher floor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.paper.error_traces import Track, federated
from benchmarks.paper.published import ABLATION_TUNING, Tuning, scaled
from dcfpca.rpca.gradient.settings import GradientSettings
from dcfpca.rpca.gradient.stages import GradientSolver, gradient_method
from dcfpca.rpca.synthetic import paper_problem


@dataclass(frozen=True, slots=True)
class Plan:
    """The values of K, the size and the rounds."""

    size: int = 500
    counts: tuple[int, ...] = (1, 2, 5, 10)
    rounds: int = 50


FULL = Plan()
QUICK = Plan(size=200, counts=(1, 5, 10), rounds=40)


@dataclass(frozen=True, slots=True)
class Case:
    """The curve of one K."""

    size: int
    local_iterations: int
    tuning: Tuning
    track: Track
    flat_from: int  # the first round whose err is within a tenth of all later ones


def measure(plan: Plan, say: Callable[[str], None]) -> Iterator[Case]:
    """One case per K, with the same constant learning rate and the same matrix."""
    problem = paper_problem(plan.size, plan.size // 20, 0.05, ABLATION_TUNING.sites, 0)
    tuning = scaled(ABLATION_TUNING, plan.size)
    for count in plan.counts:
        say(f"K = {count}")
        settings = GradientSettings(count, tuning.learning_rate, "constant", tuning.lambda_)
        method = gradient_method(GradientSolver(plan.size, problem.rank, plan.rounds, settings=settings))
        track = federated(f"K = {count}", method, problem)
        yield Case(plan.size, count, tuning, track, flat_from(track.errors))


def flat_from(errors: tuple[float, ...]) -> int:
    """The first round from which err changes by less than a tenth to the last."""
    last = errors[-1]
    inside = [abs(error - last) <= 0.1 * last for error in errors]
    return len(inside) - next((back for back, ok in enumerate(reversed(inside)) if not ok), len(inside)) + 1
