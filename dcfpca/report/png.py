"""Heat maps of matrices as palette PNG files, written with zlib alone."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# Diverging, blue through near-white (zero) to red: safe for common kinds of colour blindness.
_STOPS = np.array([[5, 48, 97], [67, 147, 195], [247, 247, 247], [214, 96, 77], [103, 0, 31]], dtype=float)
_UNKNOWN = 255
"""The palette index of a missing value."""


def palette() -> bytes:
    """256 colours: 0 … 254 from the least to the greatest value, 255 for none."""
    places = np.linspace(0, len(_STOPS) - 1, _UNKNOWN)
    colours = np.stack([np.interp(places, np.arange(len(_STOPS)), _STOPS[:, k]) for k in range(3)], axis=1)
    return np.vstack([colours, [[128, 128, 128]]]).round().astype(np.uint8).tobytes()


def levels(values: FloatArray, reach: float) -> NDArray[np.uint8]:
    """Palette indices: −reach … reach spans the palette, values beyond are clipped, NaN has an index of its own."""
    centre = (_UNKNOWN - 1) / 2
    with np.errstate(invalid="ignore"):
        placed = np.clip(centre + centre * values / (reach or 1.0), 0, _UNKNOWN - 1)
    return np.where(np.isnan(values), _UNKNOWN, np.nan_to_num(placed).round()).astype(np.uint8)


def encode(indices: NDArray[np.uint8]) -> bytes:
    """A PNG file with one palette index per pixel."""
    height, width = indices.shape
    rows = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(indices))
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    body = [(b"IHDR", header), (b"PLTE", palette()), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in body)


def data_uri(indices: NDArray[np.uint8]) -> str:
    """The image as a data: URI."""
    return "data:image/png;base64," + base64.b64encode(encode(indices)).decode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
