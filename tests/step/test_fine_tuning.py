"""LoRA and QLoRA: weights, products, saved activations and states against counts by hand, PEFT and torch."""

from dataclasses import replace
from operator import attrgetter

import pytest

import traincast as tc
from traincast.catalog.software_stacks import calibrated, resolve
from traincast.core.errors import InputError
from traincast.core.plan import Plans
from traincast.model.adapters import Adapters, parse_training
from traincast.model.blocks import Experts
from traincast.model.linear_attention import Mamba2
from traincast.operations.transformer import layer, parts
from traincast.step.memory import Footprint
from traincast.step.model_flops import forward_flops, hardware_flops_per_token, model_flops_per_token

EXACT = calibrated().with_values({"memory.vocab_multiple": 1})
LLAMA = tc.load_model("llama-3-8b", seq=2048)
T = 2048  # tokens of a micro-batch
E, F, KV, V = 4096, 14336, 1024, 128256  # widths of Llama 3 8B
MOE, MLA = tc.load_model("mixtral-8x7b", seq=2048), tc.load_model("deepseek-v3", seq=2048)
GPT = replace(tc.load_model("gpt3-175b", seq=2048), vocab=51200, tied=True)
HYBRID = tc.Model(
    name="hybrid",
    layers=4,
    hidden=4096,
    heads=32,
    kv_heads=8,
    ffn=14336,
    seq=2048,
    vocab=V,
    causal=True,
    mlp="swiglu",
    norm="rmsnorm",
    biases=(),
    dropout=False,
    experts=Experts(experts=8, topk=2, ffn=4096),
    mamba2=Mamba2(heads=128, head_dim=64, state=128, groups=8, chunk=128),
    layer_kinds=("mamba2 only", "attention only", "moe only", "mamba2 dense"),
)
MODELS = {"llama": LLAMA, "mixtral": MOE, "deepseek": MLA, "gpt": GPT, "hybrid": HYBRID}


def tuned(text, model=LLAMA):
    """The model with the adapters of a text."""
    return model.with_adapters(parse_training(text))


def on_rank(model, figure, **knobs):
    """Sum of a figure of all operations of one rank that has the whole model."""
    operations = parts(model, Plans(**knobs), EXACT)
    counts = {str(kind): model.pattern.count(kind) for kind in model.kinds} | {"embedding": 1, "head": 1}
    return sum(n * sum(figure(op) for op in operations[part]) for part, n in counts.items())


def matrix_flops(work):
    """2 m k n of the products of a pass, without the paper's - 1."""
    kernels = work.kernels if work else ()
    return sum(2 * k.batch * k.m * k.k * k.n for k in kernels if k.unit != "vector")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # PEFT's print_trainable_parameters of Llama 3 8B, all linear layers
        ("lora:r=16", 41_943_040),
        ("lora:r=8,targets=q+v", 32 * 8 * (E + E + E + KV)),  # PEFT's default: 3,407,872
        ("lora:r=8,targets=qkv+fc1", 32 * 8 * (E + E + 2 * KV + E + 2 * F)),
        ("qlora:r=64,targets=head", 64 * (E + V)),
    ],
)
def test_trained_parameters(text, expected):
    """Rank × (input + output) of every adapted layer, as operations count them too."""
    model = tuned(text)
    assert model.trained_parameters == expected
    assert on_rank(model, lambda op: op.weights) == expected


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("text", ["lora:r=8", "lora:r=8,targets=attention", "lora:r=8,targets=mlp,dropout"])
def test_operations_hold_the_frozen_model_and_the_adapters(name, text):
    """Whatever the model: the adapters' weights by the formula, and the frozen ones in 2 bytes each."""
    model = replace(tuned(text, MODELS[name]), mtp=0)
    assert on_rank(model, lambda op: op.weights) == model.trained_parameters
    assert on_rank(model, lambda op: op.frozen_bytes) == 2 * model.parameters


def test_tensor_ranks_hold_replicated_and_cut_matrices():
    """By hand for tp = 4: column-parallel layers have A whole and B cut, row-parallel ones the opposite."""
    r, m = 8, 4
    column = 3 * E + (E + 2 * KV) / m + 2 * E + 2 * F / m  # q, k, v, gate, up
    row = (E + F) / m + 2 * E  # proj, fc2
    assert on_rank(tuned("lora:r=8"), lambda op: op.weights, tp=4.0) == 32 * r * (column + row)


def test_products_of_a_frozen_layer():
    """Backward has half of its products left; forward and backward of adapters are all there."""
    full, lora = LLAMA, tuned("lora:r=16")
    counts = {
        name: [on_rank(model, lambda op, way=way: matrix_flops(getattr(op, way))) for model in (full, lora)]
        for name, way in {"forward": "forward", "dx": "backward", "dw": "weight"}.items()
    }
    adapters = 2 * T * lora.trained_parameters
    assert counts["forward"][1] == pytest.approx(counts["forward"][0] + adapters, rel=1e-12)
    assert counts["dx"][1] == pytest.approx(counts["dx"][0] + adapters, rel=1e-12)
    assert counts["dw"][1] == pytest.approx(adapters, rel=1e-12)


def test_model_flops_are_4_for_a_frozen_weight():
    """4 N + 6 for adapters; attention keeps 3 forward passes; recomputation adds one of layers."""
    model, forward = tuned("lora:r=16"), forward_flops(LLAMA)
    expected = 2 * (forward.layers + forward.ends) + 3 * forward.attention + 6 * 41_943_040
    assert model_flops_per_token(model) == expected
    again = forward.layers + forward.attention + 2 * 41_943_040
    assert hardware_flops_per_token(model, "full") == expected + again


def test_saved_activations_of_a_layer():
    """By hand, in elements of a token: what a layer without an adapter does not save, and what adapters do.

    Norms save their input; rotated queries and keys, the result of attention and the inputs of SwiGLU are
    needed for the gradient of inputs. Inputs of qkv, of fc1, of the projection (shared with attention) and of
    fc2 are needed by adapters alone, with x A.
    """
    plan = Plans()

    def saved(model):
        return Footprint.from_operations(layer(model, plan, EXACT), plan).saved / (2 * T)

    full = saved(LLAMA)
    assert saved(tuned("lora:r=16")) == full + 7 * 16  # all inputs, and x A of seven adapters
    inputs = {"qkv": E, "fc1": E, "fc2": F}  # that of the projection is saved by attention
    assert saved(tuned("lora:r=16,targets=proj")) == full - sum(inputs.values()) + 16
    for target, width in inputs.items():
        others = sum(inputs.values()) - width
        assert saved(tuned(f"lora:r=16,targets=proj+{target}")) == full - others + 2 * 16
    assert saved(tuned("lora:r=16,targets=q")) == full - inputs["fc1"] - inputs["fc2"] + 16


def test_a_layer_saves_what_torch_saves():
    """Autograd saves x and x A of x W + x A B with a frozen W, and nothing of a frozen layer alone."""
    torch = pytest.importorskip("torch")
    tokens, i, o, r = 32, 64, 48, 4
    x = torch.randn(tokens, i, requires_grad=True)
    frozen = torch.randn(i, o)
    a, b = torch.randn(i, r, requires_grad=True), torch.randn(r, o, requires_grad=True)
    weights = {tensor.untyped_storage().data_ptr() for tensor in (frozen, a, b)}

    def saved(run):
        kept = {}
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: kept.setdefault(t.untyped_storage().data_ptr(), t.numel()) and t, lambda t: t
        ):
            result = run()
        assert result.requires_grad
        return sum(n for storage, n in kept.items() if storage not in weights)

    assert saved(lambda: x @ frozen) == 0
    assert saved(lambda: x @ frozen + (x @ a) @ b) == tokens * (i + r)


@pytest.mark.parametrize(("base", "bits"), [("16-bit", 16), ("int8", 8), ("nf4", 4.127), ("nf4-single", 4.5)])
def test_bytes_of_the_base(base, bits):
    """Linear layers as packed (QLoRA: 4 bits and 0.127 of constants); the rest in 16 bits."""
    model = tuned(f"lora:base={base}")
    linear = 32 * (E * (E + 2 * KV) + E * E + 3 * E * F)
    ends = 2 * V * E + 65 * E
    expected = linear * bits / 8 + ends * 2
    assert on_rank(model, lambda op: op.frozen_bytes) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("zero", "bytes_each", "gathered", "cast"),
    [  # of a weight: all bytes, those gathered or whole, traffic of its cast in a forward pass
        (0, 4, 2, 4 + 2),  # read and written
        (1, 4, 2, 4 + 2),
        (2, 6, 2, 0),  # FSDP without resharding: shards of 4 bytes, and a whole copy of 2
        (3, 4, 2, 0),  # FSDP: shards of 4 bytes, gathered in 2
    ],
)
def test_bytes_of_a_base_in_fp32(zero, bytes_each, gathered, cast):
    """Autocast casts a frozen matrix in each forward pass, and keeps the result for backward; FSDP shards."""
    narrow, wide = tuned("lora"), tuned("lora:dtype=fp32")
    total = LLAMA.parameters
    matrices = total - V * E - 65 * E  # all but embedding and norms
    assert on_rank(wide, lambda op: op.frozen_bytes, zero=zero) == gathered * total
    assert on_rank(wide, lambda op: op.frozen_fp32_bytes, zero=zero) == (bytes_each - gathered) * total
    casts = [on_rank(model, lambda op: op.forward.cast, zero=zero) for model in (narrow, wide)]
    assert casts[1] - casts[0] == cast * matrices
    saved = [on_rank(model, lambda op: op.saved_bytes, zero=zero) for model in (narrow, wide)]
    assert saved[1] - saved[0] == (2 * matrices if cast else 0)


def test_a_base_in_fp32_of_training_in_fp32():
    """There is nothing to cast, nor anything to hold besides."""
    narrow, wide = tuned("lora"), tuned("lora:dtype=fp32")
    for figure in ("frozen_bytes", "frozen_fp32_bytes", "saved_bytes"):
        each = [on_rank(model, attrgetter(figure), precision="fp32") for model in (narrow, wide)]
        assert each[0] == each[1]


def test_autocast_saves_a_copy_of_a_frozen_matrix():
    """Of torch: the copy in 16 bits alone, as there is no gradient of the matrix."""
    torch = pytest.importorskip("torch")
    frozen = torch.nn.Linear(64, 32, bias=False).requires_grad_(False)
    kept = []
    with (
        torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor), lambda _: None),
        torch.autocast("cpu", dtype=torch.bfloat16),
    ):
        frozen(torch.randn(4, 64, requires_grad=True))
    assert [(tensor.numel(), tensor.dtype) for tensor in kept] == [(64 * 32, torch.bfloat16)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lora:dtype=bf16", "dtype = 'bf16': must be one of 16-bit, fp32"),
        ("lora:base=operand,dtype=fp32", "dtype = 'fp32': base = 'operand' holds no copy above 16 bits"),
    ],
)
def test_a_dtype_that_cannot_be(text, message):
    with pytest.raises(InputError, match=message):
        parse_training(text)


def test_a_base_held_as_operands():
    """fp8 alone takes 1 byte of a linear layer, and no cast; else 2, and a copy of 1."""
    linear = 32 * (E * (E + 2 * KV) + E * E + 3 * E * F)
    rest = 2 * (2 * V * E + 65 * E)
    wide, operand = tuned("lora"), tuned("lora:base=operand")
    assert on_rank(wide, lambda op: op.frozen_bytes, precision="fp8") == 3 * linear + rest
    assert on_rank(operand, lambda op: op.frozen_bytes, precision="fp8") == linear + rest
    casts = [on_rank(model, lambda op: op.forward.cast, precision="fp8") for model in (wide, operand)]
    assert casts[0] - casts[1] == pytest.approx(EXACT.traffic.weight_cast_passes * 4 * linear)
    with pytest.raises(InputError, match="needs a precision such as fp8"):
        tc.estimate(operand, "dgx-h100", tc.Plan(), gbs=1)


def test_packed_weights_are_dequantised_in_both_passes():
    """Read in 4.127 bits, written in 16, before each product of forward and of backward."""
    base, packed = tuned("lora"), tuned("qlora")
    for way in ("forward", "backward"):
        more = [on_rank(model, lambda op, way=way: getattr(op, way).nbytes) for model in (base, packed)]
        linear = 32 * (E * (E + 2 * KV) + E * E + 3 * E * F)
        assert more[1] - more[0] == pytest.approx(linear * (2 + 4.127 / 8), rel=1e-4)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_states_are_those_of_adapters(zero):
    """By hand: 2 + 4 + 12 bytes of an adapter's weight and 2 of a frozen one, cut as ZeRO says."""
    plan = tc.Plan(dp=8, zero=zero, fast_dp=8)
    est = tc.estimate(tuned("lora:r=16"), "dgx-h100", plan, gbs=8, assumptions="megatron-core-2025")
    n, trained, held = 8, 41_943_040, 2 * LLAMA.parameters
    weights = (2 * trained + held) / (n if zero == 3 else 1)
    assert est.memory["weights"] == pytest.approx(weights, rel=1e-3)  # the vocabulary is padded
    assert est.memory["gradients"] == pytest.approx(4 * trained / (n if zero >= 2 else 1), rel=1e-12)
    assert est.memory["optimizer"] == pytest.approx(12 * trained / (n if zero >= 1 else 1), rel=1e-12)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "knobs", [{}, {"recompute": "full"}, {"zero": 3}, {"tp": 2, "dp": 4, "fast_tp": 2, "fast_dp": 4}]
)
def test_adapters_take_less_than_all_weights(name, knobs):
    """LoRA is never slower than full fine-tuning of the same plan, nor larger; a larger rank is both.

    Layers are captured in graphs: else the host has more to issue with adapters, and may set the pace.
    """
    placed = {"dp": 8, "fast_dp": 8} | knobs
    plan = tc.Plan(**placed)
    times, sizes = [], []
    for text in ("lora:r=4", "lora:r=32", "lora:r=64", "full"):
        adapters = parse_training(text)
        model = MODELS[name] if adapters is None else MODELS[name].with_adapters(adapters)
        est = tc.estimate(model, "dgx-h100", plan, gbs=64, assumptions="megatron-core-2025+graphs=layer")
        times.append(est.step_seconds)
        sizes.append(est.memory_bytes)
    assert times == sorted(times)
    assert sizes == sorted(sizes)


def test_gradients_of_adapters_alone_are_reduced():
    """Data parallelism sends next to nothing; ZeRO-3 still gathers the frozen weights, packed ones packed."""
    plan = tc.Plan(dp=8, fast_dp=1, dp_overlap=False, zero=1)
    wide = replace(plan, zero=3)
    full, lora, qlora = (LLAMA, tuned("lora"), tuned("qlora"))
    comm = {
        (zero.zero, i): tc.estimate(
            model, "dgx-h100", zero, gbs=8, assumptions="megatron-core-2025"
        ).breakdown["dp_comm"]
        for zero in (plan, wide)
        for i, model in enumerate((full, lora, qlora))
    }
    assert comm[1, 1] < 0.05 * comm[1, 0]
    assert comm[1, 2] == comm[1, 1]
    assert 0.3 * comm[3, 0] < comm[3, 1] < comm[3, 0]
    assert comm[3, 2] < 0.6 * comm[3, 1]


def test_a_packed_base_needs_products_at_16_bits():
    """fp8 products of dequantised weights are refused, as are adapters with SUMMA."""
    plan = tc.Plan(precision="fp8")
    with pytest.raises(InputError, match="packed base"):
        tc.estimate(tuned("qlora"), "dgx-h100", plan, gbs=1)
    summa = tc.Plan(tp_kind="summa", tp=2, tp2=2, panels=2)
    with pytest.raises(InputError, match="SUMMA"):
        tc.estimate(tuned("lora"), "dgx-h100", summa, gbs=1, assumptions="paper")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("loro", "did you mean lora"),
        ("lora:r=0", "r = 0: must be a whole number of at least 1"),
        ("lora:r=1.5", "r = 1.5"),
        ("lora:r=4,r=5", "stands there twice"),
        ("lora:alpha=4", "'alpha' is no setting"),
        ("lora:base=fp9", "base = 'fp9'"),
        ("lora:targets=q+zz", "'zz' is none of"),
        ("lora:targets=", "'' is none of"),
        ("lora:dropout=0.1", "takes no value"),
        ("full:r=3", "full has no settings"),
    ],
)
def test_wrong_texts_are_named(text, words):
    """Each names the setting, its value, and what is allowed."""
    with pytest.raises(InputError, match=words):
        parse_training(text)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("gpt", "lora:targets=gate", "'gate' is none of its q, k, v, qkv, proj, up, fc1, fc2, head"),
        ("llama", "lora:targets=kv_up", "'kv_up' is none"),
        ("deepseek", "lora:targets=q", "'q' is none"),
        ("llama", "lora:targets=qkv+k", "qkv includes k"),
        ("llama", "lora:targets=fc1+all", "fc1 includes gate, up"),
    ],
)
def test_targets_that_a_model_lacks(name, text, words):
    """The message lists those that it has."""
    with pytest.raises(InputError, match=words):
        tuned(text, MODELS[name])


def test_adapters_check_themselves():
    """All mistakes at once."""
    with pytest.raises(InputError, match=r"(?s)rank = 0.*base = 'x'"):
        Adapters(rank=0, base="x")


def test_adapters_that_cast_their_input_save_it_each():
    """PEFT: q, k, v, gate and up save a copy each, where Megatron's or torchtune's share one (by hand)."""
    plan = Plans()

    def saved(model, **figures):
        assumed = EXACT.with_values({f"memory.{name}": value for name, value in figures.items()})
        return Footprint.from_operations(layer(model, plan, assumed), plan).saved / (2 * T)

    shared, copied = saved(tuned("lora:r=16")), saved(tuned("lora:r=16"), shares_adapter_inputs=False)
    assert copied - shared == 2 * E + E  # of q, k, v one is shared; of gate and up one


def test_mlperf_saves_the_gates_of_adapters_in_8_bits():
    """Gate and up of SwiGLU, a byte less of each element, where products have 8 bits (by hand)."""

    def saved(model, precision, **figures):
        plan = Plans(precision=precision)
        assumed = EXACT.with_values({f"memory.{name}": value for name, value in figures.items()})
        return Footprint.from_operations(layer(model, plan, assumed), plan).saved

    def saves(model, precision):
        return saved(model, precision) - saved(model, precision, adapters_save_8bit_gates=True)

    adapted = tuned("lora:r=16,targets=qkv+proj")
    assert saves(adapted, "fp8") == 2 * T * F
    assert saves(adapted, "bf16") == 0
    assert saves(replace(adapted, adapters=None), "fp8") == 0
    assert resolve("mlperf-2025").memory.adapters_save_8bit_gates
    assert not resolve("megatron-bridge-2026").memory.adapters_save_8bit_gates


def test_a_packed_base_may_widen_activations():
    """LitGPT: all but masks twice as wide; norms, which are in fp32, as they were."""
    plan, assumed = Plans(), EXACT.with_values({"memory.widens_packed": True, "memory.norms_in_fp32": True})
    narrow = Footprint.from_operations(layer(tuned("lora:dropout"), plan, assumed), plan).saved
    wide = Footprint.from_operations(layer(tuned("qlora:dropout"), plan, assumed), plan).saved
    masks = T * (6 * E + F)  # of q, k, v, proj, gate, up; fc2: a byte each
    norms = 2 * T * (4 * E + 4)
    assert wide - norms - masks == 2 * (narrow - norms - masks)
