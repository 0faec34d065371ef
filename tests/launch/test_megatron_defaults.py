"""A launch of Megatron-LM that leaves a setting out and one with its default written out are read alike."""

import random
import re

import pytest

import traincast as tc
from traincast.catalog.software_stacks import Stack
from traincast.launch.checks import check
from traincast.launch.formats import READERS
from traincast.launch.reader import read
from traincast.launch.settings.defaults import parser_defaults
from traincast.launch.settings.settings import Settings

MODEL = """torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --num-layers 16 --hidden-size 2048 \\
    --num-attention-heads 16 --seq-length 4096 --max-position-embeddings 4096 --vocab-size 32000 --bf16 \\
    --micro-batch-size 1 --global-batch-size 64"""
EXPERTS = f"""{MODEL} --num-experts 16 --moe-ffn-hidden-size 1024 --expert-model-parallel-size 8 \\
    --tensor-model-parallel-size 2 --sequence-parallel"""
BASES = {
    "dense": f"{MODEL} --use-distributed-optimizer",
    "experts": EXPERTS,
    "fsdp": f"{MODEL} --use-megatron-fsdp --ckpt-format fsdp_dtensor --no-gradient-accumulation-fusion",
    "pipeline": f"{MODEL} --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2",
    "context": f"{MODEL} --context-parallel-size 2 --swiglu --group-query-attention --num-query-groups 4",
    "latent": f"{EXPERTS} --multi-latent-attention --moe-token-dispatcher-type alltoall --mtp-num-layers 1",
    "delta": f"{MODEL} --experimental-attention-variant gated_delta_net --linear-attention-freq 4",
    "precision": f"{MODEL} --fp8-format hybrid --recompute-granularity selective --optimizer-cpu-offload"
    " --use-distributed-optimizer --use-precision-aware-optimizer",
    "hybrid": MODEL.replace("pretrain_gpt", "pretrain_mamba") + " --hybrid-layer-pattern M-M*M-M*",
}
# Of an enumeration (megatron/core/transformer/enums.py), whose members are numbers.
WORDS = {"attention_backend": "auto"}


def read_script(tmp_path, text):
    (path := tmp_path / "run.sh").write_text(text, encoding="utf-8")
    return read(path, READERS)


def what_is_read(reading):
    """All that a prediction of a launch follows from."""
    unread = {each.setting: each.value for each in reading.unread}
    form = reading.form
    assumed = Stack(form.stack(reading.settings)).assumptions.with_values(form.figures(reading.settings))
    return reading.facts, assumed, unread


def flag(name):
    return f"--{name.replace('_', '-')}"


def in_text(name, text):
    return re.search(rf"{flag(name)}\b", text) is not None


def written_out(name, value):
    if isinstance(value, bool):
        return flag(name) if value else flag(f"no_{name}")
    values = value if isinstance(value, list) else [WORDS.get(name, value)]
    return f"{flag(name)} {' '.join(map(str, values))}"


def differing(tmp_path, text, values, together=1):
    """What is read otherwise with each of some settings written out, so many of them in one launch."""
    absent = what_is_read(read_script(tmp_path, text))
    names = list(values)
    found = {}
    for first in range(0, len(names), together):
        group = names[first : first + together]
        words = [written_out(name, values[name]) for name in group]
        written = what_is_read(read_script(tmp_path, " ".join([text, *words])))
        if others := [(left, right) for left, right in zip(absent, written, strict=True) if left != right]:
            found[" ".join(group)] = others
    return found


def defaults_of(text):
    """Defaults of the settings that a launch leaves out, of megatron-core 0.19.2."""
    values = {
        name: value
        for name, value in parser_defaults("megatron", "pretrain").items()
        if value not in (None, []) and not in_text(name, text)
    }
    assert len(values) > 200
    return values


@pytest.mark.parametrize("base", BASES)
def test_defaults_written_out_are_read_as_the_absent_ones(tmp_path, base):
    """Eight settings in a launch, in each base with others; every night each of them alone."""
    values = list(defaults_of(BASES[base]).items())
    random.Random(base).shuffle(values)  # the base is the seed
    assert differing(tmp_path, BASES[base], dict(values), together=8) == {}


@pytest.mark.nightly
@pytest.mark.parametrize("base", BASES)
def test_default_written_out_of_every_setting_is_read_as_the_absent_one(tmp_path, base):
    assert differing(tmp_path, BASES[base], defaults_of(BASES[base])) == {}


def test_settings_of_other_values_are_not_read_as_the_absent_ones(tmp_path):
    """The comparison above tells values that are no defaults."""
    others = {"data_parallel_sharding_strategy": "optim", "make_vocab_size_divisible_by": 4096}
    assert differing(tmp_path, BASES["fsdp"], others).keys() == others.keys()
    among = defaults_of(BASES["fsdp"]) | others
    assert len(differing(tmp_path, BASES["fsdp"], among, together=8)) == len(others)
    with pytest.raises(tc.InputError, match="--img-h"):
        differing(tmp_path, BASES["fsdp"], {"img_h": 384})


@pytest.mark.parametrize("further", ["", " --data-parallel-sharding-strategy optim_grads_params"])
def test_default_written_out_of_megatron_fsdp_shards_all(tmp_path, further):
    """--data-parallel-sharding-strategy is optim_grads_params by default since Megatron-Core 0.18: ZeRO-3.

    32 layers of width 4096 in bf16 on 16 GPUs: weights, gradients and state are 18 bytes of a parameter over
    16 ranks, and what is gathered and saved.
    """
    text = BASES["fsdp"].replace("--num-layers 16", "--num-layers 32")
    (path := tmp_path / "run.sh").write_text(text + further, encoding="utf-8")
    checked = tc.check(path, "dgx-h100")
    est = checked.est
    assert est.plan.zero == 3
    assert est.memory["optimizer"] == pytest.approx(12 * est.model.parameters / 16, rel=0.02)
    said = (
        "--data-parallel-sharding-strategy optim_grads_params: not set, the default of megatron-core 0.19.2"
    )
    assert (said in checked.reading.assumed) == (not further)


@pytest.mark.parametrize("further", ["", " --moe-token-dispatcher-type allgather"])
def test_default_written_out_of_the_dispatcher_is_priced_alike(tmp_path, further):
    """megatron/core/transformer/transformer_config.py: moe_token_dispatcher_type = "allgather"."""
    (path := tmp_path / "run.sh").write_text(BASES["experts"] + further, encoding="utf-8")
    checked = tc.check(path, "dgx-h100")
    assert checked.reading.unread == ()
    assert checked.est.assumptions.collectives.gathers_tokens
    said = "--moe-token-dispatcher-type allgather: not set, the default of megatron-core 0.19.2"
    assert (said in checked.reading.assumed) == (not further)
    path.write_text(f"{BASES['experts']} --moe-token-dispatcher-type alltoall", encoding="utf-8")
    assert checked.est.breakdown["ep_comm"] > tc.check(path, "dgx-h100").est.breakdown["ep_comm"]


def test_precision_of_the_router_is_that_of_results_the_allgather_dispatcher_returns(tmp_path):
    """token_dispatcher.py, token_combine: hidden_states.to(self.local_probs.dtype)."""
    sent = {}
    for further in ("", " --moe-router-dtype fp32"):
        (path := tmp_path / "run.sh").write_text(BASES["experts"] + further, encoding="utf-8")
        sent[further] = tc.check(path, "dgx-h100").est.breakdown["ep_comm"]
    # tokens at 2 bytes and results at 4 of an element
    assert sent[" --moe-router-dtype fp32"] / sent[""] == pytest.approx(1.5, rel=0.1)


@pytest.mark.parametrize(
    ("further", "refused"), [("", True), (" --moe-token-dispatcher-type alltoall", False)]
)
def test_the_allgather_dispatcher_is_not_overlapped(tmp_path, further, refused):
    """transformer_config.py: overlap_moe_expert_parallel_comm is supported with alltoall/flex."""
    reading = read_script(tmp_path, f"{EXPERTS} --overlap-moe-expert-parallel-comm{further}")
    assert any("dispatchers alltoall and flex only" in note for note in reading.assumed) == refused


@pytest.mark.parametrize("name", ["nemo2", "primus", "mlperf"])
def test_a_dialect_with_a_stack_of_its_own_reads_the_allgather_dispatcher(name):
    """They hand moe_token_dispatcher_type to the same transformer_config.py."""
    form = READERS[name]
    stacks = {
        value: form.stack(Settings({"num_experts": 8, "moe_token_dispatcher_type": value}))
        for value in ("alltoall", "allgather")
    }
    assert Stack(stacks["allgather"]).assumptions.collectives.gathers_tokens
    assert not Stack(stacks["alltoall"]).assumptions.collectives.gathers_tokens


def test_a_plan_with_the_allgather_dispatcher_is_written_and_read_back(tmp_path):
    est = tc.estimate(
        "qwen3-30b-a3b",
        "dgx-h100",
        tc.Plan(tp=2, dp=8, ep=8),
        gbs=64,
        assumptions="megatron-core-2025+dispatcher=allgather",
    )
    written = tc.export(est, "megatron")
    assert "--moe-token-dispatcher-type allgather" in written.text
    (path := tmp_path / "run.sh").write_text(written.text, encoding="utf-8")
    again = tc.check(path, "dgx-h100", model="qwen3-30b-a3b", gpus=16).est
    assert again.step_seconds == est.step_seconds


@pytest.mark.parametrize("further", ["", " --moe-token-dispatcher-type allgather"])
def test_default_written_out_of_the_dispatcher_matters_only_where_ranks_exchange_tokens(tmp_path, further):
    """Experts of one rank get its own tokens, whatever dispatches them."""
    alone = "--expert-model-parallel-size 8 \\\n    --tensor-model-parallel-size 2 --sequence-parallel"
    assert alone in EXPERTS
    assert read_script(tmp_path, EXPERTS.replace(alone, "") + further).unread == ()


def test_default_written_out_experts_without_grouped_products_run_one_after_the_other(tmp_path):
    """transformer_config.py: moe_grouped_gemm = False, a switch that has no value to write out."""
    said = "experts are computed one after the other: --moe-grouped-gemm is not set"
    steps = {}
    for more in ("", " --moe-grouped-gemm"):
        path = tmp_path / "run.sh"
        path.write_text(EXPERTS + more)
        checked = check(path, "dgx-h100", accept_unread=True)
        assert any(line.startswith(said) for line in checked.reading.assumed) == (not more)
        assert checked.est.assumptions.kernels.groups_experts == bool(more)
        steps[more] = checked.est.step_seconds
    assert steps[""] > steps[" --moe-grouped-gemm"]
