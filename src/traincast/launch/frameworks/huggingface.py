"""Fine-tuning with Hugging Face's Trainer: TRL, axolotl and LLaMA-Factory; table `tables/huggingface.toml`.

Settings have the names of TrainingArguments, TRL and Accelerate. A program's own names are translated when a
file is read, and back when one is written.
"""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, TypeAlias

from traincast.catalog import parse_document, repository
from traincast.core import InputError
from traincast.launch.frameworks import accelerate, deepspeed, ms_swift
from traincast.launch.frameworks.adapters import module_names, probability, targets_of
from traincast.launch.frameworks.checkpoints import model_called
from traincast.launch.scripts import bash
from traincast.launch.settings.beside import DEEPSPEED, ENDINGS, FSDP, MODEL, fsdp_setting
from traincast.launch.settings.canonical import FILLED
from traincast.launch.settings.facts import Facts, as_facts
from traincast.launch.settings.format import Writing
from traincast.launch.settings.given import NOTHING, Given
from traincast.launch.settings.settings import Settings, flatten, is_off, not_allowed
from traincast.launch.settings.table import Conversions, Values, load_document, matches
from traincast.launch.settings.text_formats import TEXT_FORMATS
from traincast.launch.settings.unread_settings import unread_rules
from traincast.model import MODULE_TARGETS, PEFT_DEFAULT, Adapters

BATCH = "per_device_train_batch_size"
ACCUMULATION = "gradient_accumulation_steps"
SEQ: Final = ("max_length", "max_seq_length")
# Arguments of programs on the Trainer alone: of Alpaca, FastChat and LLaVA, of run_clm.py, and of others.
LENGTHS: Final = ("model_max_length", "block_size", *SEQ, "cutoff_len", "seq_length", "max_source_length")
PAIRS: Final = ("dpo", "ipo", "orpo", "simpo", "cpo")  # objectives on two answers; the first two: a reference
WITH_REFERENCE: Final = ("dpo", "ipo")
DTYPES: Final = {  # true: of the switch pure_bf16; auto: that of the checkpoint, bf16 of most
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "auto": "bf16",
    "true": "bf16",
}
LOADING: Final = "model_init_kwargs."  # of TRL: count before its own arguments (trl/scripts/sft.py)
# Of transformers 5.23, training_args.py: the second, deprecated name counts where the first has no value.
# What belongs to them has the names with KWARGS.
CHECKPOINTING: Final = ("activation_checkpointing", "gradient_checkpointing")
KWARGS: Final = "_kwargs."
OPTIMIZERS: Final = {  # of `optim`; paged states are on the device as long as there is room
    "adam": "adamw_torch_fused adamw_torch adamw_hf adamw_apex_fused adamw_torch_xla paged_adamw_32bit"
    " paged_adamw adamw_torch_npu_fused",
    "adam-8bit": "adamw_bnb_8bit adamw_8bit adamw_torch_8bit ao_adamw_8bit paged_adamw_8bit",
    "adam-4bit": "adamw_torch_4bit ao_adamw_4bit",
    "lion": "lion_32bit paged_lion_32bit",
    "muon": "muon",
}
KNOWN_OPTIMIZERS: Final = {name: kind for kind, names in OPTIMIZERS.items() for name in names.split()}
LAYERS: Final[Mapping[Any, str]] = {  # target -> linear layer of most models of transformers
    **{
        target: name
        for name, target in reversed([*MODULE_TARGETS.items()])
        if name.endswith(("_proj", "lm_head"))
    },
    "proj": "o_proj",
    "kv_down": "kv_a_proj_with_mqa",
    "router": "gate",
    "shared_gate": "shared_expert_gate",
}
ON_DEEPSPEED: Final = {  # stack -> with DeepSpeed
    "huggingface-eager": "huggingface-deepspeed",
    "huggingface-eager+loss=chunked": "huggingface-deepspeed+loss=chunked",
    "huggingface-fused-loss": "huggingface-deepspeed-fused-loss",
}
# Words of a command line that are objectives of TRL, and how its classes are called (1.10 to 1.16).
CLASSES: Final = {
    **{word: word.upper() for word in ("sft", "dpo", "orpo", "cpo", "kto", "grpo", "rloo", "ppo")},
    **{word: word.upper() for word in ("bco", "xpo", "tpo", "prm", "gkd", "gold", "sdft", "sdpo", "ssd")},
    **{word: word.upper() for word in ("a2po", "gmpo")},
    "reward": "Reward",
    "online_dpo": "OnlineDPO",
    "nash_md": "NashMD",
    "async_grpo": "AsyncGRPO",
    "grpo_with_replay_buffer": "GRPOWithReplayBuffer",
    "minillm": "MiniLLM",
    "iw_opd": "IWOPD",
    "distillation": "Distillation",
    "async_distillation": "AsyncDistillation",
    "server_distillation": "ServerDistillation",
}
SIGNS_OF_DPO: Final = ("beta", "precompute_ref_log_probs", "max_prompt_length", "ref_model_init_kwargs")
# Arguments of `accelerate launch` without effect where neither `--use_parallelism_config` nor its
# configuration makes a mesh (accelerate 1.15.0, commands/launch.py, _validate_launch_command).
FLAT_DEGREES: Final = "parallelism_config_"
FLAT: Final = {  # arguments of `accelerate launch` -> names in its configuration
    **{name: f"{DEEPSPEED}{name}" for name in (*accelerate.DEEPSPEED_NAMES, "deepspeed_config_file")},
    **{f"fp8_{name}": f"{accelerate.FP8}{name}" for name in accelerate.FP8_NAMES},
}
# An argument of releases of transformers before PyTorch 2.8: deprecated since 4.41 (May 2024), gone in April
# 2025 (huggingface/transformers, issue 7974; PyTorch 2.8 is of August).
REMOVED_ARGUMENT: Final = "evaluation_strategy"
TABLE: Final = load_document("huggingface")
PRESETS: Final = {name: flatten(preset) for name, preset in TABLE["presets"].items()}  # of accelerate_config
# What transformers gives Accelerate itself where its own `fsdp` is on (5.23, training_args.py).
OF_TRAINERS_FSDP: Final = (accelerate.VERSION, accelerate.RESHARD, accelerate.STRATEGY)
PRESET_OF_FSDP: Final = (f"{FSDP}version", f"{FSDP}auto_wrap_policy")  # what fsdp2 sets as exports do
READ_OF_ACCELERATE: Final = (
    *("dp", "zero", "replicas", "shards", "tp", "cp", "cp_kind", "offload", "dp_overlap"),
    *("pp", "vp", "order", "tp_kind"),
)
OF_DEEPSPEED: Final = ("zero", "replicas", "offload", "dp_overlap")  # facts that its configuration states


OwnText: TypeAlias = Callable[[str, Given], Settings]


@dataclass(frozen=True, kw_only=True)
class TrainerProgram:
    """What differs between programs on the Trainer, as in the table; its methods convert the settings."""

    name: str  # of the format
    usual: Values  # of settings that a file does not have
    adapted: Values  # the setting with which adapters are trained, and its value
    weights: str = ""  # settings of the precision in which weights are loaded; if empty, that of products
    loaded: str = "fp32"  # precision in which weights are loaded, where none is stated
    frozen: str = "fp32"  # that of weights that adapters leave as they are
    # Pattern of a program's path -> setting of the length, its default [tokens], and the source of that.
    lengths: Mapping[str, tuple[str, int, str]] = field(default_factory=dict)
    has_meshes: bool = False  # whether it takes degrees of parallelism itself
    fsdp_by_options: bool = False  # whether an option of FSDP turns it on
    starts: bool = False  # whether it starts the processes
    fills: int = 0  # sequences of a step that accumulation steps make where none are stated, on all ranks
    exchanges_heads: bool = False  # whether ranks that share a sequence exchange heads (Ulysses) first
    # Setting -> word -> the settings that it stands for, of files that come with the program
    presets: Mapping[str, Mapping[str, Values]] = field(default_factory=dict)
    recomputes_unless: str = ""  # the setting without which the program itself recomputes layers, if it does
    joined: bool = False  # whether names of modules are one text
    all_layers: str = "all"  # what adapters of all layers stand in: a group of `model.adapters`
    own_stack: str = ""  # software stack of a plain launch, where it is not that of the Trainer
    converts_experts: bool = True  # whether its PEFT finds experts that transformers stacks: since 0.19
    names: Mapping[str, str] = field(default_factory=dict)  # its own -> those of the Trainer
    prefixes: Mapping[str, str]  # of names of the Trainer and Accelerate -> its own
    # Settings that it writes: `always`, for packed documents, adapters and so on; then by fact and value
    writes: Mapping[str, Values]
    values: Mapping[str, Mapping[str, Values]]
    # Facts of Accelerate's settings
    accelerate: Callable[[Settings], Facts] = lambda _: {}
    # Reader of a text in its own names, where it is no plain configuration or command line
    own_text: OwnText | None = None

    # reading and writing text

    def read(self, text: str, given: Given = NOTHING) -> Settings:
        """Read a configuration, or the arguments of a script."""
        settings = _with_parts(self._read_own(text, given))
        preset = _preset(settings)
        for name, meanings in self.presets.items():
            if str(settings.get(name)) in meanings:
                preset |= flatten(meanings[str(settings.pop(name))])
        meshless = not settings.is_on("use_parallelism_config")
        common = {self._common(name, meshless): value for name, value in settings.items()}
        return Settings({**preset, **common})

    def _read_own(self, text: str, given: Given) -> Settings:
        """Read a configuration, or the arguments of a script, in the program's own names."""
        if self.own_text is not None:
            return self.own_text(text, given)
        try:
            document = parse_document(text, "yaml", repeated=True)
        except InputError:
            document = {}
        is_command = any(" " in str(name) for name in document)  # with JSON in it, which looks like YAML
        if document and not is_command:
            settings = flatten(document)
        else:
            settings = bash.settings_of(text, given)
            if self.lengths and not settings.any_on(*LENGTHS):
                program = bash.program_of_script(text, "", given)
                settings |= {"program": program.program} if program else {}
            words = [word for command in bash.commands(text, given) for word in command]
            named = [
                word for before, word in pairwise(("", *words)) if before == "trl" or word.endswith(".py")
            ]
            files = (word.rpartition("/")[2].removesuffix(".py").removeprefix("run_") for word in named)
            titles = (title.removesuffix("_modeling") for title in files)
            if objective := next((title for title in titles if title in CLASSES), ""):
                settings["objective"] = objective
        return settings

    def _common(self, name: str, meshless: bool) -> str:
        """Return a setting's name in the words of the Trainer and of Accelerate.

        Degrees among the arguments of `accelerate launch` keep their names where it makes no mesh of them.
        """
        if name in self.names:
            return self.names[name]
        section, _, rest = name.partition(".")
        if section == "fsdp_config" and rest:
            return fsdp_setting(rest)
        if section == "deepspeed" and rest:
            return f"{DEEPSPEED}{rest}"
        if section.startswith(FLAT_DEGREES):
            return section if meshless else f"parallelism_config.{section}"
        if section.startswith("fsdp_") and section != "fsdp_config":
            return f"fsdp_config.{section}"
        return FLAT.get(name, name)

    def spell(self, name: str) -> str:
        """Return a setting's name as the program spells it."""
        own = next((own for own, common in self.names.items() if common == name), name)
        for prefix, short in self.prefixes.items():
            own = own.replace(prefix, short)
        return own

    def write(self, writing: Writing) -> str:
        """Write a configuration in the program's own names."""
        settings = {**self.required_settings(writing), **writing.all_settings}
        own = {self.spell(name): value for name, value in settings.items()}
        return TEXT_FORMATS[".yaml"].write(own, writing.head)

    @property
    def conversions(self) -> Conversions:
        """The functions of computed rows, by the names that its table has for them."""
        return Conversions(
            read={
                "machines": self.read_machines,
                "batch": self.read_batch,
                "length": self.read_length,
                "training": self.read_training,
                "parallelism": self.read_parallelism,
                "recompute": self.read_recompute,
                "attention": self.read_attention,
                "numbers": self.read_numbers,
            },
            write={
                "machines": self.write_machines,
                "batch": self.write_batch,
                "length": self.write_length,
                "training": self.write_training,
                "parallelism": self.write_parallelism,
                "recompute": self.write_recompute,
                "attention": self.write_attention,
                "numbers": self.write_numbers,
            },
        )

    def required_settings(self, writing: Writing) -> Values:
        """Return the model's checkpoint, and what the program requires besides."""
        documents = writing.facts.get("documents")
        packed = self.writes["packed"] if documents is not None and documents.packed else {}
        further = {"output_dir": "output", "learning_rate": 1e-5, **self.writes["always"], **packed}
        return {MODEL: repository(writing.name) or writing.name, **further}

    # rows

    def read_machines(self, settings: Settings) -> Facts:
        """Read the accelerators: processes, or those of each machine."""
        if own := accelerate.read_machines(settings):
            return own
        machines = settings.number("num_machines", "nnodes", "num_nodes", "nodes")  # the last: of Slurm
        per_machine = settings.count("nproc_per_node", "num_gpus", "gpus_per_node", "ntasks_per_node")
        return {"gpus": machines * per_machine} if per_machine else {}

    def write_machines(self, facts: Facts) -> Values:
        """Write processes and machines, where the program starts them."""
        if not self.starts:
            return {}
        return {"num_processes": facts["gpus"], "num_machines": facts["gpus"] // facts["per_node"]}

    def objective(self, settings: Settings) -> str:
        """Return the objective: sft, one on pairs of answers, or another word."""
        for name in ("objective", "rl"):
            if settings.is_on(name):
                return str(settings[name]).lower()
        if settings.is_on("stage"):
            loss = str(settings.get("pref_loss", "sigmoid"))
            is_dpo = settings["stage"] == "dpo"
            return loss if is_dpo and loss in PAIRS else str(settings["stage"])
        return "dpo" if any(settings.is_on(name) for name in SIGNS_OF_DPO) else "sft"

    def read_batch(self, settings: Settings) -> Facts:
        """Read micro-batch [sequences], accumulation steps and sequence length; a pair is two sequences."""
        rows = settings.number(BATCH, "per_gpu_train_batch_size", default=self.usual[BATCH])
        steps = settings.number(ACCUMULATION)
        if settings.is_on("batch_size") and not settings.is_on(ACCUMULATION):
            steps = max(settings.number("batch_size") // rows, 1)
        name = next((name for name in SEQ if name in settings), SEQ[0])
        unlimited = name in settings and is_off(settings[name])
        usual = self.usual.get(SEQ[0])
        has_none = unlimited or bool(self.lengths) or (usual is None and name not in settings)
        length: Facts = {} if has_none else {"seq": settings.number(name, default=usual or 1)}
        pairs = 2 if self.objective(settings) in PAIRS else 1
        if self.fills and not settings.is_on(ACCUMULATION):
            return {"mbs": rows * pairs, FILLED: self.fills * pairs, **length}
        return {"mbs": rows * pairs, "accumulation": steps, **length}

    def write_batch(self, facts: Facts) -> Values:
        """Write rows of a micro-batch, accumulation steps and sequence length."""
        pairs = 2 if facts.get("reference") else 1
        rows = {} if facts["mbs"] % pairs else {BATCH: facts["mbs"] // pairs}
        length = {} if self.lengths else {SEQ[0]: facts["seq"]}
        return {**rows, ACCUMULATION: facts["accumulation"], **length}

    def read_length(self, settings: Settings) -> Facts:
        """Read the sequence length from the argument of the program, or take the program's default."""
        stated = {name: settings.number(name) for name in LENGTHS if settings.is_on(name)}
        if len(set(stated.values())) > 1:
            both = " and ".join(f"{name} = {value}" for name, value in stated.items())
            raise InputError("seq", [f"{both}: which is the sequence length is not known; give one of them"])
        _, usual, _ = self.usual_length(settings)
        length = next(iter(stated.values()), usual)
        return {"seq": length} if length else {}

    def usual_length(self, settings: Settings) -> tuple[str, int, str]:
        """Return the setting of the length, its default [tokens], and the source of that."""
        program = str(settings.get("program", ""))
        data = " --data_path" if "data_path" in settings else ""
        found = (usual for sign, usual in self.lengths.items() if re.search(sign, program + data))
        return next(found, ("", 0, ""))

    def write_length(self, facts: Facts) -> Values:
        """Write the sequence length."""
        return {LENGTHS[0]: facts["seq"]}

    def read_training(self, settings: Settings) -> Facts:
        """Read what is trained: adapters, their base, a reference model, images, a frozen vision tower."""
        facts: Facts = {"reference": True} if self.objective(settings) in WITH_REFERENCE else {}
        facts |= {"frozen_tower": True} if self._states("frozen_tower", settings) else {}
        largest = self.usual.get("image_max_pixels", 0)
        if pixels := settings.number("image_max_pixels", default=largest, least=0):
            facts["image_pixels"] = pixels
        if settings.is_on("image_size"):
            facts["image_size"] = settings.number("image_size")
        if not self.has_adapters(settings):
            self._require_switch(settings)
            return facts
        modules = settings.get("lora_target_modules", self.usual.get("lora_target_modules"))
        if isinstance(modules, str) and self.joined:
            modules = [part.strip() for part in modules.split(",")]
        if settings.is_on("lora_target_linear") or modules == ["all"]:
            targets: tuple[str, ...] = (self.all_layers,)
        elif modules == ["all-linear"]:
            targets = ("all",)
        else:
            targets = (
                targets_of("lora_target_modules", _module_names(modules)) if modules else (PEFT_DEFAULT,)
            )
        dropout = self.usual["lora_dropout"] > 0
        if settings.get("lora_dropout") is not None:
            dropout = probability(settings, "lora_dropout")
        rank = settings.number("lora_r", default=self.usual["lora_r"])
        adapters = Adapters(
            rank=rank,
            targets=targets,
            base=self._base(settings),  # type: ignore[arg-type]
            dtype="fp32" if self.holds_fp32(settings) else "16-bit",
            dropout=dropout,
            experts="peft" if self.converts_experts else "each",
        )
        return facts | {"adapters": adapters}

    def has_adapters(self, settings: Settings) -> bool:
        """Return whether adapters are trained."""
        ((name, wanted),) = self.adapted.items()
        return matches(settings.get(name, self.usual.get(name)), wanted)

    def _require_switch(self, settings: Settings) -> None:
        """Refuse settings of adapters where nothing says that the program trains them."""
        named = [name for name in settings if name.startswith("lora_") and settings.is_on(name)]
        if named and self.lengths and not self.adapted.keys() & settings.keys():
            problem = f"{named[0]} = {settings[named[0]]}: nothing says that this program trains adapters"
            raise InputError(named[0], [f"{problem}; add --use_peft True if it does"])

    def _states(self, name: str, settings: Settings) -> bool:
        """Return whether a setting is on, as the program has it where it is absent."""
        value = settings.get(name)
        return not is_off(self.usual.get(name) if value is None else value)

    def _base(self, settings: Settings) -> str:
        """Return how the frozen model is held."""
        bits = settings.count("quantization_bit")
        if bits not in (0, 4, 8):
            raise not_allowed("quantization_bit", bits, (4, 8))
        if settings.is_on("load_in_8bit") or bits == 8:
            return "int8"
        if not settings.is_on("load_in_4bit") and bits != 4:
            return "16-bit"
        return "nf4" if self._states("use_bnb_nested_quant", settings) else "nf4-single"

    def holds_fp32(self, settings: Settings) -> bool:
        """Return whether what is frozen is held in fp32 beside products of lower precision.

        It is as loaded, also where FSDP shards it: Accelerate 1.15 widens what is trained alone
        (utils/fsdp_utils.py, fsdp2_prepare_model). DeepSpeed casts all (0.19.8, runtime/engine.py,
        _cast_module_mixed_precision).
        """
        narrow = self._product_precision(settings) and self.engine(settings) != "DEEPSPEED"
        return bool(narrow) and "dtype" in self.weights and self.weight_precision(settings) == "fp32"

    def write_training(self, facts: Facts) -> Values:
        """Write what is trained; nothing of adapters where a layer has no name of its own."""
        adapters: Adapters | None = facts.get("adapters")
        own = self.writes["pairs"] if facts.get("reference") else self.writes.get("answers", {})
        modules = module_names(adapters, LAYERS) if adapters else None
        if adapters is None or modules is None or adapters.base == "operand":
            return {**own, **self.writes.get("full", {})}
        return {
            **own,
            **self.writes["adapters"],
            **self.values["base"].get(adapters.base, {}),
            "lora_r": adapters.rank,
            "lora_alpha": 2 * adapters.rank,
            "lora_target_modules": ",".join(modules) if self.joined else modules,
            "lora_dropout": 0.05 if adapters.dropout else 0.0,
        }

    def derive_settings(self, settings: Settings) -> Settings:
        """Return the settings of Accelerate that the program makes of its own."""
        words = settings.get("fsdp")
        options = " ".join(words) if isinstance(words, list | tuple) else str(words or "")
        derived = Settings({**_preset(settings), **settings})
        is_fsdp = _turns_fsdp_on(words) or settings.is_on("use_fsdp") or settings.count(accelerate.SHARD) > 1
        by_options = (name == accelerate.SHARD or name.startswith(FSDP) for name in settings)
        is_fsdp = is_fsdp or (self.fsdp_by_options and any(by_options))
        is_deepspeed = settings.is_on("use_deepspeed") or any(
            name.startswith(DEEPSPEED) and not is_off(value) for name, value in settings.items()
        )
        if not derived.is_on("distributed_type") or is_fsdp or is_deepspeed:
            derived["distributed_type"] = "FSDP" if is_fsdp else "MULTI_GPU"
        if is_deepspeed:
            derived["distributed_type"] = "DEEPSPEED"
        if words is not None and is_fsdp:  # transformers 5.23, training_args.py, _process_fsdp_args
            of_fsdp1 = {"hybrid_shard", "no_shard"} & {*options.split()}
            derived.setdefault(accelerate.VERSION, 1 if of_fsdp1 else 2)
        for word, name, value in (
            ("offload", f"{FSDP}offload_params", True),
            ("shard_grad_op", accelerate.RESHARD, False),
            ("shard_grad_op", accelerate.STRATEGY, "SHARD_GRAD_OP"),
            ("hybrid_shard", accelerate.STRATEGY, "HYBRID_SHARD"),
            ("no_shard", accelerate.STRATEGY, "NO_SHARD"),
        ):
            if word in options.split():
                derived.setdefault(name, value)
        derived.pop("fsdp", None)
        return derived

    def engine(self, settings: Settings) -> str:
        """Return what distributes the training: a word of `accelerate.DISTRIBUTED_TYPES`."""
        return accelerate.distributed_type(self.derive_settings(settings))

    def read_parallelism(self, settings: Settings) -> Facts:
        """Read degrees, what is sharded and what is offloaded."""
        self._require_read(settings)
        facts = self.accelerate(self.derive_settings(settings))
        facts = as_facts({name: value for name, value in facts.items() if name in READ_OF_ACCELERATE})
        facts |= {"sp": False} if facts.get("tp", 1) > 1 else {}  # plans of transformers have none
        if (ring := settings.number("context_parallel_size")) > 1 and self.exchanges_heads:
            exchanged = ms_swift.ulysses(str(settings.get(MODEL)), ring)
            kind = {ring: "ulysses", 1: "ring"}.get(exchanged, "hybrid")
            facts |= {"cp": ring, "cp_kind": kind}
            facts |= {"ulysses": exchanged} if kind == "hybrid" else {}
        elif ring > 1:
            usual = "varlen_llama3" if settings.is_on("packing") else "batch_ring"
            kind = settings.get("ring_attn_func") or usual
            facts |= {"cp": ring, "cp_kind": "all-gather" if kind == "varlen_llama3" else "ring"}
        return facts

    def _require_read(self, settings: Settings) -> None:
        """Refuse a configuration of DeepSpeed that is neither a file nor one that comes with the program."""
        named = settings.get("deepspeed")
        is_read = any(name.startswith(DEEPSPEED) for name in settings)
        if not isinstance(named, str) or is_off(named) or named.lower().endswith(ENDINGS) or is_read:
            return
        words = self.presets.get("deepspeed", {})
        raise not_allowed("deepspeed", named, (*words, f"the path of a file ({' '.join(ENDINGS)})"))

    def write_parallelism(self, facts: Facts) -> Values:
        """Write degrees and what is sharded: with DeepSpeed for ZeRO-1 and its stacks, else with FSDP2."""
        zero = facts.get("zero", 0)
        tp = facts["tp"]
        replicas = facts.get("replicas", 1)
        if zero == 1 or facts.get("stack") in ON_DEEPSPEED.values():
            if tp > 1 or facts["cp"] > 1:
                return {}
            parts = (deepspeed.write_groups, deepspeed.write_offload, deepspeed.write_overlap)
            written = {accelerate.STAGE: zero, **{k: v for part in parts for k, v in part(facts).items()}}
            explicit = {f"{DEEPSPEED}{name}": value for name, value in written.items()}
            return self._deepspeed_preset(facts) or {**self.writes.get("deepspeed", {}), **explicit}
        if facts["dp"] % replicas:
            return {}
        degrees = {
            accelerate.REPLICATE: replicas if zero else facts["dp"],
            accelerate.SHARD: facts["dp"] // replicas if zero else 1,
            f"{accelerate.DEGREES}tp_size": tp,
        }
        if zero == 0:
            return degrees if tp > 1 and self.has_meshes else {}
        offloaded = facts.get("offload") == "optimizer+weights"
        sharded: dict[str, Any] = {
            f"{FSDP}version": 2,
            accelerate.RESHARD: zero == 3,
            f"{FSDP}auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            **({f"{FSDP}offload_params": True} if offloaded else {}),
        }
        if self.has_meshes:
            return {**degrees, **sharded}
        if tp > 1 or replicas > 1:
            return {}
        fsdp = self.writes["sharded"]
        preset: tuple[str, ...] = PRESET_OF_FSDP if "accelerate_config" in fsdp else ()
        return {**fsdp, **{name: value for name, value in sharded.items() if name not in preset}}

    def _deepspeed_preset(self, facts: Facts) -> Values:
        """Return the name of a configuration of DeepSpeed of the program's own; none if it is another."""
        named = (
            {"accelerate_config": PRESETS} if "accelerate_config" in self.writes.get("sharded", {}) else {}
        )
        wanted = {name: facts[name] for name in OF_DEEPSPEED if name in facts}
        for setting, meanings in {**named, **self.presets}.items():
            for word, meaning in meanings.items():
                settings = Settings(flatten(meaning))
                if self.engine(settings) != "DEEPSPEED":
                    continue
                known = {"replicas": 1, **self.read_parallelism(settings)}
                if all(known.get(name) == value for name, value in wanted.items()):
                    return {setting: word}
        return {}

    def read_recompute(self, settings: Settings) -> Facts:
        """Read whether layers are recomputed, every one or every n-th, and where what they save is held."""
        by_fsdp = accelerate.is_true(settings, f"{FSDP}activation_checkpointing")
        if not (by_fsdp or self._recomputes(settings)):
            return {"recompute": "none"}
        facts: Facts = {"recompute": "full"}
        names = [f"{name}{KWARGS}" for name in CHECKPOINTING]
        kwargs = next((name for name in names if any(one.startswith(name) for one in settings)), names[0])
        if (every := settings.number(f"{kwargs}every_n_layers")) > 1 and not by_fsdp:
            facts["recompute_every"] = every
        if settings.is_on(f"{kwargs}offload") and not by_fsdp:
            beside = str(self.accelerate(self.derive_settings(settings)).get("offload", "none"))
            facts["offload"] = "activations" if beside == "none" else f"activations+{beside}"
        return facts

    def _recomputes(self, settings: Settings) -> bool:
        """Return whether the Trainer, or the program itself, recomputes layers."""
        stated = (settings[name] for name in CHECKPOINTING if settings.get(name) is not None)
        given = next(stated, None)
        if self.recomputes_unless:  # the program itself, whatever the Trainer is told
            return not settings.is_on(self.recomputes_unless) or not is_off(given)
        return not is_off(self.usual.get(CHECKPOINTING[1]) if given is None else given)

    def write_recompute(self, facts: Facts) -> Values:
        """Write whether layers are recomputed."""
        if facts.get("recompute_every", 1) > 1:
            return {}
        return self.values["recompute"].get(facts["recompute"], {})

    def read_attention(self, settings: Settings) -> Facts:
        """Read the attention kernel."""
        names = (f"{LOADING}attn_implementation", "attn_implementation", "flash_attn")
        named = str(next((settings[name] for name in names if settings.is_on(name)), ""))
        unfused = named in ("eager", "disabled") or settings.is_on("eager_attention")
        return {"attention": "unfused" if unfused else "flash"}

    def write_attention(self, facts: Facts) -> Values:
        """Write the attention kernel."""
        return self.values["attention"][facts.get("attention", "flash")]

    def _product_precision(self, settings: Settings) -> str:
        """Return the precision of products; empty where nothing mixes them."""
        if settings.is_on("fp8"):
            return "fp8-current"
        if settings.any_on("fp16", "float16"):
            return "fp16"
        stated = settings.get("bf16")
        if settings.is_on("bfloat16") or stated == "auto" or not is_off(stated):
            return "bf16"
        derived = self.derive_settings(settings)
        written = accelerate.native_deepspeed(derived)
        is_usual = stated is None and bool(self.usual["bf16"])
        if is_usual and not written.any_on("bf16.enabled", "fp16.enabled"):
            return "bf16"  # before that of `accelerate launch` (transformers 5.23, training_args.py)
        return accelerate.mixed_precision(derived)

    def weight_precision(self, settings: Settings) -> str:
        """Return the precision in which the weights are loaded, and trained unless sharded."""
        if not self.weights:
            return self._product_precision(settings) or "fp32"
        usual = self.frozen if self.has_adapters(settings) else self.loaded
        if self.loads_fp32(settings):
            usual = "fp32"
        for name in self.names_of_dtype:
            if settings.is_on(name) or settings.get(name) == "auto":
                word = str(settings[name]).lower().removeprefix("torch.")
                if word not in DTYPES:
                    raise not_allowed(name, settings[name], [*DTYPES][:-1])
                return DTYPES[word]
        return usual

    @property
    def names_of_dtype(self) -> tuple[str, ...]:
        """Settings that say in which precision the weights are loaded, the first of them that is there.

        TRL 1.16 loads in its own `dtype`, float32 by default (scripts/sft.py and trainer/utils.py,
        create_model_from_path), and transformers takes the new name of two: the old one has no effect.
        """
        names = self.weights.split()
        loading = names[:1] if self.name == "trl" else names
        return (*(f"{LOADING}{name}" for name in loading), *names)

    def loads_fp32(self, settings: Settings) -> bool:
        """Return whether a program on the Trainer alone is of a release that loads weights in fp32."""
        return bool(self.lengths) and REMOVED_ARGUMENT in settings and not self.has_adapters(settings)

    def read_numbers(self, settings: Settings) -> Facts:
        """Read precision and optimizer: bf16 weights that nothing shards are trained as they are."""
        mixed = self._product_precision(settings)
        loaded = self.weight_precision(settings)
        written = accelerate.native_deepspeed(settings).get("optimizer.type")
        optim = str(settings.get("optim") or usual_optim(settings))
        kind = KNOWN_OPTIMIZERS.get(optim, "adam")
        if written is not None and not is_off(written):
            kind = {"lion": "lion", "muon": "muon"}.get(str(written).lower(), "adam")
        if settings.is_on("use_muon"):
            kind = "muon"
        sharded = self.engine(settings) in ("FSDP", "DEEPSPEED") and bool(mixed)
        if loaded == "bf16" and mixed in ("bf16", "") and not sharded and not self.has_adapters(settings):
            kind = "adam-bf16" if kind == "adam" else kind
            return {"precision": "bf16-pure", "grad_dtype": "16-bit", "optimizer_kind": kind}
        grad = "usual"
        if self.engine(settings) == "DEEPSPEED":
            grad = self.accelerate(self.derive_settings(settings)).get("grad_dtype", grad)
        return {"precision": mixed or loaded, "optimizer_kind": kind, "grad_dtype": grad}

    def write_numbers(self, facts: Facts) -> Values:
        """Write precision and optimizer."""
        precision = facts["precision"]
        kind = facts["optimizer_kind"]
        optim = "adam" if precision == "bf16-pure" and kind == "adam-bf16" else kind
        values: dict[str, Any] = {"optim": OPTIMIZERS[optim].split()[0]} if optim in OPTIMIZERS else {}
        own = self.values.get("optimizer_kind", {}).get(kind, values)
        values = {**own, **self.values["precision"].get(precision, {})}
        adapters: Adapters | None = facts.get("adapters")
        if adapters is None or "dtype" not in self.weights:
            return values
        return values | {"dtype": "float32" if adapters.dtype == "fp32" else "bfloat16"}

    # in words

    def named_model(self, settings: Settings) -> str:
        """Return the model whose checkpoint is trained; empty if none is named."""
        return model_called(self.spell(MODEL), str(settings[MODEL])) if settings.is_on(MODEL) else ""


def usual_optim(settings: Settings) -> str:
    """Return the default of `optim`, which is that of the release of transformers and PyTorch."""
    return "adamw_torch" if REMOVED_ARGUMENT in settings else "adamw_torch_fused"


def _turns_fsdp_on(words: object) -> bool:
    """Return whether the Trainer's argument `fsdp` shards."""
    return bool(words) if isinstance(words, list) else not is_off(words)


def _preset(settings: Settings) -> Settings:
    """Return the settings that `accelerate_config` names, but for what transformers gives Accelerate."""
    preset = Settings(PRESETS.get(str(settings.get("accelerate_config")), {}))
    left = OF_TRAINERS_FSDP if _turns_fsdp_on(settings.get("fsdp")) else ()
    return Settings({name: value for name, value in preset.items() if name not in left})


def _with_parts(settings: Settings) -> Settings:
    """Return settings with the parts of those that a command line states as JSON."""
    parts = Settings()
    for name, value in settings.items():
        document = None
        if isinstance(value, str) and value.lstrip().startswith("{"):
            with suppress(ValueError):
                document = json.loads(value)
        parts |= flatten({name: document if isinstance(document, dict) else value})
    return parts


def _module_names(modules: object) -> object:
    """Return the modules of a setting: names, or one pattern of them, whose last part counts."""
    if isinstance(modules, str) and re.search(r"[(|\\]", modules):
        with suppress(re.error):
            last = re.compile(modules.rpartition(".")[2])
            return [name for name in LAYERS.values() if last.fullmatch(name)] or modules
    return modules


BESIDE_FIELDS: Final = ("title", "source", "unread")  # what a table has of a program beside its fields


def _program(name: str, spec: Mapping[str, Any]) -> TrainerProgram:
    """Return a program of the table."""
    return TrainerProgram(name=name, **{key: spec[key] for key in spec if key not in BESIDE_FIELDS})


PROGRAMS: Final = tuple(_program(name, spec) for name, spec in TABLE["programs"].items())
# Rules on settings that only one of them has, by its name
OWN_RULES: Final = {name: unread_rules(spec.get("unread", {})) for name, spec in TABLE["programs"].items()}
OF_PROGRAMS: Final = unread_rules(TABLE["python"])  # on what only Python programs state
# Those that are read alone, each with its title, and where its names and defaults are from.
READ_ALONE: Final = tuple(
    (_program(name, spec), str(spec["title"]), str(spec["source"])) for name, spec in TABLE["read"].items()
)
