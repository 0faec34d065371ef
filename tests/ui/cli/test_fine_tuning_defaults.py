"""Fine-tuning without a framework, batch or length means what people run: transformers and TRL.

TRL 1.16.0: trainer/sft_config.py and trainer/dpo_config.py have max_length 1024, trainer/base_config.py
gradient_checkpointing True. transformers 5.23.0: per_device_train_batch_size 8, on eight accelerators 64.
"""

import json

import pytest

import traincast as tc
from traincast.model.adapters import parse_training
from traincast.planner.studies.results import read_results

OURS = "plan llama-3-8b --system dgx-h100 --gpus 8 --top 2 --json"


def asked(run, command):
    code, out, err = run(command)
    assert code == 0, err
    return json.loads(out)


@pytest.mark.parametrize("train", ["lora:r=16", "qlora", "sft", "dpo", "dpo+lora"])
def test_fine_tuning_means_transformers_with_its_batch_length_and_checkpointing(train, run):
    answer = asked(run, f"{OURS} --train {train}")
    figures = {name: answer[name] for name in ("framework", "assumptions", "global_batch", "seq")}
    assert figures == {
        "framework": "huggingface", "assumptions": "huggingface-eager", "global_batch": 64, "seq": 1024
    }  # fmt: skip
    assert {plan["plan"]["recompute"] for plan in answer["plans"]} == {"full"}
    assert {plan["plan"]["pp"] for plan in answer["plans"]} == {1}
    assert answer["taken"] == [
        "assumed for fine-tuning: 64 sequences a step, 1,024 tokens a sequence (max_length of TRL 1.16)"
    ]


def test_what_is_assumed_is_said_and_what_is_given_is_not(run):
    said = " ".join(run("plan llama-3-8b --system dgx-h100 --gpus 8 --lora 16").out.split())
    assert "assumed: gradient checkpointing on, as TRL 1.16 has it (--recompute)" in said
    assert "assumed for fine-tuning: 64 sequences a step, 1,024 tokens" in said
    given = run("plan llama-3-8b --system dgx-h100 --gpus 8 --lora 16 --recompute full").out
    assert "gradient checkpointing" not in given


def test_training_of_all_weights_keeps_the_usual_framework_and_batch(run):
    answer = asked(run, f"{OURS} --train full")
    assert (answer["framework"], answer["seq"], answer["taken"]) == ("megatron", 8192, [])
    assert answer["global_batch"] * answer["seq"] == 4 * 2**20


def test_what_is_given_is_not_assumed(run):
    answer = asked(run, f"{OURS} --lora 16 --global-batch 16 --seq 2048 --recompute none")
    assert (answer["global_batch"], answer["seq"], answer["taken"]) == (16, 2048, [])
    assert {plan["plan"]["recompute"] for plan in answer["plans"]} == {"none"}


def test_a_named_framework_keeps_its_own_choices(run):
    answer = asked(run, f"{OURS} --lora 16 --framework megatron")
    assert (answer["framework"], answer["seq"]) == ("megatron", 1024)


def test_a_pipeline_of_adapters_is_megatrons(run):
    answer = asked(run, f"{OURS} --lora 16 --pp 2")
    assert answer["framework"] == "megatron"


def test_the_step_of_a_70b_is_of_seconds(run):
    """Of 64 × 1,024 tokens on 8 A100: 4 N FLOP a token and 2 N recomputed, at 10 to 90 % of the peak."""
    answer = asked(run, "plan llama-3-70b --system dgx-a100 --gpus 8 --train lora:r=16 --json")
    seconds = answer["plans"][0]["step_seconds"]
    least = 64 * 1024 * 6 * 70.55e9 / (8 * 312e12)
    assert least / 0.9 < seconds < least / 0.1
    plan = answer["plans"][0]["plan"]
    assert (plan["tp"], plan["zero"], plan["recompute"]) == (1, 3, "full")  # FSDP


def test_pairs_of_dpo_are_counted_and_stay_together(run):
    """DataCollatorForPreference of TRL puts both answers of a pair into one batch: an even micro-batch."""
    code, out, _ = run("plan llama-3-8b --system dgx-h100 --gpus 8 --dpo --all")
    said = " ".join(out.split())
    assert code == 0
    assert "64 sequences of 1,024 tokens (65.54 k tokens): 32 pairs, each of a chosen and a rejected" in said
    found = tc.search(
        tc.load_model("llama-3-8b", seq=1024).fine_tuned("dpo", None, None), "dgx-h100", gpus=8, top=50
    )
    assert found.gbs == 64
    assert {plan.mbs % 2 for plan, _ in found.plans} == {0}
    locked = run("plan llama-3-8b --system dgx-h100 --gpus 8 --dpo --mbs 1")
    assert locked.code == 1
    assert "mbs must be even" in " ".join((locked.out + locked.err).split())


def test_a_plan_by_hand_checkpoints_as_trl_does(run):
    answer = asked(run, "estimate llama-3-8b --system dgx-h100 --dp 8 --train lora --json")
    assert answer["estimate"]["plan"]["recompute"] == "full"
    _, _, err = run("estimate llama-3-8b --system dgx-h100 --dp 8 --train lora")
    assert "recompute = full, the default of huggingface" in " ".join(err.split())
    none = asked(run, "estimate llama-3-8b --system dgx-h100 --dp 8 --train lora --recompute none --json")
    assert none["estimate"]["plan"]["recompute"] == "none"


SEVENTY = "llama-3-70b --system a100-80gb --gpus 8 --lora 16"


@pytest.mark.parametrize("command", ["memory", "estimate"])
@pytest.mark.parametrize("framework", ["", "--framework trl"])
def test_without_a_plan_a_fine_tuned_model_is_sharded(command, framework, run):
    """141 GB of frozen weights in 16 bits are 17.6 GB on each of eight GPUs, where DDP has all on each."""
    code, out, err = run(f"{command} {SEVENTY} {framework}")
    assert code == 0, err
    said = " ".join(out.split())
    assert "assumed for fine-tuning:" in said
    assert "FSDP (ZeRO-3) as no plan is given (--zero; 0 is DDP)" in said
    assert "zero = 3" not in err  # said once
    answer = asked(run, f"{command} {SEVENTY} {framework} --json")
    recommended = asked(run, f"plan {SEVENTY} --json --top 1")["plans"][0]["plan"]
    assert (answer["estimate"]["plan"]["zero"], recommended["zero"]) == (3, 3)


@pytest.mark.parametrize(
    ("options", "zero"),
    [
        ("--gpus 8", 3),
        ("--dp 8", 3),  # the GPUs, and no plan
        ("--gpus 8 --ddp", 0),
        ("--gpus 8 --zero 2", 2),
        ("--gpus 8 --tp 2", 1),
        ("--gpus 8 --tp 2 --framework trl", 0),  # DDP: TrainingArguments without fsdp and deepspeed
        ("--gpus 1", 1),
    ],
)
def test_a_plan_that_is_given_keeps_its_sharding(options, zero, run):
    answer = asked(run, f"estimate llama-3-8b --system a100-80gb --lora 16 {options} --json")
    assert answer["estimate"]["plan"].get("zero", 1) == zero
    assert any("FSDP" in line for line in answer["taken"]) == (zero == 3)


def test_training_of_all_weights_is_not_sharded_unasked(run):
    answer = asked(run, "estimate llama-3-8b --system a100-80gb --gpus 8 --tp 8 --json")
    assert answer["estimate"]["plan"].get("zero", 1) == 1
    code, _, err = run("memory llama-3-70b --system a100-80gb --gpus 8")
    assert (code, "does not fit" in err) == (1, True)


def test_inference_of_an_adapter_has_its_frozen_weights(run):
    """70.55 G weights in 16 bits, and 207 M of adapters with a master copy in 32."""
    model = tc.load_model("llama-3-70b")
    adapters = model.with_adapters(parse_training("lora:r=16")).trained_parameters
    _, out, _ = run("memory llama-3-70b --system dgx-a100 --dp 8 --zero 3 --train lora:r=16")
    said = " ".join(out.split())
    assert "141.1 GB of frozen weights" in said
    assert f"inference: {(2 * model.parameters + 6 * adapters) / 1e9:.1f} GB" in said


def test_a_launch_of_fine_tuning_is_trls(tmp_path, run):
    """It is read back with the same step; of training of all weights it stays Megatron's."""
    file = tmp_path / "sft.yaml"
    command = f"export llama-3-8b --system dgx-h100 --gpus 8 --lora 16 --output {file} --json"
    written = asked(run, command)
    assert "gradient_checkpointing: true" in file.read_text(encoding="utf-8")
    read = asked(run, f"check {file} --system dgx-h100 --gpus 8 --model llama-3-8b --json")
    seconds = [answer["estimate"]["step_seconds"] for answer in (written, read)]
    assert seconds[1] == pytest.approx(seconds[0], rel=1e-6)
    assert "pretrain_gpt.py" in run("export llama-3-8b --system dgx-h100 --gpus 8").out


def test_a_study_takes_the_same_defaults(tmp_path, run):
    file = tmp_path / "lora.yaml"
    file.write_text("models: llama-3-8b\nsystems: dgx-h100\ngpus: 8\ntrain: lora:r=16\n")
    assert run(f"study {file} --output {tmp_path / 'lora.json'}").code == 0
    (row,) = read_results(tmp_path / "lora.json").to_polars().to_dicts()
    plan = asked(run, f"{OURS} --train lora:r=16")["plans"][0]
    assert row["gbs"] == 64
    assert row["step_seconds"] == pytest.approx(
        plan["step_seconds"], rel=0.03
    )  # the fastest, the recommended
