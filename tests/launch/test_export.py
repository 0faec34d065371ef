"""Exported launches express a plan completely, or name what they do not express."""

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import models, plans

import traincast as tc
from traincast.core.errors import ErrorCollector
from traincast.launch.formats import FORMATS
from traincast.launch.settings.canonical import GOVERNED, launch_facts
from traincast.launch.settings.format import launch_from_facts
from traincast.launch.write import launch

MACHINE = tc.load_system("dgx-h100")
HF = Path(__file__).parents[1] / "data" / "hf"


def read_back(form, text, model, gpus):
    """Facts of a text that was written; a launcher is told the accelerators where a file does not say."""
    mistakes = ErrorCollector("read back")
    facts = form.facts(form.read(text), mistakes)
    assert mistakes.errors == []
    if not facts.keys() & {"gpus", "dp"}:
        facts["gpus"] = gpus
    return launch_facts(*launch_from_facts(facts, "drawn", None if "layers" in facts else model))


@settings(max_examples=60)
@pytest.mark.parametrize("to", sorted(FORMATS))
@given(data=st.data())
def test_exported_plans_read_back_or_report_differences(to, data):
    """Of the text of any plan and model every fact comes back, or is among what is not expressed.

    A plan that breaks the framework's rules has no text.
    """
    model = data.draw(models())
    plan = data.draw(plans(model))
    gbs = plan.dp * plan.mbs * data.draw(st.sampled_from([1, 4, 6]))
    if broken := FORMATS[to].space.broken(model, plan, gbs):
        with pytest.raises(tc.InputError) as refusal:
            launch(FORMATS[to], model, plan, gbs, MACHINE)
        assert set(broken) <= set(refusal.value.problems)
        return
    if FORMATS[to].dense_only and (model.experts or model.latent):
        with pytest.raises(tc.InputError, match="cannot express drawn"):
            launch(FORMATS[to], model, plan, gbs, MACHINE)
        return
    written = launch(FORMATS[to], model, plan, gbs, MACHINE)
    facts, back = launch_facts(model, plan, gbs), read_back(FORMATS[to], written.text, model, plan.gpus)
    differ = {name for name in {*facts, *back} if facts.get(name) != back.get(name)}
    implied = {name for name, governor in GOVERNED.items() if governor in differ and name not in facts}
    assert differ - implied <= set(written.not_expressed)


@pytest.mark.parametrize(
    "name", ["llama-3-70b", "deepseek-v3", "mixtral-8x7b", "gpt-oss-120b", "qwen3-30b-a3b"]
)
def test_models_of_today_are_expressed_in_full_by_megatron(name):
    """Megatron-LM has flags for all of these, which recipes of Megatron-Bridge (2025) train."""
    model = tc.load_model(name)
    plan = tc.Plan(tp=2, pp=4, dp=8, ep=8 if model.experts else 1)
    written = launch(FORMATS["megatron"], model, plan, 64, MACHINE)
    assert written.not_expressed == {}
    # what trains another model if nobody sets it: flags of megatron/training/arguments.py, with its defaults
    left = {"rotary embedding", "norm epsilon"} | ({"router"} if model.experts else set())
    assert set(written.left_at_default) == left | ({"norms of latent attention"} if model.latent else set())
    assert "left at Megatron-LM's defaults" in written.text
    assert "--rotary-base 10000" in written.text


def test_overlapped_exchange_of_experts_gets_many_connections():
    """Of 1 connection Megatron-LM warns: it hides less of the exchange (megatron/training/arguments.py)."""
    model = tc.load_model("deepseek-v3")
    for overlap, connections in ((True, 32), (False, 1)):
        plan = tc.Plan(tp=2, pp=4, dp=8, ep=8, vp=4, ep_overlap=overlap)
        text = launch(FORMATS["megatron"], model, plan, 64, MACHINE).text
        assert f"export CUDA_DEVICE_MAX_CONNECTIONS={connections}\n" in text


@pytest.mark.parametrize(("gpus", "nodes"), [(1, 1), (4, 1), (8, 1), (12, 2), (16, 2)])
def test_a_job_has_the_nodes_that_its_accelerators_need(gpus, nodes):
    """A node of dgx-h100 has eight; twelve are six in each of two: torchrun starts as many in each."""
    written = tc.export(tc.estimate("llama-3-8b", MACHINE, tc.Plan(dp=gpus), gbs=gpus))
    assert f"NNODES=${{NNODES:-{nodes}}}" in written.text
    assert f"GPUS_PER_NODE=${{GPUS_PER_NODE:-{gpus // nodes}}}" in written.text
    assert "gpus" not in written.not_expressed


def test_a_script_is_one_that_bash_can_read(tmp_path):
    search = tc.search("deepseek-v3", "dgx-h100", gpus=256, gbs=256, top=1)
    path = tmp_path / "run.sh"
    path.write_text(tc.export(search).text, encoding="utf-8")
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0


@pytest.mark.parametrize("name", ["t5-small", "bart-large"])
@pytest.mark.parametrize("to", [name for name, form in FORMATS.items() if form.model])
def test_encoder_decoders_are_refused_by_name(to, name):
    """Formats that describe models have decoders; others are told the model, and write what they have."""
    model = tc.load_model(str(HF / f"{name}.json"))
    with pytest.raises(tc.InputError, match=f"cannot express the layers of {name}"):
        launch(FORMATS[to], model, tc.Plan(dp=8), 64, MACHINE)


def test_inexpressible_settings_are_noted_in_the_file():
    est = tc.estimate(
        "gpt3-1t", "h200-nvs8", tc.Plan(tp=4, tp2=2, tp_kind="summa", panels=8, dp=8, pp=16), gbs=64
    )
    written = tc.export(est)
    assert {"tp2", "tp_kind", "panels", "causal", "inner_dropout", "biases"} <= set(written.not_expressed)
    comments = " ".join(line.removeprefix("#").strip() for line in written.text.splitlines())
    assert all(line in comments for line in written.not_expressed.values())


def test_a_search_without_plans_and_an_unknown_format_are_refused():
    search = tc.search("llama-3.1-405b", "dgx-h100", gpus=8, gbs=8)
    with pytest.raises(tc.NothingFits):
        tc.export(search)
    est = tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(tp=8), gbs=8)
    with pytest.raises(tc.InputError, match="unknown format 'megatrom'"):
        tc.export(est, to="megatrom")
    with pytest.raises(tc.InputError, match="one plan"):
        tc.export(tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(tp=8).columns(), gbs=8))


@pytest.mark.parametrize("to", sorted(FORMATS))
def test_a_plan_of_tpus_is_not_written_for_gpus(to):
    est = tc.estimate("llama-3-8b", "tpu-v5p-pod", tc.Plan(dp=8, zero=3), gbs=8)
    with pytest.raises(tc.InputError, match=r"system = tpu-v5p-pod: .* is written for GPUs"):
        tc.export(est, to=to)


def test_faster_plans_are_named_only_where_the_recommended_one_is_not_written(capsys):
    """On standard error where the file has no comments."""
    from traincast.ui.cli.main import main

    found = tc.search("llama-3-70b", "dgx-h100", gpus=512, gbs=512)
    recommended, *others = (est for _, est in found.plans)
    assert any(est.step_seconds < recommended.step_seconds for est in others)
    assert "faster plans" not in tc.export(found, to="megatron").text
    locks = {"recompute": "none"}
    piped = tc.search("llama-3-8b", "dgx-h100", gpus=64, gbs=256, locks=locks, top=200)
    launch = tc.export(piped, to="nanotron")
    assert launch.est != piped.plans[0][1]
    assert "faster plans of the search" in launch.prediction[1]
    main(["export", "llama-3-8b", "--system", "dgx-h100", "--gpus", "64", "--to", "deepspeed"])
    assert "faster plans" not in capsys.readouterr().err


def test_the_command_writes_a_file_once(tmp_path, capsys):
    """A file is never written over, and what is not expressed goes to standard error."""
    from traincast.ui.cli.main import main

    path = tmp_path / "run.sh"
    command = f"export llama-3-8b --system dgx-a100 --tp 2 --dp 4 --gbs 8 --output {path}".split()
    main([*command, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["text"] == path.read_text(encoding="utf-8")
    assert answer["not_expressed"] == {}
    with pytest.raises(SystemExit) as stop:
        main(command)
    assert stop.value.code == 2
    assert "--force overwrites it" in capsys.readouterr().err
    main([*command, "--schedule", "1f1b", "--recompute", "per-op", "--force"])
    assert "not expressed: recompute = per-op" in capsys.readouterr().err
