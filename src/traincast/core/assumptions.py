"""What is assumed about the world, as data. A preset is a value of this class; no formula asks for a preset's name."""

from dataclasses import dataclass, replace
from typing import Any, Final, Literal


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """How counts become times and bytes; the defaults are arXiv 2410.00273, corrected.

    What the paper does not count (its models have no vocabulary and no mask) is neutral by default: kept, waited for, or 0. The
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
        Whether the share that an accelerator is known to sustain takes the place of `matrix_efficiency`.
    sustained_bandwidth : bool
        Whether the share of the memory bandwidth that an accelerator is known to achieve takes the place of `memory_efficiency`.
    memory_efficiency : float
        Share of the memory bandwidth that kernels achieve.
    launch_hides_traffic : bool
        Whether memory traffic runs during the launch, too.
    tile : float
        Edge of the tile of a product's result that a multiprocessor works on: results are padded to whole tiles; 0 for none.
    wave_loss : float
        Share of the time that multiprocessors wait for the last tiles that is really lost.
    aligned_elements : float
        Products of heads whose widths are no multiple of this many elements of 16 bits are slowed down; 0 for none.
    misaligned_slowdown : float
        By how much: they do without the matrix units.
    burst_seconds : float
        How long work of an accelerator at rest runs at its burst rate, before the power limit acts; 0 for steady work [s].
    attention_kernel : {"paper", "fa1", "fa2", "fa3", "cudnn"}
        Kernel of fused attention: FlashAttention, its second and third version, cuDNN's; "paper" for the sum of its products,
        softmax and traffic at the usual rates.
    attention_efficiency : float
        Share of the peak that the kernel reaches forward, for accelerators of which it is not known.
    attention_backward : float
        Its rate backward relative to forward, for accelerators of which it is not known.
    attention_launch_seconds : float
        Fixed cost of a kernel of fused attention in one direction [s].
    attention_start : float
        Keys for which it could have worked while it starts and ends a row.
    attention_tail : float
        Weight of the longest row of tiles, which multiprocessors wait for at the end.
    attention_tile : float
        Queries that a multiprocessor works on at once.
    attention_softmax : float
        Width of heads whose products take as long as the exponentials of their scores.
    attention_low : float
        Rate of the kernel where products run at 8 bits or less, relative to 16 bits: above 1 where it multiplies at 8 bits, too.
    attention_wide_backward : float
        How much slower it is backward on heads wider than 128, whose tiles do not fit beside each other.
    all_reduce_passes_in_domain : {2, 1}
        How often an all-reduce inside one network tier moves its data: reduce-scatter and all-gather make 2.
        The published results used 1 (erratum 3).
    slow_pipeline_links : {1, 0}
        Weight of the slow links of a pipeline that has several stages per fast domain.
        The published results used 0 (erratum 2).
    summa_norm_width : {"hidden", "seq"}
        The model dimension whose tp-th part is the row of a SUMMA norm.
        The published results used the sequence length (erratum 1).
    grad_dtype : {"16-bit", "fp32"}
        What gradients are accumulated in where a plan leaves it to what is usual.
    ordered_ranks : bool
        Whether a plan that does not say where its groups are is placed in the order in which frameworks number ranks, instead of
        the fastest way.
    optimizer_barrier : bool
        Whether the optimizer waits for all stages of a pipeline, as it does to clip by the norm of all gradients.
    joint_backward : bool
        Whether the gradients of a linear layer's input and weights are one kernel, timed under one roof.
    inputs_exposed, outputs_exposed, casts_exposed : float
        Share of a product's memory traffic that its arithmetic never hides: of operands; of the result, what it is added to
        included; of casts to lower precision.
    grouped_exposed : float
        Share of the same that a product of several experts never hides, where that is more.
    cast_passes, weight_cast_passes : float
        How often what a recipe casts is moved: activations and gradients, and weights (for every micro-batch).
    elementwise_passes : float
        Memory traffic of the elementwise work of a layer relative to what it must move when fused.
    fuses_additions : bool
        Whether biases and dropout are part of the kernels beside them when they go forward.
    softmax_passes, unfused_softmax_passes : float
        The same of softmax and dropout of unfused attention, where Megatron-LM's fused softmax works and where it does not: scores
        of a number of sequences and heads that is no multiple of 4.
    causal_skipping : float
        Share of the masked part of attention that fused kernels skip.
    keeps_attention_output : float
        Copies of core attention's output kept beside the output projection's input.
    keeps_gathered : bool
        Whether the input of a column-parallel layer is kept gathered, rather than cut and gathered again in backward.
    gathers_operands : bool
        Whether tokens are cast to the precision of the product that reads them before tensor ranks gather them.
    keeps_elementwise : bool
        Whether results that fused kernels make in passing are kept as well: the activated gate of a gated MLP, queries and keys
        before their rotary positions.
    remakes_last : bool
        Whether a layer that is made again for backward makes its last product again, too, whose result backward does not need.
    residuals : bool
        Whether residual additions are counted as memory traffic of their own.
    accumulation_passes : float
        How often a weight gradient's element is moved when it is added to those of earlier micro-batches.
    tp_exposed, tp_overlapped : float
        Share of tensor-parallel communication that is waited for, without and with overlapped products.
    ep_exposed, ep_overlapped : float
        The same of expert-parallel communication; overlapped with another micro-batch's work, if that is long enough for the rest.
    dp_contention : float
        Share of *hidden* data-parallel traffic that is paid all the same: while it streams it takes multiprocessors and memory
        bandwidth.
    node_copies : bool
        Whether a token that goes to several experts in one domain crosses the network to it once only.
    pp_exposed : float
        Share of a transfer between stages that holds up the stages at both ends, for every micro-batch. The rest runs beside their
        work, and a step pays for it only on its critical path.
    slowest_link_paces : bool
        Whether what holds up stages is a transfer over the slowest link of the pipeline, not over the average one.
    transfers_scattered : float
        Share of the transfers between stages, without sequence parallelism, of which each tensor rank sends its part only; the
        next stage gathers them.
    optimizer_passes : float
        How often a step moves every byte the optimizer works on; 0 leaves the optimizer's time out.
    vocab_multiple : int
        The part of the vocabulary on a rank is padded to a multiple of this.
    host_memory_bandwidth : float
        Bandwidth of the host's memory for one accelerator, at which an optimizer that is offloaded works [byte/s].
    loss_bytes : float
        Memory traffic of the loss for each logit, forward and backward [byte].
    logit_bytes : float
        Memory the loss holds for each logit at its peak [byte].
    vocabulary_gradient_bytes : float
        Temporary memory of a rank that has a matrix of the vocabulary, for each of its parameters: a gradient on its way to the
        accumulated one [byte].
    gradient_copy_bytes : float
        Memory of gradients on their way, for each parameter of a rank that accumulates them whole and wider than 16 bits: the
        16-bit gradients they are added from, where those stay [byte].
    keeps_casts : bool
        Whether operands and weights in low precision are kept for backward (Transformer Engine), instead of those in 16 bits,
        which are cast again (torchao).
    keeps_16bit_weights : bool
        Whether weights that products use in 8 bits are kept in 16 bits as well; else in 8 bits only, by rows and by columns
        (fp8_param_gather of Megatron-Core).
    keeps_sharded_copy : bool
        Whether ZeRO-3 keeps a shard of the 16-bit weights beside that of the master copy (DeepSpeed); FSDP casts the latter.
    context_bytes : float
        Memory the device's context and libraries take [byte].
    allocator_share : float
        Memory the allocator cannot use, as a share of what it hands out.
    buffer_bytes : float
        Buffers of one communicator [byte]; a rank has one for each group it is in.
    gathered_layers : float
        Layers whose weights are gathered at once with ZeRO-3: the one at work and those fetched ahead. Embedding and head stay.
    product_efficiency : float
        Rate of products relative to what the accelerator sustains: libraries of other years have slower or faster kernels.
    dispatch_seconds : float
        Time the host takes to issue one operation or collective in one direction. A stage takes no less than its host needs [s].
    collective_seconds : float
        What a tensor-parallel collective waits beside its own time, for the slowest rank: for each doubling of the group [s].
    broadcast_seconds : float
        What each rank of a group that shards optimizer states adds to a step where the group leaves the fast domain and ranks
        broadcast their weights one after the other; 0 where weights are gathered [s].
    expert_passes : float
        How often the fused minimum of traffic is moved where tokens are permuted and experts' activations are made.
    expert_bias_passes : float
        The same where biases of experts are added: expert by expert, weighed by the router in fp32, the activation apart.
    sync_seconds : float
        What a layer of experts waits for the host to learn how many tokens each expert gets [s].
    dp_window : float
        Share of a micro-batch's work that data-parallel traffic may hide behind; 0 where the two never overlap.
    interleaved_window : float
        Share of the pp - 1 other micro-batches of its group that a chunk's data-parallel traffic may hide behind as well, where the
        schedule is interleaved.
    straggling : float
        By how much a step is longer for every doubling of the GPUs beyond one node of 8: the slowest rank decides.
    protocols : bool
        Whether collectives are those of a communication library, which chooses among protocols and algorithms by size and group
        (`traincast.times.nccl`), rather than rings with a latency and a bandwidth.
    collective_launch : float
        With `protocols`: share of a collective's start-up, as benchmarks measure it, that a step pays. Part of it is the host's,
        which issues collectives ahead of time.
    all_gather_factor, reduce_scatter_factor, all_to_all_factor, message_factor : float
        Data that an all-gather, a reduce-scatter, an all-to-all and a message move, relative to what the formulas of rings and
        messages say: a library that is fitted by its all-reduces may copy more, or sum up in another way, in these.
    unfused_softmax_launches : float
        Operations more that the host issues in each direction where Megatron-LM's fused softmax does not work.
    microbatch_seconds : float
        What the host takes for a micro-batch beside issuing its operations: data, the schedule, transfers [s].
    step_seconds : float
        What a step takes beside its work: data, logging, the optimizer's launches [s].
    errors_known : bool
        Whether errors of predictions are known from measured runs, so that estimates carry intervals
        (`traincast.step.uncertainty`).
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
ERRATA: Final[dict[int, dict[str, Any]]] = {  # what each erratum of the published results changes
    1: {"summa_norm_width": "seq"},
    2: {"slow_pipeline_links": 0.0},
    3: {"all_reduce_passes_in_domain": 1.0},
}


CALIBRATED: Final = Assumptions(
    # What holds for all software, and what most of it does; what a software stack fuses, overlaps and costs stands in its file of
    # the catalogue (stacks/). "Fits" are those of an analytical model to published runs (docs/validation.md).
    name="calibrated",
    # Kernels: fits to published microbenchmarks, A100 to GB200, with their errors in docs/kernels.md.
    launch_seconds=4.9e-6,  # [s] a kernel back to back with others, its start and end included: 4.5 to 5.4 us
    launch_hides_traffic=False,
    matrix_efficiency=0.75,  # of the dense peak, where an accelerator's own is not known: 0.69 to 0.86 in GEMM benchmarks
    sustained_rates=True,
    vector_efficiency=0.8,  # assumed, as in arXiv 2410.00273
    sustained_bandwidth=True,
    memory_efficiency=0.85,  # BabelStream on an H200: 0.83 to 0.87 reading and writing
    tile=128,
    wave_loss=0.5,  # flat optimum from 0.3 to 0.7
    # runs say little, 2026-11-20: 0.284 to 0.641
    inputs_exposed=0.4271,  # operands come from memory; 0.03 where caches hold them (benchmarks)
    # runs say little, 2026-11-20: 0.447 to 0.787
    outputs_exposed=0.5929,  # 0.48 to 0.64 in benchmarks of products
    grouped_exposed=0.9,  # on a B200; 0.6 on an A100
    casts_exposed=1,  # kernels of their own
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
    unfused_softmax_launches=9.963,  # scale, mask made and applied, casts and back
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
    ep_exposed=1,  # nothing runs beside it
    # fitted to 19 published runs, 2026-11-20: 0.201 to 0.454
    ep_overlapped=0.3022,  # it takes multiprocessors and memory bandwidth, and fills and drains a pipeline alone
    dp_contention=0.2,  # 0.20 (FSDP2) and 0.39 (FSDP1) of hidden traffic in fits
    node_copies=True,  # DeepSeek-V3 (arXiv 2412.19437, section 3.2.2) and later dispatchers
    pp_exposed=0,  # assumed: sends run beside the work (docs/schedules.md)
    slowest_link_paces=True,  # every micro-batch passes it
    transfers_scattered=1,  # Megatron-LM (arXiv 2104.04473, section 4.1)
    optimizer_passes=1,  # assumed: a fused optimizer moves every byte once
    vocab_multiple=128,  # Megatron-LM, make-vocab-size-divisible-by
    # runs say little, 2026-11-20: 8.86 to 16.3
    loss_bytes=12.03,  # [byte/logit] logits in 16 and in 32 bits, read and written
    logit_bytes=4,  # [byte/logit] 16-bit logits and their gradient: 4.1 in fits of published memory on B200
    vocabulary_gradient_bytes=4,  # fp32; fitted to the memory of published B200 runs: 3.9
    context_bytes=1.5 * 2**30,  # [byte] assumed: 0.9 to 1.8 GiB have been measured with one small tensor
    allocator_share=0.03,  # assumed
    buffer_bytes=64 * 2**20,  # [byte] assumed: channels of a communicator
    gathered_layers=2,  # assumed: the layer at work and the next (FSDP2 prefetches one)
    interleaved_window=1,  # order of interleaved 1F1B (arXiv 2104.04473, section 2.2.2)
    protocols=True,
    collective_launch=0.2,  # assumed: of 9 us in nccl-tests, most of it the host's, and 30 us on some machines
    # fitted to 592 published runs, 2026-11-20: 0.0217 to 0.0454
    step_seconds=0.03139,  # [s] data, logging, launches of the optimizer
    errors_known=True,  # catalog/errors.yaml
    # fitted to 589 published runs, 2026-11-20: 0.00352 to 0.00682
    straggling=0.004901,  # runs on 8 to 10,752 GPUs
)


def with_errata(*numbers: int) -> Assumptions:
    """The paper's assumptions with some of its errata put back, ``with_errata(1, 2, 3)`` being the published model."""
    changes = {field: value for number in numbers for field, value in ERRATA[number].items()}
    name = "paper-published" if set(numbers) == set(ERRATA) else "+".join(("paper", *map(str, numbers)))
    return replace(PAPER, name=name, **changes)


PRESETS: Final = {preset.name: preset for preset in (PAPER, with_errata(*ERRATA), CALIBRATED)}
