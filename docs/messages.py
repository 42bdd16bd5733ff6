"""Every sentence that users see, read from the source and gathered by kind, so that they can be read together.

usage: python -m docs.messages

`make site` has it as a page. In the code a sentence stays beside the condition that it states, so that whoever changes
one sees the other; a catalogue of texts would separate the two, and would need a module for each side, since neither
service may import the other. What a catalogue gives is here: every sentence of a kind in one list, which tests hold to
the rules of prose and to completeness, because it is read from the source and no module is without a kind.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# The first kind that names a module, or a package above it, has its sentences.
KINDS = {
    "Verdicts, and notes about a site": (
        "dcfpca/rpca/refinement/verdict.py",
        "dcfpca/rpca/own_view",
        "dcfpca/rpca/subspace/site_result.py",
        "dcfpca/rpca/private/pooling.py",
        "dcfpca/rpca/method.py",
        "dcfpca/privacy/statement.py",
        "participant/privacy_account.py",
        "participant/results/manifest.py",
        "aggregator/operator_views.py",
    ),
    "Findings, reports and the console": (
        "participant/findings",
        "participant/results",
        "participant/console",
        "dcfpca/report",
    ),
    "Why a site refuses or asks": (
        "participant/review.py",
        "participant/policy.py",
        "participant/privacy_review.py",
        "participant/session/enrolment.py",
    ),
    "How a run waits, pauses and ends": ("aggregator/run", "aggregator/round_sum.py"),
    "What doctor says": ("dcfpca/doctor", "participant/commands/doctor.py"),
    "What commands say": (
        "dcfpca/cli",
        "dcfpca/text",
        "dcfpca/operator",
        "dcfpca/scaffold/background.py",
        "dcfpca/scaffold/demo.py",
        "dcfpca/scaffold/local_consortium.py",
        "dcfpca/python_api",
        "dcfpca/run_size.py",
        "dcfpca/run_references.py",
        "participant/commands",
        "participant/main.py",
        "aggregator/main.py",
    ),
    "Configuration and spec": (
        "dcfpca/config_file.py",
        "dcfpca/spec.py",
        "dcfpca/privacy/settings.py",
        "aggregator/config.py",
        "aggregator/proposal.py",
        "aggregator/participant_directory.py",
        "participant/config.py",
        "participant/data/data_config.py",
    ),
    "Data": ("participant/data", "participant/local_site.py"),
    "Certificates": ("dcfpca/pki", "dcfpca/identity.py", "aggregator/trust.py", "participant/peer_verifier.py"),
    "Connections": ("dcfpca/wire", "dcfpca/web_server.py", "participant/link"),
    "What the aggregator answers": ("aggregator/rpc", "aggregator/sums.py", "aggregator/runner.py", "aggregator"),
    "The secure sum, and what a site verifies": (
        "dcfpca/secagg",
        "participant/session",
        "participant/contract.py",
        "participant/driver",
        "participant/egress.py",
        "participant/wire_codec.py",
    ),
    "Stores and state": ("aggregator/store", "aggregator/run_registry.py", "aggregator/service", "participant"),
    "What the numerics refuse, and what no sum or broadcast can be": ("dcfpca",),
}
LEFT_OUT = ("dcfpca/v1", "dcfpca/scaffold", "aggregator/telemetry.py", "participant/telemetry.py")
HEAD = """# Messages

Every sentence that commands, services, reports and pages show, by kind. A name in braces stands for a value, and a hint
follows its sentence after an arrow. Some lines are parts of longer sentences. [Commands](cli.md) has the help texts,
[Configuration](configuration.md) the keys.
"""
_DESCRIBED_ELSEWHERE = {"help", "description"}
_WITHOUT_HINT = {"Titles", "LazyCommand"}
_TAKES_NAMES = {"message_fields", "search", "fullmatch"}  # of fields, or a pattern
_NO_SENTENCE = re.compile(
    r"^(?=(?:.*[a-z]_[a-z]+ ){2})[a-z_ ]+$|\b[A-Z]{4,} [A-Z]{3,}\b|-src '|\bat_ms\b|\n"
    r"|^\W*(SELECT|INSERT|UPDATE|DELETE|PRAGMA|SET|-c)\b"
)


def messages() -> str:
    """The text of messages.md."""
    found: dict[str, dict[str, None]] = {kind: {} for kind in KINDS}
    actions: set[str] = set()
    for path in sorted(file for top in ("dcfpca", "aggregator", "participant") for file in (ROOT / top).rglob("*.py")):
        module = path.relative_to(ROOT).as_posix()
        if not _below(module, LEFT_OUT):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found[next(kind for kind, modules in KINDS.items() if _below(module, modules))] |= dict.fromkeys(
                _said(tree)
            )
            actions |= set(_logged(tree))
    parts = [f"\n## {kind}\n\n" + "".join(f"- {_escaped(line)}\n" for line in lines) for kind, lines in found.items()]
    logged = ", ".join(f"`{action}`" for action in sorted(actions))
    return HEAD + "".join(parts) + f"\n## Actions in the logs\n\n{logged}\n"


def _below(module: str, places: tuple[str, ...]) -> bool:
    return any(module == place or module.startswith(f"{place}/") for place in places)


def _said(node: ast.AST) -> Iterator[str]:
    """Every sentence below a node, in the order of the source; a hint follows the sentence it belongs to."""
    if isinstance(node, ast.Call):
        made = _name(node.func)
        if made in _TAKES_NAMES:
            return
        texts = [_text(one) for one in (*node.args, *(one.value for one in node.keywords if one.arg == "hint"))]
        if len(texts) > 1 and _is_sentence(texts[0]) and texts[-1] and made[:1].isupper() and made not in _WITHOUT_HINT:
            yield f"{texts[0]} → {texts[-1]}"
            return
    for below in ast.iter_child_nodes(node):
        if isinstance(below, ast.keyword) and below.arg in _DESCRIBED_ELSEWHERE:
            continue
        if isinstance(below, ast.Attribute | ast.Expr) and isinstance(below.value, ast.Constant):
            continue  # a docstring, or words that are split
        text = _text(below)
        if _is_sentence(text):
            yield text
        elif not isinstance(below, ast.JoinedStr):
            yield from _said(below)


def _logged(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) == "log" and node.args:
            first = _text(node.args[0])
            if re.fullmatch(r"[a-z_{}]+", first):
                yield first


def _text(node: ast.AST) -> str:
    """What a string says, values by their names and without the tags of HTML; empty for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _without_tags(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = (one.value if isinstance(one, ast.Constant) else f"{{{_value(one)}}}" for one in node.values)
        return _without_tags("".join(map(str, parts)))
    return ""


def _value(part: ast.AST) -> str:
    """The name that a value has in the code, without what is done to it."""
    inner = part.value if isinstance(part, ast.FormattedValue) else part
    match inner:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_")
        case ast.Call(args=[only]):
            return _value(only)
        case ast.Call(func=func):
            return _name(func).strip("_")
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            return key
        case ast.Subscript(value=value):
            return _value(value)
    return "…"


def _name(function: ast.AST) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _without_tags(text: str) -> str:
    return " ".join(re.sub(r"<[a-z/!][^<>]*>", " ", text).split()) if "<" in text else text.strip()


def _is_sentence(text: str) -> bool:
    """Whether it has four words or more, and is no SQL, header or list of keys."""
    return len(re.findall(r"(?<!\S)[a-zA-Z'-]+(?![\w}=])", text)) >= 4 and not _NO_SENTENCE.search(text)


def _escaped(text: str) -> str:
    """Markdown that shows the text as it is; what is in backquotes stays code."""
    parts = text.split("`")
    return "`".join(part if place % 2 else re.sub(r"([\\*_<>\[\]])", r"\\\1", part) for place, part in enumerate(parts))


if __name__ == "__main__":
    sys.stdout.write(messages())
