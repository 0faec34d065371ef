#!/usr/bin/env bash
# PEFT 0.21.2 on transformers 5.23.0: an adapter of a mixture's experts has twice the rank that is asked for.
#
# transformers 5 holds the gate and up projections of all experts as one tensor. With `target_modules="all-linear"`
# and `r=8`, PEFT gives that joined projection adapters of rank 16, the down projection and all other layers rank 8.
# Without `target_modules` there is no default for mixtures: PEFT refuses, where it takes q_proj and v_proj of Llama.
# Who counts trained parameters as r × (inputs + outputs) of each linear layer is a third too low for Mixtral.
#
# Seen on 2026-11-27 with Python 3.11:
#   peft 0.21.2, transformers 5.23.0
#   gate and up of the experts: rank 16
#   down projection of the experts: rank 8
#   no default targets for mixtral: refused
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0 peft==0.21.2
cat >"$folder/ranks.py" <<'PYTHON'
import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model
from transformers import MixtralConfig, MixtralForCausalLM

print(f"peft {peft.__version__}, transformers {transformers.__version__}")
config = MixtralConfig(
    hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
    num_local_experts=4, num_experts_per_tok=2, vocab_size=128,
)  # fmt: skip


def model():
    with torch.device("meta"):
        return MixtralForCausalLM(config)


adapted = get_peft_model(model(), LoraConfig(r=8, target_modules="all-linear"))
shapes = {name: tuple(value.shape) for name, value in adapted.named_parameters() if "lora_" in name and "experts" in name}
# of lora_A (experts × rank, inputs): inputs of the joined gate and up are the hidden size, those of down the width
ranks = {shape[-1]: shape[0] // config.num_local_experts for name, shape in shapes.items() if "lora_A" in name}
print(f"gate and up of the experts: rank {ranks[config.hidden_size]}")
print(f"down projection of the experts: rank {ranks[config.intermediate_size]}")
try:
    get_peft_model(model(), LoraConfig(r=8))
    print("default targets for mixtral: taken")
except ValueError:
    print("no default targets for mixtral: refused")
PYTHON
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" "$folder/ranks.py" 2>/dev/null | tee "$folder/seen"
diff "$folder/seen" - <<'SEEN'
peft 0.21.2, transformers 5.23.0
gate and up of the experts: rank 16
down projection of the experts: rank 8
no default targets for mixtral: refused
SEEN
