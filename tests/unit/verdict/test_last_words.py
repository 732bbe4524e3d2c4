"""What comes last in a log decides why it failed, in the field's words; the table of categories has them all."""

from __future__ import annotations

import json

import pytest

from training_monitor.verdict import failure_table as table
from training_monitor.verdict.failure import classify_failure, is_warning

BAR = "\rTraining:  22%|██▏       | 412/1875 [33:10<1:57:42,  4.83s/it, loss=0.83]"
STEPS = "step 100 loss 0.31\nstep 200 loss 0.30\n"
MORE = "\nstep 300 loss 0.29\nstep 400 loss 0.28"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def traceback(last: str, source: str = "main()") -> str:
    return f'Traceback (most recent call last):\n  File "/job/train.py", line 7, in <module>\n    {source}\n{last}'


def chain(
    first: str, last: str, words: str = "During handling of the above exception, another exception occurred"
) -> str:
    return f"{traceback(first)}\n\n{words}:\n\n{traceback(last)}\n"


DIRECT = "The above exception was the direct cause of the following exception"

# ---------------------------------------------------------------- Python's own messages
PYTHON = [
    ("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'", "missing_file", "stop"),
    ("NotADirectoryError: [Errno 20] Not a directory: '/data/x'", "missing_file", "stop"),
    ("IsADirectoryError: [Errno 21] Is a directory: '/data'", "missing_file", "stop"),
    ("PermissionError: [Errno 13] Permission denied: '/out/log.txt'", "permission_denied", "stop"),
    ("PermissionError: [Errno 1] Operation not permitted: '/out'", "permission_denied", "stop"),
    ("ModuleNotFoundError: No module named 'xformers'", "missing_module", "stop"),
    ("ImportError: cannot import name 'foo' from 'bar' (/site-packages/bar.py)", "missing_module", "stop"),
    ("AssertionError", "assertion", "stop"),
    ("AssertionError: heads must divide width", "assertion", "stop"),
    ("ZeroDivisionError: integer modulo by zero", "division_by_zero", "stop"),
    ("ZeroDivisionError: float floor division by zero", "division_by_zero", "stop"),
    ("MemoryError", "host_memory", "restart"),
    ("MemoryError: Unable to allocate 40.0 GiB for an array with shape (5, 1) and data type f8",
     "host_memory", "restart"),
    ("OSError: [Errno 12] Cannot allocate memory", "host_memory", "restart"),
    ("RuntimeError: $ Torch: not enough memory: you tried to allocate 7GB. Buy new RAM!", "host_memory", "restart"),
    ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 8 bytes",
     "host_memory", "restart"),
    ("KeyError: 'labels'", "python_exception", "stop"),
    ("IndexError: list index out of range", "python_exception", "stop"),
    ("TypeError: forward() got an unexpected keyword argument 'mask'", "python_exception", "stop"),
    ("AttributeError: 'NoneType' object has no attribute 'shape'", "python_exception", "stop"),
    ("NameError: name 'lr' is not defined", "python_exception", "stop"),
    ("UnboundLocalError: local variable 'x' referenced before assignment", "python_exception", "stop"),
    ("UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0", "python_exception", "stop"),
    ("RecursionError: maximum recursion depth exceeded", "python_exception", "stop"),
    ("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", "python_exception", "stop"),
    ("RuntimeError: the moon is full", "runtime_error", "restart"),
    ("ValueError: operands could not be broadcast together with shapes (2,3) (4,)", "shape_mismatch", "stop"),
    ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 9x2)", "shape_mismatch", "stop"),
    ("RuntimeError: stack expects each tensor to be equal size, but got [3] at entry 0", "shape_mismatch", "stop"),
    ("RuntimeError: expected scalar type Half but found Float", "dtype_mismatch", "stop"),
    ('RuntimeError: "addmm_impl_cpu_" not implemented for \'Half\'', "dtype_mismatch", "stop"),
    ("RuntimeError: Expected all tensors to be on the same device, but found at least two devices",
     "device_mismatch", "stop"),
    ("RuntimeError: Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
     "device_mismatch", "stop"),
    ("RuntimeError: Input type (torch.FloatTensor) and bias type (torch.cuda.FloatTensor) should be the same",
     "device_mismatch", "stop"),
    ("RuntimeError: Input type (torch.cuda.HalfTensor) and weight type (torch.cuda.FloatTensor) should be the same",
     "dtype_mismatch", "stop"),
    ("RuntimeError: Input type (c10::Half) and bias type (float) should be the same", "dtype_mismatch", "stop"),
    ("RuntimeError: mat1 and mat2 must have the same dtype, but got Half and Float", "dtype_mismatch", "stop"),
    ("RuntimeError: Index put requires the source and destination dtypes match, got Half for the destination",
     "dtype_mismatch", "stop"),
    ("RuntimeError: unable to open shared memory object </torch_7_1> in read-write mode: Too many open files (24)",
     "process_limit", "stop"),
    ("RuntimeError: unable to open shared memory object </torch_7_1> in read-write mode: File exists (17)",
     "shared_memory", "stop"),
    ("cupy.cuda.memory.OutOfMemoryError: out of memory to allocate 99 bytes (total 100 bytes)", "cuda_oom", "stop"),
    ("F0203 04:05:06.7 8 syncedmem.cpp:9] Check failed: error == cudaSuccess (2 vs. 0)  out of memory\n*** Check "
     "failure stack trace: ***", "cuda_oom", "stop"),
    ("F0203 04:05:06.7 8 x.cu:9] Check failed: status == cudaSuccess (3 vs. 0)  initialization", "cuda_error",
     "restart"),
    ("RuntimeError: view size is not compatible with input tensor's size and stride", "shape_mismatch", "stop"),
    ("x.CUDAMismatchException: Installed CUDA version 11.8 does not match the version torch was compiled with 12.1",
     "environment", "stop"),
    ("RuntimeError: The detected CUDA version (11.8) mismatches the version that was used to compile PyTorch (12.1).",
     "environment", "stop"),
    ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable.", "environment", "stop"),
    ("ValueError: numpy.dtype size changed, may indicate binary incompatibility.", "environment", "stop"),
    ("RuntimeError: operator torchvision::nms does not exist", "environment", "stop"),
    ("google.api_core.exceptions.ServiceUnavailable: 503 GET https://storage: try again", "network_error", "restart"),
    ("lightning.pytorch.utilities.exceptions.SIGTERMException", "sigterm", "restart"),
    ("deepspeed.runtime.config.DeepSpeedConfigError: no train_batch_size", "bad_configuration", "stop"),
    ("absl.flags._exceptions.UnrecognizedFlagError: Unknown command line flag 'lrr'.", "bad_configuration", "stop"),
    ("FATAL Flags parsing error: Unknown command line flag 'lrr'.", "bad_configuration", "stop"),
    ("ERROR: Could not consume arg: --lrr", "bad_configuration", "stop"),
    ('train.py: error: Parser key "model.lr": Expected a float.', "bad_configuration", "stop"),
    ("OSError: Can't load tokenizer for './mine'. If you were trying to load it", "missing_file", "stop"),
    ("OSError: Can't load the configuration of '/me/mine'.", "missing_file", "stop"),
    ("OSError: Error no file named model.bin or model.safetensors found in directory /m.", "missing_file", "stop"),
    ("OSError: Incorrect path_or_model_id: './out/step_7'.", "missing_file", "stop"),
    ("ValueError: Size mismatch between saved torch.Size([7]) and current: torch.Size([8]) for w",
     "checkpoint_mismatch", "stop"),
    ("ValueError: User-provided restore item and on-disk value metadata tree structures do not match: {}",
     "checkpoint_mismatch", "stop"),
    ("ValueError: Requested shape: (7,) is not compatible with the stored shape: (8,).", "checkpoint_mismatch", "stop"),
    ("NotFoundError: Key dense/kernel not found in checkpoint", "checkpoint_mismatch", "stop"),
    ("ValueError: Layer count mismatch when loading weights from file.", "checkpoint_mismatch", "stop"),
    ("jax.errors.TracerBoolConversionError: bool[]", "python_exception", "stop"),
    ("RuntimeError: PyTorch and torchvision were compiled with different CUDA major versions.", "environment", "stop"),
    ("RuntimeError: Failed to import transformers.models.x because of the following error (look up):",
     "environment", "stop"),
    *[(f"RuntimeError: {said}", "shape_mismatch", "stop") for said in (
        "output with shape [1, 7] doesn't match the broadcast shape [3, 7]",
        "The expanded size of the tensor (3) must match the existing size (1) at non-singleton dimension 0.",
        "0D or 1D target tensor expected, multi-target not supported",
        "only batches of spatial targets supported (3D tensors) but got targets of dimension: 4",
        "Kernel size: (3 x 3). Kernel size can't be greater than actual input size",
        "weight tensor should be defined for all 3 classes but got weight tensor of shape: [2]",
        "input.size(-1) must be equal to input_size. Expected 7, got 8",
        "each element in list of batch should be of equal size",
        "number of dims don't match in permute",
        "einsum(): the number of subscripts in the equation (3) does not match the number of dimensions (4)",
        "split_with_sizes expects split_sizes to sum exactly to 7, but got split_sizes=[4, 5]",
        "Tensors must have same number of dimensions: got 3 and 2",
        "cannot reshape tensor of 0 elements into shape [0, -1]",
        "Function AddmmBackward returned an invalid gradient at index 1 - got [7] but expected [8]",
        "Given input size: (7x1x1). Calculated output size: (7x0x0). Output size is too small",
        "start (0) + length (10) exceeds dimension size (8).")],
    *[(f"RuntimeError: {said}", "python_exception", "stop") for said in (
        "It looks like your LightningModule has parameters that were not used in producing the loss returned",
        "Boolean value of Tensor with more than one value is ambiguous",
        "Can't call numpy() on Tensor that requires grad.",
        "grad can be implicitly created only for scalar outputs",
        "Only Tensors of floating point and complex dtype can require gradients",
        "selected index k out of range", "Could not infer dtype of NoneType", "Invalid device string: 'cuda:0,1'",
        "a view of a leaf Variable that requires grad is being used in an in-place operation.",
        "max(): Expected reduction dim to be specified for input.numel() == 0.",
        "The weights trying to be saved contained shared tensors [{'a', 'b'}]")],
    *[(f"RuntimeError: {said}", "device_mismatch", "stop") for said in (
        "Expected object of backend CUDA but got backend CPU for argument #2 'weight'",
        "module must have its parameters and buffers on device cuda:0 (device_ids[0]) but found one on: cpu",
        "Tensor on device cuda:0 is not on the expected device meta!",
        "indices should be either on cpu or on the same device as the indexed tensor (cpu)")],
    *[(f"RuntimeError: {said}", "environment", "stop") for said in (
        "cuDNN version incompatibility: PyTorch was compiled  against (9, 1, 0) but found runtime version (8, 9, 7).",
        "nvcc fatal   : Unsupported gpu architecture 'compute_90'",
        "Numpy is not available", "Ninja is required to load C++ extensions",
        "Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 2.")],
    ("OSError: CUDA_HOME environment variable is not set.", "environment", "stop"),
    ("RuntimeError: Found dtype Double but expected Float", "dtype_mismatch", "stop"),
    ("RuntimeError: result type Float can't be cast to the desired output type Long", "dtype_mismatch", "stop"),
    ("RuntimeError: Dataset not found or corrupted. You can use download=True", "missing_file", "stop"),
    ("RuntimeError: Found 0 files in subfolders of: /data", "missing_file", "stop"),
    ("RuntimeError: Invalid magic number; corrupt file?", "checkpoint_corrupt", "restart_previous_checkpoint"),
    ("RuntimeError: storage has wrong byte size: expected 7 got 8",
     "checkpoint_corrupt", "restart_previous_checkpoint"),
    ("_pickle.UnpicklingError: Weights only load failed. WeightsUnpickler error: Unsupported global: GLOBAL x",
     "python_exception", "stop"),
    ("_pickle.UnpicklingError: Weights only load failed. Re-run it: invalid load key, '0'.",
     "checkpoint_corrupt", "restart_previous_checkpoint"),
    ("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_SUPPORTED.", "cuda_error", "restart"),
    ("RuntimeError: Unable to find a valid cuDNN algorithm to run convolution", "cuda_error", "restart"),
    ("RuntimeError: Early stopping conditioned on metric `val_loss` which is not available.",
     "bad_configuration", "stop"),
    ("InvalidArgumentError: Nan in summary histogram for: dense/kernel_0", "loss_nan", "stop"),
    ("DataLossError: corrupted record at 7", "runtime_error", "restart"),
    ("DataLossError: Unable to open table file /out/model.ckpt-7", "checkpoint_corrupt", "restart_previous_checkpoint"),
    ("UnavailableError: Socket closed", "network_error", "restart"),
    ("RuntimeError: [Rank 7] Caught collective operation timeout: WorkNCCL(SeqNum=7) ran for 8 milliseconds",
     "nccl_timeout", "restart"),
    ("RuntimeError: Parent directory /out/step_7 does not exist.", "missing_file", "stop"),
    ("wandb.errors.errors.CommError: Run initialization has timed out after 30.0 sec.", "network_error", "restart"),
    ("TypeError: can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()", "device_mismatch", "stop"),
    ("RuntimeError: Error(s) in loading state_dict for Net:", "checkpoint_mismatch", "stop"),
    ("RuntimeError: CUDA error: device-side assert triggered", "cuda_error", "restart"),
    ("RuntimeError: CUDA error: an illegal instruction was encountered", "cuda_error", "restart"),
    ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "environment", "stop"),
    ("RuntimeError: CUDA capability sm_120 is not compatible with this build", "environment", "stop"),
    ("NVIDIA H100 with CUDA capability sm_90 is not compatible with the current PyTorch installation.",
     "environment", "stop"),
    ("ConnectionResetError: [Errno 104] Connection reset by peer", "network_error", "restart"),
    ("OSError: [Errno 28] No space left on device", "disk_full_or_storage", "restart"),
]  # fmt: skip

# ---------------------------------------------------------------- words of a shell
SHELL = [
    *[(f"{BAR}{word}", "killed_sigkill", "restart") for word in
      ("Killed", " Killed", "\rKilled", "\nKilled",
       "已杀死", "Getötet", "強制終了", "죽었음", "Убито", "Processus arrêté")],
    *[(f"{BAR}{word}", "sigterm", "restart") for word in
      ("Terminated", "\rTerminated", "\nTerminated", "已终止", "\nHangup", "\nUser defined signal 1")],
    ("loss: 0.53Killed", "killed_sigkill", "restart"),
    ("[1]+  Killed                  python train.py", "killed_sigkill", "restart"),
    ("[1]  + 4242 killed     python train.py", "killed_sigkill", "restart"),
    ("zsh: killed     python train.py", "killed_sigkill", "restart"),
    ("./run.sh: line 4:  4242 Killed                  python train.py", "killed_sigkill", "restart"),
    ("./run.sh: 行 4:  4242 已杀死              python train.py", "killed_sigkill", "restart"),
    ("./run.sh : ligne 3 : 4242 Processus arrêté      python train.py", "killed_sigkill", "restart"),
    ("./run.sh: linha 3: 4242 Morto                   python train.py", "killed_sigkill", "restart"),
    ("./run.sh：行3：  4242 已杀死                    python train.py", "killed_sigkill", "restart"),
    ("./run.sh: line 3:  4242 Illegal instruction     (core dumped) python train.py", "sigabrt", "restart"),
    ("Killed: 9", "killed_sigkill", "restart"),
    ("[1]+  Terminated              python train.py", "sigterm", "restart"),
    ("[1]+  Beendet                 python train.py", "sigterm", "restart"),
    (f"{BAR}Segmentation fault (core dumped)", "segfault", "restart"),
    (f"{BAR}段错误 (核心已转储)", "segfault", "restart"),
    (f"{BAR}Speicherzugriffsfehler (Speicherabzug geschrieben)", "segfault", "restart"),
    (f"{BAR}Bus error (core dumped)", "segfault", "restart"),
    (f"{BAR}\nProcess finished with exit code -1073741819 (0xC0000005)", "segfault", "restart"),
    (f"{BAR}Aborted (core dumped)", "sigabrt", "restart"),
    (f"{STEPS}Out of memory: Killed process 7 (python3) total-vm:1kB\nKilled", "host_oom", "restart"),
    ("srun: error: n4: tasks 0-3,6: Killed", "killed_sigkill", "restart"),
    ("srun: error: n4: task 2: Terminated", "sigterm", "restart"),
]  # fmt: skip

# ---------------------------------------------------------------- words of launchers and libraries
LAUNCHERS = [
    ("ERROR: Rank 5 crashed with exit code -7.", "segfault", "restart"),
    ("[ERROR] [launch.py:9:sigkill_handler] ['python', 'a.py'] exits with return code = -11", "segfault", "restart"),
    ("[ERROR] [launch.py:9:sigkill_handler] ['python', 'a.py'] exits with return code = 1", "exit_status", "stop"),
    ("  exitcode  : -15 (pid: 7)", "sigterm", "restart"),
    ("subprocess.CalledProcessError: Command '['python']' died with <Signals.SIGABRT: 6>.", "sigabrt", "restart"),
    (traceback("torch.elastic.api.SignalException: Process 7 got signal: 15"), "sigterm", "restart"),
    ("RuntimeError: CUDA call (cudaMalloc(&p, n)) failed with error: 'out of memory'", "cuda_oom", "stop"),
    ("gpu-3 kernel: Out of memory: Killed process 7 (python)", "host_oom", "restart"),
    ("ResourceExhaustedError: OOM when allocating tensor with shape[9] on /job:a/device:CPU:0 by allocator cpu",
     "host_memory", "restart"),
    ("job 7 exceeded hard wallclock time - initiate terminate method", "time_limit", "restart"),
    ("RuntimeError: Device(id:3) memory isn't enough and alloc failed, alloc size: 9B.", "cuda_oom", "stop"),
    ("RuntimeError: OPS function error: HcclAllGather, error code is 6\nEI0006: Getting socket times out.",
     "nccl_timeout", "restart"),
    ("OutOfResources: out of resource: shared memory, Required: 9, Hardware limit: 8", "python_exception", "stop"),
    ("RuntimeError: unable to write to file </torch_7_1>: No space left on device (28)", "shared_memory", "restart"),
    ("NCCL WARN Call to posix_fallocate failed : No space left on device", "shared_memory", "restart"),
    ("slurmstepd: error: *** JOB 6 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE ***",
     "node_lost", "restart"),
]  # fmt: skip

# ---------------------------------------------------------------- cancelled by what follows
GOES_ON = [
    f"{STEPS}{OOM}{MORE}",
    f"{STEPS}| WARNING: ran out of memory, skipping batch\n{MORE}",
    f"{STEPS}WARNING - NaN or Inf found in input tensor.{MORE}",
    f"{STEPS}WARNING - NaN or Inf found in input tensor.",
    f"{STEPS}loss is nan, skipping{MORE}",
    f"{STEPS}{traceback('ConnectionError: hub')}{MORE}",
    f"{STEPS}{traceback('RuntimeError: evaluation failed')}{MORE}",
    f"{STEPS}RuntimeError: cannot upload the sample{MORE}",
    f"{STEPS}NVRM: Xid (PCI:0000:1a:00): 31, pid=7{MORE}",
    f"{STEPS}slurmstepd: error: *** JOB 6 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***\n"
    f"Resuming from checkpoint step_200{MORE}",
    f"{STEPS}slurmstepd: error: *** JOB 6 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO JOB REQUEUE ***\n"
    "submitit INFO - Starting with JobEnvironment(job_id=6, hostname=n2)",
    f"{STEPS}{OOM}\n***** Running training *****\n  Num examples = 100",
    f"{STEPS}failed (exitcode: 1) local_rank: 2\nINFO: Restarting worker group",
    f"{STEPS}Epoch 1: 10%|█ | 5/50 [00:10<01:00, loss=0.2]\n{OOM}\nEpoch 1: 12%|█ | 6/50 [00:10<01:00, loss=0.2]",
    "epoch 3 iter 1200 loss 0.5\nSegmentation fault\nepoch 3 iter 1000 loss 0.5",
    "Train Error: Avg loss: 0.23\nTest Error: \n Accuracy: 91.0%, Avg loss: 0.06",
    "Test error: 4.25%\nval_error = 0.2",
    f"{STEPS}WARNING: The grad norm is nan. Skipping updating the model.",
    f"{STEPS}Exception ignored in: <function Loader.__del__ at 0x7f>\n{traceback('AssertionError: no child')}",
    f"{STEPS}--- Logging error ---\n{traceback('TypeError: not all arguments converted')}\nCall stack:",
    f"{STEPS}Future exception was never retrieved\nfuture: <Future exception=OSError()>\n{traceback('OSError: x')}",
    f"{STEPS}process 7 exited with code 0",
    f"{STEPS}process 7 exited with 0",
    "| trial_7 | ERROR   | 10.0.0.1:42 |\nNumber of trials: 9 (1 ERROR, 2 RUNNING)",
]  # fmt: skip

ENDS = [
    # Killed after a warning that did no harm
    (f"{STEPS}WARNING - NaN or Inf found in input tensor.{MORE}\nKilled", "killed_sigkill", "restart"),
    (f"{STEPS}{OOM}{MORE}\nTerminated", "sigterm", "restart"),
    # The bar is drawn again when the process ends
    (f"{BAR}\n{traceback(OOM)}\n{BAR}\n", "cuda_oom", "stop"),
    (f"{traceback('KeyError: 1')}\n  0%|          | 0/1000 [00:02<?, ?it/s]\n", "python_exception", "stop"),
    (f"{{'loss': 0.4, 'epoch': 0.2}}\n{traceback('KeyError: 1')}\n 10%|█ | 50/500 [00:10<01:30, 5it/s]\n",
     "python_exception", "stop"),
    (f"{STEPS}submitit WARNING (2026-01-01) - Caught signal SIGUSR2 on n1: this job is preempted.",
     "preemption", "restart"),
    (f"{STEPS}[I 10:20:30 x:7] Preemption detected, saving checkpoint and exiting\nDuplicate keys to remove: {{}}",
     "preemption", "restart"),
    (f"{STEPS}I 10:20:30 controller.py:7] The cluster is preempted.\nFailed to cancel jobs.", "preemption", "restart"),
    (f"{STEPS}yaml: found duplicate key 'lr'", "bad_configuration", "stop"),
    # Another attempt fails for another reason
    (f"{STEPS}{OOM}\nResuming from step_200\nModuleNotFoundError: No module named 'apex'", "missing_module", "stop"),
    (f"{STEPS}KeyError: 'a'{MORE}\n{OOM}", "cuda_oom", "stop"),
    # The source code of a traceback
    (traceback("ConnectionResetError: [Errno 104] Connection reset by peer",
               'if loss_is_nan: raise RuntimeError("loss is nan")\n    ^^^^^^^^^^^^'), "network_error", "restart"),
    (traceback("ValueError: bad", 'log("CUDA out of memory")\n        "No space left on device"'),
     "python_exception", "stop"),
    ('----> 5 raise RuntimeError("CUDA out of memory")\nKeyError: 3', "python_exception", "stop"),
    ('│ ❱ 12 │   raise RuntimeError("CUDA out of memory")  │\nTypeError: no', "python_exception", "stop"),
    # Chained exceptions
    (chain("KeyError: 'a'", "ConnectionResetError: [Errno 104] Connection reset by peer"), "network_error", "restart"),
    (chain("ValueError: x", "FileNotFoundError: [Errno 2] No such file or directory: 'b'"), "missing_file", "stop"),
    (chain(OOM, "NameError: name 'log' is not defined"), "python_exception", "stop"),
    (chain(OOM, "RuntimeError: the worker failed", DIRECT), "cuda_oom", "stop"),
    (chain("MemoryError", "ValueError: cannot load", DIRECT), "host_memory", "restart"),
    (chain("KeyError: 'x'", "AssertionError: no such split", DIRECT), "assertion", "stop"),
    (chain("RuntimeError: CUDA error: uncorrectable ECC error encountered", "RuntimeError: step", DIRECT),
     "ecc_error", "restart_elsewhere"),
    # Only the traceback of an ignored exception is ignored
    (f"Exception ignored in: <Loader>\n{traceback('AssertionError')}\n{traceback('KeyError: 1')}",
     "python_exception", "stop"),
    # A scheduler kills the job in its grace period
    (f"{STEPS}slurmstepd: error: *** STEP 6.0 CANCELLED AT T DUE TO TIME LIMIT ***{MORE}\n"
     "srun: error: n: task 0: Killed", "time_limit", "restart"),
    (f"{MORE}\nslurmstepd: error: *** JOB 6 CANCELLED AT T DUE TO PREEMPTION ***\n{STEPS}Killed",
     "killed_sigkill", "restart"),
    (f"{STEPS}slurmstepd: error: *** JOB 6 CANCELLED AT T DUE TO TIME LIMIT ***{MORE}\n"
     "slurmstepd: error: *** JOB 7 CANCELLED AT T ***\nsrun: error: n: task 0: Killed", "external_cancel", "stop"),
    # Slurm cancels a job for good; what the job prints until it is killed changes nothing
    (f"{MORE}\nslurmstepd: error: *** JOB 6 ON n1 CANCELLED AT T ***\nstep 500 loss 0.27", "external_cancel", "stop"),
    (f"{MORE}\nslurmstepd: error: *** JOB 6 ON n1 CANCELLED AT T DUE TO TIME LIMIT ***\nstep 500 loss 0.27",
     "time_limit", "restart"),
    (f"{MORE}\nslurmstepd: error: *** STEP 6.0 ON n1 CANCELLED AT T DUE TO TIME LIMIT ***\nstep 500 loss 0.27",
     "time_limit", "restart"),
    (f"{MORE}\nslurmstepd: error: *** STEP 6.0 ON n1 CANCELLED AT T ***\nstep 500 loss 0.27", "none", "ignore"),
    # A new attempt, or a long time of steps, does
    (f"{MORE}\nslurmstepd: error: *** JOB 6 ON n1 CANCELLED AT T ***\nstep 1 loss 2\nstep 2 loss 2", "none", "ignore"),
    (f"{MORE}\nslurmstepd: error: *** JOB 6 ON n1 CANCELLED AT T ***\nResuming from checkpoint-400\nstep 401 loss 0.2",
     "none", "ignore"),
    (f"{MORE}\nslurmstepd: error: *** JOB 6 ON n1 CANCELLED AT T ***\n"
     + "\n".join(f"step {step} loss 0.2" for step in range(500, 1200)), "none", "ignore"),
    # Other ranks notice by the network
    (f"{traceback('KeyError: 1')}\nNCCL WARN socketPoll: connect to 10.0.0.1<41> returned Connection timed out",
     "python_exception", "stop"),
    ("[E7] watchdog terminated: NCCL error: remote process exited or there was a network error",
     "nccl_network_error", "restart"),
    # A warning names a cause, and nothing else does
    (f"{STEPS}WARNING | trainer | CUDA out of memory. Tried to allocate 2 GiB", "cuda_oom", "stop"),
    (f"{STEPS}WARNING | trainer | CUDA out of memory. Tried to allocate 2 GiB\nSegmentation fault",
     "segfault", "restart"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "category", "action"), PYTHON)
def test_python_messages_have_categories_of_the_field(line: str, category: str, action: str) -> None:
    for text in (line, f"{STEPS}{traceback(line)}\n", traceback(line).replace("\n", "\r\n")):
        found = classify_failure(text, exit_code=1)
        assert (found.category, found.action) == (category, action)


@pytest.mark.parametrize(("text", "category", "action"), [*SHELL, *LAUNCHERS, *ENDS])
def test_last_words_decide(text: str, category: str, action: str) -> None:
    found = classify_failure(text)
    assert (found.category, found.action) == (category, action)
    assert found.advice == table.CATEGORIES[category].advice


@pytest.mark.parametrize("text", GOES_ON)
def test_progress_or_a_new_attempt_cancels_an_error(text: str) -> None:
    found = classify_failure(text)
    assert (found.category, found.action) == ("none", "ignore")


@pytest.mark.parametrize(
    "line",
    ["0 workers killed", "Terminado", "Завершено", "2 processes were terminated normally", "batch_size 8Killed by"],
)
def test_similar_words_are_no_signal(line: str) -> None:
    assert classify_failure(f"{STEPS}{line}").category not in ("killed_sigkill", "sigterm")


def test_the_page_of_categories_is_written_from_the_table() -> None:
    from docs.write_failures import PAGE, write_failures

    assert PAGE.read_text(encoding="utf-8") == write_failures(), "run python3 docs/write_failures.py"


def test_every_category_is_in_the_table_and_has_advice() -> None:
    named = {*table.EXCEPTIONS.values(), "xid", "runtime_error", "unknown", "none"}
    named |= {each.category for each in table.SIGNATURES}
    assert named == table.CATEGORIES.keys()
    assert all(row.advice and row.meaning for name, row in table.CATEGORIES.items() if name != "none")


def test_steps_that_another_rank_prints_late_do_not_cancel_an_uncaught_exception() -> None:
    died = "".join(f"[rank3]: {line}\n" for line in traceback(OOM).splitlines())
    killed = "W1129 9:10 torch/multiprocessing/api.py:897] Sending process 71 closing signal SIGTERM\n"
    assert classify_failure(f"{STEPS}{died}{MORE}\n{killed}").category == "cuda_oom"
    for later in (MORE, "step 50 loss 0.4", f"Resuming from step_200\n{MORE}", f"{killed}{MORE}", MORE * 300):
        assert classify_failure(f"{STEPS}{died}{later}").category == "none", later
    assert classify_failure(f"{STEPS}{traceback(OOM)}{MORE}").category == "none"
    stops = "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 71 closing signal SIGTERM"
    ended = f"{STEPS}{died}{MORE}\n{stops}\nfailed (exitcode: 1) local_rank: 3 (pid: 70) of binary: python"
    assert classify_failure(ended).category == "cuda_oom"
    for line in ("rm: cannot remove '/tmp/a': No such file or directory", "wandb: ERROR internal server error"):
        assert classify_failure(ended.replace(stops, line)).category == "cuda_oom"
    warned = f"{STEPS}{died}{MORE}\nWARNING:urllib3: Connection reset by peer"
    assert classify_failure(warned).category == "nccl_network_error"


def test_an_exception_that_was_caught_before_hides_no_uncaught_one_of_the_same_words() -> None:
    caught, killed = traceback("ValueError: bad shard"), "Sending process 71 closing signal SIGTERM\n"
    for last in ("ValueError: bad shard", "\x1b[31mValueError\x1b[0m: bad shard"):
        died = "".join(f"[rank3]: {line}\n" for line in traceback(last).splitlines())
        found = classify_failure(f"{STEPS}{caught}{MORE}\n{died}step 500 loss 0.27\n{killed}")
        assert (found.category, found.rank) == ("python_exception", 3), last
    died = "".join(f"[rank3]: {line}\n" for line in traceback("KeyError: 'x'").splitlines())
    coloured = caught.replace("ValueError", "\x1b[31mValueError\x1b[0m")
    assert classify_failure(f"{STEPS}{died}Resuming from step_2\n{coloured}{MORE}\n{killed}").category == "unknown"


@pytest.mark.parametrize(
    "prefix",
    [
        "May  4 05:06:07 ",
        "May  4 05:06:07 box fit[71]: ",
        "[05:06:07] ",
        "fit-7b-1 | ",
        "fit-0 › ",
        "1,2 | ERROR | err | ",
    ],
)
def test_a_traceback_is_read_behind_any_prefix_of_all_its_lines(prefix: str) -> None:
    def logged(text: str) -> str:
        return "".join(
            f"{prefix.replace('7', str(number % 10))}{line}\n" for number, line in enumerate(text.splitlines())
        )

    for last, category in (
        ("KeyError: 'x'", "python_exception"),
        ("shop.sale.Closed: no more", "runtime_error"),
        (f"KeyError: 'x'\n\nDuring handling of the above exception:\n\n{traceback(OOM)}", "cuda_oom"),
    ):
        found = classify_failure(logged(f"{STEPS}{traceback(last)}"))
        assert (found.category, found.evidence) == (category, last.splitlines()[-1]), last
        assert classify_failure(logged(f"{STEPS}{traceback(last)}{MORE}")).category in ("none", "unknown"), last
    died = "".join(f"[rank3]: {line}\n" for line in traceback("KeyError: 'x'").splitlines())
    assert classify_failure(logged(f"{STEPS}{died}step 300 loss 0.3\nclosing signal SIGTERM")).rank == 3


def test_a_gradient_that_a_loss_scaler_skips_is_no_cause() -> None:
    for line in ("{'loss': 2.25, 'grad_norm': nan, 'epoch': 0.01}", "step 300 | loss: 2.25 | grad norm: nan"):
        assert classify_failure(f"{STEPS}{line}\n{traceback(OOM)}").category == "cuda_oom"
        assert is_warning(classify_failure(f"{STEPS}{line}\n"))
    for line in ("{'loss': 0.0, 'grad_norm': nan}", "loss: nan | grad norm: nan", "grad_norm: nan"):
        found = classify_failure(f"{STEPS}{line}\n{traceback('ValueError: bad weights')}")
        assert found.category == "loss_nan" and not is_warning(found), line


@pytest.mark.parametrize(
    "lines",
    [
        "E0304 05:06:07.1 7 torch/_inductor/select_algorithm.py:9] Exception out of resource: shared memory,"
        " Required: 9 for benchmark choice TritonTemplateCaller(x)",
        "Runtime error during autotuning: \nout of resource: shared memory, Required: 9. \nIgnoring this choice.",
        "could not upload the weights, continuing training (HTTPError: 500 Server Error)",
        "12 of 256 answers failed to parse",
        "ERROR: ld.so: object 'a' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.",
        "INFO:jax._src.xla_bridge:Unable to initialize backend 'tpu': libtpu.so: cannot open shared object file",
        '10.0.0.7:5121 - "POST /score HTTP/1.1" 503 Service Unavailable',
        '10.0.0.7:5121 - "POST /score HTTP/1.1" 500 Internal Server Error',
        'HTTP Request: POST http://judge/v1 "HTTP/1.1 429 Too Many Requests"',
        "no checkpoint in /ckpt: No such file or directory, starting from scratch",
        "CUDA out of memory, skipped batch",
        "nfs: server 10.0.0.9 not responding, still trying\nnfs: server 10.0.0.9 OK",
        "unexpected keys in state_dict: []",
        "A matching Triton is not available, some optimizations will not be enabled\n"
        "Traceback (most recent call last):\n  File 'a.py', line 5\nModuleNotFoundError: No module named 'triton'",
    ],
)
def test_what_work_goes_on_after_hides_no_exception(lines: str) -> None:
    assert classify_failure(f"{STEPS}{lines}\n{traceback('KeyError: 3')}").evidence == "KeyError: 3"
    assert classify_failure(f"{STEPS}{lines}\n").category in ("none", "unknown")


@pytest.mark.parametrize(
    ("line", "category"),
    [
        ("nvidia-smi: command not found", "environment"),
        ("rm: cannot remove '/tmp/a': No such file or directory", "missing_file"),
        ("mkdir: cannot create directory '/scratch': Permission denied", "permission_denied"),
        ("wandb: ERROR Error while calling W&B API: internal server error (<Response [500]>)", "network_error"),
        ("wandb: ERROR Error while calling W&B API: permission denied (<Response [403]>)", "hub_auth"),
        ("ERROR comet_ml.connection: Max retries exceeded with url: /status", "network_error"),
        ("swanlab: upload failed: connection timed out", "network_error"),
        ("ERROR:backoff:Giving up send(...) after 4 tries (requests.exceptions.ReadTimeout: x)", "network_error"),
        ("2026-03-04 05:06:07.1: W tsl/dso_loader.cc:64] libnvinfer.so: cannot open shared object file", "environment"),
        ("[NeMo W 2026-03-04 05:06:07 bert:29] it was not imported: No module named 'mega'", "missing_module"),
    ],
)
def test_what_a_tool_or_a_warning_says_counts_only_alone(line: str, category: str) -> None:
    assert classify_failure(f"{STEPS}{line}\n{traceback('KeyError: 3')}").evidence == "KeyError: 3"
    timed_out = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)"
    assert classify_failure(f"{STEPS}{line}\n{timed_out}").category == "nccl_timeout"
    assert classify_failure(f"{STEPS}{line}\n", exit_code=137).category == "killed_sigkill"
    alone = classify_failure(f"{STEPS}{line}\n")
    assert alone.category == category and is_warning(alone)


def test_what_jax_says_of_other_tasks_is_a_lost_connection() -> None:
    line = (
        "F0304 05:06:07.1 7 client.h:77] Terminating process because the JAX distributed service detected fatal errors."
    )
    assert classify_failure(f"{STEPS}{line}").category == "nccl_network_error"


def test_a_peer_that_gloo_misses_is_no_error_of_the_rank_that_misses_it() -> None:
    closed = traceback("RuntimeError: [../gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:9")
    assert classify_failure(f"{STEPS}{closed}").category == "nccl_network_error"
    assert classify_failure(f"{STEPS}{closed}\nfailed (exitcode: -9) local_rank: 3").category == "killed_sigkill"


def test_a_watchdog_that_times_out_is_no_lost_connection() -> None:
    for said in ("Heartbeat monitor timed out!", "Some NCCL operations have failed or timed out."):
        line = f"[rank7]:[E304 05:06:07.3 ProcessGroupNCCL.cpp:621] [Rank 7] {said}"
        assert classify_failure(f"{STEPS}{line}").category == "nccl_timeout"


def test_an_exception_that_was_raised_counts_whatever_its_words_are() -> None:
    for raised, category in (
        ("ValueError: 0 errors allowed, 3 found", "python_exception"),
        ("AssertionError: no failures expected", "assertion"),
        ("KeyError: 'prompt': 7", "python_exception"),
        ("ValueError: ignore_index is -100, labels contain 0 errors: None", "python_exception"),
        ("ValueError: loss is NaN at step 9, continuing training is useless", "loss_nan"),
        ("RuntimeError: attempt 3/3 failed: no data server", "runtime_error"),
        ("RuntimeError: no shard after retrying 5 times", "runtime_error"),
        ("ValueError: retrying is of no use: empty shard", "python_exception"),
    ):
        assert classify_failure(f"{STEPS}{traceback(raised)}").category == category, raised
    assert classify_failure(f"{STEPS}{traceback('OSError: no route, will be retried')}").category != "runtime_error"


def test_what_is_chained_to_an_ignored_exception_is_ignored_too() -> None:
    chained = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
    both = f"{traceback('KeyError: 3')}{chained}{traceback('OSError: closed')}"
    assert classify_failure(f"{STEPS}Exception ignored in: <function f at 0x7f>\n{both}").category == "none"
    assert classify_failure(f"{STEPS}{both}").evidence == "OSError: closed"
    of_python_3_14 = "Exception ignored while calling deallocator <function Pool.__del__ at 0x7f>:"
    assert classify_failure(f"{STEPS}{of_python_3_14}\n{both}").category == "none"


def test_a_file_server_is_missed_until_it_answers() -> None:
    missed = f"{STEPS}nfs: server {{}} not responding, still trying\nnfs: server 10.0.0.9 OK"
    assert classify_failure(missed.format("10.0.0.8")).category == "disk_full_or_storage"
    assert classify_failure(missed.format("10.0.0.9")).category == "none"
    timed_out = missed.replace("still trying", "timed out")
    assert classify_failure(timed_out.format("10.0.0.9")).category == "none"


def test_an_agent_that_starts_its_workers_again_begins_a_new_attempt() -> None:
    again = "I0304 05:06:07.1 7 torch/distributed/elastic/agent/server/api.py:706] [default] Starting worker group\n"
    first = f"{again}{STEPS}{traceback('KeyError: 3')}\n"
    assert classify_failure(first).evidence == "KeyError: 3"
    assert classify_failure(f"{first}{again}").category == "none"
    assert classify_failure(f"{first}{again}{traceback('OSError: lost')}").evidence == "OSError: lost"


def test_a_traceback_in_a_json_record_of_an_error_is_read() -> None:
    for last, category in (("KeyError: 'x'", "python_exception"), ('shop.sale.Closed: no "more"', "runtime_error")):
        record = {"severity": "ERROR", "message": traceback(last) + "\n", "at": "05:06:07"}
        found = classify_failure(f"{STEPS}{json.dumps(record)}\n")
        assert (found.category, found.evidence) == (category, last)
        assert classify_failure(f"{STEPS}{json.dumps(record)}{MORE}").category == "none"
        task = f"Task exception was never retrieved\nfuture: <Task finished>\n{traceback(last)}"
        ignored = classify_failure(f"{STEPS}{json.dumps({**record, 'message': task})}\n")
        assert ignored.category in ("none", "unknown")
        result = json.dumps({**record, "severity": "INFO"})  # of a program that a model wrote
        assert classify_failure(f"{STEPS}{result}\n").category in ("none", "unknown")


def test_a_damaged_image_is_no_damaged_checkpoint() -> None:
    assert classify_failure("OSError: image file is truncated (7 bytes not processed)").category == "runtime_error"
    assert classify_failure("OSError: file is truncated").category == "checkpoint_corrupt"


def test_a_refusal_that_names_its_protocol_is_no_line_about_a_request() -> None:
    for line, category in (
        ("Failed to download the weights: HTTP/1.1 403 Forbidden", "hub_auth"),
        ("could not push the checkpoint: HTTP/2 503 service unavailable, giving up", "network_error"),
        ("could not get the weights: HTTP/1.1 503 Service Unavailable, giving up", "network_error"),
        ("upload failed: PUT https://bucket/model.pt HTTP/1.1 403 Forbidden", "hub_auth"),
    ):
        assert classify_failure(f"{STEPS}{line}").category == category


def test_a_setting_that_cannot_be_parsed_is_a_wrong_configuration() -> None:
    assert classify_failure("error: failed to parse the config file run.yaml").category == "bad_configuration"
    lost = "GPU 3 has fallen off the bus, continuing training on 7 GPUs"
    assert classify_failure(f"{STEPS}{lost}").category == "gpu_lost"
    for ended in ("CUDA out of memory, skipped batch 7 times, giving up", "GPU out of memory. Skipped step, aborting"):
        assert classify_failure(f"{STEPS}{ended}").category == "cuda_oom"
    for what in ("makes no sense", "impossible", "cannot help"):
        assert classify_failure(f"{STEPS}Loss is nan. Continuing training {what}").category == "loss_nan"
    for goes_on in (
        "Loss is nan, continuing training",
        "FileNotFoundError: /ckpt/last.pt, starting from scratch (seed 3)",
    ):
        assert classify_failure(f"{STEPS}{goes_on}").category in ("none", "unknown")
    full = "save failed, continuing training is impossible, aborting: No space left on device"
    assert classify_failure(f"{STEPS}{full}").category == "disk_full_or_storage"


@pytest.mark.parametrize(
    ("line", "category"),
    [
        ('Script done on 2026-03-04 05:06:07+00:00 [COMMAND_EXIT_CODE="1"]', "exit_status"),
        ('Script done on 2026-03-04 05:06:07+00:00 [COMMAND_EXIT_CODE="137"]', "killed_sigkill"),
        ('{"event": "end", "exit_code": 0}', "none"),
        ("sandbox returncode=1 score=0.0", "none"),
        ("tensorboard exited, exit_code=-15", "none"),
        ("+ scan --exit-code 1 image", "none"),
    ],
)
def test_an_exit_status_is_read_in_the_notations_of_wrappers(line: str, category: str) -> None:
    assert classify_failure(f"{STEPS}{line}\n").category == category


def test_losses_count_as_buffered_only_up_to_the_size_of_a_buffer() -> None:
    crash = f" 52%|#####     | 260/500 [12:01<10:49,  2.82s/it]\n{traceback(OOM)}\n"
    losses = [f"{{'loss': {1 + n / 1000}, 'grad_norm': 1.25, 'epoch': {n / 100}}}\n" for n in range(1, 200)]
    assert classify_failure(crash + "".join(losses[:9])).category == "cuda_oom"
    assert classify_failure(crash + "".join(losses)).category == "none"
