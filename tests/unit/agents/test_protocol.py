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


@pytest.mark.parametrize("line", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"9" * 10_000, b'"\\ud800', b"{'a': 1}"])
def test_what_is_no_json_is_a_parse_error(line: bytes) -> None:
    assert refusal(protocol.parse_line, line).code == protocol.PARSE_ERROR


def test_a_message_of_many_levels_is_refused() -> None:
    deepest = b"[" * protocol.MOST_DEPTH + b"]" * protocol.MOST_DEPTH
    assert protocol.parse_line(deepest)
    assert refusal(protocol.parse_line, b"[%s]" % deepest).code == protocol.INVALID_REQUEST


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (1, protocol.INVALID_REQUEST),
        ({}, protocol.INVALID_REQUEST),
        ({**REQUEST, "jsonrpc": "1.0"}, protocol.INVALID_REQUEST),
        ({**REQUEST, "id": None}, protocol.INVALID_REQUEST),
        ({**REQUEST, "id": 1.5}, protocol.INVALID_REQUEST),
        ({**REQUEST, "id": True}, protocol.INVALID_REQUEST),
        ({**REQUEST, "id": []}, protocol.INVALID_REQUEST),
        ({**REQUEST, "method": 5}, protocol.INVALID_REQUEST),
        ({**REQUEST, "params": []}, protocol.INVALID_PARAMS),
        ({**REQUEST, "params": {"_meta": 5}}, protocol.INVALID_PARAMS),
        ({**REQUEST, "params": {"_meta": {protocol.VERSION_KEY: 5}}}, protocol.INVALID_PARAMS),
        ({**REQUEST, "params": {"_meta": {protocol.VERSION_KEY: "2026-07-28"}}}, protocol.INVALID_PARAMS),
        ({**REQUEST, "params": {"_meta": {**META, protocol.CAPABILITIES_KEY: 1}}}, protocol.INVALID_PARAMS),
    ],
    ids=str,
)
def test_a_broken_message_is_refused(found: object, code: int) -> None:
    assert refusal(protocol.read_message, found).code == code


def test_a_version_that_is_not_served_names_those_that_are() -> None:
    meta = {**META, protocol.VERSION_KEY: "1900-01-01"}
    error = refusal(protocol.read_message, {**REQUEST, "params": {"_meta": meta}})
    assert error.code == protocol.UNSUPPORTED_VERSION
    assert error.data == {"supported": ["2026-07-28"], "requested": "1900-01-01"}


def test_the_era_is_that_of_each_request() -> None:
    stateless = protocol.read_message({**REQUEST, "params": {"_meta": META}})
    plain = protocol.read_message(REQUEST)
    assert stateless and stateless.version == "2026-07-28" and plain and plain.version is None
    begins = protocol.read_message({**REQUEST, "method": "initialize", "params": {"_meta": META}})
    assert begins and begins.version is None


def test_answers_that_nobody_asked_for_say_nothing() -> None:
    assert protocol.read_message({"jsonrpc": "2.0", "id": 1, "result": {}}) is None


@pytest.mark.parametrize("version", protocol.HANDSHAKE_VERSIONS)
def test_a_handshake_gets_the_version_that_it_asks_for(version: str) -> None:
    assert protocol.agreed_version({"protocolVersion": version}) == version


def test_a_handshake_gets_the_newest_version_instead_of_an_unknown_one() -> None:
    assert protocol.agreed_version({"protocolVersion": "2031-01-01"}) == "2025-11-25"
    assert protocol.agreed_version({"protocolVersion": "2026-07-28"}) == "2025-11-25"
    assert refusal(protocol.agreed_version, {"protocolVersion": 5}).code == protocol.INVALID_PARAMS


def test_a_stateless_result_names_its_type_and_the_server() -> None:
    result = protocol.stateless_result({"tools": [], "_meta": {"a": 1}})
    assert result["resultType"] == "complete"
    assert result["_meta"] == {"a": 1, protocol.SERVER_KEY: protocol.SERVER}
    assert json.dumps(result)
