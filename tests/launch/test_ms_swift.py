"""ms-swift's commands and files, on the Trainer and on Megatron-Core.

Defaults are those of ms-swift 4.6.0: swift/trainers/arguments.py (batch 1, accumulation steps that make 16
sequences), swift/arguments/tuner_args.py (LoRA of rank 8 on all linear layers, dropout 0.05), swift/config
(its DeepSpeed and FSDP2 files) and swift/megatron/arguments/megatron_args.py. Launches are written for these
tests in the shape of its examples.
"""

import pytest

import traincast as tc
from traincast.launch.formats import READERS
from traincast.launch.reader import read

SFT = "swift sft --model Qwen/Qwen2.5-7B-Instruct --dataset d --max_length 2048"
MEGATRON = "megatron sft --model Qwen/Qwen3-30B-A3B --dataset d --max_length 8192"


@pytest.fixture
def launch(tmp_path):
    """Function that writes a file and returns its path."""

    def write(text, name="run.sh"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def reading(path):
    return read(path, READERS)


def checked(path, **options):
    return tc.check(path, "dgx-h100", **options)


def refusal(path, **options):
    with pytest.raises(tc.InputError) as error:
        checked(path, **options)
    return "; ".join(error.value.problems)


def test_defaults(launch):
    """LoRA, recomputation, and 16 sequences of a step of four processes: four micro-batches of one."""
    result = checked(launch(f"NPROC_PER_NODE=4 {SFT}\n"))
    adapters = result.est.model.adapters
    assert (adapters.rank, adapters.dropout, adapters.base) == (8, True, "16-bit")
    assert (result.est.plan.dp, result.est.plan.mbs, result.est.gbs) == (4, 1, 16)
    assert result.est.plan.recompute == "full"
    assert any("that make a step of 16 sequences" in note for note in result.reading.assumed)


@pytest.mark.parametrize(("processes", "rows", "expected"), [(8, 1, 16), (8, 4, 32), (3, 2, 18), (8, 3, 24)])
def test_accumulation_makes_sixteen_sequences(processes, rows, expected, launch):
    """max(1, ceil(16 / rows / processes)) micro-batches (trainers/arguments.py)."""
    text = f"NPROC_PER_NODE={processes} {SFT} --tuner_type full --per_device_train_batch_size {rows}\n"
    assert checked(launch(text)).est.gbs == expected


@pytest.mark.parametrize(
    ("option", "zero", "offload"),
    [
        ("--deepspeed zero1", 1, "none"),
        ("--deepspeed zero2", 2, "none"),
        ("--deepspeed zero3", 3, "none"),
        ("--deepspeed zero3_offload", 3, "optimizer+weights"),
        ("--fsdp fsdp2", 3, "none"),
        ("", 0, "none"),
    ],
)
def test_configurations_that_come_with_it(option, zero, offload, launch):
    facts = reading(launch(f"NPROC_PER_NODE=8 {SFT} --tuner_type full {option}\n")).facts
    assert (facts["zero"], facts.get("offload", "none")) == (zero, offload)


@pytest.mark.parametrize(
    ("model", "kind", "heads"),
    [
        ("Qwen/Qwen3-8B", "ulysses", None),
        ("Qwen/Qwen2.5-7B", "hybrid", 4),
        ("Qwen/Qwen2.5-0.5B", "hybrid", 2),
    ],
)
def test_sequence_parallelism_exchanges_heads_first(model, kind, heads, launch):
    """As many ranks as divide 8, 4 and 2 key and value heads, and a ring over the others."""
    options = "--max_length 8192 --sequence_parallel_size 8 --packing true"
    text = f"NPROC_PER_NODE=8 swift sft --model {model} {options}"
    facts = reading(launch(f"{text} --gradient_accumulation_steps 2\n")).facts
    assert (facts["cp"], facts["cp_kind"], facts.get("ulysses")) == (8, kind, heads)


def test_a_file_and_its_environment(launch):
    launch("model: Qwen/Qwen3-8B\ntuner_type: full\nmax_length: 4096\nENV:\n  NPROC_PER_NODE: 8\n", "a.yaml")
    of_file = checked(launch("swift sft a.yaml --per_device_train_batch_size 4\n")).est
    assert (of_file.plan.dp, of_file.plan.mbs, of_file.model.seq) == (8, 4, 4096)


def test_a_preset_of_fsdp_replaces_what_stands_beside_it(launch):
    """sft_args.py, _init_fsdp: weights are resharded although the file says that they are not."""
    text = "model: Qwen/Qwen3-8B\ntuner_type: full\nmax_length: 4096\nfsdp: fsdp2\nfsdp_config:\n"
    path = launch(f"{text}  reshard_after_forward: false\nENV:\n  NPROC_PER_NODE: 8\n", "run.yaml")
    assert (reading(path).format, reading(path).facts["zero"]) == ("ms-swift", 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"CUDA_VISIBLE_DEVICES=0,1 {SFT}\n", "one process splits the layers"),
        (f"NPROC_PER_NODE=8 {SFT} --deepspeed $CONFIG\n", "deepspeed = '$CONFIG'"),
        (f"NPROC_PER_NODE=8 {SFT} --tuner_type adalora\n", "only some weights are trained"),
        (f"NPROC_PER_NODE=8 {SFT} --quant_method hqq --quant_bits 4\n", "packed in another way"),
        ("NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model Qwen/Qwen3-8B\n", "reinforcement learning"),
        ("NPROC_PER_NODE=8 swift sft --model Qwen/Qwen3-8B\n", "sequence length"),
        (f"NPROC_PER_NODE=8 {MEGATRON} --tuner_type lora --lora_dtype bfloat16\n", "another precision"),
        (
            f"NPROC_PER_NODE=8 {MEGATRON} --freeze_vit false\n",
            "freeze_vit = false: not read (the tower of images is trained",
        ),
        (
            "NPROC_PER_NODE=8 megatron rlhf --rlhf_type dpo --model Qwen/Qwen3-8B --max_length 8192\n",
            "reference",
        ),
    ],
)
def test_refused_by_name(text, words, launch):
    assert words in refusal(launch(text))


def test_pairs_of_answers(launch):
    """Two sequences of each pair; the reference model is held, as all weights are trained."""
    text = "NPROC_PER_NODE=8 swift rlhf --rlhf_type dpo --model Qwen/Qwen3-8B --tuner_type full"
    facts = reading(launch(f"{text} --max_length 2048 --deepspeed zero3\n")).facts
    assert (facts["mbs"], facts["reference"]) == (2, True)


def test_on_megatron_core(launch):
    """Defaults that differ from Megatron-LM's: all-to-all, a distributed optimizer, attention recomputed."""
    result = checked(launch(f"NPROC_PER_NODE=8 {MEGATRON} --expert_model_parallel_size 4\n"))
    plan = result.est.plan
    assert (plan.ep, plan.etp, plan.dp, plan.zero, plan.recompute) == (4, 1, 8, 1, "attention")
    assert (result.est.gbs, plan.mbs, plan.grad_dtype, plan.dp_overlap) == (16, 1, "fp32", False)
    assert result.reading.format == "ms-swift-megatron"
    assert any("moe_token_dispatcher_type alltoall" in note for note in result.reading.assumed)
    again = checked(
        launch(
            f"NPROC_PER_NODE=8 {MEGATRON} --expert_model_parallel_size 4 --moe_token_dispatcher_type alltoall"
            " --moe_grouped_gemm true --recompute_granularity selective --micro_batch_size 1"
            " --global_batch_size 16 --use_distributed_optimizer true --attention_backend flash\n"
        )
    )
    assert float(again.est.step_seconds) == float(result.est.step_seconds)


def test_a_frozen_tower_is_the_default(launch):
    """megatron_args.py: freeze_vit and freeze_aligner are True; many examples say so of models of text."""
    text = f"NPROC_PER_NODE=8 {MEGATRON} --expert_model_parallel_size 4"
    written = reading(launch(f"{text} --freeze_llm false --freeze_vit true --freeze_aligner true\n"))
    written.check_unread()
    assert written.facts == reading(launch(f"{text}\n")).facts


def test_adapters_on_megatron_core(launch):
    text = f"NPROC_PER_NODE=8 {MEGATRON} --tuner_type lora --lora_rank 16 --expert_model_parallel_size 8\n"
    adapters = checked(launch(text)).est.model.adapters
    assert (adapters.rank, adapters.experts, adapters.dropout) == (16, "each", True)


def test_a_command_of_the_module_by_a_launcher(launch):
    """Sequence parallelism is a bare switch there, and the checkpoint one of Megatron-Core."""
    text = (
        "python3 -m torch.distributed.run --nproc_per_node=8 --nnodes=2 /opt/swift/cli/_megatron/sft.py"
        " --load Qwen3-30B-A3B-Base-mcore --tensor_model_parallel_size 2 --expert_model_parallel_size 8"
        " --max_length 4096 --packing true --sequence_parallel\n"
    )
    est = checked(launch(text)).est
    assert (est.model.name, est.plan.tp, est.plan.sp, est.plan.dp) == ("qwen3-30b-a3b", 2, True, 8)


def test_steps_by_expr(launch):
    """As its examples write the accumulation steps."""
    text = f"nproc_per_node=4\nNPROC_PER_NODE=$nproc_per_node {SFT}"
    path = launch(f"{text} --gradient_accumulation_steps $(expr 32 / $nproc_per_node / 2)\n")
    assert checked(path).est.gbs == 16
