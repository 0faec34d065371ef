#!/usr/bin/env bash
# TRL 1.16.0 on transformers 5.23.0: the same checkpoint in bf16 is loaded in fp32 by TRL, in bf16 by transformers.
#
# transformers 5 loads a model in the precision of its checkpoint. TRL's trainers, given the name of a model, load it
# in fp32 unless `dtype` (of `trl sft`) or `model_init_kwargs` says otherwise: also where the base model of LoRA is
# frozen, which then takes twice the memory of what the same program takes with AutoModel.from_pretrained.
#
# Seen on 2026-11-27 with Python 3.11:
#   trl 1.16.0, transformers 5.23.0
#   checkpoint: torch.bfloat16
#   AutoModelForCausalLM.from_pretrained: torch.bfloat16
#   trl's create_model_from_path: torch.float32
#   default of dtype in trl sft: float32
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0 trl==1.16.0
cat >"$folder/dtypes.py" <<'PYTHON'
import sys

import torch
import transformers
import trl
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from trl import ModelConfig
from trl.trainer.utils import create_model_from_path

print(f"trl {trl.__version__}, transformers {transformers.__version__}")
config = LlamaConfig(
    hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4, vocab_size=128, dtype="bfloat16"
)
path = f"{sys.argv[1]}/model"
saved = LlamaForCausalLM(config).to(torch.bfloat16)
saved.save_pretrained(path)
print(f"checkpoint: {saved.dtype}")
print(f"AutoModelForCausalLM.from_pretrained: {AutoModelForCausalLM.from_pretrained(path).dtype}")
print(f"trl's create_model_from_path: {create_model_from_path(path).dtype}")
print(f"default of dtype in trl sft: {ModelConfig().dtype}")
PYTHON
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" "$folder/dtypes.py" "$folder" 2>/dev/null | tee "$folder/seen"
diff "$folder/seen" - <<'SEEN'
trl 1.16.0, transformers 5.23.0
checkpoint: torch.bfloat16
AutoModelForCausalLM.from_pretrained: torch.bfloat16
trl's create_model_from_path: torch.float32
default of dtype in trl sft: float32
SEEN
