"""`mcp`: the library for programs that speak the Model Context Protocol, on stdin and stdout."""

from __future__ import annotations

import sys
from argparse import Namespace

from training_monitor.cli.output import OK, hint, print_json
from training_monitor.core.errors import SettingsError
from training_monitor.core.read_fence import fence_reading
from training_monitor.mcp.server import serve
from training_monitor.mcp.tools import list_tools, make_tools


def mcp(args: Namespace) -> int:
    """Serve until stdin ends; with --json, print the tools instead."""
    for folder in args.read_under or ():
        if not folder.startswith(("/", "~")) or not folder.isprintable():
            raise SettingsError("--read-under", folder, "an absolute path, or one that begins with ~/")
    fence_reading(args.read_under or ())
    tools = make_tools(allow_write=args.allow_write)
    if args.json:
        print_json(args, {"tools": list_tools(tools)})
        return OK
    if sys.stdin.isatty():
        hint("a client that speaks MCP starts this, and writes to it; Ctrl-D ends it")
    serve(tools, with_text=args.text)
    return OK
