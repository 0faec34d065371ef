"""Assumptions as data: a preset is a value of `Assumptions`; no formula depends on its name."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from operator import attrgetter
from typing import Any, Final, Literal

from traincast.core.errors import require_known
from traincast.core.records import replace_fields

CALIBRATED: Final = "calibrated"  # stands for the usual software stack of the catalogue


def _is(default: object, meaning: str, unit: str = "", of_experts: bool = False) -> Any:
    """Declare an assumption: its default, its meaning, and its SI unit (none for factors and shares).

    `of_experts`: it is of the code of a layer of experts, which software does not share unless it says so.
    """
    return field(default=default, metadata={"meaning": meaning, "unit": unit, "of_experts": of_experts})


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """Rates of matrix products and memory-bound kernels."""

    launch_seconds: float = _is(20e-6, "fixed cost of an operation in one direction", "s")
    launch_hides_traffic: bool = _is(True, "memory traffic overlaps with the launch")
    matrix_efficiency: float = _is(0.8, "share of the matrix peak that kernels sustain")
    vector_efficiency: float = _is(0.8, "share of the vector peak that kernels sustain")
    memory_efficiency: float = _is(1, "share of the memory bandwidth that kernels achieve")
    sustained_rates: bool = _is(
        False, "the sustained share of an accelerator, if known, replaces matrix_efficiency"
    )
    power_exponent: float = _is(
        0, "rates of products and attention grow with this power of an accelerator's power limit"
    )
    sustained_bandwidth: bool = _is(
        False, "the achieved share of an accelerator's memory bandwidth, if known, replaces memory_efficiency"
    )
    product_efficiency: float = _is(
        1, "rate of products relative to the sustained rate: libraries of other years are slower or faster"
    )
    low_precision_efficiency: float = _is(
        1, "the same of products at 8 bits and less, beside product_efficiency: their libraries are younger"
    )
    tile: float = _is(0, "edge of a multiprocessor's output tile, to which products are padded; 0 for none")
    tile_aspect: float = _is(
        1, "longer edge of a tile over the shorter: 2 where two multiprocessors of a Blackwell share one"
    )
    wave_loss: float = _is(0, "share of idle time of multiprocessors in the last wave of tiles that is lost")
    aligned_elements: float = _is(
        0, "attention products of heads not a multiple of this many 16-bit elements are slower; 0 for none"
    )
    misaligned_slowdown: float = _is(1, "factor of that slowdown: no matrix units are used")
    burst_seconds: float = _is(
        0, "an idle accelerator runs at its burst rate for this long, until the power limit acts", "s"
    )
    joint_backward: bool = _is(True, "the gradients of a linear layer, of input and weights, are one kernel")
    scan_efficiency: float = _is(1, "rate of products in scans of linear attention over the sustained one")
    inputs_exposed: float = _is(0, "share of a product's operand traffic that its arithmetic never hides")
    outputs_exposed: float = _is(0, "the same share of its output, accumulation included")
    casts_exposed: float = _is(0, "the same share of casts to lower precision")
    grouped_exposed: float = _is(0, "the same share for a grouped product of several experts, if larger")
    groups_experts: bool = _is(
        True, "products of a rank's experts are one grouped kernel; else one after the other", of_experts=True
    )


@dataclass(frozen=True, kw_only=True)
class AttentionKernel:
    """Rate of the fused attention kernel."""

    kernel: Literal["paper", "fa1", "fa2", "fa3", "cudnn"] = _is(
        "paper", "FlashAttention 1, 2 or 3, or cuDNN; paper: products, softmax and traffic at the usual rates"
    )
    efficiency: float = _is(0.5, "share of the peak reached forward, where an accelerator's is unknown")
    framework_rate: float = _is(
        1, "rate relative to that of the kernel alone: how a framework calls it, repeated heads, layouts"
    )
    backward: float = _is(0.65, "rate backward relative to forward, where an accelerator's is unknown")
    wide_backward: float = _is(1, "slowdown backward for heads wider than 128, whose tiles exceed the chip")
    launch_seconds: float = _is(20e-6, "fixed cost of the kernel in one direction", "s")
    start: float = _is(0, "start and end of a row of tiles, as the number of keys processed meanwhile")
    tail: float = _is(0, "weight of the longest row of tiles, for which multiprocessors wait at the end")
    tile: float = _is(128, "queries in a tile of a multiprocessor")
    softmax: float = _is(0, "head width at which products take as long as the exponentials of scores")
    low_precision: float = _is(
        1, "rate relative to 16 bits if linear layers run at 8 bits or less; above 1 if the kernel does too"
    )
    causal_skipping: float = _is(1, "share of the masked part of attention that fused kernels skip")


@dataclass(frozen=True, kw_only=True)
class MemoryTraffic:
    """Bytes that kernels move: passes over their data, relative to the fused minimum."""

    elementwise_passes: float = _is(1, "of the elementwise operations of a layer")
    adapter_passes: float = _is(
        0, "of casts and scale of an adapter, and its addition to the frozen result; 0: as elementwise_passes"
    )
    rotation_passes: float = _is(
        0, "of the rotation of queries and keys by a chain of operations; 0: as elementwise_passes"
    )
    fuses_rotation: bool = _is(
        False, "queries and keys that are normed are rotated by the same kernel, which moves no more for it"
    )
    sums_input_gradients: bool = _is(
        False,
        "queries, keys and values, and gate and up projection, are products of their own, whose gradients of "
        "one input are added by further kernels",
    )
    softmax_passes: float = _is(1, "of softmax and dropout of unfused attention")
    unfused_softmax_passes: float = _is(
        1,
        "the same where Megatron-LM's fused softmax does not apply: sequences × heads not a multiple of 4",
    )
    cast_passes: float = _is(1, "over activations and gradients that a precision recipe casts")
    weight_cast_passes: float = _is(0, "over weights that it casts, for every micro-batch")
    accumulation_passes: float = _is(1, "over a weight gradient added to those of earlier micro-batches")
    optimizer_passes: float = _is(0, "over the data of the optimizer in a step; 0 leaves its time out")
    expert_passes: float = _is(1, "of token permutation and expert activations", of_experts=True)
    local_expert_passes: float = _is(
        0,
        "the same with all experts on every rank, where a fused dispatcher has nothing to move; 0: as "
        "expert_passes",
        of_experts=True,
    )
    expert_bias_passes: float = _is(
        1,
        "the same with biases of experts: added one by one, router weights in fp32, activation not fused",
        of_experts=True,
    )
    conv_passes: float = _is(1, "of the causal convolution of linear attention")
    scan_passes: float = _is(1, "of its scan, relative to what its kernels read and write")
    fuses_additions: bool = _is(False, "biases and dropout are fused into the kernels beside them forward")
    residuals: bool = _is(False, "residual additions are separate memory traffic")
    loss_bytes: float = _is(12, "of the loss per logit, forward and backward", "byte")
    summa_norm_width: Literal["hidden", "seq"] = _is(
        "hidden", "dimension that divided by tp is the row length of a SUMMA norm; erratum 1 used seq"
    )
    rounds_moments_together: bool = _is(
        False,
        "backward all-reduce of a SUMMA norm rounds down the moments of a micro-batch, not the tokens of a"
        " sequence; as published with erratum 1",
    )


@dataclass(frozen=True, kw_only=True)
class Collectives:
    """Volumes, protocols and latencies of communication."""

    protocols: bool = _is(False, "protocols and algorithms are chosen by size and group, as NCCL does")
    launch_share: float = _is(
        1, "with protocols: share of the start-up of a collective in benchmarks that a step pays"
    )
    launch_inside: float = _is(0, "start-up of a collective in a tier without a figure", "s")
    launch_beyond: float = _is(0, "the same beyond the fast domain, in addition", "s")
    simple_hop_inside: float = _is(0, "longest hop of Simple in a tier without a figure", "s")
    simple_hop_beyond: float = _is(0, "the same beyond the fast domain", "s")
    simple_to_ll_inside: float = _is(1, "a hop of Simple relative to one of LL, at most")
    simple_to_ll_beyond: float = _is(1, "the same beyond the fast domain")
    ll_bandwidth: float = _is(3.9e9, "bandwidth of LL over one port without a figure", "byte/s")
    max_ll_share: float = _is(1, "the same as a share of what Simple achieves, at most")
    inner_hop_share: float = _is(
        1, "a hop of Simple inside a domain relative to one between domains, in a ring or tree that has both"
    )
    hops_per_fill: float = _is(6, "hops of Simple that fill a pipeline of chunks as long as the first")
    own_block: float = _is(
        0, "time of a rank's own block, copied inside a fast domain, relative to one that a link carries"
    )
    ll128_to_ll: float = _is(1, "a hop of LL128 relative to one of LL")
    message_hop_share: float = _is(
        1, "start of a message of an all-to-all inside a fast domain relative to a hop of Simple"
    )
    ll_message_bandwidth: float = _is(
        3.9e9, "bandwidth of LL for the message to each peer of an all-to-all there", "byte/s"
    )
    all_gather_factor: float = _is(1, "data that an all-gather moves, relative to the formula")
    reduce_scatter_factor: float = _is(1, "the same of a reduce-scatter")
    all_to_all_factor: float = _is(1, "the same of an all-to-all")
    message_factor: float = _is(1, "the same of a point-to-point message")
    all_reduce_passes_in_domain: float = _is(
        2.0, "passes of an all-reduce over its data inside one network tier; erratum 3 used 1"
    )
    slow_pipeline_links: float = _is(
        1.0, "weight of a pipeline's slow links with several stages per fast domain; erratum 2 used 0"
    )
    bucket_parameters: float = _is(0, "parameters whose gradients are reduced at once; 0 for layer by layer")
    bucket_per_rank: float = _is(0, "the same for each rank that shares them")
    skew_seconds: float = _is(0, "wait of a tp collective for the slowest rank, per doubling of ranks", "s")
    copy_passes: float = _is(
        0, "passes over all that ranks of tp gather or reduce and scatter, to bring it in the order of tokens"
    )
    gathers_operands: bool = _is(False, "tokens are cast to the product's precision before the tp all-gather")
    node_copies: bool = _is(
        False, "a token for several experts of a domain crosses the network once", of_experts=True
    )
    gathers_tokens: bool = _is(
        False,
        "ranks of experts gather the tokens of all of them, and reduce and scatter the results (the "
        "all-gather dispatcher), in place of an all-to-all",
        of_experts=True,
    )
    probability_bytes: float = _is(
        0,
        "of a router's probability, in whose precision that dispatcher returns results; 0: as activations",
        "byte",
        of_experts=True,
    )
    rail_forwarding: float = _is(1, "share of traffic between rails forwarded inside the domain (NCCL's PXN)")
    transfers_scattered: float = _is(
        0,
        "share of the transfers between stages, without sequence parallelism, of which each tensor rank "
        "sends only its shard",
    )
    slowest_link_paces: bool = _is(False, "a blocking transfer is as slow as the pipeline's slowest link")


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Shares of communication that are exposed, and windows that hide the rest."""

    tp_exposed: float = _is(1, "exposed share of tensor-parallel communication")
    tp_overlapped: float = _is(1, "the same if a plan overlaps it with products")
    ep_exposed: float = _is(1, "exposed share of expert-parallel communication", of_experts=True)
    ep_overlapped: float = _is(
        1,
        "the same if a plan overlaps it with the work of another micro-batch, where that is long enough",
        of_experts=True,
    )
    pp_exposed: float = _is(
        1, "share of a transfer between stages that blocks both ends for every micro-batch"
    )
    dp_window: float = _is(
        1, "share of the work of a micro-batch that can hide data-parallel traffic; 0 if they never overlap"
    )
    interleaved_window: float = _is(
        0, "the same share of the pp - 1 other micro-batches of a group, in interleaved schedules"
    )
    dp_contention: float = _is(
        0, "share of hidden data-parallel traffic that costs time: it takes multiprocessors and bandwidth"
    )
    optimizer_barrier: bool = _is(
        False, "the optimizer waits for all stages, as clipping by the global gradient norm requires"
    )


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """Sizes of elements, what is saved for backward, and memory that is not the model's."""

    element_bytes: float = _is(2.0, "size of a weight, gradient or activation element", "byte")
    mask_bytes: float = _is(1.0, "size of a dropout-mask element", "byte")
    grad_dtype: Literal["16-bit", "fp32"] = _is(
        "16-bit", "precision of accumulated gradients where the plan's is usual"
    )
    saves_attention_output: float = _is(
        1, "copies of the output of core attention saved beside the input of the output projection"
    )
    saves_gathered: bool = _is(
        True,
        "the gathered input of a column-parallel layer is saved; else its shard, gathered again backward",
    )
    saves_elementwise: bool = _is(
        False,
        "operations save their own (eager PyTorch): a gated MLP its activated gate, a layer that recomputes "
        "every second product the last one's result, which backward does not read",
    )
    saves_weighted: bool = _is(
        False,
        "results of experts' activations, if not gated, are saved before routing weights multiply them, too",
    )
    saves_rotated: bool = _is(False, "queries and keys before their rotation are saved")
    norms_in_fp32: bool = _is(
        False,
        "an RMSNorm is a chain of operations in fp32, which save its input in fp32 and the normed one; a "
        "LayerNorm saves its statistics as well",
    )
    softmax_in_fp32: bool = _is(
        False, "unfused attention saves the result of its softmax in fp32, besides that of the product"
    )
    expands_keys: Literal["never", "unfused", "always"] = _is(
        "never", "where keys and values of fewer heads are copied for each head of queries before attention"
    )
    shares_adapter_inputs: bool = _is(True, "adapters of one input save it once; else each saves a copy")
    adapters_save_8bit_gates: bool = _is(
        False, "with adapters, the inputs of an MLP's activation are saved in 8 bits where products have them"
    )
    widens_packed: bool = _is(
        False, "activations are in fp32 where the base of adapters is packed (results have the input's type)"
    )
    gradients_last: Literal["step", "backward", "layer"] = _is(
        "step",
        "how long gradients are in memory: from step to step; from the first backward pass, whose freed "
        "activations make room for them; or while a layer is at work (optimizer in backward)",
    )
    saves_casts: bool = _is(
        True,
        "operands and weights are saved in low precision (Transformer Engine), not cast again (torchao)",
    )
    kept_beside: Literal["inputs", "projection", "nothing"] = _is(
        "inputs",
        "what selective recomputation keeps beside the operands of fused attention and the layer's input: "
        "the inputs of all that is not recomputed; the result of attention's projection; or, with attention, "
        "norms and MLP recomputed, nothing (tensors that a policy of JAX names)",
    )
    recomputes_last: bool = _is(True, "recomputing a layer includes its last product, not needed backward")
    stores_16bit_weights: bool = _is(
        True,
        "weights of 8-bit products are stored in 16 bits too; else in 8 bits only, by rows and by columns "
        "(fp8_param_gather of Megatron-Core)",
    )
    stores_remainders: bool = _is(
        False,
        "the usual master copy of Adam with moments of few bits is the half that bf16 weights lack "
        "(store_param_remainders of Megatron-Core)",
    )
    stores_sharded_copy: bool = _is(
        True, "ZeRO-3 stores a shard of the 16-bit weights beside the master copy (DeepSpeed); FSDP casts it"
    )
    offloads_gradients: bool = _is(
        False,
        "sharded gradients are summed in the host's memory where optimizer states are offloaded (DeepSpeed, "
        "FSDP); Megatron-Core's stay on the device",
    )
    gathered_layers: float = _is(2, "layers whose weights ZeRO-3 gathers at once; the head stays gathered")
    gathers_by_trace: bool = _is(
        False, "ZeRO-3 gathers weights when a module needs them, and keeps those of near reuse (DeepSpeed)"
    )
    reuse_distance: float = _is(
        0,
        "with such a trace: parameters within which a gathered weight that is used again stays gathered "
        "(stage3_max_reuse_distance): of the last layers, from forward to backward",
    )
    prefetched_parameters: float = _is(
        0, "the same: parameters gathered ahead of the layer at work (stage3_prefetch_bucket_size)"
    )
    live_parameters: float = _is(
        0, "the same: gathered parameters up to which it gathers ahead (stage3_max_live_parameters)"
    )
    joins_ends: bool = _is(True, "embedding and head are one unit of ZeRO-3, gathered and reduced at once")
    accumulates_whole: bool = _is(
        False,
        "gradients of micro-batches before the last are added up whole on every rank, in the precision of "
        "computation, and reduced with those of the last (no_sync of PyTorch's FSDP)",
    )
    reduces_apart: bool = _is(
        False,
        "sharded gradients are reduced from memory that the allocator keeps for their own stream (FSDP2)",
    )
    buckets_copy_gradients: bool = _is(
        False,
        "data-parallel ranks that shard nothing reduce gradients in buckets of their own (PyTorch's DDP)",
    )
    reduce_bucket: float = _is(
        0,
        "parameters whose sharded gradients are reduced from a buffer of their own (DeepSpeed, "
        "reduce_bucket_size); a larger gradient is whole until it is",
    )
    stepped_parameters: float = _is(
        0,
        "parameters of a rank whose 16-bit gradients the optimizer's step casts to fp32 at once (DeepSpeed): "
        "sub_group_size with ZeRO-3, with ZeRO-1 and 2 all",
    )
    vocab_multiple: int = _is(128, "the vocabulary shard of a rank is padded to a multiple of this")
    logit_bytes: float = _is(4, "peak memory of the loss per logit", "byte")
    vocabulary_gradient_bytes: float = _is(
        0,
        "per parameter of embedding or head: the gradient before it is added to the accumulated one",
        "byte",
    )
    gradient_copy_bytes: float = _is(
        0,
        "per parameter: 16-bit gradients kept beside unsharded accumulated ones of more than 16 bits",
        "byte",
    )
    counts_gradients_at_work: bool = _is(
        False, "the gradients of input and result of a product are there while backward is at work on it"
    )
    keeps_frozen_layers: bool = _is(
        False,
        "the inputs of frozen layers that are recomputed, and their gradients, are kept to the end of "
        "backward, where FSDP shards them (its first version with reentrant checkpoints)",
    )
    foreach_step: bool = _is(
        False,
        "the optimizer steps lists of tensors (foreach in PyTorch), which takes the roots of all second "
        "moments at once; fused kernels take none",
    )
    foreach_open: bool = _is(
        False,
        "it is left open whether it does: the probability of fitting counts both, each as likely",
    )
    library_bytes: float = _is(0, "what the framework's allocator holds beside all that is counted", "byte")
    counts_workspaces: bool = _is(
        False, "workspaces of matrix products, as large as the accelerator's, are counted"
    )
    workspace_bytes: float = _is(
        0, "workspaces of matrix products that the framework's allocator holds", "byte"
    )
    context_bytes: float = _is(0, "device context and libraries", "byte")
    allocator_share: float = _is(0, "share of the allocated memory lost to fragmentation")
    pool_share: float = _is(
        1,
        "share of an accelerator's memory that the framework may allocate (XLA on GPUs, where it is stated)",
    )
    communication_bytes: float = _is(
        0, "library of collectives on a rank that belongs to a group, beside the buffers of each", "byte"
    )
    buffer_bytes: float = _is(0, "buffers of one communicator; a rank has one for each group", "byte")


@dataclass(frozen=True, kw_only=True)
class Host:
    """Overheads of the host, and waits for the slowest rank."""

    dispatch_seconds: float = _is(
        0,
        "launch overhead: to issue an operation or collective in one direction; bounds the time of a stage",
        "s",
    )
    rotation_seconds: float = _is(
        0,
        "to issue the rotation of queries and keys by a chain of operations in both directions; once for "
        "each document of packed sequences, for which the accelerator waits forward; 0 if it is one kernel",
        "s",
    )
    adapter_seconds: float = _is(
        0, "to issue an adapter in both directions, collectives apart; 0: as other operations", "s"
    )
    unfused_softmax_launches: float = _is(
        0, "more operations issued in each direction where Megatron-LM's fused softmax does not apply"
    )
    sync_seconds: float = _is(
        0, "wait of a layer with experts until the host knows its experts' tokens", "s", of_experts=True
    )
    local_sync_seconds: float = _is(
        0,
        "the same with all experts on every rank, where a fused dispatcher has nothing to move; 0: as "
        "sync_seconds",
        "s",
        of_experts=True,
    )
    expert_dispatch_seconds: float = _is(
        0,
        "launch overhead of a layer with dropless experts in both directions, beside that of its operations; "
        "0 if it is captured in a graph",
        "s",
        of_experts=True,
    )
    expert_product_seconds: float = _is(
        0,
        "launch overhead of a product of one expert and of the elementwise kernels beside it, where experts "
        "run one after the other",
        "s",
        of_experts=True,
    )
    microbatch_seconds: float = _is(0, "per micro-batch besides operations: data, schedule, transfers", "s")
    step_seconds: float = _is(0, "fixed overhead of a step: data, logging, the optimizer's launches", "s")
    broadcast_seconds: float = _is(
        0,
        "per rank and step, if optimizer states are sharded beyond the fast domain and ranks broadcast "
        "their weights one after the other; 0 if weights are gathered",
        "s",
    )
    straggling: float = _is(0, "relative increase of the step time per doubling of GPUs beyond a node of 8")
    memory_bandwidth: float = _is(
        50e9, "host memory bandwidth per accelerator, at which an offloaded optimizer runs", "byte/s"
    )


@dataclass(frozen=True, kw_only=True)
class Power:
    """Power that a machine draws, as shares of what its data sheets allow."""

    streaming: float = _is(1, "share of an accelerator's power while memory traffic is exposed")
    waiting: float = _is(1, "the same while it communicates or waits")
    host: float = _is(1, "share of what a node may draw beside its accelerators")


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """Assumptions that turn counts into times and bytes; defaults are those of arXiv 2410.00273, corrected.

    The default of what the paper does not count (its models have no vocabulary and no mask) is neutral:
    saved, exposed, or 0. The loss has 12 bytes of traffic and 4 of memory for each logit, the vocabulary is
    padded as by Megatron-LM, and ZeRO-3 gathers one layer ahead (assumed).
    """

    name: str = "custom"  # of the preset
    # Stacks of the catalogue that the question leaves open, ("any",) for all: these assumptions are then
    # those of the usual one. Empty where the software is stated.
    unsaid: tuple[str, ...] = ()
    new_release: bool = False  # whether the framework's release is stated and no measured run had it
    given: tuple[tuple[str, str], ...] = ()  # facts of the software that the question states besides
    kernels: Kernels = Kernels()
    attention: AttentionKernel = AttentionKernel()
    traffic: MemoryTraffic = MemoryTraffic()
    collectives: Collectives = Collectives()
    overlap: Overlap = Overlap()
    memory: MemoryUse = MemoryUse()
    host: Host = Host()
    power: Power = Power()
    ordered_ranks: bool = _is(False, "plans without a placement take the order of ranks, not the fastest one")
    errors_known: bool = _is(False, "prediction errors are known from measured runs")

    def value(self, path: str) -> Any:
        """Return the value at a path such as ``"host.dispatch_seconds"`` [SI]."""
        return attrgetter(path)(self)

    def values(self) -> dict[str, Any]:
        """Return every value by its path [SI]."""
        return {path: self.value(path) for path in ASSUMPTIONS}

    def with_values(self, values: Mapping[str, object]) -> "Assumptions":
        """Return these assumptions with values replaced, by path: ``{"host.dispatch_seconds": 5e-6}`` [SI].

        Raises `InputError` if a path is not known.
        """
        changes: dict[str, dict[str, object]] = defaultdict(dict)
        for name, value in values.items():
            require_known("assumption", name, ASSUMPTIONS)
            record, _, figure = name.rpartition(".")
            changes[record][figure] = value
        top = changes.pop("", {})
        parts = {name: replace_fields(getattr(self, name), inner) for name, inner in changes.items()}
        return replace_fields(self, {**top, **parts})

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Assumptions":
        """Return assumptions saved by `dataclasses.asdict`."""
        values: dict[str, object] = {}
        for name, value in saved.items():
            if isinstance(value, Mapping):
                values |= {f"{name}.{figure}": number for figure, number in value.items()}
            elif name not in ("name", "unsaid", "given", "new_release"):
                values[name] = value
        stated = {
            "unsaid": tuple(saved.get("unsaid", ())),
            "given": tuple((fact, value) for fact, value in saved.get("given", ())),
            "new_release": saved.get("new_release", False),
        }
        return cls(name=saved["name"], **stated).with_values(values)

    @classmethod
    def with_errata(cls, *numbers: int) -> "Assumptions":
        """Return the paper's, with some of errata 1, 2 and 3 of its published results put back."""
        changes = {path: value for number in numbers for path, value in ERRATA[number].items()}
        name = "paper-published" if set(numbers) == set(ERRATA) else "+".join(("paper", *map(str, numbers)))
        return replace(PAPER, name=name).with_values(changes)


def _by_path(record: type, prefix: str = "") -> dict[str, Field[object]]:
    paths: dict[str, Field[object]] = {}
    for item in fields(record):
        if is_dataclass(item.type):
            paths |= _by_path(item.type, f"{prefix}{item.name}.")  # type: ignore[arg-type]  # a class, not an instance
        elif item.metadata:
            paths[prefix + item.name] = item
    return paths


# Path -> type, default, meaning, unit
ASSUMPTIONS: Final[Mapping[str, Field[object]]] = _by_path(Assumptions)
# Those of the code of a layer of experts
EXPERT_ASSUMPTIONS: Final = frozenset(
    path for path, item in ASSUMPTIONS.items() if item.metadata["of_experts"]
)

PAPER: Final = Assumptions(name="paper")
ERRATA: Final[dict[int, dict[str, object]]] = {  # erratum of the published results -> values it changes
    1: {"traffic.summa_norm_width": "seq", "traffic.rounds_moments_together": True},
    2: {"collectives.slow_pipeline_links": 0.0},
    3: {"collectives.all_reduce_passes_in_domain": 1.0},
}


PRESETS: Final = {preset.name: preset for preset in (PAPER, Assumptions.with_errata(*ERRATA))}
