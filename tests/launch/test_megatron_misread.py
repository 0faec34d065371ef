"""Settings of Megatron-LM's scripts that were taken for something else, or for nothing."""

import re

import pytest

import traincast as tc
from traincast.launch.formats import READERS
from traincast.launch.frameworks.megatron import OLD_STACKS
from traincast.launch.reader import read

SIZES = "--hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096"
MODEL = f"""torchrun --nnodes 4 --nproc-per-node 8 pretrain_gpt.py --num-layers 32 {SIZES} \\
    --vocab-size 128256 --micro-batch-size 1"""
GPT = f"{MODEL} --bf16 --global-batch-size 256"
HYBRID = f"""torchrun --nnodes 4 --nproc-per-node 8 pretrain_mamba.py {SIZES} --vocab-size 131072 --bf16 \\
    --micro-batch-size 1 --global-batch-size 256 --pipeline-model-parallel-size 4 --hybrid-layer-pattern """


def read_script(tmp_path, text):
    (path := tmp_path / "run.sh").write_text(text, encoding="utf-8")
    return read(path, READERS)


def checked(tmp_path, text, **further):
    (path := tmp_path / "run.sh").write_text(text, encoding="utf-8")
    return tc.check(path, "dgx-h100", **further)


# The batch


def test_a_batch_schedule_is_not_misread_as_no_batch(tmp_path):
    """megatron/core/num_microbatches_calculator.py: from the last threshold on, the last step's batch."""
    reading = read_script(tmp_path, f'{MODEL} --bf16 --step-batch-size-schedule "0:768 250B:1536 0.5T:3072"')
    assert reading.facts["gbs"] == 3072
    said = "global batch 3072, the last of --step-batch-size-schedule; before it 768 and 1536"
    assert said in reading.assumed


@pytest.mark.parametrize("schedule", ["0:64", "0:16,2.4B:64"])
def test_steps_of_a_schedule_are_separated_by_blanks_or_commas(tmp_path, schedule):
    assert read_script(tmp_path, f"{MODEL} --step-batch-size-schedule '{schedule}'").facts["gbs"] == 64


@pytest.mark.parametrize("schedule", ["64", "0:x", "0:64 then:128", "0:0"])
def test_what_is_no_schedule_is_refused(tmp_path, schedule):
    with pytest.raises(tc.InputError, match=r"--step-batch-size-schedule = "):
        read_script(tmp_path, f"{MODEL} --step-batch-size-schedule '{schedule}'")


def test_a_schedule_and_a_batch_must_agree(tmp_path):
    """megatron/training/arguments.py of 0.19.2 refuses both together; some scripts have both."""
    both = f'{MODEL} --step-batch-size-schedule "0:16 12B:1536" --global-batch-size '
    reading = read_script(tmp_path, f"{both} 1536")
    assert reading.facts["gbs"] == 1536
    assert "Megatron-LM takes either --step-batch-size-schedule or --global-batch-size" in reading.assumed
    with pytest.raises(tc.InputError, match=r"--global-batch-size = 768: the last step .* has 1536"):
        read_script(tmp_path, f"{both} 768")


# Stages of hybrids


@pytest.mark.parametrize(
    ("pattern", "chunks", "vp"),
    [  # megatron/core/models/hybrid/hybrid_layer_allocation.py, select_pipeline_segment
        ("M-M-M*-|M-M-M*-|M-M-M*-|M-M-M*-", (7, 7, 7, 7), 1),
        ("M-M-M*-M-M-M*-M-M-M*-M-M-M*-", (7, 7, 7, 7), 1),  # without | the stages are even
        ("M-|M-M*-M-M-|M*-M-M-M*-|M-M-M*-", (2, 9, 10, 7), 1),
        ("M-M|-M*|-M-M|-M*|-M-|M-M*-|M-M|-M*-", (3, 3, 4, 3, 3, 5, 3, 4), 2),
    ],
)
def test_stages_of_a_hybrid_are_not_misread(tmp_path, pattern, chunks, vp):
    facts = read_script(tmp_path, f'{HYBRID} "{pattern}"').facts
    assert (facts["chunks"], facts["vp"], facts["layers"]) == (chunks, vp, sum(chunks))


def test_the_largest_stage_of_a_hybrid_sets_the_pace(tmp_path):
    """A stage of 20 layers instead of 7, all of the same kind."""
    even, uneven = (
        checked(tmp_path, f'{HYBRID} "{"|".join("M" * layers for layers in stages)}"').est
        for stages in ((7, 7, 7, 7), (3, 20, 3, 2))
    )
    assert uneven.plan.layout == "3,20,3,2"
    assert uneven.step_seconds > 1.5 * even.step_seconds


@pytest.mark.parametrize(
    ("pattern", "further", "said"),
    [
        ("M-|M-|M*", "", "has 3 stages, not a multiple of pp = 4"),
        (
            "M-|M-|M*|M-",
            "--decoder-first-pipeline-num-layers 1",
            "--decoder-first-pipeline-num-layers = 1: the |",
        ),
        ("X-|M-|M*|Y-", "", "layers XY are not supported; known: M, G, *, +, D, -, E"),
        ("M-|M-|M*|M-/M-/M*", "", "all prediction heads, behind /, must have the same layers"),
        ("M-|+-|M*|M-", "", "attention (*) and latent attention (+, D) in one model"),
        ("M-|D-|M-|M-", "", "--dsa-indexer-topk = none: sparse attention needs it"),
    ],
)
def test_patterns_that_do_not_run_or_are_not_known_are_refused(tmp_path, pattern, further, said):
    """megatron/training/arguments.py: what splits layers over stages besides | is refused."""
    with pytest.raises(tc.InputError, match=re.escape(said)):
        read_script(tmp_path, f'{HYBRID} "{pattern}" {further}')


LATENT_WIDTHS = "--kv-lora-rank 512 --q-lora-rank 1536 --dsa-indexer-n-heads 64 --dsa-indexer-head-dim 128"


@pytest.mark.parametrize(
    ("pattern", "further", "expected"),
    [  # megatron/core/models/hybrid/hybrid_layer_allocation.py of 0.19.2, Symbols
        (
            "G-|G-|G*|G-",
            "--linear-num-key-heads 8",
            {"layer_kinds": ("gated_delta only", "dense only") * 2 + (
                "gated_delta only", "attention only", "gated_delta only", "dense only",
            ), "gated_delta.key_heads": 8, "gated_delta.value_heads": 32},
        ),
        (
            "M+|M-|D-|M-",
            f"{LATENT_WIDTHS} --dsa-indexer-topk 2048",
            {"latent.kv_rank": 512, "latent.q_rank": 1536, "indexer.heads": 64, "indexer.topk": 2048},
        ),
        ("M-|M-|M*|M-/M*/M*", "", {"layers": 8, "mtp": 2, "mtp_kinds": ("mamba2 only", "attention only")}),
        (
            "M-|M-|M*|M-",
            "--mtp-hybrid-override-pattern M- --mtp-num-layers 1",
            {"mtp": 1, "mtp_kinds": ("mamba2 only", "dense only")},
        ),
    ],
)  # fmt: skip
def test_every_letter_of_a_hybrid_is_read(tmp_path, pattern, further, expected):
    facts = read_script(tmp_path, f'{HYBRID} "{pattern}" {further}').facts
    assert {name: facts.get(name) for name in expected} == expected
    assert "mamba2.heads" in facts or "M" not in pattern


def test_prediction_heads_of_a_hybrid_have_the_weights_of_all_their_layers(tmp_path):
    """Counted by hand: a module joins 2 × 4096 numbers, has three norms, and the layers behind /."""
    plain, two = (
        checked(tmp_path, f'{HYBRID} "M-|M-|M*|M-{heads}" --swiglu --normalization RMSNorm').est.model
        for heads in ("", "/M*/M*")
    )
    layers = {str(kind): plain.kind_parameters(kind) for kind in plain.kinds}
    module = 2 * 4096**2 + 3 * 4096 + layers["mamba2 only"] + layers["attention only"]
    assert two.mtp_parameters == 2 * module
    assert plain.mtp_parameters == 0


def test_sparse_attention_in_every_layer_is_read(tmp_path):
    """--experimental-attention-variant dsa: latent attention with an indexer (transformer_config.py)."""
    text = f"{GPT} --multi-latent-attention --experimental-attention-variant dsa {LATENT_WIDTHS}"
    facts = read_script(tmp_path, f"{text} --dsa-indexer-topk 2048").facts
    assert facts["layer_kinds"] == ("indexed dense",) * 32
    assert (facts["indexer.head_dim"], facts["indexer.topk"]) == (128, 2048)
    with pytest.raises(tc.InputError, match="--dsa-indexer-topk = none: sparse attention needs it"):
        read_script(tmp_path, text)


# The vocabulary


@pytest.mark.parametrize(
    ("further", "padded"),
    [  # megatron/training/vocab_utils.py: to a multiple of the divisor times tp; 128,256 tokens
        ("", 128_512),  # 251 · 128 · 4
        ("--make-vocab-size-divisible-by 128", 128_512),
        ("--make-vocab-size-divisible-by 4096", 131_072),
        ("--make-vocab-size-divisible-by 1", 128_256),
        ("--padded-vocab-size 130000", 130_000),
    ],
)
def test_the_padding_of_the_vocabulary_is_not_misread(tmp_path, further, padded):
    """The weights of the head in 16 bits, on one of four tensor ranks."""
    text = f"{GPT} --untie-embeddings-and-output-weights --tensor-model-parallel-size 4 {further}"
    text = text.replace("--vocab-size 128256", "") if "padded" in further else text
    rows = checked(tmp_path, text).est.operations()
    projection = next(row for row in rows if row["operation"] == "head.projection")
    assert projection["weight_bytes"] == 2 * padded // 4 * 4096


# Shell


@pytest.mark.parametrize("word", ["${EXTRA[@]}", '"${EXTRA[@]}"', '"${EXTRA[*]}"', "${EXTRA[*]}"])
def test_an_array_that_is_not_set_is_not_misread_as_a_value(tmp_path, word):
    """bash -c 'set -- --a "${X[@]}" --b; echo $#' prints 2: arrays are not in the environment."""
    reading = read_script(tmp_path, f"{MODEL} --global-batch-size 64 --bf16 {word} --swiglu {word}")
    assert reading.settings["bf16"] is True
    assert reading.settings["swiglu"] is True
    assert reading.facts["gbs"] == 64


def test_an_array_of_unknown_content_is_not_taken_for_an_empty_one(tmp_path):
    text = f"mapfile -t MORE < options\n{GPT} --tensor-model-parallel-size 2 ${{MORE[@]}}"
    assert read_script(tmp_path, text).facts["tp"] == 2
    text = f"mapfile -t MORE < options\nsource config.sh\n{GPT} ${{MORE[@]}}"
    with pytest.raises(tc.InputError, match=r"source = config\.sh: not read"):
        checked(tmp_path, text)


@pytest.mark.parametrize(
    ("file", "argument"),
    [("config.sh", "${PRECISION}"), ("config.sh", '"${PRECISION[@]}"'), ("env.sh", "${PRECISION[@]}")],
)
def test_a_sourced_file_that_is_missing_is_not_misread_as_nothing(tmp_path, file, argument):
    text = f"source ./{file}\n{MODEL} --global-batch-size 64 --swiglu {argument}"
    with pytest.raises(tc.InputError, match=rf"source = \./{file}: not read"):
        checked(tmp_path, text)
    (tmp_path / file).write_text("PRECISION=(--bf16)\n", encoding="utf-8")
    assert checked(tmp_path, text).est.plan.precision == "bf16"


@pytest.mark.parametrize("further", ["--data-path $DATA", "--save $SLURM_JOB_ID", ""])
def test_a_sourced_file_that_sets_no_argument_stops_nothing(tmp_path, further):
    assert checked(tmp_path, f"source ./start-prod\n{GPT} {further}").est.plan.precision == "bf16"


def test_the_last_of_several_assignments_is_read(tmp_path):
    assert read_script(tmp_path, f"TP=8\nTP=2\n{GPT} --tensor-model-parallel-size $TP").facts["tp"] == 2
    text = f"ARGS=(--bf16)\nARGS=(--fp16)\n{MODEL} --global-batch-size 64 ${{ARGS[@]}}"
    assert read_script(tmp_path, text).facts["precision"] == "fp16"


# Old releases


@pytest.mark.parametrize(
    ("further", "release"),
    [  # NVIDIA/Megatron-LM, history of megatron/arguments.py
        ("--data-impl mmap", "2023-09"),  # taken away in 34ac1ad, September 2023
        ("--DDP-impl local", "2023-09"),  # 3fb3e95, September 2023
        ("--activations-checkpoint-method uniform", "2022-04"),  # cfd2e21, April 2022
        ("--distribute-checkpointed-activations --checkpoint-activations", "2022-04"),
        ("--model-parallel-size 8 --checkpoint-num-layers 1 --data-impl mmap", "2021-01"),
    ],
)
def test_scripts_of_old_releases_are_not_misread_as_present_ones(tmp_path, further, release):
    reading = read_script(tmp_path, f"{MODEL} --fp16 --global-batch-size 64 {further}")
    assert reading.facts["attention"] == "unfused"
    assert reading.form.stack(reading.settings) == OLD_STACKS[release]
    assert any(line.startswith(f"Megatron-LM of {release} or before") for line in reading.assumed)
    assert any("its attention is unfused without --use-flash-attn" in line for line in reading.assumed)


def test_flash_attention_of_an_old_release(tmp_path):
    reading = read_script(tmp_path, f"{GPT} --data-impl mmap --use-flash-attn")
    assert reading.facts["attention"] == "flash"
    assert reading.form.stack(reading.settings) == "megatron-lm-2022"
    assert not any("unfused" in line for line in reading.assumed)


@pytest.mark.parametrize("further", ["--use-flash-attn", "", "--recompute-activations"])
def test_scripts_of_present_arguments_are_of_the_present_release(tmp_path, further):
    reading = read_script(tmp_path, f"{GPT} {further}")
    assert reading.form.stack(reading.settings) == "megatron-core-2025"
    assert reading.facts["attention"] == "flash"


def test_old_arguments_beside_new_ones_are_said(tmp_path):
    reading = read_script(tmp_path, f"{GPT} --DDP-impl local --attention-backend auto")
    assert reading.form.stack(reading.settings) == "megatron-core-2025"
    assert any("although it has no --DDP-impl" in line for line in reading.assumed)


# Recomputation


def test_an_unknown_module_is_not_misread_as_a_mistake(tmp_path):
    """The others of --recompute-modules are read, and the unknown one is named."""
    text = f"{GPT} --recompute-granularity selective --recompute-modules core_attn new_module"
    done = checked(tmp_path, text)
    assert done.est.plan.recompute == "attention"
    assert [each.setting for each in done.reading.unread] == ["--recompute-modules"]


@pytest.mark.parametrize("backend", ["", "--attention-backend auto", "--attention-backend flash"])
def test_default_written_out_of_the_attention_of_local_layers(backend, tmp_path):
    """Megatron-Core 0.19.2, core/models/backends.py: LocalSpecProvider has DotProductAttention, unfused."""
    assert read_script(tmp_path, f"{GPT} --transformer-impl local {backend}").facts["attention"] == "unfused"


def test_grouped_products_are_read(tmp_path):
    """They change the time of experts, and are not said to be no part of the prediction."""
    experts = "--num-experts 8 --expert-model-parallel-size 8 --moe-token-dispatcher-type alltoall"
    reading = read_script(tmp_path, f"{GPT} {experts} --moe-grouped-gemm")
    assert "--moe-grouped-gemm" in reading.used
    assert "--moe-grouped-gemm" not in reading.ignored


@pytest.mark.parametrize(
    "read_them",
    [
        'IFS=, read -r TP PP <<< "4,2"',
        'LAYOUT=4,2\nIFS="," read -r TP PP <<<"$LAYOUT"',
        'read TP PP <<< "4 2"',
        'IFS=, read -ra PARTS <<< "4,2"\nTP=${PARTS[0]} PP=${PARTS[1]}',
    ],
)
def test_a_here_string_is_read(read_them, tmp_path):
    """bash: `read` sets one variable to each word of its input, split at IFS."""
    degrees = "--tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP"
    facts = read_script(tmp_path, f"{read_them}\n{GPT} {degrees}").facts
    assert (facts["tp"], facts["pp"]) == (4, 2)


def test_input_that_is_not_known_is_asked_for(tmp_path):
    degrees = "--tensor-model-parallel-size $TP"
    with pytest.raises(tc.InputError, match="--set TP="):
        read_script(tmp_path, f"read -r TP <<< $(nvidia-smi -L)\n{GPT} {degrees}")


@pytest.mark.parametrize("python", ["python", "/opt/venv/bin/python3 -u"])
def test_the_program_behind_srun_is_no_value_of_its_option(python, tmp_path):
    gpt = GPT.partition("pretrain_gpt.py")[2]
    text = f"srun --nodes 4 --ntasks-per-node 8 {python} pretrain_gpt.py {gpt}"
    assert read_script(tmp_path, text).facts["gpus"] == 4 * 8
