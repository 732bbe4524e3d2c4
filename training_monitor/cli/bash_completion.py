"""The script that completes the command line in bash, from 3.2 (macOS) on.

Known names are data to the script: it compares them as texts and quotes what it inserts, and never evaluates them (as
`compgen -W` would).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from training_monitor.cli.arguments import NO_VALUE, ONE, OPTIONAL, REST, SEVERAL, Argument

_SCRIPT = r"""# Completes training-monitor in bash. Made by `training-monitor completion bash`.

# Sets `words`: those up to the cursor, put together again where bash has cut them (at : = @).
_training_monitor_words() {
    local line=$COMP_LINE piece i
    words=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        piece=${COMP_WORDS[i]}
        if ((i == 0)) || [[ $line == [[:space:]]* ]]; then
            line=${line#"${line%%[![:space:]]*}"}
            words[${#words[@]}]=
        fi
        words[${#words[@]}-1]+=$piece
        line=${line#"$piece"}
    done
}

# Offers the lines of stdin that go on as the word $1 begins; readline replaces only $2, the end of that word.
_training_monitor_offer() {
    local typed=$1 end=$2 name rest is_quoted=''
    if [[ $typed == [\"\']* ]]; then
        is_quoted=1 typed=${typed:1}
    else
        typed=${typed//\\/}
    fi
    while IFS= read -r name; do
        [[ $name == "$typed"* ]] || continue
        rest=${name#"$typed"}
        if [[ $rest == *[!A-Za-z0-9%+,./:=@_-]* ]]; then
            [[ $is_quoted ]] && continue
            printf -v rest %q "$rest"
        fi
        COMPREPLY[${#COMPREPLY[@]}]=$end$rest
    done
}

# Completes the word $1, of which readline replaces $2, with what the kind $3 stands for.
_training_monitor_values() {
    # shellcheck disable=SC2086 # the words of a list
    case $3 in
    '') ;;
    =*) _training_monitor_offer "$1" "$2" < <(printf '%s\n' ${3#=}) ;;
    files) compopt -o default 2>/dev/null ;;
    folders) compopt -o dirnames 2>/dev/null ;;
    *) _training_monitor_offer "$1" "$2" < <(command training-monitor completion --known "$3" 2>/dev/null) ;;
    esac
}

# Sets what a command takes: its options, those of them with a value (one, maybe, several), and its places.
_training_monitor_command() {
    options='' one='' maybe='' several='' places=()
    case $1 in
@COMMANDS@
    *) return 1 ;;
    esac
}

# Prints what the value of an option is completed with.
_training_monitor_value_of() {
    case $1 in
@VALUES@
    esac
}

_training_monitor() {
    local words options one maybe several places place=0 i word before='' current end=$2 kind='' IFS=$' \t\n'
    COMPREPLY=()
    _training_monitor_words
    current=${words[${#words[@]}-1]}
    if ((${#words[@]} < 3)); then
        _training_monitor_offer "$current" "$end" < <(printf '%s\n' @NAMES@ --help --version)
        return
    fi
    _training_monitor_command "${words[1]}" || return
    for ((i = 2; i < ${#words[@]} - 1; i++)); do # `before` is the option whose value comes next, if any
        word=${words[i]}
        if [[ $word == -- && ${places[0]-} == rest ]]; then
            if ((i == ${#words[@]} - 2)); then
                _training_monitor_offer "$current" "$end" < <(compgen -c)
            fi
            compopt -o default 2>/dev/null
            return
        elif [[ " $one " == *" $before "* && $before ]]; then
            before=
        elif [[ $word == -?* ]]; then
            before=
            [[ " $one $maybe $several " == *" $word "* ]] && before=$word
        elif [[ $before ]]; then
            [[ " $several " == *" $before "* ]] || before=
        else
            ((place++))
        fi
    done
    if [[ $current == --*=* ]]; then
        _training_monitor_values "${current#*=}" "$end" "$(_training_monitor_value_of "${words[1]} ${current%%=*}")"
        return
    fi
    if [[ $before ]]; then
        _training_monitor_values "$current" "$end" "$(_training_monitor_value_of "${words[1]} $before")"
        [[ " $one " == *" $before "* ]] && return
    else
        for kind in "${places[@]}"; do # the last one may be repeated
            ((place-- == 0)) || [[ $kind == *+ ]] && break
            kind=
        done
        kind=${kind%+}
        [[ $kind == rest ]] && kind= # before --, only options
        [[ $current != -* ]] && _training_monitor_values "$current" "$end" "$kind"
    fi
    if [[ $current == -* || ! $kind && ! $before ]]; then
        # shellcheck disable=SC2086 # the words of a list
        _training_monitor_offer "$current" "$end" < <(printf '%s\n' $options)
    fi
}

if type compopt >/dev/null 2>&1; then
    complete -F _training_monitor training-monitor
else
    complete -o default -F _training_monitor training-monitor
fi
"""


def bash_script(commands: Mapping[str, Sequence[Argument]]) -> str:
    """Return the script for these commands."""
    return (
        _SCRIPT.replace("@NAMES@", " ".join(commands))
        .replace("@COMMANDS@\n", "".join(_command(name, takes) for name, takes in commands.items()))
        .replace("@VALUES@\n", "".join(line for name, takes in commands.items() for line in _values(name, takes)))
    )


def _command(name: str, takes: Sequence[Argument]) -> str:
    options = [each for each in takes if each.names]
    given = {"options": _names(options)}
    for variable, values in (("one", ONE), ("maybe", OPTIONAL), ("several", SEVERAL)):
        given[variable] = _names(each for each in options if each.values == values)
    lines = [f"{variable}='{names}'" for variable, names in given.items() if names]
    places = " ".join(f"'{_place(each)}'" for each in takes if not each.names)
    return f"    {name})\n" + "".join(f"        {line}\n" for line in (*lines, f"places=({places})")) + "        ;;\n"


def _names(options: Iterable[Argument]) -> str:
    return " ".join(name for each in options for name in each.names)


def _place(argument: Argument) -> str:
    if argument.values == REST:
        return "rest"
    return _kind(argument) + ("+" if argument.values == SEVERAL else "")


def _kind(argument: Argument) -> str:
    return f"={' '.join(argument.choices)}" if argument.choices else argument.completes


def _values(command: str, takes: Sequence[Argument]) -> Iterator[str]:
    for each in takes:
        if each.names and each.values != NO_VALUE and _kind(each):
            patterns = " | ".join(f"'{command} {name}'" for name in each.names)
            yield f"    {patterns}) echo '{_kind(each)}' ;;\n"
