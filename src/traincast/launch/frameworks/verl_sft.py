"""verl's supervised fine-tuning on FSDP: overrides of Hydra on a command line, or a YAML of the settings.

Names and defaults are those of verl 0.9.1, verl/trainer/config/sft_trainer_engine.yaml with engine/fsdp.yaml
and model/hf_model.yaml (`verl.trainer.sft_trainer`), and of verl 0.5.0, verl/trainer/config/sft_trainer.yaml
(`verl.trainer.fsdp_sft_trainer`). Other engines are refused by name.
"""

import re
from contextlib import suppress
from typing import Any, Final

from traincast.catalog import parse_document
from traincast.core import InputError
from traincast.launch.frameworks.dialects import filled_in
from traincast.launch.scripts.bash import arguments, commands, directives
from traincast.launch.settings.beside import FSDP, MODEL
from traincast.launch.settings.given import NOTHING, Given
from traincast.launch.settings.settings import Settings, is_off

SETTING: Final = re.compile(r"\+*([a-z_]\w*(?:\.\w+)*)=(.*)", re.DOTALL)
PROGRAM: Final = re.compile(r"(?:.*[./])?(?:fsdp_)?sft_trainer(?:_ray)?(?:\.py)?")
BATCH = "data.train_batch_size"
ROWS = "data.micro_batch_size_per_gpu"
LENGTH = "data.max_length"
TOKENS = "data.max_token_len_per_gpu"
DYNAMIC: Final = "data.use_dynamic_bsz"
USUAL: Final = {BATCH: 256, ROWS: 4, LENGTH: 1024, "model.enable_gradient_checkpointing": True}
OF_ENGINE: Final = {DYNAMIC: True, TOKENS: 8192, "engine.model_dtype": "fp32", "engine.strategy": "fsdp"}
OF_OLD: Final = {"model.fsdp_config.model_dtype": "fp32", "model.strategy": "fsdp2"}
PATHS: Final = ("model.path", "model.partial_pretrain")
SP: Final = ("engine.ulysses_sequence_parallel_size", "ulysses_sequence_parallel_size")
OFFLOADS: Final = (
    *("engine.offload_policy", "model.fsdp_config.cpu_offload", "model.fsdp_config.offload_params"),
)
DTYPES: Final = {"fp32": "float32", "float32": "float32", "bf16": "bfloat16", "bfloat16": "bfloat16"}


def read_run(text: str, given: Given = NOTHING) -> Settings:
    """Return the settings of the Trainer that a run has, beside its own under their names."""
    own, launcher = _own(text, given)
    engine = str(own.get("engine", "fsdp"))
    if engine not in ("fsdp", "fsdp2"):
        problem = f"engine = {engine}: of verl's supervised fine-tuning, FSDP alone is read"
        raise InputError("engine", [problem])
    is_old = "model.partial_pretrain" in own or any(name.startswith("model.fsdp_config") for name in own)
    full = Settings({**usual(own), **own})
    length = full.number(LENGTH)
    settings = Settings({**own, **launcher, "verl_engine": not is_old})
    if (path := next((own[name] for name in PATHS if not is_off(own.get(name))), None)) is not None:
        settings[MODEL] = path
    dtype = str(full["model.fsdp_config.model_dtype" if is_old else "engine.model_dtype"])
    strategy = str(full["model.strategy" if is_old else "engine.strategy"])
    sequence = full.number(*SP)
    settings |= {
        "objective": "sft",
        "max_length": length,
        "per_device_train_batch_size": _rows(full, length, sequence),
        "batch_of_all": full.number(BATCH),
        "gradient_checkpointing": full["model.enable_gradient_checkpointing"],
        "dtype": DTYPES.get(dtype, dtype),
        "bf16": True,
        "use_fsdp": True,
        f"{FSDP}version": 2 if strategy == "fsdp2" else 1,
        "context_parallel_size": sequence,
        "attn_implementation": "flash_attention_2",
        "finetuning_type": "full",
    }
    if "engine.reshard_after_forward" in own:
        reshards = own.is_on("engine.reshard_after_forward")
        settings[f"{FSDP}reshard_after_forward"] = reshards
        settings[f"{FSDP}sharding_strategy"] = "FULL_SHARD" if reshards else "SHARD_GRAD_OP"
    if own.any_on(*OFFLOADS):
        settings[f"{FSDP}offload_params"] = True
    if own.is_on("model.use_liger"):
        settings["use_liger_kernel"] = True
    if own.count("model.lora_rank"):
        settings |= {"finetuning_type": "lora", "lora_r": own["model.lora_rank"], "lora_dropout": 0.0}
        settings |= _modules(own.get("model.target_modules", "all-linear"))
    return settings


def _own(text: str, given: Given) -> tuple[Settings, Settings]:
    """Return the settings of verl by their names, and those of the launcher."""
    with suppress(InputError):
        document = parse_document(text, "yaml", repeated=True)
        if document and not any(" " in str(name) for name in document):
            return Settings({**filled_in(text), **given.variables}), Settings()
    own = Settings()
    launcher = directives(text)
    for words in commands(text, given):
        place = next((i for i, word in enumerate(words) if PROGRAM.fullmatch(word)), None)
        if place is None:
            continue
        launcher |= arguments(words[:place])
        for match in filter(None, map(SETTING.fullmatch, words[place:])):
            own[match[1]] = match[2].strip("'\"")
    launcher.pop("m", None)
    return own, Settings(launcher)


def usual(own: Settings) -> dict[str, Any]:
    """Return what verl has where its settings leave it out: of the engine, or of the old trainer."""
    is_old = "model.partial_pretrain" in own or any(name.startswith("model.fsdp_config") for name in own)
    return {**USUAL, **(OF_OLD if is_old else OF_ENGINE)}


def _rows(full: Settings, length: int, sequence: int) -> int:
    """Return the sequences of a micro-batch: as many as its tokens hold where their number varies."""
    if not full.is_on(DYNAMIC):
        return full.number(ROWS)
    return max(full.number(TOKENS) * sequence // length, 1)


def _modules(value: Any) -> dict[str, Any]:
    """Return the layers with an adapter: all linear ones, or those listed."""
    listed = [part.strip(" '\"") for part in str(value).strip("[]").split(",")]
    return {"lora_target_linear": True} if listed == ["all-linear"] else {"lora_target_modules": listed}


def assumptions(settings: Settings) -> tuple[str, ...]:
    """Return what is assumed: defaults of verl, and micro-batches as full as they may get."""
    own = Settings({name: value for name, value in settings.items() if "." in name})
    texts = [f"{name} {value}" for name, value in usual(own).items() if name not in own]
    is_dynamic = settings.is_on("verl_engine") and not is_off(own.get(DYNAMIC, True))
    without_effect = (ROWS,) if is_dynamic else (TOKENS,)
    texts = [text for text in texts if not text.startswith(without_effect)]
    notes = [f"{', '.join(texts)}: defaults of verl, not set in the file"] if texts else []
    if is_dynamic:
        notes.append(f"micro-batches hold as many sequences of full length as {TOKENS} allows")
    return tuple(notes)
