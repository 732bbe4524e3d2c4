"""`completion`: the script that lets a shell complete the command line. Also which of them is in use here."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.output import OK, put


def completion(args: Namespace) -> int:
    """Print the script of a shell and return the exit status."""
    from training_monitor.cli.arguments import every_command
    from training_monitor.cli.bash_completion import bash_script
    from training_monitor.cli.fish_completion import fish_script
    from training_monitor.cli.zsh_completion import zsh_script

    scripts = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
    put(scripts[args.shell](every_command()))
    return OK
