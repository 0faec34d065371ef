"""A measured step against the predicted one: how far off, how likely by chance, and what would explain it."""

from functools import cached_property
from typing import Annotated, Final

from traincast.core import KEY, Doc, InputError, Result, raise_problems
from traincast.step.estimates import Estimate, require_one_plan
from traincast.step.peak_check import CONVENTION
from traincast.step.run_metrics import check_given, metrics
from traincast.step.step_time import input_seconds

COMMUNICATION: Final = ("tp_comm", "ep_comm", "dp_comm", "pp_comm", "offload_comm")  # components of time
LEAST_PERCENT: Final = 2.0  # an MFU from here on is a percentage; one between 1 and it may be of another peak
KERNELS: Final = ("compute", "exposed_memory", "recomputation", "optimizer_step")


class Cause(Result, kw_only=True):
    """What alone would make a step as slow as measured."""

    cause: Annotated[str, Doc("part of the step")]
    predicted_seconds: Annotated[float | None, Doc("its predicted time; `null` where it has none", "s")]
    factor: Annotated[
        float | None, Doc("times as long as predicted, were it the only cause; `null` where it has no time")
    ]
    sign: Annotated[str, Doc("what would show it")]


class MeasuredStep(Result):
    """A measured step of a plan, compared with what is predicted of it."""

    est: Estimate
    step_seconds: Annotated[float, Doc("the time measured, or that of the measured rate", "s")]

    @property
    def longer_than_predicted(self) -> Annotated[float, KEY]:
        """Relative difference of the measured time from the predicted one."""
        return self.step_seconds / self.est.step_seconds - 1

    @cached_property
    def mfu(self) -> Annotated[float | None, KEY]:
        """MFU of the measured time as Megatron-LM counts it; null where the peak is not known."""
        shares = metrics(self.est, step_seconds=self.step_seconds).mfu
        return None if shares is None else float(shares[CONVENTION])

    @property
    def within_interval(self) -> Annotated[bool | None, KEY]:
        """Whether it lies in the 90 % interval; null where errors are not known."""
        if self.est.interval is None:
            return None
        low, high = self.est.interval
        return low <= self.step_seconds <= high

    @property
    def chance(self) -> Annotated[float | None, KEY]:
        """Probability that a run with nothing wrong is as far off on this side; null where it is not known.

        It is that of a step at least as slow where the measured one is slower than the middle of what is
        expected, else at least as fast: of errors of predictions, and of software that is not stated.
        """
        below = self.est.probability_below(self.step_seconds)
        return None if below is None else min(below, 1 - below)

    @cached_property
    def causes(self) -> Annotated[list[Cause], KEY]:
        """What alone would make the step as slow as measured, the smallest change first."""
        return causes(self.est, self.step_seconds)


def measured_step(
    est: Estimate,
    *,
    step_seconds: float | None = None,
    tokens_per_second: float | None = None,
    mfu: float | None = None,
) -> MeasuredStep | None:
    """Compare what was measured of a step with its estimate.

    Parameters
    ----------
    est : Estimate
        Estimate of the plan that was measured.
    step_seconds : float, optional
        Time of a step [s].
    tokens_per_second : float, optional
        Or throughput of the job [token/s].
    mfu : float, optional
        Or model FLOP/s over the dense peak, as Megatron-LM counts them.

    Returns
    -------
    MeasuredStep or None
        The comparison; None where nothing was measured.

    Raises
    ------
    InputError
        If several are given, one is no finite number above 0, or it needs more than the dense peak: then the
        likely mistake is named.

    Examples
    --------
    >>> import traincast as tc
    >>> est = tc.estimate("llama-3-8b", "dgx-h100", tc.Plan(tp=2, dp=4), gbs=64)
    >>> measured = measured_step(est, mfu=0.28)
    >>> round(measured.mfu, 3), measured.longer_than_predicted > 0
    (0.28, True)
    """
    require_one_plan(est, "measured step")
    check_measured(step_seconds, tokens_per_second, mfu)
    if step_seconds is None and tokens_per_second is None and mfu is None:
        return None
    if tokens_per_second is not None:
        step_seconds = est.gbs * est.model.seq / tokens_per_second
    if mfu is not None:
        step_seconds = _step_of(est, mfu)
    assert step_seconds is not None
    measured = MeasuredStep(est, float(step_seconds))
    _ = measured.mfu  # computed now, which refuses a time that needs more than the peak
    return measured


def check_measured(
    step_seconds: float | None = None, tokens_per_second: float | None = None, mfu: float | None = None
) -> None:
    """Refuse what cannot be measured of a step, and several measurements of one.

    Arguments are those of `measured_step`. Raises `InputError`; all mistakes at once.
    """
    given = {"step_seconds": step_seconds, "tokens_per_second": tokens_per_second, "mfu": mfu}
    names = [name for name, value in given.items() if value is not None]
    problems = [f"{' and '.join(names)}: give one of them"] if len(names) > 1 else []
    if mfu is not None and not 0 < mfu < LEAST_PERCENT:
        meant = f"; was {mfu:g}% meant?" if LEAST_PERCENT <= mfu <= 100 else ""
        problems.append(f"mfu = {mfu:g}: must be a share above 0 and at most 1, such as 0.28 or 28%{meant}")
    raise_problems("measured step", problems)
    check_given(step_seconds=step_seconds, tokens_per_second=tokens_per_second)


def _step_of(est: Estimate, mfu: float) -> float:
    """Return the time of a step of so high an MFU [s]."""
    predicted = metrics(est).mfu
    if predicted is None:
        unknown = f"the peak of {est.system.accelerator.name} is not known; give step_seconds"
        raise InputError("measured step", [f"mfu = {mfu:g}: {unknown}"])
    return est.step_seconds * float(predicted[CONVENTION]) / mfu


def causes(est: Estimate, step_seconds: float) -> list[Cause]:
    """Return what alone would explain a measured step, the smallest change of a prediction first.

    Empty where the step is not slower than predicted. Each cause is credited with all of the difference:
    the smaller the factor, the less has to be wrong for it. Data are read while the step before runs, so that
    their time counts whole once it is the longer one. What has no known time comes last.
    """
    predicted = est.step_seconds
    slack = step_seconds - predicted
    if slack <= 0:
        return []
    times = est.breakdown
    kernels, network = (sum(times[name] for name in names) for names in (KERNELS, COMMUNICATION))
    plan = est.plan
    rate = est.system.input_rate
    tokens = est.gbs * est.model.seq / step_seconds
    read = None if rate is None else float(input_seconds(est.gbs, rate, plan.gpus))
    stall = metrics(est).checkpoint_stall
    rows = [
        ("slow GPU", predicted, "one rank is late in every collective: compare clocks, power and ECC of all"),
        ("kernels", kernels, "a profile shows longer kernels: clocks, unfused attention, odd sizes"),
        ("network", network, "exposed collectives: lost overlap, a slow link; time an all-reduce (measure)"),
        ("pipeline", times["bubble"], "stages wait: uneven stages or micro-batches"),
        ("host", times["host"], "gaps between kernels: Python, launches, logging, garbage collection"),
        ("input pipeline", read, f"steps wait for data: no more than {tokens:,.0f} tokens/s are read"),
        ("checkpoints", stall, "only some steps are slow: writes that the step waits for"),
    ]
    found = []
    for name, seconds, sign in rows:
        if seconds == 0 or (name in ("network", "slow GPU") and plan.gpus == 1):
            continue
        known = None if seconds is None else float(seconds)
        factor = None
        if known is not None:
            longer = step_seconds if name == "input pipeline" else known + slack
            factor = longer / known
        found.append(Cause(cause=name, predicted_seconds=known, factor=factor, sign=sign))
    return sorted(found, key=lambda cause: cause.factor or float("inf"))
