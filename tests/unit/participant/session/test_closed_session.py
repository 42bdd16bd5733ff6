"""What a session knows changes by the events it handles, and by nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SESSION = ROOT / "participant" / "session"
# By these names the rest of the participant holds a session, the site's part in a secure run, and its side.
HELD = {"session", "secure", "run", "side", "enrolment", "closing"}
READING = {"handle", "replay", "resume", "update", "admit", "open_round", "compares_features"}


def assigned(tree: ast.Module) -> list[str]:
    """The attributes of a session or of a part of it to which the module assigns."""
    targets = [
        target
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    flat = [one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [ast.unparse(one) for one in flat if isinstance(one, ast.Attribute) and last_word(one.value) in HELD]


def last_word(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize("path", sorted((ROOT / "participant").rglob("*.py")), ids=lambda path: path.stem)
def test_nobody_outside_writes_into_a_session(path: Path) -> None:
    if not path.is_relative_to(SESSION):
        assert assigned(ast.parse(path.read_text(encoding="utf-8"))) == []


def test_writing_into_a_session_would_be_found() -> None:
    source = "self.session.opened = None\nrun.checked, x = b'', 1\nsession.secure.verified += 1\nself.session = made\n"
    assert assigned(ast.parse(source)) == ["self.session.opened", "run.checked", "session.secure.verified"]


def test_the_driver_calls_nothing_of_a_session_but_what_handles_events_or_reads() -> None:
    called = {
        node.func.attr
        for path in (ROOT / "participant" / "driver").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and last_word(node.func.value) == "session"
    }
    assert called <= READING
