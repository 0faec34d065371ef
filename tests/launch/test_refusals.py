"""Combinations of settings that a framework refuses are neither advised nor written."""

import json
import tomllib
from dataclasses import replace

import pytest

import traincast as tc
from traincast.launch.formats import FORMATS
from traincast.launch.frameworks.torchtitan import stack
from traincast.launch.write import launch
from traincast.planner.frameworks.refusals import REFUSALS, drop_refused, find_refusals
from traincast.ui.cli.main import main

MACHINE = tc.load_system("dgx-h100")
DISCARDED = {
    "layernorm",
    "moe_act",
}  # --recompute-modules that Megatron-Core 0.19.2 refuses with delayed scaling


def megatron(folder, name, plan, gbs):
    path = folder / "run.sh"
    path.write_text(
        launch(FORMATS["megatron"], tc.load_model(name), plan, gbs, MACHINE).text, encoding="utf-8"
    )
    return path


def advised(checked):
    """Values of every setting that is advised or tried, and of those of the best plan."""
    settings_of_changes = [change.settings for change in (*checked.tried, *filter(None, [checked.together]))]
    if checked.found.best is not None:
        settings_of_changes.append(checked.bench.differences(checked.found.best[0]))
    return [(name, new) for settings in settings_of_changes for name, _, new in settings]


PLANS = {
    "llama-3-8b": tc.Plan(tp=2, dp=4, precision="fp8"),
    "mixtral-8x7b": tc.Plan(tp=2, dp=16, ep=8, precision="fp8"),
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize(("precision", "possible"), [("fp8", False), ("fp8-current", True)])
def test_no_recomputation_that_delayed_scaling_does_not_support(name, precision, possible, tmp_path):
    """Megatron-Core 0.19.2: "Delayed scaling does not support moe_act and layernorm recompute for fp8"."""
    checked = tc.check(megatron(tmp_path, name, replace(PLANS[name], precision=precision), 32), "dgx-h100")
    modules = {
        module
        for setting, new in advised(checked)
        if setting == "recompute_modules" and new
        for module in new
    }
    assert bool(modules & DISCARDED) == possible
    assert "core_attn" in modules


TOML = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 8192
{old}
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = {tp}
{asynchronous}
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
[compile]
{new}
"""


@pytest.mark.parametrize(
    ("old", "new", "compiled"),
    [
        ("", "enable = true", True),
        ("", 'enable = true\ncomponents = ["model", "loss"]', True),
        ("", 'enable = true\ncomponents = ["loss"]', False),
        ("", "", False),
        ("compile = true", "", True),
        ("compile = false", "", False),
    ],
)
def test_whether_the_model_is_compiled(old, new, compiled):
    """torchtitan 0.3.0: "Async TP requires 'model' in --compile.components and --compile.enable"."""
    settings = FORMATS["torchtitan-toml"].read(TOML.format(tp=2, old=old, new=new, asynchronous=""))
    assert stack(settings) == ("torchtitan-2025" if compiled else "torchtitan-eager")


@pytest.mark.parametrize("compiled", [True, False])
def test_no_asynchronous_tensor_parallelism_without_compile(compiled, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        TOML.format(tp=2, old="", new=f"enable = {str(compiled).lower()}", asynchronous=""), encoding="utf-8"
    )
    checked = tc.check(path, "dgx-h100", gpus=8)
    assert (("parallelism.enable_async_tensor_parallel", True) in advised(checked)) is compiled


def test_a_launch_that_its_framework_refuses_is_said_to_be_refused(tmp_path):
    """All that is advised mends it."""
    path = tmp_path / "run.toml"
    text = TOML.format(tp=2, old="", new="enable = false", asynchronous="enable_async_tensor_parallel = true")
    path.write_text(text, encoding="utf-8")
    checked = tc.check(path, "dgx-h100", gpus=8)
    assert any("requires torch.compile" in line for line in checked.reading.assumed)
    assert not any(change.est.plan.tp_overlap for change in checked.tried)


def test_refused_plans_are_not_written():
    plan = tc.Plan(tp=2, dp=4, precision="fp8", recompute="attention+norms")
    written = launch(FORMATS["megatron"], tc.load_model("llama-3-8b"), plan, 64, MACHINE)
    assert "--recompute-modules core_attn\n" in written.text
    assert written.not_expressed["recompute"].endswith(
        "delayed scaling of fp8 does not support recomputation of layernorm and moe_act"
    )
    only = launch(
        FORMATS["slurm"],
        tc.load_model("llama-3-8b"),
        tc.Plan(dp=8, precision="fp8", recompute="norms"),
        64,
        MACHINE,
    )
    assert "--recompute" not in only.text
    assert "recompute" in only.not_expressed


@pytest.mark.parametrize("to", ["torchtitan", "torchtitan-toml"])
@pytest.mark.parametrize(("software", "compiled"), [("torchtitan-eager", False), ("torchtitan-2025", True)])
def test_torchtitan_compiles_where_the_prediction_does(to, software, compiled):
    est = tc.estimate(
        "llama-3-8b", MACHINE, tc.Plan(tp=2, dp=4, zero=2, tp_overlap=True), gbs=64, assumptions=software
    )
    written = tc.export(est, to)
    if to == "torchtitan":
        assert ("enable_async_tensor_parallel=True" in written.text, "enable=True" in written.text) == (
            compiled,
            compiled,
        )
    else:
        document = tomllib.loads(written.text)
        assert document["compile"]["enable"] is compiled
        assert document["parallelism"].get("enable_async_tensor_parallel", False) is compiled
    assert ("tp_overlap" in written.not_expressed) is not compiled


def test_the_export_of_a_search_is_a_plan_that_runs(capsys):
    """With this tensor-parallel degree the fastest plan overlaps; without compile another is written."""
    command = "export llama-3-8b --system dgx-h100 --gpus 16 --gbs 64 --tp 8 --to torchtitan --json"
    for software, overlaps in (("torchtitan-2025", True), ("torchtitan-eager", False)):
        main([*command.split(), "--assumptions", software])
        document = json.loads(capsys.readouterr().out)
        assert document["not_expressed"] == {}
        assert ("enable_async_tensor_parallel" in document["text"]) is overlaps


def test_refusals_are_of_choices_and_frameworks_that_there_are():
    from traincast.catalog.software_stacks import Stack, stack_names
    from traincast.core.knobs import ALLOWED_VALUES
    from traincast.planner.frameworks.spaces import FRAMEWORKS

    facts_by_stack = {name: Stack(name).facts for name in stack_names()}
    for refusal in REFUSALS:
        assert refusal.framework in FRAMEWORKS
        assert refusal.values <= set(ALLOWED_VALUES[refusal.choice])
        assert all(
            value in {"device": ("cpu", "gpu"), **ALLOWED_VALUES}[name]
            for name, value in refusal.conditions.items()
        )
        choices = {refusal.choice: next(iter(refusal.values)), **refusal.conditions}
        if refusal.software:
            assert refusal not in find_refusals(refusal.framework, choices)
            wanted = refusal.software.items()
            choices["stack"] = next(name for name, facts in facts_by_stack.items() if wanted <= facts.items())
        assert find_refusals(refusal.framework, choices, refusal.until) == (refusal,)
        in_every_framework = "tp_overlap" in choices and choices.get("sp") is False
        assert bool(find_refusals("any", choices)) == in_every_framework
        if not refusal.until:
            assert find_refusals(refusal.framework, drop_refused(refusal.framework, choices)) == ()


@pytest.mark.parametrize(
    ("software", "refuses"),
    [
        ("torchtitan-2025+compiled=false", True),
        ("torchtitan-2024+compiled=false+kernels=unfused-rotation", True),
        ("torchtitan-2025+loss=chunked", False),
        ("calibrated", False),
    ],
)
def test_refusals_are_of_facts_whatever_the_stack_is_called(software, refuses):
    """Before, four names of stacks stood in the table; the first here was not among them."""
    choices = {"tp_overlap": True, "sp": True, "stack": software}
    assert bool(find_refusals("torchtitan", choices)) is refuses


def test_forks_refuse_other_things_whatever_their_release():
    choices = {"ep_overlap": True, "recompute": "full"}
    assert find_refusals("megatron", choices)
    for software in ("megatron-deepspeed-2022", "megatron-deepspeed-gaudi"):
        assert find_refusals("megatron", choices | {"stack": software}) == ()


@pytest.mark.parametrize(
    ("command", "broken"),
    [  # 8 heads of keys and values; tied embeddings
        ("llama-3-8b --tp 16 --dp 4 --to torchtitan", ["heads of keys and values", "(tp = 16, groups = 8)"]),
        (
            "gemma-2-9b --tp 16 --pp 2 --dp 2 --to torchtitan-toml",
            ["torchtitan-toml: 2 problems", "(tp = 16, groups = 8)", "ties no embedding", "(pp = 2)"],
        ),
        ("llama-3-8b --tp 16 --dp 4 --to nanotron", ["nanotron needs a head", "(tp = 16, groups = 8)"]),
        (
            "mixtral-8x7b --seq 4096 --pp 2 --ep 8 --dp 8 --ep-overlap --to slurm",
            ["ep_overlap in a pipeline", "(pp = 2, vp = 1)"],
        ),
        ("llama-3-8b --pp 2 --dp 4 --to axolotl", ["runs no pipeline", "(pp = 2)"]),
        ("llama-3-8b --pp 2 --dp 4 --zero 0 --to accelerate", ["FSDP2 alone runs no pipeline (pp = 2)"]),
        ("llama-3-8b --pp 2 --dp 4 --zero 2 --to deepspeed", ["runs ZeRO-1 at most in a pipeline (pp = 2)"]),
    ],
)
def test_a_plan_given_by_hand_that_breaks_rules_is_refused(command, broken, capsys):
    """Exit code 2, every broken rule with its values, and no file on standard output."""
    with pytest.raises(SystemExit) as stop:
        main(f"export {command} --system dgx-h100 --gbs 64".split())
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (2, "")
    assert [words for words in broken if words not in err] == []


def test_of_a_search_a_plan_that_keeps_the_rules_is_written():
    """Searched for any framework, the fastest plan of Gemma 2 27B, with tied embeddings, is a pipeline."""
    model = tc.load_model("gemma-2-27b", seq=4096)
    found = tc.search(model, MACHINE, gpus=64, gbs=256, framework="any", top=30, locks={"vp": 1})
    assert found.plans[0][0].pp > 1
    written = tc.export(found, "torchtitan")
    assert written.est in [est for plan, est in found.plans if plan.pp == 1]
    pipelines = tc.search(model, MACHINE, gpus=64, gbs=256, framework="any", top=3, locks={"pp": 8})
    with pytest.raises(tc.InputError, match=r"ties no embedding .* \(pp = 8\)"):
        tc.export(pipelines, "torchtitan")


def mixtral(vp):
    return tc.Plan(pp=2, vp=vp, dp=8, ep=8, zero=1)


@pytest.mark.parametrize(("vp", "possible"), [(1, False), (2, True)])
def test_advice_keeps_the_rules_of_the_framework(vp, possible, tmp_path):
    """Megatron-Core overlaps expert communication in a pipeline with virtual stages only."""
    checked = tc.check(megatron(tmp_path, "mixtral-8x7b", mixtral(vp), 64), MACHINE)
    overlapping = [change for change in checked.tried if change.est.plan.ep_overlap]
    assert any(change.est.plan.pp > 1 for change in overlapping) is possible
    space = checked.bench.form.space
    assert not any(space.broken(checked.est.model, change.est.plan, 64) for change in checked.tried)


def test_a_launch_that_breaks_a_rule_is_said_to_break_it(tmp_path):
    """All that is advised mends it: the pipeline is dropped, or has virtual stages."""
    path = megatron(tmp_path, "mixtral-8x7b", mixtral(1), 64)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("--bf16", "--bf16 --overlap-moe-expert-parallel-comm", 1), encoding="utf-8")
    checked = tc.check(path, MACHINE)
    assert checked.est.plan.ep_overlap
    assert any("needs virtual stages (vp > 1) (pp = 2, vp = 1)" in line for line in checked.reading.assumed)
    assert checked.tried
    space = checked.bench.form.space
    assert not any(space.broken(checked.est.model, change.est.plan, 64) for change in checked.tried)


OFFLOADED = """
{{"zero_optimization": {{"stage": {stage}, "offload_param": {{"device": "cpu"}},
                         "offload_optimizer": {{"device": "cpu"}}}}, "bf16": {{"enabled": true}}}}
"""
LAUNCH = """
torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Meta-Llama-3-8B --bf16 true \\
  --per_device_train_batch_size 2 --deepspeed ds.json --max_length 2048 --gradient_checkpointing true
"""


def test_deepspeed_offloads_weights_with_zero_3_alone(tmp_path):
    """DeepSpeed 0.19.8, deepspeed/runtime/zero/config.py: `offload_param` is "Valid only with stage 3"."""
    (tmp_path / "ds.json").write_text(OFFLOADED.format(stage=3), encoding="utf-8")
    path = tmp_path / "run.sh"
    path.write_text(LAUNCH, encoding="utf-8")
    checked = tc.check(path, "rtx-3090", gpus=8)
    assert checked.est.plan.offload == "optimizer+weights"
    tried = [change.est.plan for change in checked.tried] + [plan for plan, _ in checked.found.plans]
    assert tried
    assert not [plan for plan in tried if "weights" in plan.offload and plan.zero < 3]


@pytest.mark.parametrize(
    ("stage", "offload", "idle"),
    [
        (2, "optimizer", "offload_param.device has no effect below ZeRO-3"),
        (0, "none", "offload_optimizer.device has no effect below ZeRO-1"),
        (3, "optimizer+weights", ""),
    ],
)
def test_what_deepspeed_does_not_offload_at_a_stage(stage, offload, idle, tmp_path):
    path = tmp_path / "ds.json"
    path.write_text(OFFLOADED.format(stage=stage), encoding="utf-8")
    (tmp_path / "run.sh").write_text(LAUNCH, encoding="utf-8")
    checked = tc.check(tmp_path / "run.sh", "dgx-h100", gpus=8)
    assert checked.est.plan.offload == offload
    assert any(idle in note for note in checked.reading.assumed)
    assert any("has no effect below" in note for note in checked.reading.assumed) == bool(idle)


def test_what_deepspeed_steps_at_once_is_read(tmp_path):
    """A smaller `sub_group_size` needs less memory at the optimizer step, so it is part of the prediction."""
    path = tmp_path / "run.sh"
    path.write_text(LAUNCH, encoding="utf-8")
    needed = []
    for size in (1_000_000_000, 10_000_000):
        stage = f'"stage": 3, "sub_group_size": {size}'
        text = f'{{"zero_optimization": {{{stage}}}, "bf16": {{"enabled": true}}, "steps_per_print": 5}}'
        (tmp_path / "ds.json").write_text(text, encoding="utf-8")
        checked = tc.check(path, "dgx-h100", gpus=8)
        needed.append(sum(checked.est.memory_phases["optimizer step"].values()))
        assert "deepspeed.zero_optimization.sub_group_size" in checked.reading.used
        assert checked.reading.ignored.count("deepspeed.zero_optimization.sub_group_size") == 0
        assert "deepspeed.steps_per_print" in checked.reading.ignored
    assert needed[1] < needed[0]
