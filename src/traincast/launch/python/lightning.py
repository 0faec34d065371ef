"""Arguments of Lightning's Trainer or Fabric in a program; their table is `tables/lightning.toml`.

The program is parsed, never run: arguments are literals, constants of the module, defaults of its command
line, or given with ``--set``. What a model recomputes by itself is not seen.
"""

import ast
import re
from collections.abc import Mapping
from typing import Final

from traincast.core import InputError
from traincast.launch.frameworks.accelerate import ZERO_STAGES
from traincast.launch.python.source import called_name, constant, defaults_of, last_name, tree_of
from traincast.launch.settings.facts import Facts, as_facts
from traincast.launch.settings.given import NOTHING, Given, choose_run
from traincast.launch.settings.settings import Settings, is_off, not_allowed
from traincast.launch.settings.table import Conversions

STARTERS: Final = ("Trainer", "Fabric")
BATCH: Final = "DataLoader.batch_size"
OPTIMIZERS: Final = {
    "AdamW": "adam",
    "Adam": "adam",
    "FusedAdam": "adam",
    "DeepSpeedCPUAdam": "adam",
    "SGD": "sgd",
    "AdamW8bit": "adam-8bit",
    "Adam8bit": "adam-8bit",
    "PagedAdamW8bit": "adam-8bit",
    "Lion": "lion",
    "Muon": "muon",
}
PRECISIONS: Final = {
    "32-true": "fp32",
    "32": "fp32",
    "bf16-mixed": "bf16",
    "bf16": "bf16",
    "bf16-true": "bf16-pure",
    "16-mixed": "fp16",
    "16": "fp16",
    "transformer-engine": "fp8",
    "transformer-engine-float16": "fp8",
}
CHECKPOINTING: Final = ("strategy.activation_checkpointing_policy", "strategy.activation_checkpointing")


def read_program(text: str, given: Given = NOTHING) -> Settings:
    """Return the arguments of the Trainer or Fabric that is meant, of its strategy, loaders and optimizer."""
    tree = tree_of(text)
    names = {**_constants(tree), **given.variables}
    starters = {
        f"{called_name(node)} in line {node.lineno}": node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and called_name(node) in STARTERS and node.keywords
    }
    if not starters:
        raise InputError("Python", ["calls neither Trainer nor Fabric with arguments"])
    call = starters[choose_run(starters, given.recipe, "calls")]
    settings = Settings(_arguments(call, names))
    strategy = next((word.value for word in call.keywords if word.arg == "strategy"), None)
    if isinstance(strategy, ast.Name):
        assigned = (node for node in ast.walk(tree) if isinstance(node, ast.Assign))
        values = [node.value for node in assigned if ast.unparse(node.targets[0]) == strategy.id]
        strategy = values[-1] if values else strategy
    if isinstance(strategy, ast.Call):
        own = {f"strategy.{name}": value for name, value in _arguments(strategy, names).items()}
        settings |= {**own, "strategy": called_name(strategy)}
    for node in ast.walk(tree):
        if called_name(node) == "DataLoader" and isinstance(node, ast.Call):
            given_to_loader = _arguments(node, names)
            if "batch_size" in given_to_loader and not is_off(given_to_loader.get("shuffle", True)):
                settings.setdefault(BATCH, given_to_loader["batch_size"])
        elif called_name(node) in OPTIMIZERS:
            settings["optimizer"] = called_name(node)
    settings |= {"torch.compile": True} if re.search(r"\btorch\.compile\(|\.compile\(\)", text) else {}
    return settings


def _constants(tree: ast.Module) -> dict[str, object]:
    """Return names of the module with a value: assigned literals, and defaults of the command line."""
    names: dict[str, object] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = constant(node.value, names)
            if not isinstance(value, str) or isinstance(node.value, ast.Constant):
                names[node.targets[0].id] = value
        elif called_name(node) == "add_argument" and isinstance(node, ast.Call):
            flags = [word.value for word in node.args if isinstance(word, ast.Constant)]
            default = next((word.value for word in node.keywords if word.arg == "default"), None)
            if flags and default is not None:
                names[str(flags[-1]).lstrip("-").replace("-", "_")] = constant(default, names)
        elif isinstance(node, ast.FunctionDef):
            for argument, default in defaults_of(node.args).items():
                if default is not None:
                    names.setdefault(argument, constant(default, names))
    return names


def _arguments(call: ast.Call, names: Mapping[str, object]) -> dict[str, object]:
    """Return the keyword arguments of a call; a name without a value as a variable of the shell."""

    def value_of(node: ast.expr) -> object:
        name = last_name(node)
        if isinstance(node, ast.Attribute) and name.isupper():  # a member of an enumeration
            return name
        if isinstance(node, ast.Name | ast.Attribute):
            return names.get(name, f"${name}")
        return constant(node, names)

    return {word.arg: value_of(word.value) for word in call.keywords if word.arg}


def read_gpus(settings: Settings) -> Facts:
    """Read the accelerators; none where all that there are, are taken."""
    devices = settings.get("devices")
    if is_off(devices) or str(devices) == "-1":
        return {}
    if isinstance(devices, list | tuple):
        return {"gpus": len(devices) * settings.number("num_nodes")}
    return {"gpus": settings.number("devices") * settings.number("num_nodes")}


def read_precision(settings: Settings) -> Facts:
    """Read precision and optimizer; with weights in 16 bits, moments are as well."""
    name = str(settings.get("precision") or "32-true")
    if name not in PRECISIONS:
        raise not_allowed("precision", name, PRECISIONS)
    precision = PRECISIONS[name]
    kind = OPTIMIZERS.get(str(settings.get("optimizer", "AdamW")), "adam")
    if precision != "bf16-pure":
        return {"precision": precision, "optimizer_kind": kind}
    kind = "adam-bf16" if kind == "adam" else kind
    return {"precision": precision, "grad_dtype": "16-bit", "optimizer_kind": kind}


def _strategy_name(settings: Settings) -> str:
    """Return the name of a strategy in small letters without underscores."""
    return str(settings.get("strategy", "auto")).lower().replace("_", "").removesuffix("strategy")


def read_strategy(settings: Settings) -> Facts:
    """Read degrees and what is sharded and offloaded."""
    name = _strategy_name(settings)
    if name.startswith("modelparallel"):
        facts: Facts = {"zero": 3, "tp": 1}
        for argument, fact in (("tensor_parallel_size", "tp"), ("data_parallel_size", "dp")):
            value = settings.get(f"strategy.{argument}", "auto")
            if not is_off(value):
                facts |= as_facts({fact: settings.number(f"strategy.{argument}")})
        return facts | ({"sp": False} if facts["tp"] > 1 else {})
    if name.startswith("fsdp"):
        kind = str(settings.get("strategy.sharding_strategy", "FULL_SHARD")).rpartition(".")[2].strip("'\"_")
        if kind not in ZERO_STAGES:
            raise not_allowed("strategy.sharding_strategy", kind, ZERO_STAGES)
        offloaded = settings.is_on("strategy.cpu_offload") or "offload" in name
        facts = {"zero": ZERO_STAGES[kind], "tp": 1, "offload": "optimizer+weights" if offloaded else "none"}
        return facts | ({"replicas": settings.number("num_nodes")} if "HYBRID" in kind else {})
    if name.startswith("deepspeed"):
        stage = re.search(r"stage(\d)", name)
        zero = int(stage[1]) if stage else settings.number("strategy.stage", default=2, least=0)
        states = "offload" in name or settings.is_on("strategy.offload_optimizer")
        weights = zero == 3 and ("offload" in name or settings.is_on("strategy.offload_parameters"))
        words = ["optimizer"] * states + ["weights"] * weights
        return {"zero": zero, "tp": 1, "offload": "+".join(words) or "none"}
    if name in ("auto", "") or name.startswith(("ddp", "singledevice")):
        return {"zero": 0, "tp": 1, "offload": "none"}
    raise not_allowed(
        "strategy",
        settings["strategy"],
        ("auto", "ddp", "fsdp", "deepspeed_stage_1 to 3", "ModelParallelStrategy"),
    )


def read_recompute(settings: Settings) -> Facts:
    """Read whether the strategy recomputes layers."""
    return {"recompute": "full" if settings.any_on(*CHECKPOINTING) else "none"}


def stack(settings: Settings) -> str:
    """Return the software stack: compiled or not."""
    return "torchtitan-2025" if settings.is_on("torch.compile") else "torchtitan-eager"


def assumptions(settings: Settings) -> tuple[str, ...]:
    """Return what is assumed of the model's own code."""
    notes = [
        "nothing is recomputed, as the strategy does not say so; a model may by itself (--recompute full)"
    ]
    notes *= not settings.any_on(*CHECKPOINTING)
    if "optimizer" not in settings:
        notes.append("Adam, as the program makes no optimizer that is known")
    return tuple(notes)


# By the names that the table has for them.
CONVERSIONS: Final = Conversions(
    read={
        "gpus": read_gpus,
        "precision": read_precision,
        "strategy": read_strategy,
        "recompute": read_recompute,
    },
)
