"""What clients are told of the tools, and how their arguments are read."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from training_monitor.agents.mcp import acts, reads
from training_monitor.agents.mcp.calls import CURRENT, Call, command_line, options
from training_monitor.agents.mcp.tools import Tool, list_tools, make_tools

TOOLS = make_tools(allow_write=True)
LISTED = {each["name"]: each for each in list_tools(TOOLS)}
ACTING = {function.__name__ for function in acts.ACTS} | {"stop_work"}


def call(name: str, **arguments: Any) -> Any:
    CURRENT.set(Call())
    return TOOLS[name].call(arguments)


def test_every_argument_of_every_tool_is_described() -> None:
    bare = [
        f"{name}.{argument}"
        for name, tool in LISTED.items()
        for argument, schema in tool["inputSchema"]["properties"].items()
        if not schema.get("description") or "type" not in schema
    ]
    assert bare == []


def test_every_tool_has_schemas_a_description_and_annotations() -> None:
    for name, tool in LISTED.items():
        assert re.fullmatch(r"[a-z_]{3,40}", name) and tool["description"].endswith(".")
        assert tool["inputSchema"]["type"] == tool["outputSchema"]["type"] == "object"
        assert set(tool["annotations"]) >= {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}


def test_tools_that_act_are_there_only_with_permission_and_take_confirm() -> None:
    without = make_tools(allow_write=False)
    assert set(TOOLS) - set(without) == ACTING and list(without) == [name for name in TOOLS if name in without]
    for name in ACTING:
        assert LISTED[name]["inputSchema"]["properties"]["confirm"]["default"] is False
        assert not LISTED[name]["annotations"]["readOnlyHint"]
    assert all(LISTED[function.__name__]["annotations"]["readOnlyHint"] for function in reads.READS)


def test_the_list_stays_short_enough_to_be_read() -> None:
    told = sum(len(f"{tool['description']}{tool['inputSchema']}") for tool in LISTED.values())
    assert told < 40_000


def test_the_document_lists_every_tool() -> None:
    text = (Path(__file__).parents[3] / "docs" / "mcp.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\* `(\w+)`", text, re.MULTILINE)) == set(TOOLS)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("check_training", {"targt": "local"}, "target"),
        ("check_training", {"target": 5}, "type string"),
        ("check_training", {"target": ["local"]}, "type string"),
        ("check_training", {"stall_after": "5"}, "type number"),
        ("check_training", {"stall_after": True}, "type number"),
        ("job_logs", {"target": "local", "job": "x", "tail": 1.5}, "type integer"),
        ("job_status", {"target": "local"}, "job"),
        ("job_status", {"target": "local", "job": None}, "job"),
        ("list_vast", {"mock": 1}, "type boolean"),
        ("list_vast", {"instances": [1, "2"]}, "a list of integers"),
        ("list_fleet", {"targets": "local"}, "a list of strings"),
        ("list_fleet", {"targets": [None]}, "a list of strings"),
        ("list_jobs", {"target": "--help"}, "does not begin with -"),
        ("list_jobs", {"target": ""}, "does not begin with -"),
        ("check_health", {"target": "local", "pods": ["--json"]}, "does not begin with -"),
        ("list_jobs", {"target": "a\0b"}, "zero byte"),
        ("list_jobs", {"max_characters": 5}, "1000 to 1000000"),
        ("upload_checkpoint", {"target": "local", "path": "x", "destination": "--help"}, "does not begin with -"),
        ("run_training", {"command": ["a", "--token=hf_a1B2c3D4a1B2c3D4"]}, "looks like a secret"),
        ("stop_work", {"handle": "process:my-training"}, "process:mcp-"),
        ("stop_wait", {"handle": "process:mcp-run-1"}, "the handle of a wait"),
        ("start_wait", {"target": "local", "more": ["--notify=me"]}, "options that only wait"),
    ],
)
def test_wrong_arguments_are_told_to_the_model(name: str, arguments: dict[str, Any], said: str) -> None:
    result = call(name, **arguments)
    assert result["isError"] and result["structuredContent"]["kind"] == "SettingsError", result
    assert said in result["structuredContent"]["error"]


@pytest.mark.parametrize("name", sorted(ACTING))
def test_without_confirm_an_act_only_says_what_it_would_do(name: str) -> None:
    given: dict[str, Any] = {"integer": 1, "string": "process:mcp-wait-1", "array": ["x"]}
    schema = LISTED[name]["inputSchema"]
    arguments = {each: given[schema["properties"][each]["type"]] for each in schema.get("required", ())}
    result = call(name, **arguments)
    document = result["structuredContent"]
    assert not result["isError"] and document["done"] is False and document["would"]
    assert document["command"].startswith("training-monitor ") and "confirm: true" in document["confirm"]
    assert result["content"][0]["text"].startswith("NOTHING WAS DONE: ")


def test_a_pure_tool_answers_what_the_library_says() -> None:
    result = call("classify_failure", text="torch.OutOfMemoryError: CUDA out of memory", exit_code=1)
    assert result["structuredContent"]["category"] == "cuda_oom", result
    read = call("read_log", text="step 5/10 loss: 0.25")["structuredContent"]
    assert (read["progress"]["step"], read["progress"]["loss"]) == (5, 0.25)


def test_options_become_words() -> None:
    assert options(a_b=1, no=None, on=True, off=False, each=["x", "-y"]) == ["--a-b=1", "--on", "--each=x", "--each=-y"]
    assert command_line(["gpu", "local"])[-2:] == ["gpu", "local"]


def test_a_tool_is_described_by_its_function() -> None:
    def look(name: str, deep: bool = False) -> dict[str, int]:
        """Look at
        a thing.

        Args:
            name: of the thing.
            deep: into it.
        """
        return {name: deep}

    tool = Tool(look, acts=False)
    assert tool.describe()["description"] == "Look at a thing."
    assert tool.call({"name": "x", "deep": True})["structuredContent"]["x"] is True
    assert inspect.getdoc(look)
