"""Names of GPUs as vast.ai rents them and as machines report them: what means the same, and what cannot."""

from __future__ import annotations

import pytest

from training_monitor.vast.gpu_names import contradicts, is_less_memory

SAME = [
    ("RTX 4090", "NVIDIA GeForce RTX 4090"),
    ("RTX 4080S", "NVIDIA GeForce RTX 4080 SUPER"),
    ("RTX 4070S Ti", "NVIDIA GeForce RTX 4070 Ti SUPER"),
    ("A100 SXM4", "NVIDIA A100-SXM4-80GB"),
    ("A100_SXM4", "A100-SXM4-40GB"),
    ("A100 PCIE", "NVIDIA A100 80GB PCIe"),
    ("A100 PCIE", "NVIDIA A100-PCIE-40GB"),
    ("H100 SXM", "NVIDIA H100 80GB HBM3"),
    ("H100_SXM", "NVIDIA H100 80GB HBM3"),
    ("H100 NVL", "NVIDIA H100 NVL"),
    ("H100 PCIE", "NVIDIA H100 PCIe"),
    ("RTX A6000", "NVIDIA RTX A6000"),
    ("RTX 6000Ada", "NVIDIA RTX 6000 Ada Generation"),
    ("Tesla V100", "Tesla V100-SXM2-32GB"),
    ("Tesla T4", "Tesla T4"),
    ("Q RTX 8000", "Quadro RTX 8000"),
    ("RTX PRO 6000 WS", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"),
    ("RTX PRO 6000 S", "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
    ("GTX 1080 Ti", "NVIDIA GeForce GTX 1080 Ti"),
    ("RTX3090", "NVIDIA GeForce RTX 3090"),
    ("TITAN V", "NVIDIA TITAN V"),
    ("GPU", "RTX 3090"),
    ("GH200", "NVIDIA GH200 480GB"),
    ("RTX 4090", "Graphics Device"),
    ("RTX 4090D", "NVIDIA GeForce RTX 4090 D"),
    ("A10", "NVIDIA A10"),
    ("MI300X", "AMD Instinct MI300X"),
    ("GTX 1660 S", "NVIDIA GeForce GTX 1660 SUPER"),
    ("H100 SXM", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"),
]
OTHER = [
    ("RTX 4090", "NVIDIA GeForce RTX 3090"),
    ("RTX 4090", "RTX 3090"),
    ("RTX 4080S", "NVIDIA GeForce RTX 4080"),
    ("RTX 3090 Ti", "RTX 3090"),
    ("RTX 4090", "NVIDIA GeForce RTX 4090 D"),
    ("RTX 4090", "NVIDIA GeForce RTX 4090 Laptop GPU"),
    ("A100 SXM4", "NVIDIA A100 80GB PCIe"),
    ("H100 SXM", "NVIDIA H100 PCIe"),
    ("H100 SXM", "NVIDIA H200"),
    ("H100 SXM", "NVIDIA A100-SXM4-80GB"),
    ("RTX A6000", "NVIDIA RTX 6000 Ada Generation"),
    ("RTX 6000Ada", "Quadro RTX 6000"),
    ("L40S", "NVIDIA L40"),
    ("A100 PCIE", "NVIDIA A10"),
    ("Tesla V100", "Tesla T4"),
    ("RTX 4070S Ti", "NVIDIA GeForce RTX 4070 SUPER"),
    ("H100 NVL", "NVIDIA H100 80GB HBM3 SXM5"),
    ("RTX A4000", "RTX A5000"),
]


def test_another_spelling_of_the_rented_gpu_contradicts_nothing(subtests: pytest.Subtests) -> None:
    for rented, found in SAME:
        with subtests.test(rented=rented, found=found):
            assert not contradicts(rented, found) and not contradicts(found, rented)


def test_another_model_variant_or_connection_contradicts_the_rented_gpu(subtests: pytest.Subtests) -> None:
    for rented, found in OTHER:
        with subtests.test(rented=rented, found=found):
            assert contradicts(rented, found) and contradicts(found, rented)


@pytest.mark.parametrize(
    ("rented_gb", "found_mb", "is_less"),
    [
        (24.564, 24_564, False),
        (24.564, 23_028, False),
        (49.14, 46_068, False),
        (80, 81_559, False),
        (80, 40_960, True),
        (24.564, 12_288, True),
        (24, 22_000, False),
    ],
)
def test_memory_is_less_only_beyond_what_drivers_keep(rented_gb: float, found_mb: float, is_less: bool) -> None:
    assert is_less_memory(rented_gb, found_mb) == is_less
