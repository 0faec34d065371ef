"""Software, figures and assumptions of launches of programs on Hugging Face's Trainer."""

from collections.abc import Mapping
from typing import Final

from traincast.launch.frameworks import accelerate, deepspeed
from traincast.launch.frameworks.huggingface import (
    ACCUMULATION,
    BATCH,
    CHECKPOINTING,
    FLAT_DEGREES,
    KWARGS,
    LENGTHS,
    LOADING,
    ON_DEEPSPEED,
    PAIRS,
    REMOVED_ARGUMENT,
    SEQ,
    WITH_REFERENCE,
    TrainerProgram,
    usual_optim,
)
from traincast.launch.settings.beside import FSDP
from traincast.launch.settings.canonical import FULL_LENGTH
from traincast.launch.settings.settings import Settings, value_text
from traincast.launch.settings.table import Values

# Of transformers and LLaMA-Factory, which apply Liger's loss with the rest, and of axolotl.
FUSED_LOSS: Final = ("use_liger_kernel", "liger_fused_linear_cross_entropy", "cut_cross_entropy")
FUSED_LOSS_PLUGIN: Final = "CutCrossEntropyPlugin"
# Steps of PyTorch over lists of tensors: AdamW that is not fused (torch/optim/adamw.py, foreach).
FOREACH: Final = ("adamw_torch", "adamw_hf")
# Whether every micro-batch is reduced (transformers 5.23, trainer_pt_utils.py, AcceleratorConfig).
SYNC_EACH_BATCH: Final = "accelerator_config.gradient_accumulation_kwargs.sync_each_batch"
# Reentrant checkpoints, of transformers and of LLaMA-Factory; transformers has none by default since 5.0.
REENTRANT: Final = (*(f"{name}{KWARGS}use_reentrant" for name in CHECKPOINTING), "use_reentrant_gc")
# TRL 1.16, trl/kernels/chunked_logprob.py: logits of 4,096 tokens and 32,768 words in 16 bits, and the
# gradient of the head in fp32, cast in the end [byte]
TRL_LOSS: Final = {"memory.library_bytes": 2.0 * 4096 * 32768, "memory.vocabulary_gradient_bytes": 6.0}
# TRL 1.16, trainer/sft_trainer.py and dpo_trainer.py: add_fused_lm_head, of the reference model as well
TRL_OBJECTIVES: Final = ("sft", "dpo")
OF_RECOMPUTATION: Final = (
    *("gradient_checkpointing", "activation_checkpointing", "disable_gradient_checkpointing"),
    f"{FSDP}activation_checkpointing",
)
OF_ADAPTERS: Final = ("lora_r", "lora_target_modules")
OF_PRECISION: Final = ("bf16", "fp16", "fp8", "bfloat16", "float16", "pure_bf16", "mixed_precision")
GROWING_SEGMENTS: Final = ("axolotl", "llama-factory")  # programs that have PyTorch's allocator grow segments


def stack(program: TrainerProgram, settings: Settings) -> str:
    """Return the software stack: eager, the loss fused into the head where kernels for it are on.

    TRL makes it chunk by chunk without them; its layers are then the eager ones. Other objectives on
    pairs of answers need the logits, and have a loss of their own. What is held in memory depends on the
    engine that shards it: FSDP or DeepSpeed.
    """
    has_kernels = settings.any_on(*FUSED_LOSS) or FUSED_LOSS_PLUGIN in str(settings.get("plugins"))
    has_trl_loss = _has_trl_loss(program, settings)
    if has_kernels and (has_trl_loss or program.objective(settings) not in PAIRS):
        name = "huggingface-fused-loss"
    elif has_trl_loss:
        name = "huggingface-eager+loss=chunked"
    else:
        name = "huggingface-eager"
    return ON_DEEPSPEED[name] if program.engine(settings) == "DEEPSPEED" else name


def _leaves_step_open(program: TrainerProgram, settings: Settings) -> bool:
    """Return whether the release of PyTorch decides which AdamW steps.

    It is the fused one from PyTorch 2.8 on (transformers 5.23, training_args.py; older releases of
    transformers have the other); axolotl 0.19 has the fused one with any (utils/schemas/training.py).
    """
    is_open = program.name != "axolotl" and REMOVED_ARGUMENT not in settings
    return is_open and not settings.any_on("optim", "use_muon")


def _has_trl_loss(program: TrainerProgram, settings: Settings) -> bool:
    """Return whether the loss is TRL's own, which makes logits tile by tile."""
    return program.name == "trl" and program.objective(settings) in TRL_OBJECTIVES


def figures(program: TrainerProgram, settings: Settings) -> Values:
    """Return figures of memory that settings state: of the optimizer's step, of FSDP and of the loss.

    LLaMA-Factory 0.9.5 (launcher.py, OPTIM_TORCH) and axolotl 0.19.0 (utils/__init__.py,
    set_pytorch_cuda_alloc_conf) have PyTorch's allocator grow its segments.
    """
    derived = program.derive_settings(settings)
    engine = accelerate.distributed_type(derived)
    optim = str(settings.get("optim") or usual_optim(settings))
    figures: dict[str, object] = {"memory.foreach_step": optim in FOREACH}
    if _leaves_step_open(program, settings):
        figures["memory.foreach_open"] = True
    if settings.is_on(SYNC_EACH_BATCH):
        figures["memory.accumulates_whole"] = False
    usual = program.usual.get("use_reentrant_gc", False)
    stated = [settings.is_on(name) for name in REENTRANT if settings.get(name) is not None]
    first_version = str(derived.get(accelerate.VERSION, 1)) == "1"
    is_kept = engine == "FSDP" and first_version and any(stated or [usual])
    figures["memory.keeps_frozen_layers"] = is_kept
    if _has_trl_loss(program, settings):
        figures |= TRL_LOSS
    if engine == "DEEPSPEED":
        native = accelerate.native_deepspeed(derived)
        figures |= deepspeed.figures(native)
        if native.is_on("optimizer.type"):  # FusedAdam
            figures |= {"memory.foreach_step": False, "memory.foreach_open": False}
    if program.name in GROWING_SEGMENTS:
        figures["memory.allocator_share"] = 0.0
    return figures


def assumptions(program: TrainerProgram, settings: Settings) -> tuple[str, ...]:
    """Return what is assumed of documents, of a base in fp32, and of what distributes the training."""
    packed = settings.any_on("packing", "neat_packing")
    objective = program.objective(settings)
    is_guess = objective == "dpo" and not settings.any_on("objective", "rl", "stage")
    notes = ["trained by DPO, as beta or another setting of it is there"] * is_guess
    notes.append(FULL_LENGTH[packed])
    if program.engine(settings) in ("MULTI_GPU", "NO"):
        notes.append(
            "data parallelism shards nothing (DDP), as the file names neither FSDP nor DeepSpeed;"
            " a configuration can be given with --beside"
        )
    stated = any(settings.get(name) for name in program.names_of_dtype)
    notes += [
        f"{name} has no effect: TRL loads the model in its dtype"
        for name in (f"{LOADING}{old}" for old in program.weights.split())
        if settings.is_on(name) and name not in program.names_of_dtype
    ]
    if not stated and "dtype" in program.weights and program.weight_precision(settings) == "fp32":
        notes.append("the model is loaded in fp32, the default of dtype")
    if objective in WITH_REFERENCE and not program.has_adapters(settings) and program.holds_fp32(settings):
        notes.append("the reference model is counted in 16 bits; it is held in fp32, as the model is loaded")
    notes += [
        f"{name} has no effect without use_parallelism_config"
        for name in settings
        if name.startswith(FLAT_DEGREES) and settings.is_degree(name)
    ]
    if any(settings.is_on(f"{name}{KWARGS}offload") for name in CHECKPOINTING):
        notes.append(
            "computation hides the copies of activations to and from the host, although transformers 5.23"
            " runs them in turn with it"
        )
    usual = ("", *map(str, (program.usual.get(name) for name in OF_ADAPTERS)))
    idle = [name for name in OF_ADAPTERS if value_text(settings.get(name, "")) not in usual]
    if idle and not program.has_adapters(settings):
        (switch,) = map(program.spell, program.adapted)
        notes.append(f"all weights are trained: {program.spell(idle[0])} has no effect without {switch}")
    if program.loads_fp32(settings) and not stated:
        notes.append(
            f"weights are loaded in fp32, as by the releases of transformers with {REMOVED_ARGUMENT}"
        )
    elif program.lengths and not stated:
        notes.append(
            "weights are loaded in the precision of the checkpoint, bf16 of most"
            " (transformers 5, from_pretrained; older releases load fp32)"
        )
    native = accelerate.native_deepspeed(program.derive_settings(settings))
    own_optimizer = native.is_on("optimizer.type")
    if program.engine(settings) == "DEEPSPEED":
        notes += deepspeed.idle_offloads(native)
    if _leaves_step_open(program, settings) and not own_optimizer and not program.has_adapters(settings):
        notes.append(
            "PyTorch 2.8 or later, whose AdamW is fused; before, its step takes one more fp32 copy of the"
            " weights it steps (optim adamw_torch), as likely in the probability of fitting"
        )
    if str(settings.get("optim", "")).startswith("paged_"):
        notes.append("states of the paged optimizer stay on the device")
    return tuple(notes)


def usual_by_fact(program: TrainerProgram, settings: Settings) -> Mapping[str, str]:
    """Return what a file leaves out, and its default, by the fact that each default gives."""
    written = accelerate.native_deepspeed(settings)
    texts: dict[str, str] = {}
    setting, length, named = program.usual_length(settings)
    if program.lengths and length and not settings.any_on(*LENGTHS):
        texts["seq"] = f"{setting} {length:,} ({named})"
    elif not program.lengths and SEQ[0] in program.usual and not settings.keys() & {*SEQ}:
        texts["seq"] = f"{program.spell(SEQ[0])} {program.usual[SEQ[0]]:,}"
    if not settings.any_on(BATCH, "per_gpu_train_batch_size"):
        texts["mbs"] = f"{program.spell(BATCH)} {program.usual[BATCH]}"
    if not settings.any_on(ACCUMULATION, "batch_size") and not written.is_on(ACCUMULATION):
        steps = f"that make a step of {program.fills} sequences" if program.fills else "1"
        texts["accumulation"] = f"{ACCUMULATION} {steps}"
    if not settings.keys() & {*OF_RECOMPUTATION}:
        is_on = bool(program.usual.get("gradient_checkpointing"))
        texts["recompute"] = f"gradient_checkpointing {'on' if is_on else 'off'}"
    if not settings.keys() & {*OF_PRECISION} and not written.any_on("bf16.enabled", "fp16.enabled"):
        texts["precision"] = f"bf16 {'on' if program.usual['bf16'] else 'off'}"
        texts |= {"grad_dtype": texts["precision"]} if program.lengths else {}
    if not settings.any_on("optim", "use_muon", "optimizer.type") and not written.is_on("optimizer.type"):
        texts["optimizer_kind"] = f"optim {usual_optim(settings)}"
    of_adapters = [name for name in ("lora_r", "lora_dropout") if settings.get(name) is None]
    if of_adapters and program.has_adapters(settings):
        texts["adapters"] = ", ".join(f"{program.spell(name)} {program.usual[name]}" for name in of_adapters)
    return texts
