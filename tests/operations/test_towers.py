"""Vision towers: parameters, FLOPs, memory and time of their parts, and images that cannot be read."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import traincast as tc
from traincast.catalog.software_stacks import resolve
from traincast.core.errors import InputError
from traincast.model.blocks import Encoder
from traincast.model.model import PATCHES, PROJECTOR
from traincast.operations.operation import total
from traincast.operations.transformer import parts
from traincast.step.estimates import usual_assumptions
from traincast.step.model_flops import forward_flops, model_flops_per_token
from traincast.step.pipeline_stages import devices, split_layers
from traincast.ui.cli.main import main

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "qwen3-vl" / "config.json"
COUNTED = json.loads((ROOT / "tests" / "data" / "vision_language_counts.json").read_text(encoding="utf-8"))
RUN = [entry for entry in COUNTED if "tower_flops" in entry]
QWEN = tc.load_model(EXAMPLE)
PLAN = tc.Plan(tp=2, dp=32, zero=1)


def read(config: dict[str, Any], folder: Path) -> tc.Model:
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return tc.load_model(path)


def operations(model: tc.Model, **knobs: Any) -> dict[str, Any]:
    plan = tc.Plan(**knobs).columns()
    return parts(model, plan, resolve(usual_assumptions(model)))


@pytest.mark.parametrize("entry", COUNTED, ids=[entry["config"]["model_type"] for entry in COUNTED])
def test_parameters_are_those_that_transformers_builds(entry: dict[str, Any], tmp_path: Path) -> None:
    """Random configurations, counted by `tools/oracle.py` with transformers 5.23 on the meta device."""
    model = read(entry["config"], tmp_path)
    assert model.parameters == entry["parameters"]
    assert not model.left_out


@pytest.mark.parametrize("entry", RUN, ids=[entry["config"]["model_type"] for entry in RUN])
def test_flops_are_those_of_a_run(entry: dict[str, Any], tmp_path: Path) -> None:
    """`tools/oracle.py`: torch.utils.flop_counter over one image, tower and projectors, eager attention."""
    model = read(entry["config"], tmp_path)
    assert model.tower is not None
    if model.tower.resizable:
        model = model.with_images(size=4 * model.tower.merge * model.tower.patch_size)
    forward = forward_flops(model)
    assert round((forward.tower + forward.projector) * model.seq) == entry["tower_flops"]


MLLAMA = {
    "model_type": "mllama",
    "text_config": {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 1000}
    | {"num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 128}
    | {"cross_attention_layers": [1, 3]},
    "vision_config": {"hidden_size": 32, "num_hidden_layers": 3, "num_global_layers": 2, "image_size": 56}
    | {"attention_heads": 4, "intermediate_size": 48, "vision_output_dim": 96},
}


def test_layers_of_llama_3_2_vision_attend_to_the_tiles_of_all_images(tmp_path: Path) -> None:
    """Two images of 4 tiles of 4 x 4 patches and a class token, filled up to 24 rows in the tower.

    FLOPs are those of torch.utils.flop_counter over the model of transformers 5.23 with eager attention, but
    for the products of the tower's mask.
    """
    model = read(MLLAMA, tmp_path).with_images(2)
    assert model.tower is not None
    assert model.encoder is not None
    assert (model.tower.model.seq, model.tower.tokens, model.encoder.seq) == (4 * 24, 4 * 17, 2 * 4 * 17)
    counted = sum(forward_flops(model, "megatron-full")) * model.seq
    assert counted == 97_357_824 - 2 * 2 * 96 * 96
    assert [str(kind) for kind in model.pattern] == ["dense", "cross dense"] * 2


def test_layers_that_attend_to_images_need_all_their_tokens(tmp_path: Path) -> None:
    model = read(MLLAMA, tmp_path)
    with pytest.raises(InputError, match=r"encoder\.seq = 9: must be the 68 tokens of the tower"):
        replace(model, encoder=Encoder(seq=9))
    with pytest.raises(InputError, match="encoder: missing; layer_kinds names layers that attend"):
        replace(model, encoder=None)
    with pytest.raises(InputError, match=r"layer_kinds: must name .* dense and cross dense alone"):
        replace(model, layer_kinds=("dense", "cross only"))


def test_an_image_of_qwen3_vl() -> None:
    """64 x 64 patches of 16 x 16 pixels, of which 2 x 2 become a token; two frames of 3 channels."""
    tower = QWEN.tower
    assert tower is not None
    assert (tower.patches, tower.tokens, tower.patch) == (4096, 1024, 16 * 16 * 3 * 2)
    assert QWEN.with_images(3, 500).tower.size == 512  # type: ignore[union-attr]  # 15.6 tokens of 32 pixels


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_operations_have_the_weights_of_the_model(tp: int) -> None:
    """Tensor ranks share products; norms, biases of row-parallel layers and tables are on each."""
    tower = QWEN.tower
    assert tower is not None
    counted = operations(QWEN, tp=tp)
    held = sum(n * total(op.weights for op in counted[name]) for name, n in tower.parts.items())
    if tp == 1:
        assert held == tower.parameters
    else:
        assert tower.parameters / tp < held < tower.parameters / tp + 0.03 * tower.parameters


def test_products_are_those_of_the_model_flops() -> None:
    """Forward and backward; no gradient of the pixels."""
    tower, counted = QWEN.tower, operations(QWEN)
    assert tower is not None
    products = {
        name: n
        * total(
            2 * k.batch * k.m * k.k * k.n
            for op in counted[name]
            for work in (op.forward, op.backward, op.weight)
            if work is not None
            for k in work.kernels
            if k.unit == "matrix"
        )
        for name, n in tower.parts.items()
    }
    forward = forward_flops(QWEN)
    patches = 2 * tower.patches * tower.patch * tower.layers.hidden
    assert products[PATCHES] == 2 * patches
    assert products[PROJECTOR] == pytest.approx(3 * forward.projector * QWEN.seq, rel=1e-12)
    recomputed = 27 * 2 * tower.patches**2 * tower.layers.hidden  # scores, by fused attention in backward
    layers = 3 * (forward.tower * QWEN.seq - patches) + recomputed
    assert products["vision dense"] == pytest.approx(layers, rel=1e-12)


def test_a_frozen_tower_runs_forward_alone() -> None:
    frozen = QWEN.with_images(frozen=True)
    counted = operations(frozen)
    tower, projector = counted["vision dense"], counted[PROJECTOR]
    assert total(op.saved_bytes + op.weights for op in tower) == 0
    assert total(op.frozen_bytes for op in tower) > 0
    assert total(op.weights for op in projector) > 0
    assert QWEN.trained_parameters - frozen.trained_parameters == QWEN.tower.tower_parameters  # type: ignore[union-attr]
    trained, forward = (model_flops_per_token(model) for model in (QWEN, frozen))
    assert trained - forward == pytest.approx(2 * forward_flops(QWEN).tower)
    step, quicker = (tc.estimate(model, "dgx-h100", PLAN, gbs=256) for model in (QWEN, frozen))
    assert quicker.step_seconds < step.step_seconds
    assert quicker.memory_bytes < step.memory_bytes


@pytest.mark.parametrize("mbs", [1, 3])
def test_what_places_images_among_the_text_by_hand(mbs: int) -> None:
    """1024 projected tokens of 4096 numbers of 2 bytes are read and written for an image, in both passes."""
    assert QWEN.tower is not None
    assert QWEN.tower.tokens == 1024
    (placed,) = (op for op in operations(QWEN, mbs=mbs)[PROJECTOR] if op.name.endswith(".placed"))
    moved = 2 * 2 * mbs * 1024 * 4096
    assert (placed.forward.nbytes, placed.backward.nbytes) == (moved, moved)


def test_more_images_take_longer() -> None:
    steps = [tc.estimate(QWEN.with_images(n), "dgx-h100", PLAN, gbs=256).step_seconds for n in (1, 2, 4, 8)]
    assert steps == sorted(steps)
    each = (steps[3] - steps[2]) / (steps[1] - steps[0]) / 4
    assert each == pytest.approx(1, rel=0.05)  # in proportion


def test_the_first_stage_has_the_tower() -> None:
    first, *others = devices(QWEN.with_images(4), pp=4, chunks_per_device=1)
    assert first.stored_parts["vision dense"] == 27
    assert all("vision dense" not in device.stored_parts for device in others)
    assert first.stored_parts["dense"] < min(device.stored_parts["dense"] for device in others[:-1])


@pytest.mark.parametrize(("layers", "number", "end", "begin"), [(36, 4, 1, 3), (36, 2, 1, 40), (8, 8, 1, 9)])
def test_layers_are_split_beside_a_tower(layers: int, number: int, end: int, begin: int) -> None:
    parts_of = split_layers(layers, number, end, begin)
    assert sum(parts_of) == layers
    assert len(parts_of) == number
    assert min(parts_of) >= 0


@pytest.mark.parametrize(
    ("images", "size", "problem"),
    [
        (0, None, "images = 0: must be a whole number of at least 1"),
        (1, -5, "image size = -5: must be a whole number of at least 1"),
        (9, None, "seq = 8192: must hold the 9216 tokens of 9 images of 1024 × 1024 in each sequence"),
    ],
)
def test_images_that_cannot_be(images: int, size: int | None, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        QWEN.with_images(images, size)
    assert caught.value.problems == (problem,)


def test_a_tower_of_one_size_names_it() -> None:
    gemma = tc.load_model(ROOT / "tests" / "data" / "hf" / "gemma-3-27b.json")
    with pytest.raises(InputError, match="takes images of 896 × 896"):
        gemma.with_images(size=448)
    with pytest.raises(InputError, match="llama-3-8b has no vision tower"):
        tc.load_model("llama-3-8b").with_images(2)


def test_answers_speak_of_the_images(capsys: pytest.CaptureFixture[str]) -> None:
    job = [str(EXAMPLE), "--system", "dgx-h100", "--gpus", "64", "--global-batch", "256", "--images", "2"]
    main(["plan", *job, "--top", "1", "--framework", "megatron", "--tp", "2", "--why"])
    said = capsys.readouterr().out
    assert "\nqwen3-vl, 2 images of 1024 × 1024 in each sequence (8.767 G parameters)" in said
    assert "layers without a measured run" in " ".join(said.split())
    main(
        ["estimate", str(EXAMPLE), "--system", "dgx-h100", "--dp", "8", "--tp", "2", "--gbs", "64", "--json"]
    )
    assert json.loads(capsys.readouterr().out)["images"] == "1 image of 1024 × 1024 in each sequence"


@pytest.mark.parametrize("form", ["megatron", "torchtitan", "nanotron"])
def test_launches_of_text_models_refuse_a_tower(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    job = [str(EXAMPLE), "--system", "dgx-h100", "--dp", "8", "--tp", "2", "--gbs", "64", "--zero", "1"]
    with pytest.raises(SystemExit) as ended:
        main(["export", *job, "--to", form])
    assert ended.value.code == 2
    assert "cannot express the vision tower of qwen3-vl" in capsys.readouterr().err


def test_fixed_and_unknown_towers_are_told_apart(tmp_path: Path) -> None:
    config = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    config["vision_config"] |= {"model_type": "another"}
    assert read(config, tmp_path).left_out == "vision tower"
