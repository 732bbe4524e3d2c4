"""Why a job failed: roots before cascades, nothing out of advice, restart in doubt."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from training_monitor.core.models import Failure
from training_monitor.core.results import PodState
from training_monitor.verdict.failure import classify_failure

ELSEWHERE, PREVIOUS = "restart_elsewhere", "restart_previous_checkpoint"
FOR_DEBUGGING = "For debugging consider passing CUDA_LAUNCH_BLOCKING=1"
CANCELLED = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-02T03:04:05"
WATCHDOG = (
    "[rank3]:[E1104 03:12:44.101 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=88, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600012 milliseconds"
)


def test_a_line_is_classified(subtests: pytest.Subtests) -> None:
    for text, category, action in [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has ...", "cuda_oom", "stop"),
        ("jax.errors.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.", "cuda_oom", "stop"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "ecc_error", ELSEWHERE),
        ("NVRM: GPU 0000:1a:00.0: GPU has fallen off the bus.", "gpu_lost", ELSEWHERE),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "cuda_error", "restart"),
        ("KeyError: 'input_ids'", "python_exception", "stop"),
        ('  File "a.py", line 2\nAssertionError', "assertion", "stop"),
        ("RuntimeError: The size of tensor a (7) must match the size of tensor b (8)", "shape_mismatch", "stop"),
        ("ModuleNotFoundError: No module named 'flash_attn'", "missing_module", "stop"),
        ("train.py: error: unrecognized arguments: --epohcs 3", "bad_configuration", "stop"),
        ("OSError: [Errno 28] No space left on device", "disk_full_or_storage", "restart"),
        ("OSError: [Errno 116] Stale file handle: '/nfs/run'", "disk_full_or_storage", "restart"),
        ("_pickle.UnpicklingError: pickle data was truncated", "checkpoint_corrupt", PREVIOUS),
        ("requests.exceptions.HTTPError: 502 Server Error: Bad Gateway for url: https://h", "network_error", "restart"),
        ("requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://h", "hub_auth", "stop"),
        ("OSError: [Errno 98] Address already in use", "port_in_use", "restart"),
        (f"{CANCELLED} DUE TO PREEMPTION ***", "preemption", "restart"),
        (f"{CANCELLED} DUE TO TIME LIMIT ***", "time_limit", "restart"),
        (f"{CANCELLED} ***", "external_cancel", "stop"),
        ("The node was low on resource: memory. Threshold quantity: 100Mi", "evicted_memory", ELSEWHERE),
        ("Memory cgroup out of memory: Killed process 77 (python3) total-vm:1kB", "host_oom", "restart"),
        ("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low", "host_oom", "restart"),
        ("failed (exitcode: -9) local_rank: 2 (pid: 7) of binary: /usr/bin/python3", "killed_sigkill", "restart"),
        ("Segmentation fault (core dumped)", "segfault", "restart"),
        ("replica worker-1 exited with a non-zero status of 137.", "killed_sigkill", "restart"),
        ("Error: OCI runtime error: runc: no room left in the cgroup", "environment", "stop"),
        ("[1] EFA: the completion queue reports error 9", "nccl_network_error", "restart"),
        ("mlx5_2: IB port 1 went down", "nccl_network_error", ELSEWHERE),
        ("the job has gone over memory limit of 900 megabytes", "host_oom", "restart"),
        ("005 (31.000.000) Job was evicted.", "preemption", "restart"),
        ("instance 40217 has been outbid", "preemption", ELSEWHERE),
        ("OSError: [Errno 27] File too large: 'last.ckpt'", "disk_full_or_storage", "restart"),
        ("step 310: loss is nan", "loss_nan", "stop"),
        ("KeyboardInterrupt", "interrupted", "stop"),
        (WATCHDOG, "nccl_timeout", "restart"),
        ("NCCL WARN Got completion from peer 10.0.0.9<1> with status=12 opcode=0", "nccl_network_error", ELSEWHERE),
        (f"CUDA error: device-side assert triggered. {FOR_DEBUGGING}", "cuda_error", "restart"),
        ("OSError: the loader gave up. Please check the mount", "runtime_error", "restart"),
        ("RuntimeError: something nobody has ever seen", "runtime_error", "restart"),
        ("the trainer crashed for reasons of its own", "unknown", "restart"),
    ]:
        with subtests.test(text=text, category=category, action=action):
            found = classify_failure(text)
            assert (found.category, found.action) == (category, action)
            assert found.evidence and found.evidence in text


@pytest.mark.parametrize(
    ("action", "numbers"),
    [("restart", (8, 13, 31, 94)), (ELSEWHERE, (48, 74, 79, 95, 119)), ("ignore", (63, 92)), ("monitor", (45,))],
)
def test_an_xid_means_what_the_catalog_says(action: str, numbers: tuple[int, ...]) -> None:
    for number, place in product(numbers, ("PCI:0000:1a:00", "0000:1a:00")):
        found = classify_failure(f"NVRM: Xid ({place}): {number}, pid=7, name=python3, x")
        assert (found.category, found.error_class, found.action) == ("xid", "hardware", action), number


def test_xid_154_and_the_nvlink_ones_are_decided_by_their_text() -> None:
    changed = "NVRM: Xid (PCI:0000:1a:00): 154, GPU recovery action changed from 0x{} to 0x{}"
    assert classify_failure(changed.format("0 (None)", "1 (GPU Reset Required)")).action == ELSEWHERE
    assert classify_failure(changed.format("1 (GPU Reset Required)", "0 (None)")).action == "ignore"
    assert classify_failure("NVRM: Xid (PCI:0000:1a:00): 145, RLW_CTRL Nonfatal XC0").action == "monitor"
    assert classify_failure("NVRM: Xid (PCI:0000:1a:00): 145, RLW_CTRL Fatal XC0").action == ELSEWHERE


# ---------------------------------------------------------------- roots and cascades


def test_a_time_out_is_never_the_root_of_anything(subtests: pytest.Subtests) -> None:
    for root, category in [
        ("[rank1]: KeyError: 'labels'", "python_exception"),
        ("[rank1]: torch.OutOfMemoryError: CUDA out of memory.", "cuda_oom"),
        ("NVRM: Xid (PCI:0000:1a:00): 79, pid=7, GPU has fallen off the bus.", "xid"),
        ("[rank1]: OSError: [Errno 28] No space left on device", "disk_full_or_storage"),
    ]:
        for first in [True, False]:
            with subtests.test(root=root, category=category, first=first):
                summary = "failed (exitcode: -6) local_rank: 3 (pid: 9) of binary: /usr/bin/python3"
                text = "\n".join([root, WATCHDOG, summary] if first else [WATCHDOG, root, summary])
                assert classify_failure(text).category in (category, "gpu_lost")
                assert classify_failure(text).action == classify_failure(root).action


def test_of_two_roots_the_first_is_the_root() -> None:
    assert classify_failure("KeyError: 'a'\nRuntimeError: shape '[2]' is invalid for input").evidence == "KeyError: 'a'"


def test_the_rank_that_wrote_the_root_is_named() -> None:
    assert classify_failure(f"[rank12]: ValueError: bad batch\n{WATCHDOG}").rank == 12
    assert classify_failure(WATCHDOG).rank == 3
    again = "[rank1]: ValueError: bad batch\nResuming from step_20\n[rank5]: ValueError: bad batch"
    assert classify_failure(again).rank == 5


# ---------------------------------------------------------------- what is no evidence


def test_what_is_no_failure_is_ignored(subtests: pytest.Subtests) -> None:
    for text in [
        "",
        "step 10/100 loss 0.5\nTraining completed",
        "0 errors found, error_rate=0",
        "validation finished: 0 failures, no errors",
        FOR_DEBUGGING,
        "mylib.OutOfTapes: drive 3",  # outside of a traceback
        "FutureWarning: torch.load with weights_only=False might lead to an error",
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
        "host:1:2 [0] NCCL INFO NET/Plugin: Failed to find ncclNetPlugin_v8 symbol.",
        "HTTP error 503 while requesting HEAD https://hub\nRetrying in 2s [Retry 1/5].",
        'config: {"restart_on": ["CUDA out of memory"]}',
        "the default pool has failover",  # no EFA
        "calib import pauses the countdown",  # no port of InfiniBand that is down
        "the profile is truncated to 100 rows",
        "[I ProcessGroupNCCL.cpp:7] [Rank 0] NCCL watchdog thread started!",
        "[rank3]:[I203 04:05:06.789 ProcessGroupNCCL.cpp:7] [PG 0 Rank 3] NCCL watchdog thread terminated normally",
        "NCCL communicator initialized on 8 ranks\nNCCL_DESYNC_DEBUG: 0",
        "INFO: Duplicate keys to remove: {}",
        "Note: the run can resume if the job is preempted",
        "When your cluster is preempted, a checkpoint is saved",
    ]:
        with subtests.test(text=text):
            found = classify_failure(text)
            assert (found.category, found.action, found.evidence) == ("none", "ignore", "")


@pytest.mark.parametrize(
    "line", ["clocks event reasons: HW thermal slowdown active", "Volatile ECC: 3 correctable ECC"]
)
def test_what_should_be_looked_at_is_no_reason_to_stop(line: str) -> None:
    assert classify_failure(line).action == "monitor"


# ---------------------------------------------------------------- exit code and pod


def test_an_exit_status_alone_says_something(subtests: pytest.Subtests) -> None:
    for code, category, action in [
        (137, "killed_sigkill", "restart"),
        (-9, "killed_sigkill", "restart"),
        (139, "segfault", "restart"),
        (124, "time_limit", "restart"),
        (127, "command_not_found", "stop"),
        (130, "interrupted", "stop"),
        (143, "sigterm", "restart"),
        (138, "sigterm", "restart"),
        (152, "time_limit", "restart"),
        (-25, "disk_full_or_storage", "restart"),
        (-8, "sigabrt", "restart"),
        (0, "none", "ignore"),
        (1, "unknown", "restart"),
        (77, "unknown", "restart"),
    ]:
        with subtests.test(code=code, category=category, action=action):
            found = classify_failure("step 5/9 loss 0.4", exit_code=code)
            assert (found.category, found.action) == (category, action)
    named = classify_failure("torch.OutOfMemoryError: CUDA out of memory.", exit_code=137)
    assert named.category == "cuda_oom", "the log names the cause"


def test_what_kubernetes_ended_a_pod_for_explains_its_log() -> None:
    killed = PodState("head", "Running", True, 1, reason="OOMKilled")
    assert classify_failure("ConnectionError: gone", pod=killed).category == "host_oom"
    assert classify_failure("", pod=PodState("head", "Failed", False, 0, reason="Evicted")).action == ELSEWHERE
    assert classify_failure("KeyError: 'a'", pod=PodState("head", "Running", True, 0)).category == "python_exception"
    for reason, message, category in [
        ("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown.", "preemption"),
        ("TerminationByKubelet", "The node was low on resource: ephemeral-storage. ", "evicted_disk"),
        ("DeletionByDeviceTaint", "", "evicted"),
        ("PreemptionByKubeScheduler", "", "preemption"),
        ("WorkloadEvictedDueToPreempted", "", "preemption"),
    ]:
        disrupted = PodState("w", "Failed", False, 0, reason=reason, message=message, terminated="Error", exit_code=1)
        assert classify_failure("RuntimeError: a worker is gone", exit_code=1, pod=disrupted).category == category


def test_what_a_sidecar_of_a_running_pod_says_judges_no_job() -> None:
    pod = PodState("w", "Running", False, 0, reason="RunContainerError", message="OCI runtime create failed: no cuda")
    assert classify_failure("step 9 loss 0.5", exit_code=0, pod=pod).category == "none"
    failed = replace(pod, phase="Failed", reason="CreateContainerError", message="name is reserved")
    assert classify_failure("", pod=failed).category == "unknown", "no node refused it"


def test_a_pod_that_its_node_refuses_is_rejected_whatever_the_reason_is_called() -> None:
    for reason, message, category, action in [
        ("OutOfmemory", "Pod was rejected: Node didn't have enough resource: memory", "rejected", "restart"),
        ("SomethingNew", "Pod was rejected: no luck", "rejected", "restart"),
        ("OutOfamd.com/gpu", "Pod Node didn't have enough resource: amd.com/gpu", "rejected", "restart"),
        (
            "UnexpectedAdmissionError",
            "Pod was rejected: Allocate failed: Requested: 2, Available: 1",
            "rejected",
            ELSEWHERE,
        ),
        ("UnexpectedAdmissionError", "Pod was rejected: nvml: GPU is lost", "gpu_lost", ELSEWHERE),
    ]:
        found = classify_failure("", pod=PodState("w", "Failed", False, 0, reason=reason, message=message))
        assert (found.category, found.action) == (category, action)
    ran = PodState("w", "Failed", False, 0, reason="SomethingNew", terminated="Error", exit_code=3)
    assert classify_failure("", exit_code=3, pod=ran).category == "unknown"


def test_the_message_of_a_pod_says_why_it_was_evicted_and_what_its_log_does_not() -> None:
    for message, category in [
        ("The node was low on resource: memory. Threshold quantity: 100Mi", "evicted_memory"),
        ("The node had condition: [DiskPressure]. ", "evicted_disk"),
        ("The node was low on resource: pids. Threshold quantity: 1638", "evicted"),
        ("The node had condition: [PIDPressure]. ", "evicted"),
        ("Taint manager: deleting", "evicted"),
    ]:
        evicted = PodState("w", "Failed", False, 0, reason="Evicted", message=message)
        assert classify_failure("", pod=evicted).category == category
    wrapped = "failed to start: " * 30
    for message, log, category in [
        (wrapped + "nvidia-container-cli: requirement error: cuda>=13.1: unknown", "", "environment"),
        ('OCI runtime create failed: exec: "train": executable file not found in $PATH', "", "command_not_found"),
        ("torch.OutOfMemoryError: CUDA out of memory", "step 5/9 loss 0.4", "cuda_oom"),
        ("torch.OutOfMemoryError: CUDA out of memory", "KeyError: 'a'", "python_exception"),
    ]:
        failed = PodState("w", "Failed", False, 0, message=message, terminated="Error", exit_code=128)
        found = classify_failure(log, exit_code=128, pod=failed)
        assert found.category == category and (log or found.evidence.endswith(message[-20:]))


def test_a_limit_of_inotify_is_not_a_full_disk() -> None:
    for line in (
        "inotify_add_watch(/data): No space left on device",
        "OSError: [Errno 28] inotify watch limit reached",
    ):
        assert classify_failure(line).category == "process_limit"
    assert classify_failure("OSError: [Errno 28] No space left on device").category == "disk_full_or_storage"
    polls = "tail: inotify cannot be used, reverting to polling: Too many open files"
    assert classify_failure(polls).category == "none"


def test_a_file_system_that_is_gone_is_storage() -> None:
    for said in ("[Errno 108] Cannot send after transport endpoint shutdown", "[Errno 37] No locks available"):
        assert classify_failure(f"OSError: {said}: '/data/x'").category == "disk_full_or_storage"
    assert classify_failure("ray.exceptions.OutOfDiskError: Local disk is full").category == "disk_full_or_storage"


# ---------------------------------------------------------------- fingerprint


def fingerprint(text: str) -> str:
    return classify_failure(text).fingerprint


def test_the_same_failure_at_another_time_address_rank_and_path_is_the_same() -> None:
    one = "[rank0]: RuntimeError: worker 3 at 10.0.0.7:2901 lost 0x7f3ab01c in /data/a/b.pt at 03:12:44"
    two = "[rank5]: RuntimeError: worker 8 at 10.9.1.2:4444 lost 0x55d0aa in /mnt/c/d/e.pt at 17:00:01"
    assert fingerprint(one) == fingerprint(two)
    assert fingerprint(WATCHDOG) == fingerprint(WATCHDOG.replace("Rank 3", "Rank 7").replace("600012", "600845"))


def test_what_no_log_tells_is_the_same_by_the_pods_reason_or_the_exit_status() -> None:
    """The pod that replaced an evicted one has another name, and Kubernetes may say more of it."""
    pods = [
        PodState(name, "Failed", False, 0, reason="Evicted", message=name) for name in ("train-abcde", "train-xyzuv")
    ]
    assert len({classify_failure("", pod=pod).fingerprint for pod in pods}) == 1
    codes = [classify_failure("", exit_code=code).fingerprint for code in (3, 3, 4, 135, 139)]
    assert codes[0] == codes[1] and len(set(codes)) == 4


def test_another_failure_is_another_one() -> None:
    found = [fingerprint(text) for text in ("KeyError: 'a'", "KeyError: 'bcd'", "TypeError: 'a'", WATCHDOG)]
    assert len(set(found)) == 4


def test_a_failure_is_a_plain_value() -> None:
    said, advice = "KeyError: 'a'", "check the line that the traceback names"
    expected = Failure("python_exception", "user", "stop", said, None, fingerprint(said), advice)
    assert classify_failure(said) == expected


def test_the_exception_is_the_evidence_and_not_the_source_line_that_raises_it() -> None:
    said = "CUDA error: an illegal memory access was encountered"
    text = (
        'Traceback (most recent call last):\n  File "/train.py", line 6, in <module>\n'
        f'    raise RuntimeError("{said}")\nRuntimeError: {said}\n'
    )
    assert classify_failure(text).evidence == f"RuntimeError: {said}"
    assert classify_failure(text.rpartition("RuntimeError")[0]).category == "unknown"


@pytest.mark.parametrize(
    "line",
    [
        "[rank0]: torch.distributed.DistBackendError: NCCL error in: ../c10d/NCCLUtils.hpp:275, internal error",
        "RuntimeError: NCCL communicator was aborted on rank 3.",
        "RuntimeError: NCCL error: unhandled system error, NCCL version 2.18",
    ],
)
def test_an_exception_about_other_ranks_is_not_the_users(line: str) -> None:
    found = classify_failure(f'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n{line}')
    assert found.category in ("nccl_network_error", "nccl_timeout") and found.action == "restart"


def test_a_users_exception_explains_the_ranks_that_waited_for_it() -> None:
    log = "[rank1]: KeyError: 'labels'\n[rank0]: torch.distributed.DistBackendError: NCCL error: remote process exited"
    assert classify_failure(log).action == "stop"
