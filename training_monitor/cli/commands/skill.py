"""`skill`: the skill for AI agents: print it, or put it where they look."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.output import BAD, OK, complain, one_line, print_json, put_masked, say
from training_monitor.core.errors import SettingsError, StateError, TrainingMonitorError, closest
from training_monitor.runs.files import read_text, write_atomically

NAME = "training-monitor"  # of the skill, and by the specification of its folder
MAIN = "SKILL.md"
SUMS = "SHA256SUMS"  # in an installed skill: what was installed, for `sha256sum --check`
USERS_FOLDERS = ("~/.agents/skills", "~/.claude/skills")
Files = Mapping[str, str]  # texts by path in the skill's folder


def declare(command: CommandParser) -> None:
    command.value("page", "PAGE", "print this page of the skill's references instead of SKILL.md", nargs="?")
    command.value(
        "--install",
        "DIR",
        "write the skill to DIR/training-monitor (default: into ~/.agents/skills and ~/.claude/skills, for whichever "
        "of ~/.agents and ~/.claude exists; for one project use .claude/skills)",
        nargs="?",
        const="",
    )
    command.flag("--force", "with --install, also replace files that you edited")


@dataclass(frozen=True, slots=True)
class Installation:
    """What became of the skill in one folder.

    `files`: those written or removed; of a folder that is "edited", those that somebody else wrote.
    """

    folder: str
    state: Literal["installed", "updated", "unchanged", "edited"]
    files: tuple[str, ...] = ()


def run(args: Namespace) -> int:
    """Run the command; exit code 1 if a folder contains files that someone edited."""
    if args.force and args.install is None:
        args.parser.error("--force needs --install")
    if args.page and args.install is not None:
        args.parser.error("--install writes the whole skill: use it without PAGE")
    source = skill_folder()
    return _show(source, args) if args.install is None else _install(source, args)


def skill_folder() -> str:
    """Return the package's folder with SKILL.md and references."""
    return os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "agents", "skill"))


def read_skill(folder: str) -> dict[str, str]:
    """Return the texts of SKILL.md and the documents in references, by path in that folder."""
    pages = sorted(name for name in os.listdir(os.path.join(folder, "references")) if name.endswith(".md"))
    return {name: read_text(os.path.join(folder, name)) for name in (MAIN, *(f"references/{page}" for page in pages))}


def _show(source: str, args: Namespace) -> int:
    files = read_skill(source)
    pages = [name.removeprefix("references/").removesuffix(".md") for name in files if name != MAIN]
    if args.page and args.page not in pages:
        raise SettingsError("PAGE", args.page, closest(args.page, pages))
    name = f"references/{args.page}.md" if args.page else MAIN
    if not print_json(args, {"path": os.path.join(source, name), "text": files[name], "pages": pages}):
        put_masked(files[name])
    return OK


def _install(source: str, args: Namespace) -> int:
    files = read_skill(source)
    folders = [args.install] if args.install else _users_folders()
    done = [install_skill(files, _own_folder(folder), force=args.force) for folder in folders]
    print_json(args, {"skill": NAME, "folders": done})
    for each in done:
        if each.state == "edited":
            complain(str(_refusal(each)))
        elif not args.json:
            changed = f": {', '.join(each.files)}" if each.files else ""
            say(f"{each.state:<9} {one_line(each.folder)}{changed}")
    return BAD if any(each.state == "edited" for each in done) else OK


def _users_folders() -> list[str]:
    """Return the users' folders for skills of the agents that have been used here; of any agent if there is none."""
    used = [each for each in USERS_FOLDERS if os.path.isdir(os.path.dirname(os.path.expanduser(each)))]
    return used or [USERS_FOLDERS[0]]


def _own_folder(folder: str) -> str:
    """Return the skill's own folder in a folder for skills, which may be named itself."""
    path = os.path.abspath(os.path.expanduser(folder))
    return path if os.path.basename(path) == NAME else os.path.join(path, NAME)


def _refusal(refused: Installation) -> TrainingMonitorError:
    what = (
        f"{refused.folder} contains files that were changed since this program wrote them: {', '.join(refused.files)}"
    )
    return TrainingMonitorError(what, hint="save your changes elsewhere, then run the command again with --force")


def install_skill(files: Files, folder: str, *, force: bool = False) -> Installation:
    """Bring a folder to these files, and read them back; files that somebody edited are replaced by `force` only.

    What an earlier version put there is replaced or removed. Nothing else in the folder is touched.

    Raises:
        SettingsError: the folder cannot be read or written.
        StateError: a file does not hold what was written.
    """
    try:
        before = {name: _read(folder, name) for name in (*files, SUMS)}
        ours = _parse_sums(before.pop(SUMS) or "")
        changed = tuple(name for name, text in files.items() if before[name] != text)
        edited = tuple(name for name in changed if (text := before[name]) is not None and _sum(text) != ours.get(name))
        if edited and not force:
            return Installation(folder, "edited", edited)
        gone = tuple(name for name in ours if name not in files and _remove_unedited(folder, name, ours[name]))
        for name in changed:
            _write(folder, name, files[name])
        if ours != (sums := {name: _sum(text) for name, text in files.items()}) and not os.path.islink(folder):
            _write(folder, SUMS, "".join(f"{digest}  {name}\n" for name, digest in sums.items()))
    except OSError as error:
        raise SettingsError("--install", folder, f"a writable folder ({error.strerror})") from error
    new = not any(text is not None for text in before.values())
    return Installation(folder, "installed" if new else "updated" if changed or gone else "unchanged", changed + gone)


def _read(folder: str, name: str) -> str | None:
    """Return the text of a file; None if it is not there."""
    try:
        return read_text(os.path.join(folder, name))
    except FileNotFoundError:
        return None


def _write(folder: str, name: str, text: str) -> None:
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_atomically(path, text)
    if read_text(path) != text:
        raise StateError(
            f"{path} does not contain the text that was written to it", hint="check the disk, or name another folder"
        )


def _remove_unedited(folder: str, name: str, digest: str) -> bool:
    """Remove a file if it is as it was installed; return whether it was."""
    text = _read(folder, name)
    if text is None or _sum(text) != digest:
        return False
    os.unlink(os.path.join(folder, name))
    return True


def _parse_sums(text: str) -> dict[str, str]:
    """Return the digests in a SHA256SUMS by file; a name that no skill of ours has is left out."""
    lines = re.findall(r"^([0-9a-f]{64})  (SKILL\.md|references/[\w-]+\.md)$", text, re.MULTILINE | re.ASCII)
    return {name: digest for digest, name in lines}


def _sum(text: str) -> str:
    from hashlib import sha256

    return sha256(text.encode()).hexdigest()


COMMAND = Command(run, declare, ("", "restart", "--install", "--install .claude/skills"))
