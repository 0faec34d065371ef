"""Outputs of `advise`, `limits` and `scaling`."""

from traincast.ui.json_schema.estimates import BYTES_PER_PARAMETER, CASE, ESTIMATE, LEFT_OUT
from traincast.ui.json_schema.vocabulary import flag, listed, number, or_null, record, text, whole_number

_BETTER = record(
    "a better size, and relative changes with it",
    {
        "value": whole_number("the size"),
        "said": text("what changes with it"),
        "gain": number("change in model FLOP/s"),
        "even": number("the part of it due to tiles and waves"),
        "step_seconds": number("change of the step time"),
        "parameters": number("change of the number of parameters"),
    },
)
ADVICE = record(
    "what to make better about a plan and a model",
    {
        **CASE,
        "estimate": ESTIMATE,
        "measured_step_seconds": or_null(number("the time given", "s")),
        "bytes_per_parameter": BYTES_PER_PARAMETER,
        "parameters": whole_number("of the model"),
        "throughput": listed(
            "FLOP/s and utilisation",
            record(
                "by one convention",
                {
                    "convention": text("how FLOPs are counted"),
                    "model_flops_per_second": number("of one GPU", "FLOP/s"),
                    "hardware_flops_per_second": number("of one GPU", "FLOP/s"),
                    "mfu": number("share of the dense peak"),
                    "hfu": number("the same with what is recomputed"),
                    "source": text("where the convention stands"),
                },
            ),
        ),
        "products": listed(
            "matrix products that waste more than 2 %, the most expensive first",
            record(
                "a product",
                {
                    "operation": text("its name"),
                    "direction": text("of the pass", "forward", "backward"),
                    "m": number("rows of the result"),
                    "k": number("width that is summed over"),
                    "n": number("columns of the result"),
                    "tiles": number("share of it lost to tiles"),
                    "waves": number("share of it lost to waves"),
                    "share": number("of all products' arithmetic"),
                },
            ),
        ),
        "dimensions": listed(
            "sizes of the model",
            record(
                "a size",
                {
                    "name": text("which one"),
                    "value": whole_number("the size"),
                    "shard": number("what a rank has of it"),
                    "multiple": whole_number("largest power of two up to 64 that divides both"),
                    "better": or_null(_BETTER),
                },
            ),
        ),
        "batches": listed(
            "micro-batches and global batches, the plan's own first",
            record(
                "a batch",
                {
                    "mbs": whole_number("micro-batch", "sequence"),
                    "gbs": whole_number("global batch", "sequence"),
                    "accumulation": whole_number("micro-batches of a replica in a step"),
                    "gain": number("relative change in tokens/s"),
                    "bubble": number("share of the step"),
                    "update": number("share of the step that comes once"),
                    "memory_bytes": number("memory of the fullest rank", "byte"),
                    "fits": flag("whether that is within the accelerator's memory"),
                },
            ),
        ),
        "best_mbs": whole_number(
            "the fastest micro-batch of these that fits at the plan's global batch", "sequence"
        ),
        "network": record(
            "what goes between nodes, in one direction",
            {
                "allowed": number("share of the step that may wait for it"),
                "share": number("share of the step that waits for it"),
                "per_node": number("bandwidth of a node", "byte/s"),
                "per_gpu": number("bandwidth of a GPU", "byte/s"),
                "needed_per_node": or_null(
                    number("what would be enough; `null` where no bandwidth is", "byte/s")
                ),
                "needed_per_gpu": or_null(number("the same of a GPU", "byte/s")),
            },
        ),
        "rules_of_thumb": listed(
            "rules of thumb, and what holds here",
            record(
                "a rule",
                {
                    "about": text("what it is about"),
                    "rule": text("what it says"),
                    "here": text("what is so here"),
                    "low": or_null(number("what it says, from; in SI units")),
                    "high": or_null(number("what it says, to")),
                    "exact": or_null(number("what is so here")),
                    "source": text("who says so"),
                },
            ),
        ),
    },
)

_BINDS = {
    "utilisation": or_null(number("share of the dense peak")),
    "flop_share": or_null(number("share of the time in which arithmetic binds")),
    "memory_share": or_null(number("share in which memory bandwidth binds")),
    "network_share": or_null(number("share in which network bandwidth binds")),
    "binds": or_null(text("the largest of them")),
}
LIMITS = record(
    "how far moving data lets a cluster and a training run grow; what cannot be reached is `null`",
    {
        "accelerator": text("its name"),
        "device": record(
            "what it can do",
            {
                "flops8": number("dense peak on words of one byte", "FLOP byte/s"),
                "memory_bandwidth": number("peak", "byte/s"),
                "network_bandwidth": number("both directions", "byte/s"),
                "sustained": number("share of the first two that is sustained"),
                "network": text("where the network bandwidth comes from"),
            },
        ),
        "layer": record(
            "the layer", {"d_in": whole_number("its input width"), "d_out": whole_number("its output width")}
        ),
        "batch_tokens": whole_number("the layer's batch", "token"),
        "micro_batches": whole_number("it comes in so many"),
        "clusters": listed(
            "the best sharding for each number of GPUs",
            record(
                "a cluster",
                {
                    "gpus": number("so many GPUs"),
                    "tp_in": or_null(number("ranks that the input width is cut over")),
                    "tp_out": or_null(number("ranks that the output width is cut over")),
                    "dp": or_null(number("ranks that the batch is cut over")),
                    "seconds": or_null(number("of a batch", "s")),
                    **_BINDS,
                },
            ),
        ),
        "training_days": number("length of the training runs", "day"),
        "training": listed(
            "training runs by their compute",
            record(
                "a run",
                {
                    "flops": number("its compute", "FLOP"),
                    "parameters": or_null(number("of the model")),
                    "hidden": or_null(number("width of the model")),
                    "tokens": or_null(number("of a batch", "token")),
                    "gpus": or_null(number("so many GPUs finish in time")),
                    **_BINDS,
                },
            ),
        ),
        "largest_utilisation": number("what there can be at the most"),
        "halves_flops": or_null(number("compute of a run at which utilisation is half of that", "FLOP")),
        "collapses_flops": or_null(number("compute of a run at which it is a tenth", "FLOP")),
        "figures": listed("files drawn", text("a path")),
    },
)

SCALING = record(
    "how data parallelism with ZeRO scales",
    {
        "model": text("name of the model"),
        "left_out": LEFT_OUT,
        "system": text("name of the system"),
        "seq": whole_number("tokens of a sequence", "token"),
        "mbs": whole_number("sequences of a GPU in an iteration", "sequence"),
        "assumptions": text("name of the preset"),
        "parameters": number("of the model"),
        "flops": number("of a GPU's iteration", "FLOP"),
        "flops_rate": number("sustained by a GPU", "FLOP/s"),
        "k1": number("share of compute time in which kernels run"),
        "k2": number("share of kernel time in which the transformer's kernels run"),
        "node_bandwidth": number("a fast domain to all others, one direction, now", "byte/s"),
        "target": or_null(number("efficiency asked for")),
        "rows": listed(
            "stages and numbers of GPUs",
            record(
                "one of them",
                {
                    "zero": whole_number("stage of ZeRO"),
                    "gpus": whole_number("so many GPUs"),
                    "compute_seconds": number("what is computed", "s"),
                    "comm_seconds": number("what is communicated", "s"),
                    "iteration_seconds": number("both", "s"),
                    "comm_share": number("share of the iteration that communicates"),
                    "network_efficiency": or_null(
                        number("eff(g→n) from the fewest GPUs; `null` where they do not communicate")
                    ),
                    "efficiency": number("what is kept of the speed on the fewest GPUs"),
                    "memory_bytes": number(
                        "parameters, gradients, optimizer and activations by the source's formulas", "byte"
                    ),
                    "enough_bandwidth": or_null(
                        number(
                            "a fast domain to all others, one direction: enough for the target; 0 where none is used, `null`"
                            " where none is enough or none was asked for",
                            "byte/s",
                        )
                    ),
                },
            ),
        ),
    },
)
