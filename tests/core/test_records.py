"""Copies of dataclasses with other values, against those of the standard library."""

import dataclasses

import pytest

from traincast.core.records import replace
from traincast.operations import Operation, PassCount, Vector
from traincast.times import PassSeconds

WORK = PassCount((), 3.0, launches=2.0)


@pytest.mark.parametrize(
    ("instance", "changes"),
    [
        (Operation("mlp.fc1", WORK, WORK, weights=5.0), {"recompute": 1.0, "module": "mlp"}),
        (WORK, {"nbytes": 4.0}),
        (PassSeconds(1.0, 2.0, 3.0), {}),
    ],
    ids=["an operation", "a pass", "nothing"],
)
def test_a_copy_is_that_of_the_standard_library(instance, changes):
    copied = replace(instance, **changes)
    assert type(copied) is type(instance)
    assert copied == dataclasses.replace(instance, **changes)
    assert copied is not instance


def test_a_field_that_the_class_has_not_is_refused():
    with pytest.raises(TypeError, match="PassCount has no field 'bytes'"):
        replace(WORK, bytes=1.0)


def test_a_class_of_one_field_is_copied_as_well():
    assert replace(Vector(1.0), flops=2.0) == Vector(2.0)
