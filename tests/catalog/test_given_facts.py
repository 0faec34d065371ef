"""Facts that a question states: read, compared with those of software, and put in their place."""

import pytest

from traincast.catalog.facts import OF_SOFTWARE
from traincast.catalog.given_facts import read_given
from traincast.catalog.software_stacks import Stack, stack_names
from traincast.core.errors import InputError
from traincast.step.arguments import left_of_framework


def test_facts_are_read_from_a_mapping_or_texts():
    facts = {"dispatcher": "deepep", "graphs": "none"}
    assert read_given(facts) == facts
    assert read_given("graphs = NONE, Dispatcher=deepep") == facts
    assert read_given(["graphs=none", "dispatcher=deepep", "graphs=none"]) == facts
    assert read_given({"compiled": False, "released": 2025}) == {"released": "2025", "compiled": "false"}
    assert read_given({"framework": "megatron bridge"}) == {"framework": "Megatron-Bridge"}
    assert read_given(["kernels=unfused-wgrad+deferred-wgrad"])["kernels"].count("+") == 1
    assert read_given(None) == read_given({}) == read_given([]) == {}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"dispatcher": "fast"}, "dispatcher = 'fast': must be one of alltoall, allgather, deepep"),
        ({"dispatchr": "deepep"}, "dispatchr = deepep: no fact of software; did you mean dispatcher?"),
        ({"etp": 2}, "etp = 2: a knob of the plan, no fact of software"),
        ({"released": "May"}, "released = 'May': must be a year or a month"),
        ("deepep", "'deepep': write FACT=VALUE, such as dispatcher=deepep"),
        (["loss=whole", "loss=fused"], "loss = whole and loss = fused: give one of them"),
        (7, "given = 7: must be a mapping of facts to values"),
    ],
)
def test_what_is_not_allowed_is_named_with_what_is(given, problem):
    with pytest.raises(InputError) as error:
        read_given(given)
    assert problem in str(error.value)


def test_all_mistakes_are_named_at_once():
    with pytest.raises(InputError) as error:
        read_given({"dispatcher": "x", "graphs": "y", "loss": "whole"})
    assert len(error.value.problems) == 2


@pytest.mark.parametrize("name", stack_names())
def test_software_has_its_own_facts_and_stays_with_them(name):
    own = Stack(name).facts
    assert all(Stack(name).has_fact(fact, own[fact]) for fact in own)
    assert not Stack(name).contradicts(own)
    assert Stack(name).with_given(own).name == name


def test_a_fact_of_other_software_contradicts_and_an_unstated_one_does_not():
    """By the files of stacks: the first has alltoall and says nothing of graphs."""
    assert Stack("megatron-core-2024").contradicts({"dispatcher": "deepep"})
    assert not Stack("megatron-core-2024").contradicts({"graphs": "iteration"})
    assert not Stack("megatron-core-2024").has_fact("graphs", "iteration")
    assert Stack("megatron-bridge-26.02").has_fact("dispatcher", "flex")  # hybridep, which is one of them
    assert not Stack("megatron-bridge-26.02").has_fact("dispatcher", "deepep")
    assert Stack("megatron-bridge-26.02").has_fact("released", "2026-03")  # until the next that is listed
    assert not Stack("megatron-bridge-26.02").has_fact("released", "2026-07")
    assert Stack("megatron-bridge-26.02").with_given({"dispatcher": "flex"}).name == "megatron-bridge-26.02"
    assert Stack("megatron-core-deepep").with_given({"dispatcher": "alltoall"}).name == "megatron-core-2025"


def test_another_framework_has_its_own_facts():
    assert Stack("megatron-core-deepep").with_given({"framework": "torchtitan"}).name == "torchtitan-2025"
    dated = (
        Stack("megatron-core-deepep").with_given({"framework": "Megatron-Bridge", "released": "2025-10"}).name
    )
    assert dated == "megatron-bridge-2025"
    with pytest.raises(InputError, match="framework = other: the catalogue has no software of it"):
        Stack("megatron-core-deepep").with_given({"framework": "other"})


def test_a_framework_leaves_its_own_software_open():
    bridge = left_of_framework(Stack("megatron-core-2025").releases, "Megatron-Bridge")
    assert bridge == ("megatron-bridge-2025", "megatron-bridge-2026", "megatron-bridge-26.02")
    assert set(left_of_framework(Stack.ANY, "Pax")) == {"pax-2023", "pax-2024"}
    with pytest.raises(InputError, match="framework = torchtitan: the framework named besides runs Megatron"):
        left_of_framework(Stack("megatron-core-2025").releases, "torchtitan")
    assert "framework" in OF_SOFTWARE
