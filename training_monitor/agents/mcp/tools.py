"""The tools of the server: a tool is one or a few commands of the command line, and what an agent may set of them.

Names, types and descriptions of a tool's inputs are those that the commands declare. A call becomes the words of a
command line, and its answer is what the command prints with `--json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from training_monitor.agents.mcp.answers import (
    Table,
    error_of,
    format_answer,
    format_failure,
    make_document,
    read_limit,
)
from training_monitor.agents.mcp.calls import Refused, run_command, shown_command, start_command, without_secrets
from training_monitor.agents.mcp.table import ACTS, LOOKS, Action, Row
from training_monitor.core.command_arguments import NO_VALUE, REST, SEVERAL, Argument
from training_monitor.core.errors import SettingsError, TrainingMonitorError, closest
from training_monitor.targets.kinds import list_forms, one_of

ASK = "nothing was done: ask the user, then call again with confirm: true"
_SHORT, _CLEAR = 25, 60  # characters of a description that is always given, and of one that is given once
Check = Callable[[Sequence[str]], object]
Said = dict[str, tuple[str, str]]
Given = dict[str, bool | str | list[str]]


class Tool:
    """One tool of a server.

    Args:
        row: of the table.
        commands: the arguments of every command.
        helps: what each command is for.
        check: raises Refused for words that are no command line.
        said: the descriptions of inputs of the tools before, and in which of them they are; this tool adds its own.
    """

    def __init__(
        self,
        row: Row,
        commands: Mapping[str, Sequence[Argument]],
        helps: Mapping[str, str],
        check: Check,
        said: Said | None = None,
    ) -> None:
        self.name, self._row, self._check = row.name, row, check
        self._helps = {name: helps[action.command] for name, action in row.actions.items()}
        self.takes = {
            name: {key: _find(commands[action.command], key) for key in action.keys.split()}
            for name, action in row.actions.items()
        }
        self._own = _own_inputs(row.is_act, {name: help for name, help in self._helps.items() if name})
        self.schema = self._make_schema({} if said is None else said)

    def _make_schema(self, said: Said) -> Table:
        """Return the schema of the inputs of all actions; one that not all of them take says which do."""
        found = dict[str, dict[str, Argument]]()
        for name, takes in self.takes.items():
            for key, argument in takes.items():
                found.setdefault(key, {})[name] = argument
        inputs = {key: _schema(each, len(self.takes), self.name, said) for key, each in found.items()}
        required = [key for key, each in self.takes.get("", {}).items() if each.is_required]
        if "action" in self._own:
            inputs, required = {"action": self._own["action"], **inputs}, ["action"]
        own = {
            key: each if told == each["description"] else {"type": each["type"]}
            for key, each in self._own.items()
            for told in [_said_once(key, each["description"], self.name, said)]
        }
        schema = {"type": "object", "properties": {**inputs, **own}}
        return {**schema, "required": required} if required else schema

    def describe(self) -> Table:
        """Return the tool as `tools/list` has it."""
        help = self._helps.get("")
        told = f"{help[0].upper()}{help[1:]}. " if help else ""
        return {
            "name": self.name,
            "description": f"{told}{self._row.note}".strip(),
            "inputSchema": self.schema,
            "annotations": {"destructiveHint": self._row.destroys} if self._row.is_act else {"readOnlyHint": True},
        }

    def call(self, arguments: Mapping[str, Any], *, as_text: bool = False) -> Table:
        """Call it, and return the result of the call, or that it failed. Raises whatever is a defect of ours."""
        try:
            limit = read_limit(arguments.get("max_characters"))
            return format_answer(make_document(self._answer(arguments), limit), as_text=as_text)
        except Refused as error:
            return format_failure(error.told)
        except TrainingMonitorError as error:
            return format_failure(error_of(error))

    def _answer(self, arguments: Mapping[str, Any]) -> Table:
        name = self._action_of(arguments)
        action, takes = self._row.actions[name], self.takes[name]
        given = self._read(arguments, takes)
        words = [*_words(action, given, takes)]
        without_secrets(words)
        self._check(words)
        if self._row.is_act and arguments.get("confirm") is not True:
            return {"done": False, "would": f"{self._helps[name]}: {shown_command(words)}", "confirm": ASK}
        seconds = action.goes_on
        answer = start_command(words, given, seconds) if seconds else run_command(words, given)
        if self._row.empties and given.get(self._row.empties) is not True:
            _empty(answer, self._row.empties)
        return {**answer, "done": True} if self._row.is_act else answer

    def _action_of(self, arguments: Mapping[str, Any]) -> str:
        if "" in self.takes:
            return ""
        asked = arguments.get("action")
        if not isinstance(asked, str) or asked not in self.takes:
            raise SettingsError("action", asked, closest(str(asked), tuple(self.takes)))
        return asked

    def _read(self, arguments: Mapping[str, Any], takes: Mapping[str, Argument]) -> Given:
        """Return the arguments of the command. Raises SettingsError for one that is missing, unknown or misshapen."""
        known = (*takes, *self._own)
        for key, value in arguments.items():
            if key not in known:
                raise SettingsError("arguments", key, closest(key, known))
            if key == "confirm" and not isinstance(value, bool | None):
                raise SettingsError(key, value, "true or false")
        for key, argument in takes.items():
            if argument.is_required and arguments.get(key) is None:
                raise SettingsError(key, None, _describe(argument))
        return {key: _value(takes[key], each) for key, each in arguments.items() if key in takes and each is not None}


def _find(arguments: Sequence[Argument], key: str) -> Argument:
    return next(each for each in arguments if each.key == key)


def _own_inputs(is_act: bool, actions: Mapping[str, str]) -> Table:
    """Return the inputs that no command declares."""
    own: Table = {"max_characters": {"type": "integer", "description": "of the answer (default: 8000)"}}
    if is_act:
        own = {"confirm": {"type": "boolean", "description": "do it: the user has agreed"}}
    if actions:
        told = "; ".join(f"{name}: {help}" for name, help in actions.items())
        own["action"] = {"type": "string", "enum": [*actions], "description": told}
    return own


def _schema(arguments: Mapping[str, Argument], count: int, tool: str, said: Said) -> Table:
    """Return the schema of one input, of `count` actions those that take it."""
    by_text = dict[str, list[str]]()
    for name, argument in arguments.items():
        by_text.setdefault(_said_once(argument.key, _describe(argument), tool, said), []).append(name)
    for_all = len(by_text) == 1 and len(arguments) == count
    told = "; ".join(text if for_all else f"{', '.join(names)}: {text}" for text, names in by_text.items())
    return _item(argument, told.removesuffix(": "))  # those of one key are of one type


def _item(argument: Argument, told: str) -> Table:
    item: Table = {"type": argument.type, **({"enum": [*argument.choices]} if argument.choices else {})}
    if argument.values == NO_VALUE:
        item = {"type": "boolean"}
    elif _is_list(argument):
        item = {"type": "array", "items": item}
    if argument.default and not argument.names:
        item["default"] = argument.default
    return {**item, "description": told} if told else item


def _said_once(key: str, text: str, tool: str, said: Said) -> str:
    """Return a description; if a tool before this one has it, its name, or "" instead of a short one."""
    first, name = said.setdefault(text, (tool, key)) if len(text) >= _SHORT else (tool, key)
    if first == tool:
        return text
    if name != key:
        return f"as {name} in {first}"
    return f"as in {first}" if len(text) > _CLEAR else ""


def _describe(argument: Argument) -> str:
    return one_of(list_forms("a pod")) if argument.key == "target" else argument.help


def _is_list(argument: Argument) -> bool:
    return argument.is_repeatable or argument.values in (SEVERAL, REST)


def _value(argument: Argument, value: object) -> bool | str | list[str]:
    """Return the value of an input, numbers as texts. Raises SettingsError for what does not fit its schema."""
    is_flag, is_list = argument.values == NO_VALUE, _is_list(argument)
    values = value if is_list and isinstance(value, list) else [value]
    if any(isinstance(each, bool) is not is_flag or not isinstance(each, (str, int, float)) for each in values):
        kind = f"a list of {argument.type}s" if is_list else f"a value of type {argument.type}"
        raise SettingsError(argument.key, value, "true or false" if is_flag else kind)
    if is_flag:
        return bool(value)
    texts = [str(each) for each in values]
    is_bare = argument.values == SEVERAL or (not argument.names and argument.values != REST)
    for text in texts if is_bare else ():
        if text.startswith("-") or not text.strip():  # it would be an option
            raise SettingsError(argument.key, text, "a name that does not begin with -")
    return texts if is_list else texts[0]


def _words(action: Action, given: Given, takes: Mapping[str, Argument]) -> Iterator[str]:
    """Yield the words of a command line: positional arguments, options, and what is left of the line."""
    command, *fixed = action.words.split(" --")
    yield from command.split()
    places = [each for each in takes.values() if not each.names and each.values != REST]
    last = max((place for place, each in enumerate(places) if each.key in given), default=-1)
    for each in places[: last + 1]:
        yield from _texts(given.get(each.key, each.default))
    yield from (f"--{option}" for option in fixed)
    for key, value in given.items():
        option, values = takes[key].names[-1] if takes[key].names else "", takes[key].values
        if option and values == NO_VALUE:
            yield from [option] * bool(value)
        elif option and values == SEVERAL:
            yield from (option, *_texts(value))
        elif option:
            yield from (f"{option}={text}" for text in _texts(value))
    for each in takes.values():
        if each.values == REST:
            yield from ("--", *_texts(given[each.key]))


def _texts(value: bool | str | list[str] | None) -> list[str]:
    return value if isinstance(value, list) else [str(value)]


def _empty(value: Any, key: str) -> None:
    """Empty the lists under a key, wherever they are."""
    for name, each in [*value.items()] if isinstance(value, dict) else enumerate(value):
        if name == key and isinstance(each, list):
            value[name] = []
        elif isinstance(each, (dict, list)):
            _empty(each, key)


def make_tools(
    commands: Mapping[str, Sequence[Argument]], helps: Mapping[str, str], check: Check, *, allow_write: bool
) -> dict[str, Tool]:
    """Return the tools by name, in the order of `tools/list`; those that act only with `allow_write`."""
    said: Said = {}
    rows = (*LOOKS, *ACTS) if allow_write else LOOKS
    return {row.name: Tool(row, commands, helps, check, said) for row in rows}


def list_tools(tools: Mapping[str, Tool]) -> Sequence[Table]:
    """Return the tools as `tools/list` has them."""
    return [tool.describe() for tool in tools.values()]
