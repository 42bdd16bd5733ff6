"""The picture writer, read back by an independent reader made of zlib and struct."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dcfpca.report.png import data_uri, encode, levels


def _decode(png: bytes) -> tuple[np.ndarray, bytes]:
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(png):
        (length,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        data = png[at + 8 : at + 8 + length]
        (crc,) = struct.unpack(">I", png[at + 8 + length : at + 12 + length])
        assert crc == zlib.crc32(kind + data)
        chunks[kind] = data
        at += 12 + length
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, colour) == (8, 3)
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()
    return rows[:, 1:], chunks[b"PLTE"]


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_every_pixel_comes_back(height: int, width: int, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)
    got, colours = _decode(encode(pixels))
    assert np.array_equal(got, pixels)
    assert len(colours) == 3 * 256


def test_zero_is_the_middle_larger_is_redder_and_missing_is_its_own_colour() -> None:
    placed = levels(np.array([[-2.0, -1.0, 0.0, 1.0, 2.0, np.nan]]), 1.0)
    assert placed.tolist() == [[0, 0, 127, 254, 254, 255]]
    _, colours = _decode(encode(placed))
    red, blue = colours[3 * 254 : 3 * 255], colours[:3]
    assert red[0] > red[2]
    assert blue[2] > blue[0]


def test_a_picture_without_values_is_still_a_picture() -> None:
    assert data_uri(levels(np.zeros((1, 1)), 0.0)).startswith("data:image/png;base64,")
