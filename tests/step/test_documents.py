"""Documents packed into sequences or padded to them, and the reference model of DPO, counted by hand."""

from dataclasses import replace

import pytest

import traincast as tc
from traincast.core.errors import InputError
from traincast.model.adapters import parse_training
from traincast.model.documents import Documents, parse_lengths
from traincast.step.model_flops import forward_flops, model_flops_per_token
from traincast.ui.cli.main import main

S = 4096
LLAMA = tc.load_model("llama-3-8b", seq=S)
PLAN = tc.Plan(dp=8, zero=3, recompute="full", fast_dp=8)


def tuned(objective="sft", train="full", documents=None):
    """Llama 3 8B as fine-tuning trains it."""
    return LLAMA.fine_tuned(objective, parse_training(train), documents)


def estimate(model, plan=PLAN, **knobs):
    """Estimate of a plan on a node of H100."""
    changed = replace(plan, **knobs)
    return tc.estimate(model, "dgx-h100", changed, gbs=8, assumptions="megatron-core-2025")


@pytest.mark.parametrize(
    ("text", "mean", "padding"),
    [
        ("512:0.7,2048:0.3", 0.7 * 512 + 0.3 * 2048, 0.0),
        ("padded:512:7,2048:3", 0.7 * 512 + 0.3 * 2048, 1 - 972.8 / S),
        ("padded:1024", 1024, 0.75),
        ("8192", S, 0.0),  # cut to a sequence
    ],
)
def test_lengths_and_what_is_padding(text, mean, padding):
    documents = parse_lengths(text)
    assert documents.mean(S) == pytest.approx(mean)
    assert documents.padding_share(S) == pytest.approx(padding)


def test_packed_documents_attend_to_themselves():
    """Two documents of half a sequence have half of its pairs and a bit more: 2 · n (n + 1) / 2 each."""
    n = S // 2
    assert tuned(documents=Documents(((n, 1),))).attended_pairs(local=False) == 2 * n * (n + 1) / 2
    mixed = tuned(documents=Documents(((1024, 0.5), (3072, 0.5))))  # 4096 tokens are one of each
    assert mixed.attended_pairs(local=False) == 1024 * 1025 / 2 + 3072 * 3073 / 2


def test_padding_is_computed_and_packing_is_faster():
    """Padded sequences cost what full ones do; packed short documents save attention alone."""
    full, short = estimate(LLAMA), Documents(((256, 1.0),))
    padded, packed = estimate(tuned(documents=replace(short, packed=False))), estimate(tuned(documents=short))
    assert padded.step_seconds == full.step_seconds
    assert packed.step_seconds < full.step_seconds
    assert packed.memory == full.memory
    [attention] = [row for row in full.operations() if row["operation"] == "attention.flash"]
    passes = sum(attention[f"{name}_seconds"] for name in ("forward", "backward", "again"))
    assert packed.step_seconds > full.step_seconds - LLAMA.layers * passes


def test_lengths_of_a_file(tmp_path):
    path = tmp_path / "lengths.txt"
    path.write_text("512\n512\n\n2048\n", encoding="utf-8")
    assert parse_lengths(str(path)) == Documents(((512, 2), (2048, 1)))
    assert not parse_lengths(f"padded:{path}").packed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0", "'0': must be a whole number"),
        ("512:x", "share 'x': must be a number"),
        ("512:0", "share of 512 = 0.0: must be above 0"),
        ("", "names no length"),
        ("missing.txt", "No such file"),
        ("512,", "'': must be a whole number"),
    ],
)
def test_wrong_lengths_are_named(text, words):
    with pytest.raises(InputError, match=words):
        parse_lengths(text)


def test_files_are_not_read_for_a_page(tmp_path):
    """The explorer takes lengths alone: no file of the machine that serves it."""
    path = tmp_path / "lengths.txt"
    path.write_text("512\n", encoding="utf-8")
    with pytest.raises(InputError, match="write lengths in tokens"):
        parse_lengths(str(path), files=False)


def test_a_reference_model_of_dpo_passes_forward():
    """8 N instead of 6 N, a frozen copy in 16 bits, no more gradients or states; with LoRA no copy at all."""
    dpo, sft = tuned("dpo"), tuned()
    forward = sum(forward_flops(LLAMA))
    assert model_flops_per_token(dpo) == model_flops_per_token(sft) + forward
    with_copy, alone = estimate(dpo), estimate(sft)
    assert with_copy.memory["weights"] - alone.memory["weights"] == pytest.approx(
        2 * LLAMA.parameters / 8, rel=1e-3
    )
    for part in ("gradients", "optimizer", "activations", "logits"):
        assert with_copy.memory[part] == alone.memory[part]
    more = with_copy.breakdown["compute"] / alone.breakdown["compute"]
    assert more == pytest.approx(4 / 3, rel=0.03)  # a third forward pass beside one and two of backward
    assert with_copy.breakdown["recomputation"] == alone.breakdown["recomputation"]
    lora = estimate(tuned("dpo", "lora"))
    assert lora.memory["weights"] == estimate(tuned(train="lora")).memory["weights"]
    assert lora.step_seconds > estimate(tuned(train="lora")).step_seconds


def test_the_command_line_says_what_is_trained(capsys):
    """In the first line, whichever command is asked."""
    main(f"memory llama-3-8b --system dgx-h100 --train dpo+lora:r=8 --lengths padded:1024 --seq {S}".split())
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "DPO with a reference model, LoRA of rank 8 on all layers, documents of 1,024 tokens on average"
        in text
    )
    assert "padded (75% of all tokens)" in text


def test_what_is_longer_than_a_sequence_is_said_to_be_cut():
    """A quarter of the documents is longer than 2,048 tokens: (3 · 1,024 + 2,048) / 4 = 1,280."""
    documents = parse_lengths("1024:3,8192:1")
    assert (
        documents.title(2048) == "documents of 1,280 tokens on average (25.0% of them cut to 2,048), packed"
    )
    assert "cut" not in documents.title(8192)


def test_model_files_and_studies_name_what_is_trained(tmp_path):
    """`adapters` of a model file, `train` of a study."""
    from traincast.planner.studies.study_file import load_study

    model = tmp_path / "model.yaml"
    model.write_text(
        "name: m\nlayers: 2\nhidden: 1024\nheads: 8\nffn: 4096\nvocab: 512\nseq: 1024\nmlp: swiglu\n"
        "adapters: {rank: 8, targets: [q, v], base: nf4}\n",
        encoding="utf-8",
    )
    read = tc.load_model(model)
    assert read.adapters == parse_training("qlora:r=8,targets=q+v")
    study = tmp_path / "study.yaml"
    study.write_text(
        "models: llama-3-8b\nsystems: dgx-h100\ngpus: 8\nglobal_batch: 8\ntrain: dpo+lora:r=4\n",
        encoding="utf-8",
    )
    (trained,) = load_study(study).models
    assert (trained.reference, trained.adapters.rank) == (True, 4)
    study.write_text(study.read_text(encoding="utf-8").replace("r=4", "r=0"), encoding="utf-8")
    with pytest.raises(InputError, match="r = 0"):
        load_study(study)
