"""Read a command line: whether it starts a training, and where its checkpoints go. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from training_monitor.core.checkpoint_layouts import PREFIXES
from training_monitor.core.regex import regex

_PYTHON = regex(r"(?:python|pypy)[\d.]*(?:-dbg)?")
_RUNNERS = regex(
    r"(?:c?[Pp]rofile|i?pdb|trace|debugpy|coverage|scalene|memray|viztracer|kernprof|pyinstrument|ipython3?)(?:\.py)?"
    r"|julia|R|Rscript|lua(?:jit)?"
)
_REPORTS = {"report", "html", "xml", "combine", "CMD"}  # of what was run before
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")

# Launchers by name; if words follow, only with one of these among the first arguments.
_LAUNCHERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("torchrun", "torch.distributed.run", "torch.distributed.launch", "composer"), ()),
    **dict.fromkeys(("deepspeed", "deepspeed.launcher.runner", "deepspeed.launcher.launch"), ()),
    **dict.fromkeys(("axolotl", "llamafactory-cli", "llamafactory.cli"), ("train",)),
    "accelerate": ("launch",),
    "accelerate.commands.launch": (),
    "lightning": ("run", "fit"),
    **dict.fromkeys(("fabric", "colossalai", "tune"), ("run",)),
    "litgpt": ("finetune", "finetune_lora", "finetune_full", "finetune_qlora", "finetune_adapter", "pretrain"),
    "swift": ("sft", "pt", "rlhf"),
    "trl": ("sft", "dpo", "grpo", "kto", "orpo", "reward", "rloo"),
    "nemo": ("pretrain", "finetune"),
}
_STARTERS = ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "srun", "horovodrun")
_NAME = regex(
    r"(?:(?<![A-Za-z])(?:pre|re)?train(?!able)|Train)(?!ed)|fine[-_]?tun(?!ed)|(?:^|[-_./])(?:sft|dpo|grpo|ppo|orpo|kto|rlhf|q?lora|distill)"
    r"(?:[-_./]|$)|^run_\w+\.py$"
)
_OTHER_WORK = regex(  # on a model or data: serve_lora.py, but not demo_training.py
    r"(.*\.)?(serve|eval(uate)?|infer(ence)?|prep(are|rocess)?|merge|convert|export|download|tokeni[sz]e"
    r"|predict|quanti[sz]e|generate|plot|make|create|build|split|count|inspect|visuali[sz]e|analy[sz]e)[-_]"
    r"(?!.*(train(ing|er)?(\.|$)|and[-_](pre|re)?train"
    r"|\.([a-z]+_)?((pre)?train|fine_?tun|sft|dpo|grpo|ppo|orpo|kto|rlhf|distill)"
    r"(?![-_](data|corpus|to|eval|judge))(?!.*\.py$)))"
)
_OF_A_MODEL = regex(r"(.*[._-])?(eval(uate)?|predict|infer(ence)?|generate|export|convert|plot|show|sample)(\.py)?")
_GIVEN = r"(?:--?|(?=[^\s=]+=[\[\d.,eEkM_+\]-]+$))"
_COUNT = regex(
    rf"{_GIVEN}(?:(?:num[_-])?(?:train[_-])?(?:max[_-])?epochs?|(?:max|train|total)[_-](?:train[_-])?(?:steps|iters))\b"
)
_OPTION = regex(
    rf"{_GIVEN}(?:lr|learning[_-]rate)\b|(?:--|\+*(?=\S+=))(?:trainer|optimizer|optim)\.\w|optim(?:izer)?\.\w+$|(?:--do_|mode=)train$"
)
_TASKS = ("train", "fit", "finetune", "fine-tune", "pretrain")
# They use GPUs or have similar names, but train nothing.
_OTHERS = regex(
    r"training[-_]monitor|jupyter|notebook|tensorboard|wandb|mlflow|nvidia-|nvitop|nvtop|gpustat|dcgm|nv-host|py-spy|nsys"
    r"|ncu$|pytest|py\.test|pip\d*$|conda$|mamba$|raylet|gcs_server|ray::IDLE|ray::JobSupervisor|ray[.-]|ollama|tritonserver"
    r"|vllm|sglang|text-generation|llama-server|X(?:org|wayland)?$|gnome|kwin|plasma|cinnamon|firefox|chrom|code$",
    re.IGNORECASE,
)
_NOT_PROGRAMS_OF_ITS_OWN = regex(
    r"-?(?:ba|da|z|k|a|c|tc|fi)?sh|busybox|su|sudo|env|nohup|timeout|time|nice|numactl|taskset|tmux.*|screen|ssh|sshd.*|scp"
    r"|rsync|docker|podman|kubectl|vim?|nvim|nano|emacs|less|more|tail|head|cat|tee(?:_process\.py)?|grep|watch|sed|awk|find|ls|git|make|uv|uvx"
    r"|poetry|pixi|xargs|strace|gdb|ps|top|htop"
)
_VIEWER = regex(r"training[-_]monitor|n?vim?|nano|emacs|less|more|tail|e?grep|watch|tmux.*|screen", re.IGNORECASE)
_FOLDER = regex(
    r"(?:\+*[\w.]*\.)?(?:output|out|save|checkpoints?|ckpts?|model_save|default_root|run|experiment|exp)_?(?:dir|folder|path)?"
)
_FOLDER_WORDS = ("dir", "folder", "path")
_LONE_FOLDERS = ("save", "output", "out", "default_root_dir")
_INPUTS = regex(r"resume|load|init|pretrained|base_model|from_|input")
_CHECKPOINT_NAME = regex(r"\.(?:pt|pth|ckpt|safetensors|bin|distcp|tar|npz|h5|orbax|msgpack)(?:\.\w*tmp\w*)?$")
_CHECKPOINT_FOLDER = regex(
    r"(?:tmp-)?(?:checkpoints?|ckpt|global_?step|step|iter|epoch|model)[-_=]?\d+.*|\d+(?:\.orbax-checkpoint-tmp.*)?"
    rf"|(?:{PREFIXES})\d+.*"
)
_MOST_FOLDERS = 6


def split_command(words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return what a command runs and its arguments: for Python the name of the script or module, else of the program.

    The command line of a process that has set its own title is a single word.
    """
    words = words[0].split() if len(words) == 1 else words
    if not words:
        return "", ()
    name, rest = posixpath.basename(words[0].rstrip(":")), list(words[1:])
    if words[0].startswith("ray::"):
        return words[0], tuple(rest)
    if not _PYTHON.fullmatch(name):
        return _run_by(name, rest)
    while rest:
        word = rest.pop(0)
        if word in _WITH_VALUE:
            rest = rest[1:]
        elif re.fullmatch(r"-[A-Za-z]*m", word):
            return _run_by(rest[0] if rest else "", rest[1:])
        elif re.fullmatch(r"-[A-Za-z]*c", word):
            return name, ()
        elif not word.startswith("-"):
            return _run_by(posixpath.basename(word.removesuffix("/__main__.py")), rest)
    return name, ()


def _run_by(name: str, rest: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return what a profiler, a debugger or another interpreter runs, or a program itself, and its arguments."""
    for at, word in enumerate(rest if _RUNNERS.fullmatch(name) and not _REPORTS & {*rest[:1]} else ()):
        if word == "-m" or word.endswith((".py", ".jl", ".R", ".lua")):
            return split_command(("python", word.removeprefix("--file="), *rest[at + 1 :]))
    return name, tuple(rest)


def is_training(words: Sequence[str]) -> bool:
    """Return whether the command line looks like a training, its launcher or one of its ranks."""
    name, arguments = split_command(words)
    if not may_train(words):
        return False
    if name in _STARTERS:
        return any(_starts_training(arguments[at:]) for at in range(len(arguments)))
    bare = name.removesuffix(".py")
    if bare in _LAUNCHERS:
        wanted = _LAUNCHERS[bare]
        return not wanted or any(word in wanted for word in arguments[:3])
    if _NAME.search(name) and not _OTHER_WORK.match(name):
        return True
    if arguments[:1] != () and arguments[0] in _TASKS:
        return True
    counts = not _OF_A_MODEL.fullmatch(name)
    return any(_OPTION.match(word) or (counts and _COUNT.match(word)) for word in arguments)


def is_launcher(words: Sequence[str]) -> bool:
    """Return whether a command starts the ranks of a training, and trains nothing itself: torchrun, accelerate."""
    name, _ = split_command(words)
    return name.removesuffix(".py") in _LAUNCHERS or name in _STARTERS


def script_of(words: Sequence[str]) -> str | None:
    """Return the script or module that the ranks of a training run, without its folder, by any command that starts it.

    None: the command does not tell.
    """
    name, arguments = split_command(words)
    if not is_launcher(words):
        return name if name and not _PYTHON.fullmatch(name) else None
    for word, following in zip(arguments, (*arguments[1:], None)):
        if word in ("-m", "--module"):
            return following
        if word.endswith(".py"):
            return posixpath.basename(word)
    return None


def _starts_training(words: Sequence[str]) -> bool:
    name = posixpath.basename(words[0])
    return name not in _STARTERS and (name in _LAUNCHERS or bool(_PYTHON.fullmatch(name)) or is_training(words))


def may_train(words: Sequence[str]) -> bool:
    """Return whether a user of a GPU may be a training: shells, editors, servers and monitors are not."""
    name, _ = split_command(words)
    return bool(name) and not _OTHERS.match(name) and not _NOT_PROGRAMS_OF_ITS_OWN.fullmatch(name)


def is_kernel(words: Sequence[str]) -> bool:
    """Return whether it is the kernel of a notebook, which prints to the notebook alone."""
    return split_command(words)[0] in ("ipykernel_launcher", "ipykernel", "colab_kernel_launcher")


def is_viewer(words: Sequence[str]) -> bool:
    """Return whether a command only shows or watches the files that it names: an editor, a pager, this program."""
    name, _ = split_command(words)
    return not name or bool(_VIEWER.fullmatch(name.partition(".")[0]))


def folders_of_arguments(words: Sequence[str], cwd: str | None) -> tuple[str, ...]:
    """Return the checkpoint folders in the arguments (`--output_dir X`, `--save-dir=X`, `trainer.x_dir=X`)."""
    found: list[str] = []
    for word, following in zip(words, (*words[1:], "")):
        key, equals, value = word.partition("=")
        if not equals:
            value = following if word.startswith("-") and not following.startswith("-") else ""
        if value and _names_folder(key) and "://" not in value:
            found.append(_absolute(value, cwd))
    return tuple(dict.fromkeys(path for path in found if path))[:_MOST_FOLDERS]


def _names_folder(option: str) -> bool:
    key = option.lstrip("-+").replace("-", "_").lower()
    if _INPUTS.search(key) or not _FOLDER.fullmatch(key):
        return False
    return key.rpartition(".")[2] in _LONE_FOLDERS or key.endswith(_FOLDER_WORDS)


def _absolute(path: str, cwd: str | None) -> str:
    """Return the path without `.` and `..`; "" when it is relative to an unknown folder."""
    if path.startswith("~/"):
        return path
    return posixpath.normpath(posixpath.join(cwd or "/", path)) if cwd or path.startswith("/") else ""


def folder_of_checkpoint(path: str) -> str | None:
    """Return the folder of a training's checkpoints, given a file of one of them; None for any other file."""
    folder, _, name = path.rpartition("/")
    if not _CHECKPOINT_NAME.search(name):
        return None
    parts = folder.split("/")
    first = next((at for at, part in enumerate(parts) if at and _CHECKPOINT_FOLDER.fullmatch(part)), None)
    return ("/".join(parts[:first]) if first is not None else folder) or "/"
