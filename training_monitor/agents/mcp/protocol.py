"""The Model Context Protocol on the wire: JSON-RPC 2.0, one message a line, in both of its eras. Pure.

Until 2025-11-25 a connection begins with the `initialize` handshake. Since 2026-07-28 there is none: every request
carries version and capabilities in `_meta`, and results carry `resultType`. One server answers both.
https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, TypeGuard

from training_monitor import __version__

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS_VERSIONS = ("2026-07-28",)
BATCH_VERSIONS = HANDSHAKE_VERSIONS[:2]  # later ones have no batches
TEXT_VERSIONS = HANDSHAKE_VERSIONS[:2]  # that know no structured content
PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
UNSUPPORTED_VERSION = -32022
MOST_DEPTH = 64  # of nested lists and tables in a message
CACHE_MILLISECONDS = 3_600_000  # of the list of tools, which changes with the program only
_META = "io.modelcontextprotocol"
VERSION_KEY, CAPABILITIES_KEY = f"{_META}/protocolVersion", f"{_META}/clientCapabilities"
SERVER_KEY = f"{_META}/serverInfo"
SERVER = {"name": "training-monitor", "version": __version__}
Table = dict[str, Any]


class ProtocolError(Exception):
    """A request that gets a JSON-RPC error: args are its code and what is wrong."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(code, message)
        self.code, self.message, self.data = code, message, data


class Message(NamedTuple):
    """A request; or, without `id`, a notification. `version` is that of a stateless request, None otherwise."""

    method: str
    params: Table
    id: str | int | None = None
    version: str | None = None

    @property
    def progress_token(self) -> str | int | None:
        """The token under which the client wants to hear of progress."""
        token = self.params.get("_meta", {}).get("progressToken")
        return token if is_id(token) else None


def parse_line(line: bytes) -> Any:
    """Parse one line. Raises ProtocolError for what is no JSON, or too deep."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(PARSE_ERROR, f"not JSON: {str(error)[:200]}") from None
    _check_depth(found)
    return found


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [part for each in level if isinstance(each, (list, dict)) for part in _parts(each)]
        if not level:
            return
    raise ProtocolError(INVALID_REQUEST, f"lists and objects are nested more than {MOST_DEPTH} levels deep")


def _parts(value: list[Any] | Table) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value


def is_id(value: object) -> TypeGuard[str | int]:
    """Return whether a value may be the id of a request, or a progress token."""
    return type(value) in (str, int)


def id_of(found: Any) -> str | int | None:
    """Return the id of a message, however broken; None if there is none that could be answered to."""
    given = found.get("id") if isinstance(found, dict) else None
    return given if is_id(given) else None


def read_message(found: Any) -> Message | None:
    """Read a request or notification; None for an answer, which nobody asked for. Raises ProtocolError."""
    if not isinstance(found, dict) or found.get("jsonrpc") != "2.0":
        raise ProtocolError(INVALID_REQUEST, 'expected one object with "jsonrpc": "2.0"')
    if "method" not in found and ("result" in found or "error" in found):
        return None
    method, params = found.get("method"), found.get("params", {})
    if not isinstance(method, str):
        raise ProtocolError(INVALID_REQUEST, "method: expected a string")
    if "id" in found and not is_id(found["id"]):
        raise ProtocolError(INVALID_REQUEST, "id: expected a string or an integer")
    if not isinstance(params, dict) or not isinstance(params.get("_meta", {}), dict):
        raise ProtocolError(INVALID_PARAMS, "params, params._meta: expected objects")
    return Message(method, params, found.get("id"), _stateless_version(method, params))


def _stateless_version(method: str, params: Table) -> str | None:
    """Return the version that a request carries; None for one of the handshake's era. Raises ProtocolError."""
    meta = params.get("_meta", {})
    if method == "initialize" or VERSION_KEY not in meta:
        return None
    version = meta[VERSION_KEY]
    if not isinstance(version, str):
        raise ProtocolError(INVALID_PARAMS, f"{VERSION_KEY}: expected a string")
    if version not in STATELESS_VERSIONS:
        told = {"supported": list(STATELESS_VERSIONS), "requested": version[:100]}
        raise ProtocolError(UNSUPPORTED_VERSION, "Unsupported protocol version", told)
    if not isinstance(meta.get(CAPABILITIES_KEY), dict):
        raise ProtocolError(INVALID_PARAMS, f"params._meta: {CAPABILITIES_KEY} is missing")
    return version


def agreed_version(params: Table) -> str:
    """Return the version of a handshake: the one asked for, or else the newest. Raises ProtocolError."""
    asked = params.get("protocolVersion")
    if not isinstance(asked, str):
        raise ProtocolError(INVALID_PARAMS, "protocolVersion: expected a string")
    return asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]


# ---------------------------------------------------------------- what the server says


def format_initialized(version: str, instructions: str) -> Table:
    """Return the result of `initialize`."""
    told = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": SERVER}
    return {**told, "instructions": instructions}


def format_discovered(instructions: str) -> Table:
    """Return the result of `server/discover`."""
    told = {"supportedVersions": list(STATELESS_VERSIONS), "capabilities": {"tools": {}}}
    return {**told, "instructions": instructions, **cacheable()}


def cacheable() -> Table:
    """Return what tells a client how long it may keep a result."""
    return {"ttlMs": CACHE_MILLISECONDS, "cacheScope": "private"}


def stateless_result(result: Table) -> Table:
    """Return a result as the stateless era has it."""
    return {"resultType": "complete", **result, "_meta": {**result.get("_meta", {}), SERVER_KEY: SERVER}}


def format_result(request_id: str | int, result: Table) -> Table:
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def format_error(request_id: str | int | None, error: ProtocolError) -> Table:
    told = {"code": error.code, "message": error.message}
    return {"jsonrpc": "2.0", "id": request_id, "error": told if error.data is None else {**told, "data": error.data}}


def format_progress(token: str | int, progress: float, text: str) -> Table:
    told = {"progressToken": token, "progress": progress, "message": text}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": told}
