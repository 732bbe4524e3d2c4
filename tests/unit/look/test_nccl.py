"""What NCCL talks over: the provider decides, the newest initialisation wins."""

from __future__ import annotations

from training_monitor.core.models import NcclTransport
from training_monitor.look.nccl import parse_nccl_transport


def lines(*said: str, process: str = "node-1:100:200 [0]") -> str:
    return "\n".join(f"{process} NCCL INFO {text}" for text in said)


def test_the_provider_line_proves_efa_in_every_version() -> None:
    for said, nics in [
        ("NET/OFI Selected Provider is efa", None),
        ("NET/OFI Selected Provider is efa (found 4 nics)", 4),
        ("NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)", 16),
    ]:
        text = lines("NET/OFI Initializing aws-ofi-nccl 1.14.0", said, "Using network AWS Libfabric")
        found = parse_nccl_transport(text)
        assert (found.transport, found.provider, found.nics) == ("efa", "efa", nics)
        assert found.plugin_version == "1.14.0"
        assert said in (found.evidence or "")
    text = lines("NET/OFI Selected Provider is tcp;ofi_rxm (found 1 nics)", "Using network AWS Libfabric")
    assert (parse_nccl_transport(text).transport, parse_nccl_transport(text).provider) == ("fallback", "tcp;ofi_rxm")


def test_a_channel_over_libfabric_is_efa() -> None:
    for said, gpudirect in [
        ("Ring 00 : 0 -> 1 [send] via NET/AWS Libfabric/0/GDRDMA", True),
        ("Channel 00 : 0[1a0] -> 1[1b0] [send] via NET/AWS Libfabric/0", False),
        ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/Libfabric/0/GDRDMA/Shared", True),
    ]:
        found = parse_nccl_transport(lines(said))
        assert (found.transport, found.gpudirect_rdma) == ("efa", gpudirect)


def test_a_network_or_its_failure_is_named() -> None:
    for said, transport in [
        ("Using network Socket", "socket"),
        ("Using internal Network Socket", "socket"),
        ("Using network IB", "ib"),
        ("Using network IBext_v8", "ib"),
        ("Using network FastSocket", "fastsocket"),
        ("NET/Socket : Using [0]eth0:10.0.0.1<0>", "socket"),
        ("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE", "ib"),
        ("NET/OFI Couldn't find any optimal provider", "fallback"),
        ("NET/OFI Could not find any optimal provider", "fallback"),
        ("NET/OFI No eligible providers were found", "fallback"),
        ("NET/Plugin : No plugin found (libnccl-net.so), using internal implementation", "fallback"),
    ]:
        assert parse_nccl_transport(lines(said)).transport == transport


def test_probing_lines_decide_nothing() -> None:
    for said in [
        "NET/Plugin: Failed to find ncclNetPlugin_v8 symbol.",
        "NET/Plugin: Failed to find ncclCollNetPlugin_v8 symbol.",
        "NET/IB : No device found.",
        "Using non-device net plugin version 0",
        "Using internal tuner plugin",
        "Init COMPLETE",
        "NET/OFI Initializing aws-ofi-nccl 1.14.0",
        "Connected all rings",
        "Using network AWS Libfabric",
    ]:
        assert parse_nccl_transport(lines(said)).transport == "unknown"


def test_a_chosen_socket_wins_over_a_missing_plugin_and_found_devices() -> None:
    for said in (
        ["NET/Plugin: No plugin found (libnccl-net.so)", "NET/Socket : Using [0]eth0:10.0.0.1<0>"],
        ["NET/IB : Using [0]mlx5_0:1/IB"],
    ):
        assert parse_nccl_transport(lines(*said, "Using network Socket")).transport == "socket"


def test_the_newest_initialisation_wins_and_ranks_that_share_a_log_are_one() -> None:
    efa = lines("NET/OFI Selected Provider is efa (found 4 nics)", "Using network AWS Libfabric")
    socket = lines("NCCL version 2.21.5", "Using network Socket", process="node-1:900:901 [0]")
    assert parse_nccl_transport(f"{efa}\n{socket}") == NcclTransport(
        "socket", evidence="node-1:900:901 [0] NCCL INFO Using network Socket"
    )
    assert parse_nccl_transport(f"{socket}\n{efa}").transport == "efa"
    first = lines("NET/OFI Selected Provider is efa (found 4 nics)", "Using network AWS Libfabric")
    second = lines("NET/OFI Using aws-ofi-nccl 1.5.0aws", "Using network AWS Libfabric", process="node-1:101:201 [1]")
    assert parse_nccl_transport(f"{first}\n{second}").transport == "efa"


def test_a_log_without_nccl_is_unknown_and_evidence_is_cut() -> None:
    assert parse_nccl_transport("step 3/10 loss 0.5\nlr 0.1") == NcclTransport("unknown")
    assert parse_nccl_transport("") == NcclTransport("unknown")
    assert len(parse_nccl_transport(lines("Using network Socket" + "x" * 900)).evidence or "") == 200
