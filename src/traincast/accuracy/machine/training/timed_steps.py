"""Training cases (small GPTs under plans that the ranks can run), and their timed steps as rows of runs."""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from math import inf
from typing import Any, Final, NamedTuple

from traincast.accuracy.logs.training_log import median_and_spread
from traincast.accuracy.machine.device_info import describe_machine
from traincast.accuracy.machine.launcher import Send
from traincast.accuracy.machine.system_yaml import accelerator_label
from traincast.core import GIB, Plan, make_record, raise_problems
from traincast.model import Adapters, Experts, Model

VOCAB_MULTIPLE: Final = 128  # the estimator pads vocabularies to a multiple of this, for each tensor rank
STACK: Final = "pytorch"  # software stack of the training loop
# the last where the time is short
WARM_UP_STEPS = 1
TIMED_STEPS = 5
MIN_TIMED_STEPS = 3
MAX_VISITS: Final = 3  # of a case: other load slows one visit, rarely all
MAX_CASE_SHARE: Final = 0.05  # of the budget for one case


ADAPTED: Final = ("qkv", "proj", "fc1", "fc2")  # layers that have adapters
TOPK: Final = 2  # experts of a token
EXTRAS: Final = {"lora": "rank", "experts": "experts"}  # words behind a shape -> its fields


class TimedShape(NamedTuple):
    """A GPT and its global batch [sequences]; adapters, if it has any, are all that is trained of it."""

    hidden: int
    layers: int
    heads: int
    seq: int
    vocab: int
    gbs: int
    rank: int = 0  # of adapters on every linear layer of the layers; 0 for none
    experts: int = 0  # in place of each MLP; 0 for none

    @property
    def name(self) -> str:
        """Name of the shape in ids of rows."""
        adapters = f"r{self.rank}" if self.rank else ""
        experts = f"e{self.experts}" if self.experts else ""
        return f"{self.hidden}x{self.layers}s{self.seq}{adapters}{experts}"

    @property
    def is_dense(self) -> bool:
        """Whether it is a GPT without experts of which all weights are trained, which alone is cut."""
        return not (self.rank or self.experts)


SIZES: Final = TimedShape._fields[:6]  # that every shape states
PRECISION_KNOBS: Final[
    Mapping[str, dict[str, object]]
] = {  # knobs of the plan: precision of the training loop
    "cpu": {"precision": "fp32"},
    "cuda": {"precision": "bf16-pure", "grad_dtype": "16-bit", "optimizer_kind": "adam-bf16"},
}


@dataclass(frozen=True)
class TrainingCase:
    """A shape and the parallel plan under which it is trained for a few steps."""

    shape: TimedShape
    plan: Plan

    @property
    def id(self) -> str:
        """Name of the shape, then the degrees of the plan."""
        plan = self.plan
        sizes = {"dp": plan.dp, "tp": plan.tp, "pp": plan.pp}
        degrees = "".join(f"{name}{size}" for name, size in sizes.items() if size > 1)
        return f"{self.shape.name}-{degrees or 'one'}{'z' if plan.zero else ''}m{plan.mbs}"

    @property
    def model(self) -> Model:
        """The GPT as a `Model`."""
        shape = self.shape
        adapters = Adapters(rank=shape.rank, targets=ADAPTED) if shape.rank else None
        experts = Experts(experts=shape.experts, topk=TOPK, ffn=2 * shape.hidden) if shape.experts else None
        return Model(
            name=shape.name,
            adapters=adapters,
            experts=experts,
            layers=shape.layers,
            hidden=shape.hidden,
            heads=shape.heads,
            kv_heads=shape.heads,
            ffn=4 * shape.hidden,
            seq=shape.seq,
            vocab=shape.vocab,
            biases=("qkv", "proj", "mlp"),
            positions="learned",
            causal=True,
            dropout=False,
            inner_dropout=False,
        )


def training_cases(device: str, ranks: int, shapes: Iterable[TimedShape] = ()) -> tuple[TrainingCase, ...]:
    """Return the cases of `shapes` or of the default ones of a device, the most informative first."""
    return tuple(
        TrainingCase(shape, plan)
        for shape in tuple(shapes) or DEFAULT_SHAPES[device]
        for plan in plans_of_shape(shape, ranks, device)
    )


def parse_shapes(text: str) -> tuple[TimedShape, ...]:
    """Parse shapes with commas, each hidden x layers x heads x seq x vocab x gbs (256x4x4x128x4096x8).

    Behind a plus sign stands what is trained of it, ``lora`` and a rank, or what it has, ``experts`` and how
    many.
    """
    shapes = []
    problems = []
    for word in text.split(","):
        plain, _, extra = word.strip().lower().partition("+")
        numbers = [int(part) if part.isdecimal() else 0 for part in plain.split("x")]
        if len(numbers) != len(SIZES) or not all(numbers):
            problems.append(f"{word.strip()!r}: write {' x '.join(SIZES)}, such as 256x4x4x128x4096x8")
            continue
        part = re.fullmatch(r"(lora|experts)([1-9]\d{0,3})", extra)
        if extra and part is None:
            problems.append(f"{word.strip()!r}: behind + write lora and a rank, or experts and their number")
            continue
        shape = TimedShape(*numbers)
        if part is not None:
            shape = shape._replace(**{EXTRAS[part[1]]: int(part[2])})
        shapes.append(shape)
        if shape.hidden % shape.heads:
            problems.append(f"{word.strip()!r}: {shape.heads} heads do not divide {shape.hidden}")
        if shape.vocab % VOCAB_MULTIPLE:
            problem = f"vocabulary {shape.vocab}: must be a multiple of {VOCAB_MULTIPLE}"
            problems.append(f"{word.strip()!r}: {problem}")
        if shape.experts == 1:
            problems.append(f"{word.strip()!r}: a token goes to {TOPK} experts")
    raise_problems("shapes", problems)
    return tuple(shapes)


# CPU: a step takes 0.1 to 0.6 s on two ranks of 100 GFLOP/s; each differs most from those before it.
CPU_SHAPES: Final = parse_shapes(
    "512x4x8x64x8192x8, 256x8x4x128x1024x8, 512x4x8x128x2048x8+lora16, 384x3x6x128x2048x8+experts8,"
    "768x2x12x64x8192x8, 128x8x4x256x2048x8, 1024x2x16x64x2048x8,"
    "256x2x8x1024x2048x4, 384x6x6x128x4096x8, 512x2x8x32x4096x16, 640x4x10x96x4096x4, 256x4x4x512x4096x4"
)
GPU_SHAPES: Final = parse_shapes(  # steps of 0.02 to 0.5 s at 400 TFLOP/s
    "2048x8x16x2048x32768x8, 1024x12x16x1024x32768x16, 4096x4x32x2048x32768x8, 1024x24x16x2048x50176x8,"
    "2048x4x32x4096x8192x4, 768x12x12x512x50176x32"
)
DEFAULT_SHAPES: Final[Mapping[str, tuple[TimedShape, ...]]] = {"cpu": CPU_SHAPES, "cuda": GPU_SHAPES}


def plans_of_shape(shape: TimedShape, ranks: int, device: str = "cpu") -> Iterator[Plan]:
    """Yield the plans of a shape: competing ones on all ranks, and one on a single rank.

    They are data parallelism with one and with two micro-batches and with ZeRO-1, tensor parallelism,
    pipelines with few and with many micro-batches, and pairs of them with four ranks and more; only those
    whose degrees divide the shape. Adapters and experts are not sharded.
    """
    degree_sets: list[dict[str, int]] = []
    if ranks > 1:
        degree_sets += [{"dp": ranks}, *([{"tp": ranks}, {"pp": ranks}] if shape.is_dense else [])]
    if shape.is_dense and ranks >= 4 and ranks % 2 == 0:
        half = ranks // 2
        degree_sets += [{"tp": 2, "dp": half}, {"pp": 2, "dp": half}, {"pp": 2, "tp": half}]
    candidates: list[Plan] = []
    for degrees in degree_sets:
        knobs = knobs_of(shape, device, **degrees)
        pp = degrees.get("pp", 1)
        if knobs is None:
            continue
        replica_batch = shape.gbs // degrees.get("dp", 1)
        counts = (2 * pp, 4 * pp) if pp > 1 else (1, 2)  # micro-batches of a replica
        plans = [
            make_record(Plan, {"mbs": replica_batch // n, "zero": 0, **knobs})
            for n in counts
            if replica_batch % n == 0
        ]
        if plans and degrees.keys() == {"dp"}:
            plans.append(replace(plans[0], zero=1))
        candidates += plans
    yield from dict.fromkeys(candidates)
    yield make_record(Plan, {"mbs": shape.gbs, "zero": 0, **PRECISION_KNOBS[device]})


def knobs_of(
    shape: TimedShape, device: str, dp: int = 1, tp: int = 1, pp: int = 1
) -> dict[str, object] | None:
    """Return the knobs of plans with these degrees; None where they do not divide the shape."""
    if shape.gbs % dp or shape.heads % tp or shape.vocab % (VOCAB_MULTIPLE * tp) or shape.layers % pp:
        return None
    return {"dp": dp, "tp": tp, "pp": pp, "sp": tp == 1, **PRECISION_KNOBS[device]}


def train_as_rank(request: dict[str, Any], send: Send) -> None:
    """Train as one rank of a job.

    The request has the time budget ``seconds``; ``threads`` of a rank, 0 for PyTorch's default; ``rows``
    measured before, used if they are from this machine; ``shapes``, to train in place of the default ones.
    Rank 0 sends a message for the machine, and one for the row of each case.
    """
    from traincast.accuracy.machine.rank_group import RankGroup

    start = time.perf_counter()
    seconds = float(request["seconds"])
    with RankGroup(request["threads"]) as group:
        about = group.from_rank_zero(lambda: describe_machine(group))
        is_first = group.rank.rank == 0
        if is_first:
            send({"machine": about})
        shapes = [TimedShape(*sizes) for sizes in request["shapes"]]
        cases = training_cases(group.device.type, group.rank.size, shapes)
        visits = dict.fromkeys((case.id for case in cases), 0)
        if same_machine(request["rows"], about):
            visits |= {row["id"]: int(row["visits"]) for row in request["rows"]}
        end = start + seconds * (1 - MAX_CASE_SHARE)
        while (index := group.from_rank_zero(lambda: _next_case(cases, visits, end))) is not None:
            case = cases[index]
            result = _train_case(case, group, seconds * MAX_CASE_SHARE)
            visits[case.id] += 1
            if is_first:
                left = sum(MAX_VISITS - visits[case.id] for case in cases)
                row = run_row(case, about, *result)
                send({"row": row, "left": left, "visits": MAX_VISITS * len(cases)})


def train_plan_as_rank(request: dict[str, Any], send: Send) -> None:
    """Train one plan of a ``shape`` as one rank of a job, for some timed ``steps``; rank 0 sends its row."""
    from traincast.accuracy.machine.rank_group import RankGroup

    case = TrainingCase(TimedShape(*request["shape"]), Plan(**request["plan"]))
    with RankGroup(request["threads"]) as group:
        about = group.from_rank_zero(lambda: describe_machine(group))
        result = _train_case(case, group, inf, int(request["steps"]))
        if group.rank.rank == 0:
            send({"row": run_row(case, about, *result)})


def _next_case(cases: Sequence[TrainingCase], visits: Mapping[str, int], end: float) -> int | None:
    """Return the index of the first case with the fewest visits; None when the time is over."""
    if any(visits.values()) and time.perf_counter() > end:
        return None
    index = min(range(len(cases)), key=lambda index: visits.get(cases[index].id, 0), default=None)
    return index if index is not None and visits.get(cases[index].id, 0) < MAX_VISITS else None


def _train_case(
    case: TrainingCase, group: Any, seconds: float, steps: int = TIMED_STEPS
) -> tuple[list[float], float | None]:
    """Train a case on a `RankGroup`; return step times [s] and peak memory [byte], None on a CPU."""
    from torch import cuda

    from traincast.accuracy.machine.training.parallel_step import MeshPosition, Trainer

    gpu = group.device.type == "cuda"
    if gpu:
        cuda.reset_peak_memory_stats()
    trainer = Trainer(case.model, case.plan, case.shape.gbs, MeshPosition.from_plan(case.plan, group.device))

    def step_seconds() -> float:
        """Return the time of one step on this rank, after a barrier [s]."""
        if gpu:
            cuda.synchronize()
        group.all_gather(None)
        start = time.perf_counter()
        trainer.step()
        if gpu:
            cuda.synchronize()
        return time.perf_counter() - start

    times: list[float] = []
    end = time.perf_counter() + seconds
    for index in range(WARM_UP_STEPS + steps):
        times_of_ranks = group.all_gather(step_seconds())
        if index >= WARM_UP_STEPS:
            times.append(_slowest_rank_seconds(times_of_ranks, case.plan.gpus))
        if group.from_rank_zero(lambda: len(times) >= MIN_TIMED_STEPS and time.perf_counter() > end):
            break
    return times, max(group.all_gather(cuda.max_memory_allocated())) if gpu else None


def _slowest_rank_seconds(times_of_ranks: list[float], gpus: int) -> float:
    """Return the time of the slowest rank, averaged over copies of the plan trained side by side [s]."""
    copies = [times_of_ranks[first : first + gpus] for first in range(0, len(times_of_ranks), gpus)]
    return sum(map(max, copies)) / len(copies)


def run_row(
    case: TrainingCase, about: Mapping[str, object], times: list[float], memory: float | None
) -> dict[str, str]:
    """Return the row of a case in a table of runs, from step times [s] and peak memory [byte]."""
    shape = case.shape
    plan = case.plan
    (middle, spread) = median_and_spread(times)
    cells: dict[str, object] = {
        "id": case.id, "source": source_text(about), "stack": STACK, "model": shape.name,
        "layers": shape.layers, "hidden": shape.hidden, "ffn": 4 * shape.hidden, "heads": shape.heads,
        "vocab": shape.vocab, "seq": shape.seq, "mlp": "gelu", "gpu": accelerator_label(about),
        "gpus": plan.gpus, "precision": plan.precision, "grad_dtype": plan.grad_dtype,
        "optimizer_kind": plan.optimizer_kind, "tp": plan.tp, "sp": plan.sp, "pp": plan.pp, "dp": plan.dp,
        "zero": plan.zero, "mbs": plan.mbs, "gbs": shape.gbs, "recompute": "none", "flash_attention": True,
        "step_seconds": f"{middle:.6g}", "step_spread": f"{spread:.3g}",
        "steps_measured": len(times), "visits": 1,
        "memory_gb_published": f"{memory / GIB:.6g}" if memory else "",
        "memory_kind": "allocated" if memory else "", "tied": "false",
    }  # fmt: skip
    adapters = f"lora:r={shape.rank},targets={'+'.join(ADAPTED)}"
    of_experts = {"experts": shape.experts, "topk": TOPK, "moe_ffn": 2 * shape.hidden, "ep": 1}
    cells["trained"] = adapters if shape.rank else ""
    cells |= of_experts if shape.experts else dict.fromkeys(of_experts, "")
    return {name: str(value) for name, value in cells.items()}


def faster_visit(first: dict[str, str], second: dict[str, str]) -> dict[str, str]:
    """Return the visit with the lower median, since other load only adds time; visits add up."""
    best = min(first, second, key=lambda cells: float(cells["step_seconds"]))
    return best | {"visits": str(int(first["visits"]) + int(second["visits"]))}


def source_text(about: Mapping[str, object]) -> str:
    """Return the source of rows: everything that rows of one table have in common, and the date."""
    machine = f"{about['ranks']} x {accelerator_label(about)}, torch {about['torch']}"
    return f"traincast measure --step on {machine}, {date.today().isoformat()}"


def same_machine(rows: Iterable[Mapping[str, str]], about: Mapping[str, object]) -> bool:
    """Return whether all rows are from the described machine, whatever the date."""
    expected = source_text(about).rsplit(", ", 1)[0]
    return all(row["source"].rsplit(", ", 1)[0] == expected for row in rows)
