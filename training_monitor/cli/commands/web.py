"""`web`: the same in a browser: live table, charts, attempts, alerts, cost."""

from __future__ import annotations

import os
from argparse import Namespace
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from training_monitor.cli.argument_types import FILES, CommandParser, port
from training_monitor.cli.command_table import Command
from training_monitor.cli.notifying import typed_or_variable
from training_monitor.cli.options import add_any_members, add_fleet_looks
from training_monitor.cli.output import OK, OutputLost, hint, print_json, say
from training_monitor.core.errors import SettingsError
from training_monitor.core.masking import MASK, keep_secret

if TYPE_CHECKING:
    from training_monitor.fleet import FleetConfig, FleetMonitor
    from training_monitor.web.server import WebServer

_WILDCARDS = ("0.0.0.0", "::", "")


def declare(command: CommandParser) -> None:
    add_any_members(command)
    command.value(
        "--port", "PORT", "port to listen on; 0: any free port (default: %(default)s)", type=port, default=8750
    )
    command.value(
        "--host",
        "ADDRESS",
        "address to listen on; an address that other machines can reach requires --token-file",
        default="127.0.0.1",
    )
    command.several("--name", "NAME", "host name, besides localhost, under which browsers may open the page")
    command.value(
        "--token-file",
        "FILE",
        "require the token in this file to sign in; the file must be readable only by you; env:NAME reads the "
        "token from a variable",
        FILES,
    )
    command.flag(
        "--allow-write", "allow the page to stop and destroy members; each action requires a typed confirmation"
    )
    add_fleet_looks(command)


def run(args: Namespace) -> int:
    """Run `web` until it is interrupted."""
    from training_monitor.cli.fleet import changed_config, open_meant
    from training_monitor.fleet import FleetConfig, load_fleet_config
    from training_monitor.web.access import is_loopback
    from training_monitor.web.server import WebServer

    token = _read_token(args.token_file)
    if not is_loopback(args.host):
        if token is None:
            raise SettingsError(
                "--host", args.host, "--token-file as well, because other machines can reach this address"
            )
        hint("warning: no TLS: anyone who can read the network traffic can read the token and the page")
    _check_names(args)
    config = changed_config(FleetConfig() if args.mock else load_fleet_config(), args)
    server = WebServer(args.host, args.port)
    with open_meant(args, config) as fleet:
        _serve(server, fleet, args, config, token)
    return OK


def _serve(server: WebServer, fleet: FleetMonitor, args: Namespace, config: FleetConfig, token: str | None) -> None:
    from training_monitor.core.best_effort_store import BestEffortStore
    from training_monitor.core.long_running import prepare_for_long
    from training_monitor.fleet import History
    from training_monitor.rent import TrainingQueue
    from training_monitor.web.access import LOOPBACK
    from training_monitor.web.board import Board
    from training_monitor.web.door import Door, load_key
    from training_monitor.web.routes import Web
    from training_monitor.web.server import serve
    from training_monitor.web.stream import Feed

    prepare_for_long()
    told, store = _Told(args, server.port), BestEffortStore()
    door = Door(
        load_key(store),
        names=(*LOOPBACK, *map(str.lower, args.name), _bracketed(args.host).lower()),
        addresses=args.host in _WILDCARDS,
        token=token,
        port=server.port,
        on_link=told.link,
        store=store,
    )
    board = Board(  # a mock makes up the last hours of its page anew at each start
        fleet,
        thresholds=config.thresholds,
        history=None if args.mock or args.no_history else History(store, keep_days=config.keep_days),
        namespace=args.namespace,
        queue=None if args.mock else TrainingQueue(store),
        allow_write=args.allow_write,
    )
    feed = Feed(board.state)
    fleet.listen(feed.note_change)
    fleet.start()
    page = Web(board, feed, door, "fleet (mock)" if args.mock else "fleet")
    try:
        serve(server, page, partial(told.link, "/open") if token else door.offer_link)
    finally:
        fleet.close()


class _Told:
    """Says where the page is: once for a program, and each new link for a person."""

    def __init__(self, args: Namespace, port: int) -> None:
        from training_monitor.web.access import is_loopback

        host = "127.0.0.1" if is_loopback(args.host) else next(iter(args.name), args.host)
        self._address, self._args, self._is_first = f"http://{_bracketed(host)}:{port}", args, True

    def link(self, path: str) -> None:
        """Say a link: the first one, or the next."""
        is_first, self._is_first = self._is_first, False
        with suppress(OutputLost, BrokenPipeError):  # nobody reads it any more, and the page goes on
            if is_first and self._args.json:
                print_json(self._args, {"url": f"{self._address}{path}", "pid": os.getpid()})
            elif is_first:
                say(f"Open {self._address}{path}\nCtrl-C ends it.")
            else:
                hint(f"That link has been used. For another browser: {self._address}{path}")


def _check_names(args: Namespace) -> None:
    from training_monitor.web.access import is_host_name

    for name in args.name:
        if not is_host_name(name):
            raise SettingsError("--name", name, "a host name without a port, such as gpu1.lan")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _read_token(place: str | None) -> str | None:
    """Return the token of a file, or of a variable for env:NAME. Raises SettingsError."""
    from training_monitor.web.access import LEAST_TOKEN

    if place is None:
        return None
    token = typed_or_variable("--token-file", place)
    if token == place:
        token = _read_private(place)
    token = token.strip()
    keep_secret(token)
    if len(token) < LEAST_TOKEN or not (token.isascii() and token.isprintable()):
        raise SettingsError("--token-file", MASK, f"a token of {LEAST_TOKEN} or more printable ASCII characters")
    return token


def _read_private(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise SettingsError("--token-file", path, "a file that only you can read (run chmod 600 on it)")
            return file.read(4096)
    except OSError as error:
        raise SettingsError("--token-file", path, f"a readable file ({error.strerror})") from error


COMMAND = Command(
    run,
    declare,
    ("my-pod ssh://me@gpu1", "--mock", "--vast --host 0.0.0.0 --name gpu1.lan --token-file token"),
)
