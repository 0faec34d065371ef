"""How data parallelism with ZeRO scales (Cheng et al., SIGMETRICS 2024, doi 10.1145/3639034): an iteration and its efficiency.

An iteration is what it computes and then what it communicates, without overlap: a companion to the main estimator, not a second
one. How well the network keeps up from g to n GPUs is its efficiency, eff(g→n) = t_comm(g)/t_comm(n): from a table, or from the
times of the system's collectives. The iteration keeps (r_compute + r_comm)/(r_compute + r_comm/eff(g→n)) of its speed, r being
its shares on g GPUs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from traincast.analysis.zero_formulas import (
    KERNELS,
    TRANSFORMER,
    ZERO,
    activation_bytes,
    compute_seconds,
    network_seconds,
    state_bytes,
    sufficient_efficiency,
)
from traincast.catalog.load import as_model, as_system
from traincast.catalog.software_stacks import on
from traincast.core.assumptions import Assumptions
from traincast.core.errors import ErrorCollector, InputError, not_a, not_whole
from traincast.core.model import Model
from traincast.core.system import System
from traincast.step.arguments import check_assumptions, check_size
from traincast.step.model_flops import forward_flops

WIDEST: Final = 1e6  # times today's network: what needs more is out of reach
HALVINGS: Final = 48  # of the interval 1e-6 to 1e6: to 13 digits


@dataclass(frozen=True)
class Scaling:
    """One stage of ZeRO on a column of GPUs, the first of which all efficiencies refer to."""

    zero: int
    gpus: Any  # column
    compute: float  # [s]
    comm: Any  # column [s]
    memory: Any  # parameters, gradients, optimizer and activations by the source's formulas, column [byte]
    target: float | None
    bandwidth: Any  # of a node to others that is enough, one direction: column [byte/s]; NaN where none is, None where not asked

    @property
    def seconds(self) -> Any:
        """Time of an iteration [s]."""
        return self.compute + self.comm

    @property
    def comm_share(self) -> Any:
        """Share of the iteration that communicates."""
        return self.comm / self.seconds

    @property
    def efficiency(self) -> Any:
        """What is kept of the speed on the first number of GPUs; `speedup` of its shares, wherever it communicates at all."""
        return self.seconds[0] / self.seconds

    @property
    def network_efficiency(self) -> Any:
        """eff(g→n) = t_comm(g)/t_comm(n); NaN where g GPUs do not communicate."""
        return self.comm[0] / self.comm if self.comm[0] else np.full_like(self.comm, np.nan)

    @property
    def needed_efficiency(self) -> float | None:
        """eff(g→n) that is enough for the target; None where none is asked for, or g GPUs do not communicate."""
        if self.target is None or not self.comm[0]:
            return None
        share = float(self.comm_share[0])
        return float(sufficient_efficiency(1 - share, share, self.target))

    def rows(self) -> list[dict[str, Any]]:
        """One row for each number of GPUs, for machines; None is what is not known."""
        columns = {
            "gpus": self.gpus.astype(int),
            "compute_seconds": np.full_like(self.comm, self.compute),
            "comm_seconds": self.comm,
            "iteration_seconds": self.seconds,
            "comm_share": self.comm_share,
            "network_efficiency": self.network_efficiency,
            "efficiency": self.efficiency,
            "memory_bytes": self.memory,
            "enough_bandwidth": np.full_like(self.comm, np.nan) if self.bandwidth is None else self.bandwidth,
        }
        lists = [[None if one != one else one for one in column.tolist()] for column in columns.values()]
        return [{"zero": self.zero} | dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True)]


@dataclass(frozen=True)
class ScalingRequest:
    """What is analysed: a model on a system, `mbs` sequences of each GPU in an iteration."""

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
        """Weights of the layers' products, 12 d² l for a GPT."""
        return forward_flops(self.model, "megatron-full").layers / 2

    @property
    def flops(self) -> float:
        """FLOPs of one GPU's iteration, without embedding and head: b (72 s d² + 12 s² d) l for a GPT [FLOP]."""
        forward = forward_flops(self.model, "megatron-full")
        return 3 * (forward.layers + forward.attention) * self.model.seq * self.mbs

    @property
    def rate(self) -> float:
        """Rate of large products on one GPU [FLOP/s]."""
        gpu, assumed = self.system.accelerator, self.assumptions
        usual = assumed.matrix_efficiency
        share = assumed.product_efficiency * (gpu.sustained("16-bit", usual) if assumed.sustained_rates else usual)
        return float(gpu.peak("16-bit") * share)

    @property
    def node_bandwidth(self) -> float:
        """Peak of the network between nodes, all ports of one node, one direction [byte/s]."""
        tier = self.system.tiers[1]
        return float(tier.bandwidth * tier.ports * self.system.fast_domain)

    def summary(self) -> dict[str, Any]:
        """What was asked, for machines."""
        return {
            "model": self.model.name,
            "left_out": self.model.left_out or None,
            "system": self.system.name,
            "seq": self.model.seq,
            "mbs": self.mbs,
            "assumptions": self.assumptions.name,
            "parameters": self.P,
            "flops": self.flops,
            "flops_rate": self.rate,
            "k1": self.k1,
            "k2": self.k2,
            "node_bandwidth": self.node_bandwidth,
            "target": self.target,
        }

    def stage(self, zero: int) -> Scaling:
        """One stage of ZeRO on all numbers of GPUs."""
        n, P = np.array(self.gpus, float), self.P
        compute = float(compute_seconds(self.flops, self.rate, self.k1, self.k2))
        model = network_seconds(zero, P, self.model.layers, n, self.system, self.assumptions)
        scale = 1.0
        if self.comm_share is not None:  # measured: the network's times are scaled to it
            scale = self.comm_share / (1 - self.comm_share) * compute / float(model[0])  # type: ignore[index]
        comm: Any = scale * np.asarray(model)
        if self.efficiency is not None:
            comm = comm[0] / np.array([1.0, *(self.efficiency[one] for one in self.gpus[1:])])
        one = self.model
        memory = state_bytes(zero, P, n) + activation_bytes(self.mbs, one.seq, one.hidden, one.heads, one.layers)
        enough = None
        if self.target is not None and self.efficiency is None:
            enough = self._enough(zero, n, ((compute + comm[0]) / self.target - compute) / scale)
        return Scaling(zero, n, compute, comm, memory, self.target, enough)

    def _enough(self, zero: int, n: Any, allowed: Any) -> Any:
        """Bandwidth of a node at which an iteration communicates no longer than allowed, by halving [byte/s].

        0 where none is used, NaN where even `WIDEST` times today's is not enough.
        """
        outer = {f"network.{i}.bandwidth": tier.bandwidth for i, tier in enumerate(self.system.tiers) if i}

        def fits(factor: Any) -> Any:
            faster = self.system.with_figures({path: value * factor for path, value in outer.items()})
            return network_seconds(zero, self.P, self.model.layers, n, faster, self.assumptions) <= allowed

        low, high = np.full_like(n, 1 / WIDEST), np.full_like(n, WIDEST)
        unused, never = fits(low), ~fits(high)
        for _ in range(HALVINGS):
            middle = np.sqrt(low * high)
            good = fits(middle)
            low, high = np.where(good, low, middle), np.where(good, middle, high)
        return np.where(never, np.nan, np.where(unused, 0.0, high * self.node_bandwidth))


def scaling(
    model: str | Path | Model,
    system: str | Path | System,
    gpus: Sequence[int],
    zero: Sequence[int] = ZERO,
    mbs: int = 1,
    assumptions: str | Assumptions | None = None,
    *,
    k1: float = KERNELS,
    k2: float = TRANSFORMER,
    efficiency: Mapping[int, float] | None = None,
    comm_share: float | None = None,
    target: float | None = None,
) -> tuple[ScalingRequest, list[Scaling]]:
    """Compute and communication of an iteration of ZeRO data parallelism on several numbers of GPUs, weak scaling.

    Parameters
    ----------
    model : str, Path or Model
        A dense transformer.
    system : str, Path or System
        The machine.
    gpus : sequence of int
        Numbers of GPUs; efficiencies refer to the fewest, g.
    zero : sequence of int
        Stages of ZeRO, of 1, 2 and 3.
    mbs : int
        Sequences of a GPU in an iteration.
    assumptions : str or Assumptions, optional
        What is assumed of products and collectives, ``"calibrated"`` if left out.
    k1, k2 : float
        As of `compute_seconds`.
    efficiency : mapping of int to float, optional
        eff(g→n) by number of GPUs, in place of the network's.
    comm_share : float, optional
        Measured share of communication in the iteration on g GPUs; the network's times are scaled to it.
    target : float, optional
        Efficiency for which the network that is enough is asked.

    Returns
    -------
    Asked, list of Scaling
        What was analysed, and every stage.

    Raises
    ------
    InputError
        If arguments cannot be used, all of them at once.
    """
    mistakes = ErrorCollector("scaling")
    one, machine = mistakes.catch(as_model, model), mistakes.catch(as_system, system)
    assumed = mistakes.catch(check_assumptions, assumptions, "calibrated")
    wrong = [*not_a("gpus", gpus, "a list of whole numbers", Sequence), *not_a("zero", zero, "a list of stages", Sequence)]
    wrong = wrong or _wrong_lists(gpus, zero, mbs, efficiency)
    wrong += _wrong_shares(k1, k2, comm_share, target)
    if not wrong:
        mistakes.catch(check_size, machine, max(gpus))
    if machine is not None and machine.columns():
        wrong.append("system: one machine is wanted, not columns of them")
    if one is not None and one.experts is not None:
        wrong.append(f"model {one.name}: has experts; the analysis is of dense models")
    if not wrong and comm_share is not None and min(gpus) == 1:
        wrong.append("comm_share: one GPU does not communicate; leave 1 out of gpus")
    if wrong:
        mistakes.errors.append(InputError("scaling", wrong))
    sure = mistakes.require
    cluster = sure(machine)
    case = ScalingRequest(
        sure(one), cluster, on(cluster, sure(assumed)), tuple(sorted(set(gpus))), mbs, k1, k2, efficiency, comm_share, target
    )
    return case, [case.stage(stage) for stage in dict.fromkeys(zero)]


def _wrong_lists(gpus: Sequence[int], zero: Sequence[int], mbs: int, efficiency: Mapping[int, float] | None) -> list[str]:
    """What is wrong with numbers of GPUs, stages, batch and curve."""
    wrong = [problem for n in gpus for problem in not_whole("gpus", n)] + not_whole("mbs", mbs)
    wrong += [f"zero = {stage!r}: must be one of 1, 2, 3" for stage in zero if stage not in ZERO]
    wrong += [f"{name}: at least one is wanted" for name, given in (("gpus", gpus), ("zero", zero)) if not given]
    if efficiency is None or wrong:
        return wrong
    wrong += [
        f"efficiency of {n} GPUs = {one!r}: must be a share above 0, at most 1" for n, one in efficiency.items() if not 0 < one <= 1
    ]
    missing = [str(n) for n in sorted(set(gpus))[1:] if n not in efficiency]
    if missing:
        wrong.append(f"efficiency: says nothing of {', '.join(missing)} GPUs")
    if min(gpus) == 1:
        wrong.append("efficiency: one GPU does not communicate; leave 1 out of gpus")
    return wrong


def _wrong_shares(k1: float, k2: float, comm_share: float | None, target: float | None) -> list[str]:
    """What is wrong with shares."""
    wrong = [
        f"{name} = {value!r}: must be a share above 0, at most 1" for name, value in (("k1", k1), ("k2", k2)) if not 0 < value <= 1
    ]
    if comm_share is not None and not 0 < comm_share < 1:
        wrong.append(f"comm_share = {comm_share!r}: must be a share above 0, below 1")
    if target is not None and not 0 < target <= 1:
        wrong.append(f"target = {target!r}: must be an efficiency above 0, at most 1")
    return wrong
