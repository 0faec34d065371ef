"""Description of the machine: device, driver, versions, memory, threads."""

import os
import platform
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from traincast.accuracy.measure.launcher import Rank, available_cores

GPU_FILES: Final = ("nvidia[0-9]*", "kfd", "dxg")  # NVIDIA, AMD, WSL
IDENTITY_KEYS: Final = ("device", "torch", "threads", "ranks", "nodes", "driver", "dtypes")


def host_name() -> str:
    """Return the host name of this computer."""
    return socket.gethostname()


def select_device(torch: Any, rank: Rank) -> Any:
    """Return the torch device of a rank: its GPU, or the CPU where there is none."""
    if torch.cuda.is_available():
        torch.cuda.set_device(rank.local % torch.cuda.device_count())
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def default_ranks() -> int:
    """Return the default number of ranks on this computer: one per GPU, or two on a CPU with several cores."""
    if not any(next(Path("/dev").glob(pattern), None) for pattern in GPU_FILES):
        return min(available_cores(), 2)
    import torch

    return int(torch.cuda.device_count()) or min(available_cores(), 2)


def describe_machine(
    torch: Any, rank: Rank, device: Any, hosts: Sequence[str], backend: str
) -> dict[str, Any]:
    """Describe the machine as a mapping that can be written as JSON."""
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
        ranks_per_node = max(rank.size // nodes, 1)
        about |= {
            "device": cpu_name(),
            "driver": "",
            "cores": available_cores(),
            "memory_bytes": float(memory_bytes() / ranks_per_node),
            "processors": int(torch.get_num_threads()),
            "dtypes": ["fp32", "bf16"],
        }
    return about


def _gpu_properties(torch: Any, device: Any) -> dict[str, Any]:
    """Return the name, driver, memory and types of a GPU."""
    properties = torch.cuda.get_device_properties(device)
    dtypes = ["bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16", "tf32"]
    dtypes += ["fp8"] if (properties.major, properties.minor) >= (8, 9) and torch.version.cuda else []
    runtime = torch.version.cuda or torch.version.hip
    return {
        "device": properties.name,
        "driver": f"{'CUDA' if torch.version.cuda else 'ROCm'} {runtime}, driver {_driver_version()}",
        "cores": available_cores(),
        "memory_bytes": float(properties.total_memory),
        "processors": int(properties.multi_processor_count),
        "dtypes": dtypes,
    }


def _driver_version() -> str:
    """Return the version of the NVIDIA kernel driver, or "unknown"."""
    version_file = Path("/proc/driver/nvidia/version")
    words = version_file.read_text(encoding="utf-8").split() if version_file.is_file() else []
    return next((word for word in words if word[0].isdigit() and word.count(".") >= 1), "unknown")


def cpu_name() -> str:
    """Return the model name of the CPU."""
    cpu_info = Path("/proc/cpuinfo")
    lines = cpu_info.read_text(encoding="utf-8").splitlines() if cpu_info.is_file() else []
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return name or platform.processor() or platform.machine()


def memory_bytes() -> float:
    """Return the memory of this computer, or the limit of its cgroup [byte]."""
    physical = (
        float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        if hasattr(os, "sysconf")
        else 8 * 2.0**30
    )
    limit_file = Path("/sys/fs/cgroup/memory.max")
    limit_text = limit_file.read_text(encoding="utf-8").strip() if limit_file.is_file() else "max"
    return min(physical, float(limit_text)) if limit_text.isdigit() else physical


def identity(about: Mapping[str, Any]) -> str:
    """Return a text of everything that measurements in one table have in common."""
    return " | ".join(f"{name}={about[name]}" for name in IDENTITY_KEYS)
