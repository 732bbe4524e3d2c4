"""`completion`: the script that lets a shell complete the command line; and whether that is set up here."""

from __future__ import annotations

import os
from argparse import Namespace

from training_monitor.cli.output import OK, print_json, put

# Where the script may be: files that a shell loads, and the file in which a line may print it, with that line.
_FILES = {
    "bash": (
        "~/.local/share/bash-completion/completions/training-monitor",
        "/usr/local/share/bash-completion/completions/training-monitor",
        "/usr/share/bash-completion/completions/training-monitor",
        "/etc/bash_completion.d/training-monitor",
    ),
    "zsh": (
        "~/.zfunc/_training-monitor",
        "/usr/local/share/zsh/site-functions/_training-monitor",
        "/usr/share/zsh/site-functions/_training-monitor",
        "/usr/share/zsh/vendor-completions/_training-monitor",
    ),
    "fish": (
        "~/.config/fish/completions/training-monitor.fish",
        "/usr/local/share/fish/vendor_completions.d/training-monitor.fish",
        "/usr/share/fish/vendor_completions.d/training-monitor.fish",
    ),
}
_LINES = {
    "bash": ("~/.bashrc", 'eval "$(training-monitor completion bash)"'),
    "zsh": ("~/.zshrc", 'eval "$(training-monitor completion zsh)"'),
    "fish": ("~/.config/fish/config.fish", "training-monitor completion fish | source"),
}


def completion(args: Namespace) -> int:
    """Print the script of a shell and return the exit status."""
    from training_monitor.cli.arguments import every_command
    from training_monitor.cli.bash_completion import bash_script
    from training_monitor.cli.fish_completion import fish_script
    from training_monitor.cli.zsh_completion import zsh_script

    scripts = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
    script = scripts[args.shell](every_command())
    if args.json:
        print_json(args, {"shell": args.shell, "script": script})
    else:
        put(script)
    return OK


def find_completion(shell: str) -> str | None:
    """Return the file by which a shell completes the command line; None if none of the usual ones does."""
    found = next((file for file in map(os.path.expanduser, _FILES[shell]) if os.path.exists(file)), None)
    file = os.path.expanduser(_LINES[shell][0])
    if found or not os.path.isfile(file):
        return found
    with open(file, encoding="utf-8", errors="replace") as opened:
        return file if f"training-monitor completion {shell}" in opened.read() else None


def how_to_complete(shell: str) -> str | None:
    """Return the command that sets completion up in a shell; None for a shell that has none."""
    if shell not in _LINES:
        return None
    file, line = _LINES[shell]
    return f"echo '{line}' >>{file}"
