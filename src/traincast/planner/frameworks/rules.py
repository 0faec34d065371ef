"""What training frameworks cannot run: rules beside those that every plan keeps."""

from functools import reduce
from operator import and_
from typing import Final

from traincast.core import DEFAULTS, Bools, Plans, split_choice
from traincast.model import LINEAR_ATTENTIONS, Model
from traincast.step import Rule


def _interleaves_where_piped(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether plans that overlap expert communication in a pipeline have virtual stages."""
    return (not plan.ep_overlap) | (plan.pp == 1) | (plan.vp > 1)


OVERLAP_NEEDS_CHUNKS: Final = Rule(
    "ep_overlap in a pipeline needs virtual stages (vp > 1)",
    ("pp", "vp"),
    _interleaves_where_piped,
    search_only=True,
)


def shared_lengths(model: Model) -> list[int]:
    """Return the lengths of the sequences that ranks share: that of an encoder is another one [tokens]."""
    encoder = model.encoder
    return [model.seq, *([encoder.seq] if encoder is not None and encoder.layers else [])]


def _equal_shards(whole: str, pieces: str) -> Rule:
    """Return the rule that ranks have as many tokens of a sequence, in two pieces unless cp is `whole`."""

    def equal(model: Model, plan: Plans, gbs: int) -> bool | Bools:
        shards = plan.cp * (plan.tp if plan.sp else 1)
        one_piece = (plan.cp == 1) | (plan.cp_kind == whole)
        lengths = shared_lengths(model)
        return reduce(and_, ((n % shards == 0) & (one_piece | (n % (2 * plan.cp) == 0)) for n in lengths))

    message = f"the sequence does not divide over tp and cp, with {pieces} in two pieces a rank"
    return Rule(message, ("tp", "cp", "seq"), equal, search_only=True)


EQUAL_SHARDS: Final = _equal_shards("ulysses", "ring attention")  # torchtitan, ParallelDims.seq_len_divisor
EQUAL_PIECES: Final = _equal_shards("none", "cp above 1")  # Megatron-LM, training/arguments.py
WHOLE_KV_HEADS: Final = Rule(  # huggingface/nanotron 00708b8, src/nanotron/config/config.py
    "nanotron needs a head of keys and values on every tensor rank",
    ("tp", "groups"),
    lambda model, plan, gbs: plan.tp <= model.groups,
    search_only=True,
)
EXPERTS_OF_REPLICAS: Final = Rule(  # the same repository, src/nanotron/parallel/context.py
    "nanotron shards experts over data-parallel replicas (ep divides dp)",
    ("dp", "ep"),
    lambda model, plan, gbs: plan.dp % plan.ep == 0,
    search_only=True,
)
SHARDED_KV_HEADS: Final = Rule(  # torchtitan 0.3.0, torchtitan/models/common/decoder.py, update_from_config
    "torchtitan cuts heads of keys and values evenly over tensor ranks",
    ("tp", "groups"),
    lambda model, plan, gbs: (model.latent is not None) | (model.groups % plan.tp == 0),
    search_only=True,
)
UNTIED_PIPELINE: Final = Rule(  # the same function
    "torchtitan ties no embedding to the output projection across a pipeline",
    ("pp",),
    lambda model, plan, gbs: (plan.pp == 1) | (not model.tied),
    search_only=True,
)
# torchtitan 0.3.0, torchtitan/models/common/moe_sharding.py: experts lie on ranks of ep, or on those of tp
EXPERTS_ON_TENSOR_RANKS: Final = Rule(
    "torchtitan shards experts over tensor ranks where it has no expert parallelism (etp is tp)",
    ("tp", "ep", "etp"),
    lambda model, plan, gbs: True if model.experts is None else (plan.ep > 1) | (plan.etp == plan.tp),
    search_only=True,
)
WHOLE_EXPERTS: Final = Rule(
    "torchtitan shards no expert over tensor ranks beside expert parallelism (etp is 1)",
    ("ep", "etp"),
    lambda model, plan, gbs: True if model.experts is None else (plan.ep == 1) | (plan.etp == 1),
    search_only=True,
)
# transformers 5.23, distributed/tensor_parallel.py: only quantized layers with _hf_quantized_needs_local_tp,
# those of torchao and of fp8 in blocks, run on shards
UNPACKED_SHARDS: Final = Rule(
    "transformers runs weights that bitsandbytes packs (QLoRA) on no tensor ranks",
    ("tp",),
    lambda model, plan, gbs: (plan.tp == 1) | (not model.is_packed),
    search_only=True,
)
# TRL 1.16.0, trainer/dpo_trainer.py, DataCollatorForPreference: a row is a pair, whose answers pass together
WHOLE_PAIRS: Final = Rule(
    "DPO passes both answers of a pair in one micro-batch: mbs must be even",
    ("mbs",),
    lambda model, plan, gbs: (plan.mbs % 2 == 0) | (not model.reference),
    search_only=True,
)
ALL_FORWARD_FIRST: Final = Rule(  # MaxText 0.2.2, src/maxtext/layers/pipeline.py: XLA derives the backward
    "MaxText's pipelines run all forward passes first (gpipe)",
    ("pp",),
    lambda model, plan, gbs: (plan.pp == 1) | (plan.schedule == "gpipe"),
    search_only=True,
)


def no_packed_weights(title: str) -> Rule:
    """Return the rule of a framework that holds no weights which bitsandbytes packs."""
    message = f"{title} has no weights that bitsandbytes packs (QLoRA)"
    return Rule(message, (), lambda model, plan, gbs: not model.is_packed, search_only=True)


def no_pipeline(title: str) -> Rule:
    """Return the rule of a framework that runs no pipeline."""
    return Rule(f"{title} runs no pipeline", ("pp",), lambda model, plan, gbs: plan.pp == 1, search_only=True)


# megatron/core/ssm: mamba_mixer.py calls the scans of Mamba-2 only, gated_delta_net/gdn.py
MEGATRON_LINEAR: Final = Rule(
    "of linear attention Megatron-Core 0.19.2 has Mamba-2 and the gated delta net only",
    (),
    lambda model, plan, gbs: all(
        getattr(model, part) is None for part in LINEAR_ATTENTIONS if part not in ("mamba2", "gated_delta")
    ),
    search_only=True,
)


def _in_expert_order(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether a rank has as many replicas of experts as of the rest, or pp is numbered last."""
    of_experts = plan.etp * plan.ep if model.experts is not None else plan.tp
    return plan.order == DEFAULTS["order"] or (plan.pp == 1) | (plan.tp * plan.cp == of_experts)


def _delta_heads_divide(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether tensor and context ranks share the heads of a gated delta net evenly."""
    if model.gated_delta is None:
        return True
    return reduce(and_, (heads % (plan.tp * plan.cp) == 0 for heads in model.gated_delta.counts.sharded))


# Megatron-Core 0.19.2: megatron/core/parallel_state.py, transformer/transformer_config.py
MEGATRON_RULES: Final = (
    no_packed_weights("Megatron-Core"),
    MEGATRON_LINEAR,
    OVERLAP_NEEDS_CHUNKS,
    EQUAL_PIECES,
    Rule(
        "order tp-cp-pp-dp in a pipeline: Megatron-Core needs as many replicas of experts as of the rest,"
        " ep × etp = tp × cp; without experts cp = 1",
        ("tp", "cp", "pp", "ep", "etp"),
        _in_expert_order,
        search_only=True,
    ),
    Rule(
        "Megatron-Core offloads activations without a pipeline only",
        ("pp",),
        lambda model, plan, gbs: "activations" not in split_choice(plan.offload) or plan.pp == 1,
        search_only=True,
    ),
    Rule(  # since 0.18; it has an exchange of its own, whatever --cp-comm-type says
        "in Megatron-Core tp × cp divides the heads of keys and of values of the gated delta net",
        ("tp", "cp"),
        _delta_heads_divide,
        search_only=True,
    ),
    Rule(
        "Megatron-Core shards no experts with biases over tensor ranks (etp)",
        ("etp",),
        lambda model, plan, gbs: model.experts is None or "mlp" not in model.biases or plan.etp == 1,
        search_only=True,
    ),
    Rule(
        "Megatron-Core overlaps exchanges with experts beside one module of multi-token prediction at most",
        (),
        lambda model, plan, gbs: not plan.ep_overlap or model.mtp <= 1,
        search_only=True,
    ),
)
