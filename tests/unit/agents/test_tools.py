"""What clients are told of the tools, and how their inputs become command lines."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from training_monitor.agents.mcp import calls, tools
from training_monitor.agents.mcp.calls import CURRENT, Call, command_line
from training_monitor.agents.mcp.table import ACTS, LOOKS
from training_monitor.agents.mcp.tools import list_tools
from training_monitor.cli.commands.mcp import open_tools

TOOLS, READ_ONLY = open_tools(allow_write=True), open_tools(allow_write=False)
LISTED = {each["name"]: each for each in list_tools(TOOLS)}
ACTING = {row.name for row in ACTS}
NEEDED: dict[str, Any] = {
    "start": {"action": "run", "command": ["train"]},
    "stop": {"target": "local", "job": "process:x"},
    "upload": {"target": "local", "path": "x", "destination": "hf:a/b"},
    "notify": {"message": "x"},
    "rent": {"action": "cancel", "job": "x"},
}


def call(tool: str, **arguments: Any) -> Any:
    CURRENT.set(Call())
    return TOOLS[tool].call(arguments)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The command lines that calls run, which run nothing."""
    found: list[tuple[str, ...]] = []

    def run(words: Sequence[str], given: Any, seconds: float = 0.0) -> dict[str, Any]:
        found.append(tuple(words))
        return {"stacks": [1], "ranks": [{"stacks": [2], "children": [{"stacks": [3]}]}]}

    monkeypatch.setattr(tools, "run_command", run)
    monkeypatch.setattr(tools, "start_command", run)
    return found


def test_the_whole_list_stays_below_16000_characters() -> None:
    for which in (TOOLS, READ_ONLY):
        answer = {"jsonrpc": "2.0", "id": 1, "result": {"tools": list_tools(which)}}
        assert len(json.dumps(answer, separators=(",", ":"))) < 16_000


def test_every_tool_says_what_it_is_for_and_every_input_is_described_once() -> None:
    described = set[str]()
    for name, tool in LISTED.items():
        assert re.fullmatch(r"[a-z]{3,12}", name) and re.search(r"[.?]$", tool["description"]), name
        assert "outputSchema" not in tool and tool["inputSchema"]["type"] == "object"
        for key, schema in tool["inputSchema"]["properties"].items():
            described |= {key} if schema.get("description") else set()
            assert key in described and schema["type"] in ("string", "integer", "number", "boolean", "array"), key
            if alike := re.search(r"as in (\w+)", schema.get("description", "")):
                assert key in LISTED[alike[1]]["inputSchema"]["properties"], (name, key)
        for key in tool["inputSchema"].get("required", ()):
            assert key in tool["inputSchema"]["properties"]


def test_what_is_said_of_an_input_is_what_its_command_declares() -> None:
    check = LISTED["check"]["inputSchema"]
    target = check["properties"]["target"]
    assert target["description"].startswith("local, a pod, k8s://") and target["default"] == "local"
    assert check["properties"]["stall_after"]["description"].startswith("time without progress that counts")
    assert "required" not in check and LISTED["checkpoints"]["inputSchema"]["required"] == ["target", "directory"]
    assert LISTED["health"]["inputSchema"]["properties"]["only"]["enum"] == ["efa", "ray"]
    start = LISTED["start"]["inputSchema"]
    assert start["required"] == ["action"] and start["properties"]["action"]["enum"] == ["run", "restart", "watch"]
    assert start["properties"]["target"]["description"] == "as in check"
    assert start["properties"]["stall_after"]["description"].endswith("(default: 5m); watch: as in check")


def test_tools_that_act_are_there_only_with_permission_and_take_confirm() -> None:
    assert set(TOOLS) - set(READ_ONLY) == ACTING and list(READ_ONLY) == [row.name for row in LOOKS]
    for name, tool in LISTED.items():
        is_act = name in ACTING
        assert ("confirm" in tool["inputSchema"]["properties"]) is is_act
        assert tool["annotations"].get("readOnlyHint", False) is not is_act
    assert {name for name in ACTING if LISTED[name]["annotations"]["destructiveHint"]} == {"start", "stop", "rent"}


def test_no_look_is_given_a_word_that_changes_something() -> None:
    for row in LOOKS:
        for action in row.actions.values():
            words = {*action.words.split(), *action.keys.split()}
            assert not words & {"force", "--force", "cancel", "setup", "deposit", "withdraw", "forget", "terminate"}
    text = (Path(__file__).parents[3] / "docs" / "mcp.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == list(TOOLS)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("check", {"targt": "local"}, "expected target"),
        ("check", {"target": {"a": 1}}, "type string"),
        ("check", {"target": ["local"]}, "type string"),
        ("check", {"target": True}, "type string"),
        ("check", {"stall_after": "soon"}, "a duration such as 15m"),
        ("check", {"confirm": True}, "expected one of"),
        ("check", {"max_characters": 5}, "1000 to 1000000"),
        ("logs", {"target": "local", "job": "x", "tail": 1.5}, "a whole number"),
        ("checkpoints", {"directory": "c"}, "target: got nothing, expected local, a pod"),
        ("checkpoints", {"target": "local", "directory": None}, "checkpoint folder on the target"),
        ("why", {"stacks": 1}, "true or false"),
        ("fleet", {"targets": [None]}, "a list of strings"),
        ("check", {"target": "--help"}, "does not begin with -"),
        ("check", {"target": ""}, "does not begin with -"),
        ("health", {"target": "local", "pods": ["--json"]}, "does not begin with -"),
        ("health", {"target": "local", "only": "gpu"}, "invalid choice"),
        ("history", {"cost": True, "compare": True}, "not allowed with"),
        ("check", {"target": "a\0b"}, "NUL byte"),
        ("rentals", {}, "one of trainings, instances, offers"),
        ("rentals", {"action": "offer"}, "expected offers"),
        ("rentals", {"action": ["offers"]}, "action: got"),
        ("rentals", {"action": "offers", "job": "x"}, "expected one of gpu, max_price"),
        ("upload", {"target": "local", "path": "x", "destination": "--help"}, "does not begin with -"),
        ("start", {"action": "run"}, "the program to run, with its arguments"),
        ("start", {"action": "run", "command": ["a", "--token=hf_a1B2c3D4a1B2c3D4"]}, "looks like a secret"),
        ("stop", {**NEEDED["stop"], "confirm": "yes"}, "true or false"),
    ],
)
def test_wrong_inputs_are_told_to_the_model(
    name: str, arguments: dict[str, Any], said: str, typed: list[tuple[str, ...]]
) -> None:
    result = call(name, **arguments)
    assert result["isError"] and result["structuredContent"]["kind"] == "SettingsError", result
    assert said in result["structuredContent"]["error"] and not typed


@pytest.mark.parametrize(
    ("name", "arguments", "line"),
    [
        ("check", {}, "check"),
        ("check", {"what": 123, "namespace": None}, "check local 123"),
        ("check", {"target": "pod", "stall_after": 300}, "check pod --stall-after=300"),
        ("why", {"also": "gpu2", "stacks": False}, "why --also=gpu2"),
        ("health", {"target": "a", "pods": ["a", "b"], "only": "efa"}, "health a --pods a b --only=efa"),
        ("wait", {"conditions": ["step=5", "failed"]}, "wait --leave-after=40 --for=step=5 --for=failed"),
        ("fleet", {"targets": ["a", "b#c"], "namespace": "ml"}, "fleet a b#c --namespace=ml"),
        ("history", {"cost": True, "since": "2d"}, "history --cost --since=2d"),
        ("rentals", {"action": "unneeded"}, "rent sweep"),
        ("rentals", {"action": "offers", "gpu": ["4090"], "max_price": 1.5}, "rent offers --gpu 4090 --max-price=1.5"),
        ("rent", {"action": "sweep", "confirm": True}, "rent sweep --force"),
        ("start", {**NEEDED["start"], "name": "n", "confirm": True}, "run --name=n -- train"),
    ],
)
def test_inputs_become_a_command_line(
    name: str, arguments: dict[str, Any], line: str, typed: list[tuple[str, ...]]
) -> None:
    assert not call(name, **arguments)["isError"] and [" ".join(words) for words in typed] == [line]


def test_stacks_are_answered_only_where_they_are_asked_for(typed: list[tuple[str, ...]]) -> None:
    short, long = (call("why", stacks=stacks)["structuredContent"] for stacks in (False, True))
    assert short["stacks"] == short["ranks"][0]["stacks"] == short["ranks"][0]["children"][0]["stacks"] == []
    assert long["stacks"] == [1] and long["ranks"][0]["children"][0]["stacks"] == [3] and len(typed) == 2


@pytest.mark.parametrize("name", sorted(ACTING))
def test_without_confirm_an_act_only_says_what_it_would_do(name: str, typed: list[tuple[str, ...]]) -> None:
    for confirm in ({}, {"confirm": False}, {"confirm": None}):
        result = call(name, **NEEDED[name], **confirm)
        document = result["structuredContent"]
        assert not result["isError"] and document["done"] is False and not typed
        assert ": training-monitor " in document["would"] and "confirm: true" in document["confirm"]
        assert result["content"][0]["text"].startswith("NOTHING WAS DONE: ")


def test_a_command_line_starts_this_package_from_any_folder() -> None:
    *_, code, _, word = command_line(["check"], {})
    assert word == "check" and f"sys.path[0] = {str(Path(calls.__file__).parents[3])!r};" in code
