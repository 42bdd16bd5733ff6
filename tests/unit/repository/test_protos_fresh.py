import importlib.util
import itertools
from pathlib import Path

from tests.support.paths import ROOT


def generated(out: Path) -> dict[str, bytes]:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "protos" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.generate(out)
    return stubs(out)


def stubs(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "dcfpca" / "v1").glob("*_pb2*.py*")}


def test_the_committed_stubs_are_what_the_protos_generate(tmp_path: Path) -> None:
    fresh, committed = generated(tmp_path), stubs(ROOT)
    assert fresh.keys() == committed.keys()
    stale = [name for name, content in fresh.items() if committed[name] != content]
    assert not stale, f"run `make protos`; stale: {stale}"


def test_every_message_field_and_call_of_the_protos_is_commented() -> None:
    naked = []
    for path in sorted((ROOT / "protos" / "dcfpca" / "v1").glob("*.proto")):
        lines = [line.strip() for line in path.read_text().splitlines()]
        for before, line in itertools.pairwise(lines):
            declares = line.startswith(("message ", "enum ", "rpc ")) or ("=" in line and line.endswith(";"))
            if declares and not line.startswith(("syntax", "//")) and not before.startswith("//"):
                naked.append(f"{path.name}: {line}")
    assert not naked
