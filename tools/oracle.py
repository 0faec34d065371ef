"""Compare parameter counts of imported configurations with the models that transformers builds from them.

    python tools/oracle.py                  # three random configurations of every type: `make oracle`
    python tools/oracle.py --draws 20 bert  # more of one type
    python tools/oracle.py --write          # renew tests/data/transformers_counts.json (of the types given)

A type is compared on the meta device. A combination that transformers or the import refuses by name is drawn
again; a type of which no configuration can be compared is an error.
"""

import argparse
import contextlib
import json
import random
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from transformers.models.auto import modeling_auto as auto

import traincast as tc
from traincast.catalog.huggingface.config import model_types
from traincast.catalog.huggingface.towers import vision_types
from traincast.core.errors import InputError
from traincast.step.model_flops import forward_flops

ROOT: Final = Path(__file__).parents[1]
COUNTS: Final = ROOT / "tests" / "data" / "transformers_counts.json"
SEEN: Final = COUNTS.with_name("vision_language_counts.json")
WHOLE: Final = sorted(
    set(vision_types()["projectors"]) & set(auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
)


CAUSAL: Final = sorted(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def _with_heads(names: Mapping[str, Any]) -> set[str]:
    """Return the types among names whose row of the table has heads of its own."""
    return {name for name in names if name in model_types() and model_types()[name].get("heads")}


CLASSES: Final = (  # what is built of a type: its names, and the class that builds it
    (WHOLE, transformers.AutoModelForImageTextToText),
    (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, transformers.AutoModelForCausalLM),
    (auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, transformers.AutoModelForSeq2SeqLM),
    (auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES, transformers.AutoModelForSpeechSeq2Seq),
    (auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, transformers.AutoModelForMaskedLM),
    (_with_heads(auto.MODEL_MAPPING_NAMES), transformers.AutoModel),
    (_with_heads(auto.MODEL_FOR_CTC_MAPPING_NAMES), transformers.AutoModelForCTC),
    (
        _with_heads(auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES),
        transformers.AutoModelForImageClassification,
    ),
    (
        _with_heads(auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES),
        transformers.AutoModelForSequenceClassification,
    ),
    (
        _with_heads(auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES),
        transformers.AutoModelForTokenClassification,
    ),
    (
        _with_heads(auto.MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES),
        transformers.AutoModelForQuestionAnswering,
    ),
)
NOT_BUILT: Final = {"mistral4"}  # by AutoModel, which knows its configuration as that of another type
TYPES: Final = sorted(
    {*model_types(), *WHOLE}.intersection(*[set[str]().union(*[names for names, _ in CLASSES])]) - NOT_BUILT
)
TRIES: Final = 40  # configurations drawn for each that is to be compared
SIZES: Final = {  # field -> values drawn; those that a type spells otherwise are found through its `names`
    "num_hidden_layers": (2, 3, 4),
    "hidden_size": (192, 384),
    "num_attention_heads": (4, 6, 12),
    "num_key_value_heads": (1, 2),
    "head_dim": (16, 64),
    "intermediate_size": (96, 416),
    "vocab_size": (1000, 5001),
    "max_position_embeddings": (128, 300),
    "num_experts": (4, 8),
    "num_experts_per_tok": (2,),
    "n_shared_experts": (1, 2, 1),
    "moe_intermediate_size": (48, 80),
    "shared_expert_intermediate_size": (64,),
    "shared_intermediate_size": (32, 64),
    "kv_lora_rank": (32,),
    "q_lora_rank": (48,),
    "qk_nope_head_dim": (16,),
    "qk_rope_head_dim": (8,),
    "v_head_dim": (16, 24),
    "mamba_num_heads": (6, 12, 24, 48),
    "mamba_head_dim": (16, 64),
    "ssm_state_size": (32, 64),
    "n_groups": (1, 2),
    "conv_kernel": (3, 4),
    "linear_num_key_heads": (2, 4),
    "linear_num_value_heads": (4, 8),
    "linear_key_head_dim": (16, 32),
    "linear_value_head_dim": (16, 48),
    "linear_conv_kernel_dim": (3, 4),
    "conv_L_cache": (2, 3),
    "linear_num_heads": (2, 4),
    "layer_group_size": (2, 3),
    "zero_expert_num": (0,),  # transformers gives weights to experts without any
    "linear_head_dim": (16, 32),
    "lru_width": (384, None),
    "conv1d_width": (3, 4),
    "time_step_rank": (8, "auto"),
    "index_n_heads": (2, 4),
    "index_head_dim": (16, 32),
    "index_topk": (64,),
    "o_groups": (2,),
    "o_lora_rank": (24, 40),
    "hc_mult": (2, 4),
    "first_k_dense_replace": (0, 1),
    "attn_layer_period": (2, 3),
    "attn_layer_offset": (0, 1),
    "expert_layer_offset": (0, 1),
    "encoder_layers": (1, 2, 3),
    "encoder_attention_heads": (4, 6, 12),
    "encoder_ffn_dim": (96, 416),
    "max_source_positions": (100, 200),
    "num_mel_bins": (40, 80),
    "embedding_size": (48, 192),
    "output_embedding_size": (80,),
    "word_embed_proj_dim": (96, 192),
    "global_head_dim": (32, 64),
    "local_attention": (32,),
    "num_labels": (2, 5),
    "hidden_size_per_layer_input": (0, 16),
    "vocab_size_per_layer_input": (1000,),
    "num_kv_shared_layers": (0, 1),
    "laurel_rank": (8, 16),
    "moe_latent_size": (None, 48),
    "altup_num_inputs": (2, 4),
    "cross_attention_layers": ([1], [0, 2]),
}
VISION: Final = {  # field of a tower, or of what leads from it to the language model -> values drawn
    "num_hidden_layers": (2, 3), "depth": (2, 3), "num_attention_heads": (4, 8), "num_heads": (4, 8),
    "hidden_size": (64, 128), "embed_dim": (64, 128), "intermediate_size": (96, 160),
    "out_hidden_size": (192, 384), "image_size": (56, 112), "patch_size": (7, 14),
    "num_position_embeddings": (16, 49), "num_patches": (16, 49),
    "deepstack_visual_indexes": ([1], [0, 1]), "fullatt_block_indexes": ([1], [0]), "window_size": (28, 56),
    "projector_input_dim": (96,), "projector_output_dim": (96,), "vision_output_dim": (80,),
    "pos_emb_height": (8,), "pos_emb_width": (4, 8), "mm_tokens_per_image": (4, 16),
    "num_global_layers": (1, 2), "max_num_tiles": (4,),
    "alignment_intermediate_size": (64,), "projector_hidden_size": (48, 64), "projection_dim": (192,),
}  # fmt: skip
RUNS: Final = {  # vision-language type whose tower is run -> what its images come as
    "llava": "", "internvl": "", "mistral3": "sized", "idefics3": "cuts", "smolvlm": "cuts",
    "qwen2_vl": "patches", "qwen2_5_vl": "patches", "qwen3_vl": "patches", "qwen3_vl_moe": "patches",
    "qwen3_5": "patches", "glm4v": "patches",
}  # fmt: skip
LINEAR: Final = {  # field of a hybrid -> its word for layers without attention
    "conv_L_cache": "conv", "linear_num_heads": "linear_attention", "block_size": "linear_attention",
    "index_block_size": "minimax_m3_sparse",
    "mamba_d_state": "linear_attention", "linear_num_key_heads": "linear_attention"
}  # fmt: skip
FLAGS: Final = (  # of towers and projectors
    "multimodal_projector_bias", "vision_use_head", "use_qk_norm", "attention_bias", "use_mean_pooling",
    "projector_bias",
)  # fmt: skip
FIXED: Final = {
    "pad_token_id": None, "layer_types": None, "mlp_layer_types": None, "num_attention_heads_per_layer": None,
    "num_experts_per_tok": 2, "padding_idx": None,
}  # fmt: skip


LEFT_OUT: Final = dict.fromkeys(  # type -> names of weights that its import leaves out, and says so
    ("wav2vec2", "hubert"), r"feature_extractor|pos_conv|^projector|^classifier|^layer_weights"
)
ROPE: Final = {"rope_type": "default", "rope_theta": 1e4}
OF_TYPE: Final[dict[str, dict[str, Any]]] = {  # what single types need besides
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4},
        "ffn_config": {"ffn_hidden_size": 80, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "cohere_compass_text": {"rope_parameters": {"full_attention": ROPE, "sliding_attention": ROPE}},
    "wav2vec2": {"conv_kernel": [10, 3, 3, 3, 3, 2, 2]},
    "hubert": {"conv_kernel": [10, 3, 3, 3, 3, 2, 2]},
    "esm": {"position_embedding_type": "rotary", "emb_layer_norm_before": False},
    "modernbert-decoder": {"pad_token_id": 0},
    "nomic_bert": {"pad_token_id": 0},
}


def drawn(model_type: str, seed: int) -> Any:
    """Return a random configuration of a type, as transformers reads it."""
    rng, family = random.Random(f"{model_type} {seed}"), model_types()[model_type]
    default = transformers.AutoConfig.for_model(model_type).to_dict()
    fields: dict[str, Any] = {name: value for name, value in FIXED.items() if name in default}
    names = family.get("names", {})
    for name, values in SIZES.items():
        for spelling in names.get(name, (name,)):
            if spelling in default:
                fields[spelling] = rng.choice(values)
    for name, value in family["defaults"].items():
        if isinstance(value, bool):
            for spelling in names.get(name, (name,)):
                if spelling in default:
                    fields[spelling] = rng.random() < 0.5
    for name, word in LINEAR.items():
        if name in default and "layer_types" in default:
            words = ("full_attention", word)
            fields["layer_types"] = [rng.choice(words) for _ in range(fields["num_hidden_layers"])]
    if "attn_layer_indices" in default:  # Bamba: numbers of the layers with attention
        fields["attn_layer_indices"] = [1]
    if "attention_types" in default:  # GPT-Neo: one word for each layer
        fields |= {"num_layers": 4, "attention_types": [[["global", "local"], 2]]}
    if "indexer_types" in default:  # the first layer has an index to share
        shared = [rng.choice(("full", "shared")) for _ in range(fields["num_hidden_layers"] - 1)]
        fields["indexer_types"] = ["full", *shared]
    if "mamba_d_ssm" in default:  # Falcon-H1: the width of all heads
        fields["mamba_d_ssm"] = fields["mamba_n_heads"] * fields["mamba_d_head"]
        fields["projectors_bias"] = fields["mamba_proj_bias"]
    return transformers.AutoConfig.for_model(model_type, **(fields | OF_TYPE.get(model_type, {})))


def drawn_whole(model_type: str, seed: int) -> Any:
    """Return a random configuration of a vision-language type, as transformers reads it."""
    rng = random.Random(f"{model_type} {seed}")
    default = transformers.AutoConfig.for_model(model_type).to_dict()
    text, vision = default.pop("text_config"), default.pop("vision_config")

    def some(fields: dict[str, Any]) -> dict[str, Any]:
        flags = {name: rng.random() < 0.5 for name, value in fields.items() if isinstance(value, bool)}
        flags = {name: value for name, value in flags.items() if name in FLAGS}
        return flags | {name: rng.choice(values) for name, values in VISION.items() if name in fields}

    inner = drawn(text["model_type"], seed).to_dict()
    for name in ("max_position_embeddings", "n_positions"):  # which an image must fit in
        inner |= {name: 8192} if name in inner else {}
    inner["tie_word_embeddings"] = tied = rng.random() < 0.5
    seen = some(vision) | {"model_type": vision["model_type"]}
    if isinstance(vision.get("image_size"), list):  # both sides
        seen |= {name: [seen[name]] * 2 for name in ("image_size", "patch_size")}
    around = some(default) | {"tie_word_embeddings": tied}
    return transformers.AutoConfig.for_model(model_type, text_config=inner, vision_config=seen, **around)


def compared(model_type: str, draws: int) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Yield configurations of a type, with the count of the import and that of the built model.

    Each comes with all fields, and without those that transformers leaves out when it saves it.
    """
    for names, built_by in CLASSES:
        if model_type in names and (names is WHOLE or model_type not in WHOLE):
            yield from built_as(built_by, model_type, draws)


def built_as(built_by: Any, model_type: str, draws: int) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Yield the configurations of a type that one class builds; an error if there is none."""
    found = 0
    for seed in range(TRIES * draws):
        try:
            config = (drawn_whole if model_type in WHOLE else drawn)(model_type, seed)
            with torch.device("meta"):
                built = built_by.from_config(config)
        except Exception:  # each type refuses combinations with errors of its own
            continue
        config.architectures = [type(built).__name__]
        without = re.compile(LEFT_OUT.get(model_type, "$^"))
        kept = [part for name, part in built.named_parameters() if not without.search(name)]
        weights = sum(part.numel() for part in kept)
        full = json.loads(json.dumps(config.to_dict(), default=str))
        saved = json.loads(json.dumps(config.to_diff_dict(), default=str))  # defaults left out
        try:
            counted = imported(full)
        except InputError:
            continue
        yield full, counted, weights
        with contextlib.suppress(InputError):
            yield saved, imported(saved), weights
        found += 1
        if found == draws:
            return


def tower_flops(fields: dict[str, Any]) -> tuple[float, int]:
    """Return the forward FLOPs of tower and projectors for one image: counted, and those of a run."""
    model = read(fields)
    tower = model.tower
    assert tower is not None
    if tower.resizable:
        model = model.with_images(size=4 * tower.merge * tower.patch_size)
        tower = model.tower
    forward = forward_flops(model)
    config = transformers.AutoConfig.for_model(**fields)
    built = transformers.AutoModelForImageTextToText.from_config(config, attn_implementation="eager")
    side, cut = tower.size, tower.size // tower.patch_size
    inputs: dict[str, Any] = {"pixel_values": torch.randn(1, 3, side, side)}
    if RUNS[fields["model_type"]] == "patches":
        inputs = {"pixel_values": torch.randn(tower.patches, tower.patch)}
        inputs["image_grid_thw"] = torch.tensor([[1, cut, cut]])
    elif RUNS[fields["model_type"]] == "cuts":
        inputs = {"pixel_values": torch.randn(1, 1, 3, side, side)}
    elif RUNS[fields["model_type"]] == "sized":
        inputs["image_sizes"] = torch.tensor([[side, side]])
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        built.eval().model.get_image_features(**inputs)
    return round((forward.tower + forward.projector) * model.seq), counter.get_total_flops()


def imported(fields: dict[str, Any]) -> int:
    """Return the parameters of the model that a configuration is imported as."""
    return read(fields).parameters


def read(fields: dict[str, Any]) -> tc.Model:
    """Return the model that a configuration is imported as."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(fields), encoding="utf-8")
        return tc.load_model(path)


def needed(fields: dict[str, Any], count: int) -> dict[str, Any]:
    """Return the fields of a configuration and its parts without which the import counts otherwise."""
    kept = dict(fields)
    for path in [
        *((name,) for name in fields),
        *((name, inner) for name, value in fields.items() if isinstance(value, dict) for inner in value),
    ]:
        *part, name = path
        if name == "model_type":
            continue
        within = kept.get(part[0], {}) if part else kept
        fewer = {key: value for key, value in within.items() if key != name}
        fewer = kept | {part[0]: fewer} if part and part[0] in kept else fewer
        try:
            kept = fewer if imported(fewer) == count else kept
        except InputError:
            continue
    return kept


def status(name: str) -> str:
    """Return what the import makes of a type: full, text (its text part), or refused."""
    if name in model_types() or name in vision_types()["projectors"]:
        return "full"
    try:
        read(json.loads(json.dumps(transformers.AutoConfig.for_model(name).to_dict(), default=str)))
    except Exception:  # an InputError, or of transformers, which has no default of the type
        return "refused"
    return "text"


def misplaced() -> list[str]:
    """Return the causal-LM types whose status, or number, is another one in docs/huggingface.md."""
    page = (ROOT / "docs" / "huggingface.md").read_text(encoding="utf-8")
    _, _, listed = page.partition("causal-LM types of transformers ")
    sentence, _, rest = listed.partition("refused by name")
    text, refused = (set(re.findall(r"`([\w-]+)`", part)) for part in (sentence, rest.split("\n\n")[1]))
    says = {name: "text" if name in text else "refused" if name in refused else "full" for name in CAUSAL}
    says |= dict.fromkeys((text | refused) - set(CAUSAL), "listed")
    numbers = [len(CAUSAL), *(list(says.values()).count(word) for word in ("full", "text"))]
    found = f"Of the {numbers[0]} causal-LM types", f"{numbers[1]} are counted in full and {numbers[2]} by"
    wrong = [name for name, word in says.items() if name not in CAUSAL or status(name) != word]
    return wrong + [line for line in found if line not in page]


def main() -> int:
    """Compare types; return 1 where a count differs or a type cannot be compared."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("types", nargs="*", default=TYPES)
    parser.add_argument("--draws", type=int, default=3, help="configurations of each type")
    parser.add_argument("--write", action="store_true", help="renew the counts that the tests hold")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()  # what is odd in a configuration drawn at random
    wrong, kept = [], []
    for model_type in options.types:
        results = list(compared(model_type, options.draws))
        wrong += [model_type] if not results else []
        for fields, counted, built in results:
            if counted != built:
                wrong.append(model_type)
                print(f"{model_type}: {counted:,} imported, {built:,} built\n  {json.dumps(fields)}")
        entries = [
            {"config": needed(full, built), "parameters": built}
            for full, _, built in results[:3] + results[-1:]
        ]
        for entry in entries if model_type in RUNS else ():
            counted, run = tower_flops(entry["config"])
            entry["tower_flops"] = run
            if counted != run:
                wrong.append(model_type)
                print(f"{model_type}: {counted:,} FLOP of the tower counted, {run:,} run")
        kept += [entry for place, entry in enumerate(entries) if entry not in entries[:place]]
    if options.write and not wrong:
        for path, of_images in ((COUNTS, False), (SEEN, True)):
            others = json.loads(path.read_text(encoding="utf-8"))
            others = [entry for entry in others if entry["config"]["model_type"] not in options.types]
            others += [entry for entry in kept if (entry["config"]["model_type"] in WHOLE) == of_images]
            others.sort(key=lambda entry: str(entry["config"]["model_type"]))
            path.write_text("[\n" + ",\n".join(map(json.dumps, others)) + "\n]\n", encoding="utf-8")
    if set(options.types) == set(TYPES):
        wrong += [f"{name} in docs/huggingface.md" for name in misplaced()]
    version, names = transformers.__version__, ", ".join(sorted(set(wrong))) or "none"
    print(f"{len(options.types)} types of transformers {version}; wrong: {names}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
