"""`completion`: a script for bash, zsh or fish that completes commands, options, files and known targets."""

from __future__ import annotations

import os
from argparse import Namespace

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.output import OK, print_json, put

# Candidates are data to the scripts: no shell evaluates them, as `compgen -W` would.
_BASH = r"""# Completes training-monitor in bash. Made by `training-monitor completion bash`.
_training_monitor() {
    local IFS=$'\n' lines
    read -rd '' -a lines < <(
        command training-monitor completion --complete bash "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null
    )
    COMPREPLY=("${lines[@]:1}")
    case ${lines[0]-} in
    files | command) compopt -o default 2>/dev/null ;;
    folders) compopt -o dirnames 2>/dev/null ;;
    esac
    if [[ ${lines[0]-} == command && ${COMP_WORDS[COMP_CWORD-1]} == -- ]]; then
        read -rd '' -a COMPREPLY < <(compgen -c -- "$2")
    fi
}
if type compopt >/dev/null 2>&1; then
    complete -F _training_monitor training-monitor
else # bash 3.2, of macOS
    complete -o default -F _training_monitor training-monitor
fi
"""
_ZSH = r"""#compdef training-monitor
# Completes training-monitor in zsh. Made by `training-monitor completion zsh`.
_training-monitor() {
    local -a lines
    lines=("${(@f)$(command training-monitor completion --complete zsh "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    case $lines[1] in
    words) shift lines; compadd -a lines ;;
    described) shift lines; _describe -t commands command lines ;;
    files) compset -P 1 '--*='; _files ;;
    folders) compset -P 1 '--*='; _files -/ ;;
    command) (( CURRENT -= $words[(i)--] )); shift $words[(i)--] words; _normal ;;
    esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _training-monitor "$@" # a file in fpath, at its first use
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
    compdef _training-monitor training-monitor
fi
"""
_FISH = r"""# Completes training-monitor in fish. Made by `training-monitor completion fish`.
function __training_monitor --description 'print the candidates for the word at the cursor'
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -e words[1]
    set -l lines (command training-monitor completion --complete fish $words "$current" 2>/dev/null)
    switch "$lines[1]"
        case words described
            set -e lines[1]
            string join -- \n $lines
        case files
            complete -C "'' $current"
        case folders
            __fish_complete_directories "$current"
        case command
            set -e words[1..(contains -i -- -- $words)]
            complete -C (string join ' ' -- (string escape -- $words) "$current")
    end
end
complete -c training-monitor -f -a '(__training_monitor)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
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


def declare(command: CommandParser) -> None:
    command.value("shell", "SHELL", "bash, zsh or fish", choices=("bash", "zsh", "fish"))


def run(args: Namespace) -> int:
    """Print the script of a shell and return the exit code."""
    script = _SCRIPTS[args.shell]
    if not print_json(args, {"shell": args.shell, "script": script}):
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


COMMAND = Command(run, declare, ("bash", "zsh", "fish"))
