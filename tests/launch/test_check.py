"""Realistic launch scripts and configurations: settings read, predictions, and advice."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import traincast as tc
from traincast.core.errors import InputError
from traincast.core.units import probability_text
from traincast.launch.formats import FORMATS
from traincast.launch.frameworks.megatron_model import read_moe_layers
from traincast.launch.scripts.bash import settings_of
from traincast.launch.settings.canonical import model_facts
from traincast.launch.settings.settings import Settings
from traincast.ui.cli.main import main

SCRIPTS = Path(__file__).parent / "scripts"
CLUSTER = Path(__file__).parents[2] / "examples" / "my_cluster"
# their round trips are in test_finetuning.py
FINE_TUNING = {"trl", "axolotl", "llama-factory", "ms-swift", "automodel", "torchtune"}
BAD_PLAN = tc.Plan(
    tp=8, pp=4, dp=2, recompute="full"
)  # more cut, and more recomputed, than Llama 3 8B needs on 64 GPUs


@pytest.fixture
def run(capsys):
    """Run the command line: exit code, standard output, standard error."""

    def run(command):
        code = 0
        try:
            main(command.split())
        except SystemExit as stop:
            code = stop.code or 0
        return code, *capsys.readouterr()

    return run


def test_a_script_of_variables_and_strings():
    checked = tc.check(CLUSTER / "pretrain.sh", "dgx-h100")
    plan = checked.est.plan
    assert (plan.tp, plan.pp, plan.dp, plan.mbs, plan.recompute, plan.zero) == (8, 2, 2, 1, "full", 1)
    assert (checked.est.gbs, checked.est.model.name, checked.est.model.vocab) == (128, "llama-3-8b", 128256)
    assert any("vocabulary of 128,256 tokens, as of llama-3-8b" in line for line in checked.reading.assumed)
    assert {"--lr", "--tokenizer-model"} <= set(checked.reading.ignored)
    resumed = tc.check(CLUSTER / "pretrain.sh", "dgx-h100", variables={"CHECKPOINT": "/data/run"})
    assert set(resumed.reading.ignored) - set(checked.reading.ignored) == {"--load"}


def test_a_script_of_arrays_with_experts_under_slurm():
    """The model is DeepSeek-V3 (arXiv 2412.19437, section 4.2), 8 stages of four chunks each."""
    checked = tc.check(SCRIPTS / "arrays.sh", "dgx-h100")
    plan = checked.est.plan
    assert checked.reading.form.name == "slurm"
    assert model_facts(checked.est.model) == model_facts(tc.load_model("deepseek-v3"))
    assert (plan.gpus, plan.pp, plan.vp, plan.ep, plan.etp, plan.dp) == (256, 8, 4, 32, 1, 32)
    assert plan.precision == "fp8-block"
    assert plan.recompute == "activation+mla_up_proj+norms"


def test_a_script_of_2021():
    """GPT-3, 96 layers on 8 stages of 6 chunks of 2; checkpointed activations are full recomputation."""
    plan = tc.check(SCRIPTS / "old.sh", "selene").est.plan
    assert (plan.gpus, plan.tp, plan.pp, plan.vp, plan.recompute, plan.zero, plan.precision) == (
        128,
        8,
        8,
        6,
        "full",
        0,
        "fp16",
    )


@pytest.mark.parametrize("to", sorted(FORMATS.keys() - FINE_TUNING))
def test_every_format_is_recognised_and_predicted_as_the_plan_it_came_from(to, tmp_path):
    form = FORMATS[to]
    zero = {"accelerate": 3, "torchtitan": 2, "torchtitan-toml": 2}.get(to, 1)
    est = tc.estimate(
        "llama-3-8b", "dgx-h100", tc.Plan(tp=2, dp=16, zero=zero), gbs=64, assumptions="megatron-core-2025"
    )
    path = tmp_path / f"run{form.ending}"
    path.write_text(tc.export(est, to).text, encoding="utf-8")
    more = {} if form.model else {"model": "llama-3-8b", "gpus": 32, "gbs": 64}
    checked = tc.check(path, "dgx-h100", assumptions="megatron-core-2025", **more)
    assert checked.reading.form.name == to
    assert checked.est.model.name == "llama-3-8b"
    assert checked.est.step_seconds == pytest.approx(est.step_seconds, rel=1e-12)
    assert checked.est.memory_bytes == pytest.approx(est.memory_bytes, rel=1e-12)


def written(folder, plan, gbs=64, model="llama-3-8b", to="megatron"):
    path = folder / f"run{FORMATS[to].ending}"
    path.write_text(tc.export(tc.estimate(model, "dgx-h100", plan, gbs=gbs), to).text, encoding="utf-8")
    return path


def test_changes_are_what_an_estimate_of_the_changed_plan_gives(tmp_path):
    """Every gain is that of the estimate of the changed file."""
    path = written(tmp_path, BAD_PLAN)
    checked = tc.check(path, "dgx-h100")
    assert checked.gap > 0.3
    assert checked.changes
    best = checked.changes[0]
    text = path.read_text(encoding="utf-8")
    for name, old, new in best.settings:
        flag = checked.reading.form.spelled(name)
        given = "" if old is True else f" {old}"
        assert f"    {flag}{given}\n" in text or old is None
        text = text.replace(
            f"    {flag}{given}\n", "" if new is None else f"    {flag}{'' if new is True else f' {new}'}\n"
        )
        text = (
            text if old is not None else text.replace("PARALLELISM=(\n", f"PARALLELISM=(\n    {flag} {new}\n")
        )
    path.write_text(text, encoding="utf-8")
    changed = tc.check(path, "dgx-h100").est
    assert changed.step_seconds == pytest.approx(best.est.step_seconds, rel=1e-12)
    assert best.gain == pytest.approx(1 - changed.step_seconds / checked.est.step_seconds)


@pytest.mark.parametrize(
    ("plan", "written_as", "stated_as"),
    [
        (  # arguments.py of Megatron-LM: at most one of both
            tc.Plan(tp=8, pp=4, dp=2, vp=4, layout=",".join(["2"] * 16)),
            "--num-virtual-stages-per-pipeline-rank 4",
            "--num-layers-per-virtual-pipeline-stage 2",
        ),
        (
            BAD_PLAN,
            "--recompute-granularity full\n    --recompute-method uniform\n    --recompute-num-layers 1",
            "--checkpoint-activations",
        ),
    ],
)
def test_a_setting_that_states_a_changed_knob_in_another_way_is_dropped(
    plan, written_as, stated_as, tmp_path
):
    path = written(tmp_path, plan)
    text = path.read_text(encoding="utf-8")
    assert written_as in text
    path.write_text(text.replace(written_as, stated_as), encoding="utf-8")
    best = {
        setting.setting: (setting.old, setting.new) for setting in tc.check(path, "dgx-h100").best_settings
    }
    name, _, value = stated_as.partition(" ")
    assert best[name] == (value or "on", None)
    for flag in (line.split()[0] for line in written_as.splitlines()):
        assert best.get(flag, (None, None))[0] is None, "what the launch does not set has no value now"


def test_what_a_dropped_flag_stood_for_is_written_in_full(tmp_path):
    """--recompute-activations is short for --recompute-granularity selective (validate_args of arguments.py),
    without which --recompute-modules has no effect."""
    launch = (
        "torchrun pretrain_gpt.py --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --swiglu --bf16 "
        "--num-attention-heads 64 --group-query-attention --num-query-groups 8 --seq-length 8192 "
        "--position-embedding-type rope --normalization RMSNorm --disable-bias-linear --vocab-size 128256 "
        "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --micro-batch-size 1 "
        "--global-batch-size 256 --use-flash-attn --use-distributed-optimizer --recompute-activations"
    )
    (tmp_path / "run.sh").write_text(launch)
    checked = tc.check(tmp_path / "run.sh", "dgx-h100", gpus=128)
    changes = [{name: new for name, _, new in each.settings} for each in checked.changes]
    of_modules = [change for change in changes if "recompute_modules" in change]
    assert of_modules
    for change in of_modules:
        assert (change["recompute_granularity"], change["recompute_activations"]) == ("selective", None)


def test_overlap_of_gradients_is_read_and_advised(tmp_path):
    """Megatron-LM reduces gradients after the last backward pass unless --overlap-grad-reduce is set
    (arguments.py)."""
    path = written(tmp_path, tc.Plan(tp=4, dp=16, recompute="full"), gbs=64)
    text = path.read_text(encoding="utf-8")
    overlapped = tc.check(path, "dgx-h100").est
    path.write_text(text.replace("    --overlap-grad-reduce\n", ""), encoding="utf-8")
    checked = tc.check(path, "dgx-h100")
    assert overlapped.plan.dp_overlap
    assert not checked.est.plan.dp_overlap
    assert checked.est.breakdown["dp_comm"] > overlapped.breakdown["dp_comm"]
    (advised,) = (
        change for change in checked.changes if ("overlap_grad_reduce", None, True) in change.settings
    )
    assert advised.step_seconds == pytest.approx(overlapped.step_seconds, rel=1e-12)


def test_several_changes_are_better_than_one_and_no_better_than_the_best_plan(tmp_path):
    checked = tc.check(written(tmp_path, BAD_PLAN), "dgx-h100")
    single, combination, best = checked.changes[0].est, checked.together.est, checked.found.fastest[1]
    assert (
        best.step_seconds
        <= combination.step_seconds * (1 + 1e-9)
        < single.step_seconds
        < checked.est.step_seconds
    )
    assert combination.fits
    assert all(change.est.fits for change in checked.changes)


@pytest.mark.parametrize(
    ("model", "plan"),
    [
        ("llama-3-8b", BAD_PLAN),
        ("llama-3-8b", tc.Plan(dp=8, recompute="full", offload="optimizer")),
        ("llama-3-70b", tc.Plan(tp=8, pp=4, mbs=2, recompute="full", offload="optimizer")),
    ],
)
def test_the_best_plan_is_no_slower_than_the_launch_and_any_listed_change(model, plan, tmp_path):
    checked = tc.check(written(tmp_path, plan, model=model), "dgx-h100")
    assert checked.est.fits
    listed = [
        checked.est,
        *(change.est for change in checked.changes),
        getattr(checked.together, "est", None),
    ]
    assert checked.best.step_seconds <= min(est.step_seconds for est in listed if est) + 1e-9
    assert checked.found.best is not None
    assert any(plan.offload == other.offload for other, _ in checked.found.pareto())
    wanted = min(0.9, checked.est.fits_probability)
    assert all(change.est.fits_probability >= wanted for change in checked.changes)


def test_the_best_plan_has_nothing_to_change(tmp_path, run):
    path = tmp_path / "run.sh"
    code, out, _ = run(
        "export llama-2-70b --system dgx-h100 --gpus 256 --to megatron --assumptions megatron-core-2025"
    )  # the software that the check states
    path.write_text(out, encoding="utf-8")
    code, out, err = run(f"check {path} --system dgx-h100")
    assert (code, err) == (0, "")
    # plans of one time are ranked by what is simpler: the launch is the first of them, or takes no longer
    assert "none is recommended before it" in out or "none is faster" in out
    assert tc.check(path, "dgx-h100").gap < 0.005, "what fewer virtual stages may cost (VP_WITHIN)"
    assert "is chosen since" not in out


def test_a_launch_faster_than_the_recommended_plan_is_told_why_that_plan_is_chosen(tmp_path, run):
    found = tc.search("llama-2-70b", "dgx-h100", gpus=512, gbs=512, framework="megatron")
    (fastest, est), (_, chosen) = found.fastest, found.recommended
    assert est.fits_probability < 0.9 <= chosen.fits_probability
    path = written(tmp_path, fastest, model="llama-2-70b", gbs=512)
    _, out, _ = run(f"check {path} --system dgx-h100")
    checked = tc.check(path, "dgx-h100")  # which knows the software
    own = checked.est.fits_probability
    surer = checked.found.recommended[1].fits_probability
    odds = f"{probability_text(surer)} probability, this launch with {probability_text(own)}"
    assert f"is chosen since it fits with {odds}" in " ".join(out.split())


def test_a_plan_that_does_not_fit_exits_with_1_and_names_the_nearest_change(tmp_path, run):
    path = written(tmp_path, tc.Plan(dp=8, zero=1), gbs=64)
    code, out, err = run(f"check {path} --system dgx-h100 --json")
    answer = json.loads(out)
    assert code == 1
    assert not answer["estimate"]["fits"]
    assert "would fit with" in err
    assert answer["changes"][0]["memory_bytes"] <= tc.load_system("dgx-h100").accelerator.hbm_bytes


def test_a_setting_to_take_away_is_advised_in_plain_words(tmp_path, run):
    path = written(tmp_path, tc.Plan(tp=2, dp=4, zero=1, attention="unfused"), gbs=128)
    _, _, err = run(f"check {path} --system dgx-h100")
    assert "would fit without --attention-backend unfused" in " ".join(err.split())


def test_a_configuration_that_cannot_say_it_is_completed(tmp_path, run):
    """DeepSpeed's file says neither the model nor what is recomputed."""
    path = tmp_path / "ds.json"
    path.write_text(
        '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 1,'
        ' "zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'
    )
    code, _, err = run(f"check {path} --system dgx-h100")
    assert code == 2
    assert "give --model" in err
    assert "give --gpus" in err
    code, out, err = run(
        f"check {path} --system dgx-h100 --model llama-3-8b --gpus 16 --recompute full --json"
    )
    answer = json.loads(out)
    assert (code, answer["estimate"]["plan"]["recompute"], answer["estimate"]["plan"]["zero"]) == (
        0,
        "full",
        3,
    )
    assert answer["format"] == "deepspeed"
    assert any("pp = 1" in line for line in answer["assumed"])


ACCELERATE = """distributed_type: {}
mixed_precision: bf16
num_machines: 2
num_processes: 16
fsdp_config:
  fsdp_version: {}
"""


@pytest.mark.parametrize(
    ("way", "more", "zero", "replicas"),
    [
        (("FSDP", 2), "", 3, 1),
        (("FSDP", 2), "  fsdp_reshard_after_forward: false\n", 2, 1),
        (("FSDP", 1), "  fsdp_sharding_strategy: SHARD_GRAD_OP\n", 2, 1),
        (("FSDP", 1), "  fsdp_sharding_strategy: HYBRID_SHARD\n", 3, 2),
        (("MULTI_GPU", 1), "", 0, 1),
    ],
)
def test_accelerate_without_degrees_takes_all_processes(way, more, zero, replicas, tmp_path):
    """FullyShardedDataParallelPlugin: FSDP shards over all processes, HYBRID_SHARD within a machine."""
    path = tmp_path / "fsdp.yaml"
    path.write_text(ACCELERATE.format(*way) + more, encoding="utf-8")
    plan = tc.check(path, "dgx-h100", "llama-3-8b", framework="accelerate").est.plan
    assert (plan.gpus, plan.dp, plan.zero, plan.replicas) == (16, 16, zero, replicas)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "parallelism_config:\n  parallelism_config_dp_shard_size: 4\n",
            "gpus = 16: 4 data-parallel replicas with the given degrees need 4",
        ),
        ("  fsdp_sharding_strategy: SOME\n", "must be one of FULL_SHARD"),
    ],
)
def test_accelerate_that_cannot_be(more, message, tmp_path):
    path = tmp_path / "fsdp.yaml"
    path.write_text(ACCELERATE.format("FSDP", 2) + more, encoding="utf-8")
    with pytest.raises(tc.InputError, match=message):
        tc.check(path, "dgx-h100", "llama-3-8b", framework="accelerate")


def test_a_knob_takes_the_place_of_what_follows_from_it(tmp_path):
    """Another number of replicas means other GPUs, and another degree means other replicas."""
    path = written(tmp_path, tc.Plan(tp=8, dp=8))
    more = tc.check(path, "dgx-h100", knobs={"dp": 4}).est.plan
    assert (more.gpus, more.tp, more.dp) == (32, 8, 4)
    less = tc.check(path, "dgx-h100", knobs={"tp": 4}).est.plan
    assert (less.gpus, less.tp, less.dp) == (64, 4, 16)


def test_experts_of_every_other_layer():
    """megatron/core/models/gpt/gpt_layer_specs.py: layers 1, 3, 5, … have experts, four of seven layers."""
    facts = read_moe_layers(Settings(num_layers="8", num_experts="4", moe_layer_freq="2"))
    assert len(facts["moe_layers"]) == 4
    with pytest.raises(tc.InputError, match="does not divide 7 layers"):
        read_moe_layers(Settings(num_layers="7", num_experts="4", moe_layer_freq="2"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("hello world", "cannot tell what this is"),
        ("--num-layers x --hidden-size 4096 --tensor-model-parallel-size $TP",
         ("--num-layers = 'x'", "not set in the file")),
        ("torchrun --nnodes 1 --nproc-per-node 8 x.py --num-layers 8 --hidden-size 512", ("heads: missing",)),
        ("torchrun --nnodes 3 --nproc-per-node 1 x.py --num-layers 8 --hidden-size 512 "
         "--num-attention-heads 8 --seq-length 512 --vocab-size 512 --tensor-model-parallel-size 2",
         "must be divisible by tp 2"),
        ("[training]\nseq_len = \n[parallelism]\n", "malformed TOML"),
        ('{"train_batch_size": 1, "train_batch_size": 2}', "duplicate key"),
        ("parallelism:\n  tp: [\n", "malformed YAML"),
        ("ParallelismConfig(", "malformed Python"),
    ],
)  # fmt: skip
def test_all_unreadable_settings_are_reported_at_once(text, message, tmp_path, run):
    path = tmp_path / "file"
    path.write_text(text)
    framework = {
        "[tr": " --framework torchtitan-toml",
        "{": " --framework deepspeed",
        "par": " --framework nanotron",
    }
    chosen = next((more for start, more in framework.items() if text.startswith(start)), "")
    chosen = " --framework torchtitan" if text.startswith("Par") else chosen
    code, _, err = run(f"check {path} --system dgx-h100{chosen}")
    assert code == 2
    for part in (message,) if isinstance(message, str) else message:
        assert part in err


WORDS = st.sampled_from(
    ["--num-layers", "--hidden-size 64", "=", "$(", "${", "}", "$TP", "TP=8", "A=(", ")", "'", '"', "\\",
     "\n", " ", "#", "--bf16",
     "--moe-layer-freq", "([0]*3+[1]*9999)*9999", "--pipeline-model-parallel-layout", "((t|)*9999)*9999",
     "[parallelism]\n",
     "tp: 8", "{",
     "parallelism:\n", "ParallelismConfig(", "--num-experts 8", "$((", "1/0", "))", "9" * 30, "\x00", "é",
     "#SBATCH --nodes=2\n",
     "model.num_layers=4", "train_batch_size", ":", ",", "null", "-1", "--nnodes 2", "--nproc-per-node 8"]
)  # fmt: skip


@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(WORDS, max_size=25), form=st.sampled_from([None, *FORMATS]))
def test_no_input_causes_a_traceback(parts, form, tmp_path):
    path = tmp_path / "file"
    path.write_text("".join(parts), encoding="utf-8")
    with contextlib.suppress(tc.TraincastError):  # clear messages are fine; anything else is not
        tc.check(path, "dgx-h100", gpus=8, framework=form)


def test_arguments_of_several_values_and_signs():
    arguments = settings_of(
        "x --split 99,1,0 --recompute-modules mlp moe --eval-iters -1 --a=b --flag pretrain.py --last"
    )
    assert arguments["recompute_modules"] == ("mlp", "moe")
    assert (arguments["eval_iters"], arguments["a"], arguments["flag"], arguments["last"]) == (
        "-1",
        "b",
        True,
        True,
    )


def test_a_script_of_branches_and_comments():
    """A comment is not read, even if it ends in a backslash; a string may hold an argument and its value."""
    checked = tc.check(SCRIPTS / "branches.sh", "dgx-h100")
    plan = checked.est.plan
    assert (plan.gpus, plan.tp, plan.pp, plan.sp, plan.zero) == (16, 2, 1, True, 1)
    assert (plan.precision, plan.grad_dtype, checked.est.model.name, checked.est.gbs) == (
        "fp8",
        "16-bit",
        "llama-3-8b",
        64,
    )
    assert checked.reading.settings["split"] == "99,1,0"


def test_the_deepspeed_configuration_beside_a_script_is_read(tmp_path):
    """The launcher's processes are --num_nodes times --num_gpus (deepspeed/launcher/runner.py)."""
    script = tmp_path / "run.sh"
    command = "deepspeed --num_nodes 2 --num_gpus 8 train.py --deepspeed --bf16"
    script.write_text(f"#!/bin/bash\n{command} --deepspeed_config ds.json\n", encoding="utf-8")
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-8")
    plan = tc.check(script, "dgx-h100", model="llama-3-8b").est.plan
    assert (plan.dp, plan.zero) == (16, 3)
    (tmp_path / "ds.json").unlink()
    with pytest.raises(InputError, match="deepspeed-config = ds\\.json: not read"):
        tc.check(script, "dgx-h100", model="llama-3-8b")


def test_conditions_are_decided_where_the_script_tells_and_asked_for_else():
    """The default of the first parameter decides a `case`; DEBUG is not set, and changes the micro-batch."""
    with pytest.raises(
        tc.InputError, match=r"--micro-batch-size: under a condition on DEBUG, .*--set DEBUG="
    ):
        tc.check(SCRIPTS / "sizes.sh", "dgx-h100")
    checked = tc.check(SCRIPTS / "sizes.sh", "dgx-h100", variables={"DEBUG": "0"})
    assert (checked.est.model.layers, checked.est.plan.tp, checked.est.plan.mbs) == (32, 1, 2)
    given = tc.check(SCRIPTS / "sizes.sh", "dgx-h100", variables={"1": "70B", "DEBUG": "1"})
    assert (given.est.model.layers, given.est.plan.tp, given.est.plan.mbs) == (80, 8, 1)


def test_a_launch_with_a_measured_step_is_compared_with_what_is_expected(run):
    """A step of half the predicted MFU is twice as long."""
    line = f"check {CLUSTER / 'pretrain.sh'} --system dgx-h100"
    code, out, _ = run(f"{line} --json")
    predicted = json.loads(out)
    assert (code, predicted["measured"]) == (0, None)
    step = predicted["estimate"]["step_seconds"]
    code, out, err = run(f"{line} --step-seconds {2 * step} --json")
    measured = json.loads(out)["measured"]
    assert code == 0, err
    assert measured["longer_than_predicted"] == pytest.approx(1)
    assert measured["chance"] < 0.01
    assert measured["within_interval"] is False
    assert measured["causes"][0]["factor"] == pytest.approx(2)
    code, out, err = run(f"{line} --mfu {measured['mfu']}")
    assert code == 0, err
    for words in ("100.0% slower than the", "hardly by chance", "What alone would make it as slow"):
        assert words in " ".join(out.split()), out


def test_a_measured_step_of_a_launch_that_cannot_be_is_refused_before_the_search(run):
    line = f"check {CLUSTER / 'pretrain.sh'} --system dgx-h100"
    for option, words in {
        "--mfu 45": "was 45% meant?",
        "--mfu 0.3 --step-seconds 9": "step_seconds and mfu: give one of them",
        "--step-seconds 0.1": "one of 64 micro-batches?",
    }.items():
        code, out, err = run(f"{line} {option}")
        assert (code, out) == (2, ""), err
        assert words in err, err
