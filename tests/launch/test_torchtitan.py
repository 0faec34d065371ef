"""Exports for torchtitan fit torchtitan 0.3.0, and are checked by it where it is installed."""

import ast
import json
import runpy
import tomllib

import pytest

import traincast as tc
from traincast.launch.export import FORMATS, launch
from traincast.launch.torchtitan import MODELS, UNTIL_2025
from traincast.ui.cli.main import main

MACHINE = tc.load_system("dgx-h100")
DENSE = "llama-3-8b"
PLANS = {
    "data": (DENSE, tc.Plan(tp=2, dp=4, zero=2)),
    "context": (DENSE, tc.Plan(tp=2, cp=2, cp_kind="all-gather", dp=4, zero=3, tp_overlap=True)),
    "pipeline": (DENSE, tc.Plan(tp=2, pp=2, dp=4, zero=2)),
    "uneven": (DENSE, tc.Plan(pp=2, dp=4, zero=2, layout="15,17")),
    "zero bubble": (DENSE, tc.Plan(pp=4, vp=2, dp=4, zero=2, schedule="zb-v")),
    "experts": ("qwen3-30b-a3b", tc.Plan(dp=8, ep=4, zero=2)),
    "experts in one place": ("qwen3-30b-a3b", tc.Plan(dp=8, zero=2)),
    "experts and pipeline": ("deepseek-v3", tc.Plan(pp=4, dp=8, ep=8, zero=2)),
    "recomputed": (DENSE, tc.Plan(dp=8, zero=3, recompute="full")),
}


def written(case, to="torchtitan"):
    name, plan = PLANS[case]
    return launch(FORMATS[to], tc.load_model(name), plan, 64, MACHINE)


def keywords(text, call):
    """Arguments of a call in a module."""
    called = next(
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == call
    )
    return {keyword.arg: ast.literal_eval(keyword.value) for keyword in called.keywords}


@pytest.mark.parametrize("case", PLANS)
def test_cuda_graphs_are_off_where_torchtitan_has_none(case):
    """Trainer.Config of torchtitan 0.3.0 refuses them with a pipeline and with experts (trainer.py)."""
    _, plan = PLANS[case]
    assert keywords(written(case).text, "TrainingConfig").get("disable_cuda_graphs", False) == (
        plan.pp > 1 or plan.ep > 1
    )


def test_the_last_stage_holds_the_output_projection():
    """Its name is lm_head in torchtitan 0.3.0 (models/common/decoder.py), output in 2025."""
    python = keywords(written("uneven").text, "ParallelismConfig")["module_fqns_per_model_part"]
    toml = tomllib.loads(written("uneven", "torchtitan-toml").text)["parallelism"][
        "module_fqns_per_model_part"
    ]
    assert python[-1][-2:] == ["norm", "lm_head"]
    assert toml[-1][-2:] == ["norm", "output"]
    assert [len(part) for part in python] == [16, 19]


@pytest.mark.parametrize("case", PLANS)
def test_torchtitan_makes_the_configuration(case, tmp_path):
    """With torchtitan 0.3.0: what its classes refuse is refused when the function of the file runs."""
    pytest.importorskip("torchtitan")
    path = tmp_path / "written.py"
    path.write_text(written(case).text, encoding="utf-8")
    made = next(value for name, value in runpy.run_path(str(path)).items() if name.endswith("_gpus"))()
    name, plan = PLANS[case]
    parallelism, model = made.parallelism, made.model_spec.model
    degrees = (
        parallelism.tensor_parallel_degree,
        parallelism.pipeline_parallel_degree,
        parallelism.expert_parallel_degree,
    )
    assert degrees == (plan.tp, plan.pp, plan.ep)
    known = tc.load_model(name)
    assert (len(model.layers), model.dim, model.vocab_size) == (known.layers, known.hidden, known.vocab)


def test_torchtitan_has_the_flavours():
    pytest.importorskip("torchtitan")
    from importlib import import_module

    for (name, flavour), known in MODELS.items():
        if name in UNTIL_2025:
            with pytest.raises(ModuleNotFoundError):
                import_module(f"torchtitan.models.{name}")
            continue
        model = import_module(f"torchtitan.models.{name}").model_registry(flavour).model
        assert (len(model.layers), model.dim) == (tc.load_model(known).layers, tc.load_model(known).hidden)


OTHER = "export mixtral-8x7b --system dgx-h100 --tp 2 --ep 8 --dp 64 --zero 3 --gbs 512 --recompute full"


@pytest.mark.parametrize("to", ["torchtitan", "torchtitan-toml"])
def test_a_model_without_a_flavour_is_written_under_its_own_name(to, capsys):
    """torchtitan stops at an unknown model; without a flavour it would train its debugmodel."""
    main([*OTHER.split(), "--to", to, "--json"])
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert err.count("not expressed: model = mixtral-8x7b") == 1
    assert "llama3 8B, 70B, 405B" in answer["not_expressed"]["model"]
    text = answer["text"]
    if to == "torchtitan":
        assert "from torchtitan.models.mixtral_8x7b import model_registry" in text
        assert 'model_registry("mixtral-8x7b")' in text
        with pytest.raises(ModuleNotFoundError, match="torchtitan"):
            exec(compile(text, "written.py", "exec"), {})
    else:
        assert tomllib.loads(text)["model"] == {"name": "mixtral-8x7b", "flavor": "mixtral-8x7b"}


@pytest.mark.parametrize(("to", "has_it"), [("torchtitan", False), ("torchtitan-toml", True)])
def test_a_flavour_that_is_gone_is_said_to_be_none(to, has_it):
    """torchtitan 0.3.0 has no folder models/llama4; that of 2025 had."""
    written = launch(FORMATS[to], tc.load_model("llama-4-scout"), tc.Plan(dp=8, ep=8), 64, MACHINE)
    assert any(line.endswith('"17bx16e"') for line in written.text.splitlines()) is has_it
    assert ("model" in written.not_expressed) is not has_it


@pytest.mark.parametrize("name", ["7b", 'a "quoted" name', "größe/7b", "x" * 80])
def test_a_module_is_python_whatever_the_model_is_called(name):
    from dataclasses import replace

    model = replace(tc.load_model("mixtral-8x7b"), name=name)
    text = launch(FORMATS["torchtitan"], model, tc.Plan(dp=8), 64, MACHINE).text
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    assert [function.name.endswith("_8_gpus") for function in functions] == [True]


@pytest.mark.parametrize(
    ("sections", "precision", "has_note"),
    [
        ("[float8]\nenable_fsdp_float8_all_gather = true\n", "bf16", True),
        ("[float8]\nenable_fsdp_float8_all_gather = false\n", "bf16", False),
        ("[float8]\nenable_float8_linear = true\n", "fp8-current", False),  # job_config.py of 2024
    ],
)
def test_a_section_of_float8_that_no_converter_uses_is_named(sections, precision, has_note, tmp_path):
    """Since 2025 `model.converters` alone decides (torchtitan/config/job_config.py)."""
    path = tmp_path / "run.toml"
    settings = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n'
    path.write_text(settings + sections, encoding="utf-8")
    checked = tc.check(path, "dgx-h100", gpus=8)
    assert checked.est.plan.precision == precision
    assert any("[float8] has no effect" in note for note in checked.reading.assumed) == has_note
