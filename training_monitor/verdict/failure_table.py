"""Data for `failure.py`: the categories of failures, and patterns for the lines that identify them. Pure.

`CATEGORIES` is also the table in docs/failures.md. The rank of a signature expresses how close it is to the root cause:
failures of lower ranks cause those of higher ranks. Within a rank, the earliest line is the root cause. Sources:
NVIDIA's Xid catalog; the messages of Python, PyTorch, NCCL, Slurm, Kubernetes and Ray; and the policy of NVIDIA's
Resiliency Extension (restarting is the default, stopping needs proof).
"""

from __future__ import annotations

from typing import NamedTuple

DECREED, HARDWARE, CAUSE, EXCEPTION, DEATH, HANDLED, CASCADE, SUMMARY, WARNED, HARMLESS = range(10)


class Category(NamedTuple):
    """A kind of failure: its class, the usual action, what happened, and a suggested fix.

    `from_outside`: the job does not cause such a failure, so only the budget limits the number of restarts.
    """

    error_class: str
    action: str
    meaning: str
    advice: str
    from_outside: bool = False


class Signature(NamedTuple):
    """A pattern to search for in the lower-cased line; `action` overrides the action of the category."""

    rank: int
    category: str
    pattern: str
    action: str | None = None


_T, _H, _U, _A, _X = "transient", "hardware", "user", "ambiguous", "external_stop"
_RESTART, _ELSEWHERE, _PREVIOUS = "restart", "restart_elsewhere", "restart_previous_checkpoint"
_STOP, _IGNORE, _MONITOR = "stop", "ignore", "monitor"
_OUTSIDE = True

# fmt: off
CATEGORIES = {
    name: Category(*row)
    for name, *row in (
        # ended from outside
        ("preemption", _X, _RESTART,
         "the job was preempted or requeued",
         "save checkpoints often, and once more when the preemption is announced", _OUTSIDE),
        ("time_limit", _X, _RESTART,
         "the job reached its time limit", "request more time, or save a checkpoint before the limit", _OUTSIDE),
        ("evicted", _X, _ELSEWHERE,
         "Kubernetes evicted the pod", "run kubectl describe pod to see the reason", _OUTSIDE),
        ("evicted_disk", _X, _ELSEWHERE,
         "the pod was evicted because the node's disk was full",
         "write to a volume, or request more ephemeral storage", _OUTSIDE),
        ("evicted_memory", _X, _ELSEWHERE,
         "the pod was evicted because the node ran low on memory",
         "set the pod's memory request to the amount of memory that the pod needs", _OUTSIDE),
        ("rejected", _X, _RESTART,
         "the node refused to run the pod", "run kubectl describe pod to see what the node lacked", _OUTSIDE),
        ("node_lost", _X, _ELSEWHERE,
         "the node does not respond", "check the node with kubectl get nodes or sinfo", _OUTSIDE),
        ("sigterm", _X, _RESTART,
         "the job was terminated by SIGTERM, SIGHUP, SIGUSR1 or SIGUSR2",
         "find out what sent the signal; if a terminal was closed, start the job with nohup or setsid"),
        ("interrupted", _X, _STOP,
         "a person interrupted the job (Ctrl-C)", "start the job again if you want it to continue"),
        ("external_cancel", _X, _STOP,
         "a person or the scheduler cancelled the job", "start the job again if you want it to continue"),
        # hardware
        ("xid", _H, _ELSEWHERE,
         "the NVIDIA driver reported an Xid error", "look up the Xid number in NVIDIA's catalog; dmesg shows details"),
        ("ecc_error", _H, _ELSEWHERE,
         "a GPU had an uncorrectable memory error",
         "check the ECC errors (nvidia-smi -q -d ECC), then reset the GPU or have it replaced"),
        ("gpu_lost", _H, _ELSEWHERE,
         "a GPU, or its PCIe or NVLink connection, failed",
         "drain and reboot the node; nvidia-smi and dmesg show details"),
        ("thermal", _H, _MONITOR,
         "a GPU has lowered its clock speed (throttling)",
         "check the GPU's cooling and power supply; nvidia-smi -q -d PERFORMANCE shows the reason"),
        ("ecc_corrected", _H, _MONITOR,
         "the hardware corrected memory errors",
         "replace the affected GPU or memory module if the error count keeps growing"),
        # memory
        ("cuda_oom", _U, _STOP,
         "the GPU ran out of memory", "reduce the batch size or sequence length, or shard the model"),
        ("host_oom", _A, _RESTART,
         "the out-of-memory (OOM) killer killed the job", "request more memory, or use fewer DataLoader workers"),
        ("host_memory", _A, _RESTART,
         "an allocation of host memory failed", "load less data at a time; check ulimit -v and free -h"),
        ("shared_memory", _U, _STOP,
         "/dev/shm is too small", "start the container with a larger --shm-size, or with --ipc=host"),
        # files, network, limits
        ("disk_full_or_storage", _A, _RESTART,
         "the disk is full, the quota is exceeded, or storage failed",
         "free up disk space (see df -h, df -i and quota); check the mount"),
        ("checkpoint_corrupt", _T, _PREVIOUS,
         "a checkpoint is damaged",
         "resume from an older checkpoint; change the script to save under a temporary name and then rename the file"),
        ("hub_auth", _U, _STOP,
         "a model hub or a storage service refused access",
         "check the token, its permissions, and the name of the repository or bucket"),
        ("network_error", _T, _RESTART,
         "a server could not be reached",
         "check the proxy and DNS settings; download the data before the training starts", _OUTSIDE),
        ("process_limit", _U, _STOP, "there are too many processes or open files",
         "raise the limit with ulimit -u or ulimit -n, or use fewer workers"),
        ("port_in_use", _T, _RESTART,
         "a network port is already in use",
         "choose another MASTER_PORT, or stop the process that uses the port"),
        # the program
        ("loss_nan", _U, _STOP,
         "the loss is NaN or infinite", "lower the learning rate, clip gradients, or check the data"),
        ("environment", _U, _STOP,
         "the versions of the driver, CUDA, the image or the libraries are incompatible with each other",
         "install library builds that support this GPU and driver"),
        ("missing_module", _U, _STOP, "a Python module is missing", "install the module in the job's environment"),
        ("missing_file", _U, _STOP,
         "a file or folder is missing", "check the path, the working directory and the mounts"),
        ("permission_denied", _U, _STOP,
         "the job has no permission to read or write a file",
         "check the owner and mode of the file, and which user runs the job"),
        ("command_not_found", _U, _STOP,
         "the command could not be started", "check PATH, and whether the file is executable"),
        ("bad_configuration", _U, _STOP, "an argument or a setting is wrong", "fix the error described in the message"),
        ("device_mismatch", _U, _STOP,
         "tensors are on different devices", "move the model and its inputs to the same device"),
        ("shape_mismatch", _U, _STOP,
         "tensor shapes do not match", "print the tensor shapes just before the line that failed"),
        ("dtype_mismatch", _U, _STOP,
         "tensor data types do not match", "convert the tensors to the same type, or use autocast"),
        ("checkpoint_mismatch", _U, _STOP,
         "the checkpoint belongs to a different model", "compare the configurations of the model and the checkpoint"),
        ("assertion", _U, _STOP, "an assertion failed", "read the traceback, which shows the assertion that failed"),
        ("division_by_zero", _U, _STOP,
         "the program divided by zero", "look for an empty dataset, batch or DataLoader"),
        ("python_exception", _U, _STOP,
         "there is an error in the program or its data", "check the line that the traceback names"),
        ("runtime_error", _A, _RESTART,
         "an exception occurred that may not recur", "read the traceback if the exception recurs"),
        ("exit_status", _U, _STOP,
         "a process exited with code 1 or 2, without an error message", "read the log of the rank that exited"),
        ("cuda_error", _A, _RESTART,
         "a CUDA kernel or library failed",
         "run once with CUDA_LAUNCH_BLOCKING=1 to find the failing call; look for indices or labels out of range"),
        # a process died
        ("segfault", _A, _RESTART,
         "a process crashed with a segmentation fault or bus error",
         "run with python -X faulthandler to get the stack; check the native libraries"),
        ("sigabrt", _A, _RESTART,
         "a process was aborted (SIGABRT)", "read the C++ error message printed before the abort"),
        ("killed_sigkill", _A, _RESTART,
         "a process was killed by SIGKILL", "check dmesg to see whether the machine ran out of memory"),
        ("dataloader_worker", _A, _RESTART, "a DataLoader worker died", "try num_workers=0 to see the worker's error"),
        ("ray_worker_died", _A, _RESTART, "a Ray worker or node died", "run ray logs and ray status to see details"),
        # ranks and links
        ("rendezvous_timeout", _T, _RESTART,
         "the rendezvous of the ranks failed", "check that all nodes have started and can reach MASTER_ADDR"),
        ("nccl_timeout", _T, _RESTART,
         "a collective operation timed out",
         "compare the stacks of all ranks to find the rank that did not take part in the operation", _OUTSIDE),
        ("nccl_network_error", _T, _RESTART,
         "a connection between ranks failed", "find the rank that died first; check the network links", _OUTSIDE),
        ("straggler", _A, _MONITOR,
         "a rank is slow", "compare the slow rank's GPU and node with those of the other ranks"),
        # nothing is named
        ("unknown", _A, _RESTART, "the job failed for an unknown reason", "read the end of the log"),
        ("none", _T, _IGNORE, "there is no sign of a failure", ""),
    )
}

# What shells print for a signal, in several languages: alone, after a bar, or before the command.
_KILLED = (
    "killed|已杀死|已砍掉|已殺死|強制終了|죽었음|getötet|processus arrêté|tué|terminado \\(killed\\)|ucciso"
    "|morto|убито|unicestwiony|geëlimineerd|dödad|zabit|вбито|tapettu|kilőve|matado|asesinado"
)
_TERMINATED = "terminated|已终止|已終止|hangup|挂断|user defined signal [12]|alarm clock"
_ENDED = (
    "beendet|complété|terminado|terminato|завершено"
    "|終了しました|종료됨|zakończony|beëindigd|avslutad|sonlandırıldı"
)
_SEGFAULT = (
    "段错误|段錯誤|記憶體區段錯誤|总线错误|speicherzugriffsfehler|erreur de segmentation|violación de segmento"
    "|errore di segmentazione|falha de segmentação|ошибка сегментирования|ошибка сегментации|세그멘테이션|"
    "セグメンテーション|naruszenie ochrony pamięci|segmentatiefout|segmenteringsfel|bus-zugriffsfehler|erreur du bus"
)
_ABORTED = (
    "aborted|已放弃|已中止|abgebrochen|abandon"
    "|abortado|annullato|аварийный останов|trace/breakpoint trap|illegal instruction|floating point exception"
)
_JOB = r"(?:\[\d+\] ?[+-]?\s+(?:\d+\s+)?|(?<!\d)\d+ ?行?\s?[:：]\s*\d+\s+|^\W*\d+\s+|^zsh: |\btasks? [\d,\-]{1,60}: )"

_TIME = (
    r"(?:wall(?:clock)? ?time|time limit|run time"
    r"|\bmax(?:imum)?[ _]?(?:allowed )?(?:run|execution)[ _]?(?:time|duration))"
)
_TOOL = r"^(?:/\S{1,40}/)?(?:rm|cp|mv|ls|cat|ln|mkdir|rmdir|chmod|chown|touch|stat|du|find|tar|head|tail|sysctl): "
_CU = r"\bcu(?:da)?(?:event|stream|mem|launch|ctx|module|device|graph)\w{0,30} failed with error "
_ONCE = r"(?:if|when|unless|once|as soon as|upon|at the end|after (?:the )?(?:job|run|training))"
_FATAL = r"(?<!non)(?<!non-)(?<!non )fatal"


def _exited(codes: str) -> str:
    """Match `exitcode  : -9`, `exit status 137` or `return code = -11`: how launchers report one of these codes."""
    reported = r"(?:exit(?:ed|ing)?(?: with)?(?: exit)?|return) ?(?:code|status)[:= (]{1,5}|\bexited with "
    reported += r"(?:a non-?zero status of )?|\bcommand_exit_code=\W?|^make\S{0,5}: .{1,200}\berror "
    return rf"(?:{reported})(?:{codes})\b"


def _by_shell(words: str) -> str:
    return rf"(?:^\W*|[\])%|}}\"'>]\s{{0,3}}|\d)(?:{words})(?:: \d+)?\W*$|{_JOB}(?:{words})(?!\w)"


SIGNATURES = tuple(
    Signature(*row)
    for row in (
        # ------------------------------------------------ ended from outside, as stated
        (DECREED, "preemption",
         r"due to preemption|due to job requeue|\brequeu?e?(?:ing|d) (?:the |this )?job\b|\bexiting for requeue"
         r"|\bpreempted worker\b|system (?:will power off|is going down|will reboot)|\bterm_preempt"
         r"|\bjob (?:is|was) (?:being )?(?:preempted|evicted\.$)|preempted to accommodate"
         r"|(?:^|\] )(?:the )?cluster is preempted\b(?! or failed)"
         r"|(?:^|\] )preemption detected[,;.:] (?:exiting|saving .{0,40} and exiting)"),
        (DECREED, "node_lost",
         r"due to node failure|cancelled at .{0,60}due to node|\bnode_fail\b|^srun: error: node failure on"
         r"|^srun: error: task launch for .{0,60} failed on node", _RESTART),
        (DECREED, "time_limit",
         r"due to time limit|\bjob .{0,40}reached (?:its )?time limit|deadlineexceeded"
         r"|longer than (?:the )?specified deadline|\bterm_runlimit\b|^timeout: sending signal|functiontimeouterror"
         rf"|\bjob .{{0,30}}took longer than|{_TIME}.{{0,40}}exceed|exceed(?:ed|s|ing) .{{0,30}}{_TIME}|enforced h_rt"
         r"|\bjob (?:has )?timed out\b|\bthis job is timed-out\b|service reached runtime time limit"),
        (DECREED, "preemption",
         r"(?<!\bno )(?<!ing for )(?<!atch for )spot (?:instance )?(?:interruption|termination|preemption)s?\b"
         r"(?!:? (?:handl|monitor|watch|listen|check|callback|poll|rate|behavio|is not (?:det|pend|act)"
         r"|none|false)(?!.{0,60}\b(?:received|marked|interrupted|detected)))"
         r"|rebalance recommendation"
         r"|instance (?:i-[0-9a-f]{4,17} )?(?:is being|was|has been) (?:preempted|reclaimed|terminated|outbid)"
         rf"|^(?!.{{0,150}}\b{_ONCE}\b.{{0,150}}\b(?:will be|is imminent))"
         r"(?!.{0,150}\b(?:no|not|whether)\b.{0,30} is imminent)"
         r".{0,300}\b(?:termination is imminent(?!\W{1,3}(?:no|none|false|0)\b)"
         r"|instance (?:i-[0-9a-f]{4,17} )?will be (?:preempted|reclaimed|terminated|outbid)"
         rf"(?![^,;.]{{0,40}}\b{_ONCE}\b))"
         r"|(?<!engine )(?<!rollout )instance (?:\d{5,12}|\w{1,30}-\S{1,40}) (?:will be|is being|was|has been)"
         r" (?:preempted|outbid|reclaimed)(?! by request| from pool)"
         r"|acpi g2 soft off|scheduled for (?:preemption|termination)|preempted (?:in order )?to admit"
         r"|(?:(?<!no )preemption (?:notice|signal) (?:was )?received|(?<!not )\breceived (?:a )?(?:preemption|spot)"
         r" (?:notice|signal))(?!\W{0,2}[:=?]\W{0,2}(?:no|none|false|0) *(?:$|[,;.)(])|\W{1,3}(?:none|false)\b)"
         r"|\bpreempted by (?:a )?(?:pod|higher)"
         r"|reason:\s*(?:preempted|preempting|preemptionbyscheduler|terminationbykubelet|nodeshutdown|nodelost)"
         r"|(?:status|state)\W{1,4}preempted|preemptionbyscheduler|node is shutting down|imminent node shutdown"
         r"|eventtype\W{1,4}(?:preempt|terminate)|instance/preempted\W{1,4}true|action\W{1,4}terminate\W.{0,40}time"
         r"|terminate_on_host_maint|\bhost ec2\b.{0,60}terminated|x-aws-ec2-.{0,20}spot|instance-action", _ELSEWHERE),
        (DECREED, "evicted_disk",
         r"low on resource: ?(?:ephemeral-storage|nodefs|imagefs|inodes)|ephemeral local storage usage exceeds"
         r"|usage of emptydir .{0,120}exceeds|exceeded its local ephemeral storage|had condition: \[diskpressure"),
        (DECREED, "evicted_memory",
         r"low on resource: ?memory|had condition: \[memorypressure"),
        (DECREED, "evicted",
         r"reason:?\s*evicted|\bpod .{0,120}evicted|\bevicting pod|tainteviction|taintmanagereviction"
         r"|marking for deletion pod|node was low on resource: ?\w|had condition: \[\w{1,20}pressure"),
        (DECREED, "node_lost",
         r"\bnodenotready\b|\bnode is not ready"
         r"|\bnode (?:\S{1,80} )?(?:is|became|went) (?:unreachable|not responding)"),
        # ------------------------------------------------ a device is broken
        (HARDWARE, "ecc_error",
         r"(?<!\bno )(?!(?<=(?<!gpu )(?<!rank )(?<!node )(?<!device )\b0 )[\w -]{8,30} errors\b)"
         r"(?:uncorrectable (?:ecc|nvlink|memory error|.{0,30}ecc error)"
         r"|double[- ]bit ecc(?!\W{1,40}(?:n/a|0\b))|uncorrected ecc error)"
         r"|volatile uncorr[^|]{0,40}[1-9]"
         r"|cudaerroreccuncorrectable|cuda_error_ecc_uncorrectable|dram uncorrectable"
         r"|row remap(?:ping|per)? ?(?:failure|failed|error)(?!(?:s| occurred){0,2} *[:=] *(?:n/a|no|0) *(?:$|[,;|)]))"
         r"|ecc error.{0,40}unrecover|hardware memory corruption"
         rf"|\bedac .{{0,20}}\b[1-9]\d* ue |machine check.{{0,60}}(?:uncorrected|{_FATAL})|{_FATAL} machine check"
         r"|(?:[1-9]\d* (?:new )?|[:}] ?)uncorrectable hardware error"
         r"|(?<!no )(?<!\d )uncorrectable error (?:on|in|at) (?:neuron ?)?(?:core|device|gpu|hbm) ?"
         r"(?:\d|mem(?!\w{0,3} (?:will|would|stops?|aborts?)\b))"),
        (HARDWARE, "gpu_lost",
         r"fallen off the bus|allocate unhealthy devices|unable to determine the device handle"
         r"|gpu is lost|gpu_is_lost|gpu requires reset"
         r"|cudaerrordevicesunavailable|hardware (?:error|failure) (?:detected )?on gpu|unrecoverable gpu"
         r"|cudaerrorhardware|cuda_error_hardware|hardware stack error|(?<!\bno )nvlink (?:error|failure)(?! count)"
         rf"|nvlink.{{0,40}}{_FATAL} error|cudaerrornvlinkuncorrectable|cuda_error_nvlink"
         rf"|(?:nvswitch|fabric ?manager|\bsxid|pcie bus error).{{0,60}}{_FATAL}|no devices were found$"
         r"|no visible (?:gpu|tpu) devices|cudaerrorsystemnotready"
         r"|system not yet initialized|rminitadapter failed|failed to initialize nvml: (?!driver/library)"
         r"|\bamdgpu\b.{0,80}(?:gpu reset|ring .{0,40}timeout|gpu hang|fatal error)|\bgpu (?:hang|has hung)\b"
         r"|hbm .{0,20}multi-?bit ecc"),
        (HARDWARE, "nccl_network_error",
         r"got completion from peer .{0,80}(?:error|status=) ?12|ibv_wc_retry_exc_err|ibv_wc_rnr_retry_exc_err"
         r"|transport retry counter exceeded|vendor[ _]err(?:or)?[ =]129"
         rf"|mlx\d_core.{{0,80}}(?:health compromised|cable error|{_FATAL})"
         r"|(?<![a-z])ib .{0,40}\bport .{0,20}(?<![a-z])(?:down|inactive)\b",
         _ELSEWHERE),
        (HARDWARE, "disk_full_or_storage",
         r"critical medium error|remounting filesystem read-only|detected aborted journal", _ELSEWHERE),
        # ------------------------------------------------ a named cause
        (CAUSE, "rejected", r"\bpod was rejected: "),
        (CAUSE, "nccl_network_error",  # the adapter has reached a limit
         r"\bibv_\w{1,40} failed .{0,40}no space left"),
        (CAUSE, "shared_memory",
         r"insufficient shared memory|bus error.{0,120}shm"
         r"|unable to open shared memory object(?!.{0,200}too many open files)"
         r"|out of shared memory|raise your shared memory limit"),
        (CAUSE, "shared_memory",
         r"(?:</torch_|/dev/shm/|shared memory segment|posix_fallocate failed).{0,200}no space left"
         r"|no space left.{0,80}/dev/shm/", _RESTART),
        (CAUSE, "process_limit",
         r"resource temporarily unavailable|can't start new thread|unable to create (?:new )?(?:native )?thread"
         r"|pthread_create failed|too many open files|emfile\b|\beagain\b|fork: retry|too many processes"
         r"|cannot fork(?!.{0,80}cannot allocate)|fork rejected|received 0 items of ancdata|libgomp: thread creation"
         r"|\binotify.{0,80}(?:limit reached|no space left)|limit on inotify"),
        (CAUSE, "disk_full_or_storage",
         r"no space left on device|disk quota exceeded|enospc\b|edquot\b|not enough (?:free )?disk space"
         r"|disk (?:is )?full\b|outofdiskerror|no locks available|cannot send after transport endpoint shutdown"
         r"|pytorchstreamwriter failed|input/output error|stale (?:nfs )?file handle|estale\b|read-only file system"
         r"|transport endpoint is not connected|file write failed|remote i/o error|\berrno (?:5|27)\]|quota exceeded on"
         r"|nfs: server .{0,80}not responding|lustreerror|buffer i/o error(?! on dev )|\berofs\b|ext4-fs error"
         r"|i/o error(?: on|,) dev (?!fd\d|sr\d)"
         rf"|{_by_shell('file size limit exceeded')}|^\W*file size limit exceeded ?\(core dumped\)"
         r"|xfs .{0,40}shutdown|blockio|write error: no space|unexpected pos \d|storagefull|saverr?or.{0,40}space"),
        (CAUSE, "host_memory",
         r"oom when allocating .{0,600}device:cpu:"),
        (CAUSE, "cuda_oom",
         r"\b(?:cuda|hip|npu|xpu|mps|musa|mlu|gpu|vram|hbm|device)(?: error:)? out of memory"
         r"|out of memory .{0,30}\b(?:gpu|npu|device|hbm)\b|outofmemoryerror: (?:out of memory (?:to )?allocat|cuda)"
         r"|torch(?:\.cuda)?\.outofmemoryerror|\bcuda (?:driver |runtime )?(?:call|error)\b.{0,120}\bout of memory"
         r"|cudaerrormemoryallocation|cuda_error_out_of_memory|cublas_status_alloc_failed|cudamalloc (?:retry )?failed"
         r"|cublas_status_not_initialized|cudnn_status_alloc_failed|cudnn_status_not_initialized"
         r"|oom when allocating|failed to allocate memory for device|out of gpu memory|resourceexhaustederror"
         r"|(?:nccl.{0,80}|^)(?:cuda|hip) failure:? (?:2\b|'out of memory')|== cudasuccess \(2 vs\. 0\)"
         r"|allocator .{0,40}ran out of memory|mps backend out of memory|dst tensor is not initialized"
         r"|tried to allocate \d.{0,60}(?:gpu|cuda)|(?:not enough|insufficient) (?:vram|(?:gpu|cuda|vram) memory)"
         r"|(?:/cuda/\S{1,120}|\.cuh?):\d+: .{0,40}(?:memory allocation error|out of memory)"
         r"|\bdevice\b.{0,200}\bmemory (?:isn't|is not|not) enough|resource_exhausted\b"
         r"|error out of memory at line|would exceed allowed memory|runtimeerror: not enough memory"
         r"|no executable batch size found|no available memory for the cache blocks"
         rf"|{_CU}2\b"),
        (CAUSE, "checkpoint_corrupt",
         r"failed finding central directory|pytorchstreamreader failed|safetensorerror|safetensors_rust"
         r"|invalid header or archive is corrupted|file not fully covered|headertoolarge|headertoosmall"
         r"|metadataincompletebuffer|invalidheaderdeserialization|header too (?:small|large)|invalidheaderlength"
         r"|unexpected eof, expected \d|unpicklingerror(?!: weights only load failed)|invalid magic number; corrupt"
         r"|weightsunpickler error: (?:unsupported operand|eoferror|pop from empty|$)"
         r"|storage has wrong byte size|pickle data was truncated|ran out of input|invalid load key"
         r"|badzipfile|file is not a zip file|not a zip archive"
         r"|(?:checkpoint|ckpt)\b.{0,160}\b(?:corrupt|truncated|incomplete|damaged|checksum|crc)"
         r"|\b(?:corrupt|truncated|incomplete|damaged)(?:ed)? .{0,60}(?:checkpoint|ckpt|\.distcp|\.safetensors|\.pt"
         r"\b)|dataloss(?:error)?: .{0,120}(?:checksum|truncat(?!ed record)|corrupt(?!ed record)|unable to open table)"
         r"|checksum does not match|checkpointexception.{0,80}(?:missing|failed)"
         r"|(?<!image )\bfile is truncated"
         r"|truncated file: eof|unable to load weights"
         r"|central directory|data_loss\b(?!: \w{7,9}ed record)|checksum verification failed|digest mismatch"
         r"|invalid ndarray file format"),
        (CAUSE, "host_oom",
         r"oom-kill:"
         r"|oom[-_ ]kill(?:er)?\b(?! score)(?!\.?$).{0,80}(?:process|event|constraint|invoked|task|killed|detected)"
         r"|out of memory: killed process|invoked oom-killer|memory cgroup out of memory|oom_kill event"
         r"|oomkilled(?!\W{1,4}(?:false|no)\b)|allocate more memory than|crashed .{0,30}\bavailable ram"
         r"|detected \d+ oom|oom killed|killed by the (?:cgroup )?oom|outofmemory(?:error)?: task was killed"
         r"|was killed due to the node running low on memory|worker\(s\) were killed due to.{0,60}memory"
         r"|killed (?:/\S{1,120} |.{0,40})due to memory (?:pressure|used)"
         r"|exceeded (?:job |step )?memory limit|\bjob has gone over (?:cgroup )?memory limit of \d|\bterm_memlimit\b"
         r"|killed: (?:\w{0,4}mem|memory) .{0,60}exceed|killed by the oom|^srun: error: .{0,80}: out of memory$"
         r"|\bearlyoom\b.{0,80}sending sig\w{3,4} to|oom_reaper"
         r"|low on memory.{0,80}kill|memory usage (?:threshold|exceeded request_memory)|out_of_me(?:mory)?\b"
         r"|exit(?:ed)?(?: with)? (?:code|status)[:= ]{0,3}137.{0,40}oom|failed with result 'oom-kill'"),
        (CAUSE, "host_memory",
         r"cannot allocate memory|defaultcpuallocator: can't|not enough memory: you tried to allocate|\bmemoryerror\b"
         r"|std::bad_alloc|unable to allocate .{0,60}(?:array|gib|mib)|numpy\.?_?core\._exceptions\._arraymemory"
         r"|\benomem\b|arrowmemoryerror|malloc of size \d+ failed"),
        (CAUSE, "hub_auth",
         r"\b40[13] client error|gatedrepoerror|repositorynotfounderror|revisionnotfounderror|entrynotfounderror"
         r"|\b404 client error|cannot access gated repo"
         r"|invalid (?:user )?(?:token|credentials|api key|username or password)"
         r"|(?:access|request) ?(?:is )?(?:denied|forbidden)\b|accessdenied|invalidaccesskeyid"
         r"|signaturedoesnotmatch|nosuchbucket|nosuchkey|expiredtoken|unauthorized"
         r"|authentication (?:failed|error|required)|permission_error: api key"
         r"|api key (?:must|is not|not|verification failed)|not a valid model identifier|localentrynotfounderror"
         r"|usageerror: api[_ ]key|no api key|api key .{0,60}\binvalid\b"
         r"|commerror: (?:permission|not found|.{0,20}40[134])"
         r"|error occurred \((?:403|401|404|forbidden)\)|gated repo|<response \[40[134]\]>|authenticationerror"
         r"|(?:forbidden|unauthorized|permissiondenied|unauthenticated): 40[13]\b"
         r"|not logged in|\b40[13] (?:forbidden|unauthorized)|does not appear to have a file named"
         r"|offlinemodeisenabled|is not a local folder and is not a valid|unable to locate credentials"
         r"|nocredentialserror|no token found|automatically determine credentials|credentials were not found"),
        (CAUSE, "port_in_use",
         r"address already in use|eaddrinuse|port \d+ is (?:already )?in use"),
        (CAUSE, "rendezvous_timeout",
         r"initializing process group in store|rendezvoustimeout|rendezvousconnectionerror|rendezvousclosederror"
         r"|rendezvous (?:timed out|failed|has timed)|timed out after \d+ seconds waiting for clients"
         r"|store based barrier|tcpstore.{0,160}(?:timed? ?out|failed|timeout)|client socket has timed out"
         r"|the client socket has (?:failed|timed)|socket timeout|wait timeout after \d+|c10d.{0,80}timed? ?out"
         r"|barrier timed out|deadline_exceeded: .{0,80}barrier|failed to (?:connect to|find) (?:the )?coordinator"
         r"|disterror.{0,60}timeout|storetimeout"),
        (CAUSE, "loss_nan",
         r"\b(?:avr_|avg_|train_|total_|mean_)?loss\W{1,6}(?:is |became |was |went )?(?:to )?(?:tensor\()?-?"
         r"(?:nan|inf(?:inity)?)\b|\b(?:loss|metric)\b.{0,40} is not finite"
         r"|(?<!if )(?<!whether )\bloss_\w{1,20} is nan(?=\W*$| at )"
         r"|grad(?:ient)?[ _-]?norm\W{1,6}(?:is )?nan|number of nan iterations: *[1-9]"
         r"|(?:nan|inf) (?:loss(?!\W{0,4}\d+(?:\.\d|\W*$))|found in|detected|in loss)|non-finite (?:loss|grad)"
         r"|loss (?:is |has |became )?(?:diverged|exploded)|\bloss infinite(?![\w-])|infinite (?:or nan )?loss"
         r"|(?<!if )(?<!when )\b(?:loss|gradients?|grad(?:ient)?[ _]norm|weights)"
         r" (?:(?:is|are|was|has|have) (?:now |bec[ao]me )?|bec[ao]mes? )infinite(?![\w-])"
         r"|found nan"
         r"|(?:loss|gradients?|activations?|weights|parameters)\b(?:(?! (?:if|when|where|will)\b).){0,40}"
         r" (?:is|are|contains?|has|have|bec[ao]mes?) (?:a )?(?:nan|inf|non-finite)(?![\w-])"
         r"|\bnan and/or inf values in|returned nan values|floatingpointerror|(?:loss|grad)_?\s?scale (?:is too small"
         r"|reached)|\binvalid loss\b|minimum loss scale reached|invalid_argument: .{0,60}nan"
         r"|probability tensor contains|nan in summary histogram|current loss scale already at minimum"),
        (CAUSE, "command_not_found",
         r"executable file not found in \$path|main process exited, code=exited, status=203/"),
        (CAUSE, "environment",  # of the node, until it is rebooted: its driver was replaced while it ran
         r"driver/library version mismatch", _ELSEWHERE),
        (CAUSE, "environment",
         r"no kernel image is available|\bsm_\d{2,3}\b.{0,60}not (?:compatible|supported)|undefined symbol"
         r"|cuda capability .{0,60}(?:is not compatible|no longer support|not supported)"
         r"|cuda driver version is insufficient"
         r"|found no nvidia driver|forward compatibility was attempted|unsupported display driver|version `?glibc"
         r"|cannot open shared object file|invalid device ordinal"
         r"|torch not compiled with cuda|cuda error: invalid device function"
         r"|was not compiled with|not compiled with cuda|requires python"
         r"|exec format error|symbol lookup error|cuda is not available|not built with"
         r"|torch\.cuda\.is_available\(\) is false|the nvidia driver on your system is too old|ncclinvalidusage"
         r"|err(?:or)?:? ?(?:errimagepull|imagepullbackoff|invalidimagename)|failed to pull image"
         r"|back-off pulling image|failed to import docker image"
         r"|could not select device driver|nvidia-container-cli: |oci runtime (?:error\b|.{0,40}fail)"
         r"|without having git-lfs|cuda setup failed|run 'conda init' before"
         r"|could not find a version that satisfies|no matching distribution"
         r"|duplicate gpu detected|invalid usage \(run with|but was built for sm\d"),
        (CAUSE, "missing_module",
         r"(?!^)no module named [\w.'\"-]{1,80}(?:;.*)?\W*$|\bimportlib\.metadata|cannot import name"),
        (CAUSE, "interrupted",
         r"^\W*keyboardinterrupt\b|received sigint\b|interrupted by user|aborted by user|cancelled by user"
         r"|\bscancel\b|signals\.sigint|received 2 death signal|got signal: 2\b|detected keyboardinterrupt"
         rf"|{_exited('130')}"),
        (CASCADE, "nccl_network_error",
         r"exited or there was a network error|\bnccl(?:remote|system|internal|unhandledcuda)error: "
         r"|(?:\bnccl warn|processgroup|\bgloo\b|distbackenderror).{0,400}"
         r"(?:(?<!monitor )(?<!failed or )timed out|refused|no route|unreachable)"),
        (DEATH, "ray_worker_died",
         r"\bactor (?:\S{1,80} )?is (?:temporarily )?unavailable"),
        (CAUSE, "network_error",
         r"\b(?:50[0234]|429) (?:server|client) error|gateway time-?out|bad gateway|service unavailable"
         r"|too many requests|max retries exceeded|maxretryerror|read ?timeout(?:error)?\b"
         r"|connect ?timeout(?:error)?\b|readtimedout|read timed out|connection timed out|connectionerror\b"
         r"|newconnectionerror|temporary failure in name resolution|name or service not known"
         r"|failed to (?:resolve|establish a new connection)|remotedisconnected|remoteprotocolerror|incompleteread"
         r"|protocolerror|chunkedencodingerror|sslerror|ssl(?:eof|zeroreturn)error|proxyerror"
         r"|endpointconnectionerror|reduce your request rate|http status ?(?:code)?:? ?(?:429|50[0234])"
         r"|statuscode\.unavailable|network is unreachable"
         r"|unavailable: (?:failed to connect|.{0,60}socket)"
         r"|no route to host|internal server error|requesttimeout|throttlingexception|operation timed out"
         r"|network error|an error occurred \((?:500|503|internalerror)|\(slowdown\)"
         r"|couldn\'t connect to|could not connect to|check your internet connection|couldn\'t reach"
         r"|cannot connect to"),
        # ------------------------------------------------ a tool that a script calls before or after the training
        (WARNED, "environment",
         r"nvidia-smi: (?:command )?not found"),
        (WARNED, "missing_file",
         rf"{_TOOL}.{{0,300}}no such file or directory"),
        (WARNED, "permission_denied",
         rf"{_TOOL}.{{0,300}}permission denied"),
        # ------------------------------------------------ what a launcher does to the others, whichever was the first
        (WARNED, "unknown",
         r"\bsending process \d+ closing signal|\bunable to shutdown process \d+ via"),
        # ------------------------------------------------ an error in the process itself
        (EXCEPTION, "cuda_error",
         r"illegal memory access|memory access fault by gpu|cudaerrorillegaladdress|cuda_error_illegal_address"
         r"|misaligned address"
         r"|device-side assert|unspecified launch failure|cudaerrorlaunchfailure|cuda_error_launch_failed"
         r"|cudaerrorassert|illegal instruction was|cudnn_status_(?:execution_failed|internal_error|mapping_error)"
         r"|cublas_status_(?:execution_failed|internal_error)"
         r"|cuda error: (?:unknown error|invalid (?:program counter|argument|configuration)|launch failed|an illega"
         r"l)|cuda error: (?:initialization error|context is destroyed|unspecified)|\.cuh?:\d+:.{0,300}assertion"
         r"|\b(?:cuda|cudnn|hip) error: |unable to find a valid cudnn algorithm"
         rf"|== cudasuccess \(\d{{1,4}} vs\. 0\)|{_CU}\d"),
        (EXCEPTION, "environment",
         r"cuda version .{0,40} (?:does not match|mismatches) the version"
         r"(?!.{0,80}(?:accepting|allowing) this combination)|failed to find c compiler"
         r"|compiled with different cuda (?:major )?versions|cudnn version incompatibility"
         r"|error: cuda_home environment variable is not set|error: attempting to deserialize object on cuda device \d"
         r"|may indicate binary incompatibility|error: (?:numpy is not available|ninja is required)"
         r"|\boperator \w{2,40}::\w{2,40} does not exist|\bnvcc fatal +:"
         r"|error: failed to import \S{1,100} because of the following error"),
        (EXCEPTION, "device_mismatch",
         r"expected all tensors to be on the same device|must be on the same device|found at least two devices"
         r"|is on (?:cpu|cuda:\d+), but|expected object of (?:device|backend)\b|tensors? on different devices"
         r"|input type \((?!c\d\d::|torch\.cuda\.\w{1,40}\) and \w{1,9} type \(torch\.cuda\.|torch\.\w{1,40}\) and "
         r"\w{1,9} type \(torch\.\w{1,40}\)).{0,60} and \w{1,9} type .{0,60} should be the same"
         r"|must have its parameters and buffers on device|is not on the expected device"
         r"|should be either on cpu or on the same device"
         r"|arguments are located on different (?:gpu|device)s|can't convert cuda:\d+ device type tensor to numpy"),
        (EXCEPTION, "checkpoint_mismatch",
         r"error\(s\) in loading state_dict|(?:missing|unexpected) key\S{0,4} in .{0,30}state_?dict(?!\W{1,4}\[\])"
         r"|size mismatch (?:for|between saved)|loaded state dict (?:has a different|contains a parameter group)"
         r"|metadata tree structures do not match|not compatible with the stored shape"
         r"|layer count mismatch when loading|notfounderror: .{0,200}\bkey \S{1,200} not found in checkpoint"),
        (EXCEPTION, "dtype_mismatch",
         r"expected .{0,60}(?:scalar type|dtype)|\b(?:to|must) have the same dtype|\brequires .{0,40} dtypes match\b"
         r"|found dtype \w{3,12} but expected|result type \w{3,12} can't be cast to"
         r"|input type .{0,60} and \w+ type .{0,60} should be the same|not implemented for '?(?:half|bfloat16|float"
         r"|double|int|long|bool|byte)"),
        (EXCEPTION, "shape_mismatch",
         r"size mismatch|shapes? .{0,80}(?:mismatch|cannot be (?:multiplied|broadcast)|not aligned)"
         r"|must match the size of tensor|mat1 and mat2|shape '.{0,80}' is invalid|sizes of tensors must match"
         r"|expected .{0,60}(?:but got|dimension)|stack expects each tensor to be equal size"
         r"|could not (?:be )?broadcast|incompatible shapes|inhomogeneous shape|cannot reshape array"
         r"|batch_size \(\d+\) to match target|view size is not compatible with|doesn't match the broadcast shape"
         r"|must match the existing size|target tensor expected, multi-target|only batches of spatial targets"
         r"|don't match in permute|einsum\(\): the number of|expects split_sizes to sum"
         r"|must have (?:the )?same number of dim|cannot reshape tensor of|returned an invalid gradient at index"
         r"|output size is too small|exceeds dimension size"
         r"|kernel size can't be greater than|got weight tensor of shape|must be equal to input_size"
         r"|batch should be of equal size"),
        (EXCEPTION, "bad_configuration",
         r"unrecognized arguments|invalid choice|configattributeerror|error: (?:argument|the following arguments"
         r"|no such (?:option|command)|missing (?:option|argument|command)|invalid value for|got unexpected)"
         r"|hydra.{0,40}exception|yaml\.\w+\.\w*error|could not override|omegaconf|validationerror"
         r"|main process exited, code=exited, status=2[0-3]\d/(?!exec|n/a)[a-z]"  # systemd could not set up the unit
         r"|^in '.{0,80}': could not find|could not find '.{0,80}' in|duplicate key(?!s(?: to\b|: 0))"
         r"|\bflags parsing error: |\bcould not consume arg: |\berror: parser key "
         r"|\bruntimeerror: early stopping conditioned on metric"
         r"|failed to parse .{0,60}\b(?:config\w{0,12}|ya?ml|toml|arg(?:ument)?s?|options?|overrides?|flags?)\b"),
        (EXCEPTION, "permission_denied",
         r"permission denied"),
        (EXCEPTION, "missing_file",
         r"no such file or directory|is(?: not)? a directory|can't open file|: no such file (?!or )"
         r"|\boserror: can't load (?:the )?[a-z ]{5,20} (?:for|of) '[./~]"
         r"|error: (?:error )?no file named .{1,200} found in "
         r"|error: (?:incorrect path_or_model_id|dataset not found or corrupted|cannot find any model)"
         r"|error: parent directory \S{1,400} does not exist\b"
         r"|\bruntimeerror: found 0 files in"
         r"|could not find \S{0,40}\.json\b"),
        (EXCEPTION, "python_exception",
         r"out of resources?: shared memory"  # of a kernel
         r"|parameters that were not used in producing the loss"
         r"|selected index k out of range|leaf variable that requires grad"
         r"|expected reduction dim to be|could not infer dtype of|invalid device string|contained shared tensors"
         r"|bool(?:ean)? value of tensor with|call numpy\(\) on tensor|created only for scalar outputs"
         r"|complex dtype can require gradients|does not require grad"
         r"|trying to backward through|one of the variables needed for gradient"
         r"|expected to have finished reduction in the prior iteration|mark a variable ready only once"
         r"|cannot be performed when|not implemented for|index out of (?:range|bounds)|out of bounds for dimension"
         r"|\[lightgbm\] \[fatal\]"),
        # ------------------------------------------------ a process died, for an unknown reason
        (DEATH, "node_lost",  # a daemon that was killed or cancelled is missed like a node
         r"\blost (?:communication|contact) with .{0,20}(?:daemon|node|host)\b"),
        (DEATH, "segfault",
         r"segmentation fault|sigsegv\b|signal 11\b|segfault at|general protection fault"
         rf"|{_by_shell(_SEGFAULT)}|{_SEGFAULT}"
         rf"|sigbus\b|signal 7\b|(?<!pcie )bus error|{_exited('139|135|-11|-7|-1073741819|3221225477')}"
         r"|status=\d+/(?:segv|bus)\b"),
        (DEATH, "killed_sigkill",
         r"sigkill\b|signal:? 9\b|\bkilled +(?:python|torchrun|accel|deepspeed)"
         rf"|{_by_shell(_KILLED)}|{_exited('137|-9')}|status=\d+/kill\b"),
        (DEATH, "ray_worker_died",
         r"actordiederror|rayactorerror|raylet died|worker exit type: system_error|worker died or was killed"
         r"|workercrashederror|actorunavailableerror|the actor is dead|nodediederror|objectlosterror|ownerdiederror"
         r"|raysystemerror|actor died|lost connection to (?:the )?(?:gcs|raylet)"
         r"|the node .{0,120}(?:marked dead|has died|is dead)|raylet .{0,60}dead"
         r"|health check failed due to missing too many heartbeats|jobsupervisor actor died"
         r"|runtime ?env(?:ironment)?.{0,30}(?:failed|error)|raylet is terminated|marked as dead"),
        (DEATH, "dataloader_worker",
         r"dataloader worker .{0,60}(?:exited|killed)"),
        (DEATH, "external_cancel",
         r"cancelled at(?!.{0,60}due to task failure)|canceled by|\bjob killed by (?:its |the )?(?:owner|user)\b"
         r"|job .{0,40}cancelled\b"),
        # ------------------------------------------------ other ranks notice
        (CASCADE, "sigterm",
         rf"{_by_shell(_TERMINATED)}|{_JOB}(?:{_ENDED})(?!\w)|"
         r"\b(?:caught|received|got) (?:signal )?sig(?:hup\b|usr[12]\b.{0,40}\b(?:exit|terminat|shut|stopp|ending))|"
         rf"sigterm\b|signal:? 15\b|{_exited('143|-15')}|signalexception|sigtermexception|received .{{0,20}}signal: 15"
         r"|received (?:15?|signals\.sighup) death signal\b"
         r"|status=\d+/term\b"),
        (CASCADE, "nccl_timeout",
         r"\bei00\d\d:|notify register times? out|getting socket times? out"
         r"|\bhccl(?:[a-z]{2,30})?\b.{0,60}(?:error|timeout|fail)"
         r"|watchdog caught collective|collective operation timeout|timeout at nccl work|taking the entire process down"
         r"|nccl operations have failed or timed out|(?<!ting up )nccl (?:communicator|watchdog)"
         r"(?! (?:thread )?(?:(?:is|was) )?(?:created|initiali[sz]ed|enabled|ready|started|terminated normally)\b"
         r"(?!.{0,200}(?:timeout after|timed out|error|fail|stuck|hang|abort)))"
         r"|detected by watchdog at work|heartbeat monitor timed out|watchdog got stuck|ncclwatchdog"
         r"|watchdog .{0,60}hang|timed? ?out waiting (?:for )?\d+ ?ms (?:for|waiting)"
         r"|wait\w* (?:timed out|timeout) .{0,40}(?:allreduce|barrier|recv|send)"
         r"|timed out after \d+ ?(?:ms|milliseconds)|monitoredbarrier"
         r"|detected mismatch between collectives|\bdesync(?!_?debug)"
         r"|gloo.{0,80}timed? ?out|collective timeout|flight recorder|dumping nccl|first phase .{0,40}timed out"
         r"|rank \d+ failed to pass"),
        (CASCADE, "nccl_network_error",
         r"ncclsystemerror|nccl(?:remote|internal|unhandledcuda)error|unhandled system error|remote process exited"
         r"|connection (?:reset|closed|refused|aborted)|broken pipe|socket closed"
         r"|nccl warn (?:call to|net/|socket|connect)|ncclcommabort|ncclcommwatchdog|communicator was aborted"
         r"|peer .{0,60}(?:closed|disconnected|left|unreachable)|nccl error|unhandled cuda error"
         r"|software caused connection abort|transport retry count exceeded|libfabric.{0,60}(?:error|failed)"
         r"|(?<![a-z])(?:lib)?efa.{0,40}(?:error|fail)"
         r"|jax distributed service detected fatal errors|tasks are unhealthy \(stopped sending heartbeats\)"
         r"|coordination service: .{0,200}\bheartbeat timeout\b"
         r"|net/ofi.{0,80}(?:error|fail|timeout)|distbackenderror|distnetworkerror|collective .{0,40}abort"
         r"|node unreachable"),
        # ------------------------------------------------ the launcher's summary
        (SUMMARY, "sigabrt",
         rf"{_by_shell(_ABORTED)}|{_exited('134|-6')}"
         r"|sigabrt\b|signal 6\b|status=\d+/abrt\b|core dumped|terminate called|fatal python error"),
        (SUMMARY, "exit_status",
         r"exitcode: [12]\b|exit code[: ]+[12]\b|exited with (?:exit )?code (?:= )?[12]\b"
         r"|non-zero exit status [12]\b|return code = [12]\b|exitcode *: [12]\b|\bcommand_exit_code=\W?[12]\b"),
        (SUMMARY, "command_not_found",
         r"exit ?code:? 12[67]\b|command not found(?:: \S{1,80})?$|^\S{0,40}sh: \d+: \S{1,80}: not found$"),
        # ------------------------------------------------ to be watched, or harmless
        (HARMLESS, "straggler",
         r"straggler|slow(?:est)? rank|falling behind|lagging behind"),
        (HARMLESS, "thermal",
         r"thermal (?:slowdown|throttl|violation)|temperature above threshold|power brake|hw slowdown"
         r"|clocks? (?:throttled|event reasons?).{0,60}(?:active|thermal)"
         r"|throttl(?:ed|ing) .{0,40}(?:temperature|thermal)"),
        (HARMLESS, "ecc_corrected",
         r"(?<!un)correct(?:ed|able) (?:ecc|memory|error)|single[- ]bit ecc|(?<!un)correctable ecc"
         r"|(?<!un)correctable *: *[1-9]|\bedac .{0,20}\b\d+ ce "
         r"|(?:\bsxid|pcie bus error|mlx\d_core).{0,80}(?:non-?fatal|severity=correct)"),
    )
)
# Python exceptions that only report an exception in another process.
SECOND_HAND = frozenset("childfailederror enginedeaderror raytaskerror".split())

# Exceptions that report a failure of other ranks or a signal: not a fault of the code that raised them.
FROM_OUTSIDE = (
    r"distbackenderror|distnetworkerror|nccl (?:error|communicator|watchdog)|unhandled (?:system|cuda) error"
    r"|\bnccl(?:remote|system|internal|unhandledcuda)error: "
    r"|caught collective operation timeout|\bhccl(?:[a-z]{2,30})?\b.{0,60}error|signalexception|sigtermexception"
    r"|\bdied with <signals\."
    r"|\bgloo/transport/.{0,80}\b(?:connection|timed out|timeout)\b"
)

# Categories of Python exceptions by their names; all others are `runtime_error`.
EXCEPTIONS = {
    name: category
    for category, names in (
        ("missing_file", "filenotfounderror isadirectoryerror notadirectoryerror"),
        ("permission_denied", "permissionerror"),
        ("missing_module", "importerror modulenotfounderror"),
        ("assertion", "assertionerror"),
        ("division_by_zero", "zerodivisionerror"),
        ("network_error",
         "connectionreseterror connectionrefusederror connectionabortederror brokenpipeerror timeouterror"
         " commerror serviceunavailable"
         " unavailableerror"),
        ("environment", "contextualversionconflict"),
        ("bad_configuration", "misconfigurationexception hfvalidationerror argumenterror configkeyerror"
         " deepspeedconfigerror unrecognizedflagerror tomldecodeerror nosectionerror"
         " missingmandatoryvalue scannererror parsererror constructorerror"),
        ("python_exception", "typeerror keyerror attributeerror valueerror indexerror nameerror syntaxerror taberror"
         " indentationerror unboundlocalerror notimplementederror recursionerror unicodedecodeerror unicodeencodeerror"
         " unicodeerror lookuperror overflowerror arithmeticerror jsondecodeerror datasetgenerationerror"
         " datasetnotfounderror casterror undefinederror templateerror"
         " tracerboolconversionerror concretizationtypeerror unexpectedtracererror backendcompilerfailed inductorerror"
         " jaxtypeerror"
         " tracerarrayconversionerror invalidargumenterror fileexistserror unidentifiedimageerror unsupported"
         " unpicklingerror"
         " internaltorchdynamoerror"),
    )
    for name in names.split()
}

# What ends a process, by the number on Linux: a shell reports exit code 128 + number.
SIGNALS = {
    1: ("SIGHUP", "sigterm"), 2: ("SIGINT", "interrupted"), 4: ("SIGILL", "sigabrt"), 5: ("SIGTRAP", "sigabrt"),
    6: ("SIGABRT", "sigabrt"), 7: ("SIGBUS", "segfault"), 8: ("SIGFPE", "sigabrt"), 9: ("SIGKILL", "killed_sigkill"),
    10: ("SIGUSR1", "sigterm"), 11: ("SIGSEGV", "segfault"), 12: ("SIGUSR2", "sigterm"), 15: ("SIGTERM", "sigterm"),
    24: ("SIGXCPU", "time_limit"), 25: ("SIGXFSZ", "disk_full_or_storage"),
}
# fmt: on

# Advice: an error message followed by advice is evidence, a line that begins with advice is not.
ADVICE = (
    r"cuda_launch_blocking|torch_use_cuda_dsa|for debugging consider|compile with `|\bif you (?:see|get|hit)\b"
    r"|kernel errors might be asynchronously|might be (?:caused|incorrect|due)|some (?:common |possible )?causes"
    r"|potential root causes|possible (?:causes|reasons)|troubleshoot|please (?:check|see|refer)"
    r"|see (?:also )?https?://|\btry (?:to |setting|reducing)|consider (?:using|setting|increasing)"
    r"|set pytorch_cuda_alloc_conf|expandable_segments|to avoid fragmentation|if reserved but unallocated"
    r"|nccl_(?:async_)?error_handling|torch_nccl|\bnccl_timeout\b|the above exception was the direct cause"
    r"|(?:can |may |could )(?:cause|lead to|result in)|in case of|to (?:prevent|avoid)|error[- ]?handl"
    rf"|\b{_ONCE} (?:(?:the|this|your|a) )?(?:job|cluster) (?:is|gets) preempted"
    r"|\bon_?error\b|\bmax_?errors?\b|ignore_?errors?\b|errors='|loss_nan_check|nan_check|check_for_nan"
    r"|detect_anomaly|oom_?score"
)

# Lines that are never evidence: ongoing retries, counts of zero, warnings, noise, printed settings.
NEVER = (
    r"will (?:be )?retr|retrying|(?<!after )\btrying again\b|\bretry \d|\[retry|attempt \d+ ?(?:/|of) ?\d+|retry loop"
    r"|resume download|reconnecting|, trying \d|recovered (?:from|after)|successfully (?:re)?connected|not a failure"
    # a count, and no number of a rank, a device or a version
    r"|(?<![\w.#-])(?<!rank )(?<!gpu )(?<!node )(?<!task )(?<!stage )(?<!worker )(?<!step )(?<!replica )"
    r"(?<!device )(?<!process )(?<!job )(?:0|no) (?:errors?|failures?|failed|exceptions?|warnings?|corrupt|damaged)\b"
    r"""|error_?(?:rate|count|s)?['\"]?\s?[:=]\s?0(?:x0{1,16})?(?:\.0*)?(?![\w.]| in )|failed_jobs: 0"""
    r"|uncorr[^:]{0,40}(?<!gpu)(?<!device): *0\b|failures=0|is deprecated"
    r"|deprecationwarning|futurewarning|userwarning|\b[a-z]{3,30}warning: "
    r"|overflow!? (?:rank \d+ )?skipping|error resolved"
    r"|\b(?:nan|inf|non-?finite)\b.{0,40}\b(?:replaced (?:with|by)"
    r"|skipping (?:\w{1,12} ){0,2}(?:batch|updat|iteration))"
    r"|\basync event ?:(?!.{0,80}(?:error|fatal|catastrophic))"
    r"|skipping step|gradient overflow|attempting loss scale|reducing loss scale|\bnccl info\b"
    r"""|^\W{0,3}(?:\[rank\d{1,5}\]:)?\[w\d{3,4} \d\d:|\bprompt["']?[:=]|config(?:uration)?["']?[:=] ?\{|restart_on"""
    r"|error raised in its creation task|resuming normal|error[^:]{0,40}(?<!gpu)(?<!device)(?<!rank): 0(?:\.0*)?$"
    r"|\b0 (?:train|validation) errors|last reason: \d|\bsignal=sigterm|(?:revert|fall)ing (?:back )?to poll"
    r"|(?:install|regist|enabl)\w{0,12} .{0,60}\bsig(?:term|usr1)\b"
    r"|\bsig(?:term|usr1) handler (?:is )?(?:install|regist|enabl)|(?:fail|could not|unable).{0,200}[.,;] +trying "
    r"|nan or inf found in input tensor|\bfor benchmark choice\b|pip's dependency resolver|not a git repository"
    r"|from ld_preload cannot be preloaded|xla_bridge(?::\d{1,5})?: ?unable to initialize backend"
    r"|^(?!.{0,300}(?:(?<!server )error|exception|failed|aborted|giving up|unable to)\b)"
    r".{0,80}\b(?:get|head|post|put|patch|delete|options) (?:/|[a-z]{2,5}://)\S{0,300}"
    r" \"?http/\d(?:\.\d)?\"? [1-5]\d\d\b"  # a request's line
    r"|^wandb: (?:syncing run|tracking run)|^alsa lib |^tensorboard (?:exited|failed to)\b"
    r"|\btrial \d{1,6} (?:failed with value|pruned)"
    r"|^(?!.{0,300}(?:(?:error|exception): |no space left|quota exceed|\becc\b|\bxid\b|gpu is lost"
    r"|fallen off|requires reset"
    r"|\b(?:exit|exiting|abort|aborting|stopping|raising|giving up)\b(?! (?:code|status))))"
    r".{0,300}(?:[.,;] +ignoring(?! further)"
    r"|(?:failed to|could not|unable to) (?:read|get|fetch|query|check|poll)\b.{0,200}[.,;] +skipping)"
    r"|^(?=.{0,200}\bspot (?:instance )?(?:interrupt|terminat|preempt|pric|watch|monitor|metadata|check))"
    r"(?!.{0,200}(?:(?:error|exception): |\b(?:received|detected|notice!))).{0,200}"
    r"(?:(?:failed to|could not|unable to) (?:reach|watch|connect|subscribe|start)"
    r"|\b(?:check|poll|request)\b.{0,40} failed)\b.{0,200}[.,;] +(?:skipping|falling back|.{3,30} (?:disabled|anyway))"
    r"|\b(?:judge|verdict|sample|sandbox|test ?case|submission)\b.{0,60}\btime limit exceeded"
    # a guard that was set up, or what it did not find
    r"|^(?!.{0,300}(?:error|exception): ).*\b(?:handler|listener|detection|detector|checks?|tolerance) (?:is |was )?"
    r"(?:enabled|started|active|(?<!\d checks )passed)\W*$"
    r"|(?:^|[\]>] )[\w /-]{2,40}(?<!error)(?<!exception)(?<!failed): none$"
    r"|(?:^|[,;(] ?|\b(?:found|had|with|detected) )0 (?:[a-z-]{2,20} ){1,3}(?:errors?|events?)\b"
    r"(?!.{0,120}(?:(?<!\bon )(?<!\bin )(?<!across )\b[1-9]\d* |(?:err|fail|ecc|uncorr)[\w ]{0,30}[:=] ?[1-9]))"
    r"|(?:^|[\]:-] )(?:(?:current |initial )?(?:best|lowest)\b[\w ]{0,30}\bloss\W{1,6}inf\b"
    r"(?!.{0,300}\b(?:nan|diverg))"
    r"|(?:on|upon|when|if) (?:a |receiving )?sig(?:term|usr\d)\W{1,3}\w)"
    r"|^(?!.{0,80}\b(?:(?:received|caught|got) .{0,9}sig.*will |sigterm (?:was )?received (?:from|now)))"
    r"(?!.*; ?sigterm (?:was )?received).*\bwill .{0,60}\b(?:on|upon|when|if|after) (?:a |receiving )?sigterm\b"
)

# Problems that were averted, as their own line says: never evidence, unless the line names an end or a broken device.
AVERTED = (
    rf"^(?!.{{0,300}}(?:(?:error|exception|{_FATAL}): |no space left|quota exceed"
    r"|\b(?:ecc|exit|abort|evicted|stopping|giving up)))"
    r".{0,300}(?:(?:fail|\berror (?:while )?\w{2,20}ing|could not|unable).{0,200}"
    r"\b(?<!\d )(?:skipped|ignored|discarded)\W*$|\b(?:skipp|ignor|discard)(?:ed|ing) \d{1,12} .{0,20}fail"
    r"|[.,;] +(?:skipping|falling back|reopening"
    r"|(?:sleep|wait)ing (?:for )?\d{1,9} ?[a-z]{1,7}\b(?! for (?:the )?other)"
    r"|using (?:(?!\d)[^)]*$|.{0,80} instead\b)|[a-z]{3,12}ing (?:disabled|anyway|in offline))"
    r"|\b(?:remov|delet)(?:ed|ing)\b.{0,20}\b(?:corrupt|incomplete|damaged)|\b(?:no|not) (?:nan|inf|preempted)\b"
    r"|\bscale (?:is |was )?(?:reduced|lowered|decreased)|\busing (?:a |the )?fallback\b"
    r"|[,;.] +skipped (?:the |this )?(?:batch|sample|step)\b"
    r"|\b(?:skipped|disabled|skipping [^:]{1,60}): (?!exit)"
    r"|\b(?:unavailable|not (?:available|installed|found))\W{1,4}no module named)"
    r"|[,;.] +(?:starting )?(?:starting|training) (?:from scratch|fresh)\b(?! (?:is|was)\b)"
    r"|[,;.] continuing (?:the )?(?:training|run)"
    r"(?=\W*$|\W{0,2}[,;.(]| (?:anyway|as|at|but|in|on|regardless|until|while|with|without)\b)"
    r"(?!.*\b(?:from|fail|abort|exit|stop))"
)

# Xid -> action: NVIDIA's Xid catalog (immediate action), as it applies to the owner of a job.
XID_ELSEWHERE = frozenset(
    {46, 48, 54, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 151, 155, 156, 158, 167, 168, 171, 172}
)
XID_RESTART = frozenset({8, 13, 31, 32, 68, 69, 80, 94})
XID_IGNORE = frozenset({43, 44, 63, 66, 92, 93, 121, 137, 157})
XID_BY_TEXT = frozenset({144, 145, 146, 147, 148, 149, 150})
