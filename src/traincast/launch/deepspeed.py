"""DeepSpeed's configuration, which does not describe the model."""

from collections.abc import Mapping
from typing import Final

from traincast.launch.canonical import Facts
from traincast.launch.mapping import (
    ChoiceRow,
    ComputedRow,
    Row,
    Settings,
    ValueRow,
    constant_facts,
    is_off,
    whole_number,
)

SOURCE: Final = (
    "deepspeedai/DeepSpeed, docs/_pages/config-json.md (commit 00376da), and deepspeed/__init__.py for "
    "sequence_parallel_size, looked at on 2026-11-20"
)
ZERO: Final = "zero_optimization."
GRAD_DTYPE: Final = "data_types.grad_accum_dtype"
OPTIMIZERS: Final = {"adam": "AdamW", "sgd": "SGD", "lion": "Lion", "muon": "Muon"}


def _size(settings: Settings, name: str) -> int | None:
    """Return a setting as a whole number; None where another program fills it in (``"auto"``), or it is off (-1)."""
    value = settings.get(name)
    return None if is_off(value) or str(value) == "-1" else int(whole_number(name, value, 1))


def _write_batch(facts: Facts) -> Settings:
    """Write batch, micro-batch and gradient accumulation steps."""
    return {
        "train_batch_size": facts["gbs"],
        "train_micro_batch_size_per_gpu": facts["mbs"],
        "gradient_accumulation_steps": max(facts["gbs"] // facts["dp"] // facts["mbs"], 1),
    }


def _read_batch(settings: Settings) -> Facts:
    """Read batch and micro-batch; together with the accumulation steps also the data-parallel replicas."""
    gbs, mbs, steps = (
        _size(settings, name)
        for name in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    )
    facts: Facts = {
        name: value for name, value in (("gbs", gbs), ("mbs", mbs), ("accumulation", steps)) if value
    }
    if gbs and mbs and steps and gbs % (mbs * steps) == 0:
        facts["dp"] = gbs // (mbs * steps)
    return facts


def _write_sequence(facts: Facts) -> Settings:
    """Write sequence parallelism (Ulysses) and the data-parallel replicas."""
    if facts.get("cp_kind") != "ulysses":
        return {}
    return {"sequence_parallel_size": facts["cp"], "data_parallel_size": facts["dp"]}


def _read_sequence(settings: Settings) -> Facts:
    """Read sequence parallelism (Ulysses)."""
    cp, dp = _size(settings, "sequence_parallel_size") or 1, _size(settings, "data_parallel_size")
    facts: Facts = {"cp": cp, "cp_kind": "ulysses"} if cp > 1 else {}
    return facts | ({"dp": dp} if dp else {})


def _write_offload(facts: Facts) -> Settings:
    """Write what is offloaded to the host."""
    offloaded = set(facts["offload"].split("+"))
    optimizer: Settings = {f"{ZERO}offload_optimizer.device": "cpu"} if "optimizer" in offloaded else {}
    return optimizer | ({f"{ZERO}offload_param.device": "cpu"} if "weights" in offloaded else {})


def _read_offload(settings: Settings) -> Facts:
    """Read what is offloaded to the host."""
    names = (("optimizer", "offload_optimizer"), ("weights", "offload_param"))
    return {
        "offload": "+".join(
            word for word, name in names if settings.get(f"{ZERO}{name}.device") in ("cpu", "nvme")
        )
        or "none"
    }


def _write_groups(facts: Facts) -> Settings:
    """Write the size of a sharding group where there are several (ZeRO++, MiCS)."""
    copies = facts.get("replicas", 1)
    return (
        {f"{ZERO}mics_shard_size": facts["dp"] * facts["cp"] // copies}
        if copies > 1 and facts.get("zero") == 3
        else {}
    )


def _read_groups(settings: Settings) -> Facts:
    """Read the replicas of the sharded state from the size of a sharding group."""
    size = _size(settings, f"{ZERO}mics_shard_size")
    return {"shards": size} if size and size > 0 else {}


ROWS: Final[Mapping[str, tuple[Row, ...]]] = {
    "batch": (
        ComputedRow(
            ("gbs", "mbs", "dp"),
            ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
            _write_batch,
            _read_batch,
            "data-parallel replicas are the batch divided by micro-batch and accumulation steps",
        ),
    ),
    "precision and optimizer": (
        ChoiceRow(
            "precision",
            (
                ("bf16", {"bf16.enabled": True}),
                ("fp16", {"fp16.enabled": True}),
                ("fp32", {"bf16.enabled": False}),
            ),
            (
                *(
                    ("bf16", {"bfloat16.enabled": True}),
                    ("bf16", {"bf16.enabled": "auto"}),
                    ("fp16", {"fp16.enabled": "auto"}),
                ),
                ("fp32", {}),
            ),
        ),
        ChoiceRow(
            "grad_dtype",
            (("fp32", {GRAD_DTYPE: "fp32"}), ("16-bit", {GRAD_DTYPE: "bf16"}), ("usual", {})),
            (("16-bit", {GRAD_DTYPE: "fp16"}),),
        ),
        ChoiceRow(
            "optimizer_kind",
            tuple((one, {"optimizer.type": name}) for one, name in OPTIMIZERS.items()),
            (("adam", {"optimizer.type": "Adam"}),),
        ),
    ),
    "parallelism": (
        ChoiceRow(
            "zero", tuple((stage, {f"{ZERO}stage": stage}) for stage in (1, 2, 3, 0)), ((0, {}),), others=()
        ),
        ComputedRow(
            ("replicas",),
            (f"{ZERO}mics_shard_size",),
            _write_groups,
            _read_groups,
            "ranks that share a copy (MiCS, with ZeRO-3)",
        ),
        ValueRow("tp", "tensor_parallel.autotp_size", usual=1),
        ComputedRow(
            ("cp", "cp_kind"),
            ("sequence_parallel_size", "data_parallel_size"),
            _write_sequence,
            _read_sequence,
            "Ulysses",
        ),
        ComputedRow(
            ("offload",),
            (f"{ZERO}offload_optimizer.device", f"{ZERO}offload_param.device"),
            _write_offload,
            _read_offload,
            "optimizer and weights",
        ),
        constant_facts(order="tp-cp-dp-pp", tp_kind="1d"),
    ),
}
WHY: Final[Mapping[str, str]] = {
    "pp": "stages are an argument of PipelineModule in the program",
    "chunks": "stages are an argument of PipelineModule in the program",
    "schedule": "stages are an argument of PipelineModule in the program",
    "order": "stages are an argument of PipelineModule in the program",
    "gpus": "it is an argument of the launcher",
    "vp": "pipelines of DeepSpeed have one chunk per rank",
    "recompute": "the model decides what it recomputes (gradient_checkpointing_enable, checkpoint functions)",
    "recompute_every": "the model decides what it recomputes",
    "ep": "expert parallelism is an argument of the MoE layer in the program",
    "etp": "expert parallelism is an argument of the MoE layer in the program",
    "sp": "automatic tensor parallelism has no sequence parallelism",
    "attention": "the model chooses its kernel",
    "cp_kind": "sequence parallelism is Ulysses",
    "precision": "bf16, fp16 or fp32",
}


def granted(settings: Settings) -> tuple[str, ...]:
    """Return what is assumed of a precision that another program fills in (``"auto"``)."""
    automatic = [name for name in ("bf16.enabled", "fp16.enabled") if settings.get(name) == "auto"]
    return (
        (f"{automatic[0]} = true: another program fills in {' and '.join(automatic)}",) if automatic else ()
    )


FIXED_SETTINGS: Final[Settings] = {
    "gradient_clipping": 1.0,
    f"{ZERO}overlap_comm": True,
}  # further settings that are written
