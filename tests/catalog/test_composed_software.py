"""Composition of software: constants of framework, release and facts, and names of any combination."""

import pytest

import traincast as tc
from traincast.catalog.facts import FACTS, OF_SOFTWARE
from traincast.catalog.software import constants, constants_of, search_spaces
from traincast.catalog.software_stacks import Stack, calibrated, stack_names, value_of_owner

CALIBRATED = calibrated()
CHANGES = {  # of each fact but framework and release
    "dispatcher": "hybridep",
    "grouped": "false",
    "graphs": "iteration",
    "compiled": "false",
    "loss": "fused",
    "kernels": "unfused-wgrad+deferred-wgrad",
    "update": "backward",
    "overlap": "none",
}

DEEPEP_ALONE = "megatron-core-2025+dispatcher=deepep+overlap=none"
BRIDGE = "megatron-bridge-2026"


def of_entry(name, path):
    """Return a value of an entry of the files of software."""
    return next(entry.values.changes()[path] for entry in constants() if entry.name == name)


def test_constants_have_names_of_their_own():
    """What a constant is of is named in calibration/published.yaml: an entry or a stack, never both."""
    names = [entry.name for entry in constants()]
    assert len(names) == len(set(names))
    assert set(names).isdisjoint(stack_names())
    assert set(CHANGES) == OF_SOFTWARE.keys() - {"framework", "released"}
    assert FACTS.keys() - OF_SOFTWARE.keys() == {"etp", "remat", "routing"}  # of a plan


@pytest.mark.parametrize("name", stack_names())
def test_every_constant_holds_for_a_stack_of_the_catalogue(name):
    used = {owner for stack in stack_names() for owner, _ in Stack(stack).owners}
    assert {entry.name for entry in constants_of(Stack(name).facts)} <= used
    assert Stack(name).own_file.framework in search_spaces()
    assert Stack(name).with_facts({}).name == name
    assert Stack(name).with_facts(Stack(name).facts).name == name or Stack(name).own_file.changes()


def test_each_constant_is_that_of_the_last_entry_that_applies():
    """Figures of the files: calibrated.yaml, then the framework, its release and its facts."""
    bridge = Stack("megatron-bridge-26.02").assumptions
    assert bridge.kernels.launch_seconds == CALIBRATED.kernels.launch_seconds == 4.9e-6
    assert bridge.collectives.bucket_parameters == of_entry("megatron-core", "collectives.bucket_parameters")
    assert bridge.memory.grad_dtype == of_entry("megatron-bridge", "memory.grad_dtype") == "16-bit"
    fused = of_entry("megatron-core-fused-dispatcher", "traffic.expert_passes")
    assert bridge.traffic.expert_passes == fused != of_entry("megatron-core-experts", "traffic.expert_passes")
    early = Stack("nemo-2025").assumptions
    assert early.memory.stores_remainders
    assert early.overlap.ep_overlapped == 1  # until 06/2025
    assert not Stack("nemo-2024").assumptions.memory.stores_remainders  # since 2025
    eager = of_entry("eager", "traffic.elementwise_passes")
    assert Stack("litgpt-2024").assumptions.traffic.elementwise_passes == eager
    assert Stack("torchtune-eager-2025").assumptions.traffic.elementwise_passes == eager
    assert Stack("nanotron-2025").assumptions.traffic.elementwise_passes == eager
    own = of_entry("eager-internevo", "traffic.elementwise_passes")  # times a factor of its own
    assert Stack("internevo-2024").assumptions.traffic.elementwise_passes == own != eager


@pytest.mark.parametrize(
    ("name", "facts", "composed"),
    [  # by the names and facts of the files of stacks
        ("megatron-core-2025", {"dispatcher": "deepep"}, "megatron-core-deepep"),
        ("megatron-core-deepep", {"dispatcher": "ALLTOALL"}, "megatron-core-2025"),
        ("megatron-core-plain", {"overlap": "all", "dispatcher": "deepep"}, "megatron-core-deepep"),
        ("megatron-core-deepep", {"overlap": "none"}, DEEPEP_ALONE),
        (
            "megatron-core-plain",
            {"dispatcher": "deepep"},
            "megatron-core-2025+dispatcher=deepep+overlap=none",
        ),
        ("torchtune-2025", {"update": "backward"}, "torchtune-backward-2025"),
        ("torchtitan-2024", {"compiled": "false"}, "torchtitan-eager"),
        ("torchtitan-2025", {"compiled": "false"}, "torchtitan-2025+compiled=false"),
        ("megatron-core-deepep", {"released": "2024-12"}, "megatron-core-2024+dispatcher=deepep"),
        (
            "megatron-core-2025",
            {"framework": "Megatron Bridge", "released": "2026-07"},
            "megatron-bridge-2026",
        ),
        ("nemo-2025-grace", {"graphs": "iteration"}, "nemo-2025-grace+graphs=iteration"),
    ],
)
def test_software_with_facts_changed_has_one_name(name, facts, composed):
    assert Stack(name).with_facts(facts).name == composed
    assert Stack(composed).with_facts({}).name == composed
    stated = {fact: value for fact, value in facts.items() if fact not in ("framework", "released")}
    assert {fact: Stack(composed).facts[fact] for fact in stated} == {k: v.lower() for k, v in stated.items()}
    assert Stack(composed).assumptions.name == composed


@pytest.mark.parametrize(("fact", "value"), CHANGES.items())
def test_every_fact_can_be_changed(fact, value):
    name = Stack("megatron-core-2024").with_facts({fact: value}).name
    assert Stack(name).facts[fact] == value
    assert Stack(name).base == Stack(name).fitted_name
    assert Stack(name).year == 2024


def test_facts_set_their_constants_whatever_the_framework():
    copies = Stack("torchtitan-2025+dispatcher=deepep").assumptions
    assert copies.collectives.node_copies
    assert not Stack("torchtitan-2025").assumptions.collectives.node_copies
    waits = of_entry("overlap-none", "overlap.dp_window")
    assert Stack("maxtext-2025+overlap=none").assumptions.overlap.dp_window == waits == 0
    assert not Stack("megatron-core-2025+grouped=false").assumptions.kernels.groups_experts
    graphs = Stack("megatron-core-2025+graphs=iteration").assumptions
    assert graphs.host.expert_dispatch_seconds == 0
    both = Stack("megatron-core-2025+dispatcher=deepep+graphs=iteration").assumptions
    assert (
        both.host.sync_seconds
        == graphs.host.sync_seconds
        < Stack("megatron-core-deepep").assumptions.host.sync_seconds
    )


def test_a_name_with_facts_is_allowed_wherever_a_name_is():
    plan = tc.Plan(dp=8, ep=8, mbs=1)
    named, composed = (
        tc.estimate("qwen3-30b-a3b", "dgx-h100", plan, gbs=8, assumptions=name)
        for name in ("megatron-core-deepep", "Megatron-Core-2025+dispatcher=deepep")
    )
    assert named.step_seconds == composed.step_seconds
    assert composed.assumptions.name == "megatron-core-deepep"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "megatron-core-2025+dispatcher=foo",
            "dispatcher = 'foo': must be one of alltoall, allgather, deepep",
        ),
        ("megatron-core-2025+dispatcher", "'dispatcher': write FACT=VALUE"),
        ("megatron-core-2025+dispatch=deepep", "dispatch: no fact of software; known: framework, released"),
        ("megatron-core-2025+etp=2", "etp: no fact of software"),
        ("megatron-core-2025+released=May", "released = 'May': must be a year or a month"),
        ("megatron-core-2025+framework=other", "framework = other: the catalogue has no software of it"),
        ("wibble+dispatcher=deepep", "unknown assumptions 'wibble"),
    ],
)
def test_what_is_no_software_is_refused(name, problem):
    with pytest.raises(tc.InputError, match=problem):
        tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(), gbs=8, assumptions=name)


@pytest.mark.parametrize(
    ("framework", "released", "name"),
    [  # `stands_for` and `undated` of the files of stacks
        ("Megatron-LM", "2021", "megatron-lm-2021"),
        ("Megatron-LM", "2020-01", "megatron-lm-2021"),  # before the first
        ("Megatron-LM", "2022-05", "megatron-lm-2022"),
        ("zero-bubble", "2024-01", "megatron-lm-2023"),
        ("Primus", "", "primus-2025"),
        ("Megatron-DeepSpeed", "", "megatron-deepspeed-2022"),
        ("NeMo", "", "nemo-2024"),
        ("NeMo", "2024-10", "megatron-core-2024"),
        ("Megatron-Bridge", "2026-03", "megatron-bridge-26.02"),
        ("other", "2025", None),
    ],
)
def test_a_release_has_the_stack_that_stands_for_it(framework, released, name):
    assert Stack.of_framework(framework, released) == (name and Stack(name))


def test_a_value_belongs_to_its_entry_or_stack():
    assert value_of_owner("overlap-none", "overlap.dp_window") == 0
    assert value_of_owner("nemo-2025-grace", "host.expert_dispatch_seconds") > 0.01
