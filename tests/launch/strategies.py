"""Models and plans of every kind, for properties of what is written and read."""

from hypothesis import strategies as st

import traincast as tc
from traincast.model.blocks import Experts, Latent, Local


@st.composite
def models(draw):
    """A small model of some kind: dense, with experts, with latent or local attention."""
    heads, kv = draw(st.sampled_from([(16, 16), (16, 4), (32, 8)]))
    layers = draw(st.sampled_from([12, 24, 26]))
    mlp = draw(st.sampled_from(["swiglu", "gelu", "relu2", "geglu", "relu"]))
    parts = {}
    if draw(st.booleans()):
        dense, every = draw(st.sampled_from([(0, 1), (3, 1), (0, 2), (2, 2)]))
        parts["experts"] = Experts(
            experts=16, topk=draw(st.integers(1, 4)), ffn=512, shared_ffn=draw(st.sampled_from([0, 1024])),
            first_dense=dense, every=every, capacity=draw(st.sampled_from([None, 1.25])),
        )  # fmt: skip
    if draw(st.booleans()):
        parts["latent"] = Latent(
            kv_rank=256, q_rank=draw(st.sampled_from([None, 512])), nope_dim=64, rope_dim=32, value_dim=64
        )
        kv = None
    elif draw(st.booleans()):
        parts["head_dim"] = draw(st.sampled_from([64, 128]))
    if draw(st.booleans()):
        parts["local"] = Local(
            window=1024, chunked=draw(st.booleans()), global_every=draw(st.sampled_from([0, 6]))
        )
    return tc.Model(
        name="drawn", layers=layers, hidden=2048, heads=heads, kv_heads=kv, ffn=8192, seq=4096, mlp=mlp,
        **parts,
        vocab=draw(st.sampled_from([None, 32000, 50257])),
        causal=draw(st.booleans()),
        norm=draw(st.sampled_from(["layernorm", "rmsnorm"])),
        norms=draw(st.sampled_from([2, 4])),
        qk_norm=draw(st.sampled_from([None, "head", "plain", "full"])),
        biases=draw(st.sampled_from([(), ("qkv",), ("proj", "mlp"), ("qkv", "proj", "mlp")])),
        sinks=draw(st.booleans()),
        dropout=draw(st.booleans()),
        inner_dropout=draw(st.booleans()),
        positions=draw(st.sampled_from(["none", "rotary", "learned"])),
        max_positions=draw(st.sampled_from([None, 8192])),
        tied=draw(st.booleans()),
        mtp=draw(st.integers(0, 1)),
    )  # fmt: skip


@st.composite
def plans(draw, model):
    """A plan that the model could be trained with, whatever framework runs it."""
    degrees = {name: draw(st.sampled_from([1, 2, 4])) for name in ("tp", "pp", "dp", "cp")}
    knobs = {"mbs": draw(st.sampled_from([1, 2]))}
    if degrees["cp"] > 1:
        knobs["cp_kind"] = draw(st.sampled_from(["ring", "ulysses", "all-gather", "hybrid"]))
        knobs["ulysses"] = 2 if knobs["cp_kind"] == "hybrid" else 1
    if degrees["pp"] > 1:
        knobs["schedule"] = draw(st.sampled_from(["1f1b", "zb-h1", "gpipe"]))
        if knobs["schedule"] == "1f1b":
            knobs["vp"] = draw(st.sampled_from([1, 2, 3]))
    if model.experts is not None:
        stage = degrees["tp"] * degrees["dp"] * degrees["cp"]
        knobs["ep"] = draw(st.sampled_from([n for n in (1, 2, 4) if stage % n == 0]))
        knobs["etp"] = draw(
            st.sampled_from([n for n in (1, degrees["tp"]) if stage % (n * knobs["ep"]) == 0])
        )
    knobs["zero"] = draw(st.sampled_from([0, 1, 2, 3]))
    if knobs["zero"] and degrees["dp"] * degrees["cp"] > 1:
        knobs["replicas"] = draw(st.sampled_from([1, degrees["dp"]]))
    knobs["recompute"] = draw(
        st.sampled_from(
            ["none", "selective", "norms", "norms+activation", "attention+mlp", "experts", "per-op", "full"]
        )
    )
    if knobs["recompute"] == "full":
        knobs["recompute_every"] = draw(st.sampled_from([1, 2]))
    choices = {
        "sp": draw(st.booleans()),
        "tp_overlap": draw(st.booleans()),
        "ep_overlap": draw(st.booleans()),
        "attention": draw(st.sampled_from(["flash", "unfused"])),
        "precision": draw(
            st.sampled_from(
                ["bf16", "fp16", "fp32", "fp8", "fp8-block", "fp8-current", "mxfp8", "nvfp4", "bf16-pure"]
            )
        ),
        "grad_dtype": draw(st.sampled_from(["usual", "16-bit", "fp32"])),
        "optimizer_kind": draw(st.sampled_from(["adam", "adam-bf16", "adam-8bit", "sgd", "muon", "lion"])),
        "master_copy": draw(st.sampled_from(["usual", "remainder", "fp32"])),
        "offload": draw(st.sampled_from(["none", "optimizer", "activations", "optimizer+weights"])),
        "order": draw(st.sampled_from(["tp-cp-dp-pp", "tp-cp-pp-dp"])),
    }
    if choices["offload"] == "activations":
        knobs["offload_every"] = draw(st.sampled_from([1, 2]))
    return tc.Plan(**degrees, **knobs, **choices)
