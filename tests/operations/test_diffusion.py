"""Transformers for diffusion: parameters and FLOPs of diffusers' own, operations, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import traincast as tc
from traincast.accuracy.runs.run import read_run as read_run
from traincast.catalog.software_stacks import resolve
from traincast.core.assumptions import PAPER
from traincast.core.errors import InputError
from traincast.core.plan import Plans
from traincast.operations.operation import total
from traincast.operations.transformer import parts
from traincast.step.estimates import usual_assumptions
from traincast.step.model_flops import forward_flops
from traincast.ui.cli.main import main

DATA = Path(__file__).parents[1] / "data" / "diffusers_counts.json"
COUNTED = json.loads(DATA.read_text(encoding="utf-8"))
BUILT = [entry for entry in COUNTED if "parameters" in entry]
RUN = [entry for entry in COUNTED if "forward_flops" in entry]
FLUX = tc.load_model("flux.1-schnell")


def read(config: dict[str, Any], folder: Path) -> tc.Model:
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return tc.load_model(path)


@pytest.mark.parametrize("entry", BUILT, ids=[entry["config"]["_class_name"] for entry in BUILT])
def test_parameters_are_those_that_diffusers_builds(entry: dict[str, Any], tmp_path: Path) -> None:
    """Random configurations and published ones, built by diffusers 0.42.1 on the meta device."""
    model = read(entry["config"], tmp_path)
    assert model.parameters == entry["parameters"]
    assert model.left_out == "text encoders and autoencoder"


@pytest.mark.parametrize("entry", RUN, ids=[entry["config"]["_class_name"] for entry in RUN])
def test_flops_are_those_of_a_run(entry: dict[str, Any], tmp_path: Path) -> None:
    """torch.utils.flop_counter over one sample with diffusers 0.42.1, attention by products."""
    model = replace(read(entry["config"], tmp_path), seq=entry["seq"])
    counted = sum(forward_flops(model, "megatron-full")) * model.seq
    if entry["config"]["_class_name"] == "DiTTransformer2DModel":  # embeds a sample in each layer, and again
        e = model.hidden
        counted += (model.layers + 1) * 2 * (256 * e + e * e)
    assert round(counted) == entry["forward_flops"]


def test_the_catalogue_has_flux() -> None:
    """11,891,178,560: the safetensors of black-forest-labs/FLUX.1-schnell; 1024 / 16 = 64 patches a side."""
    assert FLUX.parameters == 11_891_178_560
    assert FLUX.seq == 256 + 64**2
    assert FLUX.with_images(size=256).seq == 256 + 16**2


@pytest.mark.parametrize("index", range(0, len(BUILT) - 6, 2))
def test_operations_have_weights_and_products_of_the_model(index: int, tmp_path: Path) -> None:
    model = read(BUILT[index]["config"], tmp_path)
    counted = parts(model, tc.Plan().columns(), resolve(usual_assumptions(model)))
    times = {str(kind): model.pattern.count(kind) for kind in model.kinds} | {"embedding": 1, "head": 1}
    weights = sum(n * total(op.weights for op in counted[name]) for name, n in times.items())
    assert weights == model.parameters
    products = sum(
        n
        * total(
            2 * k.batch * k.m * k.k * k.n
            for op in counted[name]
            for k in op.forward.kernels
            if k.unit == "matrix"
        )
        for name, n in times.items()
    )
    forward = sum(forward_flops(model, "megatron-full")) * model.seq
    assert products == pytest.approx(forward, rel=1e-9)


def test_text_has_weights_of_its_own_in_joint_layers() -> None:
    e = FLUX.hidden
    joint, single = (FLUX.kind_parameters(kind) for kind in FLUX.kinds)
    assert joint == 2 * (
        12 * e**2 + 9 * e + 2 * 128 + 6 * e * (e + 1)
    )  # q, k, v, output and MLP, with biases
    assert single == 12 * e**2 + 8 * e + 2 * 128 + 3 * e * (e + 1)


def test_a_plan_of_flux(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["--system", "dgx-h100", "--gpus", "16", "--global-batch", "64", "--image-size", "512"]
    main(["plan", "flux.1-schnell", *job, "--framework", "megatron", "--pp", "1", "--cp", "1", "--top", "1"])
    said = capsys.readouterr().out
    assert "\nflux.1-schnell without its text encoders and autoencoder (11.89 G parameters)" in said
    assert "64 sequences of 1,280 tokens" in said


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"_class_name": "UNet2DConditionModel"}, "_class_name = 'UNet2DConditionModel': not a class"),
        ({"num_layers": 0.5}, "num_layers = 0.5: must be a whole number"),
        ({"guidance_embeds": "yes"}, "guidance_embeds = 'yes': must be true or false"),
    ],
)
def test_what_cannot_be_read_is_refused(change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read({"_class_name": "FluxTransformer2DModel"} | change, tmp_path)
    assert any(line.startswith(problem) for line in caught.value.problems)


def test_images_that_cannot_be() -> None:
    with pytest.raises(InputError, match="must be a multiple of 16 pixels"):
        FLUX.with_images(size=250)
    with pytest.raises(InputError, match="is one image, read by no tower"):
        FLUX.with_images(2)


def test_rows_of_mlperf_are_read() -> None:
    """Training v5.1: images of 256 x 256 beside 256 tokens of text; configurations are data-parallel."""
    row = {"id": "1", "framework": "MLPerf", "released": "2025-11", "gpu": "b200", "tp": "1"}
    row |= {"model": "FLUX.1-schnell 12B DiT (MLPerf)", "gpus": "32", "precision": "bf16", "gbs": "1024"}
    row |= {"step_seconds": "0.62", "flash_attention": "True", "image_size": "256"}
    run = read_run(row)
    assert (run.model.seq, run.model.name, run.plan.tp, run.plan.dp) == (512, "flux.1-schnell", 1, 32)


def test_modulation_moves_two_tensors_forward_and_three_backward() -> None:
    """Reads x and writes the result; reads x and its gradient and writes that of x, which saves x."""
    model = tc.load_model("flux.1-schnell")
    found = [op for part in parts(model, Plans(), PAPER).values() for op in part]
    scales = [op for op in found if op.name in ("modulation.scale", "modulation.gate")]
    assert scales
    for op in scales:
        assert op.backward.nbytes == pytest.approx(3 / 2 * op.forward.nbytes)
        assert op.saved_bytes == pytest.approx(op.forward.nbytes / 2)
