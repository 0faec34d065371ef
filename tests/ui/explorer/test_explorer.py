"""The explorer's server: answers equal the library's, and invalid requests are refused clearly."""

import asyncio
import csv
import json
import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib.resources import files
from unittest.mock import Mock

import httpx
import jsonschema
import numpy as np
import pytest
import uvicorn
from starlette.testclient import TestClient
from uvicorn.server import ServerState

import traincast as tc
from bounded_memory import bounded_memory
from traincast.core.units import seconds
from traincast.planner.answers.differences import ratio
from traincast.planner.answers.lock_prices import lock_sentence
from traincast.planner.studies.sweep import vary_system
from traincast.ui.cli.main import main
from traincast.ui.explorer import worker
from traincast.ui.explorer.app import FIRST, STATIC, TimedRequests, application
from traincast.ui.explorer.question import State, normal_text, offer
from traincast.ui.explorer.worker_pool import Pool, PoolJob, Worker, worker_memory
from traincast.ui.outputs import schema

SMALL = {"model": "llama-3-8b", "gpus": 16, "global_batch": 32, "top": 3}
ASKED = {"gpus": 16, "gbs": 32, "top": 3}  # software is not stated, as on the page
LARGE = {
    "model": "deepseek-v3",
    "gpus": 8192,
    "framework": "any",
    "global_batch": 16384,
}  # 46 million candidates


@pytest.fixture(scope="module")
def static(tmp_path_factory):
    """A folder with a page and a file."""
    folder = tmp_path_factory.mktemp("static")
    (folder / "index.html").write_bytes(b"<!doctype html>" + FIRST % b"")
    (folder / "a").mkdir()
    (folder / "a" / "b.js").write_bytes(b"//" + b" " * 2000)
    return folder


@pytest.fixture(scope="module")
def client(static):
    app = application(lambda: Pool(workers=1), static=static)
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def asked(client, kind, **content):
    """The answer to a request that can be answered."""
    response = client.post(f"/api/{kind}", json=content)
    assert response.status_code == 200, response.text
    return response.json()


def refused(client, kind, status=422, **content):
    """The error object for a request that cannot be answered."""
    response = client.post(f"/api/{kind}", json=content)
    assert response.status_code == status, response.text
    return response.json()["error"]


def test_search_answers_as_the_library(client):
    answer = asked(client, "search", **SMALL)
    found = tc.search("llama-3-8b", "dgx-h100", **ASKED)
    assert (answer["candidates"], answer["feasible"], answer["rejected"]) == (
        found.candidates,
        found.feasible,
        found.rejected,
    )
    for row, family in zip(answer["plans"], found.families, strict=True):
        plan, est = found.answer(family.plan)
        assert (row["label"], row["step_seconds"], row["memory_bytes"]) == (
            str(plan),
            est.step_seconds,
            est.memory_bytes,
        )
        assert tc.Plan(**row["knobs"]) == plan
        cells = dict(zip(answer["columns"], row["cells"], strict=True))
        assert (cells["strategy"], cells["tp"]) == (plan.strategy, str(plan.tp))
        assert all(("(" in cell) == (name in family.varied_knobs()) for name, cell in cells.items())
    assert answer["recommendation"][1] == found.recommendation.reason
    assert answer["devices"] == found.best[1].devices()
    assert answer["phases"] == [row.to_dict() for row in found.best[1].memory_timeline()]
    assert max(row["memory_bytes"] for row in answer["phases"]) == found.best[1].memory_bytes
    assert answer["state"]["framework"] == "megatron"
    assert answer["state"]["seq"] == 8192


def test_points_are_plans_of_their_time_and_memory(client):
    answer = asked(client, "space", **SMALL)
    front = tc.search("llama-3-8b", "dgx-h100", **ASKED).pareto()
    assert answer["pareto"]["step_seconds"] == pytest.approx(
        [est.step_seconds for _, est in front], rel=1e-4
    )  # five digits
    assert answer["pareto"]["memory_bytes"] == pytest.approx([est.memory_bytes for _, est in front], rel=1e-4)
    space = answer["space"]
    assert space["step_seconds"] == sorted(space["step_seconds"])
    assert space["step_seconds"][0] == answer["pareto"]["step_seconds"][0]
    last = asked(client, "plan", **SMALL, plan=space["plan"][-1])
    assert last["step_seconds"] == pytest.approx(space["step_seconds"][-1], rel=1e-4)
    assert last["memory_bytes"] == pytest.approx(space["memory_bytes"][-1], rel=1e-4)


def test_a_measured_step_is_answered_as_advise_does(client):
    best = asked(client, "search", **SMALL)["plans"][0]
    knobs = {"plan": best["knobs"]}
    measured = asked(client, "measured", **SMALL, **knobs, step_seconds=2 * best["step_seconds"])
    assert measured["sentences"][0].startswith("100.0% slower than the ")
    assert [row[0] for row in measured["causes"]["rows"]][:1] == ["slow GPU"]
    assert measured["changes"]["columns"][0] == "gain"
    est = tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(**best["knobs"]), gbs=32)
    share = float(tc.metrics(est).mfu["megatron"]) / 2
    of_share = asked(client, "measured", **SMALL, **knobs, mfu=share)
    assert of_share["step_seconds"] == pytest.approx(2 * best["step_seconds"])
    assert of_share["causes"] == measured["causes"]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({}, "step_seconds or mfu: give one of them"),
        ({"step_seconds": 1.0, "mfu": 0.3}, "step_seconds or mfu: give one of them"),
        ({"step_seconds": "1 s"}, "step_seconds = '1 s': must be a number"),
        ({"mfu": 28}, "was 28% meant?"),
        ({"step_seconds": -1.0}, "step_seconds"),
    ],
)
def test_what_was_not_measured_is_refused(client, seen, said):
    knobs = {"tp": 1, "dp": 16}
    assert said in refused(client, "measured", **SMALL, plan=knobs, **seen)["message"]


@pytest.fixture
def own_machine(tmp_path):
    """The path of a calibrated machine that is offered beside the catalogue's."""
    known = files("traincast") / "catalog" / "systems" / "dgx-h100.yaml"
    lines = known.read_text(encoding="utf-8").replace("name: dgx-h100", "name: ours")
    file = tmp_path / "ours.yaml"
    file.write_text(f"{lines}calibrated_to: 3 runs\n", encoding="utf-8")
    yield str(file)
    offer([])


def test_a_calibrated_machine_is_in_the_list_and_said(static, own_machine):
    offer([own_machine])
    app = application(lambda: Pool(workers=1, systems=[own_machine]), static=static)
    with TestClient(app, base_url="http://localhost") as client:
        choices = client.get("/api/catalog").json()
        group, *_ = choices["groups"]["system"]
        assert group["label"] == "Your machines"
        assert [(row["name"], row["title"]) for row in group["options"]] == [
            (own_machine, "ours, calibrated to your 3 runs")
        ]
        answer = asked(client, "search", **SMALL, system=own_machine)
        assert answer["system"]["calibrated"] == "calibrated to your 3 runs"
        assert answer["plans"]
        cli = asked(client, "copy", **SMALL, system=own_machine)["cli"]
        assert f"--system {own_machine}" in cli
        other = refused(client, "search", **SMALL, system=f"{own_machine}.other")
        assert "unknown system" in other["message"]


def test_only_systems_can_be_offered(own_machine, tmp_path):
    (tmp_path / "no.yaml").write_text("models: [gpt3-1t]\n", encoding="utf-8")
    with pytest.raises(tc.InputError, match=r"no\.yaml"):
        offer([own_machine, str(tmp_path / "no.yaml")])
    with pytest.raises(tc.InputError, match="no such file"):
        offer([str(tmp_path / "nowhere.yaml")])


def test_summa_points_hold_their_panels(client):
    answer = asked(
        client,
        "space",
        model="gpt3-1t",
        system="h200-nvs8",
        gpus=256,
        global_batch=4096,
        strategy=["summa"],
        top=1,
    )
    space = answer["space"]
    row = asked(
        client,
        "plan",
        model="gpt3-1t",
        system="h200-nvs8",
        global_batch=4096,
        assumptions="paper",
        plan=space["plan"][0],
    )
    assert row["step_seconds"] == pytest.approx(space["step_seconds"][0], rel=1e-4)


def test_figures_change_the_machine(client):
    answer = asked(
        client,
        "search",
        **SMALL,
        figures={"network.1.bandwidth": "800 Gb/s", "accelerator.hbm_bytes": 2**36, "network.0.size": 16},
    )
    system = vary_system(
        tc.load_system("dgx-h100"),
        {"network.1.bandwidth": 1e11, "accelerator.hbm_bytes": 2**36, "network.0.size": 16},
    )
    found = tc.search("llama-3-8b", system, **ASKED)
    assert answer["plans"][0]["step_seconds"] == found.best[1].step_seconds
    assert answer["system"]["capacity_bytes"] == 2**36 - system.accelerator.driver_bytes
    assert answer["system"]["fast_domain"] == 16
    assert answer["state"]["figures"]["network.1.bandwidth"] == 1e11


def test_a_changed_accelerator_counts_as_unmeasured(client):
    measured = asked(client, "search", **SMALL)["plans"][0]
    changed = asked(client, "search", **SMALL, figures={"accelerator.vector_flops": 1.338e14 * (1 + 1e-9)})[
        "plans"
    ][0]
    width = [row["step_seconds_high"] / row["step_seconds"] for row in (measured, changed)]
    assert width[1] > width[0]
    assert "accelerator" in " ".join(changed["outside_measured"])


def test_explanation_follows(client):
    answer = asked(client, "explain", **SMALL)
    found = tc.search("llama-3-8b", "dgx-h100", **ASKED)
    assert answer["text"] == found.explain().lines()
    assert answer["confidence"] == found.confidence


def test_nothing_fits_is_an_answer(client):
    state = {"model": "llama-3-405b", "gpus": 8, "global_batch": 32}
    answer = asked(client, "search", **state)
    assert (answer["plans"], answer["devices"], answer["feasible"]) == ([], [], 0)
    assert asked(client, "space", **state)["pareto"]["plan"] == []
    why = asked(client, "explain", **state)
    assert why["nearest_miss"]["fits"] is False
    assert why["fits_from"]["gpus"] > 8
    assert "needs" in why["nearest_miss"]["short_of"]


def test_a_lock_that_leaves_no_plan_has_the_reason_of_the_command_line(client):
    state = {"model": "llama-3-8b", "gpus": 32, "locks": {"tp": 7}}
    answer = asked(client, "search", **state)
    assert (answer["candidates"], answer["reasons"]) == (0, ["tp = 7 does not divide 32 GPUs"])
    found = tc.search("llama-3-8b", "dgx-h100", gpus=32, locks={"tp": 7})
    assert answer["reasons"] == [found.explain().lines()[1].strip()]
    assert asked(client, "search", **SMALL)["reasons"] == []


@pytest.mark.parametrize(
    ("locks", "begins"),
    [({"tp": 8}, "tp=8 costs "), ({"tp": 7}, "Nothing fits with tp=7; without it: "), ({}, "")],
)
def test_what_locks_cost_is_said_as_on_the_command_line(client, locks, begins):
    state = {"model": "llama-3-8b", "gpus": 32, "global_batch": 64, "locks": locks}
    said = asked(client, "explain", **state)["lock_price"]
    assert said.startswith(begins)
    assert bool(said) == bool(begins)
    found = tc.search("llama-3-8b", "dgx-h100", gpus=32, gbs=64, locks=locks)
    assert said == lock_sentence(found)


def test_a_design_is_of_machines_around_that_of_the_page(client):
    answer = asked(client, "design", **SMALL, tokens="1T")
    kinds = [row["kind"] for row in answer["machines"]]
    assert (kinds.count("page"), kinds.count("cheapest")) == (1, 1)
    step = tc.search("llama-3-8b", "dgx-h100", **ASKED).least_seconds
    page = answer["machines"][kinds.index("page")]
    # its plans are those that the page searches: steps of 8,192 tokens a sequence until 1T are trained
    assert page["days"] * 86400 == pytest.approx(1e12 / (ASKED["gbs"] * 8192) * step)
    assert answer["sentences"][0].startswith("Cheapest machine to build: machine (")
    assert answer["front"][0]["cost"] == min(row["cost"] for row in answer["machines"])
    refused = client.post("/api/design", json=SMALL | {"system": "tpu-v4-pod"})
    assert (refused.status_code, "is a torus" in refused.text) == (422, True)


def test_scaling_is_a_search_on_each_size(client):
    answer = asked(client, "scaling", **SMALL, sizes=[32, 8, 16])
    assert [row["gpus"] for row in answer["rows"]] == [8, 16, 32]
    for row in answer["rows"]:
        est = tc.search("llama-3-8b", "dgx-h100", **(ASKED | {"gpus": row["gpus"]})).best[1]
        assert (row["step_seconds"], row["tokens_per_second_per_gpu"]) == (
            est.step_seconds,
            est.tokens_per_second_per_gpu,
        )
    assert answer["rows"][0]["efficiency"] == 1
    assert [row["gpus"] for row in asked(client, "scaling", **SMALL)["rows"]] == [
        1,
        2,
        4,
        8,
        16,
        32,
        64,
        128,
        256,
    ]


def test_copied_python_says_the_same(client, capsys):
    state = SMALL | {
        "figures": {"accelerator.hbm_bandwidth": 3e12},
        "locks": {"recompute": "full"},
        "framework": "megatron",
    }
    best = asked(client, "search", **state)["plans"][0]
    scope = {}
    exec(asked(client, "copy", **state)["python"], scope)
    assert scope["found"].best[1].step_seconds == best["step_seconds"]
    output = capsys.readouterr().out
    assert output.index(best["label"]) < output.index("Spends its step on")  # the plans, then why
    exec(asked(client, "copy", **state, plan=best["knobs"])["python"].replace("print(est)", ""), scope)
    assert scope["est"].step_seconds == best["step_seconds"]


def test_what_narrows_an_interval_is_said_of_the_recommended_plan_and_of_one_that_is_looked_at(client):
    state = SMALL | {"model": "qwen3-30b-a3b", "top": 3}
    recommended, *others = asked(client, "search", **state)["plans"]
    assert recommended["narrowed_by"]
    assert others
    for row in others:
        assert "narrowed_by" not in row
        looked_at = asked(client, "plan", **state, plan=row["knobs"])
        assert looked_at["narrowed_by"]
        assert looked_at["step_seconds_high"] == row["step_seconds_high"]


def test_facts_of_the_software_are_those_of_the_command_line(client, capsys):
    """The page's field has the values of --given, and so have the texts to copy."""
    state = SMALL | {"model": "qwen3-30b-a3b", "locks": {"tp": 1}, "top": 1}
    given = {"given": "dispatcher = AllToAll"}
    usual, stated = (asked(client, "search", **state, **more) for more in ({}, given))
    assert usual["state"]["given"] is None
    assert stated["state"]["given"] == "dispatcher=alltoall"
    assert stated["state"]["assumptions"] == "megatron-core-2025"
    main([*shlex.split(asked(client, "copy", **state)["cli"])[1:], "--json"])
    assert usual["plans"][0]["narrowed_by"] == json.loads(capsys.readouterr().out)["plans"][0]["narrowed_by"]
    best = stated["plans"][0]
    words = asked(client, "copy", **state, **given)["cli"]
    main([*shlex.split(words)[1:], "--json"])
    assert json.loads(capsys.readouterr().out)["plans"][0]["step_seconds_high"] == best["step_seconds_high"]
    scope = {}
    exec(asked(client, "copy", **state, **given)["python"], scope)
    assert scope["found"].best[1].interval == (best["step_seconds_low"], best["step_seconds_high"])
    problem = refused(client, "search", **state, given="dispatcher=x")["message"]
    assert "dispatcher = 'x': must be one of alltoall" in problem
    assert "given = 7: must be a text" in refused(client, "search", **state, given=7)["message"]


def test_copied_command_says_the_same(client, capsys):
    state = SMALL | {"locks": {"tp": 2, "sp": False}, "objective": "memory"}
    best = asked(client, "search", **state)["plans"][0]
    words = asked(client, "copy", **state)["cli"].split()
    main([*words[1:], "--json"])
    assert json.loads(capsys.readouterr().out)["plans"][0]["step_seconds"] == best["step_seconds"]
    words = asked(client, "copy", **state, plan=best["knobs"])["cli"].split()
    main([*words[1:], "--json"])
    assert json.loads(capsys.readouterr().out)["estimate"]["step_seconds"] == best["step_seconds"]


def test_pasted_model_is_that_of_its_file(client, tmp_path):
    config = {
        "model_type": "llama",
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "intermediate_size": 8192,
    }
    config |= {
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    answer = asked(client, "model", model=config)
    assert answer["parameters"] == tc.load_model(tmp_path / "config.json").parameters
    assert answer["pasted"]
    wrong = refused(client, "search", model=config | {"num_attention_heads": 31, "model_type": "nothing"})
    assert "model_type" in wrong["message"]


def test_pins_are_the_table_of_compare(client):
    plans = [tc.Plan(dp=4, tp=2, pp=2), tc.Plan(dp=4, tp=4)]
    answer = asked(client, "compare", **SMALL, plans=[plan.knobs(placement=True) for plan in plans])
    assumed = tc.search("llama-3-8b", "dgx-h100", gpus=16, gbs=32).assumptions
    case = {"gbs": 32, "assumptions": assumed}
    first, second = (tc.estimate("llama-3-8b", "dgx-h100", plan, **case) for plan in plans)
    assert answer["columns"][:4] == ["step", "90%", "GiB", "fits"]
    assert [row[0] for row in answer["rows"]] == [seconds(est.step_seconds) for est in (first, second)]
    slower = max(first, second, key=lambda est: est.step_seconds)
    faster = min(first, second, key=lambda est: est.step_seconds)
    (sentence,) = answer["sentences"]
    letters = "BA" if slower is second else "AB"
    error = ratio(slower, faster)
    assert sentence.startswith(
        f"{letters[0]} takes {100 * (error.value - 1):.1f}% longer than {letters[1]}, "
    )
    assert f"its error of {100 * error.error:.1f}%" in sentence
    error = refused(client, "compare", **SMALL, plans=[{}])
    assert error["message"] == "plans: [{}]: must be a list of 2 to 26 plans"


def test_timeline_is_the_trace(client):
    answer = asked(client, "timeline", **SMALL, plan={"tp": 2, "pp": 2, "dp": 4})
    est = tc.estimate(
        "llama-3-8b", "dgx-h100", tc.Plan(tp=2, pp=2, dp=4), gbs=32, assumptions="megatron-core-2025"
    )
    assert answer == json.loads(json.dumps(tc.trace(est).to_dict()))
    wrong = refused(client, "timeline", **SMALL | {"global_batch": 1 << 20}, plan={"tp": 2, "pp": 2, "dp": 4})
    assert "1,048,576 passes" in wrong["message"]


def test_launch_is_the_export(client):
    plan = {"tp": 2, "pp": 2, "dp": 4}
    forms = asked(client, "copy", **SMALL, plan=plan)["launch"]
    (form,) = (form for form in forms if form["name"] == "megatron")
    est = tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(tp=2, pp=2, dp=4), gbs=32)
    launch = tc.export(est)
    assert form["text"] == launch.text
    assert form["unsaid"] == list(launch.not_expressed.values())


def first(client, address):
    """What the page holds for an address."""
    response = client.get(address)
    assert response.status_code == 200
    return json.loads(re.search(r'id="first">(.*?)</script>', response.text)[1])


def test_page_holds_its_first_answer(client, monkeypatch):
    monkeypatch.setattr("traincast.ui.explorer.app.FIRST_ANSWER_SECONDS", 60)  # a busy machine is late
    answer = first(client, "/")
    assert answer["refusal"] is None
    assert answer["answer"]["plans"]
    assert answer["system"]["figures"]
    assert answer["model"]["layers"] == 80
    assert answer["catalog"]["default"] == answer["state"]


def test_modules_of_the_first_drawing_are_preloaded(client):
    def imported(name):
        text = (STATIC / f"{name}.js").read_text()
        paths = re.findall(r'^import .* from "(.+)\.js";$', text, re.MULTILINE)
        names = [(STATIC / name).parent.joinpath(path).resolve().relative_to(STATIC) for path in paths]
        return {name}.union(*(imported(path.as_posix()) for path in names))

    linked = re.findall(r"</static/(.+?)\.js>; rel=modulepreload", client.get("/").headers["link"])
    assert set(linked) == imported("main")


def test_address_is_a_state(client):
    text = "/?model=llama-3-8b&gpus=16&tp=2&sp=false&recompute=full&network.1.bandwidth=800+Gb%2Fs"
    text += "&strategy=1d,ring&pin=x&pin=y&view=z"
    state = first(client, text)["state"]
    assert state["locks"] == {"tp": 2, "sp": False, "recompute": "full"}
    assert state["figures"] == {"network.1.bandwidth": "800 Gb/s"}
    assert (state["model"], state["gpus"], state["strategy"]) == ("llama-3-8b", 16, "1d,ring")


def test_wrong_address_is_said_in_the_page(client):
    answer = first(client, "/?colour=red&gpus=8&gpus=9")
    assert answer["answer"] is None
    assert answer["refusal"]["error"]["problems"][0].startswith("colour: no key of an address")
    assert "gpus: stands twice in the address" in answer["refusal"]["error"]["problems"]


def test_page_cannot_be_broken_out_of(client):
    page = client.get("/", params={"model": "</script><script>alert(1)</script>"}).text
    assert "<script>alert" not in page


def test_table_as_csv(client):
    response = client.get(
        "/api/plans.csv", params={"model": "llama-3-8b", "gpus": 16, "global_batch": 32, "top": 3}
    )
    rows = list(csv.DictReader(response.text.splitlines()))
    assert [row["rank"] for row in rows] == ["1", "2", "3"]
    assert "attachment" in response.headers["content-disposition"]
    found = tc.search("llama-3-8b", "dgx-h100", **ASKED)
    assert float(rows[0]["step_seconds"]) == found.best[1].step_seconds
    assert client.get("/api/plans.csv?gpus=0").status_code == 422


def test_what_is_searched_for_is_grouped_and_found_by_its_other_names(client):
    groups = client.get("/api/catalog").json()["groups"]
    options = {
        field: {option["name"]: option for group in listed for option in group["options"]}
        for field, listed in groups.items()
    }
    names = {field: sum((len(group["options"]) for group in listed), 0) for field, listed in groups.items()}
    assert set(options["model"]) == set(tc.model_names(aliases=False))
    assert set(options["system"]) == set(tc.system_names())
    assert names == {field: len(listed) for field, listed in options.items()}  # each stands in one group
    assert "llama-3.1-70b" in options["model"]["llama-3-70b"]["also"]
    assert "H100" in options["system"]["dgx-h100"]["also"]
    assert {"trl", "axolotl"} <= set(options["framework"]["huggingface"]["also"])
    qwen = next(group for group in groups["model"] if group["label"] == "Qwen")
    assert all(option["name"].startswith("qwen") for option in qwen["options"])
    assert groups["system"][-1]["label"] == "Machines of arXiv 2410.00273"
    assert len({group["label"] for group in groups["system"]}) == len(groups["system"])


def test_all_choices_are_listed(client):
    answer = client.get("/api/catalog").json()
    assert set(answer["models"]) == set(tc.model_names(aliases=False))
    assert set(answer["systems"]) == set(tc.system_names())
    for name in ("gb200-nvl72", "h200-nvs8", "tpu-v4-pod"):
        system = client.get("/api/system", params={"name": name}).json()
        for figure in system["figures"]:
            assert figure["low"] <= figure["value"] <= figure["high"]
            assert figure["meaning"]
        figures = {figure["path"]: figure["value"] for figure in system["figures"]}
        same = {"model": "gpt-125m", "gpus": 8, "global_batch": 8, "top": 1, "system": name}
        plain = {path: value for path, value in figures.items() if path.startswith("network.")}
        assert (
            asked(client, "search", **same, figures=plain)["plans"]
            == asked(client, "search", **same)["plans"]
        )


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../llama.yaml", "C:\\x.json", "pyproject.toml", "README", ""]
)
def test_no_file_is_opened(client, name):
    for wrong in (refused(client, "search", model=name), refused(client, "search", system=name)):
        assert wrong["message"].startswith("unknown")


def test_all_mistakes_are_reported_as_on_the_command_line(client):
    wrong = refused(
        client,
        "search",
        model="llama",
        gpus=0,
        locks={"tp": "x", "zero": 9},
        figures={"network.1.efficiency": 2},
        top=51,
    )
    text = "\n".join(wrong["problems"])
    for part in (
        "unknown model 'llama'",
        "gpus = 0",
        "tp = 'x'",
        "zero = 9",
        "network.1.efficiency = '2': above 1",
        "top = 51",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"", "application/json", 400),
        (b"[]", "application/json", 400),
        (b'{"gpus": NaN}', "application/json", 422),
        (b'{"gpus": 8, "gpus": 9}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"gpus": ' + b"9" * 5000 + b"}", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"{}", "text/plain", 415),
        (b" " * (256 * 1024 + 1), "application/json", 413),
    ],
)
def test_malformed_requests_are_refused(client, body, kind, status):
    response = client.post("/api/search", content=body, headers={"content-type": kind})
    assert response.status_code == status
    assert response.json()["error"]["problems"]


def test_body_in_pieces_is_bounded_as_well(client):
    response = client.post(
        "/api/search", content=(b" " * 65536 for _ in range(5)), headers={"content-type": "application/json"}
    )
    assert response.status_code == 413


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example", 403), ("localhost:80", 200), ("127.0.0.1", 200), ("[::1]:9", 200), ("", 403)],
)
def test_only_names_of_this_machine_are_answered(client, host, status):
    assert client.get("/api/catalog", headers={"host": host}).status_code == status


def test_every_answer_has_a_strict_policy(client):
    for path in ("/", "/static/a/b.js", "/static/none", "/nothing", "/api/search", "/api/catalog"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
        assert "camera=()" in headers["permissions-policy"]


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"", b""),
        (b"GET / HTTP/1.1\r\nHost: lo", b""),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf", b""),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nwhole", b"HTTP/1.1 200 OK"),
    ],
)
def test_a_request_that_does_not_arrive_is_hung_up_on(monkeypatch, sent, answered):
    """What the client reads before the end of its connection; a whole request may take its time."""
    monkeypatch.setattr("traincast.ui.explorer.app.REQUEST_SECONDS", 0.1)

    async def reply(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await asyncio.sleep(0.3)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async def read():  # what is sent is there before the server reads: no machine is too slow for it
        config = uvicorn.Config(reply, log_level="critical", timeout_keep_alive=1)
        loop, state = asyncio.get_running_loop(), ServerState()
        server = await loop.create_server(lambda: TimedRequests(config, state, {}), "127.0.0.1", 0)
        client = socket.create_connection(server.sockets[0].getsockname())
        client.sendall(sent)
        reader, writer = await asyncio.open_connection(sock=client)
        content = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        server.close()
        return content

    assert asyncio.run(read()).partition(b"\r\n")[0] == answered


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/static/../app.py", 404),
        ("GET", "/static/..%2fapp.py", 404),
        ("GET", "/api/search", 405),
        ("POST", "/", 405),
    ],
)
def test_unknown_addresses_are_not_found(client, method, path, status):
    response = client.request(method, path)
    assert response.status_code == status
    assert response.json()["error"]["message"]


def test_files_are_compressed_and_revalidated(client):
    response = client.get("/static/a/b.js")
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["content-encoding"] == "gzip"
    assert response.headers["content-type"].startswith("text/javascript")
    assert (
        client.get("/static/a/b.js", headers={"if-none-match": response.headers["etag"]}).status_code == 304
    )


def test_this_machine_gets_no_compressed_files(static):
    app = application(lambda: Pool(workers=1), static=static)
    with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 50000)) as client:
        assert "content-encoding" not in client.get("/static/a/b.js").headers


def test_a_mistake_of_the_server_is_said_to_be_one(static, monkeypatch, capsys):
    def broken(text):
        raise RuntimeError("broken")

    monkeypatch.setattr("traincast.ui.explorer.app.normal_text", broken)
    app = application(lambda: Pool(workers=0), static=static)
    app.state.pool = Pool(workers=0)
    client = TestClient(app, base_url="http://localhost", raise_server_exceptions=False)
    said = refused(client, "search", 500)["message"]
    assert said == "a mistake in traincast itself, please report it: RuntimeError: broken"
    assert "Traceback" in capsys.readouterr().err


def test_long_questions_time_out(static):
    app = application(lambda: Pool(workers=1, seconds=0.5), static=static)
    with TestClient(app, base_url="http://localhost") as client:
        wrong = refused(client, "search", **LARGE)
        assert "longer than 0.5 s" in wrong["message"]
        app.state.pool.seconds = 600.0  # however slow the machine is
        assert asked(client, "model", model="gpt-125m")["layers"] == 12


@pytest.mark.parametrize(("grace", "same"), [(60.0, True), (0.0, False)])
def test_a_search_over_its_time_limit_ends_itself_or_is_killed(grace, same, monkeypatch):
    monkeypatch.setattr("traincast.ui.explorer.worker_pool.GRACE_SECONDS", grace)
    worker = Worker()
    try:
        assert worker.ask("model", "{}", 60.0)[0] == 200
        process = worker._process
        assert b"longer than 0.2 s" in worker.ask("search", json.dumps(asdict(State(**LARGE))), 0.2)[1]
        assert (worker._process is process) == same
        worker.prepare()
        assert worker.ask("model", "{}", 60.0)[0] == 200
    finally:
        worker.close()


def test_a_full_server_says_so(static):
    async def ask_four():
        app = application(lambda: Pool(workers=1, waiting=1, seconds=1.0), static=static)
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            app.state.pool._seconds_each.clear()  # how long the first answer took is the machine's matter
            large = [LARGE | {"top": top} for top in (1, 2, 3)]
            return await asyncio.gather(
                *(client.post("/api/search", json=state) for state in [*large, large[0]])
            )

    responses = asyncio.run(ask_four())
    *distinct, joins = responses  # the last asks what the first does; in which order they arrive is open
    assert joins.status_code == distinct[0].status_code
    assert sorted(response.status_code for response in distinct) == [422, 422, 503]
    (refused,) = (response for response in distinct if response.status_code == 503)
    assert refused.headers["retry-after"] == "1"
    assert "busy" in refused.json()["error"]["message"]


def test_who_would_wait_longer_than_a_minute_is_told_when_to_come_again(static, monkeypatch):
    """No request is begun. Searches took 24 s each of late, explanations 10 s.

    Two searches wait 48 s, so that a third may join them, which makes 72 s; a sixth of that is 12 s. An
    explanation waits for all of them, a search for no explanation.
    """

    monkeypatch.setattr(Pool, "_begin", lambda pool: None)

    async def statuses():
        app = application(lambda: Pool(workers=0), static=static)
        pool = app.state.pool = Pool(workers=0)
        pool._seconds_each = {"search": 24.0, "explain": 10.0}
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            waiting = [asyncio.ensure_future(pool.answer("explain", f"explain {i}")) for i in range(5)]
            waiting += [asyncio.ensure_future(pool.answer("search", f"search {i}")) for i in range(3)]
            await asyncio.sleep(0)
            assert len(pool._queue) == 8, "explanations before them keep no search from waiting"
            refused = [
                await asyncio.wait_for(client.post(f"/api/{kind}", json=SMALL), 20)  # else they wait for ever
                for kind in ("search", "explain")
            ]
            for one in waiting:
                one.cancel()
        return [(one.status_code, one.headers["retry-after"], one.json()) for one in refused]

    (status, after, said), (_, after_all, _) = asyncio.run(statuses())
    assert (status, after) == (503, "12")
    assert said["error"]["message"] == "the server is busy: too many searches wait; try again in 12 seconds"
    assert after_all == "21"  # of 3 * 24 + 5 * 10 s


def test_the_time_of_a_kind_is_a_mean_of_its_last_requests(monkeypatch):
    """The first counts whole, each later one an eighth: 8 s, and 16 s after it, are 9 s in the mean."""
    monkeypatch.setattr(Pool, "_begin", lambda pool: None)
    clock = Mock(monotonic=Mock(side_effect=[0.0, 8.0, 100.0, 116.0]))
    monkeypatch.setattr("traincast.ui.explorer.worker_pool.time", clock)

    async def answer_two():
        pool = Pool(workers=0)
        for text in "ab":
            job = PoolJob("search", text, asyncio.get_running_loop().create_future())
            await pool._work(Mock(ask=lambda *_: (422, b"{}")), job)
        return pool._seconds_each

    assert asyncio.run(answer_two()) == {"search": 9.0}


def test_a_question_whose_worker_is_killed_is_asked_once_more():
    """What the client sent is not wrong: the second time is answered; then the server is unavailable."""
    worker = Worker()
    try:
        assert worker.ask("model", "{}", 60.0)[0] == 200
        asked_again = worker._ask_once
        kills = []

        def kill_first(*question):
            if len(kills) < expected:
                kills.append(worker._process.pid)
                worker._process.kill()
                worker._process.join()
            return asked_again(*question)

        worker._ask_once = kill_first
        expected = 1
        assert worker.ask("model", "{}", 60.0)[0] == 200
        expected = 3
        status, body = worker.ask("model", "{}", 60.0)
        assert (status, b"too much memory" in body) == (503, True)
        assert len(set(kills)) == 3
    finally:
        worker.close()


def test_memory_of_the_workers_is_bounded_together():
    gibibyte = 1 << 30
    assert worker_memory(4, 16 * gibibyte) == 4 * gibibyte
    assert worker_memory(4, 64 * gibibyte) == 6 * gibibyte, "what one search may need"
    assert worker_memory(4, gibibyte) == 2 * gibibyte, "what a worker needs to start"
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert worker_memory(2) == max(2 * gibibyte, min(6 * gibibyte, pages // 8))


def test_ctrl_c_tells_waiting_clients_to_come_again(tmp_path):
    """503 with Retry-After, as when the server is busy, and the headers of every response."""
    command = [sys.executable, "-m", "traincast", "serve", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            url = json.loads("".join(iter(server.stdout.readline, "}\n")) + "}")["url"]
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(httpx.post, f"{url}api/explain", json=LARGE, timeout=60)
                time.sleep(0.5)
                assert not waiting.done(), "else there is nobody to tell"
                server.send_signal(signal.SIGINT)
                response = waiting.result()
        finally:
            server.kill()
    assert (response.status_code, response.headers.get("retry-after")) == (503, "1")
    assert "ended" in response.json()["error"]["message"]
    assert response.headers["x-content-type-options"] == "nosniff"


def test_a_question_that_takes_long_to_check_keeps_no_file_waiting(static, monkeypatch):
    """Files are answered by the event loop, questions are checked in threads."""

    def slow(text):
        time.sleep(1)
        return text

    monkeypatch.setattr("traincast.ui.explorer.app.normal_text", slow)

    async def times():
        app = application(lambda: Pool(workers=0), static=static)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            app.state.files = {"main.js": (b"", '"1"')}
            asked = asyncio.create_task(client.post("/api/progress", json={}))
            await asyncio.sleep(0.1)
            begin = time.perf_counter()
            assert (await client.get("/static/main.js")).status_code == 200
            waited = time.perf_counter() - begin
            asked.cancel()
            return waited

    assert asyncio.run(times()) < 0.5


def test_a_slider_does_not_wait_behind_explanations():
    async def order():
        pool, done = Pool(workers=2), []

        async def ask(name, kind, content):
            assert (await pool.answer(kind, json.dumps(content)))[0] == 200
            done.append(name)

        try:
            await pool.warm_up("model", "{}")
            slow = [ask(f"scaling {top}", "scaling", SMALL | {"top": top}) for top in (1, 2, 3, 4)]
            await asyncio.gather(*slow, ask("search", "search", SMALL))
        finally:
            pool.close()
        return done

    assert "search" in asyncio.run(order())[:2]


def test_answers_are_cached():
    async def twice():
        pool = Pool(workers=1)
        first = await pool.answer("model", "{}")
        pool.close()
        return first, await pool.answer("model", "{}")  # there is no worker any more

    first, second = asyncio.run(twice())
    assert first == second


def test_the_cache_is_bounded_including_its_questions(monkeypatch):
    """Short answers to long questions: of four with 1 KB each only the last has room."""
    monkeypatch.setattr("traincast.ui.explorer.worker_pool.CACHE_BYTES", 1500)

    async def sizes():
        pool = Pool(workers=0)
        cache_sizes = []
        for name in "abcd":
            pool._remember(("model", name * 1000), (200, b"{}"))
            cache_sizes.append((len(pool._cache), pool._cached_bytes))
        return cache_sizes

    assert asyncio.run(sizes()) == [(1, 1002)] * 4


def test_a_worker_that_does_not_start_is_replaced(monkeypatch):
    worker = Worker()
    try:
        monkeypatch.setattr("traincast.ui.explorer.worker_pool.START_SECONDS", 0.0)
        monkeypatch.setattr("traincast.ui.explorer.worker_pool.READY", "never")  # not even a quick one
        assert worker.ask("model", "{}", 30.0)[0] != 200
        monkeypatch.undo()
        assert worker.ask("model", "{}", 30.0)[0] == 200
    finally:
        worker.end()


def test_a_model_of_a_thousand_million_layers_is_refused(client):
    model = {
        "name": "tall",
        "layers": 10**9,
        "hidden": 64,
        "heads": 8,
        "ffn": 256,
        "seq": 512,
        "source": "none",
    }
    assert "layers = 1000000000: must be at most 10,000" in refused(client, "model", model=model)["message"]


def test_the_server_itself_builds_no_pasted_model():
    model = {"model_type": "mistral", "num_hidden_layers": 2**31}  # each with a window: a list of 16 GiB
    with bounded_memory(1 << 30):
        assert json.loads(normal_text(json.dumps({"model": model}))) == asdict(State(model=model))


def test_abandoned_questions_are_not_started():
    async def kinds_answered():
        pool = Pool(workers=1)
        try:
            asked = [asyncio.create_task(pool.answer(kind, "{}")) for kind in ("catalog", "model", "system")]
            await asyncio.sleep(0)
            asked[1].cancel()
            await asyncio.wait(asked)
            return [kind for kind, _ in pool._cache]
        finally:
            pool.close()

    assert asyncio.run(kinds_answered()) == ["catalog", "system"]


def test_an_abandoned_search_ends_after_a_batch():
    """Of two who wait, the second to leave ends the search; no answer is kept, and the process goes on."""

    async def abandon():
        pool, text = Pool(workers=1), json.dumps(SMALL)
        (worker,) = pool._all
        try:
            assert (await pool.answer("search", text))[0] == 200
            assert worker.status.done == worker.status.total > 0
            assert worker.status.candidates > 1000
            process, other = worker._process, json.dumps(SMALL | {"gpus": 32})
            waiting = [asyncio.create_task(pool.answer("search", other)) for _ in range(2)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            await asyncio.wait(waiting[:1])
            assert not worker.status.is_abandoned
            waiting[1].cancel()
            await asyncio.wait(waiting)
            assert worker.status.is_abandoned
            assert pool.progress(other) == (0, 0, 0)
            assert (await pool.answer("model", "{}"))[0] == 200
            assert worker._process is process
            return list(pool._cache)
        finally:
            pool.close()

    assert asyncio.run(abandon()) == [("search", json.dumps(SMALL)), ("model", "{}")]


def test_a_search_abandoned_while_its_plans_are_estimated_ends(monkeypatch):
    """All is enumerated and bounded by then: what follows reports rounds of evaluation."""

    class Status:
        done = total = candidates = reads_when_bounded = 0

        @property
        def is_abandoned(self):
            self.reads_when_bounded += self.done == self.total > 0
            return self.reads_when_bounded > 1

    sent = []
    pipe = Mock(send=sent.append, recv=Mock(side_effect=[("search", json.dumps(SMALL)), EOFError]))
    monkeypatch.setattr(worker, "_bound_memory", lambda _: None)
    monkeypatch.setattr(worker.signal, "signal", lambda *_: None)
    monkeypatch.setattr(worker.gc, "freeze", lambda: None)
    with np.errstate():
        worker.work(pipe, Status())
    _, (status, _) = sent
    assert status == 503


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_worker_that_died_idle_is_replaced(is_seen, monkeypatch):
    """Unseen is one that is still dying when it is given a question."""

    async def kill_and_ask():
        pool = Pool(workers=1)
        try:
            assert (await pool.answer("model", "{}"))[0] == 200
            pool._all[0]._process.kill()
            pool._all[0]._process.join()
            if not is_seen:
                monkeypatch.setattr(pool._all[0]._process, "is_alive", lambda: True)
            return await pool.answer("system", "{}")
        finally:
            pool.close()

    assert asyncio.run(kill_and_ask())[0] == 200


@pytest.mark.parametrize(
    "spelling",
    [
        {"top": 3, "global_batch": 32, "gpus": 16, "model": "llama-3-8b", "locks": {}, "price": None},
        {"gpus": 1.6e1, "global_batch": 3.2e1, "top": 3.0},
        {"system": "dgx-h100", "strategy": "1d,ring,ulysses", "seq": 8192},
        {"strategy": ["1d", "ring", "ulysses"], "objective": "time", "figures": {}},
    ],
)
def test_spellings_of_a_question_share_an_answer(client, spelling):
    """The time that a search took tells one computed from one kept."""
    assert asked(client, "search", **SMALL | spelling) == asked(client, "search", **SMALL)


def test_a_stated_framework_is_another_question_than_none(client):
    """The degrees are the same, the interval is narrower: software that is not stated may be any."""
    of_any, of_megatron = (
        asked(client, "search", **SMALL | stated)["plans"][0] for stated in ({}, {"framework": "megatron"})
    )
    for name in ("tp", "cp", "pp", "dp", "mbs"):
        assert of_any["plan"][name] == of_megatron["plan"][name]
    width, narrower = (plan["step_seconds_high"] / plan["step_seconds_low"] for plan in (of_any, of_megatron))
    assert narrower < width


def test_figures_with_a_unit_and_in_si_share_an_answer(client):
    first, second = (
        asked(client, "search", **SMALL, figures={"network.1.bandwidth": value})
        for value in ("800 Gb/s", 100_000_000_000)
    )
    assert first == second


def test_a_client_that_leaves_ends_its_search(static):
    body = json.dumps(SMALL | {"top": 2}).encode()
    messages = iter([{"type": "http.request", "body": body}, {"type": "http.disconnect"}])
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/api/search", "query_string": b"", "headers": headers}
    sent = []

    async def receive():
        return next(messages)

    async def send(message):
        sent.append(message)

    async def leave():
        app = application(lambda: Pool(workers=1), static=static)
        async with app.router.lifespan_context(app):
            await app(scope, receive, send)
            await app.state.pool.answer("model", "{}")
            return [kind for kind, _ in app.state.pool._cache]

    assert asyncio.run(leave()) == ["search", "model"]  # the search of the start, not the client's
    assert sent[0]["status"] == 400


@pytest.fixture
def served(tmp_path):
    """A server as it is started from the command line: its process and what it tells."""
    command = [sys.executable, "-m", "traincast", "serve", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        announcement = "".join(iter(process.stdout.readline, "}\n")) + "}"
        yield process, json.loads(announcement)
        process.kill()


def test_serve_from_the_command_line(served, capsys):
    process, announcement = served
    jsonschema.validate(announcement, schema("serve"))
    model = httpx.get(announcement["url"] + "api/model", params={"name": "gpt-125m"}, timeout=None)
    assert model.json()["layers"] == 12
    with pytest.raises(SystemExit) as stop:
        main(["serve", "--port", str(announcement["port"])])
    assert stop.value.code == 2
    assert "cannot listen on 127.0.0.1" in capsys.readouterr().err
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert (process.stdout.read(), process.stderr.read()) == ("", "traincast: interrupted\n")


def test_a_server_that_is_ended_in_a_search_says_nothing(served):
    """Its workers are not started again."""
    process, announcement = served
    body = json.dumps(LARGE).encode()
    head = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", announcement["port"])) as client:
        client.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        while not httpx.post(announcement["url"] + "api/progress", json=LARGE, timeout=None).json()["total"]:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        process.wait()
    # What it reads ends with the last process: one that was started again would say that its parent is gone.
    assert process.stderr.read() == ""


def test_clients_that_hang_up_do_not_end_the_server(served):
    process, announcement = served
    question = b"GET /static/vendor/d3.min.js HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % announcement["port"]
    for turn in range(200):
        with socket.create_connection(("127.0.0.1", announcement["port"])) as client:
            if turn % 2:  # closing resets the connection
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(question * (1 + turn % 30))
            time.sleep(0.002 * (turn % 5))  # while the server writes
    url = announcement["url"] + "api/model"
    assert httpx.get(url, params={"name": "gpt-125m"}, timeout=None).status_code == 200
    assert process.poll() is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--port 70000", "port = 70000"),
        ("--host no.such.host.invalid", "cannot listen"),
        ("--host=", "host = '': must be an address"),
    ],
)
def test_serve_where_nobody_can_listen(arguments, said, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["serve", *arguments.split()])
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


def test_serve_without_its_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "traincast.ui.explorer.app", raising=False)
    with pytest.raises(SystemExit) as stop:
        main(["serve"])
    assert stop.value.code == 2
    assert "pip install 'traincast[explorer]'" in capsys.readouterr().err
