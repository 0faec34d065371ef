"""Machines of the catalogue: all load, with the figures of data sheets, and none contradicts itself."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

import traincast as tc
from traincast.catalog.load import accelerator_names, figures, load_system, system_names
from traincast.core.system import Accelerator, System

PAPER = ("a100-nvs", "h200-nvs", "b200-nvs", "b200-next-nvs")  # of arXiv 2410.00273, with its own figures
CLUSTERS = [name for name in system_names() if not name.startswith(PAPER)]
ACCELERATORS = {
    "v100-sxm-16", "v100-sxm-32", "a100-sxm-40", "a100-sxm-80", "a100-pcie-40", "a100-pcie-80",
    "h100-sxm-80", "h100-pcie-80", "h100-96-hbm2e-500w", "h200-sxm-141", "h800-sxm-80", "gh200-96",
    "gh200-144", "b200-180", "gb200-186", "b300-288", "gb300-288", "mi250-gcd", "mi250x-gcd", "mi250x-128",
    "mi300x-192", "mi325x-256", "mi355x-288", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "gaudi2-96",
    "rtx-4090-24", "rtx-6000-ada-48", "l40s-48", "rtx-a6000-48", "a10g-24", "tpu-v7x", "mi350x-288",
    "trainium2-96", "h200-nvl-141", "rtx-pro-6000-96", "gb10-128", "gb300-desktop-252",
    "rtx-3090-24", "rtx-5090-32", "l4-24", "t4-16", "a10-24", "a40-48", "l40-48", "h100-nvl-94",
}  # fmt: skip
SYSTEMS = {
    "dgx-v100", "dgx-2", "dgx-a100", "dgx-a100-40", "selene", "hgx-a100-roce", "hgx-a100-roce-8x200",
    "hgx-a100-hdr-4x200", "hgx-a100-40-roce-8x200", "hgx-h100-roce-8x100", "mi250-node", "jean-zay-a100",
    "perlmutter", "perlmutter-80", "polaris", "tg40", "tg80", "dgx-h100", "dgx-h200", "eos", "hgx-h800",
    "llama3-h100", "grand-teton-h100-96", "gh200-node4", "alps", "isambard-ai", "dgx-b200", "dgx-b300",
    "gb200-nvl72", "gb300-nvl72", "aws-p4d", "aws-p4de", "aws-p5", "aws-p5en", "aws-p6-b200",
    "azure-nd-a100-v4", "azure-ndm-a100-v4", "azure-nd-h100-v5", "azure-nd-h200-v5", "gcp-a3-mega",
    "gcp-a3-ultra", "gcp-a4", "frontier", "lumi", "mi300x-node", "mi325x-node", "mi355x-node", "tpu-v4-pod",
    "tpu-v5e-pod", "tpu-v5p-pod", "tpu-v6e-pod", "gaudi2-node", "jupiter",
    "rtx-4090", "rtx-6000-ada", "l40s", "rtx-a6000", "a10g", "tpu-v7x-pod", "mi350x-node", "aws-trn2",
    "h200-nvl-node", "rtx-pro-6000", "dgx-spark", "dgx-station", "a100-pcie-40-node", "a100-pcie-80-node",
    "h100-pcie-node", "gh200-144-node4", "dgx-v100-16", "aws-p3", "aws-p3dn", "aws-p5e", "aws-p6-b300",
    "aws-p6e-gb200", "aws-g5", "aws-g6e", "azure-ndv2", "gcp-a2-highgpu", "gcp-a2-ultragpu", "gcp-a3-high",
    "gcp-a4x", "oci-h100", "oci-h200", "oci-b200",
    "rtx-3090", "rtx-5090", "l4", "t4", "a10", "a40", "l40", "h100-nvl-node",
}  # fmt: skip


def sheet(name: str) -> dict[str, float]:
    """Return the figures of an accelerator by name."""
    return {figure.path: figure.value for figure in figures(name)}


def test_names_of_the_catalogue() -> None:
    assert set(accelerator_names()) == ACCELERATORS
    assert set(CLUSTERS) == SYSTEMS
    assert not ACCELERATORS & set(system_names())  # names are unique


@pytest.mark.parametrize("name", accelerator_names())
def test_every_accelerator(name: str) -> None:
    values = sheet(name)
    assert Accelerator(name=name, **values).matrix_flops  # type: ignore[arg-type]
    assert all(figure.source != "the file itself" for figure in figures(name))
    assert {
        "hbm_bandwidth",
        "hbm_bytes",
        "vector_fp32_flops",
        "host_bandwidth",
        "power",
        "processors",
    } <= values.keys()
    rates = [
        values[rate] for rate in ("fp32_flops", "matrix_flops", "fp8_flops", "fp4_flops") if rate in values
    ]
    assert rates == sorted(rates)  # fewer bits are never slower
    assert values["vector_fp32_flops"] <= values["vector_flops"] < values["matrix_flops"]
    assert values["host_bandwidth"] < values["hbm_bandwidth"]
    assert 50 < values["power"] < 2000


@pytest.mark.parametrize("name", CLUSTERS)
def test_every_system_is_consistent(name: str) -> None:
    system = load_system(name)
    sizes = [tier.size or system.gpus for tier in system.tiers]
    assert all(outer is None or (inner is not None and inner < outer) for inner, outer in pairwise(sizes))
    reach = [tier.bandwidth * tier.ports for tier in system.tiers]
    assert reach == sorted(reach, reverse=True)  # no tier is wider than the one inside it
    latency = [tier.latency for tier in system.tiers]
    assert latency == sorted(latency)
    assert system.accelerator.hbm_bandwidth > reach[0] * 0.99
    assert (
        not system.node_power or not system.accelerator.power or system.node_power > system.accelerator.power
    )
    assert not system.gpus or system.gpus % system.fast_domain == 0


@pytest.mark.parametrize("name", CLUSTERS)
def test_sources_of_prices_and_power(name: str) -> None:
    for figure in figures(name):
        if figure.path in {"price", "pue", "carbon", "storage_bandwidth"}:
            assert figure.basis == "assumed" or figure.source.startswith(
                ("arXiv", "Google environmental report")
            )
        assert len(figure.source) > 5


@pytest.mark.parametrize(
    ("name", "expected"),
    [  # matrix 16 bits, fp8 [TFLOP/s], HBM [GB/s], what the device reports [GiB], power [W]
        ("v100-sxm-32", (125, None, 900, 32, 300)),  # NVIDIA V100 data sheet
        ("a100-sxm-80", (312, None, 2039, 80, 400)),  # NVIDIA A100 data sheet
        ("a100-pcie-80", (312, None, 1935, 80, 300)),  # NVIDIA A100 data sheet
        ("h100-sxm-80", (989.4, 1978.9, 3350, 79.6, 700)),  # NVIDIA H100 data sheet and white paper
        ("h100-pcie-80", (756, 1513, 2000, 79.6, 350)),  # NVIDIA H100 data sheet and white paper
        ("h200-sxm-141", (989.4, 1978.9, 4800, 140.4, 700)),  # NVIDIA H200 data sheet
        (
            "b200-180",
            (2250, 4500, 8000, 180, 1000),
        ),  # DGX B200 data sheet: 36 PFLOP/s fp8, 1440 GB, 64 TB/s for 8, sparsity halved
        (
            "gb200-186",
            (2500, 5000, 8000, 186, 1200),
        ),  # GB200 NVL72 data sheet: 360 PFLOP/s fp8, 13.4 TB for 72, sparsity halved
        ("gb300-288", (2500, 5000, 8000, 288e9 / 2**30, 1400)),  # GB300 NVL72 data sheet
        (
            "mi250x-gcd",
            (191.5, None, 1638.4, 64, 280),
        ),  # AMD MI250X data sheet: half of 383 TFLOP/s, 3276.8 GB/s, 128 GB
        ("mi300x-192", (1307.4, 2614.9, 5300, 192, 750)),  # AMD MI300X data sheet
        ("mi355x-288", (2516.6, 5033.2, 8000, 288, 1400)),  # AMD: 256 CUs x 4096 FLOP a cycle x 2.4 GHz
        ("tpu-v5e", (197, None, 819, 16, 200)),  # Google Cloud documentation
        ("tpu-v5p", (459, 459, 2765, 95.74, 400)),  # Google Cloud documentation; the memory as XLA says
        ("mi350x-288", (2306.9, 4613.7, 8000, 288, 1000)),  # AMD: 256 CUs x 4096 FLOP a cycle x 2.2 GHz
        ("h200-nvl-141", (835.5, 1670.5, 4800, 140.4, 600)),  # NVIDIA H200 data sheet, sparsity halved
        ("tpu-v7x", (2307, 4614, 7380, 192, 1000)),  # Google Cloud documentation
        ("trainium2-96", (667, 1299, 2900, 96, 500)),  # AWS Neuron documentation
        ("rtx-pro-6000-96", (503.8, 1007.6, 1792, 95.6, 600)),  # NVIDIA RTX Blackwell PRO white paper
        ("tpu-v6e", (918, None, 1638, 32, 300)),  # Google Cloud documentation
        ("rtx-4090-24", (165.2, 330.3, 1008, 23.99, 450)),  # NVIDIA Ada white paper, fp32 accumulation
        ("rtx-6000-ada-48", (364.2, 728.5, 960, 47.99, 300)),  # NVIDIA RTX 6000 Ada data sheet, halved
        ("l40s-48", (362.05, 733, 864, 44.99, 350)),  # NVIDIA L40S data sheet
        ("rtx-a6000-48", (154.8, None, 768, 47.99, 300)),  # NVIDIA GA102 white paper
        ("a10g-24", (70, None, 600, 22.49, 300)),  # NVIDIA A10G data sheet
        ("rtx-3090-24", (71, None, 936, 24, 350)),  # NVIDIA GA102 white paper, fp32 accumulation
        ("rtx-5090-32", (209.5, 419, 1792, 31.84, 575)),  # NVIDIA RTX Blackwell white paper, the same
        ("l4-24", (121, 242.5, 300, 22.49, 72)),  # NVIDIA L4 data sheet, sparsity halved
        ("t4-16", (65, None, 320, 15, 70)),  # NVIDIA T4 data sheet, and Turing white paper
        ("a10-24", (125, None, 600, 22.49, 150)),  # NVIDIA A10 data sheet
        ("a40-48", (149.7, None, 696, 44.99, 300)),  # NVIDIA A40 data sheet
        ("l40-48", (181.05, 362, 864, 44.99, 300)),  # NVIDIA L40 data sheet
        ("h100-nvl-94", (835.5, 1670.5, 3900, 93.58, 400)),  # NVIDIA H100 data sheet, sparsity halved
        ("gaudi2-96", (432, 865, 2450, 96, 600)),  # Intel Gaudi 2 white paper
    ],
)
def test_data_sheets(name: str, expected: tuple[float | None, ...]) -> None:
    values = sheet(name)
    scales = {"matrix_flops": 1e12, "fp8_flops": 1e12, "hbm_bandwidth": 1e9, "hbm_bytes": 2**30, "power": 1}
    sheet_values = [values[path] / scale if path in values else None for path, scale in scales.items()]
    assert sheet_values == [value if value is None else pytest.approx(value) for value in expected]


@pytest.mark.parametrize(
    ("name", "domain", "fast", "slow"),
    [  # accelerators of the innermost domain; bandwidth of an accelerator in it, and of its NICs [GB/s]
        ("dgx-2", 16, 150, 6.25),  # NVIDIA DGX-2 data sheet: 6 NVLinks of 25 GB/s; 8 x 100 Gb/s for 16
        ("selene", 8, 300, 25),  # NVIDIA DGX A100 data sheet: 12 NVLinks of 25 GB/s; 8 x 200 Gb/s for 8
        ("jean-zay-a100", 8, 300, 6.25),  # IDRIS: 4 x 100 Gb/s for 8
        ("perlmutter", 4, 300, 25),  # NERSC: 4 x 200 Gb/s for 4
        ("dgx-h100", 8, 450, 50),  # NVIDIA DGX H100 data sheet: 18 NVLinks of 25 GB/s; 8 x 400 Gb/s for 8
        ("hgx-h800", 8, 200, 50),  # arXiv 2412.19437
        ("dgx-b200", 8, 900, 50),  # NVIDIA DGX B200 data sheet: 18 NVLinks of 50 GB/s; 8 x 400 Gb/s for 8
        ("gb200-nvl72", 72, 900, 50),  # NVIDIA GB200 NVL72 data sheet
        ("gb300-nvl72", 72, 900, 100),  # NVIDIA GB300 NVL72 data sheet
        ("aws-p5", 8, 450, 50),  # AWS: 3200 Gb/s for 8
        ("mi300x-node", 8, 448, 50),  # AMD: 7 links of 64 GB/s
        ("gaudi2-node", 8, 262.5, 37.5),  # Intel: 21 and 3 ports of 100 Gb/s
    ],
)
def test_networks(name: str, domain: int, fast: float, slow: float) -> None:
    system: System = load_system(name)
    inner, outer = system.tiers[:2]
    assert (system.fast_domain, inner.bandwidth / 1e9, outer.bandwidth * outer.ports / 1e9) == (
        domain,
        fast,
        slow,
    )


def test_failures_are_those_of_llama_3() -> None:
    """arXiv 2407.21783: 419 unexpected interruptions in 54 days on 16,384 GPUs."""
    assert load_system("llama3-h100").failure_hours == pytest.approx(16384 * 54 * 24 / 419, rel=1e-3)


def test_the_files_of_the_page_on_machines_load(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "machines.md"
    files = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert len(files) == 2
    for number, text in enumerate(files):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text, encoding="utf-8")
        assert len(load_system(path).tiers) == 2 + number


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [  # total capacity [GiB] in PyTorch's out-of-memory messages; of TPUs in those of XLA
        ("rtx-3090", 23.56, 23.70),
        ("rtx-4090", 23.56, 23.70),
        ("l40s", 44.39, 44.53),
        ("a10g", 21.99, 22.20),
        ("l4", 22.05, 22.05),
        ("dgx-a100-40", 39.41, 39.59),
        ("dgx-a100", 79.15, 79.35),
        ("dgx-h100", 79.09, 79.33),
        ("grand-teton-h100-96", 94.99, 94.99),
        ("dgx-v100", 31.74, 31.74),
        ("dgx-h200", 139.80, 139.81),
        ("dgx-b200", 178.36, 178.36),
        ("mi300x-node", 191.69, 191.98),
        ("tpu-v6e-pod", 31.25, 31.25),
        ("tpu-v5e-pod", 15.75, 15.75),
        ("tpu-v5p-pod", 95.74, 95.74),
    ],
)
def test_processes_see_less_than_the_data_sheet(name: str, low: float, high: float) -> None:
    visible = tc.load_system(name).accelerator.visible_bytes / 2**30
    assert low - 0.006 <= visible <= high + 0.006


def test_a_plan_must_fit_in_what_a_process_sees() -> None:
    system = tc.load_system("rtx-3090")
    plan = tc.Plan(dp=8, zero=3, recompute="full")
    est = tc.estimate("llama-3-8b", system, plan, gbs=8, assumptions="huggingface-eager")
    just = system.with_visible(est.memory_bytes)
    assert just.accelerator.hbm_bytes == pytest.approx(
        est.memory_bytes + system.accelerator.driver_bytes, abs=1
    )
    over = system.with_figures({"accelerator.hbm_bytes": just.accelerator.hbm_bytes * (1 - 1e-6)})
    fits = [
        tc.estimate("llama-3-8b", machine, plan, gbs=8, assumptions="huggingface-eager").fits
        for machine in (just, over)
    ]
    assert fits == [True, False]
