"""ms-swift: `swift sft`, `pt` and `rlhf` on Hugging Face's Trainer, and `megatron sft` on Megatron-Core.

Names and defaults are those of ms-swift 4.6.0: swift/arguments, swift/trainers/arguments.py and
swift/megatron/arguments/megatron_args.py; what starts the processes is in swift/cli/main.py.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from math import gcd
from typing import Any, Final, NamedTuple

from traincast.catalog import load_model, parse_document, read_document
from traincast.core import InputError
from traincast.launch.frameworks.checkpoints import NAMED_MODEL, model_called
from traincast.launch.scripts.bash import arguments, directives, read_script
from traincast.launch.settings.beside import find_file
from traincast.launch.settings.canonical import FULL_LENGTH
from traincast.launch.settings.given import NOTHING, Given, choose_run
from traincast.launch.settings.settings import Settings, flatten, is_off, value_text
from traincast.launch.settings.table import Values, load_document

KINDS: Final = ("sft", "pt", "rlhf")
PROGRAM: Final = re.compile(r"(?:.*[/.])?swift[/.]cli[/.](?:_megatron[/.])?(sft|pt|rlhf)(?:\.py)?")
COMMANDS: Final = ("swift", "megatron")
CONFIGURATIONS: Final = (".yaml", ".yml", ".json")
ENVIRONMENT: Final = {"NPROC_PER_NODE": "nproc_per_node", "NNODES": "nnodes"}
DEVICES: Final = "CUDA_VISIBLE_DEVICES"
SPLIT: Final = "cuda_visible_devices"  # setting: devices over which one process splits the layers
ADAPTED: Final = ("tuner_type", "train_type", "sft_type")  # in releases 4, 3 and 2
LORA: Final = {"lora_rank": 8, "lora_dropout": 0.05, "target_modules": "all-linear"}  # tuner_args.py
PRESET: Final = "fsdp2"  # of FSDP, the only one
FULL_SHARD: Final = "full_shard auto_wrap"
HALVES: Final = ("float16", "float32")  # dtypes of weights with which products are in fp16 (model_args.py)
EXPERTS: Final = "expert_model_parallel_size"
OF_EXPERTS: Final = ("moe_token_dispatcher_type", "moe_grouped_gemm", "expert_tensor_parallel_size")
SHARDING: Final = "data_parallel_sharding_strategy"
MCORE: Final = re.compile(r"-mcore(?:-\w+)?$")  # end of the name of a checkpoint in Megatron-Core's format


class Run(NamedTuple):
    """A training that a file describes."""

    kind: str  # one of `KINDS`
    own: Settings  # its arguments
    variables: Mapping[str, str]  # of its environment


def run_of(text: str, given: Given = NOTHING) -> Run:
    """Return the training of a script or of a YAML, or the one that is meant of several.

    Raises
    ------
    InputError
        If there are several and none is named, or a configuration that it names is not there.
    """
    with suppress(InputError):
        document = parse_document(text, "yaml", repeated=True)
        if document and not any(" " in str(name) for name in document):
            return _of_document(document, "rlhf" if "rlhf_type" in document else "sft")
    script = read_script(text, given)
    everything = {name: " ".join(words) for name, words in script.values.items()}
    runs: dict[str, Run] = {}
    for command in script.commands:
        place, kind = _find_start(command.words)
        if not kind:
            continue
        run = _of_words(command.words[place:], kind, given)
        launcher = arguments(command.words[:place])
        own = Settings({**directives(text), **launcher, **run.own})
        runs[str(len(runs) + 1)] = Run(kind, own, {**run.variables, **everything, **command.variables})
    if not runs:
        return Run("sft", directives(text), everything)
    same = len({str(run.own) for run in runs.values()}) == 1
    return runs["1" if same else choose_run(runs, given.recipe)]


def _find_start(words: list[str]) -> tuple[int, str]:
    """Return where the arguments of ms-swift begin in a command, and what it trains; empty if nothing."""
    for place, word in enumerate(words):
        if match := PROGRAM.fullmatch(word):
            return place + 1, match[1]
        following = words[place + 1] if place + 1 < len(words) else ""
        if word.rpartition("/")[2] in COMMANDS and following in KINDS:
            return place + 2, following
    return 0, ""


def _of_words(words: list[str], kind: str, given: Given) -> Run:
    """Return the training of the words behind a command: of a configuration, and of further arguments."""
    if not words or not words[0].endswith(CONFIGURATIONS):
        return Run(kind, arguments(words), {})
    file = None if given.folder is None else find_file(words[0], given.folder)
    if file is None:
        raise InputError(words[0], [f"{words[0]}: there is no such file beside this one; check it instead"])
    run = _of_document(read_document(file), kind)
    return run._replace(own=Settings({**run.own, **arguments(words[1:])}))


def _of_document(document: Mapping[str, Any], kind: str) -> Run:
    """Return the training of a configuration, which may set its environment under ENV."""
    environment = document.get("ENV")
    variables = environment if isinstance(environment, Mapping) else {}
    own = Settings({name: value for name, value in document.items() if name != "ENV"})
    return Run(kind, own, {str(name): str(value) for name, value in variables.items()})


def _processes(run: Run) -> Settings:
    """Return the machines and processes that the environment asks for.

    Without NPROC_PER_NODE one process is started, which splits the layers over all devices that it sees
    (cli/main.py; swift/utils, is_mp).
    """
    settings = Settings()
    for variable, name in ENVIRONMENT.items():
        if not is_off(run.variables.get(variable)):
            settings[name] = run.variables[variable]
    devices = [device for device in run.variables.get(DEVICES, "").split(",") if device.strip()]
    processes = str(settings.get("nproc_per_node", run.own.get("nproc_per_node", "")))
    if not processes:
        if len(devices) != 1 or "nnodes" in settings:
            settings = Settings()
        else:
            settings["nproc_per_node"] = processes = "1"
    one_each = len(devices) <= int(processes or 1) if processes.isdecimal() or not processes else True
    return settings if one_each else Settings({**settings, SPLIT: ",".join(devices)})


def _pair(name: str, value: Any) -> Any:
    """Return a value that is a JSON text as what it says."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        with suppress(ValueError):
            return json.loads(value)
    return value


def _with_modules(own: Settings) -> Settings:
    """Return settings whose modules of adapters are all linear layers, or a list of names."""
    settings = Settings(own)
    modules = settings.get("target_modules", LORA["target_modules"])
    listed = list(modules) if isinstance(modules, list | tuple) else [modules]
    if listed == [LORA["target_modules"]]:
        settings.pop("target_modules", None)
        settings["lora_target_linear"] = True
    return settings


def read_trainer(text: str, given: Given = NOTHING) -> Settings:
    """Return the settings of `swift sft`, `pt` or `rlhf`, most of them in its own names."""
    run = run_of(text, given)
    own = Settings({name: _pair(name, value) for name, value in run.own.items()})
    settings = _with_modules(Settings({**_processes(run), **own}))
    objective = settings.get("rlhf_type", "dpo") if run.kind == "rlhf" else "sft"
    settings["rlhf_type"] = objective
    if settings.is_on("packing") and settings.is_on("packing_length"):
        settings["max_length"] = settings["packing_length"]
    settings = _with_fsdp(settings, given)
    dtype = str(settings.get("torch_dtype", "")).removeprefix("torch.")
    if dtype in HALVES and not {"bf16", "fp16"} & settings.keys():
        settings |= {"bf16": False, "fp16": True}
    return flatten(settings)


def _with_fsdp(own: Settings, given: Given) -> Settings:
    """Return settings with what a configuration of FSDP says: a preset's, a file's, or one in their place.

    It holds both of the Trainer's settings, `fsdp` and `fsdp_config`, and replaces the latter (sft_args.py,
    _init_fsdp).
    """
    named = own.get("fsdp")
    if isinstance(named, str) and named.endswith(CONFIGURATIONS):
        file = None if given.folder is None else find_file(named, given.folder)
        if file is None:
            raise InputError("fsdp", [f"fsdp = {named}: there is no such file beside this one"])
        named = read_document(file)
    if named != PRESET and not isinstance(named, Mapping):
        return own
    settings = Settings({name: value for name, value in own.items() if not name.startswith("fsdp")})
    if not isinstance(named, Mapping):
        return Settings({**settings, "fsdp": named})
    settings["fsdp"] = named.get("fsdp", FULL_SHARD)
    further = named.get("fsdp_config")
    return Settings({**settings, **flatten({"fsdp_config": further if isinstance(further, Mapping) else {}})})


def ulysses(checkpoint: str, degree: int) -> int:
    """Return the ranks that exchange heads of those that share a sequence; rings are over the others.

    They are the greatest common divisor of the degree and the key and value heads (sequence_parallel.py,
    _init_device_mesh); all ranks where the model of a checkpoint is not known.
    """
    with suppress(InputError):
        return gcd(load_model(model_called("model", checkpoint)).groups, degree)
    return degree


# On Megatron-Core


def read_megatron(text: str, given: Given = NOTHING) -> Settings:
    """Return the settings of `megatron sft`, `pt` or `rlhf`, with the names of Megatron-LM and its own."""
    run = run_of(text, given)
    settings = Settings({**_processes(run), **run.own})
    settings.pop(SPLIT, None)
    if run.kind == "rlhf":
        settings.setdefault("rlhf_type", "dpo")
    if settings.is_on("packing") and settings.is_on("packing_length"):
        settings["max_length"] = settings["packing_length"]
    for name in ("model", "mcore_model", "load"):
        if settings.is_on(name):
            settings[NAMED_MODEL] = MCORE.sub("", str(settings[name]).rstrip("/"))
            break
    if not settings.is_on("bf16") and not settings.is_on("fp16"):
        dtype = str(settings.get("torch_dtype", "bfloat16")).removeprefix("torch.")
        settings["fp16" if dtype in HALVES else "bf16"] = True
    if settings.is_on("bf16") and str(settings.get("main_grads_dtype", "fp32")) == "fp32":
        settings["accumulate_allreduce_grads_in_fp32"] = True
    settings.setdefault("mtp_num_layers", 0)  # also of a checkpoint that has prediction heads
    if str(settings.get("recompute_granularity")) == "none":
        settings["recompute_granularity"] = None
    if str(settings.get("attention_backend", "")).startswith("flash_"):
        settings["attention_backend"] = "flash"
    if not str(settings.get("tensor_model_parallel_size", 1)).isdecimal():
        return settings
    if int(settings.get("tensor_model_parallel_size", 1)) == 1:
        settings.pop("sequence_parallel", None)
    return _with_adapters(settings)


def _with_adapters(own: Settings) -> Settings:
    """Return settings with adapters in the names of Megatron-Bridge."""
    settings = Settings(own)
    kind = next((str(settings.pop(name)) for name in ADAPTED if name in settings), "full")
    with_adapters = any(settings.is_on(name) for name in ("adapters", "mcore_adapter"))
    if kind == "full" and not with_adapters:
        return settings
    settings["peft_scheme"] = "lora" if kind == "full" else kind
    settings["peft.dim"] = settings.pop("lora_rank", LORA["lora_rank"])
    settings["peft.dropout"] = settings.pop("lora_dropout", LORA["lora_dropout"])
    settings["peft.target_modules"] = settings.pop("target_modules", LORA["target_modules"])
    return settings


def defaults(settings: Settings) -> Values:
    """Return what `megatron sft` has where a file leaves it out, of what the prediction depends on."""
    usual: Values = load_document("dialects")["ms-swift-megatron"]["defaults"]
    needless = [] if settings.is_degree(EXPERTS) else list(OF_EXPERTS)
    needless += [] if settings.is_on("use_megatron_fsdp") else [SHARDING]
    needless += ["recompute_modules"] if str(settings.get("recompute_granularity")) == "full" else []
    return {name: value for name, value in usual.items() if name not in (*settings, *needless)}


def assumptions(settings: Settings) -> tuple[str, ...]:
    """Return what is assumed of `megatron sft`: its defaults."""
    usual = ", ".join(f"{name} {value_text(value)}" for name, value in defaults(settings).items())
    notes = [f"{usual}: defaults of ms-swift, not set in the file"] if usual else []
    dtype = "torch_dtype"
    if settings.is_on("bf16") and not settings.is_on(dtype):
        notes.append("weights and products are in bf16, the dtype of most checkpoints")
    return (*notes, FULL_LENGTH[settings.is_on("packing")])
