"""Shapes of models: published parameter counts, patterns of layers, attended pairs."""

import re
from dataclasses import replace
from itertools import product
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traincast.catalog.load import load_model
from traincast.core.errors import InputError
from traincast.model.adapters import Adapters
from traincast.model.blocks import KINDS, Experts, Kind, Latent, Local
from traincast.model.linear_attention import GatedDelta, Mamba2
from traincast.model.model import Model

TINY: dict[str, Any] = {"name": "tiny", "layers": 4, "hidden": 64, "heads": 4, "ffn": 256, "seq": 128}


@pytest.mark.parametrize(
    ("name", "billions"),
    [  # parameters in the safetensors of the model's Hugging Face card, unless said otherwise
        ("llama-2-7b", 6.738),
        ("llama-2-13b", 13.016),
        ("llama-2-70b", 68.977),
        ("llama-3-8b", 8.030),
        ("llama-3-70b", 70.554),
        ("llama-3.2-1b", 1.2358),
        ("llama-3.2-3b", 3.2127),
        ("llama-3.1-405b", 405.85),
        ("mistral-7b", 7.242),
        ("mixtral-8x7b", 46.703),
        ("mixtral-8x22b", 140.62),
        ("deepseek-v2", 235.74),
        ("deepseek-v2-lite", 15.706),
        ("deepseek-v3", 671.03),  # README_WEIGHTS: 671B without the multi-token-prediction module
        ("qwen2.5-0.5b", 0.49403),
        ("qwen2.5-1.5b", 1.5437),
        ("qwen2.5-3b", 3.0859),
        ("qwen2.5-7b", 7.616),
        ("qwen2.5-14b", 14.770),
        ("qwen2.5-32b", 32.764),
        ("qwen2.5-72b", 72.706),
        ("qwen3-0.6b", 0.59605),
        ("qwen3-1.7b", 1.7206),  # arXiv 2505.09388, table 1: 1.7B
        ("qwen3-4b", 4.0225),
        ("qwen3-8b", 8.191),
        ("qwen3-14b", 14.768),
        ("qwen3-32b", 32.762),
        ("qwen3-30b-a3b", 30.532),
        ("qwen3-235b-a22b", 235.09),
        ("nemotron-3-nano", 31.578),
        ("nemotron-3-super", 120.67),
        ("gpt-oss-20b", 20.91),  # gpt-oss model card, table 1
        ("gpt-oss-120b", 116.83),  # the same
        ("gemma-2b", 2.506),  # arXiv 2403.08295, table 2: 524,550,144 + 1,981,884,416
        ("gemma-7b", 8.538),
        ("gemma-2-9b", 9.242),
        ("gemma-2-27b", 27.227),
        ("gemma-3-27b", 27.009),
        ("gemma-4-26b", 25.233),
        ("qwen2.5-vl-3b", 3.7546),
        ("qwen2.5-vl-7b", 8.2922),
        ("qwen2.5-vl-72b", 73.411),
        ("qwen3-vl-4b", 4.4378),
        ("qwen3-vl-8b", 8.7671),
        ("qwen3-vl-30b-a3b", 31.071),
        ("qwen3-coder-480b-a35b", 480.15),
        ("gemma-2-2b", 2.6143),
        ("gemma-3-1b", 0.99989),
        ("phi-3-mini", 3.8211),
        ("phi-4", 14.660),
        ("olmo-2-1b", 1.4849),
        ("olmo-2-7b", 7.2986),
        ("olmo-2-13b", 13.716),
        ("olmo-2-32b", 32.234),
        ("mistral-nemo-12b", 12.248),
        ("mistral-small-24b", 23.572),
        ("mistral-large-123b", 122.61),
        ("smollm2-135m", 0.13452),
        ("smollm2-360m", 0.36182),
        ("smollm2-1.7b", 1.7114),
        ("smollm3-3b", 3.0751),
        ("granite-3.3-8b", 8.1709),
        ("tinyllama-1.1b", 1.1000),
        ("gpt-neox-20b", 20.555),  # arXiv 2204.06745, section 2.1: 20,554,567,680
        ("gpt2", 0.12444),  # GPT2LMHeadModel of transformers: 124,439,808
        # the model that transformers 5.23 makes of its config.json, counted
        ("gpt2-medium", 0.354823168),
        ("gpt2-large", 0.77403008),
        ("gpt2-xl", 1.5576112),
        ("llama-30b", 32.52894362),
        ("llama-65b", 65.28566067),
        ("codellama-34b", 33.7439703),
        ("yi-6b", 6.06103552),
        ("yi-34b", 34.38891725),
        ("deepseek-llm-7b", 6.910365696),
        ("deepseek-llm-67b", 67.42500147),
        ("codestral-22b", 22.24728269),
        ("phi-2", 2.77968384),
        ("glm-4-9b", 9.400),
        ("glm-4-32b", 32.566),
        ("gemma-3-270m", 0.2681),
        ("minimax-m2", 228.69),
        # Built by transformers 5.23 on the meta device, without the vision tower.
        ("qwen3.5-0.8b", 0.752393024),
        ("qwen3.5-9b", 8.953803264),
        ("qwen3.5-27b", 26.895998464),
        ("qwen3.5-35b-a3b", 34.660610688),
        ("phi-4-mini", 3.83602176),
        ("phi-3-medium", 13.96023808),
        ("pythia-1.4b", 1.414647808),
        ("pythia-2.8b", 2.77520896),
        ("pythia-6.9b", 6.857302016),
        ("pythia-12b", 11.84607232),
        ("moonlight-16b-a3b", 15.96010854),
        ("gpt-j-6b", 6.050882784),
        ("opt-1.3b", 1.31575808),
        ("opt-6.7b", 6.658473984),
        ("opt-13b", 12.85347328),
        ("opt-30b", 29.97454029),
        ("opt-66b", 65.7197015),
        ("bloom-7b1", 7.069016064),
        ("bloom-176b", 176.2472714),
        ("falcon-7b", 6.921720704),
        ("falcon-40b", 41.30329395),
        ("falcon-180b", 178.5570888),
        ("mpt-7b", 6.649286656),
        ("mpt-30b", 29.9572009),
        ("starcoder2-15b", 15.95788902),
        ("dbrx", 131.5965235),
        ("command-r-plus", 103.8106747),
        ("olmoe-1b-7b", 6.919161856),
        ("qwen1.5-moe-a2.7b", 14.31578419),
        ("deepseek-moe-16b", 16.375728128),  # safetensors of its Hugging Face card
        ("pure-gdn-300m", 0.308),  # Primus, gdn-guide.md
        (
            "pure-kda-300m",
            0.30354,
        ),  # 12 x (1.7604 + 12.583 MLP) + 131.33 vocabulary, in millions; kda-guide.md: 0.302
        ("vit-l-16", 0.3043),  # timm, vit_large_patch16_224: 304,326,632
    ],
)
def test_published_parameters(name: str, billions: float) -> None:
    assert load_model(name).parameters / 1e9 == pytest.approx(billions, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "embedding", "rest"),
    [
        ("nemotron-4-15b", 3.1, 12.5),  # arXiv 2402.16819, section 2
        ("nemotron-4-340b", 9.4, 331.6),  # arXiv 2406.11704, section 2.2
        ("gemma-2-9b", 0.918, 8.324),  # arXiv 2408.00118, table 2
        ("gemma-2-27b", 1.180, 26.048),  # the same
        ("gemma-3-1b", 0.302, 0.698),  # arXiv 2503.19786, table 1
        ("gemma-3-4b", 0.675, 3.209),  # the same
        ("gemma-3-12b", 1.012, 10.759),  # the same
        ("gemma-3-27b", 1.416, 25.600),  # arXiv 2503.19786, table 1, which has 262144 tokens
    ],
)
def test_published_parts(name: str, embedding: float, rest: float) -> None:
    model = load_model(name)
    assert model.vocab is not None
    table = model.vocab * model.hidden * (1 if model.tied else 2) / 1e9
    assert table == pytest.approx(embedding, abs=0.05)
    assert model.parameters / 1e9 - table == pytest.approx(rest, abs=0.06)


@pytest.mark.parametrize(
    ("name", "billions", "off"),
    [
        ("grok-1", 314, 0.006),  # xai-org/grok-1, README: 314B, which is the layers alone (314.88)
        ("llama-4-scout", 109, 0.012),  # model card: 109B, 0.9B of which see images
        ("llama-4-maverick", 400, 0.002),  # model card: 400B
        ("nemotron-h-8b", 8.1, 0.001),  # arXiv 2504.03624, table 1: 8.1B
        ("nemotron-h-56b", 56.3, 0.001),  # the same: 56.3B
        ("glm-4.5", 355, 0.007),  # arXiv 2508.06471, table 1: 355B, some of which are not of these layers
        ("glm-4.5-air", 106, 0.009),  # the same: 106B
        ("qwen3-next-80b-a3b", 80, 0.005),  # its model card: 80B
        ("kimi-k2", 1040, 0.014),  # arXiv 2507.20534: 1.04T; the files published hold 1.026T
    ],
)
def test_published_roughly(name: str, billions: float, off: float) -> None:
    assert load_model(name).parameters / 1e9 == pytest.approx(billions, rel=off)


@pytest.mark.parametrize(
    ("name", "billions", "embeddings", "off"),
    [  # embeddings: of the two tables of vocabulary, how many the source counts
        ("mixtral-8x7b", 12.9, 2, 0.002),  # Mistral AI, announcement of Mixtral 8x7B
        ("mixtral-8x22b", 39.1, 2, 0.002),  # Mistral AI, model card: 39.1B
        ("deepseek-v2", 21.4, 2, 0.002),  # arXiv 2405.04434: 21B
        ("deepseek-v3", 36.6, 1, 0.001),  # README_WEIGHTS: 36.6B, the head counted, the embedding not
        ("kimi-k2", 32.6, 2, 0.01),  # arXiv 2507.20534: 32.6B
        ("qwen3-30b-a3b", 3.3, 2, 0.02),  # model card: 3.3B
        ("qwen3-235b-a22b", 22.0, 2, 0.01),  # model card: 22B
        ("qwen3-next-80b-a3b", 3.0, 0, 0.1),  # model card: 3B
        ("glm-4.5", 32, 0, 0.01),  # arXiv 2508.06471, table 1: 32B
        ("glm-4.5-air", 12, 0, 0.02),  # the same: 12B
        ("gpt-oss-20b", 3.61, 1, 0.001),  # model card, table 1: the head counted, the embedding not
        ("gpt-oss-120b", 5.13, 1, 0.001),  # the same
        ("llama-4-scout", 17, 2, 0.02),  # model card: 17B
        ("llama-4-maverick", 17, 2, 0.02),  # the same
    ],
)
def test_published_active_parameters(name: str, billions: float, embeddings: int, off: float) -> None:
    model = load_model(name)
    assert model.vocab is not None
    counted = model.active_parameters - (2 - embeddings) * model.vocab * model.hidden
    assert counted / 1e9 == pytest.approx(billions, rel=off)


def test_multi_token_prediction() -> None:
    """DeepSeek-V3, README_WEIGHTS: the module has 11.5B parameters."""
    assert load_model("deepseek-v3").mtp_parameters / 1e9 == pytest.approx(11.5, abs=0.15)


def test_defaults_are_those_of_the_paper() -> None:
    model = load_model("gpt3-1t")
    assert (model.causal, model.mlp, model.norm, model.positions, model.vocab) == (
        False,
        "gelu",
        "layernorm",
        "none",
        None,
    )
    assert model.attended_pairs(local=False) == 2048**2
    assert model.pattern == (Kind("attention", "dense"),) * 128


@pytest.mark.parametrize(
    ("kind", "weights"),
    [(None, 0), ("head", 2 * 16), ("full", 64 + 32), ("plain", 0)],  # heads 4 x 16, groups 2 x 16
)
def test_norms_of_queries_and_keys(kind: Any, weights: int) -> None:
    bare = Model(**TINY, kv_heads=2)
    assert replace(bare, qk_norm=kind).parameters - bare.parameters == 4 * weights


# Patterns and pairs


@given(st.integers(1, 40), st.integers(0, 12), st.integers(0, 12), st.integers(1, 6))
def test_pattern(layers: int, global_every: int, first_dense: int, every: int) -> None:
    experts = Experts(experts=8, topk=2, ffn=64, first_dense=first_dense, every=every)
    model = Model(
        **TINY | {"layers": layers}, local=Local(window=16, global_every=global_every), experts=experts
    )
    global_layers = set(range(global_every, layers + 1, global_every)) if global_every else set()
    moe = set(range(first_dense + every, layers + 1, every))
    assert model.pattern == tuple(
        Kind("attention" if i in global_layers else "local", "moe" if i in moe else "dense")
        for i in range(1, layers + 1)
    )
    assert set(model.kinds) == set(model.pattern)
    assert len(model.kinds) <= 4
    assert model.last_kind == model.pattern[-1]
    assert model.layer_parameters() == sum(model.kind_parameters(kind) for kind in model.pattern)
    assert model.active_parameters <= model.parameters


@given(st.sets(st.integers(1, 12), min_size=1))
def test_pattern_layer_by_layer(layers: set[int]) -> None:
    model = Model(**TINY | {"layers": 12}, local=Local(window=16, layers=tuple(sorted(layers))))
    assert {i for i, kind in enumerate(model.pattern, start=1) if kind.local} == layers


@given(st.integers(1, 40), st.integers(1, 50), st.booleans(), st.booleans())
def test_attended_pairs(seq: int, window: int, chunked: bool, causal: bool) -> None:
    model = Model(**TINY | {"seq": seq}, causal=causal, local=Local(window=window, chunked=chunked))
    full, near = model.attended_pairs(local=False), model.attended_pairs(local=True)
    assert full == sum(k <= q or not causal for q, k in product(range(seq), repeat=2))
    assert near <= full
    if chunked:
        assert near == sum(
            (k <= q or not causal) and q // window == k // window for q, k in product(range(seq), repeat=2)
        )
    elif causal:
        assert near == sum(q - window < k <= q for q, k in product(range(seq), repeat=2))
    if window >= seq:
        assert near == full


# Mistakes

LATENT = Latent(kv_rank=32, nope_dim=16, rope_dim=8, value_dim=16)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"mlp": "tanh"}, "mlp = 'tanh': must be one of gelu, relu, relu2, silu, xielu, swiglu, geglu"),
        ({"qk_norm": "all"}, "qk_norm = 'all': must be one of head, full, plain, None"),
        ({"norms": 3}, "norms = 3: must be 2 or 4"),
        ({"kv_heads": 3}, "kv_heads = 3: must divide heads = 4"),
        ({"local": Local(window=0)}, "local.window = 0: must be a whole number of at least 1"),
        ({"local": Local(window=8, layers=(2, 5))}, "local.layers: 5 is none of the layers 1 to 4"),
        (
            {"latent": LATENT, "head_dim": 16},
            "head_dim = 16: latent gives the widths of a head; keep one of the two",
        ),
        (
            {"latent": LATENT, "attention_gate": True},
            "attention_gate = True: not modelled with latent attention, unless gate_per_head",
        ),
        (
            {"positions": "learned", "max_positions": 64},
            "seq = 128: must be at most max_positions = 64, which are learned",
        ),
        ({"experts": Experts(experts=2, topk=3, ffn=64)}, "experts.topk = 3: must be at most experts = 2"),
        ({"experts": Experts(experts=2, topk=1, ffn=64, load=(1,))}, "experts.load: holds 1 numbers"),
        ({"experts": Experts(experts=2, topk=1, ffn=64, load=(0, 0))}, "experts.load: all are 0"),
        (
            {"experts": Experts(experts=2, topk=1, ffn=64, imbalance=0.5)},
            "experts.imbalance = 0.5: must be a factor of at least 1",
        ),
    ],
)
def test_mistakes(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError) as caught:
        Model(**TINY | change)
    [message] = caught.value.problems
    assert message.startswith(problem)


def test_all_mistakes_at_once() -> None:
    with pytest.raises(InputError) as caught:
        Model(**TINY | {"layers": 0, "norm": "batch", "experts": Experts(experts=0, topk=1, ffn=64)})
    assert [problem.split(" ")[0] for problem in caught.value.problems] == [
        "layers",
        "experts.experts",
        "norm",
    ]


# Layers of other kinds

STATES: Final = Mamba2(heads=4, head_dim=16, state=32, groups=2)


def test_kinds_are_given_layer_by_layer_or_for_a_stretch_that_repeats() -> None:
    experts = Experts(experts=4, topk=2, ffn=16)
    fields: dict[str, Any] = TINY | {"layers": 6} | {"mamba2": STATES, "experts": experts}
    stretch = Model(**fields, layer_kinds=("mamba2 only", "moe only", "attention only"))
    assert [str(kind) for kind in stretch.pattern] == [*stretch.layer_kinds] * 2
    assert stretch.pattern == Model(**fields, layer_kinds=stretch.layer_kinds * 2).pattern
    assert {KINDS[str(kind)] for kind in stretch.pattern} == set(stretch.kinds)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"layer_kinds": ("mamba3 only",)}, "layer_kinds: 'mamba3 only': must be one of dense"),
        ({"layer_kinds": ("dense",) * 3}, "layer_kinds: 3 of them must divide layers = 4"),
        ({"layer_kinds": ("mamba2 only",)}, "mamba2: missing; layer_kinds names layers that have it"),
        ({"mamba2": STATES}, "mamba2: no layer has it; name its layers in layer_kinds"),
        (
            {"layer_kinds": ("dense", "moe"), "experts": Experts(experts=4, topk=2, ffn=16, every=2)},
            "experts.every: layer_kinds is given as well; keep one of the two",
        ),
        (
            {"layer_kinds": ("dense", "dense only"), "parallel": True},
            "parallel = True: every layer must have two blocks",
        ),
        (
            {"layer_kinds": ("mamba2 dense",), "mamba2": replace(STATES, groups=3)},
            "mamba2.groups = 3: must divide mamba2.heads = 4",
        ),
        (
            {
                "layer_kinds": ("gated_delta dense",),
                "gated_delta": GatedDelta(key_heads=3, value_heads=4, key_dim=8, value_dim=8),
            },
            "gated_delta.key_heads = 3: must divide gated_delta.value_heads = 4",
        ),
        (
            {"layer_kinds": ("mamba2 dense",), "mamba2": STATES, "adapters": Adapters(targets=("q",))},
            "adapters.targets: 'q' is none of its proj,",
        ),
        ({"mamba2": replace(STATES, state=0)}, "mamba2.state = 0: must be a whole number of at least 1"),
        ({"layer_kinds": ("dense",), "heads": 0}, "heads = 0: must be a whole number of at least 1"),
    ],
)
def test_contradictions_of_kinds_are_named(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=re.escape(problem)):
        Model(**TINY | fields)
