"""Writing of a plan as a launch script or configuration of a training framework."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import ClassVar, Final

from traincast.core import (
    ErrorCollector,
    Plan,
    System,
    __version__,
    atomic_output,
    count_of,
    gib,
    seconds,
    seconds_with_interval,
)
from traincast.launch.python.torchtitan_config import identifier
from traincast.launch.settings.canonical import device, groups_products, launch_facts
from traincast.launch.settings.facts import Facts
from traincast.launch.settings.format import Format, Writing, not_expressed
from traincast.model import Model
from traincast.step import Estimate

PLAN_FACTS: Final = frozenset((*(knob.name for knob in fields(Plan)), "chunks", "placement"))
MAX_GPUS_PER_NODE: Final = 8  # where the fast domain is larger; 4 in fast domains of 36 and 72


@dataclass(frozen=True)
class Launch:
    """Launch script or configuration of a plan."""

    to: str  # the format
    text: str  # the file
    not_expressed: dict[str, str]  # what the format cannot express: a fact by name, its value and why
    ending: str  # of a file's name
    # Settings of the model that the file leaves at the framework's defaults: by name, the default.
    left_at_default: dict[str, str] = field(default_factory=dict)
    settings: dict[str, object] = field(default_factory=dict, repr=False)  # those the prediction depends on
    est: Estimate | None = field(default=None, repr=False)  # the prediction of the plan
    command: str = ""  # that starts the file, FILE, on every machine
    prediction: tuple[str, ...] = ()  # the prediction in words, in the text where that has comments
    # Files of a folder that can be launched, by name (`export_folder`); else empty.
    files: dict[str, str] = field(default_factory=dict, repr=False)

    SCRIPT: ClassVar = "launch.sh"  # of a folder: what starts it
    LOG: ClassVar = "training.log"  # of a folder: what it prints

    def __str__(self) -> str:
        return self.text

    def command_for(self, file: Path | None) -> str:
        """Return the command that starts a file; its module, of one in Python."""
        if file is None:
            return self.command
        return self.command.replace("FILE", file.stem if self.ending == ".py" else str(file))

    def save(self, output: Path) -> None:
        """Write the text into a file, or the files of a folder into one."""
        written = {output / name: text for name, text in self.files.items()} or {output: self.text}
        for path, text in written.items():
            with atomic_output(path) as partial:
                partial.write_text(text, encoding="utf-8")
                partial.chmod(0o755 if path.name == self.SCRIPT else partial.stat().st_mode)


def launch(
    form: Format,
    model: Model,
    plan: Plan,
    gbs: int,
    system: System,
    head: Sequence[str] = (),
    stack: str | None = None,
    keeps_stage: bool = False,
) -> Launch:
    """Write a plan in a format, with comment lines at the top.

    `stack` is a software stack by name; `keeps_stage` as in `launch_facts`.
    """
    errors = ErrorCollector(form.name)
    errors.catch(form.require_expressible, model)
    errors.add(form.space.broken(model, plan, gbs))
    if system.is_tpu:
        errors.add([f"system = {system.name}: {form.title} is written for GPUs; no format is for TPUs yet"])
    errors.raise_any()
    facts = launch_facts(model, plan, gbs, system, keeps_stage=keeps_stage) | {"stack": stack}
    facts |= {"per_node": per_node(system, plan.gpus), "device": device(system)}
    facts |= {"nvlink_spans_nodes": system.fast_domain > MAX_GPUS_PER_NODE}
    facts |= {"grouped_gemm": groups_products(system)}
    draft = Writing(facts, form.sections(form.drop_refused(facts)), model.name)
    read_back = form.read(form.write(draft))
    unexpressed = not_expressed(form, read_back, facts, model, keeps_stage=keeps_stage)
    if "experts.experts" in facts and not facts["grouped_gemm"] and "grouped_gemm" in form.why:
        unexpressed["grouped_gemm"] = f"experts in one kernel: {form.why['grouped_gemm']}"
    usual = form.stack(read_back)
    other = f"assumptions: {stack}; check takes {usual} for this file, unless --assumptions says {stack}"
    batch = f"{count_of(gbs, 'sequence')} of {model.seq:,} tokens"
    gpus = f"{count_of(plan.gpus, 'GPU')} of {system.name}"
    lines = [
        f"{model.title} on {gpus} with {form.title}, by traincast {__version__}",
        f"plan: {plan}; a step: {batch}",
        *head,
        *([other] if stack not in (None, usual) else []),
        f"names: {form.source}",
    ]
    if unexpressed:
        lines += ["not expressed:", *(f"  {line}" for line in unexpressed.values())]
    if left := form.left_at_default(facts):
        defaults = (f"  {name}: {default}" for name, default in left.items())
        lines += [f"left at {form.title}'s defaults: set those of your model", *defaults]
    text = form.write(replace(draft, head=tuple(lines)))
    command = launch_command(form, model, facts)
    return Launch(form.name, text, unexpressed, form.ending, left, draft.all_settings, command=command)


def launch_command(form: Format, model: Model, facts: Facts) -> str:
    """Return the command that starts a file of a format, FILE, on every machine; empty if none is known.

    The program of a format that has none of its own is PROGRAM, and the address of the first machine HOST.
    """
    nodes = facts["gpus"] // facts["per_node"]
    processes = f"--nproc_per_node={facts['per_node']}"
    several = f"--nnodes={nodes} {processes} --rdzv_backend=c10d --rdzv_endpoint=HOST:29500"
    return form.starts.format(
        nodes=nodes,
        per_node=facts["per_node"],
        torchrun=f"torchrun {several if nodes > 1 else processes}",
        objective="dpo" if model.reference else "sft",
        answers="rlhf" if model.reference else "sft",
        tuned="lora" if model.adapters is not None else "full",
        function=f"{identifier(model.name)}_{facts['gpus']}_gpus",
    )


def per_node(system: System, gpus: int) -> int:
    """Return the accelerators of a node: a fast domain, but at most 8, and a divisor of those of the job."""
    limit = 4 if system.fast_domain % 36 == 0 else MAX_GPUS_PER_NODE
    return next(n for n in range(min(system.domain(gpus), limit), 0, -1) if gpus % n == 0)


def export_estimate(est: Estimate, form: Format, plans: Sequence[Estimate] = ()) -> Launch:
    """Write the plan of an estimate in a format, with its prediction; `plans` are those of its search."""
    lines = _prediction_lines(est, plans)
    written = launch(
        form,
        est.model,
        est.plan,
        est.gbs,
        est.system,
        lines,
        est.assumptions.name,
        keeps_stage=est.sharding_changes_one_rank,
    )
    return replace(written, est=est, prediction=lines)


def _prediction_lines(est: Estimate, plans: Sequence[Estimate]) -> tuple[str, ...]:
    """Return a line on the prediction, and one on faster plans that are refused or not expressed in full."""
    time = est.step_seconds
    interval = est.interval
    step = seconds(time)
    if interval:
        step = f"{seconds_with_interval(time, float(interval[0]), float(interval[1]))}, 90%)"
    memory = f"{gib(est.memory_bytes)} of {gib(float(est.system.accelerator.visible_bytes))}"
    prediction = f"predicted: {step} a step, {memory}{'' if est.fits else ', which does not fit'}"
    before = plans[: plans.index(est)] if est in plans else ()  # which the search prefers
    faster = sorted(one.step_seconds for one in before if one.step_seconds < time)
    if not faster:
        return (prediction,)
    best = f"faster plans of the search: {len(faster)} (the best {seconds(faster[0])})"
    return prediction, f"{best}; they break the framework's rules or cannot be expressed in full"
