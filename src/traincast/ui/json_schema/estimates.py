"""Schemas that several outputs share: the case, an estimate of a plan, its metrics."""

from traincast.core.plan_choices import ALLOWED, JOINED
from traincast.core.quantities import COLUMNS
from traincast.ui.json_schema.vocabulary import (
    Schema,
    by_name,
    flag,
    listed,
    number,
    or_null,
    record,
    text,
    whole_number,
)


def _names(kind: str) -> list[str]:
    return [name for name, info in COLUMNS.items() if info.kind == kind]


def _choice(name: str) -> Schema:
    """Return the schema of a plan's choice: an enumeration, or free text where values can be joined."""
    about, allowed = {"description": COLUMNS[name].meaning}, ALLOWED.get(name)
    return about | ({"type": "string"} if allowed is None or name in JOINED else {"enum": list(allowed)})


def _parts(about: str, kind: str, unit: str) -> Schema:
    """Return the schema of the components of a time or a memory."""
    return record(about, {name: number(COLUMNS[name].meaning, unit) for name in _names(kind)})


LEFT_OUT = or_null(text("parts of the model that are not counted, such as a multimodal model's vision tower"))
CASE = {
    "model": text("name of the model"),
    "left_out": LEFT_OUT,
    "system": text("name of the system"),
    "gpus": whole_number("GPUs in the job"),
    "global_batch": whole_number("sequences of a step", "sequence"),
    "seq": whole_number("tokens of a sequence", "token"),
    "assumptions": text("name of the preset, or of the software stack"),
}
MEMORY_PARTS = _parts("memory by component; it adds up to `memory_bytes`", "memory", "byte")
PLAN = record(
    "every knob and choice of the plan by name",
    {name: whole_number(COLUMNS[name].meaning) for name in _names("knob") if name not in ("gpus", "gbs")}
    | {name: _choice(name) for name in _names("choice")},
    title="plan",
)
BRIEF = {
    "strategy": text("how a layer is cut"),
    "plan": PLAN,
    "step_seconds": number("time of one optimizer step", "s"),
    "memory_bytes": number("memory of the fullest rank", "byte"),
}
_ESTIMATED = {
    **BRIEF,
    "fits": flag("whether that is within the accelerator's memory"),
    "tokens_per_second_per_gpu": number("throughput of one GPU", "token/s"),
    "training_days": or_null(
        number("the run that the model's own `training_tokens` ask for, failures aside", "day")
    ),
    "breakdown_seconds": _parts("seconds by component; they add up to `step_seconds`", "time", "s"),
    "memory_by_component_bytes": MEMORY_PARTS,
}
_SURE = {
    "step_seconds_low": number(
        "95 % of measured times lie above; as the next three only where errors are known", "s"
    ),
    "step_seconds_high": number("95 % of measured times lie below", "s"),
    "fits_probability": number("probability that it is within the accelerator's memory"),
    "outside_measured": listed("in which respects it lies outside of measured runs", text("in words")),
}
ESTIMATE = record("time and memory of a step of one plan", _ESTIMATED, _SURE, title="estimate")
METRICS = record(
    "throughput, utilisation and cost",
    {
        "tokens_per_second": number("throughput of the job", "token/s"),
        "tokens_per_second_per_gpu": number("throughput of one GPU", "token/s"),
        "flops_per_second_per_gpu": by_name("model FLOPs by convention", number("of one GPU", "FLOP/s")),
        "mfu": by_name("utilisation by convention", number("share of the dense peak")),
        "hfu": or_null(by_name("the same with what is recomputed", number("share of the dense peak"))),
        "steps": or_null(number("the whole run")),
        "days": or_null(number("the whole run, failures aside", "day")),
        "gpu_hours": or_null(number("the whole run, failures aside", "h")),
        "cost": or_null(number("its price", "$")),
        "energy_kwh": or_null(number("its electricity", "kWh")),
        "carbon_kg": or_null(number("its emissions", "kg of CO2 equivalent")),
        "mtbf_seconds": or_null(number("mean time between failures of the job", "s")),
        "checkpoint_bytes": number("size of a checkpoint", "byte"),
        "checkpoint_seconds": or_null(number("time to write it", "s")),
        "checkpoint_interval": or_null(number("time between two that loses least", "s")),
        "goodput": or_null(number("share of the time that trains")),
        "effective_days": or_null(number("the whole run with failures", "day")),
        "missing": by_name(
            "for every metric that is `null`: what to give", listed("what is not known", text("in words"))
        ),
    },
    title="metrics",
)
ANSWER = record("an estimate and its metrics", _ESTIMATED | {"metrics": METRICS}, _SURE, title="answer")
BYTES_PER_PARAMETER = record(
    "what is kept of a parameter before anything is sharded",
    {
        "weights": number("its weight", "byte"),
        "master": number("its master copy", "byte"),
        "gradients": number("its gradient", "byte"),
        "moments": number("states of the optimizer", "byte"),
        "training": number("all of it", "byte"),
        "inference": number("weight and master copy", "byte"),
    },
    title="bytes_per_parameter",
)
