"""On which line a setting is: TOML and JSON, headers, strings and lists over many lines, and hostile text."""

from __future__ import annotations

import random
import sys
from typing import Any

from training_monitor.core.settings_lines import find_line
from training_monitor.core.settings_table import format_path

TOML = '''\
# [fleet] in a comment
top = 1
[fleet]
interval = 10   # interval = 11
log_paths = [
  "/a/[x].log", # "/none"
  '/b/#.log',

  "/c",
]
text = """
interval = 99
[service]
"quoted" \\""" more
"""
literal = \'\'\'
[users]
\'\'\'
a.b."c.d" = 1
inline = { x = 1, y = ["p", "q"] }

  [ fleet . groups ]
nightly = ["vast://1", "vast://2"]
"a.b" = [ { target = "x" },
  { target = "y", name = "]" },
  [ "z",
    "deep" ] ]

[[fleet.alerts]]
name = "one"
[[fleet.alerts]]
name = "two"
when = "loss > 3"
[fleet.alerts.sub]
key = 1
[[fleet.alerts]]   # a third
name = "three"
[service]
sweep_interval = 5
'''


def test_a_key_of_toml_is_found_on_its_line() -> None:
    for path, line in [
        (("top",), 2),
        (("fleet",), 3),
        (("fleet", "interval"), 4),
        (("fleet", "log_paths"), 5),
        (("fleet", "log_paths", 0), 6),
        (("fleet", "log_paths", 1), 7),
        (("fleet", "log_paths", 2), 9),
        (("fleet", "text"), 11),
        (("fleet", "literal"), 16),
        (("fleet", "a", "b", "c.d"), 19),
        (("fleet", "inline", "y", 1), 20),
        (("fleet", "groups"), 22),
        (("fleet", "groups", "nightly", 1), 23),
        (("fleet", "groups", "a.b"), 24),
        (("fleet", "groups", "a.b", 1), 25),
        (("fleet", "groups", "a.b", 1, "name"), 25),
        (("fleet", "groups", "a.b", 2, 1), 27),
        (("fleet", "alerts"), 29),
        (("fleet", "alerts", 0, "name"), 30),
        (("fleet", "alerts", 1), 31),
        (("fleet", "alerts", 1, "when"), 33),
        (("fleet", "alerts", 1, "sub", "key"), 35),
        (("fleet", "alerts", 2), 36),
        (("fleet", "alerts", 2, "name"), 37),
        (("service", "sweep_interval"), 39),
    ]:
        assert find_line(TOML, path, toml=True) == line
        assert find_line(TOML.replace("\n", "\r\n"), path, toml=True) == line


def test_what_is_not_there_has_the_line_of_what_it_would_be_in() -> None:
    for path, line in [
        ((), None),
        (("none",), None),
        (("quoted",), None),
        (("users",), None),
        (("fleet", "none"), 3),
        (("fleet", "log_paths", 3), 5),
        (("fleet", "alerts", 0, "when"), 29),
        (("fleet", "alerts", 7), 29),
        (("fleet", "alerts", "1"), 29),
        (("service", "interval"), 38),
    ]:
        assert find_line(TOML, path, toml=True) == line


JSON = """\
{
  "fleet": {
    "interval": 1.5, "text": "a \\" { [ , \\" b",
    "log_paths": [
      "/a", {"x": [1,
      2]},

      "/c"
    ],
    "groups": {"a.b": ["x"], "é\\u0041":
      ["y",
       "z"]},
    "alerts": [{"name": "one"},
      {
        "name": "two",
        "when": "loss > 3"
      }]
  },
  "service": {"fleet": {"interval": 2}}, "]\\"{": 1, "list": [[], {}, [
    null]]
}
"""


def test_a_key_of_json_is_found_on_its_line_and_the_last_of_two_equal_ones() -> None:
    for path, line in [
        (("fleet",), 2),
        (("fleet", "interval"), 3),
        (("fleet", "log_paths", 0), 5),
        (("fleet", "log_paths", 1, "x", 1), 6),
        (("fleet", "log_paths", 2), 8),
        (("fleet", "groups", "a.b", 0), 10),
        (("fleet", "groups", "éA"), 10),
        (("fleet", "groups", "éA", 1), 12),
        (("fleet", "alerts", 0, "name"), 13),
        (("fleet", "alerts", 1), 14),
        (("fleet", "alerts", 1, "when"), 16),
        (("fleet", "alerts", 0, "when"), 13),
        (("service", "fleet", "interval"), 19),
        (("list", 2, 0), 20),
        (("list", 3), 19),
        ((']"{',), 19),
        (("interval",), None),
    ]:
        assert find_line(JSON, path, toml=False) == line
    text = '{"fleet": {"interval": 0},\n"fleet": {\n"interval": 1}}'
    assert find_line(text, ("fleet", "interval"), toml=False) == 3
    assert find_line('{"fleet": {"interval": 0},\n"fleet": {}}', ("fleet", "interval"), toml=False) == 2


PIECES = [*"[]{}\"'\\\n=,.#a 0\r\0é", "[[", "]]", '"""', "'''"]
LONGER = ['"\\', '\\"', '\\"""', "[a]\n", "[[a]]\n", "a.", '""', "a=[", "{a=", '[{"a":', "a = '\n", '"a\n']


def test_no_text_makes_it_raise() -> None:
    chance = random.Random(3)
    for _ in range(4000):
        text = "".join(chance.choices(PIECES, k=chance.randrange(40)))
        for toml in (True, False):
            line = find_line(text, ("a", 0, "a"), toml=toml)
            assert line is None or 1 <= line <= text.count("\n") + 1


def lines_run(text: str, toml: bool) -> int:
    """How many lines of Python run to find a line in this text."""
    done = 0

    def trace(*_: object) -> Any:
        nonlocal done
        done += 1
        return trace

    sys.settrace(trace)
    try:
        find_line(text, ("a", "a", 0, "a"), toml=toml)
    finally:
        sys.settrace(None)
    return done


def test_its_work_grows_with_the_text_and_no_faster() -> None:
    for toml in [True, False]:
        for piece in [*PIECES, *LONGER]:
            assert lines_run(piece * 2000, toml) < 2.2 * lines_run(piece * 1000, toml) + 100


def test_a_path_is_written_as_people_write_it() -> None:
    for path, text in [
        ((), ""),
        (("fleet", "alerts", 1, "when"), "fleet.alerts[1].when"),
        (("users", "a.b", "email"), 'users."a.b".email'),
        (("", 'x"\n'), '""."x\\"\\n"'),
        (("日本",), '"日本"'),
    ]:
        assert format_path(path) == text
