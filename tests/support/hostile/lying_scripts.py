"""Scripts of a lying aggregator, drawn and played by Hypothesis."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def play(liar: type[RuleBasedStateMachine], scripts: int, *, steps: int = 20, derandomize: bool = False) -> None:
    """Play so many scripts of up to so many steps; the first that breaks the machine's invariant fails, not
    shortened."""
    chosen = settings(
        max_examples=scripts,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=derandomize,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(liar, settings=chosen)
