"""Scripts of Megatron-LM's own programs: their release, and what they have where they leave a setting out.

Other programs on Megatron-Core, such as Megatron-Bridge and Megatron-DeepSpeed, have other defaults.
"""

from functools import cache
from typing import Any, Final

from traincast.catalog import Stack
from traincast.launch.frameworks import megatron, megatron_model
from traincast.launch.scripts import bash
from traincast.launch.settings.arguments import MEGATRON, Arguments
from traincast.launch.settings.defaults import parser_defaults, release
from traincast.launch.settings.given import NOTHING, Given
from traincast.launch.settings.settings import Settings
from traincast.launch.settings.table import Values

OLD_ARGUMENTS: Final = Arguments("megatron_old_arguments")  # before Megatron-Core
BACKEND: Final = "moe_flex_dispatcher_backend"
DEFAULTS: Final = parser_defaults("megatron", "pretrain")
# Those that the parser still has and the program refuses (megatron-core 0.19.2, arguments.py, validate_args).
REFUSED: Final = ("batch_size", "warmup", "model_parallel_size", "checkpoint_activations")
ADDED: Final = ("vocab_size",)  # to old scripts as well, by who wants a prediction: they name a tokenizer


def read_settings(text: str, given: Given = NOTHING) -> Settings:
    """Read the arguments of a script, with the old release that it is of, if any."""
    settings = bash.settings_of(text, given)
    megatron_model.name_hybrid(settings)
    old = old_release(settings)
    if old:
        settings["release"] = old
    return settings


@cache
def _present_arguments() -> frozenset[str]:
    """Return the arguments that a present program takes."""
    return frozenset(name for known in MEGATRON.revisions.values() for name in known) - {*REFUSED}


@cache
def _old_arguments() -> frozenset[str]:
    """Return the arguments that any of the old releases takes."""
    return frozenset(name for known in OLD_ARGUMENTS.revisions.values() for name in known)


def old_release(settings: Settings) -> str:
    """Return the old release that a script is of, a year and month; empty if it may be of a present one.

    It is of an old one if it has arguments that a present program lacks or refuses: of the newest of those
    before Megatron-Core that has all of its arguments.
    """
    if not _gone(settings):
        return ""
    names = settings.keys() & (_present_arguments() | _old_arguments()) - {*ADDED}
    releases = reversed(list(OLD_ARGUMENTS.revisions.items()))
    return next((name for name, known in releases if names <= known.keys()), "")


def _gone(settings: Settings) -> list[str]:
    """Return the arguments of old releases that a present program lacks or refuses."""
    if megatron_model.is_deepspeed(settings):  # which still has them
        return []
    return [name for name in settings if name in _old_arguments() - _present_arguments()]


def _is_present(settings: Settings) -> bool:
    """Return whether the program has the present defaults: no Megatron-DeepSpeed, and no old release."""
    return not megatron_model.is_deepspeed(settings) and not settings.is_on("release")


def all_defaults(settings: Settings) -> Values:
    """Return the defaults of all arguments of a script's program; empty where they are not known."""
    return DEFAULTS if _is_present(settings) else {}


def defaults(settings: Settings) -> Values:
    """Return the defaults of what a script leaves out, as far as its prediction depends on them."""
    if not _is_present(settings):
        return {}
    usual: dict[str, Any] = {}
    if settings.is_on("use_megatron_fsdp"):
        usual[megatron.SHARDING] = DEFAULTS[megatron.SHARDING]
    if settings.is_on("num_experts"):
        if not settings.is_on("moe_enable_deepep"):
            usual[megatron.DISPATCHER] = DEFAULTS[megatron.DISPATCHER]
        if settings.is_on("tensor_model_parallel_size"):  # arguments.py, validate_args
            usual["expert_tensor_parallel_size"] = settings["tensor_model_parallel_size"]
    return {name: value for name, value in usual.items() if not settings.is_on(name)}


def stack(settings: Settings) -> str:
    """Return the software stack of a script."""
    return megatron.stack(Settings({**settings, **defaults(settings)}))


def _computes_experts_in_turn(settings: Settings) -> bool:
    """Return whether a rank multiplies for one expert after the other (SequentialMLP), the default."""
    has_experts = settings.is_on("num_experts") and _is_present(settings)
    return has_experts and not settings.is_on("moe_grouped_gemm")


def figures(settings: Settings) -> Values:
    """Return figures of assumptions that a script states: of its vocabulary, and of experts in turn."""
    stated = dict(megatron.figures(settings))
    if _computes_experts_in_turn(settings):
        eager = Stack(Stack.PLAIN_LOOP).assumptions.host
        stated |= {
            "kernels.groups_experts": False,
            "host.expert_product_seconds": eager.expert_product_seconds,
        }
    return stated


def assumptions(settings: Settings) -> tuple[str, ...]:
    """Return what is assumed of a script: its release, defaults, and the step of a batch schedule."""
    notes = [
        f"{_flag(name)} {value}: not set, the default of {release('megatron')}"
        for name, value in defaults(settings).items()
    ]
    notes += _notes_on_release(settings)
    if _computes_experts_in_turn(settings):
        notes.append(
            "experts are computed one after the other: --moe-grouped-gemm is not set; the time that the host"
            " takes to launch their kernels is that of PyTorch, not measured"
        )
    schedule = _flag(megatron.SCHEDULE)
    *before, last = megatron.batches_of_schedule(settings) or (0,)
    if before:
        earlier = " and ".join(map(str, dict.fromkeys(before)))
        notes.append(f"global batch {last}, the last of {schedule}; before it {earlier}")
    if last and settings.is_on("global_batch_size"):
        notes.append(f"Megatron-LM takes either {schedule} or --global-batch-size")
    complete = Settings({**settings, **defaults(settings)})
    if complete.is_on("overlap_moe_expert_parallel_comm") and megatron.gathers_tokens(complete):
        notes.append(
            "Megatron-LM refuses this launch; the answer is as if it ran: it overlaps communication with"
            " experts beside the dispatchers alltoall and flex only (transformer_config.py)"
        )
    return (*megatron.assumptions(settings), *notes, *_notes_on_backend(complete))


def _notes_on_backend(settings: Settings) -> list[str]:
    """Return what is assumed of NCCL's dispatcher of tokens, of which no run is measured."""
    if settings.get(BACKEND) != "ncclep" or not settings.is_on("num_experts"):
        return []
    if settings.get(megatron.DISPATCHER) == "flex":
        return [f"{_flag(BACKEND)} ncclep moves tokens as DeepEP does: it has no measured run"]
    return [
        "Megatron-LM refuses this launch; the answer is as if it ran:"
        f" {_flag(BACKEND)} ncclep needs {_flag(megatron.DISPATCHER)} flex (transformer_config.py)"
    ]


def _notes_on_release(settings: Settings) -> list[str]:
    """Return what is assumed of the release, where a script has arguments of an old one."""
    gone = ", ".join(map(_flag, _gone(settings)))
    old = settings.get("release", "")
    if not gone:
        return []
    if not old:
        return [f"a present Megatron-LM, although it has no {gone}: other arguments are newer"]
    engine = "transformer_impl"
    fused = settings.is_on("use_flash_attn") or settings.get(engine) == DEFAULTS[engine]
    unfused = "" if fused else "; its attention is unfused without --use-flash-attn"
    return [f"Megatron-LM of {old} or before, as later ones lack {gone}{unfused}"]


def _flag(name: str) -> str:
    """Return an argument as a script spells it."""
    return f"--{name.replace('_', '-')}"
