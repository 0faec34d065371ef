"""Move what rows of measured runs say in words into columns, once; the reader before this change reads the words.

    PYTHONPATH=<a tree at the commit before>/src python calibration/migrate_words.py

Of what the reader made of words, a cell gets what the source states; what a rule supplied (`assumed`, or a
rule by source or framework) stays empty. It is kept in the history alone: the new reader has none of these
phrases.
"""

import csv
import re
import sys
from pathlib import Path

from traincast.accuracy.runs import plan as plans
from traincast.accuracy.runs.cells import SOFTWARE, Cells, Unreadable, first_match, patterns
from traincast.accuracy.runs.model import note_unmodelled, separate_model_file
from traincast.accuracy.runs.run import read, software
from traincast.catalog.load import accelerator_called

FOLDER = Path(__file__).with_name("measured")
FACTS = (
    "framework", "released", "dispatcher", "grouped", "graphs", "compiled", "loss", "kernels", "update", "overlap",
    "etp", "remat",
)  # fmt: skip
PLAN = (
    "layout", "replicas", "cp_kind", "schedule", "tp_overlap", "ep_overlap", "recompute_every", "offload",
    "offload_every", "grad_dtype", "optimizer_kind", "accumulation",
)  # fmt: skip
MODEL = (
    "head_dim", "tied", "positions", "mtp", "q_rank", "kv_rank", "shared_ffn", "capacity", "moe_every", "window",
    "global_every", "chunk", "packed", "image_size",
)  # fmt: skip
MEASUREMENT = (
    "memory_kind", "memory_unit", "memory_rank", "attention_flops", "recompute_counted", "power_limit", "skipped",
)  # fmt: skip
NEW = (*FACTS, *PLAN, *MODEL, *MEASUREMENT, "trained")
DROPPED = ("stack",)  # the framework of it is a fact
FRAMEWORKS = {  # what a row said → name; the first counts
    "zero-bubble": "zero-bubble", "^MegaScale$": "MegaScale", "MegaScale/": "Megatron-LM", "Megatron-DeepSpeed|Gaudi": "Megatron-DeepSpeed",
    "DeepSpeed": "DeepSpeed", "ROCm": "MLPerf-ROCm", "MLPerf": "MLPerf", "Auto[mM]odel": "AutoModel", "Megatron.Bridge": "Megatron-Bridge",
    "^NeMo": "NeMo", "Megatron-Core": "Megatron-Core", "Megatron-LM": "Megatron-LM", "Composer": "Composer", "MaxText|maxtext": "MaxText",
    "paxml|Pax": "Pax", "torchtitan": "torchtitan", "torchtune": "torchtune", "LitGPT": "LitGPT", "fms-fsdp": "fms-fsdp",
    "InternEvo": "InternEvo", "nanotron": "nanotron", "Primus": "Primus", "linear-attention": "other",
}  # fmt: skip
# `stack` says "various" and the reader supplied one that the source does not name, or it names another
OF_SOURCES = {
    "Nemotron-4": "", "DeepSeek-V3 tech": "other", "TinyLlama|TransformerEngine issue|ColossalAI|PaLM": "other",
    "Primus": "Primus", "MT-NLG|GLM-130B|Gaudi": "Megatron-DeepSpeed",
}  # fmt: skip


def first(table, text):
    return next((value for pattern, value in table.items() if re.search(pattern, text)), None)


def facts(cells, row):
    named = cells.text("framework")
    framework = first(OF_SOURCES, row["source"]) if row["stack"] == "various" else None
    if framework is None:
        framework = first(FRAMEWORKS, named) or ""
    notes, flags = row["notes"], row["notes"]
    if "functional tests" in row["source"]:
        framework = "Megatron-Core"  # whose tests they are
    out = {"framework": framework, "released": cells.text("released")}
    if "MegaScale" in row["source"] and framework == "Megatron-LM":
        out["released"] = "2023-01"  # commit 285068c8, as the paper states
    if m := re.search(r"dispatcher (hybridep|deepep)", notes, re.IGNORECASE):
        out["dispatcher"] = m[1].lower()
    elif "DeepSeek-V3 technical report" in row["source"] or re.search(r"\bDeepEP\b", notes):
        out["dispatcher"] = "deepep"
    elif m := re.search(r'"moe-token-dispatcher-type": "(\w+)"', flags):
        out["dispatcher"] = m[1]
    elif row["experts"] and re.search(r"taken from \w+ at git tag", notes):
        out["dispatcher"] = "alltoall"  # moe_token_dispatcher_type of the recipes that these rows name
    if '"moe-grouped-gemm": true' in flags:
        out["grouped"] = "true"
    if m := re.search(r"cuda graphs (\w+):(\S*)", notes):
        full = "full_iteration" in m[2]
        out["graphs"] = (
            "none" if m[1] == "none" else "iteration" if full or m[1] == "full_iteration" else "layer"
        )
    elif re.search(r"cuda graphs full_iteration", notes):
        out["graphs"] = "iteration"
    if re.search(r"\beager PyTorch|^eager \(no|baseline unpacked|ablation: \+packed", notes):
        out["compiled"] = "false"
    elif (
        re.search(r"torch\.compile|ablation: \+", f"{row['stack']} {notes}")
        and "no torch.compile" not in notes
    ):
        out["compiled"] = "true"
    if re.search("cross_entropy_loss_fusion", row["model"]) or re.search("cross-entropy fusion", notes):
        out["loss"] = "fused"
    elif re.search(r"ablation: (baseline|\+packed|\+compile)", notes):
        out["loss"] = "whole"  # before its chunked one, the next step
    elif re.search(r"ablation: \+", notes):
        out["loss"] = "chunked"
    kernels = []
    kernels += ["flex-attention"] if "FlexAttn" in notes else []
    kernels += ["unfused-wgrad"] if '"no-gradient-accumulation-fusion": true' in flags else []
    kernels += ["deferred-wgrad"] if '"wgrad-deferral-limit": 2' in flags else []
    out["kernels"] = "+".join(kernels)
    if re.search(
        r"batch 2, packed 2048|ablation: (?:\+optimizer in backward|\+activation offload|\+8-bit)", notes
    ):
        out["update"] = "backward"
    if re.search("DP overlap disabled", notes) or "no bucket overlap" in row["zero_detail"]:
        out["overlap"] = "none"
    out["etp"] = cells.stated_number("expert_tensor_parallel") or ""
    if row["recompute"] == "custom":
        out["remat"] = "custom"
    return out


def shape(cells, row, run):
    out = {}
    if width := cells.stated_number("head_dim"):
        out["head_dim"] = width
    elif cells.states("scaled_by_maxtext"):
        out["head_dim"] = 128  # base.yml, which the parameter does not scale
    if tied := cells.states("tied"):
        out["tied"] = str(not any(tied.groups())).lower()
    if cells.states("alibi"):
        out["positions"] = "none"
    if not row["vocab"] and (
        vocab := cells.stated_number("vocab") or (50257 if cells.states("bpe") else None)
    ):
        out["vocab"] = vocab
    if dense := cells.stated_number("dense_ffn"):
        out |= {"ffn": dense, "moe_ffn": row["moe_ffn"] or row["ffn"]}
    if cells.states("without_mtp"):
        out["mtp"] = 0
    elif (mtp := cells.stated_number("mtp")) is not None:
        out["mtp"] = mtp
    for name in ("q_rank", "kv_rank"):
        if rank := cells.stated_number(name):
            out[name] = rank
    if shared := cells.states("shared_ffn"):
        out["shared_ffn"] = shared[1]
    if factor := cells.states("capacity"):
        out["capacity"] = max(float(factor[1]), 1.0)
    elif cells.states("drops_tokens"):
        out["capacity"] = 1.0
    if cells.states("alternate_experts"):
        out["moe_every"] = 2
    if window := cells.stated_number("sliding_window"):
        out |= {"window": window, "global_every": 2}
    if chunk := cells.stated_number("chunked_attention"):
        out |= {"chunk": chunk, "global_every": 4}
    if cells.states("packed_samples"):
        out["packed"] = "true"
    if "FLUX" in row["model"]:
        out["image_size"] = 256
    return out


def parallel(cells, row, run):
    out, known = {}, None if isinstance(run, str) else run.plan
    letters, chunk = cells.states("letter_layout"), cells.stated_number("layers_of_chunk")
    if letters:
        out["layout"] = plans.written_out(letters[1])
    elif cells.stated_number("first_layers") and known:
        out["layout"] = known.layout
    if chunk:
        out["vp"] = max(int(row["layers"]) // (int(row["pp"]) * chunk), 1)
    elif not row["vp"] and re.search("interleav(ed|ing)", f"{row['notes']} {row['source']}", re.IGNORECASE):
        out["vp"] = "interleaved"
    stated = row["zero"].lower()
    if not stated and cells.states("sharded_weights"):
        stated = out["zero"] = "3"
    if stated in ("2", "3", "hsdp") and cells.states("not_resharded"):
        out["zero"] = "1"  # weights stay gathered, gradients are reduced once
    phrases = ("replicas", "shards", "slices", "one_slice", "node_shards")
    if known and known.zero and any(map(cells.states, phrases)):
        out["replicas"] = known.replicas
    fresh = Cells(cells.row)
    for name, left in (("cp_kind", "ring"), ("schedule", "1f1b"), ("optimizer_kind", None)):
        value = fresh.choose(name)
        if value != left:
            out[name] = value
    if row["cp"] in ("", "1"):
        out.pop("cp_kind", None)
    precision = row["precision"].lower()
    if out.get("optimizer_kind") == "adam-bf16" and "DeepSeek" not in row["source"]:
        del out["optimizer_kind"]  # of the framework's precision
    if re.search("fp32 (grad|reduce)", row["precision_detail"]):
        out["grad_dtype"] = "fp32"
    elif "pure" in row["precision_detail"]:
        out["grad_dtype"] = "16-bit"
    overlap = fresh.choose("tp_overlap")
    if overlap is not None and precision != "nvfp4":
        out["tp_overlap"] = str(overlap).lower()
    if re.search(r"a2a overlap|1f1b overlap|DualPipe|QWEN3_235B_A22B\w*_H100_", row["notes"], re.IGNORECASE):
        out["ep_overlap"] = "true"
    if every := cells.stated_number("offloaded_layers"):
        out |= {"offload": "activations", "offload_every": max(round(int(row["layers"]) / every), 1)}
    elif cells.states("offloaded"):
        out["offload"] = "activations"
    if accumulated := cells.stated_number("accumulated"):
        out["accumulation"] = accumulated
    recipe = Cells(cells.row)
    value = recipe.choose("precision")
    if value and not recipe.assumed and value not in ("bf16-pure",):
        out["precision"] = value
    elif value == "int8":
        out["precision"] = value  # the source says so
    elif value == "mxfp8" and row["notes"].startswith("config "):
        out["precision"] = value  # FP8_RECIPE of the configuration that the row names
    if (
        "_te_" in row["model"]
        and re.match("Megatron-LM (dev|lts)", row["stack"])
        and not row["flash_attention"]
    ):
        out["flash_attention"] = "flash"
    deterministic = '"deterministic-mode": true' in row["notes"] and "dgxa100_dracooci" in row["url"]
    if deterministic and "_te_" in row["model"]:
        out["flash_attention"] = (
            "unfused"  # whose container, of before 11/2025, has no fused deterministic kernel
        )
    elif (
        "_mcore_" in row["model"]
        and "_te_" not in row["model"]
        and row["stack"].startswith("Megatron-LM ")
        and not row["flash_attention"]
    ):
        out["flash_attention"] = "unfused"  # names of tests say te where it is used
    return out | recompute(cells, row, known)


def recompute(cells, row, known):
    kind, detail = row["recompute"].lower(), row["recompute_detail"]
    if "LoRA (MLPerf)" in row["model"] and row["notes"].startswith("config ") and not kind:
        if "config_MI300X" in row["notes"]:  # ACG=full, ACM=block, ACL=21 of 80 layers
            return {"recompute": "full", "recompute_every": 4}
        return {
            "recompute": "none"
        }  # conf/ of the configuration that the row names: recompute_granularity is null
    if "devices>1" in detail:  # LitGPT
        return {"recompute": "none" if row["gpus"] == "1" else "full"}
    if not kind or kind == "none":
        return {}
    fresh = Cells({**cells.row, "notes": ""})
    layers = int(row["layers"] or 0) / int(row["pp"] or 1)
    named = any(re.search(rf"\b{name}\b", detail, re.IGNORECASE) for name in patterns()["recompute_modules"])
    if kind == "custom" and not (plans._policy(detail, layers) or named):
        return {"recompute": ""}
    found = plans.recomputed(fresh, layers)
    if fresh.assumed or fresh.problems or not found:
        return {}
    return {name: found[name] for name in ("recompute", "recompute_every") if name in found}


def measurement(cells, row, run):
    out = {}
    fresh = Cells(cells.row)
    if re.search("max_allocated|allocated_gib|peak active", row["notes"]):
        out["memory_kind"] = "allocated"
    if fresh.choose("memory_kind") == "paged":
        out["memory_kind"] = "paged"  # of the recipe for one device
    if "LitGPT" in row["stack"]:
        out["memory_unit"] = "GB"
    if cells.states("last_rank"):
        out["memory_rank"] = "last"
    if attention := fresh.choose("attention_flops"):
        out["attention_flops"] = f"{attention:g}"
    if cells.states("full_recompute_counted"):
        out["recompute_counted"] = "true"
    if limit := cells.states("power_limited"):
        out["power_limit"] = limit[1] or "stated"
    if cells.states("network_not_stated"):
        out["interconnect"] = without_comment(row)
    if not row["gpu"] and (device := cells.states("accelerator")):
        out["gpu"] = device[1].lower()
    unmodelled, bare = (
        Cells(cells.row),
        Cells({**cells.row, "notes": "", "source": "", "moe_detail": "", "url": ""}),
    )
    note_unmodelled(unmodelled)
    note_unmodelled(bare)
    if unmodelled.problems and (not bare.problems or "unpacked" in row["model"]):
        out["skipped"] = "; ".join(unmodelled.problems)
    return out


def without_comment(row):
    """Return the network without the comment that it is not stated; empty where the usual one is chosen."""
    gpu = accelerator_called(row["gpu"].lower())
    networks = patterns()["systems"].get(gpu, {})
    same = networks and first_match(networks, row["interconnect"]) == networks[""]
    return "" if same else re.sub(r"\s*[(;][^(;]*not stated[^)]*\)?", "", row["interconnect"]).strip()


def training(cells, row, run):
    if isinstance(run, str) or run.model.adapters is None:
        lora = re.search("lora", row["trained"] if "trained" in row else "", re.IGNORECASE)
        return {} if not lora else {"trained": row["trained"]}
    rank, switches = cells.stated_number("lora_rank"), cells.states("lora_switches")
    found, settings = run.model.adapters, []
    settings += [f"r={rank}"] if rank else []
    # the layers of the benchmark's reference are qkv_proj and o_proj
    known = switches or "(MLPerf)" in row["model"]
    known = known or row["source"].endswith("26.06 LoRA")  # the recipes that the row names: linear_qkv
    settings += [f"targets={'+'.join(found.targets)}"] if known else []
    method = "qlora" if found.base in ("nf4", "nf4-single", "int8") else "lora"
    settings += [f"base={found.base}"] if found.base not in ("16-bit", "nf4") else []
    settings += ["dropout"] if found.dropout else []
    return {"trained": f"{method}:{','.join(settings)}" if settings else method}


def migrated(row):
    cells = Cells(row)
    separate_model_file(cells)
    cells.row[SOFTWARE] = software(cells)
    try:
        run = read(row)
    except Unreadable as reason:
        run = str(reason)
    new = dict(row)
    for part in (
        shape(cells, row, run),
        parallel(cells, row, run),
        measurement(cells, row, run),
        training(cells, row, run),
    ):
        new |= part
    return new | facts(cells, row)


def main():
    for name in ("published_runs", "later_runs", "megatron_memory"):
        path = FOLDER / f"{name}.csv"
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            header, rows = list(reader.fieldnames), list(reader)
        rows = [migrated(row) for row in rows]
        used = [column for column in NEW if any(str(row.get(column, "") or "") for row in rows)]
        header = [column for column in header if column not in DROPPED]
        header += [column for column in used if column not in header]
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, header, extrasaction="ignore", lineterminator="\n", restval="")
            writer.writeheader()
            writer.writerows(rows)
        print(
            name,
            len(rows),
            {c: sum(bool(str(r.get(c, "") or "")) for r in rows) for c in used},
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
