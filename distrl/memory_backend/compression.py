"""Compressed payloads of unrolls, and their bounded decompression.

A payload says itself how it is compressed, so that the learner reads every method at any time, and `memory.compression`
is an instruction for actors alone:

    byte 0      0xC1, which begins no msgpack message; a payload that begins with another byte is not compressed
    byte 1      1: a frame of Zstandard that knows its content's size; 2: a block of LZ4
    bytes 2-5   size of the content in bytes, big-endian
    the rest    the frame or the block

The decoder allocates nothing before the stated size is found to be within the caller's bound, and refuses a content of
another size. Content is never decompressed twice: a payload within a payload is no message.
"""

from collections.abc import Callable
from typing import Literal

from distrl.errors import DecodeError, require

Method = Literal["none", "zstd", "lz4"]
Compress = Callable[[bytes], bytes]

MARK = b"\xc1"
HEAD_BYTES = 6
ZSTD_LEVEL = 1
"""The fastest of Zstandard's regular levels."""
_CODES = {"zstd": 1, "lz4": 2}
_LEAST_WINDOW = 1024
"""Least window that Zstandard knows."""


def compressor(method: Method) -> Compress:
    """Return a function that compresses payloads; it returns one as it is if compression would not shorten it.

    The function is for one thread.

    Raises:
        MissingExtraError: The method's library is not installed.
    """
    if method == "none":
        return _unchanged
    require_library(method)
    compress = _zstd() if method == "zstd" else _lz4()
    code = _CODES[method]

    def compressed(payload: bytes) -> bytes:
        body = compress(payload)
        if HEAD_BYTES + len(body) >= len(payload):
            return payload
        return b"".join((MARK, bytes((code,)), len(payload).to_bytes(4, "big"), body))

    return compressed


def require_library(method: Method) -> None:
    """Raise MissingExtraError unless the method's library is installed."""
    if method != "none":
        module = "zstandard" if method == "zstd" else "lz4"
        require(module, f"{module}, which memory.compression: {method} needs,", "compression")


def decompressed(payload: bytes, most_bytes: int) -> bytes:
    """Return the content of a payload; one that is not compressed is returned as it is.

    Args:
        most_bytes: Longest content that is accepted.

    Raises:
        DecodeError: The content is longer, or is not what the payload says.
    """
    if payload[:1] != MARK:
        return payload
    size = int.from_bytes(payload[2:HEAD_BYTES], "big")
    if len(payload) <= HEAD_BYTES or not 0 < size <= most_bytes:
        raise DecodeError(f"{len(payload)} compressed bytes of {size:,}, at most {most_bytes:,} are accepted")
    code, body = payload[1], memoryview(payload)[HEAD_BYTES:]
    if code not in _CODES.values():
        raise DecodeError(f"compression method {code} is not known")
    try:
        content = _zstd_content(body, size) if code == _CODES["zstd"] else _lz4_content(body, size)
    except ImportError as error:
        raise DecodeError(f"compressed by a library that the learner does not have: {error.name}") from error
    if len(content) != size:
        raise DecodeError(f"{len(content)} decompressed bytes, not {size}")
    return content


def _unchanged(payload: bytes) -> bytes:
    return payload


def _zstd() -> Compress:
    import zstandard

    return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress


def _lz4() -> Compress:
    import lz4.block

    return lambda payload: bytes(lz4.block.compress(payload, store_size=False))


def _zstd_content(body: memoryview, size: int) -> bytes:
    import zstandard

    try:
        # zstandard allocates the size in the frame, and would take twice `most_bytes` for a window of that size.
        if zstandard.frame_content_size(body) != size:
            raise DecodeError(f"a Zstandard frame is not of {size} bytes")
        decompressor = zstandard.ZstdDecompressor(max_window_size=max(size, _LEAST_WINDOW))
        return decompressor.decompress(body, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise DecodeError(f"damaged Zstandard frame: {error}") from error


def _lz4_content(body: memoryview, size: int) -> bytes:
    import lz4.block

    try:
        return bytes(lz4.block.decompress(body, uncompressed_size=size))
    except lz4.block.LZ4BlockError as error:
        raise DecodeError(f"damaged LZ4 block: {error}") from error
