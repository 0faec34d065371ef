"""Megatron-Bridge's recipes: functions that change a configuration, read without being run."""

import ast
import json
import re
import sys
from collections.abc import Mapping
from importlib.resources import files
from math import prod
from pathlib import Path
from typing import Any, Final

from traincast.catalog import Stack
from traincast.core import InputError
from traincast.launch.frameworks import megatron, megatron_bridge
from traincast.launch.frameworks.checkpoints import NAMED_MODEL
from traincast.launch.frameworks.megatron_bridge import (
    DEFAULTS,
    HARMLESS_SECTIONS,
    PRESETS,
    megatron_settings,
)
from traincast.launch.frameworks.unsupported import check_training_kind
from traincast.launch.python.program import CLASS, PythonProgram, Unread, set_attributes
from traincast.launch.python.source import MAX_CALLS, called_name, tree_of
from traincast.launch.settings.canonical import OF_SQUAD, SQUAD_TOKENS
from traincast.launch.settings.facts import Facts
from traincast.launch.settings.given import NOTHING, Given, choose_run
from traincast.launch.settings.settings import Settings, flatten, nested
from traincast.model import Documents

PRECISIONS: Final[Mapping[str, str]] = {  # perf_recipes/_common.py, _perf_precision
    "bf16": "bf16_mixed",
    "fp8_mx": "bf16_with_mxfp8_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
    "fp8_cs": "bf16_with_fp8_current_scaling_mixed",
    "fp8_ds": "bf16_with_fp8_delayed_scaling_mixed",
    "fp8_sc": "bf16_with_fp8_subchannel_scaling_mixed",
}
OF_ALL: Final = {  # recipes: the precision is one that a function makes
    "ddp.overlap_param_gather": True,  # no part of the prediction
    **{f"{name}.{CLASS}" if name == "mixed_precision" else name: value for name, value in DEFAULTS.items()},
}
BY_COMMON: Final = (  # settings whose defaults differ
    "train.global_batch_size",
    "train.micro_batch_size",
    "dataset.seq_length",
    "ddp.overlap_grad_reduce",
)
COMMON: Final = {  # functions of recipes/common.py (067f987) that recipes begin with -> values of these
    "_pretrain_common": (32, 2, 4096, True),
    "_sft_common": (128, 1, 2048, False),
    "_peft_common": (128, 1, 2048, False),
    "_sft_common_vlm": (32, 2, 4096, False),
    "_peft_common_vlm": (32, 2, 4096, False),
}
PACKING: Final = ("_sft_common", "_peft_common")  # those that pack documents of SQuAD (default_squad_config)
PACKED: Final = "dataset.packed"  # what is noted of it
ROTATION: Final = "apply_rope_fusion"  # of queries and keys: off, unless a recipe or its model turn it on
FUSING: Final = ("llama", "nemotron")  # models that do (0.6.0, models/llama/llama_bridge.py and the like)
RELEASED: Final = "megatron-bridge-2026"  # stack of the release
DTYPES: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
CONTAINER: Final = "ConfigContainer"
PRECISION: Final = "MixedPrecisionConfig"
TEXT: Final = "()"  # key of the text that a call is given
RENAMED: Final = {
    "ddp.use_megatron_fsdp": "dist.use_megatron_fsdp",
    "mixed_precision.grad_reduce_in_fp32": "ddp.grad_reduce_in_fp32",
    **{f"comm_overlap.{name}": f"ddp.{name}" for name in ("overlap_grad_reduce", "overlap_param_gather")},
}
EITHER: Final = ("dist.use_megatron_fsdp",)  # on where one of its two settings is (training/config.py)
LENGTHS: Final = ("model.seq_length", "dataset.seq_length")
PARTS: Final = {  # functions that set a field of a part of a recipe, their first argument, to the second
    "apply_flex_dispatcher_backend": "moe_flex_dispatcher_backend",
    "set_cuda_graph_modules": "cuda_graph_modules",
    "set_deepseek_v3_pipeline_model_parallel_layout": "pipeline_model_parallel_layout",
}
# Settings of the precision of a recipe, which a preset replaces, and two that say the opposite
OF_PRECISION: Final = ("bf16", "fp16", "fp8_format", "fp8_recipe", "fp4_format")
REDUCED: Final = ("accumulate_allreduce_grads_in_fp32", "grad_reduce_in_bf16")
OF_REPLICA: Final = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
BENCHMARKS: Final = "perf_recipes"
PARTS_OF_PACKAGE: Final = ("recipes", BENCHMARKS)
TABLE: Final = "launch/tables/bridge_recipes.json"
RELEASE: Final = "recipe_release"  # setting: the file of a recipe, or the release of one from the table
BENCHMARK: Final = "benchmark_recipe"  # setting: whether a recipe is one of the benchmarks
HARMLESS: Final = "_enable_overlap_param_gather_with_optimizer_step"
CHANGES: Final[Mapping[str, Mapping[str, object]]] = {  # ends of functions -> what they set in a recipe
    "benchmark_common": {"ddp.grad_reduce_in_fp32": False, "model.apply_rope_fusion": True},
    "apply_determinism_overrides": {  # recipes/utils/determinism_utils.py
        "comm_overlap.tp_comm_overlap": False,
        "model.deterministic_mode": True,
    },
}
OPTIMIZERS: Final = {  # functions that return an optimizer and a schedule
    "distributed_fused_adam_with_cosine_annealing": "adam",
    "distributed_muon_with_cosine_annealing": "dist_muon",
}
KNOWN: Final = (  # not followed
    *PRESETS,
    HARMLESS,
    *OPTIMIZERS,
    "_perf_precision",
    "get_mixed_precision_config",
    "default_peft_config",
    *COMMON,
)
# What functions of Megatron-Bridge that change a recipe or a part of it set (perf_recipes/*/common.py).
MAY_SET: Final[Mapping[str, str]] = {
    "model": "tensor_model_parallel_size pipeline_model_parallel_size virtual_pipeline_model_parallel_size"
    " context_parallel_size expert_model_parallel_size seq_length recompute_granularity recompute_modules"
    " moe_token_dispatcher_type cuda_graph_impl",
    "train": "global_batch_size micro_batch_size",
    "mixed_precision": "mixed_precision",
    "optimizer": "optimizer exp_avg_dtype",
    "ddp": "use_megatron_fsdp overlap_grad_reduce overlap_param_gather grad_reduce_in_fp32",
    "comm_overlap": "tp_comm_overlap overlap_moe_expert_parallel_comm",
}
RECIPE: Final = re.compile(r"^(?P<model>\w+?)_(?P<kind>pretrain|sft|peft|finetune)(?:_|$)")
GPUS: Final = re.compile(r"_(\d+)gpus?_")
SET_BY_RECIPES: Final = {  # else by the recipe that they begin with
    "train.global_batch_size",
    "model.tensor_model_parallel_size",
    "model.pipeline_model_parallel_size",
}
LAYOUT: Final = "model.pipeline_model_parallel_layout"
LETTERS: Final = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
GRAPHS: Final = ("cuda_graph_scope", "cuda_graph_modules", "cuda_graph_warmup_steps")
OPENED: Final = [["optimizer"], ["ddp"], ["comm_overlap"]]  # fields of a recipe that a function may return


def read_recipe(text: str, given: Given = NOTHING) -> Settings:
    """Read the recipe that is meant as settings of Megatron-LM; others keep their names."""
    program = _Recipes(tree_of(text), given.variables, given.folder)
    models = {name: match["model"] for name in program.functions if (match := RECIPE.match(name))}
    recipes = [name for name in models if not name.startswith("_")]
    if not recipes:
        raise InputError("Python", ["has no recipe: a function such as llama3_8b_pretrain_config"])
    name = choose_run(recipes, given.recipe, "recipes")
    check_training_kind([], {"recipe": models[name]}, "Python")
    recipe = program.call(name)
    built = flatten(recipe) if isinstance(recipe, dict) else {}
    if scheme := _checkpoint_name(built, "peft") or built.get(f"peft.{CLASS}"):
        built["peft_scheme" if "lora" in str(scheme).lower() else "peft"] = str(scheme).lower()
    if checkpoint := _checkpoint_name(built, "model"):
        built[NAMED_MODEL] = checkpoint
    if preset := _checkpoint_name(built, "mixed_precision") or built.get(f"mixed_precision.{CLASS}"):
        halves = [name for name in ("fp16", "bf16") if built.pop(f"mixed_precision.{name}", False) is True]
        preset = f"{halves[0]}_mixed" if halves and preset == PRECISION else preset
        built["mixed_precision"] = PRECISIONS.get(str(preset), preset)
    left_out = CLASS, TEXT, "load_weights", *(GRAPHS if built.get("model.cuda_graph_impl") == "none" else ())
    overrides = {
        path: value
        for path, value in built.items()
        if (last := path.rpartition(".")[2]) not in left_out and not last.startswith("_")
    }
    overrides |= {  # what another function returns, which is not known
        path.removesuffix(f".{CLASS}"): f"{value}()"
        for path, value in built.items()
        if path.count(".") > 1 and path.endswith(f".{CLASS}") and not str(value)[:1].isupper()
    }
    overrides.pop("env_vars", None)
    if overrides.get("model.recompute_modules") == []:  # nothing; None is the attention core
        granularity = overrides.pop("model.recompute_granularity", None)
        overrides |= {"model.recompute_granularity": granularity} if granularity == "full" else {}
    if isinstance(stages := overrides.get(LAYOUT), list) and all(isinstance(stage, list) for stage in stages):
        overrides[LAYOUT] = "|".join("".join(LETTERS.get(kind, kind) for kind in stage) for stage in stages)
    for own, usual in RENAMED.items():
        if own in overrides:
            overrides[usual] = overrides.pop(own) or (usual in EITHER and overrides.get(usual, False))
    if program.length:  # Bridge requires both to be equal (training/config.py)
        overrides = {
            path: value for path, value in overrides.items() if path not in {*LENGTHS} - {program.length}
        }
    settings = Settings(megatron_settings({key: _text(value) for key, value in overrides.items()}))
    if still_open := {by: names for by, names in program.open.items() if names}:
        names = sorted(set().union(*still_open.values()))
        settings["helpers"] = f"{', '.join(still_open)}: {', '.join(names)}"
    if settings.is_on("recompute_modules"):  # as the recipe that this one begins with
        settings.setdefault("recompute_granularity", "selective")
    settings = Settings({name: value for name, value in settings.items() if value != ""})
    base = str(overrides.get("recipe", ""))
    if base and (GPUS.search(base) or not overrides.keys() >= SET_BY_RECIPES):
        settings["base_recipe"] = base
    if gpus := GPUS.search(name):
        settings["world_size"] = gpus[1]
    settings.setdefault(NAMED_MODEL, models[name])
    return settings


def stack(settings: Settings) -> str:
    """Return the software stack of a recipe: that of the release, with what the recipe turns off."""
    changes = {}
    if settings.get("cuda_graph_impl") == "none":
        changes["graphs"] = "none"
    name = str(settings.get(NAMED_MODEL, "")).lower()
    if not settings.is_on(ROTATION) and not any(family in name for family in FUSING):
        changes["kernels"] = "unfused-rotation"
    return megatron.stack_of_dispatcher(Stack(RELEASED).with_given(changes).name, settings)


def read_documents(settings: Settings) -> Facts:
    """Read the documents of recipes that pack: those of SQuAD, where the recipe names no other data set."""
    return {"documents": Documents(((SQUAD_TOKENS, 1.0),), assumed=True)} if settings.is_on(PACKED) else {}


def read_launch(text: str, given: Given = NOTHING) -> Settings:
    """Read a launch of a recipe: what the recipe sets, under the overrides of the command line.

    The recipe is that of the repository that the launch stands in, or of the package that is installed, or of
    the release of `tables/bridge_recipes.json`.
    """
    launch, overrides = megatron_bridge.overrides_of(text, given)
    name = str(launch.get("recipe", "$"))
    base = Settings() if name.startswith("$") else _recipe_called(name, given)
    if not base:
        return megatron_bridge.read_overrides(text, given)
    stated = Settings(megatron_settings(dict(overrides)))
    if overrides.get("mixed_precision"):
        base = Settings({key: value for key, value in base.items() if key not in OF_PRECISION})
    for one, other in (REDUCED, REDUCED[::-1]):
        if stated.is_on(one):
            base.pop(other, None)
    if launch.any_on("nproc_per_node", "nnodes", "nodes"):
        base = _scale_recipe(base, launch, stated)
    return Settings({**base, **launch, **stated, "recipe": name})


def _scale_recipe(base: Settings, launch: Settings, stated: Settings) -> Settings:
    """Return a recipe on the accelerators of a launch.

    Of one of Megatron-Bridge's benchmarks, whose name has its accelerators, the sequences of each
    data-parallel replica stay (0.6.0, scripts/training/run_recipe.py, _apply_benchmark_weak_scaling).
    """
    scaled = Settings(base)
    own = scaled.pop("world_size", None)
    gpus = megatron.read_gpus(launch).get("gpus", 0)
    merged = Settings({**base, **stated})
    if not own or not gpus or not base.is_on(BENCHMARK) or "global_batch_size" in stated:
        return scaled
    replicas = [
        count // prod(settings.number(name) for name in OF_REPLICA)
        for count, settings in ((int(own), base), (gpus, merged))
    ]
    scaled["global_batch_size"] = str(base.number("global_batch_size") * replicas[1] // max(replicas[0], 1))
    return scaled


def _recipe_called(name: str, given: Given) -> Settings:
    """Return what a recipe sets, and where that is known from; empty if it is not known."""
    folder = given.folder
    above = [] if folder is None else [folder.absolute(), *folder.absolute().parents]
    places = [base / part / "megatron/bridge" for part in ("src", "") for base in above]
    places += [Path(base, "megatron/bridge") for base in sys.path if base]
    for place in places:
        for part in PARTS_OF_PACKAGE:
            for file in sorted(place.glob(f"{part}/**/*.py")) if place.is_dir() else ():
                text = file.read_text(encoding="utf-8", errors="replace")
                if re.search(rf"(?m)^def {re.escape(name)}\(", text):
                    within = Given(recipe=name, folder=file.parent)
                    benchmark = {BENCHMARK: True} if part == BENCHMARKS else {}
                    return Settings({**read_recipe(text, within), **benchmark, RELEASE: str(file)})
    table = json.loads((files("traincast") / TABLE).read_text(encoding="utf-8"))
    found = table["recipes"].get(name)
    return Settings() if found is None else Settings({**found, RELEASE: table["version"]})


def assumptions(settings: Settings) -> tuple[str, ...]:
    """Return what is assumed: the file or release of a named recipe, and the documents that it packs."""
    notes = [OF_SQUAD] if settings.is_on(PACKED) else []
    notes += [
        f"{name} {value}: not set, what most models of Megatron-Bridge with experts have"
        for name, value in megatron.usual_dispatcher(settings, "alltoall").items()
    ]
    if not settings.is_on(RELEASE):
        return (*megatron_bridge.assumptions(settings), *notes)
    own = Settings({name: value for name, value in settings.items() if name != "recipe"})
    named = f"the recipe {settings.get('recipe')} is that of {settings[RELEASE]}"
    return (named, *megatron_bridge.assumptions(own), *notes)


def _checkpoint_name(built: Mapping[str, object], part: str) -> object:
    """Return the checkpoint or preset that a function makes a part from; empty for an instance of a class."""
    return "" if str(built.get(f"{part}.{CLASS}", ""))[:1].isupper() else built.get(f"{part}.{TEXT}")


def _text(value: object) -> str:
    """Return a value as an override spells it; types of PyTorch have the names of Megatron-LM's arguments."""
    if isinstance(value, list | tuple) and value:
        return f"[{','.join(map(str, value))}]"
    return "" if value in (None, []) else DTYPES.get(str(value), str(value))


class _Recipes(PythonProgram):
    """Recipes of a file, each of which begins with another one of the file or of Megatron-Bridge."""

    follows_calls = True

    def __init__(self, tree: ast.Module, variables: Mapping[str, object], folder: Path | None = None):
        super().__init__(tree, variables, folder)
        self.length = ""  # the one of `LENGTHS` that a recipe sets last

    def follows(self, name: str, words: list[object]) -> bool:
        """Return whether a function of another file is followed: one whose effect is not known."""
        known = name in KNOWN or name.endswith(tuple(CHANGES))
        return not (known or (name in PARTS and len(words) > 1))

    def is_recipe(self, built: object) -> bool:
        """Return whether a value is a recipe."""
        return isinstance(built, dict) and built.get(CLASS) == CONTAINER

    def evaluate_call(
        self, node: ast.Call, words: list[Any], given: dict[str, object], names: Mapping[str, Any]
    ) -> object:
        """Return what a call of Megatron-Bridge makes: a recipe, one that is changed, or a configuration."""
        name = called_name(node)
        if name in OPTIMIZERS:
            return [{"optimizer": OPTIMIZERS[name]}, Unread(name)]
        if recipe := next(filter(self.is_recipe, (*words, *given.values())), None):
            self._change(recipe, name, words)
            return recipe
        first = words[0] if words else None
        is_part = isinstance(first, dict) and (CLASS not in first or isinstance(node.args[0], ast.Attribute))
        if is_part or (isinstance(first, dict) and name in PARTS):  # of a recipe
            if name in PARTS and len(words) > 1:
                self.set_path(["", PARTS[name]], words[1], {"": first})
            else:
                self._open(name, ast.unparse(node.args[0]).rpartition(".")[2])
        if (begun := RECIPE.match(name)) and begun["model"] != "default":  # default_peft_config is LoRA
            peft = begun["kind"] == "peft"
            self._open(name)
            return _recipe({NAMED_MODEL: begun["model"], "recipe": name}, peft)
        if name in COMMON or name.endswith("_common"):
            known = dict(zip(BY_COMMON, COMMON.get(name, ()), strict=False))
            return _recipe(known | ({PACKED: True} if name in PACKING else {}), "peft" in name)
        owner = isinstance(node.func, ast.Attribute) and self.value(node.func.value, names, MAX_CALLS)
        said = [of.get(TEXT) or of.get(CLASS) if isinstance(of, dict) else of for of in (owner, first)]
        literals = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
        texts = (text for text in (*said, *literals) if isinstance(text, str) and type(text) is not Unread)
        return {CLASS: name, TEXT: next(texts, ""), **given}

    def _change(self, recipe: dict[str, object], name: str, words: list[object]) -> None:
        """Change a recipe as a function of Megatron-Bridge does; one that is not known is named."""
        batch = next((word for word in words if not isinstance(word, dict)), None)
        if changes := next((changes for end, changes in CHANGES.items() if name.endswith(end)), None):
            for path, value in changes.items():
                self.set_path(["", *path.split(".")], value, {"": recipe})
        elif "global_batch_size" in name and batch is not None:
            self.set_path(["", "train", "global_batch_size"], batch, {"": recipe})
        elif name != HARMLESS:
            self._open(name)

    def _open(self, name: str, part: str = "") -> None:
        """Note that a function which is not known may set what is not set after it."""
        if name in self.imports:
            name = f"{name} of {self.imports[name][0]}"
        self.open[name] = set(MAY_SET.get(part, " ".join(MAY_SET.values())).split())

    def doubts(self, text: str, statement: ast.stmt, names: Mapping[str, object]) -> None:
        """Note that a statement which is not followed may set what is not set after it."""
        paths = (path.split(".") for path in set_attributes(statement))
        named = {path[-1] for path in paths if not {*path[1:-1]} & {*HARMLESS_SECTIONS} and path[0] in names}
        changed = (node.value for node in ast.walk(statement) if isinstance(node, ast.Expr))
        words = (word for call in changed if isinstance(call, ast.Call) for word in call.args)
        if any(isinstance(names.get(ast.unparse(word).partition(".")[0]), dict) for word in words):
            self._open(text[:80])
        self.open[text[:80]] = self.open.get(text[:80], set()) | named

    def set_path(self, path: list[str], value: object, names: dict[str, object]) -> None:
        """Set a field of a recipe."""
        for named in self.open.values():
            named -= {path[-1], *(value if isinstance(value, dict) else ())}
        if (length := ".".join(path[1:])) in LENGTHS:
            self.length = length
        preset = self.get(path[:-1], names) if len(path) > 2 else None
        if isinstance(preset, str) and not isinstance(
            preset, Unread
        ):  # a name: a field of what it names is set
            super().set_path(path[:-1], {CLASS: preset}, names)
        made_by = value.get(CLASS, "") if isinstance(value, dict) else value
        if path[1:] in OPENED and (isinstance(value, Unread) or str(made_by)[:1].islower()):
            self._open(str(made_by), path[1])
        super().set_path(path, value, names)
        if path[1:] == ["comm_overlap", "tp_comm_overlap_cfg"] and value:
            self.get(path[:-1], names).setdefault("tp_comm_overlap", True)


def _recipe(settings: Mapping[str, object], peft: bool) -> dict[str, object]:
    """Return a recipe of Megatron-Bridge that a file does not hold."""
    return {CLASS: CONTAINER, **nested({**OF_ALL, **settings})} | ({"peft_scheme": "lora"} if peft else {})
