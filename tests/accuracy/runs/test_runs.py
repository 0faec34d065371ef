"""Rows of measured runs: stated and filled-in columns, facts, reasons to skip; rows were checked by eye."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import traincast as tc
from left_out import LATER
from normalise import published
from traincast.accuracy.fit.residuals import bundled_runs
from traincast.accuracy.runs.cells import Cells, Unreadable, patterns
from traincast.accuracy.runs.facts import read_facts
from traincast.accuracy.runs.plan import layout, policies, written_out
from traincast.accuracy.runs.run import Run, load_bundled_runs, note_software, read_run, readable, rows
from traincast.accuracy.runs.run import software as software_of
from traincast.accuracy.validation import validate
from traincast.catalog.facts import ALWAYS_GIVEN, FACTS, FRAMEWORKS
from traincast.core.assumptions import CALIBRATED
from traincast.core.knobs import chunks as layers_of_chunks
from traincast.model.adapters import Adapters

TABLE = published()
BY_ID = {row["id"]: row for row in TABLE}


def changed(row_id, **cells):
    return BY_ID[row_id] | cells


def test_machines_are_of_the_catalogue():
    for networks in patterns()["systems"].values():
        assert "" in networks  # the usual system
        for name in networks.values():
            assert tc.load_system(name).name == name


SENTENCES = ("notes", "source", "url", "moe_detail", "zero_detail", "recompute_detail", "precision_detail")


@pytest.mark.parametrize("table", ["published", "later"])
def test_words_change_no_prediction(table):
    """Whatever stands in notes, source, url and details, rows are read and predicted the same, bit by bit."""
    given = [dict(row) for row in (TABLE if table == "published" else rows(LATER))]
    blank = [row | dict.fromkeys(SENTENCES, "") for row in given]
    other = [
        row | dict.fromkeys(SENTENCES, "DualPipe, eager, LoRA rank 8, overlap disabled, v5.1")
        for row in given
    ]

    def read_rows(table):
        found = (run for _, run in readable(table))
        return [run if isinstance(run, str) else replace(run, source="") for run in found]

    def predictions(runs):
        return [replace(item, parts={}) for item in validate(runs).predictions]

    assert read_rows(blank) == read_rows(given) == read_rows(other)  # a prediction follows from the run
    few = slice(None, None, len(given) // 30)  # predicting takes longer than reading
    expected = predictions(given[few])
    assert predictions(blank[few]) == expected == predictions(other[few])
    assert sum(item.skipped is None for item in expected) > 15


def test_patterns_read_names_and_units():
    """No pattern reads a column of sentences."""
    columns = {
        name for columns in patterns()["phrases"].values() for names in columns for name in names.split()
    }
    for rules in patterns().values():
        if isinstance(rules, list):
            columns |= {name for rule in rules for names in rule for name in names.split()}
    assert not columns & {*SENTENCES, "stack"}


def test_facts_are_few_and_have_meanings():
    assert len(FACTS) <= 13
    assert set(ALWAYS_GIVEN) < set(FACTS)
    assert all(fact.meaning and fact.values for fact in FACTS.values())
    for row in (*TABLE, *rows(LATER)):  # every cell of the tables is allowed
        cells = Cells(row)
        stated = read_facts(cells, frozenset(policies()))
        assert not cells.problems, row["id"]
        assert stated == {name: row[name] for name in FACTS if row.get(name)}


def test_the_page_has_the_table_of_facts():
    page = (Path(__file__).parents[3] / "docs" / "catalogue.md").read_text(encoding="utf-8")
    for name, fact in FACTS.items():
        assert f"| `{name}` | {fact.values} | {fact.meaning} |" in page


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            {"dispatcher": "pigeon"},
            "dispatcher = 'pigeon': must be one of alltoall, allgather, deepep, hybridep, flex",
        ),
        ({"framework": "slurm"}, "framework = 'slurm': must be one of AutoModel, Composer, .*, other"),
        ({"compiled": "yes"}, "compiled = 'yes': must be one of true, false"),
        (
            {"kernels": "flex-attention+fast"},
            r"kernels = 'flex-attention\+fast': must be one of .*; several are joined",
        ),
        ({"etp": "two"}, "etp = 'two': must be a whole number"),
        (
            {"remat": "sometimes"},
            "remat = 'sometimes': must be one of custom, full, minimal, minimal_flash, ",
        ),
    ],
)
def test_a_fact_that_is_not_known_says_what_is(cells, reason):
    with pytest.raises(Unreadable, match=reason):
        read_run(changed("korth-008", **cells))


@pytest.mark.parametrize("name", ["megatron_bridge", "Megatron Bridge", "MEGATRON-BRIDGE"])
def test_frameworks_are_named_in_either_column(name):
    """`framework`, or `stack` where that names a framework; a row of its own has `other`."""
    assert read_run(changed("korth-008", framework=name)).facts["framework"] == "Megatron-Bridge"
    assert read_run(changed("korth-008", framework="", stack=name)).facts["framework"] == "Megatron-Bridge"
    assert "other" in FRAMEWORKS
    assert read_run(changed("korth-008", framework="other")).stack == CALIBRATED


@pytest.mark.parametrize(
    ("cells", "software"),
    [
        ({"released": "2021-04"}, "megatron-lm-2021"),
        ({"released": "2022-05"}, "megatron-lm-2022"),
        ({}, "megatron-core-2024"),  # undated
        ({"released": "2023-01"}, "megatron-lm-2023"),
        ({"released": "2025-02"}, "megatron-core-2025"),
        ({"framework": "NeMo", "released": "2024-07"}, "nemo-2024"),
        ({"framework": "NeMo", "released": "2024-12"}, "megatron-core-2024"),
        ({"framework": "NeMo", "released": "2025-04"}, "nemo-2025"),
        ({"framework": "NeMo", "released": "2025-04", "experts": "8"}, "nemo-2025"),
        ({"framework": "NeMo", "released": "2025-04", "experts": "8", "Grace": "host"}, "nemo-2025-grace"),
        ({"framework": "Megatron-Core", "dispatcher": "deepep"}, "megatron-core-deepep"),
        ({"framework": "Megatron-Core", "overlap": "none"}, "megatron-core-plain"),
        ({"framework": "Megatron-Bridge", "released": "2026-02"}, "megatron-bridge-26.02"),
        ({"framework": "llm-foundry"}, "composer-fsdp-2023"),
        ({"framework": "Megatron-Bridge", "released": "2026-08"}, "megatron-bridge-2026"),
        (
            {"framework": "Megatron-Bridge", "released": "2026-08", "experts": "128", "mamba2": "layers"},
            "megatron-bridge-26.02",
        ),
        (
            {"framework": "Megatron-Bridge", "released": "2026-08", "model": "Nemotron-340B"},
            "megatron-bridge-2026",
        ),
        (
            {"framework": "Megatron-Bridge", "released": "2026-02", "graphs": "iteration"},
            "megatron-bridge-2026",
        ),
        (
            {"framework": "Megatron-Bridge", "released": "2026-04", "experts": "8", "dispatcher": "alltoall"},
            "megatron-bridge-2025",
        ),
        ({"framework": "torchtitan", "compiled": "false"}, "torchtitan-eager"),
        ({"framework": "torchtune", "update": "backward"}, "torchtune-backward-2025"),
        ({"framework": "torchtune", "loss": "whole"}, "torchtune-full-loss-2025"),
        ({"framework": "AutoModel", "kernels": "flex-attention"}, "automodel-flex-2025"),
        ({"framework": "Pax", "released": "2023"}, "pax-2023"),
        (
            {"framework": "MLPerf", "gpu": "b200", "released": "2025-11", "adapters": "lora"},
            "mlperf-2025-10-lora",
        ),
        (
            {"framework": "MLPerf", "gpu": "b200", "released": "2025-11", "diffusion": "x"},
            "nemo-diffusion-2025",
        ),
        # facts that no stack of the catalogue has are composed
        (
            {"framework": "Megatron-Core", "overlap": "none", "dispatcher": "deepep", "experts": "8"},
            "megatron-core-2025+dispatcher=deepep+overlap=none",
        ),
        ({"framework": "torchtitan", "compiled": "false", "loss": "fused"}, "torchtitan-2025+compiled=false"),
        # and those that change no constant make no other software
        ({"framework": "Megatron-Core", "overlap": "none", "loss": "fused"}, "megatron-core-plain"),
        ({"framework": "Megatron-Core", "dispatcher": "hybridep", "experts": "8"}, "megatron-core-deepep"),
        ({"framework": "Hugging Face Trainer"}, "huggingface-eager"),
        ({"framework": "TRL", "loss": "chunked"}, "huggingface-eager+loss=chunked"),
        ({"framework": "", "stack": "Hugging Face Trainer, eager"}, "huggingface-eager"),
        (
            {"framework": "", "stack": "Hugging Face Trainer, fused cross-entropy and norms"},
            "huggingface-fused-loss",
        ),
        ({"framework": "", "stack": "torchtitan, eager, of my own"}, "torchtitan-eager"),
        ({"framework": "", "stack": "a loop of my own"}, CALIBRATED),
        ({"framework": "", "stack": "a loop of my own, eager"}, CALIBRATED),
    ],
)
def test_facts_of_software_decide_its_stack(cells, software):
    """Release date, CUDA graphs, dispatcher and the like; undated rows have the framework's default."""
    row = Cells({"framework": "Megatron-LM", "gpu": "h100-sxm-80"} | cells)
    read_facts(row, frozenset())
    kinds = {kind for kind in ("experts", "mamba2", "Grace", "adapters", "diffusion") if row.text(kind)}
    assert software_of(row, kinds) == software


def test_what_stands_behind_a_framework_fills_cells_that_are_empty():
    cells = Cells({"stack": "transformers, eager", "loss": "fused"})
    stated = read_facts(cells, frozenset())
    assert stated == {"framework": "Transformers", "compiled": "false", "loss": "fused"}


def test_the_trainer_in_pure_bf16_has_all_states_in_16_bits():
    """PyTorch makes gradients and the moments of AdamW of the type of the weights: 8 bytes of a weight."""
    open_cells = dict.fromkeys(("grad_dtype", "optimizer_kind", "memory_kind"), "")
    row = changed("titan-002", framework="Hugging Face Trainer", precision="bf16-pure", **open_cells)
    run = read_run(row)
    assert (run.plan.grad_dtype, run.plan.optimizer_kind) == ("16-bit", "adam-bf16")
    assert run.reported == "allocated"


# BERT-large, cased, and T5 in Megatron-LM (examples/t5/train_t5_220m_distributed.sh)
BERT_LARGE = {"layers": "24", "hidden": "1024", "heads": "16", "kv_heads": "16", "ffn": "4096", "seq": "512"}
T5_BASE = {"layers": "12", "hidden": "768", "heads": "12", "kv_heads": "12", "ffn": "3072", "seq": "128"}
SMALL = {"gpus": "8", "tp": "1", "pp": "1", "vp": "1", "dp": "8", "mbs": "4", "gbs": "128", "params_b": ""}


def test_bert_is_an_encoder_with_a_head_of_its_own():
    """333,579,264 parameters in Hugging Face's bert-large-cased, which has no head of its own."""
    run = read_run(changed("korth-008", **SMALL, **BERT_LARGE, model="BERT-large", vocab="28996"))
    assert not run.model.causal
    assert run.model.parameters == pytest.approx(333_579_264, rel=0.001)


def test_an_encoder_decoder_states_both_its_parts():
    """220M parameters in Megatron-LM's example, whose vocabulary is BERT's and 100 sentinels."""
    encoder = {"encoder_layers": "12", "encoder_seq": "512"}
    run = read_run(changed("korth-008", **SMALL, **T5_BASE, **encoder, model="t5_base", vocab="29096"))
    assert (run.model.layers, run.model.encoder.layers) == (24, 12)
    assert (run.model.seq, run.model.encoder.seq) == (128, 512)
    assert run.model.parameters == pytest.approx(220e6, rel=0.02)


OF_MEMORY = {**SMALL, "gpus": "", "dp": "", "memory_gb_published": "20", "memory_kind": "allocated"}


@pytest.mark.parametrize(
    ("cells", "gpus"),
    [
        ({}, 8),  # a node
        ({"gpus_per_node": "4"}, 4),
        ({"zero": "1"}, 8),
        ({"dp": "16"}, 16),
        ({"tp": "8", "pp": "8"}, 64),  # what its ranks need
    ],
)
def test_memory_of_a_rank_is_read_without_the_number_of_gpus(cells, gpus):
    run = read_run(changed("korth-008", **{"zero": "0"} | OF_MEMORY | cells))
    assert run.plan.gpus == gpus
    assert run.step_seconds is None
    assert "gpus" in run.assumed


def test_gpus_that_the_optimizer_is_sharded_over_are_not_guessed():
    with pytest.raises(Unreadable, match=r"^gpus is not known, over which the optimizer is sharded$"):
        read_run(changed("korth-008", **OF_MEMORY | {"tp": "8", "pp": "8", "zero": "1"}))
    with pytest.raises(Unreadable, match=r"^gpus is not known$"):
        read_run(changed("korth-008", **OF_MEMORY | {"memory_gb_published": ""}))


def test_memory_of_megatron_is_read_without_the_accelerator():
    open_cells = SMALL | {"gpu": "", "interconnect": "", "memory_gb_published": "20"}
    run = read_run(changed("korth-008", **open_cells, framework="Megatron-Core"))
    assert run.system.name == "dgx-a100"
    assert run.step_seconds is None
    with pytest.raises(Unreadable, match="accelerator is not known"):
        read_run(changed("korth-008", **SMALL, gpu=""))


@pytest.mark.parametrize("released", ["May 2024", "2024-13", "24.05"])
def test_a_release_is_a_date(released):
    with pytest.raises(Unreadable, match=f"released = '{released}': must be a year or a month"):
        read_run(changed("korth-008", released=released))


def test_bundled_runs_are_those_of_the_published_table():
    """They are read once, by calibration/normalise.py."""
    assert load_bundled_runs() == [(row["id"], run) for row, run in readable(TABLE)]


@pytest.mark.parametrize(
    ("row_id", "expected"),
    [
        (
            "korth-008",
            {"tp": 8, "pp": 64, "dp": 1, "mbs": 1, "attention": "unfused", "tp_overlap": False, "sp": True},
        ),
        (
            "zb-010",
            {"pp": 8, "mbs": 6, "zero": 0, "schedule": "zb-2p", "precision": "fp16", "layout": "2,3*6,2"},
        ),
        # one layer for each chunk, embedding and head in chunks of their own: vpp=(L+2)/p
        ("zb-004", {"pp": 8, "vp": 3, "schedule": "1f1b", "layout": "0,1*22,0"}),
        (
            "simumax-007",
            {"ep": 8, "etp": 1, "dp": 8, "mbs": 1, "zero": 1, "attention": "flash", "grad_dtype": "fp32"},
        ),
        (
            "dgxc-227",
            {"tp": 8, "cp": 2, "pp": 8, "vp": 8, "cp_kind": "ring", "tp_overlap": True, "layout": "1,2*62,1"},
        ),
        ("dgxc-122", {"ep": 8, "etp": 4, "tp_overlap": False}),  # tp_comm_overlap off for Grok
        ("titan-020", {"tp": 8, "zero": 3, "tp_overlap": True, "recompute": "full"}),  # async TP
        ("titan-019", {"tp": 8, "zero": 3, "tp_overlap": False}),  # vanilla TP
        ("titan-002", {"recompute": "per-op", "zero": 3, "grad_dtype": "fp32"}),
        ("titan-003", {"precision": "fp8-current"}),  # torchao tensorwise
        ("google-053", {"precision": "int8"}),  # int8/fp8 quantized (config says int8)
        ("google-069", {"precision": "int8"}),
        ("titan-023", {"precision": "fp8-rowwise"}),
        (
            "google-010",
            {"tp": 8, "mbs": 8, "sp": True, "zero": 3},
        ),  # a TP group of 8 chips processes 8 sequences
        ("google-040", {"tp": 16, "mbs": 16, "replicas": 1}),
        ("mbridge-077", {"precision": "nvfp4", "grad_dtype": "16-bit"}),
        ("mpt-140", {"precision": "bf16", "grad_dtype": "16-bit", "zero": 3}),  # bf16 pure
        ("ibm-001", {"zero": 3, "replicas": 16}),  # HSDP over nodes of 8 of 128 GPUs
        ("ibm-003", {"recompute": "full", "recompute_every": 2}),  # selective (some blocks)
        (
            "dgxc-189",
            {"zero": 3, "replicas": 2, "recompute": "activation+attention+norms"},
        ),  # FSDP within node, 16 GPUs
        ("dgxc-199", {"zero": 3, "replicas": 4, "recompute": "attention+mlp+norms"}),  # FSDP 128 of 512
        ("internevo-016", {"zero": 1, "replicas": 128}),  # ZeRO-1 in groups of 8 of 1024
        ("internevo-008", {"zero": 1, "replicas": 1}),  # over all
        ("mbridge-200", {"recompute": "full", "recompute_every": 6}),  # block 5 layers of 32
        ("mbridge-176", {"offload": "activations", "offload_every": 4}),  # 20 layers of 80
        ("mega-005", {"zero": 1, "mbs": 1, "recompute": "none"}),  # ZeRO-2 in a pipeline reduces once a step
        ("nvmoe-008", {"recompute": "activation+norms", "etp": 1}),  # selective:layernorm+moe_act, ETP 1
        ("papers-023", {"schedule": "dualpipe", "precision": "fp8-block", "recompute": "mla_up_proj+norms"}),
    ],
)
def test_a_row_is_what_it_says(row_id, expected):
    run = read_run(BY_ID[row_id])
    assert {name: getattr(run.plan, name) for name in expected} == expected
    assert run.plan.gpus == int(BY_ID[row_id]["gpus"])
    if BY_ID[row_id]["step_seconds"]:
        assert run.step_seconds == float(BY_ID[row_id]["step_seconds"])


@pytest.mark.parametrize(
    ("row_id", "expected"),
    [
        ("mpt-140", {"biases": (), "positions": "learned", "tied": True, "dropout": False, "vocab": 50368}),
        (
            "vtrain-m-001",
            {
                "biases": ("qkv", "proj", "mlp"),
                "positions": "learned",
                "tied": True,
                "dropout": True,
                "vocab": 51200,
            },
        ),
        ("bloom-097", {"positions": "none", "tied": True}),  # ALiBi
        (
            "nvmoe-006",
            {"sinks": True, "biases": ("qkv", "proj", "mlp"), "head_width": 64, "qk_norm": None},
        ),  # GPT-OSS
        (
            "nvmoe-008",
            {"qk_norm": "head", "head_width": 128, "norm": "rmsnorm"},
        ),  # Qwen3, 64 heads of 128 in 4096
        ("dgxc-001", {"kv_heads": 16, "layers": 7}),  # early yaml of 405B
        ("dgxc-236", {"mlp": "relu2", "norm": "layernorm", "biases": (), "tied": False}),  # Nemotron
        ("google-010", {"head_width": 128}),  # MaxText's default, 128 heads in 8192
        ("nanotron-024", {"tied": True}),
        ("nanotron-008", {"tied": False}),
        ("mbridge-024", {"mtp": 1}),
        ("mbridge-178", {"mtp": 0}),  # w/o MTP
    ],
)
def test_models_of_rows(row_id, expected):
    model = read_run(BY_ID[row_id]).model
    assert {name: getattr(model, name) for name in expected} == expected


def test_experts_of_rows():
    deepseek = read_run(BY_ID["simumax-007"]).model
    assert (deepseek.layers, deepseek.experts.experts, deepseek.experts.topk, deepseek.latent.kv_rank) == (
        4,
        256,
        8,
        512,
    )
    local = read_run(BY_ID["nvmoe-006"]).model.local
    assert (local.window, local.global_every) == (128, 2)
    llama = read_run(BY_ID["dgxc-297"]).model  # moe on alternate layers (dense ffn 16384), 1 shared
    assert (llama.ffn, llama.experts.ffn, llama.experts.every, llama.experts.shared_ffn) == (
        16384,
        8192,
        2,
        8192,
    )
    assert llama.local.chunked
    assert read_run(BY_ID["dgxc-122"]).model.experts.capacity == 1.0  # capacity factor 1.0
    assert read_run(BY_ID["mbridge-212"]).model.experts.capacity == 1.0  # tokendrop
    assert read_run(BY_ID["mbridge-024"]).model.experts.capacity is None


@pytest.mark.parametrize(
    ("row_id", "stack", "system"),
    [
        ("korth-008", "megatron-lm-2022", "selene"),
        ("mlm20-004", "megatron-lm-2021", "dgx-2"),
        ("mega-001", "megatron-lm-2023", "hgx-a100-roce-8x200"),
        ("mega-005", "megascale-2024", "hgx-a100-roce-8x200"),
        ("dgxc-014", "megatron-core-2024", "dgx-h100"),
        ("dgxc-227", "nemo-2025", "dgx-h100"),
        ("dgxc-189", "pax-2024", "dgx-h100"),
        ("dgxc-184", "maxtext-2025", "dgx-h100"),
        ("jaxtb-022", "maxtext-2025", "dgx-h100"),
        ("jaxtb-001", "pax-2023", "dgx-a100"),  # two revisions of one table
        ("jaxtb-012", "pax-2024", "dgx-a100"),
        ("mbridge-220", "megatron-bridge-2025", "dgx-b200"),
        # "cuda graphs none:full_iteration": none
        ("mbridge-077", "megatron-bridge-26.02+graphs=none", "gb300-nvl72"),
        ("mbridge-024", "megatron-bridge-2026", "gb300-nvl72"),
        ("mbridge-004", "megatron-bridge-2026", "gb200-nvl72"),  # container 26.08
        ("mbridge-067", "megatron-bridge-26.02", "gb200-nvl72"),  # HybridEP
        # its recipe has the all-to-all, and no graphs
        ("mbridge-107", "megatron-bridge-26.02+dispatcher=alltoall+graphs=none", "dgx-h100"),
        (
            "mbridge-037",
            "megatron-bridge-2026+graphs=none",
            "gb300-nvl72",
        ),  # container 26.06 without graphs
        ("mbridge-178", "megatron-bridge-26.02", "gb300-nvl72"),  # container 25.11 in an NVL72
        ("nvmoe-008", "megatron-core-deepep", "dgx-h100"),
        ("papers-023", CALIBRATED, "hgx-h800"),  # a framework of its own
        ("nvmoe-004", "automodel-2025", "dgx-h100"),
        ("nvmoe-006", "automodel-flex-2025", "dgx-h100"),
        ("titan-001", "torchtitan-eager", "grand-teton-h100-96"),
        ("titan-002", "torchtitan-2024", "grand-teton-h100-96"),
        ("ibm-001", "fms-fsdp-2024", "hgx-a100-roce"),
        ("ibm-old-002", "fms-fsdp-eager", "hgx-h100-roce-8x100"),
        ("mpt-140", "composer-fsdp-2023", "hgx-a100-40-roce-8x200"),
        ("google-075", "nemo-2024", "gcp-a3-mega"),
        ("simumax-007", "megatron-core-plain", "dgx-b200"),
        ("dgxc-122", "nemo-2025", "dgx-h100"),  # experts in NeMo 25.02: no overlap of their exchange
        ("dgxc-223", "nemo-2025", "dgx-h100"),  # libraries of its time for products at 8 bits
    ],
)
def test_software_and_machine_of_rows(row_id, stack, system):
    run = read_run(BY_ID[row_id])
    assert (run.stack, run.system.name) == (stack, system)


@pytest.mark.parametrize(
    ("row_id", "overlapped"),
    [
        ("mbridge-095", True),  # "a2a overlap"
        ("mbridge-107", True),  # its recipe sets it
        ("mbridge-074", False),
        ("mbridge-004", True),  # container 26.08
        ("papers-023", True),  # DualPipe
        ("dgxc-122", False),
        ("mbridge-077", False),  # dense
    ],
)
def test_exchanges_that_runs_overlap(row_id, overlapped):
    assert read_run(BY_ID[row_id]).plan.ep_overlap == overlapped


@pytest.mark.parametrize("row_id", ["dgxc-292", "dgxc-294"])
def test_recipes_that_a_row_does_not_state_are_not_filled_in(row_id):
    """NVIDIA's launcher of DeepSeek-V3 recomputes parts of layers; rows do not say, and memory decides."""
    run = read_run(BY_ID[row_id])
    assert (run.plan.recompute, run.plan.attention) == ("none", "flash")
    assert "recompute" in run.assumed


@pytest.mark.parametrize(
    ("row_id", "virtual"),
    [
        ("dgxc-223", 10),  # NeMo: 80 layers over 8 stages, one layer in a chunk
        ("mlm21-020", 1),  # Megatron-LM of 2021, which says nothing of interleaving
        ("mbridge-075", 1),  # experts
    ],
)
def test_tuned_recipes_of_dense_models_interleave(row_id, virtual):
    run = read_run(changed(row_id, vp=""))
    assert run.plan.vp == virtual
    assert ("vp" in run.assumed) == (virtual > 1)


def test_a_row_may_state_that_it_interleaves_but_not_how_much():
    assert BY_ID["mlm21-007"]["vp"] == "interleaved"
    run = read_run(BY_ID["mlm21-007"])  # 80 layers over 8 stages
    assert (run.plan.vp, "vp" in run.assumed) == (10, True)
    assert read_run(changed("mlm21-007", framework="torchtitan")).plan.vp == 2  # its default


@pytest.mark.parametrize(
    ("row_id", "attention"), [("nemo-013", "flash"), ("mpt-001", "flash"), ("korth-008", "unfused")]
)
def test_attention_of_gpts_is_that_of_their_software(row_id, attention):
    """Rows of NeMo and llm-foundry state fused attention, those of Megatron-LM in 2022 none."""
    assert read_run(changed(row_id, flash_attention="")).plan.attention == attention


def test_families_complete_heads_and_windows():
    """config.json of gpt-oss-120b and Qwen3-30B-A3B: head_dim 64 and 128, sliding_window 128; a row counts
    first."""
    model = read_run(changed("mbridge-095", head_dim="", window="", global_every="")).model
    assert (model.head_width, model.local.window, model.local.global_every) == (64, 128, 2)
    model = read_run(changed("mbridge-013", head_dim="")).model
    assert (model.head_width, model.local) == (128, None)
    assert read_run(changed("mbridge-013", head_dim="64")).model.head_width == 64


def test_scaling_and_overlap_are_as_stated():
    """Tuned dense recipes overlap tensor-parallel communication unless a row says no."""
    row = changed(
        "mbridge-194", framework="MLPerf", released="2025-11", precision="fp8-current", tp_overlap=""
    )
    plan = read_run(row).plan
    assert (plan.precision, plan.tp_overlap) == ("fp8-current", True)
    assert read_run(row | {"tp_overlap": "false"}).plan.tp_overlap is False
    assert read_run(row | {"precision": "fp8"}).plan.precision == "fp8"
    with pytest.raises(Unreadable, match="tp_overlap = 'off': must be true or false"):
        read_run(row | {"tp_overlap": "off"})


def test_names_of_the_catalogue_work_in_a_users_table():
    run = read_run(
        changed(
            "korth-008",
            stack="torchtitan-2025",
            system="aws-p4d",
            cp_kind="none",
            tp_overlap="True",
            layout="2*64",
        )
    )
    assert (run.stack, run.system.name, run.plan.tp_overlap) == (
        "torchtitan-2025",
        tc.load_system("aws-p4d").name,
        True,
    )
    assert read_run(changed("korth-008", framework="", stack="my own")).stack == "calibrated"


@pytest.mark.parametrize(
    ("layers", "chunks", "stated", "stack", "lengths"),
    [
        (80, 16, "", "megatron-core-2025", [5] * 16),
        (126, 16, "", "megatron-core-2025", [7, *[8] * 14, 7]),  # 126 = 8*16 - 2
        (70, 12, "", "megatron-deepspeed-2022", [5, *[6] * 10, 5]),  # BLOOM
        (
            78,
            12,
            "",
            "megatron-deepspeed-2022",
            [],
        ),  # its memory is that of balanced stages
        (61, 32, "", "automodel-2025", [1, *[2] * 29, 1, 1]),  # torchtitan's generate_split_points
        (61, 16, "Et*4|(t*4|)*14tmL", "megatron-bridge-2026", [*[4] * 15, 1]),
        (80, 1, "", "megatron-core-2025", []),
        (61, 8, "", "megatron-core-2025", []),  # balanced by the model's own weights
    ],
)
def test_stages_as_the_run_had_them(layers, chunks, stated, stack, lengths):
    cells = Cells({"layout": stated})
    note_software(cells, stack)
    stages = layout(cells, layers, chunks)
    assert list(layers_of_chunks(stages)) == lengths


def test_layouts_in_letters():
    assert written_out("Et*2|t|(t|)*2tL") == "2,1,1,1,1"


@pytest.mark.parametrize(
    ("row_id", "mbs", "why"),
    [
        ("mlm20-004", 8, "the whole batch of a replica fits"),
        ("papers-004", 4, "as well, 384 sequences on 96 replicas"),
        ("mega-001", 1, "a pipeline"),
        ("titan-013", 4, "torchtitan: as many micro-batches as devices; 256/8 replicas/8"),
        ("titan-014", 4, "as well where it is interleaved: pipeline_parallel_degree"),
        ("titan-018", 1, "local batch 8"),
    ],
)
def test_unstated_micro_batch_sizes(row_id, mbs, why):
    assert read_run(BY_ID[row_id]).plan.mbs == mbs, why
    assert "mbs" in read_run(BY_ID[row_id]).assumed


def test_stated_accumulation_gives_the_micro_batch():
    """NVIDIA's config_DGXH100_64x8x128x4x8_mbs2.sh (MLPerf 4.1): 64 nodes of 8, 128 sequences a rank, tensor
    degree 4, 8 stages, micro-batches of 2; its log states 64 steps of accumulation."""
    cut = {"tp": "4", "pp": "8", "vp": "6", "dp": "16", "mbs": "", "accumulation": "64"}
    run = read_run(changed("mlperf-007", **cut, gpus="512", gbs="2048"))
    assert (run.plan.mbs, "mbs" in run.assumed) == (2, True)
    blank = dict.fromkeys(("tp", "pp", "vp", "dp"), "")
    with pytest.raises(Unreadable, match="tp is not known"):  # no benchmark's rules supply degrees
        read_run(changed("mlperf-007", **blank, framework="MLPerf", model="GPT3-175B (MLPerf)"))


def test_a_precision_is_as_stated():
    """Rows of FLUX.1 say bf16; one without a precision is not read, whatever its benchmark usually takes."""
    sizes = dict.fromkeys(("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "mlp", "seq"), "")
    cut = {"gpu": "b200", "gpus": "32", "tp": "1", "pp": "1", "vp": "1", "dp": "", "mbs": "32", "gbs": "1024"}
    row = changed("mlperf-007", **sizes, **cut, model="FLUX.1-schnell 12B DiT (MLPerf)", framework="MLPerf")
    run = read_run(row | {"precision": "bf16", "image_size": "256"})
    assert (run.plan.precision, run.model.seq) == (
        "bf16",
        tc.load_model("flux.1-schnell").with_images(size=256).seq,
    )
    assert "precision" not in run.assumed
    with pytest.raises(Unreadable, match="precision not known"):
        read_run(row | {"precision": ""})


def test_unstated_recomputation_is_the_least_that_fits():
    small = read_run(BY_ID["mbridge-218"])  # 8B on 8 B200
    assert small.plan.recompute == "none"
    assert "recompute" in small.assumed
    large = read_run(
        changed("korth-003", recompute="", recompute_detail="", sp="True", step_seconds="14")
    )  # 175B, unfused attention
    assert large.plan.recompute == "selective"
    larger = read_run(changed("mpt-001", recompute="", recompute_detail=""))  # 70B, 8 sequences on a rank
    assert larger.plan.recompute == "full"
    reading = read_run(
        changed("jaxtb-002")
    )  # remat policy not stated in the table: what JAX's policies can save
    assert reading.plan.recompute == "activation+attention+norms"
    assert "recompute" in reading.assumed
    assert read_run(changed("jaxtb-002", remat="save_qkv_proj")).plan.recompute == "attention+mlp+norms"
    custom = read_run(changed("jaxtb-002", remat="custom"))  # which tensors is not stated
    assert (custom.plan.recompute, "recompute" in custom.assumed) == ("activation+attention+norms", True)


@pytest.mark.parametrize("row_id", ["mbridge-043", "mbridge-176"])
def test_recipes_of_megatron_bridge_offload_as_few_layers_as_fit(row_id):
    """What recipes have is found where rows leave it open: 20 of 80 layers of Llama 3 70B on GB300."""
    stated = read_run(BY_ID[row_id])
    open_row = changed(row_id, recompute="", offload="", offload_every="")
    assert read_run(open_row).plan == stated.plan
    assert (stated.plan.offload, stated.plan.offload_every) == ("activations", 4)


@pytest.mark.parametrize(
    "cells",
    [
        {},  # 70.6 G weights and their gradients are 282 GB of 288, on every GPU
        {"pp": "4", "dp": "16"},  # Megatron-Core refuses offload with a pipeline: transformer_config.py
    ],
)
def test_a_row_that_nothing_makes_fit_is_skipped(cells):
    with pytest.raises(Unreadable, match=r"needs 3\d\d of 268 GiB, with all"):
        read_run(changed("mbridge-109", **cells))
    assert (
        read_run(changed("mbridge-109", **cells, recompute="none")).plan.offload == "none"
    )  # stated: as it is


def test_graphs_of_whole_iterations_are_assumed_where_recipes_set_them():
    """Container 26.08 states neither dispatcher nor graphs."""
    row = changed("mbridge-004")
    assert read_run(row).stack == "megatron-bridge-2026"
    assert read_run(row | {"graphs": "layer"}).stack == "megatron-bridge-26.02"


def test_expert_tensor_parallelism_is_read_where_it_is_stated():
    row = changed("nvmoe-008", ep="16", moe_ffn="8192")  # wider than the model
    assert (row["etp"], read_run(row).plan.etp) == ("1", 1)
    assert read_run(row | {"etp": ""}).plan.etp == 2, "as tp, Megatron-Core's default"
    assert read_run(row | {"etp": "2"}).plan.etp == 2


def test_automodel_trains_what_it_builds_in_bf16():
    plan = read_run(BY_ID["nvmoe-003"]).plan
    assert (plan.precision, plan.optimizer_kind, plan.grad_dtype) == ("bf16-pure", "adam-bf16", "16-bit")


def test_stated_columns_are_not_assumed():
    assert read_run(BY_ID["dgxc-227"]).assumed == ()
    assert read_run(BY_ID["vtrain-m-001"]).assumed == ("vocab",)
    assert {name for _, run in load_bundled_runs() if isinstance(run, Run) for name in run.assumed} == {
        "interconnect", "mbs", "recompute", "seq", "sp", "stack", "step_seconds", "vocab", "vp", "zero",
        "dispatcher", "graphs", "ep_overlap", "tp_overlap",  # of the recipes of a release
        "tp", "pp", "gbs", "accumulation",  # defaults of a framework
    }  # fmt: skip


def test_rows_of_amd_and_gaudi_that_their_columns_determine_are_predicted():
    """Six rows of Gaudi state no degree: those are 1 by default (Megatron's arguments.py), or as few as fit.
    Of two rows of the MI325X micro-batch and replicas give the batch: Megatron-Core 0.19.2 accumulates
    nothing by default. Others lack what no default settles."""
    found = {name: run for name, run in load_bundled_runs() if name in GAUDI | AMD}
    for name in GAUDI:
        run = found[name]
        assert (run.stack, run.system.accelerator.name) == ("megatron-deepspeed-gaudi", "Gaudi 2 96 GB")
        assert {"tp", "pp"} <= set(run.assumed)
        assert not run.unsaid
    degrees = [(found[name].plan.tp, found[name].plan.pp) for name in ("misc-030", "misc-026", "misc-032")]
    assert degrees == [(1, 1), (2, 1), (8, 2)]  # 8, 13 and 70 G parameters
    for name in AMD:
        run = found[name]
        assert run.stack == "primus-2025"
        assert run.gbs == 2 * run.plan.dp
        assert {"gbs", "accumulation"} <= set(run.assumed)
    assert not any(run.states_its_plan for run in found.values())
    assert found.keys().isdisjoint({run.id for run in bundled_runs()}), "no constant is fitted to them"


GAUDI = {"misc-026", "misc-027", "misc-030", "misc-031", "misc-032", "misc-033"}
AMD = {"misc-034", "misc-035"}


def test_a_batch_follows_from_micro_batches_and_accumulation():
    """gbs = mbs × dp × accumulation; a pipeline has several micro-batches, and a recipe of NeMo a batch."""
    stated = read_run(changed("misc-034", accumulation="8"))
    assert (stated.gbs, "accumulation" in stated.assumed) == (128, False)
    for cells in ({"tp": "1", "dp": "4", "pp": "2"}, {"framework": "NeMo"}, {"mbs": ""}):
        with pytest.raises(Unreadable, match="gbs is not known"):
            read_run(changed("misc-034", **cells))


def test_degrees_are_filled_in_where_a_row_states_none():
    """One stated degree means that others were left out of the table; frameworks differ in their defaults."""
    for cells in ({"cp": "1"}, {"framework": "NeMo"}, {"framework": ""}):
        with pytest.raises(Unreadable, match="tp is not known"):
            read_run(changed("misc-030", **cells))


def test_a_row_says_whether_its_router_decides():
    """A blank cell is forced balance, as published benchmarks of experts run it."""
    loads = [read_run(changed("nvmoe-004", **cells)).model.experts for cells in ({}, {"routing": "natural"})]
    assert [experts.fullest(8) > 1 for experts in loads] == [False, True]
    with pytest.raises(Unreadable, match="routing = 'even': must be one of forced, natural"):
        read_run(changed("nvmoe-004", routing="even"))


def test_precision_that_a_tpu_does_not_have():
    assert read_run(BY_ID["google-053"]).plan.precision == "int8"  # its configuration says so
    run = read_run(changed("google-053", precision="fp8"))
    assert (run.plan.precision, run.assumed) == ("bf16", ("precision",))


@pytest.mark.parametrize(
    ("row_id", "seconds"),  # as the notes derive them
    [
        ("mlm21-010", 102.630),
        ("mlm21-003", 3.696),
        ("mlm21-012", 66.75),
        ("mega-020", 39.07),
        ("nanotron-008", 6.811),
    ],
)
def test_step_times_from_flops(row_id, seconds):
    run = read_run(BY_ID[row_id])
    assert run.step_seconds == pytest.approx(seconds, rel=2e-3)
    assert "step_seconds" in run.assumed


def test_a_step_time_may_come_from_the_throughput():
    row = BY_ID["mpt-001"]
    assert read_run(changed("mpt-001", step_seconds="")).step_seconds == pytest.approx(
        float(row["step_seconds"]), rel=1e-3
    )


@pytest.mark.parametrize(
    ("row_id", "cells", "kind"),
    [
        ("simumax-007", {}, "allocated"),  # stated
        ("bloom-094", {}, "device"),  # nvidia-smi
        ("titan-002", {}, "reserved"),
        ("titan-002", {"memory_kind": "device"}, "device"),
    ],
)
def test_how_memory_was_measured(row_id, cells, kind):
    assert read_run(changed(row_id, **cells)).reported == kind


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"gpu": "abacus"}, "accelerator 'abacus' is not known"),
        ({"gbs": ""}, "gbs is not known"),
        ({"mlp": ""}, "mlp is not known"),
        ({"tp": "", "dp": ""}, "tp is not known"),
        ({"recompute": "some"}, "recompute = 'some': no kind that is known"),
        ({"memory_rank": "first"}, "memory_rank = 'first': must be fullest or last"),
        ({"positions": "odd"}, "positions = 'odd': must be one of none, rotary, learned"),
        ({"skipped": "its container is not known"}, "^its container is not known$"),
        ({"mbs": "1.5"}, "mbs = 1.5 is no whole number"),
        ({"layers": "nan"}, "layers = 'nan' is no finite number"),
        ({"tp": "three"}, "tp = 'three' is no number"),
        ({"gpus": "many"}, "^gpus = 'many' is no number$"),
        ({"gpu": "h100"}, r"'h100' is not known \(did you mean .*h100-sxm-80"),
        ({"recompute": "nonee"}, "recompute = 'nonee': no kind that is known"),
        ({"tp": "3"}, "does not divide"),
        ({"dp": "7"}, "not the"),
        ({"precision": "int1"}, "precision = 'int1': must be one of fp32"),
        ({"zero": "9"}, "zero = '9'"),
        (
            {"step_seconds": "", "tokens_per_s_per_gpu": "", "tflops_published": "", "mfu_published": "0.4"}
            | {"flops_convention": "not stated", "attention_flops": ""},
            "no step time",
        ),
        ({"heads": "0"}, "^heads = 0: must be at least 1$"),
        ({"gbs": "0"}, "^gbs = 0: must be at least 1$"),
        ({"mbs": "0", "seq": "-1"}, "^seq = -1: must be at least 1; mbs = 0: must be at least 1$"),
        ({"gpus": "0"}, "^gpus = 0: must be at least 1"),
        ({"step_seconds": "0"}, "^step_seconds = 0: must be above 0$"),
        (
            {"step_seconds": "-1", "gbs": "0"},
            "^gbs = 0: must be at least 1; step_seconds = -1: must be above 0$",
        ),
        ({"step_seconds": "inf"}, "^step_seconds = 'inf' is no finite number$"),
        ({"step_seconds": "1e300"}, "^a step of 1e.300 s: must be 1e-06 to 1e.06 s"),
        ({"step_seconds": "1e-300"}, "^a step of 1e-300 s: must be"),
        ({"step_seconds": "", "tokens_per_s_per_gpu": "1e-300"}, "^a step of .* s: must be"),
        ({"tokens_per_s_per_gpu": "0"}, "^tokens_per_s_per_gpu = 0: must be above 0$"),
        ({"memory_gb_published": "-3"}, "^memory_gb_published = -3: must be above 0$"),
        ({"memory_gb_published": "1e300"}, "^memory_gb_published = 1e300: no rank has so much"),
        ({"layout": "1,2"}, ""),
        ({"memory_kind": "guessed"}, "memory_kind = 'guessed'"),
        (
            {"gpu": "abacus", "tp": "3", "gbs": ""},
            "accelerator 'abacus' is not known; tp × pp × cp = 192 does not divide 512 GPUs; gbs is not "
            "known",
        ),
    ],
)
def test_a_row_that_cannot_be_read_says_every_reason(cells, reason):
    row = changed("korth-008", **cells)
    if not reason:  # of a plan, which an estimate says
        assert read_run(row).plan.layout == "1,2"
        return
    with pytest.raises(Unreadable, match=reason):
        read_run(row)


VARIANT = "trains a variant of LoRA: only LoRA and QLoRA are modelled"
PART = "trains a part of the weights: fine-tuning is not modelled yet"
RL = "is reinforcement learning or preference tuning: its steps generate or score as well"


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"trained": "longlora", "gbs": "", "gpu": "abacus"}, VARIANT),  # nothing else that is wrong matters
        ({"trained": "DoRA"}, VARIANT),
        ({"trained": "rsLoRA, frozen base"}, VARIANT),
        (
            {"model": "Llama2-70B LoRA", "trained": "all"},
            "trained = 'all', but the model's name says LoRA; write lora or all in both",
        ),
        ({"trained": "PEFT"}, "trains adapters: fine-tuning is not modelled yet"),
        ({"model": "GPT with adapters of rank 8"}, "trains adapters: fine-tuning is not modelled yet"),
        ({"trained": "frozen base"}, PART),
        ({"trained": "the backbone is frozen"}, PART),
        (
            {"trained": "last layers"},
            "trained = 'last layers': write all, or lora or qlora as --train takes them",
        ),
        ({"model": "flan-T5-XL"}, "is an encoder-decoder: encoder_layers and encoder_seq are not known"),
        ({"model": "whisper-large"}, "reads sound: only text is read from tables"),
        ({"model": "ALBERT"}, "is an encoder other than BERT, whose parts a table's rows do not state"),
        ({"model": "FLUX.1-schnell"}, "is a diffusion model: only those of the catalogue are read"),
        (
            {"model": "Wan 14B (DiT), video diffusion"},
            "is a diffusion model: only those of the catalogue are read",
        ),
        ({"model": "Qwen2.5-VL-7B"}, "is multimodal: its vision or audio tower is not modelled"),
        (
            {"model": "a hybrid Mamba-2/attention"},
            "has state-space, linear-attention or convolution layers: "
            "only models of the catalogue with them are read",
        ),
        ({"skipped": "its source warns of a regression"}, "its source warns of a regression"),
        ({"trained": "GRPO, 16 samples a prompt"}, RL),
        ({"trained": "DPO"}, RL),
    ],
)
def test_unmodelled_features_named_in_a_row_are_skipped(cells, reason):
    with pytest.raises(Unreadable) as error:
        read_run(changed("korth-008", **cells))
    assert str(error.value) == reason


@pytest.mark.parametrize(
    ("kind", "names"),  # as recipes, papers and model cards spell them
    [
        ("linear-attention", "Qwen3_Next_80B_a3B, Qwen3-Coder-Next, Qwen3.5-397B-A17B, Qwen3.6-35B-A3B"),
        ("linear-attention", "Kimi Linear 48B, MiniMax-Text-01, MiniMax-01, Ring-mini-linear-2.0, Ling-2.5"),
        ("state-space", "Granite_4.0_H_Small, Falcon_H1_34B, Nemotron_Nano_12B_v2, Nemotron 3 Nano 30B-A3B"),
        ("convolution", "LFM2-8B"),
        ("diffusion", "Wan2.2_A14B, HunyuanVideo, Qwen_Image, SD3"),
        ("multimodal", "GLM-4.5V, Pixtral-12B"),
    ],
)
def test_models_of_other_kinds_are_skipped_by_name(kind, names):
    for model in names.split(", "):
        with pytest.raises(Unreadable, match=f"^(is|has) .*{kind}"):
            read_run(changed("korth-008", model=model))


@pytest.mark.parametrize("model", ["Qwen3-30B-A3B", "Nemotron Nano 8B v1", "Ling-lite", "MiniMax-M2"])
def test_plain_models_of_like_names_are_read(model):
    assert read_run(changed("korth-008", model=model)).model.name == model


WITHOUT_SIZES = dict.fromkeys(("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "mlp"), "")


def test_a_hybrid_of_the_catalogue_is_read():
    row = changed(
        "korth-008",
        **WITHOUT_SIZES,
        model="Nemotron_3_Nano",
        seq="8192",
    )
    assert read_run(row).model == replace(tc.load_model("nemotron-3-nano"), sources={})


def test_a_batch_that_is_not_stated_follows_from_time_and_rate():
    # 1.4316 s x 183,213 tokens/s x 8 are 1,024.6 sequences of 2,048; Primus, gdn-guide.md: 1,024
    blank = WITHOUT_SIZES | dict.fromkeys(("seq", "gbs", "mbs", "recompute", "recompute_detail"), "")
    cut = {"gpus": "8", "tp": "1", "cp": "1", "pp": "1", "vp": "1", "dp": "8", "gpu": "mi300x"}
    rate = {"step_seconds": "1.4316", "tokens_per_s_per_gpu": "183213"}
    row = changed("korth-008", **blank, **cut, **rate, model="pure GDN ~300M linear attention (see guide)")
    run = read_run(row)
    assert (run.gbs, run.model.seq, run.model.name) == (1024, 2048, "pure-gdn-300m")
    assert {"gbs", "seq"} <= set(run.assumed)


def test_a_hybrid_of_megatron_bridge_recomputes_as_memory_asks():
    """Recipes differ by accelerator and precision; a row of none of them gets what fits."""
    row = next(row for row in rows(LATER) if row["id"] == "bridge-hybrid-006") | {"ep": "16"}
    run = read_run(row)
    assert run.stack == "megatron-bridge-26.02"  # no graphs of whole iterations
    assert (run.plan.recompute, "recompute" in run.assumed) == ("none", True)
    stated = read_run(row | {"recompute": "core_attn+moe"})
    assert (stated.plan.recompute, "recompute" in stated.assumed) == ("attention+experts", False)


@pytest.mark.parametrize(
    ("stated", "limit", "assumed"),
    [("600", 600, False), ("stated", 0.75 * 1000, True)],
)
def test_a_power_limit_is_read(stated, limit, assumed):
    run = read_run(changed("simumax-004", power_limit=stated))
    assert run.system.accelerator.power_limit == limit
    assert ("power_limit" in run.assumed) == assumed
    assert run.system.name != tc.load_system("dgx-b200").name  # runs of several limits are not one batch


@pytest.mark.parametrize(
    ("framework", "released", "gpu", "software"),
    [  # rounds of June and November
        ("MLPerf", "2024-11", "b200", "mlperf-2024"),
        ("MLPerf", "2025-06", "b200", "mlperf-2025"),
        ("MLPerf", "2025-11", "b200", "mlperf-2025-10"),
        ("MLPerf", "2025-04", "gb300", "mlperf-2025"),  # its container
        ("MLPerf", "2025-11", "h100-sxm-80", "mlperf-2024"),  # without CUDA graphs
        ("MLPerf-ROCm", "2025-11", "mi300x", "mlperf-rocm-2025"),
    ],
)
def test_releases_of_mlperf_are_stacks(framework, released, gpu, software):
    cells = {"framework": framework, "released": released, "gpu": gpu, "interconnect": ""}
    assert read_run(changed("mlperf-007", **cells)).stack == software


LORA_OF_MLPERF = {
    "model": "Llama2-70B LoRA (MLPerf)", "framework": "MLPerf", "trained": "lora", "released": "2025-11",
    "interconnect": "", "layers": "80", "hidden": "8192", "ffn": "28672", "heads": "64",
    "kv_heads": "8", "mlp": "swiglu", "seq": "8192", "gbs": "8", "mbs": "", "sp": "", "zero": "", "vp": "",
    "precision": "", "tp": "", "cp": "", "pp": "", "dp": "", "step_seconds": "1",
}  # fmt: skip


def test_what_a_row_of_mlperf_leaves_open_is_not_supplied():
    """Neither degrees nor a precision of a benchmark's usual configurations."""
    with pytest.raises(Unreadable, match=r"^tp is not known; precision not known$"):
        read_run(changed("mlperf-007", **LORA_OF_MLPERF, gpu="b200", gpus="16"))


def test_stages_follow_from_a_layout():
    row = next(row for row in TABLE if row.get("layout"))
    assert read_run(row | {"vp": ""}).plan.vp == read_run(row).plan.vp == 8
    letters = read_run(row | {"vp": "", "layout": "Et*4|(t*4|)*14tmL"})
    assert letters.plan == read_run(row).plan


@pytest.mark.parametrize(("strategy", "level"), [("optim", 1), ("optim_grads", 2), ("optim_grads_params", 3)])
def test_strategies_of_megatron_fsdp_are_levels(strategy, level):
    cells = {"zero": f"fsdp {strategy}", "tp": "1", "pp": "1", "vp": "1", "dp": "512", "gbs": "512"}
    assert read_run(changed("mlperf-007", **cells)).plan.zero == level


def test_an_accelerator_may_have_its_name_in_a_log():
    assert read_run(changed("korth-008", gpu="NVIDIA L40S")).system.name == "l40s"


@pytest.mark.parametrize(
    ("gpu", "name", "bandwidth"),
    [  # of the data sheets: PCIe 4.0 and 5.0 x16, and six NVLinks of 25 GB/s, one direction
        ("a100-pcie-80", "A100 PCIe 80 GB", 32e9),
        ("A100 PCIe", "A100 PCIe 40 GB", 32e9),
        ("h100-pcie", "H100 PCIe 80 GB", 64e9),
        ("v100-sxm-16", "V100 SXM2 16 GB", 150e9),
    ],
)
def test_cards_without_hosts_of_their_own_stand_in_those_of_others(gpu, name, bandwidth):
    run = read_run(changed("korth-008", gpu=gpu, interconnect="", step_seconds="100"))
    assert (run.system.accelerator.name, run.system.tiers[0].bandwidth) == (name, bandwidth)
    assert "interconnect" in run.assumed


@pytest.mark.parametrize(
    ("word", "precision"),
    [  # of torch, Lightning and the recipes of Megatron-Bridge
        *(("bfloat16", "bf16"), ("bf16-mixed", "bf16"), ("16-mixed", "fp16"), ("float16", "fp16")),
        *(("FP8-CS", "fp8-current"), ("fp8_mx", "mxfp8"), ("fp8_sc", "fp8-block")),
        *(("fp8 (current scaling)", "fp8-current"), ("fp8-delayed", "fp8"), ("fp8-blockwise", "fp8-block")),
        *(("float8-tensorwise", "fp8-current"), ("fp8-hybrid", "fp8")),
    ],
)
def test_other_words_for_precisions_are_read(word, precision):
    cells = {"precision": word, "precision_detail": "", "gpu": "b200", "gpus": "8", "gpus_per_node": "8"}
    cells |= {"tp": "1", "cp": "1", "pp": "1", "dp": "8"}
    assert read_run(changed("mlperf-007", **LORA_OF_MLPERF | cells)).plan.precision == precision


def test_a_row_without_sizes_has_those_of_the_catalogue():
    """Where its model begins with a name there; LitGPT holds all that it trains at 16 bits."""
    cells = {"model": "llama-2-7b lora", "framework": "LitGPT", "precision": "bf16-true", "seq": "512"}
    cells |= WITHOUT_SIZES
    run = read_run(changed("korth-008", **cells))
    llama = tc.load_model("llama-2-7b", seq=512)
    assert replace(run.model, adapters=None) == replace(llama, adapters=None)
    assert run.model.adapters == Adapters(targets=ALL)
    assert (run.plan.precision, run.plan.optimizer_kind, run.plan.grad_dtype) == (
        "bf16-pure",
        "adam-bf16",
        "16-bit",
    )
    for other in ("stablelm-3b lora", "GPT3-13B"):  # of another size than `gpt3`
        with pytest.raises(
            Unreadable, match=f"^model '{other}' is not in the catalogue.*; layers is not known"
        ):
            read_run(changed("korth-008", **cells | {"model": other}))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Nemotron V3 Nano 30B (26.02)", "nemotron-3-nano"),
        ("Nemotron_3_Super", "nemotron-3-super"),
        ("gemma-2-9b lora", "gemma-2-9b"),
        ("gemma4-26b", "gemma-4-26b"),
        ("mistral-7b-v0.2 qlora", "mistral-7b"),
        ("deepseek-v3", "deepseek-v3"),
        ("deepseek3-671b", "deepseek-v3"),
        ("deepseek-ai/DeepSeek_V2_Lite", "deepseek-v2-lite"),
        ("qwen2_5-7b-instruct", "qwen2.5-7b"),
        ("mixtral8x7b", "mixtral-8x7b"),
        ("gpt-3-175B", "gpt3-175b"),
    ],
)
def test_a_model_is_called_as_sources_write_it(model, name):
    run = read_run(
        changed("mlperf-007", **WITHOUT_SIZES, model=model, tp="1", pp="1", vp="", cp="1", ep="1", dp="512")
    )
    assert replace(run.model, adapters=None) == tc.load_model(name, seq=2048)


ALL = ("all",)


@pytest.mark.parametrize(
    ("cells", "expected", "assumed"),
    [
        ({"trained": "lora"}, Adapters(rank=16, targets=ALL), True),
        ({"trained": "qlora"}, Adapters(rank=16, targets=ALL, base="nf4"), True),
        (
            {"trained": "lora:r=4,targets=qkv"},
            Adapters(rank=4, targets=("qkv",), experts="each"),
            False,
        ),  # as --train
        ({"model": "LLAMA3_70B LoRA", "framework": "Megatron-Bridge"}, Adapters(rank=16, targets=ALL), True),
        ({"model": "Llama 3 QLoRA"}, Adapters(rank=16, targets=ALL, base="nf4"), True),
        ({"trained": "lora:r=8"}, Adapters(rank=8, targets=ALL), True),
        (
            {"trained": "qlora:r=32,targets=q+v,base=nf4-single"},
            Adapters(rank=32, targets=("q", "v"), base="nf4-single"),
            False,
        ),
    ],
)
def test_adapters_of_a_row(cells, expected, assumed):
    """As `--train` takes them; what is left open has the usual value there."""
    run = read_run(changed("korth-008", **cells))
    assert run.model.adapters == expected
    assert ("trained" in run.assumed) == assumed


@pytest.mark.parametrize(
    "cells",
    [
        {"trained": "all"},
        {"trained": "full"},
        {"trained": "all", "notes": "lora_r= lora q/k/v/proj=//"},  # settings of a program that were not used
        {"model": "gemma-2b full", "notes": "lora q/k/v/proj=//"},
        {"notes": "full-parameter SFT, not LoRA"},
        {"notes": "full fine-tuning; with LoRA it is faster"},
        {"notes": "no LoRA, use_peft=False, lora_r=0"},
        {"notes": "embeddings are not frozen"},
        {"moe_detail": "MLA(q_lora 1536,kv_lora 512,qk 128+64,v 128)"},
        {"notes": "q_lora_rank=1536 kv_lora_rank=512"},
        {"notes": "8 network adapters, ConnectX-7 adapters"},
        {"notes": "schedule: model only if ZB supported; T5 tokenizer; Docker image; gradient clip"},
        {"notes": "vision tower left out"},
        {"interconnect": "InfiniBand, 8 adapters"},
    ],
)
def test_training_of_all_weights_is_read(cells):
    run = read_run(changed("korth-008", **cells))
    assert (run.gbs, run.model.adapters) == (512, None)


def test_recipes_of_tpu7x_are_read():
    """tpu-recipes, training/ironwood: batches of a chip below one sequence, remat_policy=custom, fp8."""
    row = next(row for row in TABLE if row["gpu"].startswith("tpu") and not row["experts"])
    cells = {"gpu": "tpu7x-ironwood", "recompute": "", "remat": "custom", "precision": "fp8"}
    cells |= {"framework": "MaxText", "gpus": "256", "tp": "1", "cp": "8", "pp": "1", "dp": "32"}
    run = read_run(row | cells | {"gbs": "64", "mbs": "0.25", "zero": "3", "zero_detail": ""})
    assert (run.system.name, run.stack) == ("tpu-v7x-pod", "maxtext-2025")
    assert (run.plan.mbs, run.plan.recompute, run.plan.precision) == (2, "none", "fp8")
    assert "recompute" in run.assumed  # which tensors `custom` saves is not stated


CELL = st.one_of(
    st.sampled_from(["", "0", "-1", "8", "1e99", "nan", "inf", "None", "True", "x" * 50]),
    st.text(max_size=30),
    st.integers().map(str),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(sorted(BY_ID)),
    st.dictionaries(st.sampled_from(sorted(TABLE[0])), CELL, min_size=1, max_size=4),
)
def test_no_row_is_too_wrong_to_be_refused(row_id, cells):
    """Whatever cells hold, the row is read or says why not."""
    try:
        run = read_run(BY_ID[row_id] | cells)
    except Unreadable:
        return
    assert run.plan.gpus >= 1
    assert run.step_seconds is None or 0 < run.step_seconds < math.inf
