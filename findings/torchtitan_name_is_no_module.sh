#!/usr/bin/env bash
# torchtitan 0.3.0: the name in a model's specification is not always that of the module that has the model.
#
# A launch names the module, `--module kimi_k2_7`; the configuration then holds a ModelSpec with a name and a flavour.
# For seven of the eight modules both names are alike, so a tool that reads the ModelSpec of a job, and writes
# `torchtitan.models.<name>` into the next one, works until it meets Moonlight: its ModelSpec says kimi_k2_5, and there
# is no such module. Flavours of Kimi K2.5, K2.6 and K2.7 share one folder, which has the name of the last.
#
# Seen on 2026-11-28 with Python 3.11:
#   torchtitan 0.3.0
#   module deepseek_v3: deepseek_v3
#   module kimi_k2_7: kimi_k2_5
#   torchtitan.models.kimi_k2_5: no such module
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 torchtitan==0.3.0 torchao==0.18.0 triton==3.9.0
cat >"$folder/names.py" <<'PYTHON'
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec

print(f"torchtitan {version('torchtitan')}")
for module, flavor in (("deepseek_v3", "16B"), ("kimi_k2_7", "moonlight-16B-A3B")):
    spec = import_module(f"torchtitan.models.{module}").model_registry(flavor)
    print(f"module {module}: {spec.name}")
found = find_spec("torchtitan.models.kimi_k2_5")
print(f"torchtitan.models.kimi_k2_5: {'a module' if found else 'no such module'}")
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/names.py" 2>/dev/null | tee "$folder/seen"
diff "$folder/seen" - <<'SEEN'
torchtitan 0.3.0
module deepseek_v3: deepseek_v3
module kimi_k2_7: kimi_k2_5
torchtitan.models.kimi_k2_5: no such module
SEEN
