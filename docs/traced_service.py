"""Runs a service and notes every call of the project's own functions: `python -m docs.traced_service OUT MODULE ARG…`.

One *turn* is what the process does between two calls of its turning point: `answer` of a stage at a site, `advance` of
a stage at the aggregator. A turn holds everything that one round costs this process, whatever names things have.
"""

from __future__ import annotations

import dataclasses
import json
import runpy
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
from google.protobuf.message import Message

ROOT = Path(__file__).resolve().parent.parent
FIRST_AWAIT = 8  # a coroutine is entered again at each await: an upload begins where its bytecode does
PACKAGES = ("aggregator", "dcfpca", "participant")
TURNING_POINT = {"participant.main": "answer", "aggregator.main": "advance"}
NUMERIC_ROOM = "dcfpca/rpca/"
FLOAT_BYTES = 8
MOST_TAGS = 24  # what the secure sum appends to an update, in numbers
# A sum has the size of an update. A site hears of one in the next assignment; the aggregator forms one before it opens
# the round, so that only what follows the first upload of a turn are forms of an update.
NEXT_ASSIGNMENT, UPLOAD = "Assignment", "RoundServicer.Submit"


class Turn:
    """The calls of one turn in the order in which each function was first entered."""

    def __init__(self) -> None:
        self.functions: dict[str, None] = {}
        self.forms: dict[str, None] = {}
        self.hops = 0
        self.has_update = False


class Tracer:
    """A profile function for every thread. It knows calls by code object, so that most of them cost one look-up."""

    def __init__(self, turning_point: str, numbers: int) -> None:
        self._turning_point, self._numbers = turning_point, numbers
        self._names: dict[CodeType, str] = {}
        self._inside = threading.local()
        self._main = threading.get_ident()
        self.turns = [Turn()]

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        """Note a call or a return; everything else is of no interest."""
        if event == "call":
            if name := self._name(frame.f_code):
                self._called(name, frame)
        elif event == "return" and (name := self._name(frame.f_code)):
            self._returned(name, value)

    def document(self) -> list[dict[str, Any]]:
        """All turns, as JSON takes them."""
        return [{"functions": list(t.functions), "forms": list(t.forms), "hops": t.hops} for t in self.turns]

    def _called(self, name: str, frame: FrameType) -> None:
        depth = getattr(self._inside, "depth", 0)
        if self._turns(name):
            if not depth:
                self.turns.append(Turn())
                self.turns[-1].has_update = self._turning_point == "answer"
            self._inside.depth = depth + 1
        turn = self.turns[-1]
        turn.functions.setdefault(name)
        turn.has_update |= UPLOAD in name and frame.f_lasti < FIRST_AWAIT
        if threading.get_ident() != self._main and not self._has_caller(frame):
            turn.hops += 1
        code = frame.f_code
        for argument in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
            self._look_at(frame.f_locals.get(argument), turn)

    def _returned(self, name: str, value: Any) -> None:
        self._look_at(value, self.turns[-1])
        if self._turns(name):
            self._inside.depth = getattr(self._inside, "depth", 1) - 1

    def _turns(self, name: str) -> bool:
        return name.startswith(NUMERIC_ROOM) and name.endswith(f".{self._turning_point}")

    def _has_caller(self, frame: FrameType) -> bool:
        caller = frame.f_back
        while caller is not None:
            if self._name(caller.f_code):
                return True
            caller = caller.f_back
        return False

    def _look_at(self, value: Any, turn: Turn) -> None:
        if not turn.has_update or (form := self._form(value)) is None:
            return
        if form == NEXT_ASSIGNMENT:
            turn.has_update = False
        else:
            turn.forms.setdefault(form)

    def _form(self, value: Any) -> str | None:
        """What a value is called that holds the numbers of an update; None for everything else."""
        if isinstance(value, np.ndarray):
            return f"array of {value.dtype}" if self._fits(value.size) else None
        if isinstance(value, bytes | bytearray | memoryview):
            return type(value).__name__ if self._fits(len(value) / FLOAT_BYTES) else None
        if isinstance(value, Message) or dataclasses.is_dataclass(value):
            return type(value).__name__ if any(self._form(part) for part in _parts(value)) else None
        return None

    def _fits(self, numbers: float) -> bool:
        return self._numbers <= numbers <= self._numbers + MOST_TAGS

    def _name(self, code: CodeType) -> str:
        """`path:function` of a function of the project, empty for others; a nested one counts as its outer function."""
        if (known := self._names.get(code)) is not None:
            return known
        name = ""
        path = Path(code.co_filename)
        if path.is_relative_to(ROOT):
            inside = path.relative_to(ROOT)
            if inside.parts[0] in PACKAGES and "_pb2" not in inside.name and code.co_name != "<module>":
                name = f"{inside.as_posix()}:.{code.co_qualname.partition('.<locals>')[0]}"
        self._names[code] = name
        return name


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, Message):
        for _, part in value.ListFields():
            yield part
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield getattr(value, field.name, None)


def main() -> None:
    """Run the module that the command line names, and write what was noted when it ends."""
    out, numbers, module, *arguments = sys.argv[1:]
    tracer = Tracer(TURNING_POINT[module], int(numbers))
    sys.argv = [module, *arguments]
    # Loading compiled loops under a tracer takes half a minute; without numba the same calls end in numpy.
    sys.modules["numba"] = None  # type: ignore[assignment]
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        runpy.run_module(module, run_name="__main__")
    finally:
        sys.setprofile(None)
        Path(out).write_text(json.dumps(tracer.document()))


if __name__ == "__main__":
    main()
