"""Outputs of `plan`, `estimate` and `memory`."""

from traincast.ui.json_schema.estimates import (
    ANSWER,
    BRIEF,
    BYTES_PER_PARAMETER,
    CASE,
    ESTIMATE,
    MEMORY_PARTS,
    METRICS,
)
from traincast.ui.json_schema.vocabulary import (
    REPORT,
    Schema,
    by_name,
    flag,
    listed,
    number,
    or_null,
    record,
    redescribed,
    text,
    whole_number,
)

EXPLANATION = record(
    "why",
    {
        "sensitivity_10_percent_better": by_name(
            "change of the best plan's step time if a hardware figure is 10 % better",
            number("relative change"),
        ),
        "degrees": listed(
            "each tensor-parallel degree",
            record(
                "a degree",
                {
                    "degree": whole_number("of tensor parallelism"),
                    "best": or_null(redescribed(ESTIMATE, "the best plan with it")),
                    "least_memory_bytes": or_null(number("of all plans with it", "byte")),
                },
            ),
        ),
        "excluded_tp": by_name(
            "degrees of tp that a rule excludes, by rule", listed("degrees", whole_number("a degree"))
        ),
        "nearest_miss": or_null(redescribed(ESTIMATE, "the plan nearest to fitting that does not fit")),
        "nearest_faster_miss": or_null(
            redescribed(ESTIMATE, "the nearest to fitting that would be faster than the best plan")
        ),
        "unlimited_memory": or_null(redescribed(ESTIMATE, "the fastest if memory were unlimited")),
        "possible_gpus": listed(
            "where no plan meets the rules: the nearest numbers of GPUs that have candidates",
            whole_number("GPUs"),
        ),
        "fits_from": or_null(
            record(
                "where nothing fits: from where on something does",
                {"gpus": whole_number("so many GPUs"), "memory_bytes": number("needed there", "byte")},
            )
        ),
        "held": listed(
            "knobs that the framework runs with other values and the search holds constant, and the best of those values",
            record(
                "a knob of the best plan, or of the nearest miss where nothing fits",
                {
                    "knob": text("its name"),
                    "value": text("its value in the plan"),
                    "other": text("the other value"),
                    "step_seconds_change": number(
                        "change of the step time with the other value", "relative change"
                    ),
                    "memory_bytes_change": number("change of the memory of the fullest rank", "byte"),
                    "fits": flag("whether the plan fits with it"),
                },
            ),
        ),
        "text": listed("the explanation", text("a line")),
    },
)

SEARCH = record(
    "the best plans, and why the others lose",
    {
        **CASE,
        "framework": text("whose plans were searched"),
        "objective": text("what is best", "time", "throughput", "cost", "memory"),
        "strategies": listed("ways to cut a layer that were searched", text("a strategy")),
        "candidates": whole_number("candidates that meet every rule"),
        "feasible": whole_number("those of them that fit in memory"),
        "rejected": by_name(
            "candidates rejected, by reason: the first rule broken, or memory", whole_number("candidates")
        ),
        "plans": listed(
            "the best plans, best first; empty where nothing fits",
            ANSWER,
        ),
        "pareto": listed(
            "plans that no other beats in both time and memory, fastest first", record("a plan", BRIEF)
        ),
        "explanation": EXPLANATION,
    },
    sometimes={
        "first_within_3_percent": number(
            "probability that the first of `plans` is really within 3 % of the best candidate"
        ),
        "listed_within_3_percent": number(
            "probability that any of `plans` is; both only where errors are known and time ranks"
        ),
        **REPORT,
    },
)


def _direction(name: str) -> dict[str, Schema]:
    """Return the schema of an operation's figures in one direction."""
    return {
        f"{name}_matrix_flops": number(f"work of the {name} pass on the matrix units", "FLOP"),
        f"{name}_vector_flops": number("the same on the vector units", "FLOP"),
        f"{name}_bytes": number("its memory traffic", "byte"),
        f"{name}_seconds": number("its time: the sum of the next three", "s"),
        f"{name}_compute_seconds": number("arithmetic", "s"),
        f"{name}_memory_seconds": number("what is exposed of the traffic", "s"),
        f"{name}_comm_seconds": number("what is exposed of communication", "s"),
    }


OPERATION = record(
    "an operation of one micro-batch",
    {
        "part": text("kind of layer"),
        "operation": text("its name"),
        **_direction("forward"),
        **_direction("backward"),
        "again_seconds": number("recomputation before backward", "s"),
        "weight_bytes": number("weights it holds", "byte"),
        "saved_bytes": number("what it keeps for backward", "byte"),
    },
)
ONE_PLAN = record(
    "time and memory of one plan",
    {**CASE, "estimate": ESTIMATE, "metrics": METRICS},
    sometimes={
        "operations": listed(
            "with `--operations`: every operation, once for each kind of layer it is in", OPERATION
        )
    }
    | REPORT,
)
MEMORY = record(
    "memory of every stage of the pipeline",
    {
        **CASE,
        "estimate": ESTIMATE,
        "bytes_per_parameter": BYTES_PER_PARAMETER,
        "devices": listed(
            "the stages from first to last",
            record(
                "a stage",
                {
                    "stage": whole_number("its place, from 0"),
                    "parts": by_name("how many of each part of the model it holds", whole_number("so many")),
                    "memory_bytes": number("memory of its ranks", "byte"),
                    "memory_by_component_bytes": MEMORY_PARTS,
                },
            ),
        ),
    },
)
