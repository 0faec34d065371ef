"""Models and systems from the catalogue and from files."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traincast.catalog.documents import parse_document, values_of_key
from traincast.catalog.load import figures, load_model, load_system, model_names, system_names
from traincast.catalog.schema.model import TowerLayersPart
from traincast.core.errors import InputError
from traincast.model.blocks import Experts, Latent, Local
from traincast.model.model import Model

MODEL = {"name": "tiny", "source": "by hand", "layers": 2, "hidden": 64, "heads": 4, "ffn": 256, "seq": 128}
ACCELERATOR = {
    "name": "chip",
    "matrix_flops": "100 TFLOP/s",
    "vector_flops": "10 TFLOP/s",
    "hbm_bandwidth": {"value": "1000 GB/s", "source": "a benchmark", "basis": "measured"},
    "hbm_bytes": "80 GiB",
}
EXPERTS = (
    "experts, topk, ffn, width, shared_ffn, shared_gate, first_dense, every, router_bias, result_norm, "
    "zero, groups, group_topk, capacity, imbalance, load, routing"
)
TIER = {"name": "links", "bandwidth": "400 Gb/s", "efficiency": 0.7, "latency": "2.5 us"}
SYSTEM = {
    "name": "cluster",
    "source": "by hand",
    "accelerator": ACCELERATOR,
    "network": [TIER | {"size": 8}, TIER],
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write content as a file; anything but text and bytes as JSON."""

    def write(content: object, name: str = "file.json") -> Path:
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return write


def problems(load: Callable[[Any], object], path: str | Path) -> tuple[str, ...]:
    """Return the problems that `load` reports for a file."""
    with pytest.raises(InputError) as caught:
        load(path)
    assert caught.value.subject == str(path)
    return caught.value.problems


# The catalogue


@pytest.mark.parametrize("name", model_names())
def test_every_model_loads(name: str) -> None:
    model = load_model(name)
    assert load_model(name.upper()) == model
    assert model.sources.keys() >= {"layers", "hidden", "heads", "ffn", "seq"}
    assert name in (model.name, *values_of_key("models", "aliases").get(model.name, ()))


@pytest.mark.parametrize("name", system_names())
def test_every_system_loads(name: str) -> None:
    system = load_system(name)
    assert load_system(name.upper()) == system
    assert system.name == name
    assert system.fast_domain >= 2


@pytest.mark.parametrize("name", [*model_names(), *system_names()])
def test_every_figure_has_source_and_basis(name: str) -> None:
    for figure in figures(name):
        if not figure.path.endswith(".context_bytes"):  # which a TPU's process does not have
            assert figure.value > 0
        assert len(figure.source) > 5
        assert figure.basis in {"spec", "measured", "assumed", "fitted"}


def test_names() -> None:
    assert {"gpt3", "gpt3-1t", "gpt3-175b", "vit-era5", "gpt-125m", "gpt-18.4b"} <= set(model_names())
    assert {"a100-nvs4", "h200-nvs8", "b200-nvs64", "b200-next-nvs4", "polaris", "tg40", "tg80"} <= set(
        system_names()
    )
    assert load_model("gpt3") == load_model("gpt3-175b")


@pytest.mark.parametrize(
    ("name", "figures"),
    [  # arXiv 2410.00273, models: l, e, h, L; f = 4e
        ("gpt3", (2048, 12288, 96, 96)),
        ("gpt3-1t", (2048, 25600, 160, 128)),
        ("vit-era5", (64800, 12288, 64, 48)),
        # doi 10.1145/3639034, table of models: sequence, hidden, heads, layers
        ("gpt-125m", (1024, 768, 12, 12)),
        ("gpt-1.3b", (1024, 2064, 24, 24)),
        ("gpt-2.7b", (1024, 2560, 32, 32)),
        ("gpt-6.7b", (1024, 4096, 32, 32)),
        ("gpt-13b", (1024, 5120, 40, 40)),
        ("gpt-18.4b", (1024, 6144, 48, 40)),
    ],
)
def test_shapes_of_models(name: str, figures: tuple[int, ...]) -> None:
    model = load_model(name)
    assert (model.seq, model.hidden, model.heads, model.layers) == figures
    assert model.ffn == 4 * model.hidden


@pytest.mark.parametrize(
    ("name", "tflop"),
    [("125m", 0.6), ("1.3b", 8.2), ("2.7b", 16.5), ("6.7b", 41.2), ("13b", 79.9), ("18.4b", 114.4)],
)
def test_flop_per_sequence(name: str, tflop: float) -> None:
    """TFLOP row of doi 10.1145/3639034's table of models, from its formula (72 s d^2 + 12 s^2 d) l."""
    model = load_model(f"gpt-{name}")
    s, d, layers = model.seq, model.hidden, model.layers
    assert (72 * s * d**2 + 12 * s**2 * d) * layers / 1e12 == pytest.approx(tflop, abs=0.051)


def test_training_runs() -> None:
    """arXiv 2410.00273: 1e12 tokens of 2048 a sequence; 350,000 samples x 80 epochs; global batch 4096."""
    assert load_model("gpt3-1t").training_sequences == 1e12 / 2048
    assert load_model("vit-era5").training_sequences == 28_000_000
    assert load_model("gpt3").training_sequences is None
    assert {load_model(name).global_batch for name in ("gpt3", "gpt3-1t", "vit-era5")} == {4096}
    assert load_model("gpt-13b").global_batch is None


@pytest.mark.parametrize(
    ("name", "accelerator", "fast", "slow"),
    [  # arXiv 2410.00273: matrix, vector, fp32, HBM bandwidth, bytes; bandwidth, efficiency, latency of tiers
        ("a100", (312e12, 78e12, 19.5e12, 1555e9, 80e9), (300e9, 0.7, 2.5e-6), (25e9, 0.7, 5e-6)),
        ("h200", (989.4e12, 133.8e12, 66.9e12, 4800e9, 141e9), (450e9, 0.7, 2.5e-6), (50e9, 0.7, 5e-6)),
        ("b200", (2500e12, 339e12, 169e12, 8000e9, 192e9), (900e9, 0.7, 2.5e-6), (100e9, 0.7, 5e-6)),
        (
            "b200-next",
            (3750e12, 508.5e12, 253.5e12, 16000e9, 384e9),
            (3600e9, 0.8, 5e-6),
            (200e9, 0.8, 10e-6),
        ),
    ],
)
@pytest.mark.parametrize("size", [1, 4, 8, 64, 72])
def test_systems_of_the_paper(
    name: str, size: int, accelerator: tuple[float, ...], fast: object, slow: object
) -> None:
    system = load_system(f"{name}-nvs{size}")
    chip = system.accelerator
    assert (
        chip.matrix_flops,
        chip.vector_flops,
        chip.vector_fp32_flops,
        chip.hbm_bandwidth,
        chip.hbm_bytes,
    ) == accelerator
    assert [(tier.bandwidth, tier.efficiency, tier.latency) for tier in system.tiers] == [fast, slow]
    assert [(tier.ports, tier.size) for tier in system.tiers] == [(1, size), (1, None)]


@pytest.mark.parametrize(
    ("name", "hbm_bandwidth", "hbm_bytes", "gpus", "per_node"),
    [  # doi 10.1145/3639034, table of clusters: the last is the NIC bandwidth of a node
        ("polaris", 1555e9, 40e9, 4, 25e9),
        ("tg40", 1555e9, 40e9, 8, 200e9),
        ("tg80", 2039e9, 80e9, 8, 200e9),
    ],
)
def test_clusters(name: str, hbm_bandwidth: float, hbm_bytes: float, gpus: int, per_node: float) -> None:
    system = load_system(name)
    chip, slow = system.accelerator, system.slow
    assert (chip.matrix_flops, chip.vector_flops, chip.vector_fp32_flops) == (
        312e12,
        78e12,
        19.5e12,
    )  # NVIDIA A100 data sheet
    assert (chip.hbm_bandwidth, chip.hbm_bytes, system.fast_domain) == (hbm_bandwidth, hbm_bytes, gpus)
    assert system.fast.bandwidth == 12 * 25e9  # NVLinks of a GPU, one direction
    assert slow.bandwidth * slow.ports * gpus == per_node
    assert system.sources["network.1.efficiency"].endswith("(assumed)")


def test_fast_domain_of_the_name_is_its_source() -> None:
    assert load_system("b200-nvs72").sources["network.0.size"] == "the name b200-nvs72 (assumed)"


@pytest.mark.parametrize(
    ("load", "name", "says"),
    [
        (load_model, "gpt3-2t", "did you mean gpt3-1t"),
        (load_model, "", "`traincast catalog` lists the models"),
        (load_system, "h200-nvs0", "any N in <gpu>-nvs<N>"),
        (load_system, "h200-nvs", "h200-nvs4"),
        (load_system, "h300-nvs8", "did you mean h200-nvs8"),
        (load_system, "polaris-nvs4", "did you mean polaris"),
        (load_system, "poliaris", "did you mean polaris"),
        (figures, "polari", "did you mean polaris"),
    ],
)
def test_unknown_names(load: Callable[[str], object], name: str, says: str) -> None:
    with pytest.raises(InputError, match="unknown") as caught:
        load(name)
    assert says in str(caught.value)


# Files


def test_model_file(write: Callable[..., Path]) -> None:
    path = write(MODEL | {"training_tokens": 128e6, "global_batch": 32})
    expected = Model(
        name="tiny", layers=2, hidden=64, heads=4, ffn=256, seq=128, global_batch=32, training_sequences=1e6
    )
    assert load_model(path) == load_model(str(path)) == expected
    assert load_model(path).sources["layers"] == "by hand (spec)"


def test_system_file(write: Callable[..., Path]) -> None:
    system = load_system(write(SYSTEM))
    assert system.accelerator.hbm_bytes == 80 * 2**30
    assert system.accelerator.vector_fp32_flops is None
    assert system.fast.bandwidth == 50e9
    assert (system.fast_domain, system.slow.size, system.slow.ports) == (8, None, 1)
    assert system.sources["accelerator.hbm_bandwidth"] == "a benchmark (measured)"
    assert system.sources["network.1.latency"] == "by hand (spec)"
    assert system.sources["network.1.ports"].endswith("(assumed)")


def test_all_keys_of_a_model_file(write: Callable[..., Path]) -> None:
    shape = {
        "kv_heads": 2,
        "causal": True,
        "mlp": "swiglu",
        "norm": "rmsnorm",
        "norms": 4,
        "qk_norm": "head",
        "sinks": True,
    }
    shape |= {
        "dropout": False,
        "positions": "learned",
        "max_positions": 256,
        "vocab": 1000,
        "tied": True,
        "mtp": 1,
    }
    latent = {"kv_rank": 16, "q_rank": 24, "nope_dim": 8, "rope_dim": 4, "value_dim": 8}
    local = {"window": 16, "chunked": True, "global_every": 2}
    experts = {
        "experts": 4,
        "topk": 2,
        "ffn": 32,
        "shared_ffn": 32,
        "shared_gate": True,
        "first_dense": 1,
        "every": 1,
    }
    experts |= {"router_bias": True, "capacity": 1.5, "imbalance": 1.2, "load": [0, 1, 2, 3]}
    path = write(MODEL | shape | {"latent": latent, "local": local, "experts": experts, "biases": ["qkv"]})
    parts = {
        "latent": Latent(**latent),
        "local": Local(**local),
        "experts": Experts(**experts | {"load": (0, 1, 2, 3)}),
    }
    numbers = {key: value for key, value in MODEL.items() if key != "source"}
    assert load_model(path) == Model(**numbers, **shape, **parts, biases=("qkv",))
    shown = {figure.path: (figure.value, figure.unit) for figure in figures(path)}
    assert (shown["latent.q_rank"], shown["local.window"], shown["experts.capacity"]) == (
        (24, ""),
        (16, "token"),
        (1.5, ""),
    )
    assert "mlp" not in shown  # words have no figure


def test_image_model_file(write: Callable[..., Path]) -> None:
    model = load_model(
        write(
            MODEL
            | {
                "patch": 768,
                "classes": 10,
                "head_dim": 8,
                "biases": [],
                "local": {"window": 4, "layers": [2]},
                "attention_gate": True,
            }
        )
    )
    assert model.attention_gate
    assert (model.patch, model.classes, model.head_width, model.biases) == (768, 10, 8, ())
    assert [kind.local for kind in model.pattern] == [False, True]


def test_null_means_default(write: Callable[..., Path]) -> None:
    nothing = dict.fromkeys(
        ("kv_heads", "latent", "local", "experts", "mlp", "causal", "biases", "mtp", "vocab", "qk_norm")
    )
    assert load_model(write(MODEL | nothing)) == load_model(write(MODEL, "plain.json"))


@pytest.mark.parametrize("content", [MODEL, SYSTEM])
def test_yaml_and_json_agree(content: dict[str, Any], write: Callable[..., Path]) -> None:
    from ruamel.yaml import YAML

    with (write("", "file.yml")).open("w") as stream:
        YAML(typ="safe", pure=True).dump(content, stream)
        path = stream.name
    assert figures(path) == figures(write(content))
    load: Callable[[Any], object] = load_model if content is MODEL else load_system
    assert load(path) == load(write(content))


def test_figures_in_si(write: Callable[..., Path]) -> None:
    bandwidth = next(figure for figure in figures(write(SYSTEM)) if figure.path == "network.0.bandwidth")
    assert (bandwidth.value, bandwidth.unit, bandwidth.source, bandwidth.basis) == (
        50e9,
        "byte/s",
        "by hand",
        "spec",
    )


def test_file_of_the_catalogue_loads_by_path() -> None:
    import traincast

    path = Path(traincast.__file__).parent / "catalog" / "systems" / "polaris.yaml"
    assert load_system(path) == load_system("polaris")


@pytest.mark.parametrize(
    ("content", "name", "says"),
    [
        ("", "file.yaml", "the file is empty"),
        ("# nothing\n", "file.yaml", "the file is empty"),
        ("", "file.json", "the file is empty"),
        ("- 1\n", "file.yaml", "not a mapping"),
        ("[1]", "file.json", "not a mapping"),
        (b"name: \xff", "file.yaml", "is not UTF-8 text (byte 0xff at offset 6)"),
        ("name: [1,\nlayers: 2", "file.yaml", "line 2, column 10: malformed YAML: expected ',' or ']'"),
        ("name: a: b", "file.yaml", "line 1, column 8: malformed YAML: mapping values are not allowed here"),
        (
            "layers: 1\nlayers: 2",
            "file.yaml",
            'line 2, column 1: malformed YAML: found duplicate key "layers"',
        ),
        ("layers: !!python/name:os.system", "file.yaml", "line 1, column 9: malformed YAML"),
        ("layers: !!bool maybe", "file.yaml", "malformed YAML"),
        ("a: \x07", "file.yaml", "malformed YAML"),
        ("name: &a [*a]\nlayers: 2", "file.yaml", "name: contains itself"),
        ("name: &a [*a]\nlayers: &a 2", "file.yaml", "name: contains itself"),  # the anchor's name again
        ("a: " + "[" * 33 + "]" * 33, "file.yaml", "nested too deeply"),  # one more than is read
        ("a: " + "{b: " * 33 + "}" * 33, "file.yaml", "nested too deeply"),
        ('{"name":\n "a",}', "file.json", "line 2, column 6: malformed JSON"),
        ('{"layers": 1, "layers": 2}', "file.json", "found duplicate key 'layers'"),
    ],
)
@pytest.mark.parametrize("load", [load_model, load_system, figures])
def test_unusable_files(
    load: Callable[[Any], object], content: str, name: str, says: str, write: Callable[..., Path]
) -> None:
    [problem] = problems(load, write(content, name))
    assert says in problem


def test_brackets_in_thirty_two_others_are_read() -> None:
    text = "[" * 32 + "]" * 32
    assert str(parse_document(f"a: {text}", "yaml")["a"]) == text


@pytest.mark.parametrize("load", [load_model, load_system, figures])
def test_missing_file(load: Callable[[Any], object], tmp_path: Path) -> None:
    assert problems(load, "missing.yaml") == ("no such file",)
    assert problems(load, tmp_path) == ("is a directory; give a file",)
    assert "cannot be read" in problems(load, tmp_path / ("x" * 500))[0]


@pytest.mark.parametrize(
    ("load", "alias", "known"),
    [(load_model, "meta-llama/Llama-3.1-8B", "llama-3-8b"), (load_system, "nvidia/DGX-H100", "dgx-h100")],
)
def test_an_alias_with_an_owner_is_the_catalogues_unless_it_is_a_path(
    load: Callable[[Any], Any], alias: str, known: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load(alias).name == known
    monkeypatch.chdir(tmp_path)
    Path(alias).mkdir(parents=True)  # a folder of that name is one
    assert problems(load, alias) == ("is a directory; give a file",)
    assert problems(load, "Qwen/models/Qwen3-8B") == ("no such file",)
    assert problems(load, "Qwen/Qwen3-8B.json") == ("no such file",)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"layers": 1.5}, "layers = 1.5: not a whole number; write for instance 64"),
        ({"layers": "12"}, "layers = '12': not a number; write for instance 64"),
        ({"layers": True}, "layers = True: not a number; write for instance 64"),
        ({"layers": None}, "layers = None: not a number; write for instance 64"),
        ({"layers": [1]}, "layers = [1]: not a number; write for instance 64"),
        ({"seq": 0}, "seq = 0: not a finite number above 0; write for instance 64"),
        ({"seq": -5}, "seq = -5: not a finite number above 0; write for instance 64"),
        ({"ffn": float("nan")}, "ffn = nan: not a finite number of at least 0; write for instance 64"),
        ({"ffn": float("inf")}, "ffn = inf: not a finite number of at least 0; write for instance 64"),
        ({"ffn": 0}, "ffn = 0: must be a whole number of at least 1"),
        ({"heads": 24}, "heads = 24: must divide hidden = 64; write for instance 8"),
        ({"heads": {"value": 24}}, "heads = 24: must divide hidden = 64; write for instance 8"),
        ({"name": 7}, "name = 7: not text; put it in quotes"),
        ({"source": " "}, "source = ' ': empty; write a few words"),
        ({"aliases": "small"}, "aliases = 'small': not a list; write for instance [one, other]"),
        ({"hiden": 64}, "hiden: unknown key; did you mean hidden?"),
        (
            {"layers": {"value": 2, "basis": "guess"}},
            "layers.basis = 'guess': not a known word; write 'spec', 'measured', 'assumed' or 'fitted'",
        ),
        ({"layers": {"value": 2, "sourc": "x"}}, "layers.sourc: unknown key; did you mean source?"),
        ({"layers": {"source": "x"}}, "layers.value: missing"),
        (
            {"training_sequences": 5, "training_tokens": 5},
            "training_tokens = 5: training_sequences is given as well; keep one of the two",
        ),
        ({"kv_heads": 3}, "kv_heads = 3: must divide heads = 4"),
        ({"causal": "yes"}, "causal = 'yes': neither true nor false"),
        (
            {"mlp": "tanh"},
            "mlp = 'tanh': not a known word; "
            "write 'gelu', 'relu', 'relu2', 'silu', 'xielu', 'swiglu', 'geglu' or 'reglu2'",
        ),
        ({"norms": 3}, "norms = 3: not a known word; write 1, 2 or 4"),
        ({"biases": "qkv"}, "biases = 'qkv': not a list; write for instance [one, other]"),
        ({"biases": ["all"]}, "biases.0 = 'all': not a known word; write 'qkv', 'qv', 'proj' or 'mlp'"),
        ({"mtp": -1}, "mtp = -1: not a finite number of at least 0; write for instance 1"),
        ({"experts": 8}, f"experts = 8: not a mapping; its keys are {EXPERTS}"),
        ({"experts": {"experts": 8, "topk": 2}}, "experts.ffn: missing; write for instance ffn: 64"),
        (
            {"experts": {"experts": 8, "topk": 2, "ffn": 64, "shared": 1}},
            "experts.shared: unknown key; did you mean shared_ffn or shared_gate?",
        ),
        ({"experts": {"experts": 8, "topk": 9, "ffn": 64}}, "experts.topk = 9: must be at most experts = 8"),
        (
            {"experts": {"experts": 8, "topk": 1, "ffn": {"valu": 6, "value": 64}}},
            "experts.ffn.valu: unknown key; did you mean value?",
        ),
        (
            {"experts": {"experts": 2, "topk": 1, "ffn": 64, "imbalance": 0.5}},
            "experts.imbalance = 0.5: below 1, the least it can be; write for instance 1.2",
        ),
        (
            {"experts": {"experts": 2, "topk": 1, "ffn": 64, "load": [1, -1]}},
            "experts.load.1 = -1: not a finite number of at least 0; write for instance 0.5",
        ),
        ({"local": {"window": "1k"}}, "local.window = '1k': not a number; write for instance 64"),
        (
            {"local": {"window": 8, "layers": [{"value": 1, "sorce": "x"}]}},
            "local.layers.0.sorce: unknown key; did you mean source?",
        ),
        (
            {"local": {"window": 128, "global_every": 0}},
            "local.global_every = 0: not a finite number above 0; write for instance 64",
        ),
        (
            {"local": {"window": 8, "global_every": 2, "layers": [1]}},
            "local.layers = [1]: global_every is given as well; keep one of the two",
        ),
        (
            {"latent": {"kv_rank": 8, "nope_dim": 8, "value_dim": 8}},
            "latent.rope_dim: missing; write for instance rope_dim: 64",
        ),
    ],
)
def test_mistakes_in_a_model(change: dict[str, object], expected: str, write: Callable[..., Path]) -> None:
    assert problems(load_model, write(MODEL | change)) == (expected,)


def test_optional_keys(write: Callable[..., Path]) -> None:
    ideal = SYSTEM | {
        "network": [TIER | {"size": 8, "latency": "0 s"}, TIER]
    }  # zero latency: an ideal network
    system = load_system(write({key: value for key, value in ideal.items() if key != "source"}))
    assert system.fast.latency == 0
    assert system.sources["network.0.latency"] == "the file itself (spec)"


def test_missing_keys(write: Callable[..., Path]) -> None:
    messages = problems(load_model, write({"name": "x", "layers": 2}))
    assert messages[:2] == (
        "hidden: missing; write for instance hidden: 64",
        "heads: missing; write for instance heads: 64",
    )
    assert len(messages) == 4  # hidden, heads, ffn, seq


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"hbm_bytes": "80 GBit/s"},
            "hbm_bytes = '80 GBit/s': unit 'GBit/s' measures byte/s, not byte; write for instance '80 GiB'",
        ),
        ({"hbm_bytes": 80}, "hbm_bytes = 80: has no unit; write for instance '80 GiB'"),
        ({"hbm_bytes": "80"}, "hbm_bytes = '80': has no unit; write for instance '80 GiB'"),
        ({"hbm_bytes": "much"}, "hbm_bytes = 'much': not a quantity; write for instance '80 GiB'"),
        (
            {"hbm_bytes": "0 GB"},
            "hbm_bytes = '0 GB': not a finite number above 0; write for instance '80 GiB'",
        ),
        (
            {"hbm_bytes": "1e400 GB"},
            "hbm_bytes = '1e400 GB': not a finite number above 0; write for instance '80 GiB'",
        ),
        ({"hbm_byte": "80 GB"}, "hbm_byte: unknown key; did you mean hbm_bytes?"),
    ],
)
def test_mistakes_in_an_accelerator(
    change: dict[str, object], expected: str, write: Callable[..., Path]
) -> None:
    assert problems(load_system, write(SYSTEM | {"accelerator": ACCELERATOR | change})) == (
        f"accelerator.{expected}",
    )


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        ([TIER | {"size": 8}], "network.1: missing; a network has two to 8 tiers"),
        (
            [TIER | {"size": 2**i} for i in range(8)] + [TIER],
            "network: 9 tiers; a network has two to 8 tiers",
        ),
        ([TIER | {"size": 8}, TIER, TIER], "network.1.size: missing; write for instance size: 64"),
        (
            [TIER | {"size": 8}, TIER | {"size": 12}, TIER],
            "network.1.size = 12: must be a multiple of network.0.size = 8; write",
        ),
        (
            [TIER | {"size": 8}, TIER | {"size": 8}, TIER],
            "network.1.size = 8: must be a multiple of network.0.size = 8; write for",
        ),
        (
            [TIER | {"size": 8, "ports": 2}, TIER],
            "network.0.ports: does not belong here; the innermost tier's bandwidth is",
        ),
        (
            [TIER | {"size": 8, "taper": 2}, TIER],
            "network.0.taper: does not belong here; the innermost tier has no switches below it",
        ),
        (
            [TIER | {"size": 8, "used": 12}, TIER],
            "network.0.used = 12: must be at most 8",
        ),
        (
            [TIER | {"size": 8}, TIER | {"used": 8}],
            "network.1.used: does not belong here; the outermost tier has",
        ),
        (
            [TIER | {"size": 8, "rails": 8}, TIER],
            "network.0.rails: does not belong here; the innermost tier has",
        ),
        ([TIER | {"size": 8}, TIER | {"rails": 1.5}], "network.1.rails = 1.5: "),
        ([TIER | {"size": 8}, TIER | {"taper": 0.5}], "network.1.taper = 0.5: below 1, the least it can be"),
        (5, "network = 5: not a list; a network has two to 8 tiers"),
        ([TIER, TIER], "network.0.size: missing; write for instance size: 64"),
        ([TIER | {"size": "nvs"}, TIER], "network.0.size = 'nvs': not a number; write for instance 64"),
        (
            [TIER | {"size": 8}, TIER | {"size": 8}],
            "network.1.size: does not belong here; the outermost tier joins everything",
        ),
        (
            [TIER | {"size": 8}, TIER | {"efficiency": 1.2}],
            "network.1.efficiency = 1.2: above 1, the most a share can be",
        ),
        ([TIER | {"size": 8}, 3], "network.1 = 3: not a mapping; its keys are name, bandwidth,"),
    ],
)
def test_mistakes_in_a_network(network: object, expected: str, write: Callable[..., Path]) -> None:
    [problem] = problems(load_system, write(SYSTEM | {"network": network}))
    assert problem.startswith(expected)


FIGURES = {
    "gpus": 4096,
    "price": "2.5 $/h",
    "node_power": "1.2 kW",
    "pue": 1.2,
    "carbon": {"value": "0.48 kgCO2/kWh", "source": "the grid", "basis": "measured"},
    "failure_hours": "50 kh",
    "storage_bandwidth": "1 GB/s",
}


def test_a_system_of_three_tiers_with_all_its_figures(write: Callable[..., Path]) -> None:
    network = [TIER | {"size": 8}, TIER | {"size": 256, "ports": 2}, TIER]
    system = load_system(write(SYSTEM | FIGURES | {"network": network, "accelerator": "H100-SXM-80"}))
    assert [(tier.size, tier.ports) for tier in system.tiers] == [(8, 1), (256, 2), (None, 1)]
    assert system.accelerator == load_system("dgx-h100").accelerator
    assert (system.gpus, system.price, system.node_power, system.pue) == (4096, 2.5, 1200, 1.2)
    assert (system.carbon, system.failure_hours, system.storage_bandwidth) == (480, 50_000, 1e9)
    assert system.sources["carbon"] == "the grid (measured)"
    assert (
        system.sources["accelerator.hbm_bytes"]
        == "nvidia-smi of an H100 SXM: 81559 MiB; the data sheet says 80 GB (measured)"
    )
    assert load_system(write(SYSTEM)).price is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"accelerator": "h100-sxm"},
            "accelerator = 'h100-sxm': no accelerator of the catalogue; did you mean h100-sxm-80",
        ),
        (
            {"accelerator": "abacus"},
            "accelerator = 'abacus': no accelerator of the catalogue; known: a10-24, ",
        ),
        ({"accelerator": 5}, "accelerator = 5: not a mapping; its keys are name, source, matrix_flops,"),
        ({"price": 2.5}, "price = 2.5: has no unit; write for instance '2.5 $/h'"),
        ({"price": "2 W"}, "price = '2 W': unit 'W' measures W, not $/h; write for instance '2.5 $/h'"),
        (
            {"node_power": "1 kWh"},
            "node_power = '1 kWh': unit 'kWh' is unknown, must be W; write for instance '700 W'",
        ),
        (
            {"failure_hours": "2 s"},
            "failure_hours = '2 s': unit 's' measures s, not h; write for instance '50000 h'",
        ),
        (
            {"carbon": "400 g"},
            "carbon = '400 g': unit 'g' measures g, not g/kWh; write for instance '480 g/kWh'",
        ),
        ({"pue": 0.9}, "pue = 0.9: below 1, the least it can be; write for instance 1.2"),
        ({"gpus": 1.5}, "gpus = 1.5: not a whole number; write for instance 64"),
        ({"prise": "2 $/h"}, "prise: unknown key; did you mean price?"),
    ],
)
def test_mistakes_in_a_system(change: dict[str, object], expected: str, write: Callable[..., Path]) -> None:
    [problem] = problems(load_system, write(SYSTEM | change))
    assert problem.startswith(expected)


def test_all_mistakes_at_once(write: Callable[..., Path]) -> None:
    accelerator = ACCELERATOR | {"hbm_bytes": "80 GBit/s", "matrix_flops": -1}
    network = [TIER | {"size": 0}, TIER | {"latency": ".nan"}]
    path = write({"nam": "x", "source": "by hand", "accelerator": accelerator, "network": network})
    with pytest.raises(InputError) as caught:
        load_system(path)
    places = [problem.split(":")[0].split(" ")[0] for problem in caught.value.problems]
    assert places == [
        "name",
        "accelerator.matrix_flops",
        "accelerator.hbm_bytes",
        "network.0.size",
        "network.1.latency",
        "nam",
    ]
    assert str(caught.value).startswith(
        f"{path}: 6 problems\n  name: missing\n  accelerator.matrix_flops = -1: has no unit;"
    )


def test_odd_keys_and_numbers(write: Callable[..., Path]) -> None:
    messages = problems(
        load_model,
        write(f"{json.dumps(MODEL | {'layers': 0})[:-1]}, 3: 4, ffn2: 0x{'f' * 5000}}}", "file.yaml"),
    )
    assert messages[-2:] == (
        "3: a key that is not text; put it in quotes",
        "ffn2: unknown key; did you mean ffn?",
    )
    [huge] = problems(load_model, write(json.dumps(MODEL).replace("128", "0x" + "f" * 5000), "huge.yaml"))
    assert huge.startswith("seq = a huge number: not a finite number above 0")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3),
    )
)
@pytest.mark.parametrize(
    "key", ["layers", "aliases", "name", "latent", "experts", "local", "biases", "mlp", "tied", "norms"]
)
def test_any_value_loads_or_is_refused_by_name(key: str, value: object) -> None:
    from traincast.catalog.schema.messages import check
    from traincast.catalog.schema.model import ModelFile

    try:
        check(ModelFile, MODEL | {key: value}, "file")
    except InputError as error:
        assert all(problem.startswith(key) for problem in error.problems)  # noqa: PT017


def test_import_is_cheap() -> None:
    """Neither the validator nor the parser is imported before something is loaded."""
    code = (
        "import sys, traincast.catalog.load; print({'pydantic', 'ruamel.yaml', 'numpy'} & sys.modules.keys())"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "set()"


def test_a_part_of_a_file_becomes_what_its_class_says_on_every_python(monkeypatch):
    """What converts a part is called without the part: since Python 3.14 `partial` binds as functions do."""
    file = Path(__file__).parents[2] / "examples" / "qwen3-vl" / "config.json"
    expected = load_model(file).tower
    convert = TowerLayersPart.becomes
    monkeypatch.setattr(TowerLayersPart, "becomes", lambda **values: convert(**values))
    assert load_model(file).tower == expected
