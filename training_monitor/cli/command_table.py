"""The commands of the command line, and its first page.

Nothing is imported here: `--version` and `--help` are answered from this module.
"""

from __future__ import annotations

DESCRIPTION = "Watch GPU training from outside and act on it."
EXIT_STATUSES = {
    0: "ok",
    1: "unhealthy or failed",
    2: "wrong use",
    3: "unknown",
    4: "taken over by another supervisor",
}


class Command:
    """One command: the module with its function, its help, examples, and first positional arguments."""

    __slots__ = ("examples", "help", "module", "takes")

    def __init__(self, module: str, help: str, examples: tuple[str, ...], takes: str = "") -> None:
        self.module = module
        self.help = help
        self.examples = examples
        self.takes = takes  # TARGET JOB WHAT, in this order; [TARGET]: declared in `options`


GROUPS: dict[str, dict[str, Command]] = {
    "look at trainings": {
        "check": Command(
            "commands",
            "whether trainings make progress, here or on TARGET: all that are found, or one",
            ("", "ssh://me@gpu1", "my-pod raysubmit_x --json", "local '~/runs/*/train.log'"),
            "[TARGET]",
        ),
        "why": Command(
            "why",
            "why a training hangs: what all its ranks do, their stacks, and which one the others wait for",
            ("", "my-pod my-training", "ssh://me@gpu1 12345 --also ssh://me@gpu2 --stacks", "local --py-spy ./py-spy"),
            "[TARGET]",
        ),
        "stall": Command(
            "commands",
            "what `check` says, a line each, with a limit of your own for stalls",
            ("my-pod --stall-after 5m", "local --sample 1m"),
            "TARGET WHAT",
        ),
        "wait": Command(
            "waiting",
            "wait until a training ends or stalls, or until a step, a checkpoint, a line of its log",
            (
                "local 12345 && ./evaluate.sh",
                "my-pod my-training --timeout 1h",
                "my-pod my-training --for step=1000 --for checkpoint --handle first-save --json",
                "ssh://me@gpu1 --for gpu-idle=10m --for 'log=val_acc=0\\.9'",
                "--handle first-save",
            ),
            "[TARGET]",
        ),
        "status": Command(
            "commands", "one job's status, or all jobs of a target", ("my-pod", "my-pod my-training"), "TARGET"
        ),
        "step": Command("commands", "the current step of a job", ("my-pod my-training",), "TARGET JOB"),
        "logs": Command("commands", "the end of a job's log", ("my-pod my-training --tail 20",), "TARGET"),
        "vast": Command(
            "fleet", "vast.ai instances on one screen: training, GPUs, cost, alerts", ("", "--mock", "--once")
        ),
        "fleet": Command(
            "fleet",
            "pods, ssh hosts, vast.ai instances and local jobs on one screen",
            ("my-pod ssh://me@gpu1 vast://30007012", "nightly --notify --once"),
            "[TARGET]",
        ),
        "web": Command(
            "web",
            "the same in a browser: live table, charts, attempts, alerts, cost",
            ("my-pod ssh://me@gpu1", "--mock", "--vast --host 0.0.0.0 --name gpu1.lan --token-file token"),
            "[TARGET]",
        ),
        "metrics": Command(
            "metrics",
            "what `fleet` sees, for Prometheus: on stdout, or in a file for node_exporter",
            ("my-pod ssh://me@gpu1", "nightly --textfile /var/lib/prometheus/node-exporter/fleet.prom"),
            "[TARGET]",
        ),
        "top": Command(
            "top",
            "runs that write progress files: processes, signals, variables, outputs, CSV",
            ("progress", "ssh://me@gpu1/home/me/progress", "progress --once"),
        ),
        "history": Command(
            "history",
            "what was seen of the trainings on those screens: trends, tables, cost by day, CSV",
            ("", "vast://30007012 --since 24h", "vast://30007012 --csv run.csv", "--cost --since 7d", "--mock --cost"),
        ),
    },
    "supervise and save": {
        "run": Command(
            "supervising",
            "supervise a command: run it and restart it from its checkpoints",
            (
                "--checkpoint-dir ./checkpoints --resume-argument=--resume -- python3 train.py",
                "--target ssh://me@gpu1 --notify -- python3 train.py",
            ),
            "[TARGET]",
        ),
        "restart": Command(
            "supervising",
            "supervise a Ray job and restart it from its checkpoints",
            ("my-head-pod my-training --checkpoint-dir /checkpoints/my-training",),
            "TARGET",
        ),
        "watch": Command(
            "watching",
            "follow a training on a screen, send notices, and end it when it stalls, if you say so",
            ("ssh://me@gpu1 --notify", "my-pod my-training --notify --terminate --upload hf:me/my-lora"),
            "TARGET",
        ),
        "terminate": Command(
            "watching",
            "end a training: stop it, upload its newest checkpoint, destroy what was rented",
            ("vast://30007012 --upload hf:me/my-lora",),
            "TARGET",
        ),
        "upload": Command(
            "watching",
            "upload a file or folder from the target, and see that it arrived",
            ("my-pod /checkpoints/step_500 hf:me/my-lora", "local out/model.safetensors s3://bucket/models"),
            "TARGET",
        ),
        "stop": Command("commands", "stop a job and see it gone", ("my-pod my-training",), "TARGET JOB"),
    },
    "read one thing": {
        "health": Command(
            "readings",
            "one report and verdict on GPUs, network, checkpoints, Ray, pods, disks",
            ("my-head-pod --pods my-head-pod my-worker-pod",),
            "TARGET",
        ),
        "gpu": Command("readings", "GPU utilisation, memory, power, processes", ("ssh://me@gpu1",), "TARGET"),
        "efa": Command(
            "readings", "whether NCCL uses EFA or fell back to TCP", ("my-head-pod --pods my-worker-pod",), "TARGET"
        ),
        "resources": Command("readings", "GPUs and CPUs of a Ray cluster", ("my-head-pod",), "TARGET"),
        "checkpoints": Command(
            "readings",
            "checkpoints of a folder, and which are complete",
            ("my-pod /checkpoints/my-training",),
            "TARGET",
        ),
    },
    "train on rented machines": {
        "launch": Command(
            "service",
            "train on a rented vast.ai machine: queue it, or do it here with --watch",
            ("--dataset ./images --name my-lora --trigger mylora --env HF_TOKEN --upload hf:me/my-lora --watch",),
        ),
        "queue": Command(
            "service", "the trainings on rented machines; show or cancel one", ("", "my-lora-123456 --cancel")
        ),
        "worker": Command(
            "service", "work through the queue: rent, train, save, destroy", ("--jobs 4", "--until-empty")
        ),
        "sweep": Command(
            "market",
            "find rented instances that no training needs; destroy them with --force",
            ("", "--force", "--every 15m"),
        ),
        "instances": Command("market", "what is rented at vast.ai, for which training, and what it costs", ("",)),
        "offers": Command("market", "what is for rent at vast.ai, best first", ("--gpu 4090",)),
        "dataset": Command("market", "whether a folder of images is fit to train with", ("./images",)),
        "keys": Command("market", "whether rented machines will let your ssh key in", ("", "--setup")),
        "credits": Command("market", "vast.ai's credit and how long it lasts; or an account of the ledger", ("",)),
    },
    "set up": {
        "mcp": Command(
            "mcp",
            "a server for MCP clients, on stdin and stdout: a tool for each look, and acts if you allow them",
            ("", "--allow-write", "--json"),
        ),
        "demo": Command(
            "supervising", "watch a real training process crash, hang and recover (20 s, needs nothing)", ("",)
        ),
        "doctor": Command(
            "doctor",
            "which tools, contexts and keys work here, and what to do",
            ("", "my-pod ssh://me@gpu1"),
            "[TARGET]",
        ),
        "notify": Command(
            "notifying", "prove the channels that notices go by, send one, or list those sent", ("--test", "--list")
        ),
        "skill": Command(
            "skill",
            "the skill for AI agents: print it, or put it where they look",
            ("", "restart", "--install", "--install .claude/skills"),
        ),
        "completion": Command(
            "completion",
            "a script for bash, zsh or fish that completes commands, options, files and known targets",
            ("bash", "zsh", "fish"),
        ),
        "config": Command(
            "config",
            "which settings file is read, what is wrong with it, or a new one with every key",
            ("--check", "--init"),
        ),
    },
}


def format_help() -> str:
    """Return what argparse would print for `--help`."""
    return f"""\
usage: training-monitor [-h] [--version] COMMAND ...

{DESCRIPTION}

positional arguments:
  COMMAND     see below

options:
  -h, --help  show this help message and exit
  --version   show program's version number and exit

{format_groups()}
"""


def format_groups() -> str:
    """Return the commands by group, and what is to be known of all."""
    groups = (
        f"{title}:\n" + "".join(f"  {name:<12} {command.help}\n" for name, command in group.items())
        for title, group in GROUPS.items()
    )
    statuses = "".join(f"  {number:<12} {meaning}\n" for number, meaning in EXIT_STATUSES.items())
    return (
        "\n".join(groups)
        + f"\nexit status:\n{statuses}\n`training-monitor COMMAND --help` shows its options and examples."
    )
