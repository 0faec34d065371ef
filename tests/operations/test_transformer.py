"""Parameters and products of whole models, over any number of ranks, against published counts and counts by
hand.
"""

from collections import Counter
from dataclasses import replace

import pytest

import traincast as tc
from traincast.catalog.software_stacks import calibrated
from traincast.core.plan import Plans
from traincast.operations.operation import PassCount
from traincast.operations.transformer import layer, parts
from traincast.step.arguments import check_assumptions
from traincast.step.model_flops import forward_flops
from traincast.step.pipeline_stages import devices

CALIBRATED = calibrated()

EXACT = CALIBRATED.with_values({"memory.vocab_multiple": 1})  # without padding of the vocabulary
MODELS = [name for name in tc.model_names() if tc.load_model(name).vocab is not None]
BIG = (
    "llama-3-8b",
    "llama-3-70b",
    "mixtral-8x7b",
    "deepseek-v3",
    "qwen3-30b-a3b",
    "gpt-oss-120b",
    "gemma-2-9b",
)


def parameters_on_rank(model, plan, experts):
    """Parameters of the one rank of a pipeline of one stage: those of experts, or the others."""
    (device,) = devices(model, 1, 1)
    operations = parts(model, plan, EXACT)
    return sum(
        n * sum(op.weights for op in operations[part] if op.experts == experts)
        for part, n in device.stored_parts.items()
    )


def products(model, plan, assumed=EXACT, way="forward", only=""):
    """FLOPs of matrix products of one rank and micro-batch."""
    (device,) = devices(model, 1, 1)
    operations = parts(model, plan, assumed)
    passes = [
        (n, getattr(op, way))
        for part, n in device.executed_parts.items()
        for op in operations[part]
        if only in op.name
    ]
    return sum(n * (work.flops("matrix") + work.flops("low")) for n, work in passes)


def moe_layers(model):
    """Layers with experts, that of multi-token prediction included."""
    return sum(kind.moe for kind in (*model.pattern, *[model.pattern[-1]] * model.mtp))


@pytest.mark.parametrize("name", tc.model_names())
def test_operations_hold_the_parameters_of_the_model(name):
    model = tc.load_model(name)
    assert (
        parameters_on_rank(model, Plans(), False) + parameters_on_rank(model, Plans(), True)
        == model.parameters + model.mtp_parameters
    )


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("llama-3-8b", 8_030_261_248),  # safetensors index of meta-llama/Meta-Llama-3-8B
        ("llama-3-70b", 70_553_706_496),  # of Meta-Llama-3-70B
        ("mixtral-8x7b", 46_702_792_704),  # of mistralai/Mixtral-8x7B-v0.1
        ("qwen2.5-7b", 7_615_616_512),  # of Qwen/Qwen2.5-7B
        ("gemma-2-9b", 9_241_705_984),  # of google/gemma-2-9b
        ("qwen3-30b-a3b", 30_532_122_624),  # of Qwen/Qwen3-30B-A3B
    ],
)
def test_published_counts_of_parameters(name, published):
    model = tc.load_model(name)
    assert parameters_on_rank(model, Plans(), False) + parameters_on_rank(model, Plans(), True) == published


def replicated(model, tp):
    """Parameters outside experts that every tensor rank has, and what it has more: Megatron-Core's column-
    and row-parallel layers.

    Norms (also that which heads of linear attention share), biases of row-parallel layers, routers,
    down-projections of latent attention and of gates, projections of latent experts and tables of positions
    are on every rank; heads of keys and values are where there are fewer of them than ranks.
    """
    e, vectors = model.hidden, 2 if model.norm == "layernorm" else 1
    layers = [*model.pattern, *[model.pattern[-1]] * model.mtp]
    on_all_ranks = (
        vectors * e * (1 + 3 * model.mtp)
    )  # final norm; mtp norms the state, the embedding and the result
    on_all_ranks += (model.max_positions or model.seq) * e if model.positions == "learned" else 0
    for kind in layers:
        norms = model.norms if kind.is_pair else model.norms // 2
        on_all_ranks += norms * vectors * e + (e if "proj" in model.biases else 0) + model.small_weights
        if (linear := model.linear_attention(kind)) is not None:
            on_all_ranks += e * linear.counts.replicated
            on_all_ranks += linear.value_dim if linear is model.gated_delta else 0
        if model.latent is not None:
            config = model.latent
            on_all_ranks += (
                e * (config.kv_rank + config.rope_dim)
                + config.kv_rank
                + ((e + 1) * config.q_rank if config.q_rank else 0)
            )
        on_all_ranks += 2 * model.for_kind(kind).head_width if model.qk_norm == "head" and kind.attends else 0
        if kind.moe:
            config = model.experts
            on_all_ranks += config.experts * (e + config.router_bias) + e * config.shared_gate
            on_all_ranks += 2 * e * (config.width or 0)  # projections to a latent width and back
            on_all_ranks += e if config.shared_ffn and "mlp" in model.biases else 0
        elif "mlp" in model.biases:
            on_all_ranks += e
    on_all_ranks += 2 * e if model.embedding_norm else 0
    heads = 0
    for at in (model.for_kind(kind) for kind in layers if kind.attends and model.latent is None):
        # every rank has one whole head of keys, and one of values where they are weights of their own
        width = (1 if at.keys_are_values else 2) * at.head_width * (e + ("qkv" in model.biases))
        width += at.head_width if model.qk_norm == "full" else 0
        heads += max(tp - at.groups, 0) * width
    return on_all_ranks, heads


@pytest.mark.parametrize("tp", [2, 4, 8, 16])
@pytest.mark.parametrize("name", MODELS)
def test_tensor_ranks_together_hold_the_model(name, tp):
    model = tc.load_model(name)
    widths = [model.heads, model.ffn, model.experts.shared_ffn if model.experts else 0]
    widths += model.mamba2.counts.sharded if model.mamba2 else []
    groups = sorted((model.groups, tp))  # heads of keys are cut, or each is on several ranks
    if any(width % tp for width in widths) or groups[1] % groups[0]:
        pytest.skip("does not divide")
    if model.tower is not None:
        pytest.skip("vision towers have their own test")
    on_all_ranks, heads = replicated(model, tp)
    padding = (-model.vocab % tp) * model.hidden * (1 if model.tied else 2)
    parameters = parameters_on_rank(model, Plans(), False)
    assert (
        parameters_on_rank(model, Plans(tp=float(tp)), False) * tp
        == parameters + (tp - 1) * on_all_ranks + heads + padding
    )


@pytest.mark.parametrize("ep", [1, 4, 8])
@pytest.mark.parametrize("etp", [1, 2, 4])
@pytest.mark.parametrize(
    "name", ["mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b", "gpt-oss-120b", "llama-4-scout"]
)
def test_expert_ranks_together_hold_the_experts(name, ep, etp):
    model = tc.load_model(name)
    rank = parameters_on_rank(model, Plans(tp=4.0, dp=8.0, ep=float(ep), etp=float(etp)), True)
    replicated_biases = (
        moe_layers(model) * model.experts.experts * model.hidden if "mlp" in model.biases else 0
    )  # biases of row-parallel fc2
    assert rank * ep * etp == pytest.approx(
        parameters_on_rank(model, Plans(), True) + (etp - 1) * replicated_biases, rel=1e-12
    )


def test_fewer_heads_of_keys_than_tensor_ranks():
    """Llama 3 70B, 8 heads of keys and values of width 128, on 16 ranks: each holds a whole one of both, 8192
    x 128 each.
    """
    model = tc.load_model("llama-3-70b")
    (qkv,) = (op for op in layer(model, Plans(tp=16.0), EXACT) if op.name == "attention.qkv")
    assert qkv.weights == 8192 * (64 * 128 // 16 + 2 * 128)


@pytest.mark.parametrize(("convention", "skipping"), [("megatron", 1.0), ("megatron-full", 0.0)])
@pytest.mark.parametrize("name", BIG)
def test_products_are_twice_the_active_weights_and_attention(name, convention, skipping):
    model = tc.load_model(name)
    router = (
        2 * model.hidden * model.experts.experts * moe_layers(model) if model.experts else 0
    )  # Megatron-LM leaves it out
    expected = sum(forward_flops(model, convention)) + router
    flops_per_token = (
        products(model, Plans(), EXACT.with_values({"attention.causal_skipping": skipping})) / model.seq
    )
    assert flops_per_token == pytest.approx(expected, rel=1e-3)  # a sum of k products has k - 1 additions


def test_products_of_llama_3_by_hand():
    """Per token 2 FLOP for each weight of the 32 layers and the head; 2 products of 32 heads of 128 with (s +
    1)/2 keys.
    """
    model, e, f, s = tc.load_model("llama-3-8b"), 4096, 14336, 8192
    weights = 32 * (e * (4096 + 2 * 1024) + 4096 * e + 3 * e * f) + 128256 * e
    by_hand = 2 * weights + 32 * 2 * (2 * 32 * 128) * (s + 1) / 2
    assert products(model, Plans()) / s == pytest.approx(by_hand, rel=1e-3)


@pytest.mark.parametrize("name", BIG)
def test_backward_is_twice_forward_but_for_attention(name):
    """Fused attention makes the scores again: 5 products for 2 (arXiv 2307.08691, section 3.1)."""
    model = tc.load_model(name)
    attention = [
        products(model, Plans(), way=way, only="attention.flash") for way in ("forward", "whole_backward")
    ]
    everything = [products(model, Plans(), way=way) for way in ("forward", "whole_backward")]
    # of its 5 products 3 are queries by keys, 2 scores by values
    q, v = model.head_width, model.value_width
    assert attention[1] / attention[0] == pytest.approx((3 * q + 2 * v) / (q + v), rel=1e-2)
    left = 2 * (everything[0] - attention[0])
    assert everything[1] - attention[1] == pytest.approx(
        left, rel=3e-3
    )  # 128 rows an expert: 127 additions for 128 products


@pytest.mark.parametrize(
    "cut", [{"tp": 4.0}, {"cp": 4.0, "cp_kind": "ring"}, {"cp": 4.0, "ulysses": 4.0, "cp_kind": "ulysses"}]
)
@pytest.mark.parametrize("name", ["llama-3-70b", "mixtral-8x7b", "gemma-2-9b"])
def test_ranks_share_the_work(name, cut):
    model = tc.load_model(name)
    assert 4 * products(model, Plans(**cut), way="forward") == pytest.approx(
        products(model, Plans()), rel=1e-3
    )


@pytest.mark.parametrize(("ep", "etp"), [(8, 1), (2, 4), (4, 2)])
def test_expert_parallelism_moves_work_without_changing_it(ep, etp):
    """Balanced, a rank works on n K rows of its experts whatever ep is; etp ranks share the width of etp
    times as many rows.
    """
    model = tc.load_model("mixtral-8x7b")
    flops = products(model, Plans(tp=4.0, dp=2.0, ep=float(ep), etp=float(etp)), only="experts.fc")
    rows = model.seq / 4 * 2
    assert flops == pytest.approx(32 * 2 * rows * 3 * 4096 * 14336, rel=1e-3)


def test_a_window_and_a_causal_mask():
    """Gemma 2: 8192 tokens, a window of 4096 in every other layer; pairs counted one by one."""
    model, l, w = tc.load_model("gemma-2-9b"), 8192, 4096
    near, far = (layer(model, Plans(), EXACT, kind) for kind in model.kinds)
    pairs = sum(min(i + 1, w) for i in range(l)), sum(i + 1 for i in range(l))
    for operations, count in zip((near, far), pairs, strict=True):
        (flash,) = (op for op in operations if op.name == "attention.flash")
        assert flash.forward.flops("matrix") == pytest.approx(16 * 2 * 2 * 256 * count, rel=3e-3)
    assert model.kinds[0].local
    full = replace(model, causal=False, local=None)
    (unmasked,) = (op for op in layer(full, Plans(), EXACT) if op.name == "attention.flash")
    assert unmasked.forward.flops("matrix") == pytest.approx(16 * 2 * 2 * 256 * l * l, rel=3e-3)


@pytest.mark.parametrize(
    ("name", "recompute", "left_out"),
    [
        ("llama-3-8b", "full", {"mlp.fc2", "mlp.residual"}),
        ("llama-3-8b", "attention+mlp+norms", set()),  # `mlp` is its first product
        ("llama-3-8b", "selective", set()),
        ("gemma-2-9b", "full", set()),  # a norm follows the block, which needs its result
    ],
)
def test_the_last_product_is_not_recomputed(name, recompute, left_out):
    """PyTorch's checkpoints stop early (set_checkpoint_early_stop), XLA removes dead code; what is kept stays
    the same.
    """
    model, plan = tc.load_model(name), Plans(recompute=recompute)
    before, after = (
        layer(model, plan, EXACT.with_values({"memory.recomputes_last": remade})) for remade in (True, False)
    )
    assert not any(op.output_unused for op in before)
    assert {op.name for op in after if op.output_unused} == left_out
    assert [(op.recompute, op.saved_bytes, op.recomputed_bytes) for op in before] == [
        (op.recompute, op.saved_bytes, op.recomputed_bytes) for op in after
    ]


@pytest.mark.parametrize(("name", "layers"), [("deepseek-v3", 1), ("llama-3-8b", 0)])
def test_multi_token_prediction_and_ties(name, layers):
    """DeepSeek-V3: the module adds a layer, 2 e² and three norms, no head and no embedding (arXiv 2412.19437,
    section 2.2).
    """
    model = tc.load_model(name)
    operations = parts(model, Plans(), EXACT)
    assert ("mtp" in operations) == bool(layers)
    if layers:
        inner = sum(op.weights for op in layer(model, Plans(), EXACT, model.pattern[-1]))
        assert sum(op.weights for op in operations["mtp"]) == inner + 2 * 7168**2 + 3 * 7168


# Gate of attention's result (arXiv 2505.06708): 8 heads of width 128 at e = 1024, 4 heads of keys and values,
# sequences of 512 tokens.
GATED = tc.Model(
    name="gated", layers=3, hidden=1024, heads=8, kv_heads=4, head_dim=128, ffn=4096, seq=512, mlp="swiglu",
    norm="rmsnorm", qk_norm="head", biases=("qkv",), dropout=False, positions="rotary", vocab=32000,
    causal=True, attention_gate=True,
)  # fmt: skip
UNGATED = replace(GATED, attention_gate=False)


def of(model, name, plan=None, assumed=EXACT):
    """An operation of the model's first layer by its name."""
    (found,) = (op for op in layer(model, plan or Plans(), assumed) if op.name == name)
    return found


def test_a_gate_adds_as_many_columns_as_queries_have():
    """A layer has 1024 x 1024 weights more, and 1024 biases."""
    assert GATED.parameters - UNGATED.parameters == 3 * (1024 * 1024 + 1024)
    assert GATED.attention_matrices == 1024 * (2 * 1024 + 2 * 512) + 1024 * 1024
    held = parameters_on_rank(GATED, Plans(), False)
    assert held == GATED.parameters
    on_all_ranks, heads = replicated(GATED, 2)
    half = parameters_on_rank(GATED, Plans(tp=2.0), False)
    assert 2 * half == GATED.parameters + on_all_ranks + heads
    assert forward_flops(GATED).layers - forward_flops(UNGATED).layers == 2 * 3 * 1024 * 1024


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_a_gate_by_hand(tp):
    """512 x 1024/tp elements of 2 bytes: 3 are moved forward, 5 backward; g is saved, and o, which attention
    does not save for itself with these assumptions."""
    assert EXACT.memory.saves_attention_output == 0
    plan, elements = Plans(tp=float(tp)), 512 * 1024 / tp
    assumed = EXACT.with_values({"traffic.elementwise_passes": 1.0})
    gate = of(GATED, "attention.gate", plan, assumed)
    assert (gate.forward.nbytes, gate.backward.nbytes) == (2 * 3 * elements, 2 * 5 * elements)
    assert (gate.forward.flops("vector"), gate.backward.flops("vector")) == (3 * elements, 5 * elements)
    assert (gate.saved_bytes, gate.weights) == (2 * 2 * elements, 0)
    twice = EXACT.with_values({"memory.saves_attention_output": 1})
    assert of(GATED, "attention.gate", plan, twice).saved_bytes == 2 * elements
    selective = Plans(tp=float(tp), recompute="selective")
    assert of(GATED, "attention.gate", selective, twice).saved_bytes == 2 * 2 * elements
    qkv = of(GATED, "attention.qkv", plan, assumed)
    assert qkv.forward.flops("matrix") == 512 * (2 * 1024 - 1) * (2 * 1024 + 2 * 512) / tp
    assert qkv.weights == 1024 * (2 * 1024 + 2 * 512) / tp


def test_a_gate_stands_between_attention_and_its_projection_and_is_off_by_default():
    names = [op.name for op in layer(GATED, Plans(), EXACT)]
    at = names.index("attention.gate")
    assert names[at - 1 : at + 2] == ["attention.flash", "attention.gate", "attention.proj"]
    assert layer(UNGATED, Plans(), EXACT) == tuple(
        of(UNGATED, name) if name in ("attention.qkv", "attention.qkv_bias") else of(GATED, name)
        for name in names
        if name != "attention.gate"
    )


def test_what_torchtitan_saves_of_a_gate():
    """Of the products it saves that of the queries, and so g, 512 x 1024 elements; the keys' is made again:
    512 of 3072 columns."""
    plan = Plans(recompute="per-op")
    qkv, gate = (of(GATED, name, plan) for name in ("attention.qkv", "attention.gate"))
    assert (qkv.saved_bytes, gate.saved_bytes) == (2 * 512 * 1024, 0)
    assert (qkv.recompute, gate.recompute) == (512 / 3072, 1.0)
    assert of(UNGATED, "attention.qkv", plan).saved_bytes == 0


@pytest.mark.parametrize(
    "cut", [{"tp": 4.0}, {"cp": 4.0, "cp_kind": "ring"}, {"cp": 4.0, "ulysses": 2.0, "cp_kind": "hybrid"}]
)
def test_ranks_share_the_work_of_a_gate(cut):
    whole, part = of(GATED, "attention.gate"), of(GATED, "attention.gate", Plans(**cut))
    for way in ("forward", "backward"):
        assert 4 * getattr(part, way).flops("vector") == getattr(whole, way).flops("vector")
        assert 4 * getattr(part, way).nbytes == getattr(whole, way).nbytes
    assert 4 * part.saved_bytes == whole.saved_bytes
    assert 4 * products(GATED, Plans(**cut)) == pytest.approx(products(GATED, Plans()), rel=2e-3)


# Parts of older models and of parallel blocks.
PARTS = {
    "parallel": {"parallel": True},
    "shared norm": {"parallel": True, "norms": 1},
    "scale": {"norm": "layernorm-scale"},
    "no weights": {"norm": "rmsnorm-plain"},
    "bloom": {"embedding_norm": True, "norm": "layernorm"},
    "bert": {"token_types": 2, "head_bias": True, "head_transform": True, "mlp": "gelu", "norm": "layernorm"},
}


@pytest.mark.parametrize("fields", PARTS.values(), ids=PARTS)
def test_parts_of_a_model_have_the_weights_it_counts(fields):
    """Operations and `Model.parameters` count independently of each other."""
    model = replace(UNGATED, **fields)
    assert parameters_on_rank(model, Plans(), False) == model.parameters


@pytest.mark.parametrize("norms", [1, 2])
def test_parallel_blocks_are_reduced_and_added_once(norms):
    """x + attention(x) + mlp(x): three terms read, one written; partial sums are reduced together."""
    plan = Plans(tp=2.0)
    both, one = replace(UNGATED, parallel=True, norms=norms), UNGATED
    names = Counter(op.name for op in layer(one, plan, EXACT))
    names.subtract(op.name for op in layer(both, plan, EXACT))
    only_in_sequence = dict.fromkeys(("attention.residual", "attention.norm")[: 3 - norms], 1)
    assert {name: n for name, n in names.items() if n} == only_in_sequence
    elements = 512 / 2 * 1024
    assumed = EXACT.with_values({"traffic.elementwise_passes": 1.0})
    assert of(both, "mlp.residual", plan, assumed).forward.nbytes == 2 * 4 * elements
    assert of(one, "mlp.residual", plan, assumed).forward.nbytes == 2 * 3 * elements
    assert not of(both, "attention.proj", plan).forward.collectives
    (reduction,) = of(both, "mlp.fc2", plan).forward.collectives
    assert (reduction.kind, reduction.nbytes) == ("reduce-scatter", 2 * 512 * 1024)


def test_norms_of_parallel_blocks_save_their_input_once():
    """Both read the same 512 tokens of 1024 numbers of 2 bytes; in sequence each saves its own."""
    model = replace(UNGATED, norm="layernorm")
    for fields, inputs in (({}, 2), ({"parallel": True, "norms": 2}, 1)):
        operations = layer(replace(model, **fields), Plans(), EXACT)
        saved = sum(op.saved_bytes for op in operations if op.name.endswith(".norm"))
        assert saved == inputs * 2 * 512 * 1024


def test_a_dense_layer_before_the_head_works_on_the_ranks_own_tokens():
    """256 of 512 tokens; each result takes 1024 products and 1023 sums; the norm after it gathers."""
    operations = parts(replace(UNGATED, **PARTS["bert"]), Plans(tp=2.0), EXACT)["head"]
    transform = next(op for op in operations if op.name == "head.transform")
    assert transform.forward.flops("matrix") == 256 * 1024 * (2 * 1024 - 1)
    gathering = [op.name for op in operations if any(c.kind == "all-gather" for c in op.forward.collectives)]
    assert gathering == ["head.transform_norm"]


@pytest.mark.parametrize("assumptions", ["paper", "paper-published"])
def test_tokens_of_a_rank_are_rounded_down(assumptions):
    """As docs/errata.md says: 1,030 tokens on tp2 = 4 are 257 each, 4 of which have those of 1,028."""
    assumed = check_assumptions(None, assumptions, (), {})
    plan = Plans(tp=4.0, tp2=4.0, tp_kind="summa", panels=4.0)
    model = tc.load_model("gpt3-1t")
    products = {
        seq: [
            float(op.forward.flops("matrix"))
            for op in layer(replace(model, seq=seq), plan, assumed)
            if op.name in ("attention.qkv", "attention.proj", "mlp.fc1", "mlp.fc2")
        ]
        for seq in (1028, 1030)
    }
    assert len(products[1030]) == 4
    assert products[1030] == products[1028]


@pytest.mark.parametrize(("assumptions", "moments"), [("paper", 1542), ("paper-published", 1545)])
def test_the_published_norm_of_summa_rounds_down_all_its_moments_together(assumptions, moments):
    """Of 3 × 1,030 tokens on tp2 = 4: floor(2 · 3 · 1030 / 4) as published, else 2 · 3 · floor(1030 / 4)."""
    assumed = check_assumptions(None, assumptions, (), {})
    plan = Plans(tp=4.0, tp2=4.0, tp_kind="summa", panels=4.0, mbs=3.0)
    model = replace(tc.load_model("gpt3-1t"), seq=1030)
    norm = next(op for op in layer(model, plan, assumed) if op.name == "mlp.norm")
    (reduced,) = (each for each in norm.backward.collectives if each.kind == "all-reduce")
    of_weights = 2 * model.hidden / 4  # scale and shift of the columns on a rank
    assert reduced.nbytes / 2 - of_weights == moments


def test_two_passes_add_up():
    one = PassCount((), 10.0, written=4.0, cast=1.0)
    both = one + PassCount((), 20.0, written=8.0, cast=2.0)
    assert (both.nbytes, both.written, both.cast) == (30.0, 12.0, 3.0)


@pytest.mark.parametrize("name", ["deepseek-v3", "kimi-k2", "glm-4.5"])
@pytest.mark.parametrize("recompute", ["none", "full", "norms+activation+mla_up_proj"])
def test_kinds_that_differ_in_their_feed_forward_block_share_the_counts_of_their_mixer(name, recompute):
    """One object for a pass of both kinds, which a timer then times once; each kind is as counted alone."""
    model = tc.load_model(name)
    plan = Plans(tp=2.0, recompute=recompute)
    together = parts(model, plan, CALIBRATED)
    dense, moe = ({op.name: op for op in together[kind]} for kind in ("dense", "moe"))
    mixing = [op for op in dense if op.startswith("attention.") and "norm" not in op and "residual" not in op]
    assert len(mixing) > 3
    for op in mixing:
        assert dense[op].forward is moe[op].forward
        assert dense[op].backward is moe[op].backward
    for kind in model.kinds:
        assert together[str(kind)] == layer(model, plan, CALIBRATED, kind)
