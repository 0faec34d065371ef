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
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from transformers.models.auto import modeling_auto as auto

import traincast as tc
from traincast.catalog.huggingface.config import model_types
from traincast.core.errors import InputError

COUNTS: Final = Path(__file__).parents[1] / "tests" / "data" / "transformers_counts.json"
CLASSES: Final = (  # what is built of a type: its names, and the class that builds it
    (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, transformers.AutoModelForCausalLM),
    (auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, transformers.AutoModelForSeq2SeqLM),
    (auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES, transformers.AutoModelForSpeechSeq2Seq),
    (auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, transformers.AutoModelForMaskedLM),
)
TYPES: Final = sorted(set(model_types()).intersection(*[set().union(*[names for names, _ in CLASSES])]))
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
    "n_shared_experts": (1, 2),
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
    "linear_head_dim": (16, 32),
    "lru_width": (384, None),
    "conv1d_width": (3, 4),
    "time_step_rank": (8, "auto"),
    "index_n_heads": (2, 4),
    "index_head_dim": (16, 32),
    "index_topk": (64,),
    "first_k_dense_replace": (0, 1),
    "attn_layer_period": (2, 3),
    "attn_layer_offset": (0, 1),
    "expert_layer_offset": (0, 1),
    "encoder_layers": (1, 2, 3),
    "encoder_attention_heads": (4, 6, 12),
    "encoder_ffn_dim": (96, 416),
    "max_source_positions": (100, 200),
    "num_mel_bins": (40, 80),
}
LINEAR: Final = {  # field of a hybrid -> its word for layers without attention
    "conv_L_cache": "conv", "linear_num_heads": "linear_attention", "block_size": "linear_attention",
    "mamba_d_state": "linear_attention", "linear_num_key_heads": "linear_attention"
}  # fmt: skip
FIXED: Final = {"pad_token_id": None, "layer_types": None, "mlp_layer_types": None}


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
    return transformers.AutoConfig.for_model(model_type, **fields)


def compared(model_type: str, draws: int) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Yield configurations of a type, with the count of the import and that of the built model.

    Each comes with all fields, and without those that transformers leaves out when it saves it.
    """
    for names, built_by in CLASSES:
        if model_type in names:
            yield from built_as(built_by, model_type, draws)


def built_as(built_by: Any, model_type: str, draws: int) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Yield the configurations of a type that one class builds; an error if there is none."""
    found = 0
    for seed in range(TRIES * draws):
        try:
            config = drawn(model_type, seed)
            with torch.device("meta"):
                built = built_by.from_config(config)
        except Exception:  # each type refuses combinations with errors of its own
            continue
        config.architectures = [type(built).__name__]
        weights = sum(weights.numel() for weights in built.parameters())
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


def imported(fields: dict[str, Any]) -> int:
    """Return the parameters of the model that a configuration is imported as."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(fields), encoding="utf-8")
        return tc.load_model(path).parameters


def needed(fields: dict[str, Any], count: int) -> dict[str, Any]:
    """Return the fields of a configuration without which the import counts otherwise."""
    kept = dict(fields)
    for name in fields:
        fewer = {key: value for key, value in kept.items() if key != name}
        try:
            kept = fewer if imported(fewer) == count else kept
        except InputError:
            continue
    return kept


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
        kept += [entry for place, entry in enumerate(entries) if entry not in entries[:place]]
    if options.write and not wrong:
        others = json.loads(COUNTS.read_text(encoding="utf-8"))
        kept += [entry for entry in others if entry["config"]["model_type"] not in options.types]
        kept.sort(key=lambda entry: str(entry["config"]["model_type"]))
        COUNTS.write_text("[\n" + ",\n".join(map(json.dumps, kept)) + "\n]\n", encoding="utf-8")
    version, names = transformers.__version__, ", ".join(sorted(set(wrong))) or "none"
    print(f"{len(options.types)} types of transformers {version}; wrong: {names}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
