"""Renew the table of what NVIDIA's performance recipes of Megatron-Bridge set, from its repository.

    python tools/recipes.py REPOSITORY

REPOSITORY is a clone, bare or not, with its tags. Recipes are programs: those of each release are run with
stand-ins for all that is neither theirs nor Python's, and what they have set in the end is written to
src/traincast/catalog/recipes/megatron-bridge.csv, with the commit and file.
"""

import csv
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import io
import re
import subprocess
import sys
import tarfile
import tempfile
import types
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "src/traincast/catalog/recipes/megatron-bridge.csv"
SCRIPTS = "scripts/performance"
PACKAGE = "src/megatron/bridge"
CONTAINERS = {  # months of NeMo's; docs/releases/software-versions.md, and known-issues.md of patches
    "v0.2.0": "2025-11",
    "v0.3.0": "2026-02",
    "v0.3.1": "2026-02",
    "v0.4.0": "2026-04",
    "v0.4.2": "2026-04",
    "v0.5.0": "2026-06",
    "v0.5.1": "2026-06",
    "v0.6.0": "2026-08",
}
MODELS = {  # names of recipes → of the catalogue; others are left out
    "deepseek_v3": "deepseek-v3",
    "gpt_oss_120b": "gpt-oss-120b",
    "gpt_oss_20b": "gpt-oss-20b",
    "kimi_k2": "kimi-k2",
    "llama31_405b": "llama-3.1-405b",
    "llama3_70b": "llama-3-70b",
    "llama3_8b": "llama-3-8b",
    "nemotron_3_nano": "nemotron-3-nano",
    "nemotron_3_super": "nemotron-3-super",
    "nemotronh_56b": "nemotron-h-56b",
    "qwen3_235b_a22b": "qwen3-235b-a22b",
    "qwen3_30b_a3b": "qwen3-30b-a3b",
    "qwen3_next_80b_a3b": "qwen3-next-80b-a3b",
}
GPUS = {  # names of recipes → of the catalogue
    "h100": "h100-sxm-80",
    "b200": "b200-180",
    "b300": "b300-288",
    "gb200": "gb200-186",
    "gb300": "gb300-288",
}
PRECISIONS = {
    "bf16": "bf16",
    "fp8_cs": "fp8-current",
    "fp8_mx": "mxfp8",
    "fp8_sc": "fp8-block",
    "nvfp4": "nvfp4",
}
VARIANTS = ("v1", "v2", "v3")  # of a recipe: its GPUs and batch
NAME = re.compile(
    rf"(?P<model>{'|'.join(MODELS)})_(?P<task>pretrain|sft|lora)_(?P<gpus>\d+)gpu_(?P<gpu>{'|'.join(GPUS)})_"
    r"(?P<precision>bf16|fp8cs|fp8mx|nvfp4)(?:_\w+?)??_config"
)
COLUMNS = (
    "released", "versions", "model", "task", "gpu", "precision", "gpus", "tp", "pp", "cp", "vp", "ep", "etp",
    "mbs", "gbs", "dispatcher", "graphs", "recompute", "recomputed_layers", "offloaded_layers", "ep_overlap",
    "tp_overlap", "fsdp",
)  # fmt: skip
DENSE = ("llama31_405b", "llama3_70b", "llama3_8b", "nemotronh_56b")
HEAD = """\
# What performance recipes of Megatron-Bridge set (https://github.com/NVIDIA-NeMo/Megatron-Bridge), written by
# tools/recipes.py. `released` is the month of the NeMo container of the versions.
"""


class Setting:
    """An object with whatever attributes are asked for: a stand-in for what a recipe is made of."""

    def __init__(self, *args: Any, **given: Any) -> None:
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        child = self.__dict__[name] = Setting()
        return child

    def __call__(self, *args: Any, **given: Any) -> "Setting":
        return Setting(**given)

    def __bool__(self) -> bool:
        return False

    def __gt__(self, other: Any) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __getitem__(self, key: Any) -> "Setting":
        return Setting()

    def __setitem__(self, key: Any, value: Any) -> None:
        return None

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__


class AnyName(type):
    """A class that has whatever attributes are asked for, and takes whatever arguments a subclass gives."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **given: Any) -> "AnyName":
        return super().__new__(cls, name, bases, body)

    def __init__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **given: Any) -> None:
        super().__init__(name, bases, body)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stand_in(name)

    def __getitem__(cls, key: Any) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        return iter(())


def _stand_in(name: str) -> Any:
    found = AnyName(name, (Setting,), {"__doc__": "A stand-in."})
    return dataclass(init=False, repr=False, eq=False)(found)  # recipes ask for fields, and add some


class StandIn(types.ModuleType):
    """A module that has whatever names are asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = _stand_in(name)
        setattr(self, name, found)
        return found


class Release(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports recipes of a release as they are, and stand-ins for all others that are not Python's."""

    REAL = (
        "megatron.bridge.recipes", "megatron.bridge.perf_recipes", "configs", "utils",
        "megatron.bridge.training.flex_dispatcher_backend", "megatron.bridge.training.deepep",
        "megatron.bridge.utils.cuda_graph",
    )  # fmt: skip

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.before = set(sys.modules)

    def __enter__(self) -> "Release":
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *error: object) -> None:
        sys.meta_path.remove(self)
        for name in set(sys.modules) - self.before:
            del sys.modules[name]

    def file(self, name: str) -> Path | None:
        """Return the file of a module in the release; None without."""
        folder = self.folder_of(name)
        for path in (folder / "__init__.py", folder.with_suffix(".py")):
            if path.is_file():
                return path
        return None

    def folder_of(self, name: str) -> Path:
        """Return where a package of that name would stand in the release."""
        parts = name.split(".")
        return self.folder.joinpath(SCRIPTS if parts[0] in ("configs", "utils") else "src", *parts)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return where a module comes from."""
        if name.partition(".")[0] in sys.stdlib_module_names:
            return None
        file = self.file(name)
        is_real = any(name == real or name.startswith(real + ".") for real in self.REAL)
        if is_real and file is not None:
            within = [str(file.parent)] if file.name == "__init__.py" else None
            return importlib.util.spec_from_file_location(name, file, submodule_search_locations=within)
        if is_real and (folder := self.folder_of(name)).is_dir():
            spec = ModuleSpec(name, None, is_package=True)  # a namespace
            spec.submodule_search_locations = [str(folder)]
            return spec
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        """Return a stand-in, whose `import *` gives what the file of that name defines."""
        module = StandIn(spec.name)
        module.__path__ = []
        file = self.file(spec.name)
        text = file.read_text() if file is not None else ""
        module.__all__ = re.findall(r"^(?:class|def) (\w+)", text, re.MULTILINE)  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: names come when they are asked for."""


class Recipe(NamedTuple):
    """A recipe that was run: what its name says, and its configuration."""

    model: str
    task: str
    gpu: str
    precision: str
    gpus: int
    config: Any


def _device(gpu: str) -> None:
    """Let the stand-in of torch report a GPU, as the choice of a dispatcher asks for it."""
    torch = importlib.import_module("torch")
    major = 9 if gpu == "h100" else 10
    found = Setting(major=major, name=f"NVIDIA {gpu.upper()}")
    torch.cuda = Setting()  # type: ignore[attr-defined]
    torch.cuda.get_device_properties = lambda *_: found


def flat_recipes(release: Release) -> Iterator[Recipe]:
    """Yield recipes that are a function each, as since v0.6."""
    folder = release.folder / PACKAGE / "perf_recipes"
    for path in sorted(folder.rglob("*.py")):
        module = importlib.import_module(
            ".".join(path.relative_to(release.folder / "src").with_suffix("").parts)
        )
        for name, function in sorted(vars(module).items()):
            match = NAME.fullmatch(name)
            if match is None or getattr(function, "__module__", "") != module.__name__:
                continue
            said = match.groupdict()
            _device(said["gpu"])
            precision = re.sub(r"^fp8(?=\w)", "fp8_", said["precision"])
            yield Recipe(said["model"], said["task"], said["gpu"], precision, int(said["gpus"]), function())


def listed_recipes(release: Release) -> Iterator[Recipe]:
    """Yield recipes whose degrees stand in lists beside them, as up to v0.5, in all variants."""
    kinds = "|".join(MODELS)
    name = re.compile(
        rf"(?P<model>{kinds})_(?:(?P<task>pretrain|sft|lora)_config_)?(?P<gpu>{'|'.join(GPUS)})"
    )
    older = re.compile(rf"(?P<model>{kinds})_(?P<gpu>{'|'.join(GPUS)})(?:_(?P<task>sft|lora))?_config")
    for path in sorted((release.folder / SCRIPTS / "configs").rglob("*.py")):
        if path.name == "__init__.py" or path.name.endswith("base_configs.py"):
            continue
        parts = path.relative_to(release.folder / SCRIPTS).with_suffix("").parts
        module = importlib.import_module(".".join(parts))
        beside = [
            importlib.import_module(".".join((*parts[:-1], file.stem)))
            for file in sorted(path.parent.glob("*base_configs.py"))
        ]
        lists = {key: value for each in beside for key, value in vars(each).items()}
        file = str(path.relative_to(release.folder))
        for key, function in sorted(vars(module).items()):
            match = name.fullmatch(key) or older.fullmatch(key)
            if match is None or getattr(function, "__module__", "") != module.__name__:
                continue
            said = match.groupdict()
            task = said["task"] or "pretrain"
            for precision in PRECISIONS:
                for listed, given in _variants(lists, function, said["model"], task, said["gpu"], precision):
                    _device(said["gpu"])
                    try:
                        config = function(precision=precision, **given)
                    except (AttributeError, TypeError, ValueError) as error:  # so it does where it is used
                        print(f"{file}: {key}, {precision}: {error}", file=sys.stderr)
                        continue
                    yield Recipe(said["model"], task, said["gpu"], precision, listed.num_gpus, config)


def _variants(
    lists: dict[str, Any], function: Any, model: str, task: str, gpu: str, precision: str
) -> Iterator[tuple[Any, dict[str, str]]]:
    """Yield the list of each variant of a recipe, and the argument that asks for the variant."""
    of_task = "" if task == "pretrain" else f"{task}_"
    base = f"{model}_{task}_config_{gpu}_{precision}".upper()
    for name in (f"{model}_{gpu}_{of_task}{precision}_base_config".upper(), base):
        if name in lists:
            yield lists[name], {}
    if "config_variant" in inspect.signature(function).parameters:
        for variant in VARIANTS:
            if listed := lists.get(f"{base}_{variant}".upper()):
                yield listed, {"config_variant": variant}


def _known(value: Any) -> Any:
    """Return a value that a recipe has set; None where it left it to what is below."""
    return None if isinstance(value, Setting) else value


def _words(values: Any) -> list[str]:
    """Return names of scopes or modules, given as text or as members of an enumeration."""
    several = isinstance(values, list | tuple)
    return [str(getattr(value, "__name__", value)) for value in (values if several else [values]) if value]


def _graphs(model: Any) -> str:
    """Return the CUDA graphs of a recipe: of whole iterations, of parts of a layer, or none."""
    kind = _known(model.cuda_graph_impl)
    scope = _words(_known(model.cuda_graph_scope))
    if kind in (None, "none"):
        return "none"
    return "iteration" if "full_iteration" in (kind, *scope) else "layer"


def _recomputed(model: Any) -> str:
    """Return what a recipe recomputes: full, modules as Megatron-Core names them, or none."""
    kind = _known(model.recompute_granularity)
    modules = _words(_known(model.recompute_modules))
    if kind == "full":
        return "full"
    return "+".join(modules) if modules and kind == "selective" else "none"


def _dispatcher(model: Any) -> str:
    """Return what moves tokens to experts; all-to-all by default in models of Megatron-Bridge."""
    if _known(model.moe_token_dispatcher_type) == "flex":
        return str(_known(model.moe_flex_dispatcher_backend) or "deepep")  # Megatron-Core's default
    return "alltoall"


def _is(value: Any) -> str:
    return str(bool(_known(value))).lower()


def row(release: str, recipe: Recipe) -> dict[str, str]:
    """Return the row of a recipe."""
    config = recipe.config
    model = recipe.config.model
    overlap = Setting() if config.comm_overlap is None else config.comm_overlap
    degrees = {
        "tp": model.tensor_model_parallel_size,
        "pp": model.pipeline_model_parallel_size,
        "cp": model.context_parallel_size,
        "vp": model.virtual_pipeline_model_parallel_size,
        "ep": model.expert_model_parallel_size,
        "etp": model.expert_tensor_parallel_size,
        "mbs": config.train.micro_batch_size,
        "gbs": config.train.global_batch_size,
    }
    experts = recipe.model not in DENSE
    return {
        "released": CONTAINERS[release],
        "model": MODELS[recipe.model],
        "task": recipe.task,
        "gpu": GPUS[recipe.gpu],
        "precision": PRECISIONS[recipe.precision],
        "gpus": str(recipe.gpus),
        **{name: str(_known(value) or "") for name, value in degrees.items()},
        "dispatcher": _dispatcher(model) if experts else "",
        "graphs": _graphs(model),
        "recompute": _recomputed(model),
        "recomputed_layers": str(_known(model.recompute_num_layers) or ""),  # of a model chunk, where full
        "offloaded_layers": str(_known(model.cpu_offloading_num_layers) or ""),
        "ep_overlap": _is(overlap.overlap_moe_expert_parallel_comm) if experts else "",
        "tp_overlap": _is(overlap.tp_comm_overlap),
        "fsdp": _is(config.ddp.use_megatron_fsdp),
    }


def rows(repository: str, release: str) -> list[dict[str, str]]:
    """Return the rows of a release."""
    archive = subprocess.check_output(["git", "-C", repository, "archive", release, SCRIPTS, PACKAGE])
    with tempfile.TemporaryDirectory() as name:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(name, filter="data")
        with Release(Path(name)) as imported:
            recipes = flat_recipes if _is_flat(Path(name)) else listed_recipes
            return [row(release, recipe) for recipe in recipes(imported)]


def _is_flat(folder: Path) -> bool:
    return (folder / PACKAGE / "perf_recipes").is_dir()


def main() -> None:
    """Write the table; recipes that releases have in common stand in it once."""
    repository = sys.argv[1]
    head = HEAD
    versions: dict[tuple[str, ...], list[str]] = {}
    for release in CONTAINERS:
        git = ["git", "-C", repository, "rev-list", "-n1", release]
        commit = subprocess.check_output(git, text=True).strip()
        head += f"# {release.removeprefix('v')}: {CONTAINERS[release]}, commit {commit}\n"
        for found in rows(repository, release):
            versions.setdefault(tuple(found.items()), []).append(release.removeprefix("v"))
    TABLE.parent.mkdir(exist_ok=True)
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        file.write(head)
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for items, of_versions in versions.items():
            writer.writerow(dict(items) | {"versions": " ".join(dict.fromkeys(of_versions))})
    print(f"{TABLE.relative_to(ROOT)}: {len(versions)} recipes")


if __name__ == "__main__":
    main()
