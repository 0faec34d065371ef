"""Weak scaling of ZeRO data parallelism (Cheng et al., SIGMETRICS 2024, doi 10.1145/3639034).

An iteration is compute, then communication, without overlap: a companion to the main estimator, not a second
one. The efficiency of the network from g to n GPUs is eff(g→n) = t_comm(g)/t_comm(n): from a table, or from
the times of the system's collectives. The iteration keeps (r_compute + r_comm)/(r_compute + r_comm/eff(g→n))
of its speed, r being its shares on g GPUs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np

from traincast.analysis.operation_anatomy import ClassRow, anatomy
from traincast.analysis.zero_formulas import (
    KERNEL_SHARE,
    TRANSFORMER_SHARE,
    ZERO,
    activation_bytes,
    compute_seconds,
    message_count,
    network_seconds,
    score_bytes,
    state_bytes,
    sufficient_efficiency,
)
from traincast.catalog import as_model, as_system, with_fitted_values
from traincast.core import (
    Assumptions,
    Bools,
    Doc,
    ErrorCollector,
    Floats,
    InputError,
    Plan,
    Result,
    System,
    type_problems,
    whole_number_problems,
)
from traincast.model import Model
from traincast.step import Estimate, check_assumptions, check_size, estimate, forward_flops

MAX_BANDWIDTH_FACTOR: Final = 1e6  # times the system's bandwidth: no answer beyond
BISECTION_STEPS: Final = 48  # from the interval 1e-6 to 1e6 to 13 digits


@dataclass(frozen=True)
class Scaling:
    """One ZeRO stage on a column of numbers of GPUs; efficiencies refer to the first."""

    zero: int
    gpus: Floats  # column
    compute: float  # [s]
    comm: Floats  # column [s]
    memory: Floats  # parameters, gradients, optimizer and activations by the source's formulas, column [byte]
    target: float | None
    # Sufficient between nodes, per node and direction: column [byte/s]; NaN where none is, None without
    # target.
    bandwidth: Floats | None
    activations: float = 0.0  # of the memory [byte]
    domain: int = 1  # GPUs of a fast domain

    @property
    def seconds(self) -> Floats:
        """Time of an iteration [s]."""
        return self.compute + self.comm

    @property
    def comm_share(self) -> Floats:
        """Share of the iteration spent on communication."""
        return self.comm / self.seconds

    @property
    def efficiency(self) -> Floats:
        """Speed relative to the first number of GPUs; `speedup` of its shares, where it communicates."""
        return float(self.seconds[0]) / self.seconds

    @property
    def outer_efficiency(self) -> Floats:
        """Speed relative to the fewest GPUs of more than one fast domain; NaN inside of one."""
        outside = self.gpus > self.domain
        first = self.seconds[np.argmax(outside)]
        return np.where(outside, first / self.seconds, np.nan)

    @property
    def network_efficiency(self) -> Floats:
        """eff(g→n) = t_comm(g)/t_comm(n); NaN where g GPUs do not communicate."""
        return self.comm[0] / self.comm if self.comm[0] else np.full_like(self.comm, np.nan)

    @property
    def needed_efficiency(self) -> float | None:
        """Least eff(g→n) that meets the target; None without target, or where g GPUs do not communicate."""
        if self.target is None or not self.comm[0]:
            return None
        share = float(self.comm_share[0])
        return float(sufficient_efficiency(1 - share, share, self.target))

    def rows(self) -> "list[ScalingRow]":
        """Return one row for each number of GPUs."""
        unknown = np.full_like(self.comm, np.nan)
        columns = (
            self.gpus.astype(int),
            np.full_like(self.comm, self.compute),
            self.comm,
            self.seconds,
            self.comm_share,
            self.network_efficiency,
            self.efficiency,
            self.outer_efficiency,
            self.memory,
            np.full_like(self.comm, self.activations),
            unknown if self.bandwidth is None else self.bandwidth,
        )
        lists = [[None if value != value else value for value in column.tolist()] for column in columns]
        return [ScalingRow(self.zero, *values) for values in zip(*lists, strict=True)]


class ScalingRow(Result):
    """The iteration of one ZeRO stage on one number of GPUs."""

    zero: Annotated[int, Doc("stage of ZeRO")]
    gpus: Annotated[int, Doc("number of GPUs")]
    compute_seconds: Annotated[float, Doc("compute", "s")]
    comm_seconds: Annotated[float, Doc("communication", "s")]
    iteration_seconds: Annotated[float, Doc("compute, then communication", "s")]
    comm_share: Annotated[float, Doc("share of the iteration spent on communication")]
    network_efficiency: Annotated[
        float | None, Doc("eff(g→n) from the fewest GPUs; `null` where they do not communicate")
    ]
    efficiency: Annotated[float, Doc("speed relative to the fewest GPUs")]
    outer_efficiency: Annotated[
        float | None,
        Doc("speed relative to the fewest GPUs of more than one fast domain; `null` inside of one"),
    ]
    memory_bytes: Annotated[
        float, Doc("parameters, gradients, optimizer and activations by the source's formulas", "byte")
    ]
    activation_bytes: Annotated[
        float, Doc("activations of them, nothing recomputed, attention fused", "byte")
    ]
    enough_bandwidth: Annotated[
        float | None,
        Doc(
            "bandwidth of a fast domain to all others, one direction, that is enough for the target;"
            " 0 where none is used, `null` where none is enough or no target is given",
            "byte/s",
        ),
    ]


@dataclass(frozen=True)
class ScalingRequest:
    """The question: a model on a system, with `mbs` sequences per GPU and iteration."""

    model: Model
    system: System
    assumptions: Assumptions
    gpus: tuple[int, ...]
    mbs: int
    k1: float
    k2: float
    efficiency: Mapping[int, float] | None
    comm_share: float | None
    target: float | None

    @property
    def P(self) -> float:
        """Parameters of the model, about 12 d² l for a GPT without its vocabulary."""
        return float(self.model.parameters)

    @property
    def scores(self) -> float:
        """What attention that is not fused would save besides the activations [byte]."""
        model = self.model
        return float(score_bytes(self.mbs, model.seq, model.heads, model.layers))

    def owner_messages(self, gpus: int) -> tuple[int, int]:
        """Return the messages of ZeRO-2's reduce on a number of GPUs, and those that its buckets make."""
        of_kind = (
            message_count(kind, 2, self.P, self.model.layers, gpus) for kind in ("reduce", "all-reduce")
        )
        owners, buckets = map(int, of_kind)
        return owners, buckets

    @property
    def flops(self) -> float:
        """FLOPs of a GPU's iteration without embedding and head, b (72 s d² + 12 s² d) l for a GPT [FLOP]."""
        forward = forward_flops(self.model, "megatron-full")
        return 3 * (forward.layers + forward.attention) * self.model.seq * self.mbs

    @property
    def rate(self) -> float:
        """Sustained rate of large matrix products on one GPU [FLOP/s]."""
        gpu = self.system.accelerator
        assumed = self.assumptions
        efficiency = assumed.kernels.matrix_efficiency
        sustained = (
            gpu.sustained_share("16-bit", efficiency) if assumed.kernels.sustained_rates else efficiency
        )
        share = assumed.kernels.product_efficiency * sustained
        return float(gpu.peak("16-bit") * share)

    @property
    def mixes_networks(self) -> bool:
        """Whether the fewest GPUs lie inside of one fast domain, and others do not."""
        return min(self.gpus) <= self.system.fast_domain < max(self.gpus)

    @cached_property
    def predicted_k1(self) -> float | None:
        """Share of compute time in which kernels run, of the main estimator on the fewest GPUs.

        The rest is the host's: launches that kernels do not hide, and its fixed time of a step; None where
        assumptions know neither.
        """
        parts = self._fewest_gpus_estimate().breakdown
        kernels = float(parts["compute"] + parts["exposed_memory"])
        launches = float(parts.get("host", 0.0))
        return kernels / (kernels + launches) if launches else None

    @cached_property
    def kernel_classes(self) -> list[ClassRow]:
        """Shares of the main estimator's kernels by class, attention unfused (Table 6 of the source)."""
        return anatomy(self._fewest_gpus_estimate(attention="unfused")).classes

    def _fewest_gpus_estimate(self, attention: Literal["flash", "unfused"] = "flash") -> Estimate:
        """Return the main estimator's ZeRO-1 on the fewest GPUs."""
        g = min(self.gpus)
        plan = Plan(dp=g, mbs=self.mbs, zero=1, attention=attention)
        return estimate(self.model, self.system, plan, gbs=g * self.mbs, assumptions=self.assumptions)

    @property
    def node_bandwidth(self) -> float:
        """Peak bandwidth between nodes, all ports of one node, one direction [byte/s]."""
        tier = self.system.tiers[1]
        return float(tier.bandwidth * tier.ports * self.system.fast_domain)

    def record(self, stages: "Sequence[Scaling]") -> "ScalingRecord":
        """Return question and answer with meaning and unit, as `traincast scaling --json` prints them."""
        return ScalingRecord(
            model=self.model.name,
            left_out=self.model.left_out or None,
            system=self.system.name,
            seq=self.model.seq,
            mbs=self.mbs,
            assumptions=self.assumptions.name,
            parameters=self.P,
            flops=self.flops,
            flops_rate=self.rate,
            k1=self.k1,
            k2=self.k2,
            predicted_k1=self.predicted_k1,
            kernel_classes=self.kernel_classes,
            node_bandwidth=self.node_bandwidth,
            target=self.target,
            rows=[row for stage in stages for row in stage.rows()],
        )

    def stage(self, zero: int) -> Scaling:
        """Analyse one ZeRO stage on all numbers of GPUs."""
        n = np.array(self.gpus, float)
        P = self.P
        compute = float(compute_seconds(self.flops, self.rate, self.k1, self.k2))
        network = network_seconds(zero, P, self.model.layers, n, self.system, self.assumptions)
        scale = 1.0
        if self.comm_share is not None:  # measured: the network's times are scaled to it
            scale = self.comm_share / (1 - self.comm_share) * compute / float(network[0])  # type: ignore[index]
        comm: Floats = scale * np.asarray(network)
        if self.efficiency is not None:
            comm = comm[0] / np.array([1.0, *(self.efficiency[number] for number in self.gpus[1:])])
        model = self.model
        activations = activation_bytes(self.mbs, model.seq, model.hidden, model.layers)
        memory = np.asarray(state_bytes(zero, P, n) + activations)
        bandwidth = None
        if self.target is not None and self.efficiency is None:
            allowed = ((compute + comm[0]) / self.target - compute) / scale
            bandwidth = self._sufficient_bandwidth(zero, n, allowed)
        domain = self.system.fast_domain
        return Scaling(zero, n, compute, comm, memory, self.target, bandwidth, float(activations), domain)

    def _sufficient_bandwidth(self, zero: int, n: Floats, allowed: float) -> Floats:
        """Find by bisection the bandwidth of a node at which communication is as short as allowed [byte/s].

        0 where none is used, NaN where even `MAX_BANDWIDTH_FACTOR` times the system's is not enough.
        """
        outer = {f"network.{i}.bandwidth": tier.bandwidth for i, tier in enumerate(self.system.tiers) if i}

        def fits(factor: Floats) -> Bools:
            faster = self.system.with_figures({path: value * factor for path, value in outer.items()})
            seconds = network_seconds(zero, self.P, self.model.layers, n, faster, self.assumptions)
            return np.asarray(seconds) <= allowed

        low = np.full_like(n, 1 / MAX_BANDWIDTH_FACTOR)
        high = np.full_like(n, MAX_BANDWIDTH_FACTOR)
        unused = fits(low)
        never = ~fits(high)
        for _ in range(BISECTION_STEPS):
            middle = np.sqrt(low * high)
            middle_fits = fits(middle)
            low = np.where(middle_fits, low, middle)
            high = np.where(middle_fits, middle, high)
        return np.where(never, np.nan, np.where(unused, 0.0, high * self.node_bandwidth))


class ScalingRecord(Result, kw_only=True):
    """Scaling of data parallelism with ZeRO, with meaning and unit."""

    model: Annotated[str, Doc("name of the model")]
    left_out: Annotated[str | None, Doc("parts of the model that are not counted")]
    system: Annotated[str, Doc("name of the system")]
    seq: Annotated[int, Doc("tokens of a sequence", "token")]
    mbs: Annotated[int, Doc("sequences of a GPU in an iteration", "sequence")]
    assumptions: Annotated[str, Doc("name of the assumptions")]
    parameters: Annotated[float, Doc("parameters of the model")]
    flops: Annotated[float, Doc("FLOPs of a GPU's iteration", "FLOP")]
    flops_rate: Annotated[float, Doc("sustained rate of a GPU", "FLOP/s")]
    k1: Annotated[float, Doc("share of compute time in which kernels run")]
    k2: Annotated[float, Doc("share of kernel time in which the transformer's kernels run")]
    predicted_k1: Annotated[
        float | None, Doc("k1 by the main estimator's time of the host; `null` where assumptions know none")
    ]
    kernel_classes: Annotated[
        list[ClassRow],
        Doc("kernels of the main estimator by class, attention unfused, without communication"),
    ]
    node_bandwidth: Annotated[float, Doc("peak of a fast domain to all others, one direction", "byte/s")]
    target: Annotated[float | None, Doc("target efficiency")]
    rows: Annotated[list[ScalingRow], Doc("stages and numbers of GPUs")]


def scaling(
    model: str | Path | Model,
    system: str | Path | System,
    gpus: Sequence[int],
    zero: Sequence[int] = ZERO,
    mbs: int = 1,
    assumptions: str | Assumptions | None = None,
    *,
    k1: float | None = KERNEL_SHARE,
    k2: float = TRANSFORMER_SHARE,
    efficiency: Mapping[int, float] | None = None,
    comm_share: float | None = None,
    target: float | None = None,
) -> tuple[ScalingRequest, list[Scaling]]:
    """Analyse the weak scaling of ZeRO data parallelism: compute and communication by number of GPUs.

    Parameters
    ----------
    model : str, Path or Model
        A dense transformer.
    system : str, Path or System
        The machine.
    gpus : sequence of int
        Numbers of GPUs; efficiencies refer to the fewest, g.
    zero : sequence of int
        ZeRO stages: 1, 2 or 3.
    mbs : int
        Sequences per GPU and iteration.
    assumptions : str or Assumptions, optional
        Assumptions about matrix products and collectives, ``"calibrated"`` if left out.
    k1, k2 : float
        As of `compute_seconds`; k1 None is that of the main estimator.
    efficiency : mapping of int to float, optional
        eff(g→n) by number of GPUs, instead of the network's.
    comm_share : float, optional
        Measured share of communication in the iteration on g GPUs; network times are scaled to it.
    target : float, optional
        Efficiency for which the sufficient bandwidth is computed.

    Returns
    -------
    ScalingRequest, list of Scaling
        The question, and the result for every stage.

    Raises
    ------
    InputError
        If arguments cannot be used, all of them at once.
    """
    errors = ErrorCollector("scaling")
    transformer = errors.catch(as_model, model)
    machine = errors.catch(as_system, system)
    assumed = errors.catch(check_assumptions, assumptions, "calibrated")
    problems = [
        *type_problems("gpus", gpus, "a list of whole numbers", Sequence),
        *type_problems("zero", zero, "a list of stages", Sequence),
    ]
    problems = problems or _list_problems(gpus, zero, mbs, efficiency)
    problems += _share_problems(KERNEL_SHARE if k1 is None else k1, k2, comm_share, target)
    if not problems:
        errors.catch(check_size, machine, max(gpus))
        if min(gpus) == 1 and comm_share is not None:
            problems.append("comm_share: one GPU does not communicate; leave 1 out of gpus")
    if machine is not None and machine.columns():
        problems.append("system: must be one machine, not columns of them")
    if transformer is not None and transformer.experts is not None:
        problems.append(f"model {transformer.name}: has experts; the analysis is of dense models")
    errors.add(problems)
    checked_model = errors.require(transformer)
    checked_system = errors.require(machine)
    request = ScalingRequest(
        model=checked_model,
        system=checked_system,
        assumptions=with_fitted_values(checked_system, errors.require(assumed)),
        gpus=tuple(sorted(set(gpus))),
        mbs=mbs,
        k1=KERNEL_SHARE if k1 is None else k1,
        k2=k2,
        efficiency=efficiency,
        comm_share=comm_share,
        target=target,
    )
    if k1 is None:
        if request.predicted_k1 is None:
            raise InputError("scaling", [f"k1: {request.assumptions.name} assumptions know no launches"])
        request = replace(request, k1=request.predicted_k1)
    return request, [request.stage(stage) for stage in dict.fromkeys(zero)]


def _list_problems(
    gpus: Sequence[int], zero: Sequence[int], mbs: int, efficiency: Mapping[int, float] | None
) -> list[str]:
    """Return the problems of numbers of GPUs, stages, batch and efficiency table."""
    problems = [problem for n in gpus for problem in whole_number_problems("gpus", n)]
    problems += whole_number_problems("mbs", mbs)
    problems += [f"zero = {stage!r}: must be one of 1, 2, 3" for stage in zero if stage not in ZERO]
    empty = [name for name, values in (("gpus", gpus), ("zero", zero)) if not values]
    problems += [f"{name}: give at least one" for name in empty]
    for name, values in (("gpus", gpus), ("zero", zero)):
        twice = sorted({value for value in values if list(values).count(value) > 1})
        problems += [f"{name}: {value} is given twice" for value in twice]
    if efficiency is None or problems:
        return problems
    wrong = {n: value for n, value in efficiency.items() if not 0 < value <= 1}
    allowed = "must be a share above 0, at most 1"
    problems += [f"efficiency of {n} GPUs = {value!r}: {allowed}" for n, value in wrong.items()]
    missing = [str(n) for n in sorted(set(gpus))[1:] if n not in efficiency]
    if missing:
        problems.append(f"efficiency: has no value for {', '.join(missing)} GPUs")
    if min(gpus) == 1:
        problems.append("efficiency: one GPU does not communicate; leave 1 out of gpus")
    return problems


def _share_problems(k1: float, k2: float, comm_share: float | None, target: float | None) -> list[str]:
    shares = {"k1": k1, "k2": k2}
    wrong = {name: value for name, value in shares.items() if not 0 < value <= 1}
    problems = [f"{name} = {value!r}: must be a share above 0, at most 1" for name, value in wrong.items()]
    if comm_share is not None and not 0 < comm_share < 1:
        problems.append(f"comm_share = {comm_share!r}: must be a share above 0, below 1")
    if target is not None and not 0 < target <= 1:
        problems.append(f"target = {target!r}: must be an efficiency above 0, at most 1")
    return problems
