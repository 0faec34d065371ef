"""Suggestions: changes of knobs of a launch as its framework spells them, each re-estimated."""

from collections.abc import Iterable
from typing import Annotated, Any, TypeAlias

from traincast.core import Doc, Plan, Result
from traincast.launch.settings.canonical import launch_facts
from traincast.launch.settings.facts import Facts
from traincast.launch.settings.format import Format, not_expressed
from traincast.launch.settings.settings import Settings, value_text
from traincast.planner import ChangedPlan, KnobChange, KnobTester
from traincast.step import Estimate

Difference: TypeAlias = tuple[str, Any, Any]  # setting, old and new value; None where it is absent


class DifferingSetting(Result):
    """A setting that differs, as the framework spells it; a switch that is set has the value on."""

    setting: Annotated[str, Doc("name of the setting, as the framework spells it")]
    old: Annotated[str | None, Doc("value now; null where it is not set, on where it has none", key="from")]
    new: Annotated[str | None, Doc("value then, the same way", key="to")]


class EstimatedChange(ChangedPlan):
    """Settings changed together, and the estimate of the changed plan."""

    tester: "ChangeTester"
    settings: tuple[Difference, ...]

    @property
    def spelled(self) -> Annotated[list[DifferingSetting], Doc(key="settings")]:
        """Settings that differ."""
        return self.tester.spell_settings(self.settings)


class ChangeTester(KnobTester[EstimatedChange]):
    """Estimator of changes of one launch, which its format writes and a software stack, by name, runs.

    `own` are the settings of the launch, which may spell a knob in another way than the format writes it.
    """

    def __init__(self, est: Estimate, form: Format, stack: str, own: Settings):
        super().__init__(est, form.space)
        self.form = form
        self.stack = stack
        self.own = own
        self.keeps_stage = est.sharding_changes_one_rank  # as in `launch_facts`
        facts = self._facts(est.plan)
        self.settings = form.settings(facts)
        self.unexpressed = set(self._not_expressed(facts))

    def _facts(self, plan: Plan) -> Facts:
        """Return the facts of a plan in this launch."""
        facts = launch_facts(self.est.model, plan, self.est.gbs, keeps_stage=self.keeps_stage)
        return facts | {"per_node": 1, "stack": self.stack}

    def _not_expressed(self, facts: Facts) -> dict[str, str]:
        """Return the facts that the format does not express, and why."""
        settings = self.form.settings(facts)
        return not_expressed(self.form, settings, facts, self.est.model, keeps_stage=self.keeps_stage)

    def differences(self, plan: Plan) -> tuple[Difference, ...]:
        """Return the settings of another plan that differ, without those that spell a changed knob now.

        What those stood for is written in full: without --recompute-activations nothing is recomputed.
        """
        old = self.settings
        new = self.form.settings(self._facts(plan))
        names = dict.fromkeys((*old, *new))
        changed = {name: old.get(name) for name in names if old.get(name) != new.get(name)}
        replaced: list[Difference] = []
        for row in self.form.computed_rows:
            others = [name for name in row.settings if name not in names and self.own.is_on(name)]
            if others and changed.keys() & {*row.settings}:
                replaced += [(name, self.own[name], None) for name in others]
                changed |= {name: None for name in row.settings if name in names and name not in self.own}
        differences = ((name, value, new.get(name)) for name, value in changed.items())
        return (*(pair for pair in differences if pair[1] != pair[2]), *replaced)

    def spell_settings(self, settings: Iterable[Difference]) -> list[DifferingSetting]:
        """Return settings that differ, as the framework spells them."""

        def text(value: Any) -> str | None:
            return None if value is None else value_text(value)

        return [
            DifferingSetting(self.form.spelled(name), text(old), text(new)) for name, old, new in settings
        ]

    def estimate_of(self, plan: Plan) -> Estimate | None:
        """Return the estimate of another plan; None where the framework refuses it."""
        return None if self.form.find_refusals(self._facts(plan)) else super().estimate_of(plan)

    def estimate_change(self, change: KnobChange, est: Estimate) -> EstimatedChange | None:
        """Return a change with its estimate; None where the format cannot express it."""
        facts = self._facts(est.plan)
        settings = self.differences(est.plan)
        if not settings or set(self._not_expressed(facts)) - self.unexpressed:
            return None
        return EstimatedChange(self.est, change, est, self, settings)
