"""Exports of plans that a framework runs are accepted by its own parsers and configuration classes.

`make frameworks` installs the frameworks; TRAINCAST_FRAMEWORKS names the folder of their executables, by
default that of this interpreter. Where one is missing its test is skipped. `accepts.py` runs in it.
"""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from test_torchtitan import PLANS, written

import traincast as tc
from traincast.core.knobs import STRATEGIES
from traincast.launch.formats import FORMATS
from traincast.launch.frameworks.torchtitan import MODELS as FLAVOURS
from traincast.launch.frameworks.torchtitan import UNTIL_2025

PYTHON = Path(os.environ.get("TRAINCAST_FRAMEWORKS") or Path(sys.executable).parent) / "python"
PROGRAM = Path(__file__).with_name("accepts.py")
MACHINE = tc.load_system("dgx-h100")
EXPORTS = 40
MODELS = (
    *("llama-3-8b", "llama-3-70b", "qwen3-8b", "gemma-2-9b"),  # dense
    *("deepseek-v3", "qwen3-30b-a3b", "gpt-oss-20b", "mixtral-8x7b"),  # with experts
)
IMPORTED = {  # format -> the package that reads it
    "torchtitan": "torchtitan",
    "megatron": "megatron",
    "deepspeed": "deepspeed",
    "accelerate": "accelerate",
    "trl": "trl",
    "axolotl": "axolotl",
    "llama-factory": "llamafactory",
    "torchtune": "torchtune",
}
# Without these it is another plan, which the search for the framework does not give either.
NEEDED = {"tp", "pp", "cp", "cp_kind", "ep", "dp", "schedule", "chunks", "zero", "replicas"}


def drawn(form):
    """Estimates of random plans of the framework's own choices that keep its rules."""
    draw, space = random.Random(7), form.space
    models = [tc.load_model(name) for name in MODELS]
    models = [model for model in models if model.experts is None or not form.dense_only]
    kinds = {STRATEGIES[name].choices["cp_kind"] for name in space.strategies} - {"none"}
    while True:
        model = draw.choice(models)
        knobs = {name: draw.choice(list(values)) for name, values in space.choices.items()}
        knobs |= {name: draw.choice((1, 1, 2, 4, 8)) for name in ("tp", "pp", "dp")} | {
            "mbs": draw.choice((1, 2))
        }
        if kinds and draw.random() < 0.3:
            knobs |= {"cp": 2, "cp_kind": draw.choice(sorted(kinds))}
        if model.experts is not None:
            knobs["ep"] = draw.choice((1, 2, 4, 8))
        if knobs["pp"] == 1:
            knobs["schedule"] = "1f1b"
        elif knobs.get("schedule") in ("zb-v", "dualpipe-v"):
            knobs["vp"] = 2
        elif space.interleaved:
            knobs["vp"] = draw.choice((1, 2))
        try:
            plan = tc.Plan(**knobs)
            gbs = plan.dp * plan.mbs * draw.choice((8, 16))
            est = tc.estimate(model, MACHINE, plan, gbs=gbs, assumptions=space.assumptions)
        except tc.InputError:
            continue
        if not space.broken(model, est.plan, gbs):
            yield est


def skip_unless_installed(to):
    """Skip the test where the framework is not installed, before any plan is drawn."""
    package = IMPORTED[to]
    code = (
        "import sys, importlib.util as u; sys.path.insert(0, sys.argv[1]);"
        "print(u.find_spec(sys.argv[2]) is not None)"
    )
    command = [PYTHON, "-c", code, PYTHON.parents[1] / "parsers" / to, package]
    if "False" in subprocess.run(command, capture_output=True, text=True, check=True).stdout:
        pytest.skip(f"{package} is not installed beside {PYTHON}")


def said(to, files):
    """What the framework says against each file."""
    command = [str(PYTHON), "-W", "ignore", str(PROGRAM), to]
    for path, gpus in files.items():
        command += [str(gpus), str(path)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize("to", IMPORTED)
def test_the_framework_accepts_what_is_exported(to, tmp_path):
    skip_unless_installed(to)
    form, files = FORMATS[to], {}
    for est in drawn(form):
        written = tc.export(est, to)
        needed = NEEDED if to in ("deepspeed", "accelerate") else NEEDED | {"model"}  # these do not name it
        if needed & set(written.not_expressed):
            continue
        path = tmp_path / f"{len(files)}{form.ending}"
        path.write_text(written.text, encoding="utf-8")
        files[path] = est.plan.gpus
        if len(files) == EXPORTS:
            break
    against = Counter(problem for problem in said(to, files).values() if problem)
    assert not against


def test_torchtitan_makes_the_models_and_degrees_of_exports(tmp_path):
    """What it trains has the sizes of the catalogue; models of 2025 are none of its own any more."""
    skip_unless_installed("torchtitan")
    files = {}
    for number, case in enumerate(PLANS):
        files[case] = tmp_path / f"{number}.py"
        files[case].write_text(written(case).text, encoding="utf-8")
    asked = {"paths": list(map(str, files.values())), "flavours": list(FLAVOURS)}
    program = Path(__file__).with_name("made_by_torchtitan.py")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [str(PYTHON), "-W", "ignore", str(program)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    made = json.loads(ran.stdout.splitlines()[-1])
    for case, sizes in zip(files, made["paths"], strict=True):
        name, plan = PLANS[case]
        known = tc.load_model(name)
        assert sizes == {
            "tp": plan.tp,
            "pp": plan.pp,
            "ep": plan.ep,
            "layers": known.layers,
            "hidden": known.hidden,
            "vocab": known.vocab,
        }, case
    for ((name, flavour), called), sizes in zip(FLAVOURS.items(), made["flavours"], strict=True):
        known = tc.load_model(called)
        expected = None if name in UNTIL_2025 else {"layers": known.layers, "hidden": known.hidden}
        assert sizes == expected, (name, flavour)


@pytest.mark.parametrize(
    ("to", "plan", "old", "new", "words"),
    [
        (
            "torchtitan",
            tc.Plan(pp=2, dp=4, zero=2),
            "disable_cuda_graphs=True",
            "disable_cuda_graphs=False",
            "CUDA graphs do not support pipeline parallelism",
        ),
        (
            "megatron",
            tc.Plan(tp=2, dp=4, precision="fp8", recompute="attention"),
            "--recompute-modules core_attn",
            "--recompute-modules core_attn layernorm",
            "Delayed scaling does not support moe_act and layernorm recompute",
        ),
        ("accelerate", tc.Plan(dp=8, zero=3), "num_processes: 8", "num_processes: 6", "6 processes"),
        ("trl", tc.Plan(dp=8, zero=3), 'accelerate_config: "fsdp2"', "use_fsdp: true", "unknown: True"),
        ("deepspeed", tc.Plan(dp=8, zero=3), '"stage": 3', '"stage": 7', "stage"),
        ("axolotl", tc.Plan(dp=8, zero=3), "sequence_len:", "sequence_length:", "unknown"),
        ("llama-factory", tc.Plan(dp=8, zero=3), "cutoff_len:", "cut_len:", "cut_len"),
    ],
)
def test_a_framework_refuses_what_is_wrong(to, plan, old, new, words, tmp_path):
    """Else the test above would not see it."""
    skip_unless_installed(to)
    text = tc.export(tc.estimate("llama-3-8b", MACHINE, plan, gbs=64), to).text
    assert old in text
    path = tmp_path / f"wrong{FORMATS[to].ending}"
    path.write_text(text.replace(old, new), encoding="utf-8")
    assert words in (said(to, {path: 8})[str(path)] or "")


GATED_DELTA = (Path(__file__).parents[1] / "launch/scripts/gated_delta.sh").read_text(encoding="utf-8")
SELECTIVE = "--recompute-granularity selective --recompute-modules"
OF_DELTA_NET = {  # arguments -> what Megatron-LM says against them
    "": "",
    "--context-parallel-size 2 --cp-comm-type a2a": "",
    "--context-parallel-size 4 --cp-comm-type p2p --tensor-model-parallel-size 4": "",
    "--context-parallel-size 4 --tensor-model-parallel-size 8": "linear_num_key_heads",
    f"{SELECTIVE} layernorm gdn_norm_out": "",
    "--cross-entropy-loss-fusion --cross-entropy-fusion-impl native": "",
    "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te": "disabled due to stability issues",
}
OVERLAPPED = {"dp": 8, "ep": 8, "ep_overlap": True}
OF_EXPORTS = (  # model, knobs, arguments, what Megatron-LM says against them
    ("llama-3-8b", {"dp": 8, "master_copy": "remainder"}, "", ""),
    ("llama-3-8b", {"dp": 8, "optimizer_kind": "adam-bf16"}, "", ""),
    ("llama-3-8b", {"dp": 4, "tp": 2, "optimizer_kind": "adam-8bit", "precision": "fp8-block"}, "", ""),
    ("llama-3-8b", {"dp": 8, "offload": "optimizer"}, "", ""),
    ("qwen3-30b-a3b", OVERLAPPED, f"{SELECTIVE} moe_act layernorm", ""),
    ("qwen3-30b-a3b", OVERLAPPED, f"{SELECTIVE} moe", "disable moe in recompute_modules"),
    ("qwen3-30b-a3b", OVERLAPPED, "--mtp-num-layers 1", ""),
    ("qwen3-30b-a3b", OVERLAPPED, "--mtp-num-layers 2", "MTP supports at most one layer"),
)


def test_megatron_runs_and_refuses_what_the_rules_say(tmp_path):
    """Each is a rule of `framework_refusals.py` or `framework_spaces.py`, or a row of `megatron.toml`."""
    skip_unless_installed("megatron")
    scripts, answers = {}, {}
    for further, against in OF_DELTA_NET.items():
        gpus = 32 if "size 8" in further else 16
        text = GATED_DELTA.replace("--nnodes 2", f"--nnodes {gpus // 8}")
        scripts[f"{text.rstrip()} {further}\n"] = gpus, against
    for model, knobs, further, against in OF_EXPORTS:
        written = tc.export(tc.estimate(model, MACHINE, tc.Plan(**knobs), gbs=64), "megatron")
        assert not {"optimizer_kind", "master_copy", "offload", "ep_overlap"} & set(written.not_expressed)
        scripts[f"{written.text.rstrip()} {further}\n"] = 8, against
    for i, (text, (gpus, against)) in enumerate(scripts.items()):
        (path := tmp_path / f"{i}.sh").write_text(text, encoding="utf-8")
        answers[path] = gpus, against
    heard = said("megatron", {path: gpus for path, (gpus, _) in answers.items()})
    for path, (_, against) in answers.items():
        problem = heard[str(path)]
        assert against in problem if against else problem is None, (
            problem,
            path.read_text(encoding="utf-8")[-90:],
        )
