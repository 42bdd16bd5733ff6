"""A participant daemon that behaves but for one lie, named by the variable LIE of its environment."""

from __future__ import annotations

import os
from importlib import import_module
from itertools import count
from typing import Any

from dcfpca.rpca.method import Consensus, TensorMessage
from dcfpca.rpca.refinement.null import Null
from dcfpca.secagg import fixed_point

LIE = "DCFPCA_TESTED_LIE"


def more_in_the_null(share: float) -> None:
    """Its counts of the null are so much larger than its data's."""
    honest = Null.merged

    def merged(self: Null, exact: TensorMessage, asked: Consensus, least: int) -> TensorMessage:
        told = honest(self, exact, asked, least)
        return TensorMessage((1.0 + share) * told.tensor, told.scalars)

    Null.merged = merged  # type: ignore[method-assign]


def false_misfits(after: int) -> None:
    """Its updates are said not to fit, three times, from its answer of this number on."""
    honest, asked = fixed_point.fits, count()

    def fits(*update: Any) -> bool:
        return honest(*update) and not after <= next(asked) < after + 3

    setattr(import_module("dcfpca.secagg.site"), "fits", fits)  # noqa: B010  it is not exported there


def main() -> None:
    kind, _, number = os.environ[LIE].partition(" ")
    {"null": lambda: more_in_the_null(float(number)), "misfits": lambda: false_misfits(int(number))}[kind]()
    from participant.main import main as participate  # noqa: PLC0415  after the lie is in place

    participate()


if __name__ == "__main__":
    main()
