"""Faults in `nvidia-smi -q`: what a driver reports is told from what it does not, a fault from a mended one."""

from __future__ import annotations

from training_monitor.why.gpu_faults import parse_gpu_details
from training_monitor.why.ranks import Surroundings

HEAD = """
==============NVSMI LOG==============

Timestamp                                 : Tue Jan  1 10:00:00 2030
Driver Version                            : 570.86.15
CUDA Version                              : 12.8

Attached GPUs                             : 2
"""
GPU = """GPU 00000000:{bus}:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Persistence Mode                      : Enabled
    GPU Virtualization Mode
        Virtualization Mode               : None
    GPU Reset Status
        Reset Required                    : {reset}
        Drain and Reset Recommended       : {reset}
    GPU Recovery Action                   : {action}
    GSP Firmware Version                  : 570.86.15
    FB Memory Usage
        Total                             : 81559 MiB
    ECC Mode
        Current                           : Enabled
        Pending                           : Enabled
    ECC Errors
        Volatile
            SRAM Correctable              : 7
            SRAM Uncorrectable Parity     : {sram}
            SRAM Uncorrectable SEC-DED    : 0
            DRAM Correctable              : 3
            DRAM Uncorrectable            : {dram}
        Aggregate
            SRAM Uncorrectable Parity     : 5
            DRAM Uncorrectable            : 9
            SRAM Threshold Exceeded       : No
    Retired Pages
        Single Bit ECC                    : N/A
        Double Bit ECC                    : N/A
        Pending Page Blacklist            : {retired}
    Remapped Rows
        Correctable Error                 : 2
        Uncorrectable Error               : 1
        Pending                           : {pending}
        Remapping Failure Occurred        : {failed}
        Bank Remap Availability Histogram
            Max                           : 2560 bank(s)
    Temperature
        GPU Current Temp                  : 30 C
    Processes                             : None
"""
WELL = dict.fromkeys(("reset", "action", "sram", "dram", "retired", "pending", "failed"), "0")
WELL |= {"bus": "18", "reset": "Requested functionality has been deprecated", "action": "None"}
WELL |= {"retired": "N/A", "pending": "No", "failed": "No"}


def faults(**changed: str) -> list[tuple[str, str, bool]]:
    seen = parse_gpu_details(HEAD + GPU.format(**WELL) + GPU.format(**{**WELL, "bus": "2A", **changed}))
    assert seen.unread == ()
    return [(each.kind, each.text, each.is_hardware) for each in seen.findings]


def test_a_gpu_that_is_well_says_nothing() -> None:
    assert faults() == []
    assert faults(**dict.fromkeys(WELL.keys() - {"bus"}, "N/A")) == []
    assert faults(**dict.fromkeys(WELL.keys() - {"bus"}, "[Not Supported]")) == []
    for text in ["", "\n\n", ":", "GPU 0000:0A:00.0", " : : :\n" * 9, "GPU\n" * 9, "    x\n" * 1000]:
        assert parse_gpu_details(text) == Surroundings()


def test_what_the_driver_recommends_or_a_reset_that_is_needed_is_a_fault() -> None:
    for action in ["Reset", "Reboot", "Drain P2P", "Drain and Reset", "GPU_RESET"]:
        text = f"GPU 00000000:2A:00.0: its driver recommends {action} as the recovery action"
        assert faults(action=action) == [("gpu", text, True)]
    for words in ["GPU requires reset", "[GPU requires reset]", "GPU is lost"]:
        text = "GPU 00000000:2A:00.0: according to nvidia-smi, it needs a reset or is lost"
        assert faults(sram=words, dram=words, pending=words) == [("gpu", text, True)]
        assert faults(reset="Yes") == [("gpu", text, True)]


def test_errors_count_since_the_driver_was_loaded_and_rows_wait_for_a_reset() -> None:
    where = "GPU 00000000:2A:00.0"
    later = ("ecc", f"{where}: faulty memory rows will not be remapped until the GPU is reset", False)
    assert faults(pending="Yes") == [later]
    assert faults(retired="Yes") == [later]
    assert faults(failed="Yes") == [("ecc", f"{where}: a faulty memory row could not be remapped", True)]
    assert faults(sram="2") == [
        ("ecc", f"{where}: 2 uncorrectable ECC errors (SRAM Uncorrectable Parity) since its driver was loaded", True)
    ]
    assert faults(dram="177") == [
        ("ecc", f"{where}: 177 uncorrectable ECC errors (DRAM Uncorrectable) since its driver was loaded", False)
    ]
    head, repair = "GPU 0000:0A:00.0\n    ECC Errors\n        Aggregate\n", "        Channel Repair Pending : {}\n"
    worn = head + "            SRAM Threshold Exceeded : Yes\n" + repair.format("Yes")
    assert [each.is_hardware for each in parse_gpu_details(worn).findings] == [True, False]
    assert parse_gpu_details(head + repair.format("No")).findings == ()
    fabric = "GPU 0000:0A:00.0\n    Fabric\n        State : Completed\n        Health\n            Summary : {}\n"
    assert [each.is_hardware for each in parse_gpu_details(fabric.format("Unhealthy")).findings] == [True]
    assert parse_gpu_details(fabric.format("Healthy")).findings == ()
    old = """GPU 0000:0A:00.0
    ECC Errors
        Volatile
            Single Bit
                Device Memory             : 4
                Total                     : 4
            Double Bit
                Device Memory             : 1
                Total                     : 1
        Aggregate
            Double Bit
                Total                     : 8
"""
    [found] = parse_gpu_details(old).findings
    assert found.text == "GPU 0000:0A:00.0: 1 uncorrectable ECC errors (Total) since its driver was loaded"


def test_clocks_that_heat_or_the_power_supply_reduces_are_named() -> None:
    for section in ["Clocks Event Reasons", "Clocks Throttle Reasons"]:
        text = f"""GPU 0000:0A:00.0
    {section}
        Idle                              : Active
        SW Power Cap                      : Active
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Not Active
            HW Power Brake Slowdown       : {{}}
        SW Thermal Slowdown               : N/A
"""
        assert parse_gpu_details(text.format("Not Active")).findings == ()
        [found] = parse_gpu_details(text.format("Active")).findings
        assert found.text == "GPU 0000:0A:00.0: its clocks are reduced at the moment (HW Power Brake Slowdown)"
        assert (found.kind, found.is_hardware) == ("gpu", False)
        eight = "".join(text.format("Active").replace("0A", f"0{number}") for number in range(8))
        [found] = parse_gpu_details(eight).findings
        assert found.text.startswith("GPUs 0000:00:00.0, 0000:01:00.0, 0000:02:00.0 and 5 more: their clocks")


def test_a_lost_gpu_is_named_and_a_driver_that_does_not_answer_is_unread() -> None:
    lost = "Unable to determine the device handle for GPU0000:1E:00.0: GPU is lost.  Reboot the system to recover it\n"
    seen = parse_gpu_details(lost + HEAD + GPU.format(**{**WELL, "failed": "Yes"}))
    assert [(each.kind, each.is_hardware) for each in seen.findings] == [("gpu", True), ("ecc", True)]
    assert "0000:1E:00.0" in seen.findings[0].text
    said = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    assert parse_gpu_details(f"{said}\n").unread == (f"nvidia-smi: {said}",)
