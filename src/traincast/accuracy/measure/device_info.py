"""What the machine is: device, driver, versions, memory, threads."""

import os
import platform
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from traincast.accuracy.measure.launcher import Rank, available_cores

GPU_FILES: Final = ("nvidia[0-9]*", "kfd", "dxg")  # of NVIDIA, of AMD, of Windows in a virtual machine
IDENTITY_KEYS: Final = ("device", "torch", "threads", "ranks", "nodes", "driver", "dtypes")


def host_name() -> str:
    """Name of this computer."""
    return socket.gethostname()


def select_device(torch: Any, rank: Rank) -> Any:
    """Where a rank works: its GPU, or the CPU where there is none."""
    if torch.cuda.is_available():
        torch.cuda.set_device(rank.local % torch.cuda.device_count())
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def default_ranks() -> int:
    """Ranks on this computer that nobody asked for: one for each GPU, two on a CPU of several cores."""
    if not any(next(Path("/dev").glob(pattern), None) for pattern in GPU_FILES):
        return min(available_cores(), 2)
    import torch

    return int(torch.cuda.device_count()) or min(available_cores(), 2)


def describe_machine(torch: Any, rank: Rank, device: Any, hosts: Sequence[str], backend: str) -> dict[str, Any]:
    """What is known of the machine, as a mapping for a file."""
    nodes = len(set(hosts))
    about = {
        "torch": str(torch.__version__),
        "threads": int(torch.get_num_threads()),
        "ranks": rank.size,
        "nodes": nodes,
        "host": hosts[0],
        "launcher": rank.launcher,
        "system": f"{platform.system()} {platform.release()}",
        "backend": backend,
        "kind": device.type,
    }
    if device.type == "cuda":
        about |= _gpu_properties(torch, device)
    else:
        own = max(rank.size // nodes, 1)
        about |= {
            "device": cpu_name(),
            "driver": "",
            "cores": available_cores(),
            "memory_bytes": float(memory_bytes() / own),
            "processors": int(torch.get_num_threads()),
            "dtypes": ["fp32", "bf16"],
        }
    return about


def _gpu_properties(torch: Any, device: Any) -> dict[str, Any]:
    """What a GPU says of itself."""
    it = torch.cuda.get_device_properties(device)
    dtypes = ["bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16", "tf32"]
    dtypes += ["fp8"] if (it.major, it.minor) >= (8, 9) and torch.version.cuda else []
    runtime = torch.version.cuda or torch.version.hip
    return {
        "device": it.name,
        "driver": f"{'CUDA' if torch.version.cuda else 'ROCm'} {runtime}, driver {_driver_version()}",
        "cores": available_cores(),
        "memory_bytes": float(it.total_memory),
        "processors": int(it.multi_processor_count),
        "dtypes": dtypes,
    }


def _driver_version() -> str:
    """Version of the kernel's driver for GPUs, as far as it is told."""
    told = Path("/proc/driver/nvidia/version")
    words = told.read_text(encoding="utf-8").split() if told.is_file() else []
    return next((word for word in words if word[0].isdigit() and word.count(".") >= 1), "unknown")


def cpu_name() -> str:
    """What the processor calls itself."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text(encoding="utf-8").splitlines() if told.is_file() else []
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return name or platform.processor() or platform.machine()


def memory_bytes() -> float:
    """Memory of this computer, or what its control group allows [byte]."""
    whole = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) if hasattr(os, "sysconf") else 8 * 2.0**30
    limit = Path("/sys/fs/cgroup/memory.max")
    told = limit.read_text(encoding="utf-8").strip() if limit.is_file() else "max"
    return min(whole, float(told)) if told.isdigit() else whole


def identity(about: Mapping[str, Any]) -> str:
    """What measurements must share to stand in one table."""
    return " | ".join(f"{name}={about[name]}" for name in IDENTITY_KEYS)
