"""Conversions of Accelerate's settings that depend on each other; its table is `tables/accelerate.toml`."""

from collections.abc import Callable
from typing import Final

from traincast.core import InputError
from traincast.launch.frameworks import deepspeed
from traincast.launch.settings.beside import DEEPSPEED, deepspeed_settings
from traincast.launch.settings.facts import Facts, as_facts
from traincast.launch.settings.format import Writing
from traincast.launch.settings.settings import Settings, is_off, not_allowed
from traincast.launch.settings.table import Conversions, Values
from traincast.launch.settings.text_formats import TEXT_FORMATS

DEGREES: Final = "parallelism_config.parallelism_config_"
REPLICATE = f"{DEGREES}dp_replicate_size"
SHARD = f"{DEGREES}dp_shard_size"
MESH: Final = ("tp", "cp")
AXES: Final = (*MESH, "dp_replicate", "dp_shard", "sp")
OFFLOAD = "fsdp_config.fsdp_offload_params"
RECOMPUTE = "fsdp_config.fsdp_activation_checkpointing"
OFFLOADED: Final = f"{RECOMPUTE}_offload"
OFFLOAD_SAVED: Final = f"{RECOMPUTE}_offload"  # of what is recomputed: the inputs of layers
VERSION: Final = "fsdp_config.fsdp_version"
RESHARD: Final = "fsdp_config.fsdp_reshard_after_forward"
STRATEGY: Final = "fsdp_config.fsdp_sharding_strategy"
SEQUENCE: Final = f"{DEGREES}sp_size"
DISTRIBUTED_TYPES: Final = ("FSDP", "DEEPSPEED", "NO", "MULTI_GPU")  # the last two: one process, or DDP
DDP_TYPES: Final = (
    *(f"MULTI_{device}" for device in ("CPU", "NPU", "MLU", "SDAA", "MUSA", "XPU", "HPU", "NEURON")),
    *("XLA", "TPU"),  # TPU is how Accelerate before 0.27 names XLA
)  # accelerate/utils/dataclasses.py, DistributedType
NOT_READ: Final = {  # the others: of a cluster, and of Amazon SageMaker
    "MEGATRON_LM": "Accelerate's plugin for Megatron-LM is not read; check the launch with Megatron-LM's own"
    " arguments",
    "DATA_PARALLEL": "jobs of Amazon SageMaker are not read",
    "MODEL_PARALLEL": "jobs of Amazon SageMaker are not read",
}
PRECISIONS: Final = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8-current"}  # of `mixed_precision`
# Where nothing is mixed: weights, gradients and moments in the precision of most checkpoints, in which
# transformers 5 loads them (modeling_utils.py, from_pretrained: dtype = "auto").
AS_LOADED: Final[Facts] = {"precision": "bf16-pure", "grad_dtype": "16-bit", "optimizer_kind": "adam-bf16"}
FP8: Final = "fp8_config."
FP8_NAMES: Final = (  # arguments of `accelerate launch` behind fp8_ that programs do not have themselves
    *("amax_compute_algo", "amax_history_len", "format", "interval", "margin", "opt_level", "pad_inner_dim"),
    *("override_linear_precision", "use_autocast_during_eval", "use_mxfp8_block_scaling"),
)
# Of Accelerate's `deepspeed_config` -> of DeepSpeed.
DEEPSPEED_NAMES: Final = {
    "zero_stage": "zero_optimization.stage",
    "offload_optimizer_device": "zero_optimization.offload_optimizer.device",
    "offload_param_device": "zero_optimization.offload_param.device",
}
STAGE: Final = "zero_optimization.stage"
USUAL_STAGE: Final = 2  # of DeepSpeedPlugin (1.15.0, utils/dataclasses.py)
HYBRID_STRATEGIES: Final = ("HYBRID_SHARD", "HYBRID_SHARD_ZERO2")  # shard within a machine
ZERO_STAGES: Final = {  # of FSDP1's strategies, numbered from 1 (torch.distributed.fsdp.ShardingStrategy)
    "FULL_SHARD": 3,
    "SHARD_GRAD_OP": 2,
    "NO_SHARD": 0,
    "HYBRID_SHARD": 3,
    "HYBRID_SHARD_ZERO2": 2,
}
LOCAL: Final[Values] = {"compute_environment": "LOCAL_MACHINE", "machine_rank": 0}
# Neither FSDP nor meshes: DDP, which the launcher of several GPUs starts.
ON_CPUS: Final[Values] = {**LOCAL, "use_cpu": True, "distributed_type": "MULTI_GPU"}
# Software stacks: eager, compiled by `dynamo_config`, and of DeepSpeed.
EAGER_STACK = "huggingface-eager"
COMPILED_STACK = "torchtitan-2025"
DEEPSPEED_STACK = "deepspeed-2025"
DYNAMO: Final = ("dynamo_config.dynamo_backend", "dynamo_config.backend", "dynamo_backend")
COMPILES: Final = "inductor"  # the backend that fuses kernels; eager and aot_eager run them one by one
# str_to_bool
TRUE = ("y", "yes", "t", "true", "on", "1")
FALSE = ("n", "no", "f", "false", "off", "0")


def writer(write: Callable[[Writing], str]) -> Callable[[Writing], str]:
    """Return a writer that leaves FSDP out on CPUs, where Accelerate refuses it, and with DeepSpeed."""

    def on_device(writing: Writing) -> str:
        settings = dict(writing.all_settings)
        further = LOCAL
        if writing.facts.get("device") == "cpu":
            names = {"num_machines", "num_processes", "mixed_precision"}
            settings = {name: settings[name] for name in settings if name in names}
            further = ON_CPUS
        elif settings.get("distributed_type") != "DEEPSPEED":
            return write(writing)
        return TEXT_FORMATS[".yaml"].write({**settings, **further}, writing.head)

    return on_device


def is_true(settings: Settings, name: str, default: bool = False) -> bool:
    """Return whether a switch is on, in the words that Accelerate takes (utils/other.py, str_to_bool)."""
    word = str(settings.get(name, default)).lower()
    if is_off(settings.get(name, default)) or word in FALSE:
        return False
    if word not in TRUE:
        raise not_allowed(name, settings[name], ("true", "false"))
    return True


def write_machines(facts: Facts) -> Values:
    """Write machines and processes."""
    return {"num_machines": facts["gpus"] // facts["per_node"], "num_processes": facts["gpus"]}


def read_machines(settings: Settings) -> Facts:
    """Read processes, one per accelerator: one with `distributed_type` NO, as many as are given at -1.

    commands/launch.py: NO starts the simple launcher, which leaves `num_processes` alone.
    """
    if str(settings.get("distributed_type")).upper() == "NO":
        return {"gpus": 1}
    return {"gpus": size} if (size := settings.size("num_processes")) else {}


def write_compilation(facts: Facts) -> Values:
    """Write that the model is compiled, where its software stack is."""
    return {DYNAMO[0]: COMPILES.upper()} if facts.get("stack") == COMPILED_STACK else {}


def write_data(facts: Facts) -> Values:
    """Write degrees of data parallelism: DDP where nothing is sharded; or the stage of DeepSpeed."""
    zero = facts.get("zero", 0)
    if on_deepspeed(facts):
        stage = {"distributed_type": "DEEPSPEED", f"{DEEPSPEED}zero_stage": zero}
        return {} if facts.get("replicas", 1) > 1 else stage
    replicas = facts.get("replicas", 1) if zero else facts["dp"]
    if facts["dp"] % replicas:
        return {}
    # of a mesh without shards FSDP2 would stop (1.15.0, parallelism_config.py, _validate_accelerator)
    fsdp = {"distributed_type": "FSDP", VERSION: 2, RESHARD: zero == 3}
    kind = fsdp if zero > 1 else {"distributed_type": "MULTI_GPU"}
    return {REPLICATE: replicas, SHARD: facts["dp"] // replicas, **kind}


def distributed_type(settings: Settings) -> str:
    """Return what distributes the training: a word of `DISTRIBUTED_TYPES`."""
    name = str(settings["distributed_type"]).upper() if settings.is_on("distributed_type") else "NO"
    if name in NOT_READ:
        raise InputError("distributed_type", [f"distributed_type = {name}: {NOT_READ[name]}"])
    if name not in (*DISTRIBUTED_TYPES, *DDP_TYPES):
        raise not_allowed("distributed_type", name, (*DISTRIBUTED_TYPES, *DDP_TYPES))
    return "MULTI_GPU" if name in DDP_TYPES else name


def native_deepspeed(settings: Settings) -> Settings:
    """Return what is set of DeepSpeed, in its own names, with the stage that Accelerate sets."""
    written = deepspeed_settings(settings, DEEPSPEED_NAMES)
    return Settings({**written, STAGE: USUAL_STAGE}) if leaves_stage(settings) else written


def mixed_precision(settings: Settings) -> str:
    """Return the precision of products, empty where nothing mixes them; DeepSpeed's counts first."""
    if written := deepspeed.mixed_precision(native_deepspeed(settings)):
        return written
    mixed = settings.get("mixed_precision")
    word = "no" if is_off(mixed) else str(mixed).lower()
    if word not in ("no", *PRECISIONS):
        raise not_allowed("mixed_precision", mixed, ("no", *PRECISIONS))
    backend = settings.choice(f"{FP8}backend", ("AO", "TE", "MSAMP", "MS-AMP"), "AO")
    if word == "fp8" and backend == "TE":  # delayed scales (utils/transformer_engine.py); torchao's: current
        return "mxfp8" if settings.is_on(f"{FP8}use_mxfp8_block_scaling") else "fp8"
    return PRECISIONS.get(word, "")


def write_precision(facts: Facts) -> Values:
    """Write the mixed precision: none where weights are trained as they are loaded."""
    word = {"bf16": "bf16", "fp16": "fp16", "bf16-pure": "no"}.get(facts["precision"])
    return {} if word is None else {"mixed_precision": word}


def read_precision(settings: Settings) -> Facts:
    """Read the precision: where nothing is mixed, that in which the program loads the model.

    DeepSpeed takes weights to be in fp32 where its configuration turns on neither bf16 nor fp16
    (runtime/engine.py, get_data_types).
    """
    if mixed := mixed_precision(settings):
        return {"precision": mixed}
    return {"precision": "fp32"} if distributed_type(settings) == "DEEPSPEED" else AS_LOADED.copy()


def assumptions(settings: Settings) -> tuple[str, ...]:
    """Return the defaults of what a file leaves out, and the precision where nothing is mixed."""
    kind = distributed_type(settings)
    notes = []
    used = [("zero_stage", str(USUAL_STAGE))] if leaves_stage(settings) else []
    if kind == "FSDP" and not has_mesh(settings):
        used = [(VERSION, "1")] if VERSION not in settings else []
        is_first = str(settings.get(VERSION, 1)) == "1"
        used += [(STRATEGY, "FULL_SHARD") if is_first else (RESHARD, "true")]
    used += [(DYNAMO[0], "no")] if kind != "DEEPSPEED" and not settings.any_on(*DYNAMO) else []
    absent = (f"{name.rpartition('.')[2]} {value}" for name, value in used if name not in settings)
    if words := ", ".join(absent):
        notes.append(f"{words}: defaults of Accelerate, not set in the file")
    if kind == "FSDP":
        notes += _refused_offload(settings)
    if mixed_precision(settings):
        return tuple(notes)
    said = "as mixed_precision is no" if "mixed_precision" in settings else "without mixed_precision"
    if kind == "DEEPSPEED":
        notes.append(
            f"the program loads the model in fp32, {said} and DeepSpeed's configuration has no other"
        )
    else:
        notes.append(
            f"{said}, weights, gradients and optimizer states are in the dtype that the program loads the"
            " model in: bf16, that of most checkpoints"
        )
    return tuple(notes)


def _refused_offload(settings: Settings) -> list[str]:
    """Return why Accelerate refuses to offload checkpointed activations (1.15, utils/dataclasses.py)."""
    if not is_true(settings, OFFLOADED) or str(settings.get(VERSION, 1)) == "2":
        return []
    needed = f"{OFFLOADED.rpartition('.')[2]} needs {VERSION.rpartition('.')[2]}: 2"
    return [f"Accelerate refuses this launch; the answer is as if it ran: {needed}"]


def read_data(settings: Settings) -> Facts:
    """Read data parallelism and what is sharded; without degrees FSDP shards over all processes."""
    if distributed_type(settings) == "DEEPSPEED":
        return _read_deepspeed_data(settings)
    if not has_mesh(settings):
        is_one = SHARD in settings and settings.count("num_processes") == 1
        return {"dp": 1, "zero": 0} if is_one else _read_without_degrees(settings)
    fsdp_zero = 3 if is_true(settings, RESHARD, default=True) else 2  # parallelism_config is of FSDP2
    replicas = settings.number(REPLICATE)
    shards = settings.number(SHARD)
    sharded = shards * settings.number(f"{DEGREES}cp_size") > 1
    facts: Facts = {"dp": replicas * shards, "zero": fsdp_zero if sharded else 0}
    return facts | ({"replicas": replicas} if replicas > 1 and sharded else {})


def has_mesh(settings: Settings) -> bool:
    """Return whether a ParallelismConfig states a mesh: with all sizes at 1, the default, there is none."""
    return any(settings.count(f"{DEGREES}{axis}_size") > 1 for axis in AXES)


def _read_without_degrees(settings: Settings) -> Facts:
    """Read what is sharded without a ParallelismConfig: FSDP1, the default, with a strategy; FSDP2; or DDP.

    FSDP2 takes no strategy, and FSDP1 no `fsdp_reshard_after_forward` beside its strategy, which is
    FULL_SHARD where none is given (utils/dataclasses.py, FullyShardedDataParallelPlugin).
    """
    if distributed_type(settings) != "FSDP":
        return {"zero": 0}
    strategy = _strategy(settings)
    if settings.choice(VERSION, ("1", "2"), "1") == "2":
        return {"zero": 3 if is_true(settings, RESHARD, default=True) else 2}
    machines = settings.number("num_machines")
    hybrid = strategy in HYBRID_STRATEGIES and machines > 1
    facts: Facts = {"zero": ZERO_STAGES[strategy]}
    return facts | ({"replicas": machines} if hybrid else {})


def _strategy(settings: Settings) -> str:
    """Return FSDP1's strategy, which is a word or its number; FULL_SHARD by default."""
    given = settings[STRATEGY] if settings.is_on(STRATEGY) else "FULL_SHARD"
    numbered = dict(zip(map(str, range(1, len(ZERO_STAGES) + 1)), ZERO_STAGES, strict=True))
    strategy = numbered.get(str(given), str(given).upper())
    if strategy not in ZERO_STAGES:
        raise not_allowed(STRATEGY, given, (*ZERO_STAGES, f"or 1 to {len(ZERO_STAGES)}"))
    return strategy


def _read_deepspeed_data(settings: Settings) -> Facts:
    """Read data parallelism with DeepSpeed, whose configuration states what is sharded."""
    if not has_mesh(settings):
        return {}
    return {"dp": settings.number(REPLICATE) * settings.number(SHARD)}


def leaves_stage(settings: Settings) -> bool:
    """Return whether DeepSpeed's stage is Accelerate's own: no configuration of either states it."""
    if str(settings.get("distributed_type")).upper() != "DEEPSPEED":
        return False
    written = [name.removeprefix(DEEPSPEED) for name in settings if name.startswith(DEEPSPEED)]
    is_native = any("." in name or name in deepspeed.BATCH for name in written)
    return not is_native and "zero_stage" not in written and "deepspeed_config_file" not in written


def write_mesh(facts: Facts) -> Values:
    """Write the tensor- and context-parallel degrees, which meshes with FSDP have."""
    return {} if on_deepspeed(facts) else {f"{DEGREES}{axis}_size": facts[axis] for axis in MESH}


def read_mesh(settings: Settings) -> Facts:
    """Read the tensor- and context-parallel degrees."""
    return as_facts({axis: settings.number(f"{DEGREES}{axis}_size") for axis in MESH})


def write_memory(facts: Facts) -> Values:
    """Write what is recomputed and offloaded; with DeepSpeed the training program recomputes."""
    if on_deepspeed(facts):
        names = {new: f"{DEEPSPEED}{name}" for name, new in DEEPSPEED_NAMES.items()}
        return {names[name]: device for name, device in deepspeed.write_offload(facts).items()}
    offloaded = facts["offload"]
    switches = {RECOMPUTE: facts["recompute"] == "full", OFFLOAD: "optimizer+weights" in offloaded}
    switches[OFFLOAD_SAVED] = facts["recompute"] == "full" and "activations" in offloaded.split("+")
    return {name: on for name, on in switches.items() if on}


def read_memory(settings: Settings) -> Facts:
    """Read what FSDP recomputes and offloads; the rows of DeepSpeed's configuration read its devices."""
    recomputes = is_true(settings, RECOMPUTE)
    offloaded = ["activations"] if is_true(settings, OFFLOAD_SAVED) else []
    if offloaded and not recomputes:  # as Accelerate has it: utils/dataclasses.py
        raise InputError(OFFLOAD_SAVED, [f"{OFFLOAD_SAVED} = true: needs {RECOMPUTE}"])
    offloaded += ["optimizer+weights"] if is_true(settings, OFFLOAD) else []
    return {"recompute": "full" if recomputes else "none", "offload": "+".join(offloaded) or "none"}


def on_deepspeed(facts: Facts) -> bool:
    """Return whether DeepSpeed shards, by the software stack of a launch."""
    return facts.get("stack") == DEEPSPEED_STACK


def read_sequence(settings: Settings) -> Facts:
    """Read sequence parallelism of DeepSpeed (Ulysses)."""
    degree = settings.number(SEQUENCE)
    return {"cp": degree, "cp_kind": "ulysses"} if degree > 1 else {}


def read_accumulation(settings: Settings) -> Facts:
    """Read gradient accumulation steps."""
    return {"accumulation": number} if (number := settings.count("gradient_accumulation_steps")) else {}


def stack(settings: Settings) -> str:
    """Return the software stack: that of DeepSpeed, or of a program that runs eagerly, or is compiled."""
    if str(settings.get("distributed_type", "")).upper() == "DEEPSPEED":
        return DEEPSPEED_STACK
    compiled = any(str(settings.get(name)).lower() == COMPILES for name in DYNAMO)
    return COMPILED_STACK if compiled else EAGER_STACK


# By the names that the table has for them.
CONVERSIONS: Final = Conversions(
    read={
        "machines": read_machines,
        "precision": read_precision,
        "data": read_data,
        "mesh": read_mesh,
        "memory": read_memory,
        "sequence": read_sequence,
        "accumulation": read_accumulation,
    },
    write={
        "machines": write_machines,
        "compilation": write_compilation,
        "data": write_data,
        "precision": write_precision,
        "mesh": write_mesh,
        "memory": write_memory,
    },
)
