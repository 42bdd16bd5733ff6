"""The methods by name. Imports nothing, so that commands can offer them without loading the numerics."""

from __future__ import annotations

from typing import Literal

MethodName = Literal["subspace", "gradient"]  # `dcfpca.methods.method_of` makes a method of each
