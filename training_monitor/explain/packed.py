"""Unpack what targets/sh/packed.sh has packed. Pure."""

from __future__ import annotations

from training_monitor.core.errors import ParseError

_GZIP = b"\x1f\x8b"


def unpack(text: str, encoding: str, most: int, *, source: str) -> bytes:
    """Return the bytes that were packed as `base64` or `hex`.

    Raises:
        ParseError: it is not as it was sent, or has more than `most` bytes.
    """
    import zlib
    from binascii import Error, a2b_base64

    try:
        data = a2b_base64(text) if encoding == "base64" else bytes.fromhex(text)
        if data.startswith(_GZIP):
            unpacking = zlib.decompressobj(31)
            data = unpacking.decompress(data, max(1, most) + 1)
            if not unpacking.eof:
                raise ParseError("cut", source=source)
    except (Error, ValueError, zlib.error) as error:
        raise ParseError("not as it was sent", source=source) from error
    if len(data) > most:
        raise ParseError("too many bytes", source=source)
    return data
