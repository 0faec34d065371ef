"""What training frameworks cannot run: rules beside those that every plan keeps.

Their conditions are functions of the module or instances of a class, not lambdas: results of a search hold
the rules of its framework, and are pickled.
"""

from dataclasses import dataclass
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


@dataclass(frozen=True)
class _EqualShards:
    """The condition that ranks have as many tokens of a sequence, in two pieces unless cp is `whole`."""

    whole: str  # the cp_kind whose ranks hold one piece

    def __call__(self, model: Model, plan: Plans, gbs: int) -> bool | Bools:
        shards = plan.cp * (plan.tp if plan.sp else 1)
        one_piece = (plan.cp == 1) | (plan.cp_kind == self.whole)
        lengths = shared_lengths(model)
        return reduce(and_, ((n % shards == 0) & (one_piece | (n % (2 * plan.cp) == 0)) for n in lengths))


def _equal_shards(whole: str, pieces: str) -> Rule:
    """Return the rule that ranks have as many tokens of a sequence, in two pieces unless cp is `whole`."""
    message = f"the sequence does not divide over tp and cp, with {pieces} in two pieces a rank"
    return Rule(message, ("tp", "cp", "seq"), _EqualShards(whole), search_only=True)


def _has_kv_head_per_rank(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether every tensor rank has a head of keys and values."""
    return plan.tp <= model.groups


def _shards_experts_over_replicas(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether expert parallelism divides data parallelism."""
    return plan.dp % plan.ep == 0


def _cuts_kv_heads_evenly(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether tensor ranks share heads of keys and values evenly; latent attention has none."""
    return (model.latent is not None) | (model.groups % plan.tp == 0)


def _unties_where_piped(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether the embedding is not tied to the output projection across a pipeline."""
    return (plan.pp == 1) | (not model.tied)


def _has_experts_on_tensor_ranks(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether experts lie on all tensor ranks where they do not lie on ranks of their own."""
    return True if model.experts is None else (plan.ep > 1) | (plan.etp == plan.tp)


def _has_whole_experts(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether experts on ranks of their own are whole."""
    return True if model.experts is None else (plan.ep == 1) | (plan.etp == 1)


def _shards_unpacked_weights(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether weights that tensor ranks share are not packed."""
    return (plan.tp == 1) | (not model.is_packed)


def _has_whole_pairs(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether micro-batches hold both answers of a pair, where DPO is trained."""
    return (plan.mbs % 2 == 0) | (not model.reference)


def _runs_forward_first(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether pipelines run all forward passes first."""
    return (plan.pp == 1) | (plan.schedule == "gpipe")


def _has_unpacked_weights(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether weights are not packed."""
    return not model.is_packed


def _has_one_stage(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether there is no pipeline."""
    return plan.pp == 1


def _has_linear_attention_of_megatron(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether a model has no linear attention but Mamba-2 and the gated delta net."""
    missing = (part for part in LINEAR_ATTENTIONS if part not in ("mamba2", "gated_delta"))
    return all(getattr(model, part) is None for part in missing)


def _offloads_without_pipeline(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether activations are offloaded without a pipeline only."""
    return "activations" not in split_choice(plan.offload) or plan.pp == 1


def _keeps_biased_experts_whole(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether experts with biases are whole."""
    return model.experts is None or "mlp" not in model.biases or plan.etp == 1


def _overlaps_with_one_prediction(model: Model, plan: Plans, gbs: int) -> bool | Bools:
    """Return whether exchanges with experts overlap beside one module of multi-token prediction at most."""
    return not plan.ep_overlap or model.mtp <= 1


EQUAL_SHARDS: Final = _equal_shards("ulysses", "ring attention")  # torchtitan, ParallelDims.seq_len_divisor
EQUAL_PIECES: Final = _equal_shards("none", "cp above 1")  # Megatron-LM, training/arguments.py
WHOLE_KV_HEADS: Final = Rule(  # huggingface/nanotron 00708b8, src/nanotron/config/config.py
    "nanotron needs a head of keys and values on every tensor rank",
    ("tp", "groups"),
    _has_kv_head_per_rank,
    search_only=True,
)
EXPERTS_OF_REPLICAS: Final = Rule(  # the same repository, src/nanotron/parallel/context.py
    "nanotron shards experts over data-parallel replicas (ep divides dp)",
    ("dp", "ep"),
    _shards_experts_over_replicas,
    search_only=True,
)
SHARDED_KV_HEADS: Final = Rule(  # torchtitan 0.3.0, torchtitan/models/common/decoder.py, update_from_config
    "torchtitan cuts heads of keys and values evenly over tensor ranks",
    ("tp", "groups"),
    _cuts_kv_heads_evenly,
    search_only=True,
)
UNTIED_PIPELINE: Final = Rule(  # the same function
    "torchtitan ties no embedding to the output projection across a pipeline",
    ("pp",),
    _unties_where_piped,
    search_only=True,
)
# torchtitan 0.3.0, torchtitan/models/common/moe_sharding.py: experts lie on ranks of ep, or on those of tp
EXPERTS_ON_TENSOR_RANKS: Final = Rule(
    "torchtitan shards experts over tensor ranks where it has no expert parallelism (etp is tp)",
    ("tp", "ep", "etp"),
    _has_experts_on_tensor_ranks,
    search_only=True,
)
WHOLE_EXPERTS: Final = Rule(
    "torchtitan shards no expert over tensor ranks beside expert parallelism (etp is 1)",
    ("ep", "etp"),
    _has_whole_experts,
    search_only=True,
)
# transformers 5.23, distributed/tensor_parallel.py: only quantized layers with _hf_quantized_needs_local_tp,
# those of torchao and of fp8 in blocks, run on shards
UNPACKED_SHARDS: Final = Rule(
    "transformers runs weights that bitsandbytes packs (QLoRA) on no tensor ranks",
    ("tp",),
    _shards_unpacked_weights,
    search_only=True,
)
# TRL 1.16.0, trainer/dpo_trainer.py, DataCollatorForPreference: a row is a pair, whose answers pass together
WHOLE_PAIRS: Final = Rule(
    "DPO passes both answers of a pair in one micro-batch: mbs must be even",
    ("mbs",),
    _has_whole_pairs,
    search_only=True,
)
ALL_FORWARD_FIRST: Final = Rule(  # MaxText 0.2.2, src/maxtext/layers/pipeline.py: XLA derives the backward
    "MaxText's pipelines run all forward passes first (gpipe)",
    ("pp",),
    _runs_forward_first,
    search_only=True,
)


def no_packed_weights(title: str) -> Rule:
    """Return the rule of a framework that holds no weights which bitsandbytes packs."""
    message = f"{title} has no weights that bitsandbytes packs (QLoRA)"
    return Rule(message, (), _has_unpacked_weights, search_only=True)


def no_pipeline(title: str) -> Rule:
    """Return the rule of a framework that runs no pipeline."""
    return Rule(f"{title} runs no pipeline", ("pp",), _has_one_stage, search_only=True)


# megatron/core/ssm: mamba_mixer.py calls the scans of Mamba-2 only, gated_delta_net/gdn.py
MEGATRON_LINEAR: Final = Rule(
    "of linear attention Megatron-Core 0.19.2 has Mamba-2 and the gated delta net only",
    (),
    _has_linear_attention_of_megatron,
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
        _offloads_without_pipeline,
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
        _keeps_biased_experts_whole,
        search_only=True,
    ),
    Rule(
        "Megatron-Core overlaps exchanges with experts beside one module of multi-token prediction at most",
        (),
        _overlaps_with_one_prediction,
        search_only=True,
    ),
)
