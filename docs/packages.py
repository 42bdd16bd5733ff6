"""The packages of architecture.md: what each holds, what it imports, and the contracts, read from the source itself."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOP = ("dcfpca", "aggregator", "participant")
GENERATED = "dcfpca.v1"


def packages() -> str:
    """A table: every package and what its docstring says it holds."""
    rows = [f"| `{name}` | {_summary(ROOT / name.replace('.', '/') / '__init__.py')} |\n" for name in _packages()]
    return "| package | what is in it |\n|---|---|\n" + "".join(rows)


def imports() -> str:
    """A table: which other packages each package imports; modules directly in one count as its own."""
    rows = []
    for package in _packages():
        used = sorted(_imported(package) - {package})
        rows.append(f"| `{package}` | {', '.join(f'`{name}`' for name in used) or '–'} |\n")
    return "| package | imports |\n|---|---|\n" + "".join(rows)


def contracts() -> str:
    """The import contracts of pyproject.toml, as sentences."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    return "".join(
        f"- **{contract['name']}**: {_sentence(contract)}\n" for contract in tools["importlinter"]["contracts"]
    )


def _sentence(contract: dict[str, object]) -> str:
    match contract["type"]:
        case "independence":
            return f"no module of {_names(contract['modules'])} imports one of the others."
        case "forbidden":
            how = "" if contract.get("allow_indirect_imports") else ", not even through others"
            sources, forbidden = _names(contract["source_modules"]), _names(contract["forbidden_modules"])
            return f"no module of {sources} imports {forbidden}{how}."
        case "layers":
            return f"each imports only what stands after it: {_names(contract['layers'])}."
        case "protected":
            allowed = _names(contract.get("allowed_importers", ())) or "nobody"
            return f"{_names(contract['protected_modules'])} are imported by {allowed} only."
        case other:
            return f"contract of type {other}; see pyproject.toml."


def _names(modules: object) -> str:
    assert isinstance(modules, list | tuple)
    return ", ".join(f"`{name}`" for name in modules)


def _packages() -> list[str]:
    """Every package but the generated stubs, parents first."""
    inits = [path for name in TOP for path in sorted((ROOT / name).rglob("__init__.py"))]
    names = [".".join(path.parent.relative_to(ROOT).parts) for path in inits]
    return [name for name in names if name != GENERATED]


def _summary(path: Path) -> str:
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(doc.split("\n\n")[0].split()).replace("|", "\\|")


def _imported(package: str) -> set[str]:
    folder, known = ROOT / package.replace(".", "/"), set(_packages())
    modules = (name for path in sorted(folder.glob("*.py")) for name in _modules_in(path))
    return {found for module in modules if (found := _package_of(module, known))}


def _modules_in(path: Path) -> Iterable[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            # `from package import module` names the module only in the alias.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _package_of(module: str, known: set[str]) -> str | None:
    while module and module not in known:
        if module == GENERATED:
            return GENERATED
        module = module.rpartition(".")[0]
    return module or None
