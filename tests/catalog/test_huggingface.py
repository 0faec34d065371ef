"""Configurations of Hugging Face models. Those in data/hf hold the public figures of each model and no
others.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bounded_memory import bounded_memory
from traincast.catalog.huggingface import FEATURES
from traincast.catalog.huggingface.config import model_types, tables
from traincast.catalog.load import figures, load_model, model_names
from traincast.core.errors import InputError
from traincast.model.blocks import Local
from traincast.model.model import Model
from traincast.ui.cli.main import main
from traincast.ui.explorer.choices import model_info

HERE = Path(__file__).parents[1]
EXAMPLE = HERE.parent / "examples" / "llama-3.1-405b" / "config.json"
HYBRID = EXAMPLE.parents[1] / "nemotron-3-nano" / "config.json"
FILES = {path.stem: path for path in (HERE / "data" / "hf").glob("*.json")}
SEES = EXAMPLE.parents[1] / "qwen3-vl" / "config.json"
FILES |= {path.parent.name: path for path in (EXAMPLE, HYBRID, SEES)}
COUNTED = json.loads((HERE / "data" / "transformers_counts.json").read_text(encoding="utf-8"))
HUB = json.loads((HERE / "data" / "published_configurations.json").read_text(encoding="utf-8"))
NEVER_BUILT = {
    "emu3_text_model",
    "clip_vision_model",
    "siglip_vision_model",
}  # the text part of a type that is built as a whole
OF_TOWERS = {  # text parts, counted with the towers in vision_language_counts.json
    "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_moe_text", "glm4v_text", "glm4v_moe_text"
}  # fmt: skip
ALIASES = set(tables()["aliases"])
# No count of their parameters is known to us; Grok-2 is published under another type.
CODE_ALONE = {"telechat", "molmo", "orion", "llada2_moe", "grok-2", "nemotron-nas", "jina_bert"}
OF_A_RUN = {"seq": 128, "global_batch": None, "training_sequences": None}  # no configuration has these


def config(name: str, **change: Any) -> dict[str, Any]:
    """Read a configuration with changes; a change to ... drops the field."""
    content = json.loads(FILES[name].read_text(encoding="utf-8")) | change
    return {key: value for key, value in content.items() if value is not ...}


def known(model_type: str, **change: Any) -> dict[str, Any]:
    """Return a small configuration of a type, with changes."""
    return next(entry["config"] for entry in COUNTED if entry["config"]["model_type"] == model_type) | change


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Model]:
    """Return a function that loads the content of a configuration."""

    def load(content: dict[str, Any], seq: int | None = None) -> Model:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        return load_model(path, seq=seq)

    return load


def problems(load: Callable[..., Model], content: dict[str, Any]) -> tuple[str, ...]:
    """Return the problems of a configuration."""
    with pytest.raises(InputError) as caught:
        load(content)
    assert caught.value.subject.endswith("config.json")
    return caught.value.problems


@pytest.mark.parametrize(
    ("model_type", "field"),
    [("opt", "dropout"), ("xglm", "dropout"), ("gpt_neo", "resid_dropout"), ("mpt", "emb_pdrop")],
)
def test_dropout_by_its_other_names(model_type: str, field: str, load: Callable[..., Model]) -> None:
    assert load(known(model_type, **{field: 0.1})).dropout
    assert not load(known(model_type, **{field: 0.0})).dropout


def test_biases_of_qwen2_moe(load: Callable[..., Model]) -> None:
    """28 layers, each with biases of 28 heads of queries and 4 each of keys and values, of width 128."""
    explicit, default, off = (load(config("qwen2-57b-a14b", qkv_bias=flag)) for flag in (True, ..., False))
    assert explicit == default
    assert explicit.parameters - off.parameters == 28 * (28 + 4 + 4) * 128
    (problem,) = problems(load, config("qwen2-57b-a14b", qkv_bias="no"))
    assert problem == "qkv_bias = 'no': must be true or false"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (known("dinov2", mlp_ratio=[1]), "mlp_ratio = [1]: must be a number above 0"),
        (
            known("lfm2", block_auto_adjust_ff_dim=True, block_ffn_dim_multiplier=float("inf")),
            "ffn_dim_multiplier = inf: must be a number",
        ),
        (known("gpt_neo", attention_types=[["local", "x"]]), "must be a list of kinds and how often they"),
        (
            known("gpt_neo", attention_types=[[["local"], 5]]),
            "attention_types = [[['local'], 5]]: must have 4 layers",
        ),
        (known("ernie4_5_moe", moe_layer_end_index="x"), "moe_layer_end_index = 'x': must be a whole number"),
        (known("modernbert", layer_types=True), "layer_types = True: must be a list of"),
        (config("llama-4-scout"), "pixel_shuffle_ratio = inf: must be a number above 0"),
    ],
)
def test_fields_of_a_wrong_kind(content: dict[str, Any], problem: str, load: Callable[..., Model]) -> None:
    if "vision_config" in content:
        content["vision_config"]["pixel_shuffle_ratio"] = float("inf")
    assert problem in " ".join(problems(load, content))


def test_layers_of_modernbert_with_a_window(load: Callable[..., Model]) -> None:
    """The published base model: one layer in three, from the first, attends to all tokens (2412.13663)."""
    base = known("modernbert", num_hidden_layers=22, global_attn_every_n_layers=3, local_attention=128)
    local = load(base).local
    assert (local.window, len(local.layers), local.layers[:4]) == (129, 14, (2, 3, 5, 6))
    assert load(base | {"global_attn_every_n_layers": 1}).local is None


def test_classifiers_and_backbones_have_no_output_head(load: Callable[..., Model]) -> None:
    """`LlamaForSequenceClassification` has 3 rows of the width in place of those of the vocabulary."""
    lm, backbone, graded = (
        load(config("llama-3-8b", architectures=[name], id2label={"0": "a", "1": "b", "2": "c"}))
        for name in ("LlamaForCausalLM", "LlamaModel", "LlamaForSequenceClassification")
    )
    assert lm.parameters - backbone.parameters == lm.vocab * lm.hidden
    assert graded.parameters - backbone.parameters == 3 * lm.hidden
    assert not backbone.head


CLIP = {"model_type": "clip", "architectures": ["CLIPModel"], "projection_dim": 512, "text_config": {}}
SIGLIP = {"model_type": "siglip", "architectures": ["SiglipModel"], "text_config": {}}


@pytest.mark.parametrize(
    ("content", "parameters", "seq", "left_out"),
    [  # parameters of `vision_model` and `visual_projection` as transformers 5.23 builds them
        (CLIP | {"vision_config": {}}, 87_849_216, 50, "text tower"),
        (SIGLIP | {"vision_config": {}}, 85_797_120, 196, "text tower and pooling head"),
    ],
)
def test_contrastive_models_are_read_by_their_vision_tower(
    content: dict[str, Any], parameters: int, seq: int, left_out: str, load: Callable[..., Model]
) -> None:
    model = load(content)
    assert (model.parameters, model.seq, model.left_out) == (parameters, seq, left_out)


TEXT_PARTS = {  # of types read by their text part: its fields, and its parameters in transformers 5.23
    "mllama": (
        {"text_config": {"model_type": "mllama_text_model"}},
        9_775_192_080,  # its layers that attend to images included
        "vision tower",
    ),
    "glm_ocr": (
        {
            "text_config": {"model_type": "glm_ocr_text", "hidden_size": 1024, "intermediate_size": 4096}
            | {"num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 8}
            | {"vocab_size": 59392, "max_position_embeddings": 131072},
            "vision_config": {},
        },
        373_359_616,
        "vision tower",
    ),
    "step3p7": (
        {
            "text_config": {"model_type": "step3p7_text", "vocab_size": 128815, "hidden_size": 4096}
            | {"intermediate_size": 11264, "num_hidden_layers": 45, "moe_intermediate_size": 1280}
            | {"n_routed_experts": 288, "num_experts_per_tok": 8, "share_expert_dim": 1280}
            | {"max_position_embeddings": 128000},
        },
        195_843_833_088,
        "vision tower",
    ),
}


@pytest.mark.parametrize("model_type", TEXT_PARTS)
def test_text_parts_are_counted_alone_and_the_rest_is_named(
    model_type: str, load: Callable[..., Model]
) -> None:
    content, parameters, left_out = TEXT_PARTS[model_type]
    model = load({"model_type": model_type} | content)
    assert (model.parameters, model.left_out) == (parameters, left_out)


def test_a_part_that_only_a_field_names_is_said_to_be_left_out(load: Callable[..., Model]) -> None:
    """Fields of Qwen-VL and of the first LLaVA."""
    for part, said in (
        ({"visual": {"layers": 48}}, "vision tower"),
        ({"mm_vision_tower": "a"}, "vision tower"),
    ):
        assert load(config("llama-3-8b") | part).left_out == said


def test_types_by_the_name_of_the_architecture(load: Callable[..., Model]) -> None:
    """Some configurations, such as MiniCPM3-4B's, are published without a type."""
    fields = config("llama-3-8b")
    assert load({**fields, "model_type": ...} | {"model_type": None}) == load(fields)
    (problem,) = problems(load, fields | {"model_type": None, "architectures": ["OtherForCausalLM"]})
    assert problem.startswith("model_type = None: not a type that can be imported")


@pytest.mark.parametrize(("version", "biases"), [(2.6, ("qkv",)), ("4.0", ())])
def test_the_version_of_minicpm_v_says_what_its_text_model_is(
    version: object, biases: tuple[str, ...], load: Callable[..., Model]
) -> None:
    model = load(
        config("llama-3-8b") | {"model_type": "minicpmv", "architectures": ["MiniCPMV"], "version": version}
    )
    assert (model.biases, model.left_out) == (biases, "vision tower and resampler")


def test_both_spellings_of_a_field_are_read(load: Callable[..., Model]) -> None:
    """transformers reads `hidden_size` of GPT-2 as `n_embd` (`attribute_map`), and `num_experts` alike."""
    usual = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}
    fields = {usual.get(name, name): value for name, value in config("gpt2").items()}
    assert load(fields).parameters == load(config("gpt2")).parameters
    other = config("mixtral-8x7b", num_local_experts=..., n_routed_experts=8)
    assert load(other).parameters == load(config("mixtral-8x7b")).parameters


def test_a_model_named_chat_has_no_head_by_its_name(load: Callable[..., Model]) -> None:
    """`NanoChatModel` is the backbone, `InternVLChatModel` the whole."""
    fields = next(entry["config"] for entry in COUNTED if entry["config"]["model_type"] == "nanochat")
    assert not load(fields | {"architectures": ["NanoChatModel"]}).head


def test_mimo_as_it_is_published(load: Callable[..., Model]) -> None:
    """Lists of 0 and 1 as MiMo-V2-Flash has them, and transformers' words for the same."""
    known = next(entry["config"] for entry in COUNTED if entry["config"]["model_type"] == "mimo_v2_flash")
    layers = known["num_hidden_layers"]
    fields = {k: v for k, v in known.items() if k not in ("layer_types", "mlp_layer_types")}
    published = {"hybrid_layer_pattern": [0] + [1] * (layers - 1), "moe_layer_freq": [0] + [1] * (layers - 1)}
    words = {"layer_types": ["full_attention"] + ["sliding_attention"] * (layers - 1)}
    words |= {"mlp_layer_types": ["dense"] + ["sparse"] * (layers - 1)}
    assert load(fields | published).pattern == load(fields | words).pattern
    (problem,) = problems(load, fields | published | {"moe_layer_freq": "all"})
    assert problem == "moe_layer_freq = 'all': must be a list of 0 and 1"


def test_an_encoder_of_t5_has_no_decoder(load: Callable[..., Model]) -> None:
    """t5-small: 35,330,816 parameters in transformers 5.23."""
    model = load(config("t5-small", architectures=["T5EncoderModel"]))
    assert (model.parameters, model.layers, model.encoder, model.causal) == (35_330_816, 6, None, False)


def test_features_are_those_that_types_name() -> None:
    assert {*FEATURES} == {word for family in model_types().values() for word in family["features"].split()}


def test_every_family_has_a_configuration() -> None:
    types = {config(name).get("text_config", config(name))["model_type"] for name in FILES}
    types |= {content["text_config"]["model_type"] for content, _, _ in TEXT_PARTS.values()}
    types |= OF_TOWERS | CODE_ALONE | {entry["config"]["model_type"] for entry in COUNTED}
    hub = [entry["config"] for entry in HUB]
    types |= {fields.get("text_config", fields).get("model_type") for fields in hub} & set(model_types())
    assert types - ALIASES == set(model_types()) - NEVER_BUILT - ALIASES


@pytest.mark.parametrize("entry", HUB, ids=[entry["name"] for entry in HUB])
def test_configurations_with_remote_code(entry: dict[str, Any], load: Callable[..., Model]) -> None:
    """Fields of published configurations that shape the model, and parameters with their source."""
    parameters = load(entry["config"]).parameters
    assert parameters == pytest.approx(entry["parameters"], rel=entry["within"], abs=0)


PUZZLE = {"model_type": "nemotron-nas", "hidden_size": 8192, "num_attention_heads": 64, "vocab_size": 128256}
PUZZLE |= {"num_hidden_layers": 4, "max_position_embeddings": 131072}


def test_a_network_cut_out_by_a_search(load: Callable[..., Model]) -> None:
    """Widths of MLPs are multiples of 256 next to 2/3 of 8192 times 5.25, 2.625 and 1.3125."""
    blocks = [
        {"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 5.25}},
        {"attention": {"no_op": True}, "ffn": {"ffn_mult": 2.625}},
        {"attention": {"no_op": True}, "ffn": {"no_op": True}},
        {"attention": {"n_heads_in_group": 16}, "ffn": {"ffn_mult": 1.3125}},
    ]
    model, e = load(PUZZLE | {"block_configs": blocks}), 8192
    first = 2 * e * e + 2 * e * 8 * 128 + 3 * e * 28672 + 2 * e
    second, last = 3 * e * 14336 + e, 2 * e * e + 2 * e * 4 * 128 + 3 * e * 7168 + 2 * e
    assert model.parameters == 2 * 128256 * e + first + second + last + e
    assert list(map(str, model.pattern)) == ["dense", "dense only @1", "dense @2"]
    (problem,) = problems(load, PUZZLE | {"block_configs": blocks[:2]})
    assert problem.endswith("must hold a mapping for each of the 4 layers")
    blocks[2] = {"attention": {"replace_with_linear": True}, "ffn": {"ffn_mult": 2.625}}
    (problem,) = problems(load, PUZZLE | {"block_configs": blocks})
    assert problem.endswith("cannot be represented; replace_with_linear must be false")


@pytest.mark.parametrize(
    ("model_type", "field", "value"),
    [("gpt2", "add_cross_attention", True), ("bert", "position_embedding_type", "alibi")],
)
def test_remote_code_under_a_known_type_is_refused(
    model_type: str, field: str, value: str, load: Callable[..., Model]
) -> None:
    """A decoder that attends to an encoder, and embedding models without a table of positions."""
    known = next(entry["config"] for entry in COUNTED if entry["config"]["model_type"] == model_type)
    (problem,) = problems(load, known | {field: value})
    assert problem.startswith(f"{field} = {value!r}: cannot be represented")


@pytest.mark.parametrize(
    ("pattern", "given"),
    [(4, {}), (4, {"sliding_window_pattern": "LLLG"}), (2, {"sliding_window_pattern": 2})],
)
def test_layers_with_a_window_by_interval_or_letters(
    pattern: int, given: dict[str, Any], load: Callable[..., Model]
) -> None:
    """Older configurations of Command R7B and EXAONE 4 have no `layer_types`."""
    for model_type in ("cohere2", "exaone4"):
        known = next(entry["config"] for entry in COUNTED if entry["config"]["model_type"] == model_type)
        fields = known | {"num_hidden_layers": 8, "layer_types": None, "sliding_window": 16} | given
        local = [kind.local for kind in load(fields).pattern]
        assert local == [(i + 1) % pattern != 0 for i in range(8)]


@pytest.mark.parametrize("entry", COUNTED, ids=[entry["config"]["model_type"] for entry in COUNTED])
def test_counts_are_those_of_the_models_that_transformers_builds(
    entry: dict[str, Any], load: Callable[..., Model]
) -> None:
    """Random configurations, counted by `tools/oracle.py` with transformers 5.23 on the meta device."""
    assert load(entry["config"]).parameters == entry["parameters"]


@pytest.mark.parametrize("name", sorted(FILES.keys() & set(model_names())))
def test_equals_the_catalogue(name: str) -> None:
    imported, known = load_model(FILES[name]), load_model(name)
    if "vit" not in name:
        imported = replace(imported, tower=None, **OF_A_RUN)  # the catalogue has the text parts
        known = replace(known, **OF_A_RUN)
    assert imported == replace(known, global_batch=None)
    assert imported.parameters == known.parameters


@pytest.mark.parametrize(
    ("name", "parameters"),
    [  # of models that are not in the catalogue: parameters in the safetensors of the Hugging Face card
        ("gpt2", 124_439_808),
        ("gpt-neox-20b", 20_554_567_680),  # arXiv 2204.06745, table 1
        ("olmo-2-7b", 7_298_617_344),
        ("phi-3-mini", 3_821_079_552),
        ("qwen2-57b-a14b", 57.41e9),
        ("t5-small", 60_506_624),
        ("bart-large", 406_291_456),
        ("whisper-tiny", 37_760_640),
        ("gemma-3-27b", 27_432_406_640),
        ("llama-4-scout", 108_641_793_536),
        ("qwen3-vl", 8_767_123_696),  # Qwen3-VL-8B
        ("nemotron-3-nano", 31_577_937_344),  # 31.6 billion: arXiv 2512.20848, table 1
    ],
)
def test_published_parameters(name: str, parameters: float) -> None:
    assert load_model(FILES[name]).parameters == pytest.approx(parameters, rel=1e-4)


PUBLISHED: dict[
    str, tuple[dict[str, Any], float, float | None]
] = {  # all parameters, and the active ones of layers
    "mamba": (  # arXiv 2312.00752, mamba-130m; its tied checkpoint
        {"hidden_size": 768, "num_hidden_layers": 24, "vocab_size": 50280},
        129_135_360,
        None,
    ),
    "falcon_mamba": (  # arXiv 2410.05355, table 1: 7.27 billion
        {"hidden_size": 4096, "num_hidden_layers": 64, "vocab_size": 65024, "intermediate_size": 8192}
        | {"time_step_rank": 256, "tie_word_embeddings": False},
        7.27e9,
        None,
    ),
    "jamba": (  # arXiv 2403.19887, section 3: 52 billion, 12 of them active
        {"hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 65536, "intermediate_size": 14336}
        | {"num_attention_heads": 32, "max_position_embeddings": 262144},
        52e9,
        12e9,
    ),
    "rwkv": (  # arXiv 2305.13048, table 2: 12 layers of 768, 1.693e8
        {"hidden_size": 768, "num_hidden_layers": 12, "vocab_size": 50277},
        1.693e8,
        None,
    ),
    "minimax": (  # arXiv 2501.08313: 456 billion, 45.9 of them active; 7 of 8 layers with lightning attention
        {"hidden_size": 6144, "num_hidden_layers": 80, "vocab_size": 200064, "intermediate_size": 9216}
        | {"num_attention_heads": 64, "head_dim": 128, "num_local_experts": 32, "num_experts_per_tok": 2}
        | {"max_position_embeddings": 8192, "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10},
        456e9,
        45.9e9,
    ),
    "kimi_linear": (  # arXiv 2510.26692: 48 billion, 3 of them active
        {"hidden_size": 2304, "num_hidden_layers": 27, "vocab_size": 163840, "intermediate_size": 9216}
        | {"num_attention_heads": 32, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
        | {"v_head_dim": 128, "num_experts": 256, "num_experts_per_token": 8, "moe_intermediate_size": 1024}
        | {"model_max_length": 1048576, "first_k_dense_replace": 1}
        | {
            "linear_attn_config": {
                "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
                "head_dim": 128,
                "num_heads": 32,
                "short_conv_kernel_size": 4,
            }
        },
        49.12e9,  # of the checkpoint
        3e9,
    ),
    "longcat_flash": (  # arXiv 2509.01322: 560 billion, 27 of them active on average
        {"hidden_size": 6144, "num_layers": 28, "vocab_size": 131072, "ffn_hidden_size": 12288}
        | {"num_attention_heads": 64, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128}
        | {"qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 512, "zero_expert_num": 256}
        | {"moe_topk": 12, "expert_ffn_hidden_size": 2048, "max_position_embeddings": 131072},
        560e9,
        27e9,
    ),
    "glm_moe_dsa": (  # arXiv 2602.15763, GLM-5: 744 billion, 40 of them active
        {"hidden_size": 6144, "num_hidden_layers": 78, "vocab_size": 154880, "intermediate_size": 12288}
        | {"num_attention_heads": 64, "kv_lora_rank": 512, "q_lora_rank": 2048, "qk_nope_head_dim": 192}
        | {"qk_rope_head_dim": 64, "v_head_dim": 256, "n_routed_experts": 256, "num_experts_per_tok": 8}
        | {"moe_intermediate_size": 2048, "max_position_embeddings": 202752},
        744e9,
        40e9,
    ),
}


@pytest.mark.parametrize("model_type", PUBLISHED)
def test_published_sizes(model_type: str, load: Callable[..., Model]) -> None:
    """To the digits that are published, one or two of the active parameters, without embedding and head."""
    fields, parameters, active = PUBLISHED[model_type]
    model = load({"model_type": model_type} | fields)
    assert model.parameters == pytest.approx(parameters, rel=0.01)
    if active is not None:
        assert model.layer_parameters(active=True) == pytest.approx(active, rel=0.1)


@pytest.mark.parametrize(
    ("model_type", "change", "said"),
    [
        (
            "minimax",
            {"attn_type_list": [1]},
            "attn_type_list = [1]: must hold 0 or 1 for each of the 80 layers",
        ),
        (
            "glm_moe_dsa",
            {"mlp_layer_types": -1},
            "mlp_layer_types = -1: must be a list of sparse, dense",
        ),
        (
            "glm_moe_dsa",
            {"indexer_types": ["full"]},
            "indexer_types = ['full']: must hold one word for each of the 78 layers",
        ),
        (
            "rwkv",
            {"attention_hidden_size": 512},
            "attention_hidden_size = 512: cannot be represented; only 768 can",
        ),
        ("jamba", {"attn_layer_period": 0}, "attn_layer_period = 0: must be a whole number of at least 1"),
        (
            "kimi_linear",
            {"tie_word_embeddings": True},
            "tie_word_embeddings = True: cannot be represented; only False can",
        ),
    ],
)
def test_mistakes_of_recurrent_and_sparse_models(
    model_type: str, change: dict[str, Any], said: str, load: Callable[..., Model]
) -> None:
    fields = {"model_type": model_type} | PUBLISHED[model_type][0] | change
    assert said in problems(load, fields)


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_figure_has_its_field(name: str) -> None:
    for figure in figures(FILES[name]):
        assert figure.source.startswith(FILES[name].name)
        is_assumed = figure.path in ("seq", "encoder.seq") and name != "vit-l-16"
        is_assumed |= figure.path == "tower.size" and name == "qwen3-vl"
        assert figure.basis == ("assumed" if is_assumed and "max_source" not in figure.source else "spec")


def test_example() -> None:
    model = load_model(EXAMPLE)
    assert model.name == "llama-3.1-405b"  # its folder
    assert (model.layers, model.hidden, model.heads, model.kv_heads, model.ffn) == (126, 16384, 128, 8, 53248)
    assert model.sources["seq"] == "config.json: max_position_embeddings = 131072, at most 8192 (assumed)"
    assert model.sources["hidden"] == "config.json: hidden_size (spec)"


def test_layers_of_a_hybrid(load: Callable[..., Model]) -> None:
    """23 layers of Mamba-2, 23 of experts and 6 of attention, written in letters or in words."""
    model, pattern = load_model(HYBRID), config("nemotron-3-nano")["hybrid_override_pattern"]
    kinds = Counter(map(str, model.pattern))
    assert kinds == {"mamba2 only": 23, "moe only": 23, "attention only": 6}
    words = {"M": "linear_attention", "E": "moe", "*": "full_attention"}
    listed = {"hybrid_override_pattern": ..., "layers_block_type": [words[letter] for letter in pattern]}
    assert load(config("nemotron-3-nano", **listed)).pattern == model.pattern
    assert problems(load, config("nemotron-3-nano", hybrid_override_pattern="MEX")) == (
        "hybrid_override_pattern = 'MEX': must be a list of M, *, -, E",
    )


def test_experts_of_another_width(load: Callable[..., Model]) -> None:
    """Nemotron 3 Super: 120 billion parameters, 12 of them active, on its Hugging Face card.

    8 of its 88 layers are attention.
    """
    kinds = ["mamba", "moe"] * 40 + ["attention"] * 8
    sizes = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 2, "vocab_size": 131072}
    sizes |= {"n_routed_experts": 512, "num_experts_per_tok": 22, "moe_intermediate_size": 2688}
    sizes |= {"moe_shared_expert_intermediate_size": 5376, "moe_latent_size": 1024}
    sizes |= {"num_hidden_layers": 88, "hybrid_override_pattern": ..., "num_nextn_predict_layers": 1}
    sizes |= {"mamba_num_heads": 128, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8}
    model = load(config("nemotron-3-nano", layers_block_type=kinds, **sizes))
    assert model.parameters == pytest.approx(120e9, rel=0.01)
    assert model.active_parameters == pytest.approx(12e9, rel=0.07)
    assert model.left_out == "multi-token prediction"
    wide = replace(model, experts=replace(model.experts, width=None))
    fewer = 512 * 2 * (4096 - 1024) * 2688 - 2 * 4096 * 1024  # in a layer
    assert wide.parameters - model.parameters == 40 * fewer


def test_sources_name_the_text_part() -> None:
    model = load_model(FILES["gemma-3-27b"])
    assert model.sources["layers"] == "gemma-3-27b.json, text_config: num_hidden_layers (spec)"
    assert model.sources["vocab"].endswith("vocab_size (default of gemma3_text) (spec)")


TEXT = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 4} | {
    "intermediate_size": 512,
    "vocab_size": 1024, "max_position_embeddings": 512
}  # fmt: skip
WITHOUT = "tower without its vision tower ("


@pytest.mark.parametrize(
    ("parts", "left_out"),
    [
        ({"vision_config": {"hidden_size": 64}}, "vision tower"),
        ({"audio_config": {}}, "audio tower"),
        ({"vision_config": {}, "audio_config": {}, "speech_config": {}}, "vision and audio towers"),
        (
            {"quantization_config": {}},
            "parts outside of text_config",
        ),  # fields that are left out take the defaults of the type
    ],
)
def test_parts_other_than_the_text_model_are_left_out(
    load: Callable[..., Model], parts: dict[str, Any], left_out: str
) -> None:
    assert load({"model_type": "aya_vision", "text_config": TEXT} | parts).left_out == left_out
    assert load(TEXT).left_out == load(TEXT | {"quantization_config": {}}).left_out == ""
    assert load(TEXT | parts).left_out == ("" if "quantization_config" in parts else left_out)


@pytest.fixture
def tower(tmp_path: Path) -> str:
    """A configuration with a vision tower."""
    path = tmp_path / "tower.json"
    path.write_text(
        json.dumps({"model_type": "aya_vision", "text_config": TEXT, "vision_config": {"hidden_size": 64}})
    )
    return str(path)


RUN = ["--system", "dgx-h100", "--gbs", "16", "--zero", "1"]


@pytest.mark.parametrize("command", ["flops", "catalog"])
def test_counts_say_what_is_left_out(command: str, tower: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([command, tower])
    first, _, _ = capsys.readouterr().out.partition("\n")
    assert first.startswith("tower without its vision tower"), first


@pytest.mark.parametrize(
    "command",
    [
        ["estimate", *RUN, "--dp", "8"],
        ["memory", *RUN, "--dp", "8"],
        ["advise", *RUN, "--dp", "8"],
        ["trace", *RUN, "--dp", "4", "--pp", "2"],
        ["plan", *RUN, "--gpus", "8", "--top", "1"],
        ["scaling", "--system", "dgx-h100", "--gpus", "8"],
    ],
)
def test_the_first_line_of_an_answer_says_what_is_left_out(
    command: list[str], tower: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--model", tower] if command[0] == "scaling" else [tower]
    main([command[0], *asked, *command[1:]])
    first, _, _ = capsys.readouterr().out.partition("\n")
    assert first.startswith(WITHOUT) or first.endswith(", without its vision tower"), first
    main([command[0], *asked, *command[1:], "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert (answer["model"], answer["left_out"]) == ("tower", "vision tower")


def test_launches_say_what_is_left_out(
    tower: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run.sh"
    main(["export", tower, *RUN, "--dp", "8", "--to", "megatron", "--output", str(out)])
    assert capsys.readouterr().err.startswith(WITHOUT)
    assert "# tower without its vision tower on 8 GPUs" in out.read_text()
    for more in ([], ["--json"]):
        main(["check", str(out), "--system", "dgx-h100", "--model", tower, *more])
        said = capsys.readouterr().out
        assert json.loads(said)["left_out"] == "vision tower" if more else said.startswith(WITHOUT)


def test_reports_and_the_explorer_say_what_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gemma, run = str(tmp_path / "gemma-3-27b.json"), ["--system", "dgx-h100", "--gbs", "64"]
    Path(gemma).write_text(json.dumps(config("gemma-3-27b", model_type="unknown")), encoding="utf-8")
    for command in (
        ["estimate", "--tp", "8", "--dp", "8"],
        ["plan", "--gpus", "64", "--top", "1", "--strategy", "1d"],
    ):
        report = tmp_path / f"{command[0]}.html"
        main([command[0], gemma, *run, *command[1:], "--html", str(report)])
        assert "<h1>gemma-3-27b without its vision tower (" in report.read_text(encoding="utf-8")
    assert capsys.readouterr().out.startswith("gemma-3-27b without its vision tower (")
    assert model_info(load_model(gemma))["left_out"] == "vision tower"
    assert model_info(load_model("llama-3-8b"))["left_out"] is None


def test_sequence_length(load: Callable[..., Model]) -> None:
    long = config("llama-3-8b", max_position_embeddings=131072)
    assert (load(long).seq, load(config("llama-2-7b")).seq) == (8192, 4096)
    asked = load(config("llama-3-8b", max_position_embeddings=...), 32768)
    assert (asked.seq, asked.sources["seq"]) == (32768, "requested (assumed)")
    assert load_model("llama-3-8b", seq=1024).seq == 1024
    assert load_model("llama-3-8b", seq=1024).training_sequences == 15e12 / 1024
    for seq in (0, 1.5, True):
        with pytest.raises(InputError, match=r"seq = .*: must be a whole number of at least 1"):
            load_model("llama-3-8b", seq=seq)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("llama-3-8b", {"attention_bias": True}, {"biases": ("qkv", "proj")}),
        ("llama-3-8b", {"mlp_bias": True}, {"biases": ("mlp",)}),
        ("llama-3-8b", {"tie_word_embeddings": ...}, {"tied": False}),
        ("llama-3-8b", {"num_key_value_heads": ...}, {"kv_heads": None}),
        ("llama-3-8b", {"head_dim": None}, {"head_dim": None, "head_width": 128}),
        ("llama-3-8b", {"hidden_act": "gelu"}, {"mlp": "geglu"}),
        ("mistral-7b", {"sliding_window": None}, {"local": None}),
        ("mistral-7b", {"sliding_window": ...}, {"local": Local(window=4096)}),
        ("mistral-7b", {"num_key_value_heads": ...}, {"kv_heads": 8}),
        ("qwen2.5-7b", {"use_sliding_window": True}, {"local": None}),  # all 28 layers come before it begins
        ("qwen2.5-7b", {"use_sliding_window": True, "max_window_layers": 0}, {"local": Local(window=131072)}),
        (
            "qwen2.5-7b",
            {"use_sliding_window": True, "max_window_layers": 26, "sliding_window": 4096},
            {"local": Local(window=4096, layers=(27, 28))},
        ),
        ("qwen2.5-7b", {}, {"biases": ("qkv",), "local": None, "qk_norm": None}),
        ("qwen3-8b", {"head_dim": ...}, {"head_dim": 128, "qk_norm": "head", "biases": ()}),
        ("gemma-2b", {}, {"tied": True, "mlp": "geglu", "norms": 2}),
        ("gemma-2-9b", {"tie_word_embeddings": False}, {"tied": False, "norms": 4}),
        ("gemma-2-9b", {"layer_types": ["full_attention"] * 42}, {"local": None}),
        ("gpt-oss-20b", {"layer_types": ...}, {"local": Local(window=128, global_every=2)}),
        (
            "gpt2",
            {},
            {"dropout": True, "tied": True, "ffn": 3072, "positions": "learned", "max_positions": 1024},
        ),
        ("gpt2", {"resid_pdrop": 0, "embd_pdrop": 0.0, "n_inner": 1024}, {"dropout": False, "ffn": 1024}),
        ("phi-3-mini", {"resid_pdrop": 0.1}, {"dropout": True}),
        ("nemotron-4-15b", {}, {"mlp": "relu2", "norm": "layernorm", "biases": ()}),
        ("deepseek-v2-lite", {"n_routed_experts": None}, {"experts": None}),
        ("grok-1", {"model_type": "mixtral"}, {"norms": 4, "mlp": "geglu", "tied": True}),
        (
            "vit-l-16",
            {"id2label": ..., "qkv_bias": False},
            {"classes": None, "biases": ("proj", "mlp"), "patch": 768, "seq": 197},
        ),
    ],
)
def test_defaults_of_the_model_type(
    name: str, change: dict[str, Any], expected: dict[str, Any], load: Callable[..., Model]
) -> None:
    model = load(config(name, **change))
    assert {key: getattr(model, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("name", "change", "pattern"),
    [
        ("qwen3-30b-a3b", {"decoder_sparse_step": 2}, [i % 2 == 1 for i in range(48)]),
        ("qwen3-30b-a3b", {"mlp_only_layers": [0, 1]}, [i > 1 for i in range(48)]),
        (
            "deepseek-v2-lite",
            {"moe_layer_freq": 2, "first_k_dense_replace": 1},
            [i > 1 and i % 2 == 0 for i in range(27)],
        ),
        ("deepseek-v2-lite", {"first_k_dense_replace": 0}, [True] * 27),
    ],
)
def test_layers_with_experts(
    name: str, change: dict[str, Any], pattern: list[bool], load: Callable[..., Model]
) -> None:
    assert [kind.moe for kind in load(config(name, **change)).pattern] == pattern


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("llama-3-8b", {"hidden_size": ...}, "hidden_size: missing"),
        ("llama-3-8b", {"hidden_size": "4096"}, "hidden_size = '4096': must be a whole number of at least 1"),
        ("llama-3-8b", {"hidden_size": None}, "hidden_size = None: must be a whole number of at least 1"),
        (
            "llama-3-8b",
            {"num_hidden_layers": True},
            "num_hidden_layers = True: must be a whole number of at least 1",
        ),
        (
            "llama-3-8b",
            {"intermediate_size": [1, 2]},
            "intermediate_size = [1, 2]: must be a whole number of at least 1",
        ),
        ("llama-3-8b", {"hidden_act": "xielu"}, "hidden_act = 'xielu': must be one of gelu, "),
        ("llama-3-8b", {"attention_bias": "no"}, "attention_bias = 'no': must be true or false"),
        (
            "llama-3-8b",
            {"num_attention_heads": 24},
            "num_attention_heads = 24: must divide hidden_size = 4096",
        ),
        (
            "llama-3-8b",
            {"num_key_value_heads": 5},
            "num_key_value_heads = 5: must divide num_attention_heads = 32",
        ),
        ("llama-3-8b", {"is_encoder_decoder": True}, "is_encoder_decoder = True: models of this type"),
        (
            "llama-3-8b",
            {"architectures": ["LlamaForGrading"]},
            "architectures = ['LlamaForGrading']: must be a list of names that end in ForCausalLM",
        ),
        (
            "llama-3-8b",
            {"model_type": "reformer"},
            "model_type = 'reformer': not a type that can be imported; known: afmoe, albert, ",
        ),
        (
            "llama-3-8b",
            {"model_type": ..., "architectures": ["OtherForCausalLM"]},
            "model_type = None: not a type that can be imported; known: afmoe, albert, ",
        ),
        ("llama-3-8b", {"model_type": ["llama"]}, "model_type = ['llama']: not a type"),
        (
            "mixtral-8x7b",
            {"num_experts_per_tok": 9},
            "num_experts_per_tok = 9: must be at most num_local_experts = 8",
        ),
        (
            "deepseek-v3",
            {"attention_bias": True},
            "attention_bias = True: cannot be represented; only False can",
        ),
        (
            "deepseek-v3",
            {"moe_layer_freq": [0, 1]},
            "moe_layer_freq = [0, 1]: must be a whole number of at least 1",
        ),
        ("deepseek-v3", {"q_lora_rank": ...}, "q_lora_rank: missing"),
        (
            "deepseek-v3",
            {"first_k_dense_replace": -1},
            "first_k_dense_replace = -1: must be a whole number of at least 0",
        ),
        (
            "qwen3-30b-a3b",
            {"mlp_only_layers": [7]},
            "mlp_only_layers = [7]: cannot be represented; layers with experts",
        ),
        (
            "qwen3-30b-a3b",
            {"mlp_only_layers": "all"},
            "mlp_only_layers = 'all': must be a list of whole numbers",
        ),
        ("gpt-oss-20b", {"layer_types": ["linear_attention"] * 24}, "layer_types = ['linear_attention', "),
        (
            "gpt-oss-20b",
            {"layer_types": ["full_attention"]},
            "layer_types = ['full_attention']: must hold one word for each of the 24",
        ),
        ("gpt2", {"n_embd": ...}, "n_embd: missing"),
        (
            "gpt2",
            {"add_cross_attention": True},
            "add_cross_attention = True: cannot be represented; only False can",
        ),
        ("gpt2", {"resid_pdrop": "none"}, "resid_pdrop = 'none': must be a number"),
        ("vit-l-16", {"patch_size": 15}, "patch_size = 15: must divide image_size = 224"),
        (
            "vit-l-16",
            {"image_size": [224, 224]},
            "image_size = [224, 224]: must be a whole number of at least 1",
        ),
    ],
)
def test_mistakes(name: str, change: dict[str, Any], expected: str, load: Callable[..., Model]) -> None:
    [problem] = problems(load, config(name, **change))
    assert problem.startswith(expected)


@pytest.mark.parametrize("model_type", sorted(model_types()))
def test_no_list_of_thousands_of_millions_of_layers_is_made(model_type: str, tmp_path: Path) -> None:
    deep = dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"), 2**31)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": model_type} | deep), encoding="utf-8")
    with bounded_memory(1 << 30), pytest.raises(InputError, match=r"= 2147483648: must be at most 10,000"):
        load_model(path)


def test_no_list_of_thousands_of_millions_of_kinds_of_layers_is_made(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(known("gpt_neo", attention_types=[[["local"], 2**31]])), encoding="utf-8")
    with bounded_memory(1 << 30), pytest.raises(InputError, match="must have 4 layers"):
        load_model(path)


def test_no_list_of_thousands_of_millions_of_layers_of_a_tower_is_made(tmp_path: Path) -> None:
    counted = json.loads(
        (Path(__file__).parents[1] / "data/vision_language_counts.json").read_text(encoding="utf-8")
    )
    path = tmp_path / "config.json"
    for document in (each["config"] for each in counted):
        deep = dict.fromkeys(("depth", "num_hidden_layers", "layers"), 2**31)
        path.write_text(
            json.dumps(document | {"vision_config": document["vision_config"] | deep}), encoding="utf-8"
        )
        with (
            bounded_memory(1 << 30),
            pytest.raises(InputError, match=r"= 2147483648: must be at most 10,000"),
        ):
            load_model(path)


def test_all_mistakes_at_once(load: Callable[..., Model]) -> None:
    change = {
        "hidden_size": ...,
        "num_hidden_layers": 0,
        "hidden_act": "tanh",
        "kv_lora_rank": 1.5,
        "num_experts_per_tok": "8",
    }
    messages = problems(
        load, config("deepseek-v3", architectures="DeepseekV3ForCausalLM", vocab_size=..., **change)
    )
    assert [problem.split(":")[0].split(" ")[0] for problem in messages] == [
        "architectures",
        "num_hidden_layers",
        "hidden_size",
        "vocab_size",
        "hidden_act",
        "kv_lora_rank",
        "num_experts_per_tok",
    ]


@pytest.mark.parametrize("name", sorted(FILES))
@pytest.mark.parametrize("value", [None, -1, 0.5, "x", [], {}, True])
def test_any_value_loads_or_is_refused_by_name(name: str, value: object, load: Callable[..., Model]) -> None:
    outer = config(name)
    inner = outer.get("text_config", outer)
    for key in inner:
        changed = inner | {key: value}
        try:
            load(outer | {"text_config": changed} if inner is not outer else changed)
        except InputError as error:
            assert any(problem.startswith(key) for problem in error.problems), (key, error.problems)  # noqa: PT017


def test_a_text_part_without_its_section_is_read_as_one_with_it(tmp_path):
    """As some tools write a multimodal model's configuration: fields of `text_config` at the top."""
    text = {
        "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 64, "num_key_value_heads": 64,
        "intermediate_size": 18432, "vocab_size": 163840, "max_position_embeddings": 262144,
        "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "first_k_dense_replace": 1, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "tie_word_embeddings": False,
    }  # fmt: skip
    seen = {
        "vt_num_hidden_layers": 27, "vt_num_attention_heads": 16, "vt_hidden_size": 1152,
        "vt_intermediate_size": 4304,
        "patch_size": 14, "init_pos_emb_height": 64, "init_pos_emb_width": 64, "merge_kernel_size": [2, 2],
        "mm_hidden_size": 1152, "text_hidden_size": 7168,
    }  # fmt: skip
    whole = {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "vision_config": seen,
    }
    models = []
    for name, document in (
        ("flat", text),
        ("nested", {"text_config": {**text, "model_type": "deepseek_v3"}}),
    ):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({**whole, **document}), encoding="utf-8")
        models.append(load_model(path))
    flat, nested = models
    assert flat.parameters == nested.parameters
    assert flat.experts == nested.experts
    assert flat.experts.experts == 384
