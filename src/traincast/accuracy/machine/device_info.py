"""Description of the machine: device, driver, versions, memory, threads."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from traincast.core import Doc, Result

GPU_FILES: Final = ("nvidia[0-9]*", "kfd", "dxg")  # NVIDIA, AMD, WSL
IDENTITY_KEYS: Final = ("device", "torch", "threads", "ranks", "nodes", "driver", "dtypes")
FP8_CAPABILITY: Final = (8, 9)  # lowest CUDA compute capability with fp8 units
DEFAULT_MEMORY_BYTES: Final = 8 * 2.0**30  # where the system does not tell [byte]


class MachineDescription(Result, kw_only=True):
    """What a machine says of itself."""

    torch: Annotated[str, Doc("version of PyTorch")]
    threads: Annotated[int, Doc("threads of a rank")]
    ranks: Annotated[int, Doc("processes that measured at once")]
    nodes: Annotated[int, Doc("hosts they ran on")]
    host: Annotated[str, Doc("name of the first host")]
    launcher: Annotated[str, Doc("what started the processes")]
    system: Annotated[str, Doc("operating system")]
    backend: Annotated[str, Doc("library of collectives: nccl, gloo, or empty with one rank")]
    kind: Annotated[Literal["cpu", "cuda"], Doc("kind of device")]
    device: Annotated[str, Doc("name of the accelerator, or of the processor")]
    driver: Annotated[str, Doc("versions of driver and runtime, empty for a CPU")]
    cores: Annotated[int, Doc("cores of the host that a process may use")]
    memory_bytes: Annotated[float, Doc("memory of a rank", "byte")]
    processors: Annotated[int, Doc("multiprocessors of the accelerator, or threads of a rank")]
    dtypes: Annotated[list[str], Doc("types of products that were timed, that of training first")]


def available_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_ranks() -> int:
    """Return the default number of local ranks: one per GPU, or two on a CPU with several cores."""
    if any(next(Path("/dev").glob(pattern), None) for pattern in GPU_FILES):
        import torch

        if gpus := int(torch.cuda.device_count()):
            return gpus
    return min(available_cores(), 2)


def describe_machine(group: Any) -> dict[str, Any]:
    """Describe the machine of a `RankGroup` as a mapping that can be written as JSON."""
    import torch

    nodes = len(set(group.hosts))
    threads = int(torch.get_num_threads())
    about = {
        "torch": str(torch.__version__),
        "threads": threads,
        "ranks": group.rank.size,
        "nodes": nodes,
        "host": group.hosts[0],
        "launcher": group.rank.launcher,
        "backend": group.backend,
        "system": f"{platform.system()} {platform.release()}",
        "kind": group.device.type,
        "cores": available_cores(),
    }
    if group.device.type == "cuda":
        return about | _gpu_properties(group.device)
    memory = _memory_bytes() / max(group.rank.size // nodes, 1)
    return about | {
        "device": _cpu_name(),
        "driver": "",
        "memory_bytes": memory,
        "processors": threads,
        "dtypes": ["fp32", "bf16"],
    }


def _gpu_properties(device: object) -> dict[str, object]:
    import torch

    properties = torch.cuda.get_device_properties(device)
    dtypes = ["bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16", "tf32"]
    if torch.version.cuda and (properties.major, properties.minor) >= FP8_CAPABILITY:
        dtypes.append("fp8")
    runtime = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}"
    return {
        "device": properties.name,
        "driver": f"{runtime}, driver {_driver_version()}",
        "dtypes": dtypes,
        "memory_bytes": float(properties.total_memory),
        "processors": int(properties.multi_processor_count),
    }


def _driver_version() -> str:
    """Return the version of the NVIDIA kernel driver, or "unknown"."""
    words = _text(Path("/proc/driver/nvidia/version")).split()
    return next((word for word in words if word[0].isdigit() and "." in word), "unknown")


def _cpu_name() -> str:
    lines = _text(Path("/proc/cpuinfo")).splitlines()
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return name or platform.processor() or platform.machine()


def _memory_bytes() -> float:
    """Return the memory of this computer, or the limit of its cgroup [byte]."""
    physical = DEFAULT_MEMORY_BYTES
    if hasattr(os, "sysconf"):
        physical = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    limit = _text(Path("/sys/fs/cgroup/memory.max")).strip()
    return min(physical, float(limit)) if limit.isdigit() else physical


def _text(path: Path) -> str:
    """Return the text of a file of the kernel, empty where there is none."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def identity(about: Mapping[str, Any]) -> str:
    """Return a text of everything that measurements in one table have in common."""
    return " | ".join(f"{name}={about[name]}" for name in IDENTITY_KEYS)
