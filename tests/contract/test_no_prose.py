"""No decision reads prose: a search of the package for code that tests the words of a sentence.

Facts travel as fields. What people read (a reason, an error's text, an event, a notice) is written once and only shown:
who decides by its words breaks when a word changes. Outside tools say things in words alone; who reads those is named
in READERS with whose words they are. Two searches find the rest: one for tests of what holds prose, and for phrases;
one for texts that code looks for although a sentence of the package begins with them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[2] / "training_monitor"

# Whose words are read, and where: in the patterns of a file (FILE), one function (FILE:NAME), or all of it (FILE*).
READERS = {
    "the training's log": ("logs/*.py*", "verdict/failure.py*"),
    "the training's script, for its phase": ("verdict/stall_history.py:kind_of", "verdict/stall_history.py:_heard"),
    "Ray": ("jobs/ray_output.py*", "jobs/ray_jobs.py*", "jobs/jobs.py:_view_of")
    + ("supervision/run_state.py:failure_evidence",),
    "NCCL": ("look/nccl.py*",),
    "nvidia-smi": ("look/nvidia_smi.py*", "why/gpu_faults.py*", "fleet/rows.py:_gpu_type"),
    "the kernel": ("why/kernel_log.py*",),
    "py-spy and Python, for a right that is missing": ("why/stacks.py", "why/stacks.py:_no_stacks"),
    "Kubernetes, for the reason of a state": (
        "targets/pods.py*",
        "targets/pod_advice.py*",
        "look/health_verdict.py:judge_pod",
    ),
    "slurmstepd, for who ended a job": ("jobs/slurm_jobs.py",),
    "Slurm's commands, for a missing configuration": ("targets/kinds/slurm.py:refused",),
    "Slurm, for the reason of a state": ("targets/kinds/slurm.py:_resume", "targets/kinds/slurm.py:settled")
    + ("targets/kinds/slurm.py:standing_of",),
    "kubectl, of a pod that is missing": ("targets/kinds/pod.py",),
    "ssh, of a server that does not answer": ("targets/kinds/vast.py",),
    "vastai": ("vast/asking.py*", "vast/instances.py:_ask_to_destroy", "vast/instances.py:_list_page")
    + ("vast/instances.py:show_instance", "vast/rent.py"),
    "docker, by vast.ai": ("core/image_errors.py",),
    "rsync and tar": ("rent/sync.py",),
    "the hf command": ("uploads/hugging_face.py",),
    "no words: the command in the start file of a shell": ("cli/commands/completion.py:find_completion",),
    "Python's readers of TOML and JSON": ("cli/commands/config.py:_unreadable",),
    "a traceback of Python's": ("targets/transport.py:without_frames",),
    "DeepSpeed, for the name of a file": ("checkpoints/completeness.py:_tracker_problem",),
    "OpenSSL, for the first and the last line of a key": ("core/masking.py",),
    "no words: the name of a key": ("ui/kit/keys.py:_answered",),
    "no words: whole texts, each kept once": ("rent/job_context.py:warn",),
    "no words: a silence as the same function formats it": ("verdict/judge.py:reason_beside_silence",),
}
PLACES = tuple(place for places in READERS.values() for place in places)

# Attributes, variables and keys of reports that hold sentences; the next three are prose only of these values.
PROSE = frozenset("reason what hint message problem evidence error failure why issue issues remedy warnings".split())
PROSE_OF = {"text": ("event", "notice", "finding"), "title": ("notice",), "key": ("error",)}
RAISED = frozenset("error err exc cause exception failure".split())  # whose str() is prose
SEARCHES = frozenset(
    "startswith endswith find rfind index count partition rpartition removeprefix removesuffix split rsplit"
    " search match fullmatch findall finditer".split()
)
HASHES = frozenset("crc32 adler32 md5 sha1 sha256 blake2b hash".split())
PARSER = re.compile("parse_|classify_|find_phase")
PHRASE = re.compile(r"[A-Za-z]{2,}[,:]? [A-Za-z]{2,}|[A-Za-z]{2,}[,:;] $|^,? [a-z]{2,}")
OPENING = re.compile(r"[A-Za-z]{3,}[A-Za-z ,]*:? ?")
SENTENCE = re.compile(r"[^\n]*[A-Za-z]{2,}[^\n]* [^\n]*[\w…][^\n]*")
ANYTHING = re.compile(".")

Constants = Mapping[str, ast.expr]


class Finding(NamedTuple):
    place: str  # file, or file:function
    line: int
    code: str

    @property
    def entry(self) -> str | None:
        """What READERS says of its place."""
        return next((each for each in PLACES if fnmatchcase(self.place, each)), None)


def is_prose(node: ast.expr) -> bool:
    """Whether an expression is a text that people read, or is made of one."""
    match node:
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if name in PROSE_OF:
            return owner in PROSE_OF[name]
        case ast.Attribute(attr=name) | ast.Name(id=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
            return name in PROSE
        case ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id=name)]):
            return name in RAISED
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *_]) if name in PROSE:
            return True
        case ast.Call(func=ast.Attribute(value=value)) | ast.Subscript(value=value):  # reason.lower(), reason[:7]
            return is_prose(value)
        case ast.BoolOp(values=parts):
            return any(map(is_prose, parts))
        case ast.JoinedStr(values=parts):
            return any(isinstance(part, ast.FormattedValue) and is_prose(part.value) for part in parts)
    return False


def texts_in(node: ast.AST, constants: Constants) -> Iterator[str]:
    """The texts in a piece of code, and those of the module's constants that it names."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str | bytes):
            yield part.value if isinstance(part.value, str) else part.value.decode("latin-1")
        elif isinstance(part, ast.Name) and part.id in constants:
            yield from texts_in(constants[part.id], {})


def reads_prose(node: ast.AST, constants: Constants) -> bool:
    """Whether a piece of code tests what holds prose, or looks for a phrase."""

    def has(part: ast.AST, words: re.Pattern[str] = PHRASE) -> bool:
        return any(words.search(text) for text in texts_in(part, constants))

    match node:
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[right]):
            among = constants.get(right.id, right) if isinstance(right, ast.Name) else right
            is_listed = isinstance(among, ast.Tuple | ast.List | ast.Set) and has(among)
            return is_prose(right) or has(left) or is_listed or (is_prose(left) and has(right, ANYTHING))
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[right]):
            words = ANYTHING if is_prose(left) or is_prose(right) else PHRASE
            return has(left, words) or has(right, words)
        case ast.Call(func=called, args=[pattern, *_]) if ast.unparse(called) in ("re.compile", "regex"):
            return has(pattern)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re")), args=[pattern, *texts]):
            return has(pattern) or any(map(is_prose, texts))
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=texts) if name in SEARCHES:
            words = [] if name in ("index", "count") else texts[:1]
            return is_prose(value) or any(has(text) for text in texts[:1]) or any(map(is_prose, words))
        case ast.Call(func=ast.Attribute(attr="get"), args=[key, *_]) | ast.Subscript(slice=key):
            return is_prose(key)
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[text, *_]):
            return (name in HASHES or bool(PARSER.match(name))) and is_prose(text)
        case ast.Match(cases=cases):
            return any(has(case.pattern) for case in cases)
    return False


def openings(node: ast.AST, constants: Constants) -> list[str]:
    """The words that a piece of code expects at the beginning of a text."""
    match node:
        case ast.Call(func=ast.Attribute(attr="startswith" | "removeprefix"), args=[text, *_]):
            return [each for each in texts_in(text, constants) if OPENING.fullmatch(each)]
    return []


def sentences(tree: ast.AST) -> Iterator[str]:
    """What a module may write: its texts and f-strings of more than one word, without docstrings and scripts."""
    skipped = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            said = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            said = node.value
        else:
            continue
        if SENTENCE.fullmatch(said):
            yield said


def search(files: Mapping[str, str]) -> list[Finding]:
    """All places that read prose, those of READERS too."""
    trees = {file: ast.parse(text) for file, text in files.items()}
    written = "\n".join(said for tree in trees.values() for said in sentences(tree))
    found = []
    for file, tree in trees.items():
        constants = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for place, node in places(tree, file, file):
            begun = [re.search(rf"^{words.rstrip()}(?!\w)", written, re.M) for words in openings(node, constants)]
            if any(begun) or reads_prose(node, constants):
                found.append(Finding(place, getattr(node, "lineno", 0), ast.unparse(node)[:100]))
    return found


def places(node: ast.AST, file: str, place: str) -> Iterator[tuple[str, ast.AST]]:
    """All code below a node, with the function it is in."""
    waiting = [(place, node)]
    while waiting:
        place, node = waiting.pop()
        for child in ast.iter_child_nodes(node):
            inside = f"{file}:{child.name}" if isinstance(child, ast.FunctionDef) else place
            yield inside, child
            waiting.append((inside, child))


@pytest.fixture(scope="module")
def found() -> list[Finding]:
    paths = PACKAGE.rglob("*.py")
    return search({path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in paths})


def test_no_decision_reads_prose_and_every_reader_of_others_words_is_there(found: list[Finding]) -> None:
    unknown = [f"{each.place}:{each.line}: {each.code}" for each in found if each.entry is None]
    assert not unknown, "a decision by words; make the fact a field:\n" + "\n".join(unknown)
    assert {each.entry for each in found if each.entry} == set(PLACES)


WRITER = """
def say(run, by, job, code):
    run.end(f"stopped: by {by}, after {job}")
    run.note(f"exit code {code}")
"""
FORMER = (
    "cancelled = (run.reason or '').startswith('stopped')",
    "cancelled = said.startswith('stopped')",  # also under another name
    "cancelled = said.removeprefix('stopped: ')",
    "source = event.text.partition(', from ')[2]",
    "ours = SUPERVISOR in (view.message or '')",
    "key = zlib.crc32(' '.join(reason.split()[:2]).encode())",
    "key = zlib.crc32(what.encode())",
    "late = view.message == f'stopped by {LIMIT}'",
    "late = view.message.lower() != 'late'",
    "done = event.kind == 'finished' and event.text == 'completed'",
    "bare = message.startswith('exit status')",
    "shown = found['reason'].startswith(found['state'])",
    "shown = verdict.reason if verdict.reason.startswith(verdict.state) else verdict.state",
    "short = error.partition('. Try: ')[0]",
    "key = error.key.rpartition(': ')[2]",
    "most = width - cells(hidden.partition(' line')[0])",
    "failure = classify_failure(row.error_message or row.reason)",
    "is_told = any(job['reason'] in issue for issue in report['issues'])",
    "none = any(text in error for text in NO_GPU)",
    "none = 'No devices' in table.error",
    "key = error.args[0] if 'no such key' in str(error) else None",
    "key = report.get('reason').split(':')[0]",
    "quota = QUOTA.search(error.what)",
    "quota = re.search('quota exceeded', said)",
    "QUOTA = re.compile('too many of them')",
    "QUOTA = regex('too many of them')",
    "rank = RANKS[job.reason]",
    "rank = RANKS.get(failure.evidence, 0)",
    "match said:\n    case 'all is well':\n        pass",
    "late = said in ('it is late', 'it is too late')",
    "late = said == LATE",
    "known = job.problem in KNOWN",
)
CONSTANTS = "LATE = 'it is late'\nKNOWN = ('lost', 'gone')\n"
HARMLESS = (
    "text = f'{job.id}: {reason}'",
    "is_ray = not job_id.startswith('process:')",
    "fields = dict(line.partition('=')[::2] for line in text.splitlines())",
    "is_over = view.status == 'STOPPED' and view.stopped_by != SUPERVISOR",
    "changed = snapshot.error is None or row.reason != run.error",
    "found = words.search(line) if 'step' in fields else None",
    "again = error.errno == errno.EINTR and error.kind in ('gone', 'lost')",
)


def test_a_decision_by_words_is_found_and_one_by_fields_is_not() -> None:
    for code in FORMER + HARMLESS:
        found = search({"writer.py": WRITER, "reader.py": CONSTANTS + code})
        assert {each.place for each in found} == ({"reader.py"} if code in FORMER else set()), code
