"""Exports for torchtitan fit torchtitan 0.3.0, which checks them in tests/frameworks/test_accepted.py."""

import ast
import json
import tomllib

import pytest

import traincast as tc
from traincast.catalog.software_stacks import Stack
from traincast.launch.formats import FORMATS
from traincast.launch.settings.defaults import parser_defaults
from traincast.launch.write import launch
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
    "module and name differ": ("moonlight-16b-a3b", tc.Plan(dp=8, ep=8, zero=2)),
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


def test_the_loss_of_an_exported_configuration_is_the_one_that_is_predicted(tmp_path):
    """torchtitan 0.3.0, components/loss.py: eight chunks of the tokens, in every configuration of its
    registries. Logits of a chunk and their gradient have 4 bytes, of all 0.5; the gradient of the last hidden
    state in fp32 has 4 hidden / vocabulary = 0.13 of a logit. TOML files are of releases without it."""
    model = tc.load_model("llama-3-8b")
    path = tmp_path / "written.py"
    found = tc.search(model, "dgx-h100", gpus=8, framework="torchtitan", gbs=8, top=1)
    path.write_text(tc.export(found, "torchtitan").text, encoding="utf-8")
    read_back = tc.check(path, "dgx-h100", gpus=8).est
    assert read_back.assumptions.name == found.assumptions.name == "torchtitan-2025+loss=chunked"
    memory = found.assumptions.memory
    assert memory.logit_bytes == pytest.approx(4 / 8 + 4 * model.hidden / model.vocab, abs=0.03)
    whole = Stack("torchtitan-2025").assumptions.memory
    assert memory.logit_bytes < whole.logit_bytes == 4
    assert FORMATS["torchtitan-toml"].space.assumptions == "torchtitan-2025"
    eager = Stack("torchtitan-2025+compiled=false+loss=chunked").assumptions
    assert eager.memory.logit_bytes == pytest.approx(14 / 8 + 4 * model.hidden / model.vocab, abs=0.03)


@pytest.mark.parametrize(("debug", "said"), [("", True), ("[debug]\nmoe_force_load_balance = true\n", False)])
def test_a_balance_that_no_setting_forces_is_said(debug, said, tmp_path):
    """torchtitan 0.3.0, config/configs.py: debug.moe_force_load_balance is False by default."""
    path = tmp_path / "train.toml"
    path.write_text(
        '[model]\nname = "deepseek_v3"\nflavor = "16B"\n[training]\nlocal_batch_size = 4\nseq_len = 4096\n'
        f"[parallelism]\nexpert_parallel_degree = 8\n{debug}",
        encoding="utf-8",
    )
    checked = tc.check(path, "dgx-h100", gpus=8)
    model = tc.load_model("deepseek-v2-lite").with_load("natural")
    text = f"leaves the fullest about {model.experts.fullest(8):.2f} of the mean"
    assert any(text in line for line in checked.reading.assumed) == said


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


CONFIGURATION = """from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.models.{model} import model_registry
from torchtitan.trainer import Trainer


def run() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("{flavour}"),
        training=TrainingConfig({training}),
        parallelism=ParallelismConfig({parallelism}),
        compile=CompileConfig({compile}),
    )
"""
MODELS_OF_LAUNCHES = {"dense": ("llama3", "8B"), "experts": ("qwen3", "30B-A3B")}
STATED = {  # further settings of a launch
    "plain": {},
    "tensor parallel": {"parallelism": {"tensor_parallel_degree": 4}},
    "pipeline": {"parallelism": {"pipeline_parallel_degree": 2, "data_parallel_shard_degree": 8}},
    "expert parallel": {"parallelism": {"tensor_parallel_degree": 2, "expert_parallel_degree": 8}},
    "replicas": {"parallelism": {"data_parallel_replicate_degree": 2, "data_parallel_shard_degree": 8}},
}
DEFAULTS = {
    name: value
    for name, value in parser_defaults("torchtitan", "trainer").items()
    if name.partition(".")[0] in ("training", "parallelism", "compile")
}


def answered(kind, settings, tmp_path):
    """Model, plan, batch, time and memory of a Python configuration with these settings by section."""
    model, flavour = MODELS_OF_LAUNCHES[kind]
    arguments = {
        section: ", ".join(f"{name}={value!r}" for name, value in settings.get(section, {}).items())
        for section in ("training", "parallelism", "compile")
    }
    path = tmp_path / "config_registry.py"
    path.write_text(CONFIGURATION.format(model=model, flavour=flavour, **arguments), encoding="utf-8")
    checked = tc.check(path, "dgx-h100", gpus=16)
    est = checked.est
    return est.model, est.plan, est.gbs, est.step_seconds, est.memory_bytes, est.assumptions.name


def joined(*parts):
    """Settings by section, the later ones over the earlier ones."""
    sections = {section for part in parts for section in part}
    return {
        section: {name: value for part in parts for name, value in part.get(section, {}).items()}
        for section in sections
    }


@pytest.mark.parametrize("stated", STATED)
@pytest.mark.parametrize("kind", MODELS_OF_LAUNCHES)
def test_all_of_default_written_out_is_the_launch_without_it(kind, stated, tmp_path):
    """The defaults of torchtitan 0.3.0 (tables/defaults/torchtitan.toml) change nothing where written."""
    written_out: dict[str, dict[str, object]] = {}
    for name, value in DEFAULTS.items():
        section, _, key = name.partition(".")
        written_out.setdefault(section, {})[key] = value
    absent = answered(kind, STATED[stated], tmp_path)
    assert answered(kind, joined(written_out, STATED[stated]), tmp_path) == absent


@pytest.fixture(scope="module")
def without_defaults(tmp_path_factory):
    """The answer to a launch with tensor parallelism of each kind of model, which writes no default out."""
    folder = tmp_path_factory.mktemp("without_defaults")
    return {kind: answered(kind, STATED["tensor parallel"], folder) for kind in MODELS_OF_LAUNCHES}


@pytest.mark.parametrize("name", DEFAULTS)
@pytest.mark.parametrize("kind", MODELS_OF_LAUNCHES)
def test_each_default_written_out_is_the_launch_without_it(kind, name, tmp_path, without_defaults):
    """One setting at a time, in a launch with tensor parallelism."""
    section, _, key = name.partition(".")
    written_out = joined({section: {key: DEFAULTS[name]}}, STATED["tensor parallel"])
    assert answered(kind, written_out, tmp_path) == without_defaults[kind]


TOML = """[model]
name = "qwen3"
flavor = "30B-A3B"
[training]
local_batch_size = 4
seq_len = 4096
[parallelism]
data_parallel_shard_degree = 8
tensor_parallel_degree = 4
{experts}
"""


@pytest.mark.parametrize(
    ("experts", "ep", "etp"),
    [
        ({}, 1, 4),
        ({"expert_parallel_degree": 1}, 1, 4),
        ({"expert_parallel_degree": 8}, 8, 1),
        # of 2025 alone: pytorch/torchtitan f541d91, models/llama4/infra/parallelize.py, apply_moe_ep_tp
        ({"expert_parallel_degree": 1, "expert_tensor_parallel_degree": 1}, 1, 4),
        ({"expert_parallel_degree": 8, "expert_tensor_parallel_degree": 4}, 8, 4),
    ],
)
def test_tensor_parallel_experts_are_not_misread(experts, ep, etp, tmp_path):
    """Experts without expert parallelism lie on tensor ranks (0.3.0, models/common/moe_sharding.py)."""
    path = tmp_path / "run.toml"
    lines = "\n".join(f"{name} = {value}" for name, value in experts.items())
    path.write_text(TOML.format(experts=lines), encoding="utf-8")
    plan = tc.check(path, "dgx-h100").est.plan
    assert (plan.tp, plan.ep, plan.etp) == (4, ep, etp)
    if "expert_tensor_parallel_degree" not in experts:
        of_python = answered("experts", {"parallelism": {"tensor_parallel_degree": 4} | experts}, tmp_path)[1]
        assert (of_python.tp, of_python.ep, of_python.etp) == (4, ep, etp)


@pytest.mark.parametrize(
    ("to", "ep", "etp", "runs"),
    [
        ("torchtitan", 1, 4, True),
        ("torchtitan", 1, 1, False),
        ("torchtitan", 8, 1, True),
        ("torchtitan", 8, 4, False),
        ("torchtitan-toml", 1, 4, True),
        ("torchtitan-toml", 1, 1, False),
        ("torchtitan-toml", 8, 4, True),
    ],
)
def test_exports_have_the_experts_that_torchtitan_runs(to, ep, etp, runs):
    """What is written is read back in full; a plan that torchtitan does not run is refused by its rule."""
    model, plan = tc.load_model("qwen3-30b-a3b"), tc.Plan(tp=4, dp=16, ep=ep, etp=etp, zero=3)
    if runs:
        assert not launch(FORMATS[to], model, plan, 64, MACHINE).not_expressed
        return
    with pytest.raises(tc.InputError, match=f"torchtitan shards .* experts?.*etp = {etp}"):
        launch(FORMATS[to], model, plan, 64, MACHINE)


def test_a_search_for_torchtitan_ranks_experts_that_it_runs():
    """Of all plans, by tensor and expert parallelism: experts on tensor ranks, or on their own."""
    found = tc.search(
        "qwen3-30b-a3b", "dgx-h100", gpus=16, gbs=64, framework="torchtitan", locks={"tp": 4}, top=100_000
    )
    degrees = {(plan.ep, plan.etp) for plan, _ in found.plans}
    assert (1, 4) in degrees
    assert all(etp == (4 if ep == 1 else 1) for ep, etp in degrees)


@pytest.mark.parametrize(
    ("tokens", "mbs"), [("num_tokens_per_dp_rank", 2), ("num_tokens_per_microbatch_per_dp_rank", 2)]
)
def test_a_batch_in_tokens_is_not_misread(tokens, mbs, tmp_path):
    """A micro-batch of 16,384 and a step of 262,144 tokens are 2 and 32 sequences of 8,192."""
    path = tmp_path / "run.toml"
    text = TOML.format(experts="expert_parallel_degree = 8").replace("seq_len = 4096", "seq_len = 8192")
    counted = f"{tokens} = 16384\nnum_tokens_per_step = 262144"
    path.write_text(text.replace("local_batch_size = 4", counted), encoding="utf-8")
    checked = tc.check(path, "dgx-h100")
    assert (checked.est.plan.mbs, checked.est.gbs, checked.est.model.seq) == (mbs, 32, 8192)


def test_defaults_that_were_applied_stand_under_assumed(tmp_path):
    """Those of torchtitan 0.3.0, by setting."""
    path = tmp_path / "run.toml"
    path.write_text(TOML.format(experts="").replace("local_batch_size = 4\n", ""), encoding="utf-8")
    (note,) = (note for note in tc.check(path, "dgx-h100").reading.assumed if "torchtitan's default" in note)
    assert "training.local_batch_size = 8" in note
    assert "training.seq_len" not in note


@pytest.mark.parametrize(
    ("section", "said"),
    [  # f541d91, config/job_config.py: every second layer is recomputed
        ("", ("activation_checkpoint.mode = selective", "activation_checkpoint.selective_ac_option = 2")),
        ('[activation_checkpoint]\nmode = "selective"\n', ("activation_checkpoint.selective_ac_option = 2",)),
        ('[activation_checkpoint]\nmode = "full"\n', ()),
        ('[activation_checkpoint]\nmode = "selective"\nselective_ac_option = "op"\n', ()),
    ],
)
def test_default_written_out_of_recomputation_is_said(section, said, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(TOML.format(experts="") + section, encoding="utf-8")
    assumed = " ".join(tc.check(path, "dgx-h100").reading.assumed)
    assert all(each in assumed for each in said)
    assert assumed.count("activation_checkpoint") == len(said)


def test_sequence_parallelism_default_written_out_in_a_toml(tmp_path):
    """torchtitan 0.3.0, ParallelismConfig.enable_sequence_parallel is True; False is not read as True."""
    path = tmp_path / "run.toml"
    path.write_text(TOML.format(experts="enable_sequence_parallel = true"), encoding="utf-8")
    assert tc.check(path, "dgx-h100").est.plan.sp
    path.write_text(TOML.format(experts="enable_sequence_parallel = false"), encoding="utf-8")
    with pytest.raises(tc.InputError, match="without sequence parallelism"):
        tc.check(path, "dgx-h100")


def test_default_recomputation_of_a_program_is_said(tmp_path):
    """torchtitan 0.3.0, trainer.py: Trainer.Config has SelectiveAC, each second product (per op)."""
    path = tmp_path / "config_registry.py"
    path.write_text(
        CONFIGURATION.format(model="llama3", flavour="8B", training="", parallelism="", compile=""),
        encoding="utf-8",
    )
    checked = tc.check(path, "dgx-h100", gpus=16)
    assert checked.est.plan.recompute == "per-op"
    assert any("activation_checkpoint = SelectiveAC" in note for note in checked.reading.assumed)


def test_a_change_to_expert_parallelism_takes_experts_off_tensor_ranks(tmp_path):
    """Of a launch with experts on tensor ranks: the degree is one setting, and etp follows from it."""
    path = tmp_path / "config_registry.py"
    arguments = "tensor_parallel_degree=4"
    text = CONFIGURATION.format(
        model="qwen3", flavour="30B-A3B", training="", parallelism=arguments, compile=""
    )
    path.write_text(text, encoding="utf-8")
    tried = tc.check(path, "dgx-h100", gpus=16).tried
    degrees = {(each.est.plan.ep, each.est.plan.etp) for each in tried if each.est.plan.tp == 4}
    assert {(2, 1), (4, 1)} < degrees
    assert all(etp == (4 if ep == 1 else 1) for ep, etp in degrees)
