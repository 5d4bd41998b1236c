import struct
import tracemalloc

import numpy as np
import pytest

numcodecs = pytest.importorskip("numcodecs")

from dmlcpu.files import FileError  # noqa: E402
from dmlcpu.files.unpacking import CODECS, longer, unpack  # noqa: E402

PACK = {
    "blosc": numcodecs.Blosc("zstd"),
    "bz2": numcodecs.BZ2(),
    "gzip": numcodecs.GZip(),
    "lz4": numcodecs.LZ4(),
    "lzma": numcodecs.LZMA(preset=0),
    "zlib": numcodecs.Zlib(),
    "zstd": numcodecs.Zstd(),
}
SIZE = 50_000


def packed(codec: str, data: bytes) -> np.ndarray:
    return np.frombuffer(PACK[codec].encode(np.frombuffer(data, "u1")), "u1")


def frame_without_size(data: bytes) -> bytes:
    """A frame of zstd's with one block that is not compressed."""
    return struct.pack("<I", 0xFD2FB528) + b"\0\x58" + (len(data) << 3 | 1).to_bytes(3, "little") + data


def read(codec: str, array: np.ndarray, most: int, *, exact: bool = True) -> bytes:
    return bytes(unpack(codec, array, most, exact=exact, options={}))


@pytest.mark.parametrize("size", [1, 200, 300, SIZE, 1 << 17])
@pytest.mark.parametrize("codec", CODECS)
def test_unpacks_what_fits(codec: str, size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, "u1").tobytes()
    array = packed(codec, data)
    assert array.size <= longer(size)
    assert read(codec, array, size) == data
    assert read(codec, array, size + 7, exact=False) == data


@pytest.mark.parametrize("codec", CODECS)
def test_more_than_fits_is_refused(codec: str) -> None:
    with pytest.raises(FileError, match=r"a chunk that unpacks to .*50,000 bytes|more than 49,999 bytes"):
        read(codec, packed(codec, bytes(SIZE)), SIZE - 1)
    noise = np.random.default_rng(1).integers(0, 256, SIZE, "u1").tobytes()
    with pytest.raises(FileError, match=r"a chunk of 50,.* bytes; allowed: at most 1,136"):
        read(codec, packed(codec, noise), 100)


@pytest.mark.parametrize("codec", CODECS)
def test_memory_is_not_taken_for_what_is_refused(codec: str) -> None:
    """20 MB of zeros, for a chunk of 50,000 bytes."""
    array = packed(codec, bytes(20_000_000))
    most = max(SIZE, array.size)
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match="a chunk that unpacks to"):
            read(codec, array, most)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [8, 16, 17, 16_000])
def test_blosc_reads_no_more_than_the_chunk(size: int) -> None:
    """A header that says "stored, 16,000 bytes", and fewer bytes, or more, than it says."""
    header = struct.pack("<4B3I", 2, 1, 0x02, 1, 16_000, 16_000, 16_016)
    stored = np.frombuffer(header + bytes(range(250)) * 64, "u1")
    assert read("blosc", stored, 16_000) == bytes(range(250)) * 64
    with pytest.raises(FileError, match=f"a chunk of {size:,} bytes; allowed: {0 if size < 16 else 16_016:,}, as its"):
        read("blosc", stored[:size].copy(), 16_000)


def test_frames_of_zstd() -> None:
    data = bytes(range(256))
    several = np.frombuffer(frame_without_size(data) + frame_without_size(data), "u1")
    assert read("zstd", np.frombuffer(frame_without_size(data), "u1"), 256) == data
    assert read("zstd", several, 512) == data * 2
    with pytest.raises(FileError, match="does not say its size"):
        read("zstd", several, 512, exact=False)
    bomb = np.concatenate([packed("zstd", data), packed("zstd", bytes(1 << 20))])
    for array, most in [(several, 511), (several, 513), (bomb, 256), (bomb, 512)]:
        with pytest.raises((RuntimeError, ValueError), match=r"Zstd decompression error|destination buffer too small"):
            read("zstd", array, most)
    for broken in (b"", b"\x28", frame_without_size(data)[:5], frame_without_size(data)[:20]):
        with pytest.raises(RuntimeError, match="Zstd decompression error"):
            read("zstd", np.frombuffer(broken, "u1"), 256)
