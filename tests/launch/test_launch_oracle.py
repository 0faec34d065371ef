"""Command lines with random settings are read as Megatron-LM's own parser reads them.

`oracle/megatron.json` is what the parser of Megatron-Core 0.19.2 makes of them (tools/launch_oracle.py).
"""

import json
from pathlib import Path

import pytest

from traincast.launch.formats import READERS
from traincast.launch.read import complete_launch, read

CASES = json.loads(Path(__file__).with_name("oracle").joinpath("megatron.json").read_text())
SAME = {  # knob -> argument of Megatron-LM
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "dp": "data_parallel_size",
    "mbs": "micro_batch_size",
}


# selective: core_attn alone, the default of --recompute-modules (Megatron-Core 0.19.2, transformer_config.py)
RECOMPUTE = {"full": "full", "selective": "attention", None: "none"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["words"][-60:])
def test_the_parser_of_megatron_reads_the_same(case, tmp_path):
    file = tmp_path / "pretrain.sh"
    nodes = case["gpus"] // 8
    file.write_text(f"torchrun --nnodes {nodes} --nproc-per-node 8 pretrain_gpt.py {case['words']}\n")
    wanted = case["reading"]
    reading = read(file, READERS)
    _, model, plan, gbs = complete_launch(reading, None, None, None, {})
    ours = {knob: getattr(plan, knob) for knob in SAME}
    assert ours == {knob: wanted[argument] for knob, argument in SAME.items()}
    assert gbs == wanted["global_batch_size"]
    assert plan.recompute == RECOMPUTE[wanted["recompute_granularity"]]
    assert (plan.zero > 0) == wanted["use_distributed_optimizer"]
    assert model.seq == wanted["seq_length"]
    assert model.layers == wanted["num_layers"]
    assert model.hidden == wanted["hidden_size"]
    assert model.ffn == wanted["ffn_hidden_size"]
