"""Messages of both eras, read and written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.mcp_client import META
from training_monitor.agents.mcp import protocol
from training_monitor.agents.mcp.protocol import ProtocolError

REQUEST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


def refusal(call: Any, *args: Any) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        call(*args)
    return caught.value


def test_what_is_no_json_or_too_deep_is_refused() -> None:
    for line in [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"9" * 10_000, b'"\\ud800', b"{'a': 1}"]:
        assert refusal(protocol.parse_line, line).code == protocol.PARSE_ERROR
    deepest = b"[" * protocol.MOST_DEPTH + b"]" * protocol.MOST_DEPTH
    assert protocol.parse_line(deepest)
    assert refusal(protocol.parse_line, b"[%s]" % deepest).code == protocol.INVALID_REQUEST


def test_a_broken_message_is_refused() -> None:
    wrong: list[object] = [1, {}, {**REQUEST, "jsonrpc": "1.0"}, {**REQUEST, "method": 5}]
    wrong += [{**REQUEST, "id": each} for each in (None, 1.5, True, [])]
    for found in wrong:
        assert refusal(protocol.read_message, found).code == protocol.INVALID_REQUEST, found
    of_versions = [{protocol.VERSION_KEY: each} for each in (5, "2026-07-28")]
    for meta in (5, *of_versions, {**META, protocol.CAPABILITIES_KEY: 1}):
        found = {**REQUEST, "params": {"_meta": meta}}
        assert refusal(protocol.read_message, found).code == protocol.INVALID_PARAMS, meta
    assert refusal(protocol.read_message, {**REQUEST, "params": []}).code == protocol.INVALID_PARAMS
    assert protocol.read_message({"jsonrpc": "2.0", "id": 1, "result": {}}) is None  # an answer that nobody asked for


def test_the_era_is_that_of_each_request_and_results_name_theirs() -> None:
    stateless = protocol.read_message({**REQUEST, "params": {"_meta": META}})
    plain = protocol.read_message(REQUEST)
    assert stateless and stateless.version == "2026-07-28" and plain and plain.version is None
    begins = protocol.read_message({**REQUEST, "method": "initialize", "params": {"_meta": META}})
    assert begins and begins.version is None
    result = protocol.stateless_result({"tools": [], "_meta": {"a": 1}})
    assert result["resultType"] == "complete"
    assert result["_meta"] == {"a": 1, protocol.SERVER_KEY: protocol.SERVER}
    assert json.dumps(result)
    meta = {**META, protocol.VERSION_KEY: "1900-01-01"}
    error = refusal(protocol.read_message, {**REQUEST, "params": {"_meta": meta}})
    assert error.code == protocol.UNSUPPORTED_VERSION
    assert error.data == {"supported": ["2026-07-28"], "requested": "1900-01-01"}


def test_a_handshake_gets_the_version_that_it_asks_for_or_the_newest() -> None:
    for version in protocol.HANDSHAKE_VERSIONS:
        assert protocol.agreed_version({"protocolVersion": version}) == version
    for version in ("2031-01-01", "2026-07-28"):
        assert protocol.agreed_version({"protocolVersion": version}) == "2025-11-25"
    assert refusal(protocol.agreed_version, {"protocolVersion": 5}).code == protocol.INVALID_PARAMS
