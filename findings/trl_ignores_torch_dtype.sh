#!/usr/bin/env bash
# TRL 1.16.0 on transformers 5.23.0: `torch_dtype` still loads a model in bf16 with transformers, and in fp32 with TRL.
#
# transformers 5 renamed `torch_dtype` of from_pretrained to `dtype`; the old name still works, with a warning. TRL's
# trainers, given the name of a model and `model_init_kwargs={"torch_dtype": "bfloat16"}`, as many programs have it,
# set `dtype` to float32 beside it because only the new name is looked for, and the new name wins. The model then
# takes twice the memory that the program asks for, without a word from TRL.
#
# Seen on 2026-11-28 with Python 3.11:
#   trl 1.16.0, transformers 5.23.0
#   dtype: AutoModelForCausalLM torch.bfloat16, create_model_from_path of TRL torch.bfloat16
#   torch_dtype: AutoModelForCausalLM torch.bfloat16, create_model_from_path of TRL torch.float32
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0 trl==1.16.0
cat >"$folder/names.py" <<'PYTHON'
import sys

import torch
import transformers
import trl
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from trl.trainer.utils import create_model_from_path

print(f"trl {trl.__version__}, transformers {transformers.__version__}")
config = LlamaConfig(
    hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4, vocab_size=128, dtype="bfloat16"
)
path = f"{sys.argv[1]}/model"
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(path)
for name in ("dtype", "torch_dtype"):
    asked = {name: "bfloat16"}
    by_transformers = AutoModelForCausalLM.from_pretrained(path, **asked).dtype
    by_trl = create_model_from_path(path, **asked).dtype
    print(f"{name}: AutoModelForCausalLM {by_transformers}, create_model_from_path of TRL {by_trl}")
PYTHON
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" "$folder/names.py" "$folder" 2>/dev/null | tee "$folder/seen"
diff "$folder/seen" - <<'SEEN'
trl 1.16.0, transformers 5.23.0
dtype: AutoModelForCausalLM torch.bfloat16, create_model_from_path of TRL torch.bfloat16
torch_dtype: AutoModelForCausalLM torch.bfloat16, create_model_from_path of TRL torch.float32
SEEN
