"""Random, cut, mutated and hostile text through every parser: nothing is raised but what the docstring documents.

    TRAINING_MONITOR_FUZZ=1000000 python3 -m pytest tests/unit/test_hostile_input.py

TRAINING_MONITOR_FUZZ is the number of inputs, spread over the parsers; TRAINING_MONITOR_FUZZ_SEED makes other ones. A
failing input is shrunk before it is reported, and failures at different lines of the source are reported apart.
"""

from __future__ import annotations

import os
import pickle
import random
import re
import traceback
from base64 import encodebytes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from training_monitor.checkpoints.completeness import group_checkpoints
from training_monitor.checkpoints.listing import parse_listing
from training_monitor.core.errors import ParseError, SettingsError
from training_monitor.core.results import PodState
from training_monitor.jobs import ray_output
from training_monitor.jobs.process_jobs import parse_process_job
from training_monitor.logs import events as log_events, text as log_text
from training_monitor.logs.fields import find_fields, read_found
from training_monitor.logs.job_progress import job_progress
from training_monitor.logs.pace import LONGEST_END, read_log_pace, read_time
from training_monitor.logs.patterns import LogPattern, parse_metrics
from training_monitor.logs.totals import LogTotals
from training_monitor.logs.training_log import parse_progress
from training_monitor.look import nvidia_smi
from training_monitor.look.evidence import parse_evidence, parse_file_age
from training_monitor.look.find_trainings import parse_files, parse_trainings
from training_monitor.look.nccl import parse_nccl_transport
from training_monitor.runs.progress_file import parse_control_file, parse_progress_file
from training_monitor.runs.values import Run
from training_monitor.targets.pods import parse_pods
from training_monitor.targets.proc_stat import parse_stat
from training_monitor.targets.replies import parse_fields
from training_monitor.verdict.failure import classify_failure
from training_monitor.why import machine_limits
from training_monitor.why.blocked import parse_blocked
from training_monitor.why.find_ranks import build_ranks
from training_monitor.why.flight_recorder import parse_dumps
from training_monitor.why.gpu_faults import parse_gpu_details
from training_monitor.why.kernel_log import parse_kernel_log
from training_monitor.why.nccl_ras import parse_ras
from training_monitor.why.plain_pickle import read_plain_pickle
from training_monitor.why.pod_events import parse_pod_events
from training_monitor.why.processes import parse_processes
from training_monitor.why.ranks import RollCall
from training_monitor.why.roll_call import explain_roll_call
from training_monitor.why.stacks import SeenStacks, parse_answer, parse_stacks

COUNT = int(os.environ.get("TRAINING_MONITOR_FUZZ", "12000"))
SEED = os.environ.get("TRAINING_MONITOR_FUZZ_SEED", "7")
MOST_SHRINKING = 600
MOST_FAILURES = 8

pytestmark = pytest.mark.filterwarnings("ignore")  # of Python about invalid escapes in what is parsed


def _totals(text: str) -> object:
    totals, third = LogTotals(), len(text) // 3
    for chunk in (text[:third], text[third : 2 * third], text[2 * third :]):
        totals.feed(chunk)
        totals.as_dict()
    totals.close()
    return totals.as_dict()


def _pace(text: str) -> object:
    pace = read_log_pace(text)
    assert pace.progress == parse_progress(text) or len(text) > LONGEST_END or "nan" in repr(pace)
    return pace, job_progress(pace.progress), read_time(text)


def _log_line(text: str) -> object:
    text = text[:8000]  # as long as a piece of a log
    line = log_text.in_known_words(log_text.strip_prefixes(log_text.strip_ansi(text)).lower())
    numbers = log_text.parse_duration(text), log_text.as_whole(log_text.parse_number(text)), log_text.parse_count(text)
    found = (finds := find_fields(text.lower())) and read_found(finds, text.lower())
    return line, log_text.message_start(line), found, numbers, [*log_text.log_pieces(text)]


def _log_event(text: str) -> object:
    checkpoints, samples = log_events.CheckpointCounter(), log_events.SampleCounter()
    for line in text.split("\n"):
        checkpoints.read(line)
        samples.read(line)
    flags = log_events.is_error(text), log_events.is_warning(text)
    return flags, checkpoints.paths, log_events.read_gpu_utilization(text), log_events.read_gpu_memory(text)


_PATTERNS = (
    LogPattern("reward", r"reward(?:_mean)?[=: ]+([-+\w.]+)"),
    LogPattern("count", r"(\d+)", "int"),
    LogPattern("where", r"(?:step|loss)(.*)", "str"),
    LogPattern("nothing", r"(x)?"),
)


def _failure(text: str) -> object:
    pod = PodState(text[:40], text[40:80], False, 0, None, text[80:120], text[120:])
    code = (None, -9, 1, 137)[len(text) % 4]
    return classify_failure(text, exit_code=code), classify_failure("", pod=pod)


def _own_pattern(text: str) -> object:
    kind, _, pattern = text.partition(" ")
    return parse_metrics("step 7 loss 0.5", [LogPattern("name", pattern, kind)])


def _checkpoints(text: str) -> object:
    listing = parse_listing(text, "/c")
    return listing and (group_checkpoints(listing, "/c"), group_checkpoints(listing, "", quiet_seconds=60.0))


def _ray_words(text: str) -> object:
    return ray_output.parse_ray_submit(text), ray_output.is_already_exists(text)


def _progress(text: str) -> object:
    return parse_progress_file(text, Run("r", "/r.json", "/control_r.json"), text)


def _pickled(text: str) -> object:
    """A pickle whose bytes are these characters; those after the first 256 are taken for the ones before."""
    return read_plain_pickle(bytes(ord(each) % 256 for each in text))


def _answers(text: str) -> object:
    found = [parse_answer(7, way, text) for way in ("in-script", "py-spy", "remote_exec")]
    assert all(len(stacks.frames) <= 64 for each in found for stacks in each.stacks)
    return found


def _processes(text: str) -> object:
    """The ranks too, and what the judge says of them."""
    seen = parse_processes(text, "0a1b", "/.//./")
    ranks = build_ranks(seen, SeenStacks({}), None, "local", None)
    return explain_roll_call(RollCall(ranks)).text


class Parser(NamedTuple):
    read: Callable[[str], object]
    dialect: str  # whose outputs are mutated for it
    documented: tuple[type[Exception], ...] = ()


PARSERS = {
    "parse_progress": Parser(parse_progress, "log"),
    "LogTotals": Parser(_totals, "log"),
    "read_log_pace": Parser(_pace, "log"),
    "log_text": Parser(_log_line, "log"),
    "log_events": Parser(_log_event, "log"),
    "parse_metrics": Parser(lambda text: parse_metrics(text, _PATTERNS), "log"),
    "LogPattern": Parser(_own_pattern, "pattern", (SettingsError,)),
    "classify_failure": Parser(_failure, "failure"),
    "parse_nccl_transport": Parser(parse_nccl_transport, "nccl"),
    "parse_gpus": Parser(nvidia_smi.parse_gpus, "gpus", (ParseError,)),
    "parse_gpu_processes": Parser(nvidia_smi.parse_gpu_processes, "apps"),
    "parse_pods": Parser(parse_pods, "pods", (ParseError,)),
    "checkpoints": Parser(_checkpoints, "listing", (ParseError,)),
    "parse_fields": Parser(parse_fields, "process_job"),
    "parse_process_job": Parser(lambda text: parse_process_job(text, "j"), "process_job", (ParseError,)),
    "parse_ray_job": Parser(ray_output.parse_ray_job, "ray_job", (ParseError,)),
    "parse_ray_jobs": Parser(ray_output.parse_ray_jobs, "ray_jobs", (ParseError,)),
    "parse_ray_status_cli": Parser(
        lambda text: ray_output.parse_ray_status_cli(text, "a.b"), "ray_status", (ParseError,)
    ),
    "parse_ray_list_cli": Parser(ray_output.parse_ray_list_cli, "ray_list", (ParseError,)),
    "ray words": Parser(_ray_words, "ray_words"),
    "parse_ray_resources": Parser(ray_output.parse_ray_resources, "ray_resources", (ParseError,)),
    "parse_cluster_status": Parser(ray_output.parse_cluster_status, "cluster_status", (ParseError,)),
    "parse_progress_file": Parser(_progress, "progress", (ParseError,)),
    "parse_control_file": Parser(parse_control_file, "control", (ParseError,)),
    "parse_evidence": Parser(parse_evidence, "evidence", (ParseError,)),
    "parse_file_age": Parser(parse_file_age, "file_age"),
    "parse_trainings": Parser(lambda text: parse_trainings(text, "0a1b", "/.//./"), "trainings", (ParseError,)),
    "parse_files": Parser(parse_files, "recent_logs", (ParseError,)),
    "parse_stat": Parser(lambda text: parse_stat(text, 4096), "stats"),
    "parse_answer": Parser(_answers, "stack"),
    "parse_stacks": Parser(lambda text: parse_stacks(text, "0a1b"), "stacks", (ParseError,)),
    "parse_processes": Parser(_processes, "roll_call", (ParseError,)),
    "parse_dumps": Parser(parse_dumps, "dumps", (ParseError,)),
    "read_plain_pickle": Parser(_pickled, "pickle", (ParseError,)),
    "parse_ras": Parser(parse_ras, "ras"),
    "parse_gpu_details": Parser(parse_gpu_details, "gpu_details"),
    "parse_kernel_log": Parser(parse_kernel_log, "kernel_log", (ParseError,)),
    "parse_blocked": Parser(parse_blocked, "blocked", (ParseError,)),
    "parse_space": Parser(machine_limits.parse_space, "space", (ParseError,)),
    "parse_memory_kills": Parser(machine_limits.parse_memory_kills, "memory_kills"),
    "parse_efa_counters": Parser(machine_limits.parse_efa_counters, "efa_counters", (ParseError,)),
    "parse_pod_events": Parser(lambda text: parse_pod_events(text, ("w-0",)), "events", (ParseError,)),
}

_JOB = (
    '{"type": "SUBMISSION", "job_id": null, "submission_id": "a.b", "status": "FAILED", "entrypoint": "python t.py",'
    ' "message": "Job entrypoint command failed with exit code 1", "error_type": null, "start_time": 1700000000123,'
    ' "end_time": 1700000100456, "metadata": {"k": "v"}, "runtime_env": {"env_vars": {"A": "1"}},'
    ' "driver_node_id": "ab12", "driver_exit_code": 1}'
)
_POD = (
    '{"kind": "Pod", "metadata": {"name": "w-0", "labels": {"app": "t"}, "deletionTimestamp": null},'
    ' "spec": {"nodeName": "n1"}, "status": {"phase": "Running", "reason": null, "message": "m", "conditions":'
    ' [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes"}],'
    ' "containerStatuses": [{"name": "c", "ready": true, "restartCount": 2, "state": {"waiting": {"reason":'
    ' "CrashLoopBackOff", "message": "back-off"}}, "lastState": {"terminated": {"reason": "OOMKilled",'
    ' "exitCode": 137}}}], "initContainerStatuses": [{"ready": true, "restartCount": 1, "state": {}}]}}'
)
_DUMP = (
    b'{"entries": [{"frames": [{"name": "f", "filename": "/t.py", "line": 8}], "process_group": ["0", "default_pg"],'
    b' "pg_id": 0, "profiling_name": "gloo:all_reduce", "collective_seq_id": 4, "is_p2p": false, "state": "scheduled",'
    b' "retired": true}], "pg_status": {"0": {"last_completed_collective": "3"}}}'
)
_RANK = (
    '{"rank": 1, "host": "10.0.0.7", "pid": 77, "cuda_dev": 1, "nvml_dev": 1, "status": {"init_state": 0,'
    ' "async_error": 6, "unresponsive": true, "considered_dead": false}, "collective_counts": {"AllReduce": %d}}'
)
_RAS = (
    '{"nccl_version": "2.29.1", "communicators": [{"hash": "0xae", "secondary_hash": "0xb7:0xb8", "size": 3, "ranks":'
    f' [{_RANK % 5}, {_RANK % 6}], "missing_ranks": [{_RANK % 7}]}}], "ras": {{"timeouts_count": 0}}}}'
)
_TABLE = "proc 10 S 1 10 10 100 50 30 20 9000 python3\nproc 11 R 10 10 10 900 100 0 0 9100 a (b) c\n"
_SPY = (
    '{"pid": 7, "thread_name": "MainThread", "os_thread_id": %d, "frames": [{"name": "f", "filename": "/t.py",'
    ' "line": 8}]}'
)
_OWN = (
    '{"pid": 7, "variables": {"RANK": "3", "WORLD_SIZE": "4"}, "batches": 9, "threads": [{"name": "MainThread",'
    ' "is_main": true, "frames": [["load_batch", "/w/data.py", 41], ["...", "", null], ["main", "/w/train.py", 8]]}]}'
)
SAMPLES: dict[str, tuple[str, ...]] = {
    "stacks": (
        f"\n0a1b pythons\n 7 8\n\n0a1b stack 7 in-script hex\n{_OWN.encode().hex(' ')}\n0a1b stack 8 py-spy base64\n"
        f"{encodebytes(f'[{_SPY % 7}, {_SPY % 8}]'.encode()).decode()}\n0a1b stack 9 late\n"
        "\n0a1b stack 10 none\n\n0a1b end\n",
    ),
    "stack": (f"[{_SPY % 7}]", _OWN, "Error: Permission denied (os error 13)\n\nStack backtrace:\n   0: anyhow\n"),
    "roll_call": (
        f"\n0a1b facts\nboot=b0\nself=900\nup=1000.00\nhz=100\nmachine=x86_64\nhost=h\nptrace_scope=1\ncapabilities="
        f"000001ffffffffff\n\n0a1b table\n{_TABLE}\n0a1b status\n/.//./proc/10/status:Threads:\t7\n"
        "/.//./proc/10/status:VmRSS:\t  2048 kB\n\n0a1b bytes\n/.//./proc/10/io:rchar: 1000\n\n0a1b command\n==> "
        "/.//./proc/10/cmdline <==\npython\x1ftrain.py\x1f\n==> /.//./proc/11/cmdline <==\nray::f()\x1f\n\n"
        "0a1b environment\n==> /.//./proc/10/environ <==\nRANK=3\nLOCAL_RANK=1\nWORLD_SIZE=4\nLOCAL_WORLD_SIZE=2\n\n"
        "0a1b waiting\nwait 10 |0 0x3 0x7f\nwait 11 futex_wait|202 0x7f\n\n0a1b descriptors\nlr-x------ 1 0 0 64 Nov "
        "22 10:28 /.//./proc/10/fd/3 -> pipe:[7]\n\n0a1b again\nup=1002.00\n"
        f"{_TABLE}/.//./proc/10/io:rchar: 2000\n0a1b end\n",
    ),
    "dumps": (
        f"process 1700000000 1 /tmp/trace_\ndump 1700000060 9 base64 /proc/7/root/tmp/trace_3.json\n"
        f"{encodebytes(_DUMP).decode()}dump 1700000061 9 hex /proc/7/root/tmp/trace_2\n{_DUMP.hex(' ')}\nend\n",
    ),
    "pickle": tuple(
        pickle.dumps({"entries": [{"a": (1, -5, 0.5, 2**70), "b": ["x", "x", None, True]}] * 2}, protocol).decode(
            "latin-1"
        )
        for protocol in (2, 4)
    ),
    "ras": (f"{_RAS}\n--\n{_RAS}", _RAS),
    "gpu_details": (
        "Attached GPUs : 1\nGPU 00000000:18:00.0\n    GPU Recovery Action          : Reset\n    ECC Errors\n"
        "        Volatile\n            SRAM Uncorrectable Parity : 2\n            Double Bit\n"
        "                Total : 3\n    Remapped Rows\n        Pending : Yes\n"
        "        Remapping Failure Occurred : Yes\n    Reset Required : Yes\n",
        "Unable to determine the device handle for GPU0000:1E:00.0: GPU is lost.\nNVIDIA-SMI has failed because it\n",
    ),
    "kernel_log": (
        "up=9000.12\nnamespace=pid:[4026531836]\nlog=read\n[ 8940.123456] NVRM: Xid (PCI:0000:05:00): 79, pid=77, "
        "name=p, GPU has fallen off the bus.\n3,1,8940123456,-;Memory cgroup out of memory: Killed process 77 (p) x\n"
        "<3>[ 8000.1] oom-kill:constraint=X,task=p,pid=78,uid=0\n[ 8000.1] h kernel: INFO: task p:79 blocked for more "
        "than 120 seconds.\nNVRM: Xid 5\nend\n",
        "up=1\nlog=denied\nend\n",
    ),
    "blocked": (
        "blocked 7 nfs_wait_bit_killable my prog\nmount 412 30 0:55 / /data rw shared:5 - nfs4 10.0.0.7:/e rw\n"
        "mount 414 30 0:57 / /mnt/a\\040b rw - fuse.s3fs s3fs rw\npath /data/x\npath /home\nblocked 8 0 p\nend\n",
    ),
    "space": (
        "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/vda 264212084 264212000 84 100% /a b\n--\n"
        "Filesystem Inodes IUsed IFree IUse% Mounted on\n/dev/vda 16777216 16777216 0 100% /a b\n",
        "absent\n",
    ),
    "memory_kills": ("oom=3\n",),
    "efa_counters": ("efa 16 5000 5000\n",),
    "events": (
        '{"kind": "List", "items": [{"type": "Warning", "reason": "FailedMount", "message": "no", "count": 7,'
        ' "lastTimestamp": "2030-01-01T10:00:00Z", "series": {"lastObservedTime": "2030-01-01T10:00:00.5Z"},'
        ' "involvedObject": {"kind": "Pod", "name": "w-0"}}]}',
    ),
    "evidence": (
        f"boot=b0\nhz=100\nawake=50000\nroots=10\nup=600.00\ntable=read\n{_TABLE}/proc/10/io:wchar: 1000\n"
        f"/proc/10/io:write_bytes: 4096\n/proc/11/cmdline:compile_worker\noom=2\nagain=601.00\n{_TABLE}"
        "/proc/10/io:wchar: 2000\nend\n",
    ),
    "file_age": ("file 1700000000\nfile 0\nnow 1700000100\n",),
    "trainings": (
        f"\n0a1b facts\nboot=b0\nself=900\nup=1000.00\nhz=100\n\n0a1b table\n{_TABLE}\n0a1b unlisted\n0\n\n"
        "0a1b driver\n11\n\n0a1b command"
        "\n==> /.//./proc/10/cmdline <==\npython\x1ftrain.py\x1f--output_dir=x\x1f\n==> /.//./proc/11/cmdline <==\n"
        "torchrun\x1fx.py\n0a1b links\nlrwxrwxrwx 1 0 0 0 Nov 22 10:28 /.//./proc/10/cwd -> /w\nlrwxrwxrwx 1 0 0 0 Nov "
        "22 10:28 /.//./proc/self/ns/mnt -> mnt:[1]\n\n0a1b environment\n==> /.//./proc/10/environ <==\nRANK=3\n"
        "submission=raysubmit_1\nRAY_JOB_ID=02000000\n\n0a1b workers\n11 02000000\n\n0a1b files\n/.//./proc/10/fd:\n"
        "total 0\nl-wx------ 1 0 0 64 Nov 22 10:28 1 -> /w/a.log (deleted)\nl-wx------ 1 0 0 64 Nov 22 10:28 5 -> "
        "/w/checkpoint-5/model.pt\n\n/.//./proc/self/ns:\ntotal 0\n\n0a1b end\n",
    ),
    "recent_logs": ("file 1700000000 5 /w/./a b.log\nfile 1800000000 6 /w/c.json\nnow 1700000100\n",),
    "log": (
        "Epoch 2/3:  10%|█  | 10/1,200 [00:12<01:48,  1.20s/it, loss=0.5, lr=1e-5]\r 11/1,200 [1 day, 2:03:04<3h]\n",
        "{'loss': 2.5, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': 0.25} 50%|##| 5/10 [00:10<00:10, 1.0it/s]\n",
        "\x1b[36m(W pid=27, ip=10.0.0.7)\x1b[0m step:12 - actor/pg_loss:0.25 [repeated 3x across cluster]\n",
        "[rank0]: 2030-01-01 10:00:00,123 INFO iteration 12/ 400 | elapsed time per iteration (ms): 895.0 | lm loss: "
        "2.5E+00 | total loss: nan | eta: 1 day, 2:03:04\n",
        "Epoch: [3]  [ 10/100]  eta: 0:01:30  lr: 0.0001  loss: 0.5 (0.6)  time: 1.2  data: 0.1\n",
        "Saving model checkpoint to ./out/checkpoint-500/model.safetensors ... saved, step 500\n"
        "Generating validation images: 100%|##| 4/4 [00:02<00:00, 2.0it/s]\n",
        "Running entrypoint for job a: python t.py\nTotal optimization steps = 2,500\nsteps: 2%| 40/2500 [01:40<1:42:30"
        ", 2.5s/it, avr_loss=0.1]\nVRAM 20.5/24 GB GPU: 87%\nWARNING: slow\nRuntimeError: CUDA out of memory\n"
        "Progress on:train 512it/10.0kit rate:1.1it/s remaining:2:23:45 elapsed:09:11 postfix:loss=4.2\n",
        "total_steps: 4000 steps_per_second: 1.5\nstep 5/10 loss=0.5 1,234.5 tok/s 3 s/step time left: 41m 48s\n",
        "1|40|Loss: 0.5: 40%|#| 40/100 [00:10<5h, 2.0kit/s]\n{'train_runtime': 12.5, 'train_loss': 0.5}\nreward=1e3",
    ),
    "failure": (
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.0 GiB. GPU 3\n"
        "NVRM: Xid (PCI:0000:00:1e.0): 79, pid=1, GPU has fallen off the bus.\n",
        "NVRM: Xid 154: GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)\nuncorrectable: 0\n",
        "ConnectionError: Read timed out.\nRetrying (attempt 2 of 5)\nslurmstepd: error: *** JOB 5 ON n CANCELLED AT"
        " 2030-01-01T10:00:00 DUE TO TIME LIMIT ***\nexitcode: -9 local_rank: 3\nValueError: x\n",
        "Watchdog caught collective operation timeout\n[default5]: ncclSystemError\nKilled\nexit code 137\n",
    ),
    "nccl": (
        "n1:12:34 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.14.0\n"
        "n1:12:34 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 4 nics)\n"
        "n1:12:34 [0] NCCL INFO Using network AWS Libfabric to comm 1\nNCCL version 2.21\n",
        "n1:12:34 [0] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)\n"
        "n1:12:34 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.7<0>\n"
        "n1:12:34 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/IB/0/GDRDMA\n",
        "n1:1:3 [0] NCCL WARN NET/OFI Could not find any optimal provider\nNET/Socket : Using [0]eth0:1<0>\n"
        "Ring 00 : 1 -> 0 via NET/Socket/0\nGPU Direct RDMA Enabled for GPU 0\n",
    ),
    "gpus": (
        "0, GPU-aa, NVIDIA H200, 35, 10, 1024, 143771, 300.00, 700.00, 41, Disabled\n"
        "1, GPU-ab, NVIDIA A, B, [N/A], [Not Supported], 12 MiB, 143771 MiB, ERR!, 700 W, [Unknown Error], Enabled\n",
        "0, NVIDIA A100, 35 %, 1024, 40960\nUnable to determine the device handle for GPU 0000:1E:00.0: GPU is lost\n"
        "Unable to determine the device handle for GPU2: Unknown Error\n",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
    ),
    "apps": ("123, python, a b, GPU-aa, 1024 MiB\n 124 , [Not Found], GPU-ab, [N/A]\nNo running processes found\n",),
    "pods": (_POD, f'{{"kind": "PodList", "items": [{_POD}]}}'),
    "listing": (
        "state=there\nnow 1700000000\ndisk xfs\nfile 100 1699990000 ./step_500/model-00001-of-00002.safetensors\n"
        "file 100 1699990000 8 ./step_500/model-00002-of-00002.safetensors\nfile 9 1 ./step_500/trainer_state.json\n"
        "bad has_a_hole ./step_500/optimizer.pt\nshard ./step_500/model.safetensors.index.json\tmodel-00001.bin\n"
        "total ./step_500/model.safetensors.index.json\t200\nstep ./last.safetensors\t12\ntracker ./latest\tstep_500\n"
        "link ./last -> step_600\n",
        "state=there\nnow 1\nfile 1 1 ./run/global_step500/zero_pp_rank_0_mp_rank_00_optim_states.pt\n"
        "file 1 1 ./run/global_step500/zero_pp_rank_1_mp_rank_00_optim_states.pt\nfile 1 1 ./ep1-ba50-rank1.pt\n"
        "file 1 1 ./latest-rank0.pt\nfile 1 1 ./epoch=1-step=500.ckpt-unfinished\nfile 1 1 ./dqn_500_steps.zip\n"
        "file 1 1 ./dqn_replay_buffer_500_steps.pkl\nfile 1 1 ./iter_0000500.orbax-checkpoint-tmp-1/a.distcp\n"
        "tracker ./run/latest_checkpointed_iteration.txt\t400\ntracker ./a/step_500/latest\tglobal_step500\n"
        "file 1 1 ./a-step00000250-state/train_state.json\nfile 1 1 ./last.ckpt\n",
        "state=missing",
        "state=not a directory",
    ),
    "process_job": (
        "state=exited\nexit_code=137\nnow=1700000000.5\nstarted=1699990000\nlog_time=1699999990\nlog_size=1000\n"
        "members=2\nlog\nstep 5/10 loss 0.5\n",
        "state=gone\nstopped_by=user\nlog\n",
        "state=starting\nnow=100\nstarted=10\n",
        "state=missing",
    ),
    "pattern": (r"float loss (?P<a>[\d.]+)", r"int step (\d{1,9})(?!\w)", r"str (?i:step) (.*?) \b", r"int ((?:a|b)?)"),
    "ray_job": (_JOB,),
    "ray_jobs": (f"[{_JOB}]",),
    "ray_status": (
        "2030-01-01 10:00:00,123\tINFO cli.py:67 -- Job 'a.b' failed\nStatus message: failed with exit code 1\nlog\n",
        "Status for job 'a.b': RUNNING\nStatus message: Job is currently running.\n",
        "RuntimeError: Request failed with status code 404: Job a.b does not exist.\n",
    ),
    "ray_list": (
        "cli -- [JobDetails(type=<JobType.SUBMISSION: 'SUBMISSION'>, job_id=None, submission_id='a.b', driver_info="
        "DriverInfo(id='1', pid='2'), status=<JobStatus.FAILED: 'FAILED'>, entrypoint='echo \"[(\\'x\\n', message="
        "'exit code 1', error_type=None, start_time=1700000000123, end_time=None, metadata={'k': 'v'}, runtime_env="
        "{'a': [1, 2.5]}, driver_exit_code=-9)]\n",
    ),
    "ray_words": (
        "Job 'a.b' submitted successfully\n",
        "Job with submission_id a.b already exists. Please use a different submission_id.\n",
        "\x1b[36m(W pid=27, ip=10.0.0.7)\x1b[0m text\x1b[32m [repeated 3x across cluster]\x1b[0m (Ray deduplicates)",
    ),
    "ray_resources": (
        "Resources\n-----\nTotal Usage:\n 3.0/8.0 CPU\n 1.0/2.0 GPU (1.0 used of 2.0 reserved in placement groups)\n"
        "Total Demands:\n {'GPU': 1.0}: 2+ pending tasks/actors\n (no resource demands)\n",
    ),
    "cluster_status": (
        '{"data": {"clusterStatus": {"loadMetricsReport": {"usage": {"GPU": [1.0, 2.0], "CPU": [3, 8]},'
        ' "resourceDemand": [[{"GPU": 1.0}, 2]], "pgDemand": [[{"strategy": "PACK", "bundles": [[{"GPU": 1}, 2]]},'
        " 1]]}}}}",
    ),
    "progress": (
        '{"status": "RUNNING", "start_time": 1760000000.0, "metadata": {"pid": 47, "start_ticks": 12, "hostname": "g",'
        ' "start_time": "2025-10-09T08:00:00Z", "stdout_path": "/o.log"}, "state": {"phase": "training", "epoch": 2,'
        ' "batch": 1, "total_batches": 5, "step_at": 1760000010.2}, "estimates": {"run": {"rate": 4.1, "remaining": 2,'
        ' "durations": [1]}, "validation": {"durations": [24.0]}}, "metrics": {"loss": NaN}, "losses": [2, "nan", 1e9],'
        ' "variables": {"lr": {"value": 0.1, "type": "float", "edit": "e"}}, "resources": {"rss_bytes": 5}}',
    ),
    "control": (
        '{"edits": {"lr": {"value": "0.1", "edit": "c", "edited_at": 1760000008.0}}}',
        '{"lr": 0.1, "on": true}',
    ),
    "stats": (
        "42 (a b) S 7 42 42 0 -1 4194304 900 11 0 0 150 25 9 9 20 0 12 0 123456 1000000 2048 184467 1 1 0 0\n"
        "43 (c) R 42 42 42 0 -1 64 9 1 0 0 1 2 9 9 20 0 1 0 99 1000 20 1844 1\n",
    ),
}
FRAGMENTS = tuple(
    (
        "step|steps: |global_step=|iter |iteration |epoch |Epoch: [|ep. |up. |loss|loss: |loss=|lr|eta: |remaining: "
        "|it/s|s/it|kit/s|tok/s|samples per second|ms/step|time per step|total_steps: |max_steps=|saved |saving "
        "|checkpoint |ckpt-|.safetensors|.pt|wrote model |val loss|Validating: |evaluating |test: |train: "
        "|Training completed|train_runtime|Resuming from |Traceback (most recent call last):|RuntimeError: "
        "|error|warning|nan|inf|NaN|Infinity|[rank|(pid="
        "|, ip=|[repeated |x across cluster]|%||100%|[00:|<00:|, |]|[|/|: |=|\"|'|`|{'loss': |}"
        "|\x1b[|\x1b]|[32m|m|\r|\n|\t|\x08|5|-1|1,000|1e-5|0.5|12/400|[1,0]<stdout>:|Xid |uncorrectable |NET/OFI |NET/"
        "|via NET/|[send] |Channel 0|found | nics)|Job '|' succeeded|Status message: |JobDetails(|Usage:|GPU|CPU|GPU-"
        "|MiB|state=|log|file 1 1 ./|tracker ./|link ./|step_|-rank|latest|-of-00002|zero_pp_rank_|index.json"
        "|Progress on:|rate:| remaining:|vram|gpu_util: "
    ).split("|")
)

_DIGITS = "1" * 5000
_STRANGE = "²٣३Ⅷ①ſKİı\u200f\u202e\ud800\udfff\x00\x1b\r\x08\x0b\x1c\x85\u2028\ufeff\u00a0µ│━█\U0001f600"
TOKENS = (
    *("0", "-1", "-0", "1e400", "-1e400", "1e-400", "1e308", "5e-324", "1" + "0" * 400, _DIGITS, "9" * 18, "0" * 30),
    *("00001", "1e9999", "0x1f", "1_000", "1,000,000,000", "1.2.3", ".", "+", "nan", "-nan", "NaN", "inf", "-Infinity"),
    *("٣٣", "१२", "²", "5²", "①", "ſ", "5ſ", "K", "İ", "1" * 19, "99:99:99", "0:00", "%s", "{}", "\\", "\\1", "\\g<9>"),
    *("null", "true", "None", "True", "[]", "{}", '""', '"\\ud800"', '{"a": [1]}', "[[1, 2]]", "-5", "[" * 300, "()"),
    *(
        "{'a': {}}",
        "{[]: 1}",
        "{**a}",
        "*a",
        "1j",
        "b'x'",
        "lambda: 0",
        "f'{a}'",
        "-" * 300,
        "(" * 90,
        "''",
        "...",
        "@",
    ),
    *(
        "[" * 940 + "]" * 940,
        '{"a":' * 970 + "1" + "}" * 970,
        "'\\'",
        '"\\',
        "'" * 3,
        "a=" * 200,
        "1/" * 200,
        "\r" * 50,
    ),
    *(
        "(" * 300,
        "(?i)",
        "(?",
        ")",
        "{1,",
        "{99999999999}",
        "*",
        "++",
        "(?P<a>",
        "(?<=a*)",
        "[a",
        "\\N",
        "\\x",
        "a" * 500,
    ),
    *_STRANGE,
)
_NO_FLOAT = "1" + "0" * 400
HOSTILE = (
    *("", " ", "\n", "\r", "\r\r\r", "\x00", "\ufeff", "\ud800", "\u202e5", "[" * 10_000, '{"a":' * 10_000),
    *("(" * 10_000, "[" * 10_000 + "]" * 10_000, _DIGITS, "-" + _DIGITS, f"[{_DIGITS}]", f'{{"a": {_DIGITS}}}'),
    *("null", "1", '"a"', "9" * 65_536, "loss: 1e400", f"epoch {_DIGITS}", f"step {_DIGITS}", "a/" * 300, "/" * 300),
    *(f"step {_DIGITS}/{_DIGITS} loss {_DIGITS}", "step 5/10 steps_per_second: nan", "state=there\n"),
    *(f"{_DIGITS}/{_DIGITS} [{_DIGITS}<{_DIGITS}, {_DIGITS}it/s, loss={_DIGITS}]", "state=" + _DIGITS),
    "1/9 [00:12<5ſ, 1.2it/s]",
    *("step 5 total_steps: 1e308 steps_per_second: 1e-20", f"NET/OFI Selected provider is efa (found {_DIGITS} nics)"),
    f"state=there\nfile 1 1 ./latest-rank{_DIGITS}.pt",
    f"state=there\nfile 1 1 ./a-00001-of-99999.pt\nfile {_DIGITS}",
    *("state=there\nnow ²\ntracker ./latest\t²", f'{{"job_id": "a", "start_time": {_NO_FLOAT}}}'),
    *(f'[{{"submission_id": "a", "end_time": {_NO_FLOAT}}}]', "Usage:\n 1.1.1/2 GPU\n " + _DIGITS + "/1 CPU"),
    f'{{"data": {{"clusterStatus": {{"loadMetricsReport": {{"usage": {{"GPU": [{_NO_FLOAT}, 1]}}}}}}}}}}',
    *("[JobDetails(" + "(" * 10_000, "[JobDetails(a=" + "-" * 10_000 + "1)]", "[JobDetails(a=" + "1+" * 10_000 + "1)]"),
    *(f"[JobDetails(submission_id='a', start_time={_NO_FLOAT})]", "[JobDetails(**{})]", "[JobDetails(a=\x00)]"),
    *("0,GPU-" + ",1" * 20_000, "\x1b[" * 20_000, "\x1b]" * 20_000),
)  # fmt: skip
_VALUE = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|[\[{(][^\[\]{}()]*[\]})]|[\w.]+|[^\w\s]")


def _noise(any_of: random.Random, _: str) -> str:
    if any_of.random() < 0.6:
        return any_of.randbytes(any_of.randrange(120)).decode(any_of.choice(["utf-8", "latin-1", "utf-16"]), "replace")
    return "".join(chr(any_of.choice([any_of.randrange(0x110000), any_of.randrange(128)])) for _ in range(60))


def _splice(any_of: random.Random, dialect: str) -> str:
    own = _VALUE.findall(any_of.choice(SAMPLES[dialect]))
    pools = (own, FRAGMENTS, FRAGMENTS, TOKENS)
    return "".join(
        any_of.choice(any_of.choice(pools)) + any_of.choice(("", "", " ", "\n")) for _ in range(any_of.randrange(1, 16))
    )


def _replaced(any_of: random.Random, dialect: str) -> str:
    text = any_of.choice(SAMPLES[dialect])
    for _ in range(any_of.randrange(1, 4)):
        places = list(_VALUE.finditer(text))
        if places:
            place = any_of.choice(places)
            text = text[: place.start()] + any_of.choice(TOKENS) + text[place.end() :]
    return text


def _edited(any_of: random.Random, dialect: str) -> str:
    text = any_of.choice(SAMPLES[dialect])
    for _ in range(any_of.randrange(1, 6)):
        start, length = any_of.randrange(len(text) + 1), any_of.choice((0, 1, 1, 3, 20))
        cut = text[start : start + length]
        new = any_of.choice(("", cut * 2, cut * 30, cut[::-1], cut.swapcase(), any_of.choice(_STRANGE), "\n" + cut))
        text = text[:start] + new + text[start + length :]
    return text


def _mixed(any_of: random.Random, dialect: str) -> str:
    """Lines of several outputs in any order, some of them mutated."""
    lines = [line for sample in SAMPLES[dialect] for line in sample.splitlines(keepends=True)]
    lines += _replaced(any_of, dialect).splitlines(keepends=True)
    return lines[0] + "".join(any_of.choices(lines, k=any_of.randrange(1, 8)))


_KINDS = (_noise, _splice, _replaced, _replaced, _replaced, _edited, _edited, _mixed)


def inputs(dialect: str, count: int, any_of: random.Random) -> Iterator[str]:
    """`count` texts for the parser of a dialect; outputs cut at each byte are among them, all where `count` allows."""
    encoded = [sample.encode() for sample in SAMPLES[dialect]]
    cuts = [(sample, end) for sample in encoded for end in range(len(sample))]
    any_of.shuffle(cuts)
    for sample, end in cuts[: count // 5]:
        yield sample[:end].decode(errors="replace")
    for number in range(count - min(len(cuts), count // 5)):
        yield any_of.choice(HOSTILE) if number % 1000 == 999 else any_of.choice(_KINDS)(any_of, dialect)


def failure_of(parser: Parser, text: str) -> tuple[str, str] | None:
    """Where and what it raises that is not documented."""
    try:
        parser.read(text)
    except parser.documented:
        return None
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "training_monitor/" in frame.filename]
        place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
        return f"{type(error).__name__} at {place}", str(error)[:100]
    return None


def shrunk(parser: Parser, text: str, where: str) -> str:
    """A shorter text that fails at the same place: parts are left out, halves first."""
    tries, size = 0, max(1, len(text) // 2)
    while size and tries < MOST_SHRINKING:
        start, before = 0, len(text)
        while start < len(text) and tries < MOST_SHRINKING:
            shorter, tries = text[:start] + text[start + size :], tries + 1
            failure = failure_of(parser, shorter)
            if failure and failure[0] == where:
                text = shorter
            else:
                start += size
        size = size // 2 if size > 1 or len(text) == before else 1
    return text


def _report(parser: Parser, texts: Iterator[str] | tuple[str, ...]) -> str:
    failures: dict[str, Any] = {}
    for text in texts:
        failure = failure_of(parser, text)
        if failure and failure[0] not in failures:
            least = shrunk(parser, text, failure[0])
            shown = repr(least) if len(least) < 300 else f"{least[:120]!r} ... {least[-120:]!r} ({len(least)})"
            failures[failure[0]] = f"{failure[0]}: {failure[1]}; of {shown}"
            if len(failures) == MOST_FAILURES:
                break
    return "\n".join(failures.values())


def test_hostile_random_and_mutated_outputs_raise_nothing() -> None:
    for name, parser in PARSERS.items():
        mutated = inputs(parser.dialect, COUNT // len(PARSERS), random.Random(f"{SEED} {name}"))
        for texts in (HOSTILE, mutated):
            if found := _report(parser, texts):
                pytest.fail(found, pytrace=False)


def test_the_outputs_that_are_mutated_are_read() -> None:
    """Else the mutants would all be refused at the door."""
    for parser in PARSERS.values():
        for sample in SAMPLES[parser.dialect]:
            if sample != "state=not a directory":
                parser.read(sample)
