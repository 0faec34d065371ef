"""Assumptions of the model as data. A preset is a value of `Assumptions`; no formula depends on the name of a preset."""

from dataclasses import dataclass, replace
from typing import Any, Final, Literal


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """Assumptions that turn counts into times and bytes; the defaults are those of arXiv 2410.00273, corrected.

    The default of what the paper does not count (its models have no vocabulary and no mask) is neutral: saved, exposed, or 0. The
    loss has 12 bytes of traffic and 4 of memory for each logit, the vocabulary is padded as by Megatron-LM, and ZeRO-3 gathers one
    layer ahead (assumed).

    Parameters
    ----------
    name : str
        Name of the preset.
    element_bytes : float
        Size of a weight, gradient or activation element, the paper's E [byte].
    mask_bytes : float
        Size of a dropout-mask element [byte].
    launch_seconds : float
        Fixed cost of one operation in one direction [s].
    matrix_efficiency, vector_efficiency : float
        Share of the matrix and vector peak that kernels sustain.
    sustained_rates : bool
        Whether the sustained share of an accelerator, if known, replaces `matrix_efficiency`.
    sustained_bandwidth : bool
        Whether the achieved share of the memory bandwidth of an accelerator, if known, replaces `memory_efficiency`.
    memory_efficiency : float
        Share of the memory bandwidth that kernels achieve.
    launch_hides_traffic : bool
        Whether memory traffic overlaps with the launch.
    tile : float
        Edge of the output tile of a multiprocessor in a matrix product: outputs are padded to whole tiles; 0 for none.
    wave_loss : float
        Share of the idle time of multiprocessors in the last wave of tiles that is lost.
    aligned_elements : float
        Attention products of heads whose width is not a multiple of this many 16-bit elements are slowed down; 0 for none.
    misaligned_slowdown : float
        Factor of that slowdown: such products do not use the matrix units.
    burst_seconds : float
        Time for which an idle accelerator runs at its burst rate before the power limit acts; 0 for steady work [s].
    attention_kernel : {"paper", "fa1", "fa2", "fa3", "cudnn"}
        Kernel of fused attention: FlashAttention 1, 2 or 3, or cuDNN; "paper" for the sum of products, softmax and traffic at
        the usual rates.
    attention_efficiency : float
        Share of the peak that the kernel reaches forward, for accelerators whose own is not known.
    attention_backward : float
        Rate of the kernel backward relative to forward, for accelerators whose own is not known.
    attention_launch_seconds : float
        Fixed cost of the fused-attention kernel in one direction [s].
    attention_start : float
        Start-up and end of a row of tiles, as the number of keys processed in the same time.
    attention_tail : float
        Weight of the longest row of tiles, for which multiprocessors wait at the end.
    attention_tile : float
        Queries in a tile of a multiprocessor.
    attention_softmax : float
        Head width at which the products take as long as the exponentials of the scores.
    attention_low : float
        Rate of the kernel relative to 16 bits if linear layers run at 8 bits or less: above 1 if the kernel uses 8 bits as well.
    attention_wide_backward : float
        Slowdown of the kernel backward for heads wider than 128, whose tiles do not fit on chip together.
    all_reduce_passes_in_domain : {2, 1}
        Passes over the data of an all-reduce inside one network tier: 2 for reduce-scatter and all-gather.
        The published results used 1 (erratum 3).
    slow_pipeline_links : {1, 0}
        Weight of the slow links of a pipeline with several stages per fast domain.
        The published results used 0 (erratum 2).
    summa_norm_width : {"hidden", "seq"}
        Model dimension that divided by tp is the row length of a SUMMA norm.
        The published results used the sequence length (erratum 1).
    grad_dtype : {"16-bit", "fp32"}
        Precision of accumulated gradients if the plan's `grad_dtype` is "usual".
    ordered_ranks : bool
        Whether a plan without a placement is placed in the order in which frameworks number ranks, instead of the fastest
        placement.
    optimizer_barrier : bool
        Whether the optimizer waits for all pipeline stages, as clipping by the global gradient norm requires.
    joint_backward : bool
        Whether the gradients of the input and the weights of a linear layer are one kernel with one roofline.
    inputs_exposed, outputs_exposed, casts_exposed : float
        Share of the memory traffic of a product that its arithmetic never hides: of operands; of the output, accumulation
        included; of casts to lower precision.
    grouped_exposed : float
        The same share for a grouped product of several experts, if it is larger.
    cast_passes, weight_cast_passes : float
        Passes over the data that a precision recipe casts: activations and gradients, and weights (for every micro-batch).
    elementwise_passes : float
        Memory traffic of the elementwise operations of a layer relative to the fused minimum.
    fuses_additions : bool
        Whether biases and dropout are fused into the neighbouring kernels forward.
    softmax_passes, unfused_softmax_passes : float
        The same for softmax and dropout of unfused attention, with and without Megatron-LM's fused softmax, which requires that
        sequences times heads are a multiple of 4.
    causal_skipping : float
        Share of the masked part of attention that fused kernels skip.
    keeps_attention_output : float
        Copies of the output of core attention saved in addition to the input of the output projection.
    keeps_gathered : bool
        Whether the gathered input of a column-parallel layer is saved, rather than its shard, which is gathered again in backward.
    gathers_operands : bool
        Whether tokens are cast to the precision of the product before the tensor-parallel all-gather.
    keeps_elementwise : bool
        Whether intermediate results of fused kernels are saved as well: the activated gate of a gated MLP, queries and keys before
        rotary embedding.
    remakes_last : bool
        Whether recomputing a layer includes its last product, whose output backward does not need.
    residuals : bool
        Whether residual additions are separate memory traffic.
    accumulation_passes : float
        Passes over a weight gradient when it is added to those of earlier micro-batches.
    tp_exposed, tp_overlapped : float
        Exposed share of tensor-parallel communication, without and with overlapped products.
    ep_exposed, ep_overlapped : float
        The same for expert-parallel communication; overlapped with the work of another micro-batch, if that is long enough.
    dp_contention : float
        Share of *hidden* data-parallel traffic that still costs time, since it takes multiprocessors and memory bandwidth from the
        work that hides it.
    node_copies : bool
        Whether a token for several experts in one domain crosses the network to that domain only once.
    pp_exposed : float
        Share of a transfer between stages that blocks the stages at both ends, for every micro-batch. The rest overlaps with their
        work and costs time only on the critical path of the step.
    slowest_link_paces : bool
        Whether a blocking transfer takes the time of the slowest link of the pipeline, not of the average one.
    transfers_scattered : float
        Share of the transfers between stages, without sequence parallelism, of which each tensor-parallel rank sends only its
        shard; the next stage gathers them.
    optimizer_passes : float
        Passes over the data of the optimizer in a step; 0 leaves the optimizer's time out.
    vocab_multiple : int
        The vocabulary shard of a rank is padded to a multiple of this.
    host_memory_bandwidth : float
        Host memory bandwidth per accelerator, at which an offloaded optimizer runs [byte/s].
    loss_bytes : float
        Memory traffic of the loss per logit, forward and backward [byte].
    logit_bytes : float
        Peak memory of the loss per logit [byte].
    vocabulary_gradient_bytes : float
        Temporary memory per parameter of an embedding or output head: the gradient before it is added to the accumulated one
        [byte].
    gradient_copy_bytes : float
        Memory per parameter for the 16-bit gradients that are added to unsharded accumulated gradients of more than 16 bits, if
        they stay allocated [byte].
    keeps_casts : bool
        Whether operands and weights are saved for backward in low precision (Transformer Engine), instead of in 16 bits and cast
        again (torchao).
    keeps_16bit_weights : bool
        Whether the weights of 8-bit products are stored in 16 bits as well; else in 8 bits only, by rows and by columns
        (fp8_param_gather of Megatron-Core).
    keeps_sharded_copy : bool
        Whether ZeRO-3 stores a shard of the 16-bit weights beside that of the master copy (DeepSpeed); FSDP casts the latter.
    context_bytes : float
        Memory of the device context and libraries [byte].
    allocator_share : float
        Memory lost to fragmentation, as a share of the allocated memory.
    buffer_bytes : float
        Size of the buffers of one communicator; a rank has one for each of its groups [byte].
    gathered_layers : float
        Layers whose weights are gathered at the same time with ZeRO-3: the current one and prefetched ones. Embedding and head
        stay gathered.
    product_efficiency : float
        Rate of products relative to the sustained rate of the accelerator: libraries of other years have slower or faster kernels.
    dispatch_seconds : float
        Launch overhead: time of the host to issue one operation or collective in one direction; bounds the time of a stage [s].
    collective_seconds : float
        Extra time of a tensor-parallel collective, waiting for the slowest rank, per doubling of the group [s].
    broadcast_seconds : float
        Time per rank added to a step if optimizer states are sharded beyond the fast domain and ranks broadcast their weights one
        after the other; 0 if weights are gathered [s].
    expert_passes : float
        Memory traffic of token permutation and expert activations relative to the fused minimum.
    expert_bias_passes : float
        The same with biases of experts: added expert by expert, weighted by the router in fp32, activation not fused.
    sync_seconds : float
        Time that a layer with experts waits for the host to read the number of tokens of each expert [s].
    dp_window : float
        Share of the work of a micro-batch that can hide data-parallel traffic; 0 if the two never overlap.
    interleaved_window : float
        Share of the work of the pp - 1 other micro-batches of a group that can hide data-parallel traffic of a chunk as well, in
        interleaved schedules.
    straggling : float
        Relative increase of the step time per doubling of the GPUs beyond one node of 8, since the slowest rank decides.
    protocols : bool
        Whether collectives follow a communication library that chooses among protocols and algorithms by size and group
        (`traincast.times.nccl`), rather than rings with a latency and a bandwidth.
    collective_launch : float
        With `protocols`: share of the start-up time of a collective in benchmarks that a step pays. Part of it is launch overhead,
        which a step hides by issuing collectives ahead of time.
    all_gather_factor, reduce_scatter_factor, all_to_all_factor, message_factor : float
        Data that an all-gather, a reduce-scatter, an all-to-all and a point-to-point message move, relative to the formulas, which
        are fitted to all-reduces: a library may copy more or reduce differently in the others.
    unfused_softmax_launches : float
        Additional operations that the host issues in each direction if Megatron-LM's fused softmax does not apply.
    microbatch_seconds : float
        Time of the host per micro-batch besides issuing operations: data, the schedule, transfers [s].
    step_seconds : float
        Fixed overhead of a step: data, logging, launches of the optimizer [s].
    errors_known : bool
        Whether prediction errors are known from measured runs, so that estimates have intervals (`traincast.step.uncertainty`).
    """

    name: str = "custom"
    element_bytes: float = 2.0
    mask_bytes: float = 1.0
    launch_seconds: float = 20e-6
    matrix_efficiency: float = 0.8
    vector_efficiency: float = 0.8
    sustained_rates: bool = False
    sustained_bandwidth: bool = False
    memory_efficiency: float = 1
    launch_hides_traffic: bool = True
    tile: float = 0
    wave_loss: float = 0
    aligned_elements: float = 0
    misaligned_slowdown: float = 1
    burst_seconds: float = 0
    attention_kernel: Literal["paper", "fa1", "fa2", "fa3", "cudnn"] = "paper"
    attention_efficiency: float = 0.5
    attention_backward: float = 0.65
    attention_launch_seconds: float = 20e-6
    attention_start: float = 0
    attention_tail: float = 0
    attention_tile: float = 128
    attention_softmax: float = 0
    attention_low: float = 1
    attention_wide_backward: float = 1
    all_reduce_passes_in_domain: float = 2.0
    slow_pipeline_links: float = 1.0
    summa_norm_width: Literal["hidden", "seq"] = "hidden"
    grad_dtype: Literal["16-bit", "fp32"] = "16-bit"
    ordered_ranks: bool = False
    optimizer_barrier: bool = False
    joint_backward: bool = True
    inputs_exposed: float = 0
    outputs_exposed: float = 0
    casts_exposed: float = 0
    grouped_exposed: float = 0
    cast_passes: float = 1
    weight_cast_passes: float = 0
    elementwise_passes: float = 1
    fuses_additions: bool = False
    softmax_passes: float = 1
    unfused_softmax_passes: float = 1
    causal_skipping: float = 1
    keeps_attention_output: float = 1
    keeps_gathered: bool = True
    gathers_operands: bool = False
    keeps_elementwise: bool = False
    remakes_last: bool = True
    residuals: bool = False
    accumulation_passes: float = 1
    tp_exposed: float = 1
    tp_overlapped: float = 1
    ep_exposed: float = 1
    ep_overlapped: float = 1
    dp_contention: float = 0
    node_copies: bool = False
    pp_exposed: float = 1
    slowest_link_paces: bool = False
    transfers_scattered: float = 0
    optimizer_passes: float = 0
    vocab_multiple: int = 128
    host_memory_bandwidth: float = 50e9
    loss_bytes: float = 12
    logit_bytes: float = 4
    vocabulary_gradient_bytes: float = 0
    gradient_copy_bytes: float = 0
    keeps_casts: bool = True
    keeps_16bit_weights: bool = True
    keeps_sharded_copy: bool = True
    context_bytes: float = 0
    allocator_share: float = 0
    buffer_bytes: float = 0
    gathered_layers: float = 2
    product_efficiency: float = 1
    dispatch_seconds: float = 0
    collective_seconds: float = 0
    broadcast_seconds: float = 0
    expert_passes: float = 1
    expert_bias_passes: float = 1
    sync_seconds: float = 0
    dp_window: float = 1
    interleaved_window: float = 0
    straggling: float = 0
    protocols: bool = False
    collective_launch: float = 1
    all_gather_factor: float = 1
    reduce_scatter_factor: float = 1
    all_to_all_factor: float = 1
    message_factor: float = 1
    unfused_softmax_launches: float = 0
    microbatch_seconds: float = 0
    step_seconds: float = 0
    errors_known: bool = False


PAPER: Final = Assumptions(name="paper")
ERRATA: Final[dict[int, dict[str, Any]]] = {  # erratum of the published results -> fields it changes
    1: {"summa_norm_width": "seq"},
    2: {"slow_pipeline_links": 0.0},
    3: {"all_reduce_passes_in_domain": 1.0},
}


CALIBRATED: Final = Assumptions(
    # Values for all or most software; the file of a software stack in the catalogue (stacks/) holds what it fuses and overlaps, and
    # its overheads. "Fits" are those of an analytical model to published runs (docs/validation.md).
    name="calibrated",
    # Kernels: fits to published microbenchmarks, A100 to GB200, with their errors in docs/kernels.md.
    launch_seconds=4.9e-6,  # [s] per kernel in a sequence of kernels, start and end included: 4.5 to 5.4 us
    launch_hides_traffic=False,
    matrix_efficiency=0.75,  # of the dense peak, if an accelerator's own is not known: 0.69 to 0.86 in GEMM benchmarks
    sustained_rates=True,
    vector_efficiency=0.8,  # assumed, as in arXiv 2410.00273
    sustained_bandwidth=True,
    memory_efficiency=0.85,  # BabelStream on an H200: 0.83 to 0.87 reading and writing
    tile=128,
    wave_loss=0.5,  # flat optimum of the fit from 0.3 to 0.7
    # runs say little, 2026-11-20: 0.284 to 0.641
    inputs_exposed=0.4271,  # operands come from memory; 0.03 if caches hold them (benchmarks)
    # runs say little, 2026-11-20: 0.447 to 0.787
    outputs_exposed=0.5929,  # 0.48 to 0.64 in benchmarks of products
    grouped_exposed=0.9,  # on a B200; 0.6 on an A100
    casts_exposed=1,  # separate kernels
    aligned_elements=8,  # 16 bytes
    misaligned_slowdown=16,  # 312 over 19.5 TFLOP/s of an A100: no matrix units; BLOOM's search runs on heads of 108
    attention_kernel="cudnn",
    attention_efficiency=0.4,  # assumed
    attention_backward=0.8,  # 0.80 on an A100, 0.88 on an H100
    attention_launch_seconds=22e-6,  # [s] 14 to 27 us
    # runs say little, 2026-11-20: 51.7 to 133
    attention_start=82.88,  # 28 to 115 in benchmarks
    # runs say little, 2026-11-20: 0.102 to 0.269
    attention_tail=0.1661,  # 0.13 to 0.21 in benchmarks
    attention_softmax=22,  # 20 to 25
    # runs say little, 2026-11-20: 1 to 1.44
    attention_wide_backward=1.2,  # 1.30 to 1.43 in benchmarks, heads of 192 and 128 on a B200
    grad_dtype="fp32",  # Megatron-LM and torchtitan reduce gradients in fp32
    ordered_ranks=True,
    optimizer_barrier=True,  # gradients are clipped by their norm over all stages
    joint_backward=False,  # two products, dx and dw
    causal_skipping=1,  # assumed: fused kernels skip whole tiles of the mask
    fuses_additions=True,  # Megatron-LM's options bias-gelu-fusion and bias-dropout-fusion, epilogues of products
    # fitted to 1212 published runs, 2026-11-20: 1.25 to 1.52
    softmax_passes=1.38,  # of unfused attention
    # runs say little, 2026-11-20: 2.99 to 5.59
    unfused_softmax_passes=4.087,  # masks, scales and casts to fp32 one by one
    # fitted to 21 published runs, 2026-11-20: 8.81 to 11.3
    unfused_softmax_launches=9.963,  # scale, build and apply the mask, cast and cast back
    keeps_attention_output=0,  # the output projection's input is the same tensor
    keeps_gathered=False,  # Megatron-LM (arXiv 2205.05198, section 4.2.2)
    residuals=True,
    # fitted to 259 published runs, 2026-11-20: 0.955 to 1.51
    cast_passes=1.2,  # each element read and written once
    # fitted to 259 published runs, 2026-11-20: 0.658 to 1.42
    weight_cast_passes=0.9678,  # 1 if weights are cast for every micro-batch, hardly any if once in a step
    # fitted to 1900 published runs, 2026-11-20: 2.09 to 4.17
    accumulation_passes=2.954,  # 2 if the 4 bytes of an fp32 gradient are read and written once
    tp_exposed=0.9,  # 0.91 in fits
    tp_overlapped=0.5,  # 0.39 (user buffers) and 0.61 (asynchronous) in fits
    ep_exposed=1,  # nothing overlaps with it
    # fitted to 19 published runs, 2026-11-20: 0.201 to 0.454
    ep_overlapped=0.3022,  # it takes multiprocessors and memory bandwidth, and the first and last transfers are exposed
    dp_contention=0.2,  # 0.20 (FSDP2) and 0.39 (FSDP1) of hidden traffic in fits
    node_copies=True,  # DeepSeek-V3 (arXiv 2412.19437, section 3.2.2) and later dispatchers
    pp_exposed=0,  # assumed: sends overlap with the work (docs/schedules.md)
    slowest_link_paces=True,  # every micro-batch crosses it
    transfers_scattered=1,  # Megatron-LM (arXiv 2104.04473, section 4.1)
    optimizer_passes=1,  # assumed: a fused optimizer moves every byte once
    vocab_multiple=128,  # Megatron-LM, make-vocab-size-divisible-by
    # runs say little, 2026-11-20: 8.86 to 16.3
    loss_bytes=12.03,  # [byte/logit] logits in 16 and in 32 bits, read and written
    logit_bytes=4,  # [byte/logit] 16-bit logits and their gradient: 4.1 in fits of published memory on B200
    vocabulary_gradient_bytes=4,  # fp32; fitted to the memory of published B200 runs: 3.9
    context_bytes=1.5 * 2**30,  # [byte] assumed: 0.9 to 1.8 GiB have been measured with one small tensor
    allocator_share=0.03,  # assumed
    buffer_bytes=64 * 2**20,  # [byte] assumed: buffers of the channels of a communicator
    gathered_layers=2,  # assumed: the current layer and the next (FSDP2 prefetches one)
    interleaved_window=1,  # order of interleaved 1F1B (arXiv 2104.04473, section 2.2.2)
    protocols=True,
    collective_launch=0.2,  # assumed: of 9 us in nccl-tests (30 us on some machines), most of it launch overhead
    # fitted to 592 published runs, 2026-11-20: 0.0217 to 0.0454
    step_seconds=0.03139,  # [s] data, logging, launches of the optimizer
    errors_known=True,  # catalog/errors.yaml
    # fitted to 589 published runs, 2026-11-20: 0.00352 to 0.00682
    straggling=0.004901,  # runs on 8 to 10,752 GPUs
)


def with_errata(*numbers: int) -> Assumptions:
    """Return the paper's assumptions with some errors of the published results put back; `with_errata(1, 2, 3)` has all."""
    changes = {field: value for number in numbers for field, value in ERRATA[number].items()}
    name = "paper-published" if set(numbers) == set(ERRATA) else "+".join(("paper", *map(str, numbers)))
    return replace(PAPER, name=name, **changes)


PRESETS: Final = {preset.name: preset for preset in (PAPER, with_errata(*ERRATA), CALIBRATED)}
