"""Files of a launch as a folder: configuration, model, a training program and a script that starts it."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Final

from traincast.core import (
    ErrorCollector,
    InputError,
    Plan,
    System,
    check_folder,
    check_output,
    raise_problems,
)
from traincast.launch.formats import FORMATS
from traincast.launch.frameworks.model_config import config_of
from traincast.launch.settings.canonical import device, launch_facts
from traincast.launch.settings.facts import Facts, as_facts
from traincast.launch.settings.format import Format
from traincast.launch.settings.text_formats import comments
from traincast.launch.write import PLAN_FACTS, Launch, export_estimate, launch, per_node
from traincast.model import Model
from traincast.planner import FRAMEWORKS
from traincast.step import estimate

PROGRAM = "train.py"
MODEL = "config.json"
DATA_PARALLEL: Final[Mapping[str, int]] = {"tp": 1, "cp": 1, "pp": 1, "ep": 1}  # what the programs run
RECOMPUTED: Final = ("none", "full")
ATTENTION: Final = {"flash": "sdpa", "unfused": "eager"}  # kernel -> attn_implementation of transformers
ONE_NODE = "torchrun --standalone --nproc-per-node {processes}"
SEVERAL_NODES = (
    'torchrun --nnodes {nodes} --nproc-per-node {processes} --node-rank "${{NODE_RANK:-0}}"'
    ' --master-addr "${{MASTER_ADDR:?of the first node}}" --master-port "${{MASTER_PORT:-29500}}"'
)
ACCELERATE: Final = "accelerate launch --config_file {file}"
ACCELERATE_NODES: Final = (
    f'{ACCELERATE} --machine_rank "${{{{NODE_RANK:-0}}}}"'
    ' --main_process_ip "${{MASTER_ADDR:?of the first node}}" --main_process_port "${{MASTER_PORT:-29500}}"'
)
TEMPLATE: Final = """#!/bin/bash
{head}
set -euo pipefail
cd "$(dirname "${{BASH_SOURCE[0]}}")"
{environment}{launcher} \\
    {program} --steps "${{STEPS:-10}}" "$@" 2>&1 | tee {log}
"""


@dataclass(frozen=True)
class TrainingScript:
    """A training program beside a launch of a format."""

    source: str  # of `launch/programs`
    file: str  # name of the launch's configuration
    launchers: tuple[str, str]  # what starts it on one node, and on several
    packages: str  # that it needs
    takes: tuple[str, ...]  # facts that it is given, besides the model

    def check_folder(self, folder: Path, force: bool) -> None:
        """Raise an `InputError` if the files of a launch cannot be written into a folder."""
        check_folder(folder)
        for name in (self.file, MODEL, PROGRAM, Launch.SCRIPT):
            check_output(folder / name, force, (Path(name).suffix,))


TRAINING_PROGRAMS: Final[Mapping[str, TrainingScript]] = {  # by format
    "deepspeed": TrainingScript(
        "deepspeed_engine.py",
        "ds_config.json",
        (ONE_NODE, SEVERAL_NODES),
        "torch, deepspeed and transformers",
        (),
    ),
    "accelerate": TrainingScript(
        "huggingface_trainer.py",
        "accelerate.yaml",
        (ACCELERATE, ACCELERATE_NODES),
        "torch, accelerate and transformers",
        ("mbs", "gbs", "optimizer_kind"),
    ),
}
TAKEN: Final = ("model", "gpus", "recompute", "attention")  # facts that every program is given


def add_program(launch: Launch) -> Launch:
    """Return a launch with the files of a folder: its text, the model, a training program, and a script.

    Raises
    ------
    InputError
        If the program of the format does not run such a plan or train such a model.
    """
    program = TRAINING_PROGRAMS[launch.to]
    est = launch.est
    assert est is not None
    stated = launch_facts(est.model, est.plan, est.gbs, keeps_stage=est.sharding_changes_one_rank)
    stated |= {"device": device(est.system)}
    facts = as_facts(FRAMEWORKS[FORMATS[launch.to].framework].drop_refused(stated))
    errors = ErrorCollector("export")
    errors.catch(_check_plan, facts, est.model, program)
    config = errors.require(errors.catch(config_of, est.model))
    missing = {
        name: why for name, why in launch.not_expressed.items() if name not in (*TAKEN, *program.takes)
    }
    nodes = est.plan.gpus // (processes := per_node(est.system, est.plan.gpus))
    head = [
        f"{est.model.title}, {est.plan}, on {est.system.name}: needs {program.packages}.",
        "STEPS=3 trains for three steps. The data are random tokens: put your own into train.py.",
        *(["Start it on every node, with NODE_RANK and MASTER_ADDR."] if nodes > 1 else []),
    ]
    script = TEMPLATE.format(
        head="\n".join(comments(head)),
        environment="".join(f"export {name}={value}\n" for name, value in _environment(launch).items()),
        launcher=program.launchers[nodes > 1].format(nodes=nodes, processes=processes, file=program.file),
        program=shlex.join((PROGRAM, *_arguments(facts, program))),
        log=launch.LOG,
    )
    text = files("traincast.launch.programs").joinpath(program.source).read_text(encoding="utf-8")
    return replace(
        launch,
        not_expressed=missing,
        files={
            program.file: launch.text,
            MODEL: json.dumps(config, indent=2) + "\n",
            PROGRAM: text,
            launch.SCRIPT: script,
        },
    )


def _check_plan(facts: Facts, model: Model, program: TrainingScript) -> None:
    """Raise an `InputError` with all that a program does not run."""
    wrong = [
        f"{name} = {facts.get(name)}: must be {value}; {PROGRAM} trains data-parallel replicas"
        for name, value in DATA_PARALLEL.items()
        if facts.get(name, value) != value
    ]
    if facts["recompute"] not in RECOMPUTED or facts.get("recompute_every", 1) > 1:
        wrong.append(f"recompute = {facts['recompute']}: {PROGRAM} recomputes all layers (full) or none")
    if facts["attention"] not in ATTENTION:
        wrong.append(f"attention = {facts['attention']}: must be {' or '.join(ATTENTION)}")
    if "optimizer_kind" in program.takes and facts["optimizer_kind"] != "adam":
        wrong.append(f"optimizer_kind = {facts['optimizer_kind']}: {PROGRAM} has AdamW")
    if model.adapters is not None or model.reference:
        wrong.append(f"train = {model.training}: {PROGRAM} trains all weights")
    raise_problems("export", wrong)


def _environment(launch: Launch) -> dict[str, object]:
    """Return the environment of processes on CPUs: their threads, and DeepSpeed's device."""
    assert launch.est is not None
    system = launch.est.system
    if not system.is_cpu:
        return {}
    environment: dict[str, object] = {"OMP_NUM_THREADS": system.accelerator.processors or 1}
    if launch.to == "deepspeed":
        environment["DS_ACCELERATOR"] = "cpu"
    return environment


def _arguments(facts: Facts, program: TrainingScript) -> list[str]:
    """Return the arguments of a program."""
    values: dict[str, object] = {"seq": facts["seq"], "attention": ATTENTION[facts["attention"]]}
    flags = []
    if "mbs" in program.takes:
        accumulation = facts["gbs"] // facts["dp"] // facts["mbs"]
        values |= {"mbs": facts["mbs"], "accumulation": accumulation}
        flags += ["cpu"] if facts["device"] == "cpu" else []
    # What FSDP recomputes stands in Accelerate's configuration.
    recomputes = facts["recompute"] == "full"
    flags += ["recompute"] if recomputes and not ("mbs" in program.takes and facts.get("zero", 0)) else []
    return [f"--{name}={value}" for name, value in values.items()] + [f"--{flag}" for flag in flags]


def write_in_full(
    form: Format, model: Model, plan: Plan, gbs: int, system: System, stack: str
) -> Launch | None:
    """Write a plan as it can be launched; None where the framework refuses it or the format lacks a part.

    It is a folder where a training program goes with the format.
    """
    if form.name in TRAINING_PROGRAMS:
        try:
            est = estimate(model, system, plan, gbs=gbs, assumptions=stack)
            return add_program(export_estimate(est, form))
        except InputError:  # the program does not run such a plan
            return None
    if form.space.broken(model, plan, gbs):
        return None
    written = launch(form, model, plan, gbs, system, stack=stack)
    return None if PLAN_FACTS & set(written.not_expressed) else written
