"""Write the pages that are generated from the code: formulas, nomenclature, errata, catalogue, scoreboard,
JSON outputs.

Run `python tools/docs/generate.py` (or `make docs`). The pages are in the repository; a test compares them
with the output of this.
"""

import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import sympy as sp

from traincast.catalog.facts import FACTS
from traincast.catalog.load import accelerator_names, figures, load_system, system_names
from traincast.catalog.software_stacks import Stack, calibrated, stack_names
from traincast.core.assumptions import ERRATA, PAPER
from traincast.core.knobs import STRATEGIES
from traincast.core.nomenclature import COLUMNS
from traincast.core.plan import Plan, Plans
from traincast.core.precision import OPTIMIZERS, PRECISIONS
from traincast.core.quantities import FigureSpec
from traincast.core.system import Accelerator, System, Tier
from traincast.model.model import Model
from traincast.operations import attention, elementwise, linear
from traincast.operations.attention import Heads
from traincast.operations.linear import MatmulSizes
from traincast.operations.operation import Gemm, Operation, PassCount, Vector
from traincast.operations.transformer import layer
from traincast.planner.frameworks.spaces import FRAMEWORKS
from traincast.planner.paper_results import Reproduction, reproduce
from traincast.step.layer_cost import PartCosts
from traincast.step.memory import Footprint, memory
from traincast.step.pipeline_stages import Stages
from traincast.step.step_time import Step, step
from traincast.times.collectives import collective, point_to_point
from traincast.times.overlap import layer_by_layer, panel_time
from traincast.times.process_groups import Group
from traincast.times.roofline import arithmetic_seconds, exposed_memory
from traincast.tuner import replay

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "calibration")]
import commands_page  # noqa: E402
import experts_page  # noqa: E402
import export_page  # noqa: E402
import json_page  # noqa: E402
import recipes_page  # noqa: E402
from degree_pairs import degree_pairs  # noqa: E402
from error_model import Chances, reliability  # noqa: E402
from scoreboard_page import StatedChances, reliability_figure, scoreboard, stated_probabilities  # noqa: E402

LAYERS = sp.Symbol("n_l", positive=True, integer=True)  # of a stage
GENERATED = "<!-- Written by tools/docs/generate.py from the code: do not edit. -->\n\n"


UFUNCS: dict[Any, Callable[..., Any]] = {
    np.maximum: sp.Max,
    np.minimum: sp.Min,
    np.sign: sp.sign,
    np.floor: sp.floor,
    np.add: operator.add,  # these four for a numpy number on the left
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.divide: operator.truediv,
}


def binary(operate: Callable[[Any, Any], Any]) -> Callable[["Symbolic", Any], "Symbolic"]:
    """Return an operator of `Symbolic` from that of sympy."""
    return lambda self, other: Symbolic(operate(self.expression, bare(other)))


class Symbolic:
    """Sympy expression that supports numpy's ufuncs, so that the engine's functions accept it."""

    def __init__(self, expression: Any):
        self.expression = sp.sympify(expression)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if ufunc is np.logical_or:  # of np.any
            return self.expression != 0
        return Symbolic(UFUNCS[ufunc](*map(bare, inputs)))

    __add__ = binary(lambda a, b: a + b)
    __radd__ = binary(lambda a, b: b + a)
    __sub__ = binary(lambda a, b: a - b)
    __rsub__ = binary(lambda a, b: b - a)
    __mul__ = binary(lambda a, b: a * b)
    __rmul__ = binary(lambda a, b: b * a)
    __truediv__ = binary(lambda a, b: a / b)
    __rtruediv__ = binary(lambda a, b: b / a)
    __floordiv__ = binary(lambda a, b: sp.floor(a / b))

    def __neg__(self) -> "Symbolic":
        return Symbolic(-self.expression)


def bare(value: Any) -> Any:
    """Return the sympy expression of a value, with exact numbers for floats."""
    value = value.expression if isinstance(value, Symbolic) else value
    return sp.nsimplify(int(value) if isinstance(value, bool) else value)


def symbols(names: str) -> tuple[Symbolic, ...]:
    """Return positive symbols."""
    return tuple(Symbolic(symbol) for symbol in sp.symbols(names, positive=True, seq=True))


def mathml(value: Any, factor: bool = True) -> str:
    """Return an expression as MathML; floor divisions become fractions."""
    expression = bare(value)
    expression = expression.replace(sp.floor, lambda inner: inner)
    if factor and not expression.has(sp.Max, sp.Min):
        expression = sp.factor(expression)
    words = any(
        len(symbol.name.split("_")[0]) > 1 for symbol in expression.free_symbols
    )  # names such as dp need a sign between
    printed = sp.mathml(expression, printer="presentation", **({"mul_symbol": "dot"} if words else {}))
    return f'<math displaystyle="true">{printed}</math>'


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return an HTML table."""
    line = lambda tag, cells: "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"  # noqa: E731
    return "\n".join(("<table>", line("th", header), *(line("td", row) for row in rows), "</table>", ""))


def formula(name: str, value: Any) -> str:
    """Return a named formula as a paragraph."""
    return f"<p><code>{name}</code> = {mathml(value, factor=False)}</p>\n"


SYMBOLS = (
    ("`E`", "byte", "size of an element (2)"),
    ("`q`", "", "width of a head, e/h"),
    ("`T`", "token", "tokens of a micro-batch on a rank"),
    ("`i`, `o`", "", "input and output width of a linear layer"),
    ("`V`", "byte", "the full tensor of a collective"),
    ("`n`, `g`", "", "members of a group, and those in one fast domain"),
    ("`t_launch`", "s", "fixed cost of an operation in one direction (20 µs)"),
    (
        "`F_m`, `F_v`, `D`",
        "FLOP, byte",
        "matrix and vector work, and bytes moved, of an operation in one direction",
    ),
    ("`P_m`, `P_v`", "FLOP/s", "matrix and vector peak"),
    ("`eta_m`, `eta_v`", "", "share of the peak that is sustained (0.8)"),
    ("`B_hbm`", "byte/s", "memory bandwidth"),
    ("`B_f`, `B_s`", "byte/s", "effective bandwidth of the fast and the slow tier"),
    ("`l_f`, `l_s`", "s", "latency of the fast and the slow tier"),
    ("`nics`", "", "NICs per GPU"),
    ("`u`", "", "part of a cp group that exchanges heads in a hybrid with a ring"),
)
E, b, h, l, q, m1, m2, nb, T, i, o, n, r, w, u = symbols("E b h l q m_1 m_2 n_b T i o n r w u")


def counts(operations: Iterable[Operation]) -> str:
    """Return the table of forward and backward counts of operations."""
    rows = []
    for op in operations:
        for way, work in (("forward", op.forward), ("backward", op.whole_backward)):
            kept = (mathml(E * op.weights), mathml(op.saved_bytes)) if way == "forward" else ("", "")
            rows.append((f"<code>{op.name.split('.')[-1]}</code>" if way == "forward" else "", way, mathml(work.flops("matrix")),
                         mathml(work.flops("vector")), mathml(work.nbytes), *kept))  # fmt: skip
    return table(("operation", "", "matrix FLOP", "vector FLOP", "bytes moved", "weights", "saved"), rows)


def communication(work: PassCount, axes: tuple[str, ...]) -> str:
    """Return the collectives of a pass."""
    lines = [
        f"<div>{collective_.kind} {mathml(collective_.nbytes)} over {collective_.over}</div>"
        for collective_ in work.collectives
        if collective_.over in (*axes, "ulysses")
    ]
    times = "per panel" if work.panels is not None else "per round" if work.rounds is not None else ""
    return "".join(lines) + (times if lines else "")


def vocabulary() -> str:
    """Return tables of every kind of operation on local shapes."""
    sizes, local = MatmulSizes(E), Heads(b, h, h, l / m2, l, q, q)
    single = [
        elementwise.bias("bias", E, T, o),
        elementwise.activation("gelu", E, n),
        elementwise.dropout("dropout", E, Symbolic(1), n),
    ]
    parts = {
        "Linear layer, x[T, i] w[i, o]": [linear.linear("linear", sizes, T, i, o)],
        "Linear layer as a SUMMA product of full widths i and o": [
            linear.summa_linear("summa_linear", sizes, T, i, o, (m1, m2, nb))
        ],
        "Elementwise": single,
        "Norm of r rows of width w": [elementwise.norm("norm", E, r, w)],
        "Fused attention, h local heads, l/m2 queries": [attention.flash(E, local, ((), ()))],
        "Unfused attention": list(attention.unfused_attention(E, Symbolic(1), local, "cp", recompute=False)),
        "Attention as SUMMA products, all h heads": list(
            attention.summa(E, Symbolic(1), (b, h, l, q), (m1, m2, nb))
        ),
    }
    return "\n".join(f"### {title}\n\n{counts(operations)}" for title, operations in parts.items())


def sharded(strategy: str) -> str:
    """Return weights, saved bytes and collectives of a layer under a strategy; for ring and Ulysses what
    differs from context."""
    rows, known = (
        operations_of(strategy),
        [] if strategy in FRAMEWORKS["paper"].strategies else operations_of("context"),
    )
    return table(
        ("operation", "weights", "saved", "communicated forward", "backward"),
        [row for row in rows if row not in known],
    )


def operations_of(strategy: str) -> list[tuple[str, ...]]:
    """Return the rows of the table of a strategy."""
    e, f = symbols("e f")
    model = Model(name="symbolic", layers=1, hidden=e, heads=h, ffn=f, seq=l)  # type: ignore[arg-type]
    inner = {"ulysses": m2, "hybrid": u}
    second = {"1d": {}, "summa": {"tp2": m2, "panels": nb}}.get(
        strategy, {"cp": m2, "ulysses": inner.get(strategy, 1)}
    )
    plan = Plans(tp=m1, mbs=b, **second, **STRATEGIES[strategy].choices)  # type: ignore[arg-type]
    operations = layer(
        model, plan, PAPER.with_values({"memory.element_bytes": E, "memory.mask_bytes": Symbolic(1)})
    )
    return [
        (f"<code>{op.name}</code>", mathml(E * op.weights), mathml(op.saved_bytes),
         communication(op.forward, STRATEGIES[strategy].axes), communication(op.whole_backward, STRATEGIES[strategy].axes))
        for op in operations
    ]  # fmt: skip


def machine() -> System:
    """Return a machine with symbols as figures."""
    matrix, vector, hbm, fast, slow, lf, ls, nics = symbols("P_m P_v B_hbm B_f B_s l_f l_s nics")
    gpu = Accelerator(
        name="symbolic", matrix_flops=matrix, vector_flops=vector, hbm_bandwidth=hbm, hbm_bytes=hbm
    )  # type: ignore[arg-type]
    tiers = (Tier(name="fast", bandwidth=fast, efficiency=1.0, latency=lf, size=1),  # type: ignore[arg-type]
             Tier(name="slow", bandwidth=slow, efficiency=1.0, latency=ls, ports=nics))  # type: ignore[arg-type]  # fmt: skip
    return System(name="symbolic", accelerator=gpu, tiers=tiers)


def times() -> str:
    """Return formulas of roofline, collectives and overlap."""
    system, (V, g, x, t, F, Fv, D, tc) = machine(), symbols("V g x t F_m F_v D t_c")
    nl = Symbolic(LAYERS)
    launch, matrix, vector = symbols("t_launch eta_m eta_v")
    assumed = PAPER.with_values(
        {
            "kernels.launch_seconds": launch,
            "kernels.matrix_efficiency": matrix,
            "kernels.vector_efficiency": vector,
        }
    )  # type: ignore[arg-type]
    work = PassCount(
        (Gemm(F / 2, Symbolic(1), Symbolic(1), accumulate=True), Vector(Fv)), D
    )  # F_m + F_v FLOP, D bytes
    lines = [
        "An operation takes max(t_c, t_m) and the communication it cannot hide, in each direction.\n\n",
        formula("t_c", arithmetic_seconds(work, system.accelerator, assumed, PRECISIONS["bf16"])),
        formula("exposed memory time", exposed_memory(work, tc, system.accelerator, assumed)),
        "\nA collective on n ranks, g of them in each fast domain, of a full tensor of V bytes. "
        "The factors min(1, …) are 1 where a tier is crossed and 0 elsewhere; bandwidths are effective "
        "ones.\n\n",
        *(
            formula(kind, collective(kind, V, Group(n, (g,)), system, PAPER))
            for kind in ("all-gather", "all-reduce", "broadcast", "all-to-all")
        ),  # type: ignore[arg-type]
        "\nReduce-scatter costs what all-gather costs, reduce what broadcast costs. One message over one "
        "link:\n\n",
        formula("point to point, slow", point_to_point(V, system.slow, PAPER)),
        "\nCommunication that overlaps: x is one panel's and w the operation's own time; one collective per "
        "layer hides behind a "
        "layer's time t, of n_l layers.\n\n",
        formula("SUMMA product", panel_time(x, nb, w)),
        formula("collective per layer", per_layer(x, t, nl)),
    ]
    return "".join(lines)


def per_layer(x: Symbolic, t: Symbolic, layers: Symbolic) -> Symbolic:
    """Return the exposed time of a collective per layer, for equal layers."""
    exposed = sp.Max(
        0, bare(x) - sp.Max(0, bare(x) - bare(t))
    )  # what hides behind a layer, which is the shorter of the two
    return Symbolic(bare(layer_by_layer([x], [t], [layers])).subs(exposed, sp.Min(bare(x), bare(t))))


def training_step() -> str:
    """Return formulas of the step and of the memory of a rank."""
    tf, tb, W, s, M, L, gbs, dp, pp, tpp = symbols("t_f t_b W s M L gbs dp pp t_pp")
    S, longest, p, AG, RS, v = symbols("S T_max p AG RS v")
    nl = Symbolic(LAYERS)
    plan = Plans(pp=pp, vp=v, mbs=b, fast_pp=tpp)  # type: ignore[arg-type]

    def stepped(costs: dict[str, PartCosts], work: dict[str, Any], totals: dict[str, Any]) -> Step:
        return step(costs, plan, Stages((0.0,), (work,), (work,), totals), gbs / dp, machine(), PAPER)

    def part(forward: Any, backward: Any = 0.0, message: Any = 0.0) -> PartCosts:
        return PartCosts(forward, backward, 0.0, W, 0.0, message, s)  # type: ignore[arg-type]

    time = stepped({"layer": part(tf, tb, M)}, {"layer": L / pp}, {"layer": L})
    passes = {"slowest": part(longest, message=M), "all": part(S)}
    waiting = stepped(passes, {"slowest": 1.0}, {"all": 1.0})
    transfers = bare(time.pp_comm * dp * b / gbs)  # of one micro-batch
    footprints = {"layer": Footprint(W, 0.0, s, 0.0, 0.0)}  # type: ignore[arg-type]
    pipeline = Stages((0.0,), ({"layer": L / pp},), ({"layer": L / pp},), {"layer": L})  # type: ignore[dict-item]
    rank_memory = memory(footprints, replace(plan, dp=dp, cp=m2, cp_kind="all-gather"), pipeline, gbs, PAPER)  # type: ignore[arg-type]
    lines = [
        "t_f and t_b are a layer's forward and backward time for one micro-batch, W its parameters, s what "
        "it saves and M the "
        "message to the next stage, all on one rank [s, byte]. A stage has L/pp layers and a replica "
        "gbs/dp/b micro-batches. "
        "m2 stands for cp, and is 1 but for context parallelism. Elements have 16 bits, the optimizer is "
        "Adam, the schedule 1F1B."
        "\n\n",
        formula("layers", Symbolic(sp.factor(bare(time.busy)))),
        formula("pipeline transfers", time.pp_comm),
        formula("bubble", Symbolic(bare(waiting.bubble).subs(transfers, bare(p)))),
        "<p>with S the time of all stages for one micro-batch, T_max that of the slowest, and p the pipeline "
        "transfers of one "
        "micro-batch.</p>\n",
        formula("data parallel", per_layer(AG, tf, nl) + per_layer(RS, tb, nl)),
        "<p>with AG the all-gather and RS the reduce-scatter of a layer's weights and gradients over the "
        "dp·m2 ranks that hold the "
        "same, and n_l the layers of a stage.</p>\n",
        *(formula(name, value) for name, value in rank_memory.items() if bare(value) != 0),
    ]
    return "".join(lines)


def formulas() -> str:
    """Return the page of formulas."""
    intro = (
        "# Formulas\n\nEvery formula here is printed by calling the library's own functions with symbols in "
        "place of numbers "
        "(`tools/docs/generate.py`). Divisions of shapes are whole-number divisions. "
        "Source of all of them: arXiv 2410.00273, with its [errata](errata.md) corrected. "
        "The symbols are listed in the [nomenclature](nomenclature.md).\n\n"
    )
    paper = FRAMEWORKS["paper"].strategies
    titles = {name: name if name in paper else f"{name}: what differs from context" for name in STRATEGIES}
    strategies = "\n".join(f"### {title}\n\n{sharded(name)}" for name, title in titles.items())
    parts = {
        "Operations on local shapes": (
            "operations.linear",
            "operations.elementwise",
            "operations.attention",
            vocabulary(),
        ),
        "A layer under each strategy, per rank and micro-batch, with fused attention [byte]": (
            "operations.sharding",
            strategies,
        ),
        "Times": ("times.operation_time", "step.layer_cost", "times", times()),
        "A training step and the memory of a rank": (
            "step.step_time",
            "step.data_parallelism",
            "step.optimizer",
            "step.memory",
            training_step(),
        ),
    }
    sections = [
        f"## {title}\n\n{', '.join(f'`traincast.{module}`' for module in modules)}\n\n{text}\n"
        for title, (*modules, text) in parts.items()
    ]
    return intro + "".join(sections)


def nomenclature() -> str:
    """Return the nomenclature page, from the table of quantities."""
    titles = {
        "model": "The model", "knob": "Knobs of a plan", "choice": "Choices of a plan", "result": "Results",
        "interval": "How sure results are", "time": "Components of the step time", "memory": "Components of "
                                                                                             "memory",
    }  # fmt: skip

    def section(kind: str, title: str) -> Iterator[str]:
        yield f"## {title}\n\n| name | symbol | unit | meaning |\n| --- | --- | --- | --- |\n"
        for info in COLUMNS.values():
            if info.kind == kind:
                symbol = f"`{info.symbol}`" if info.symbol else ""
                yield f"| `{info.name}` | {symbol} | {info.unit} | {info.meaning} |\n"
        yield "\n"

    intro = (
        "# Nomenclature\n\nOne table in the code (`traincast.core.nomenclature`) "
        "names every knob and result; the command line's help, the "
        "results and this page all come from it. Symbols are those of arXiv 2410.00273. Inside, everything "
        "is in FLOP, byte and "
        "second; memory is printed in GiB, bandwidth in decimal GB/s per direction.\n\n"
    )
    rest = "## Further symbols of the formulas\n\n| symbol | unit | meaning |\n| --- | --- | --- |\n"
    for symbol, unit, meaning in SYMBOLS:
        rest += f"| {symbol} | {unit} | {meaning} |\n"
    return (
        intro
        + "".join(part for kind, title in titles.items() for part in section(kind, title))
        + recipes()
        + declared_figures(Accelerator, "Figures of an accelerator")
        + declared_figures(Tier, "Figures of a tier")
        + declared_figures(System, "Figures of a cluster")
        + rest
    )


def declared_figures(part: type, title: str) -> str:
    """Return a table of the figures that a part of a machine declares."""
    optional = {item.name for item in fields(part) if item.default is not MISSING}
    rows = f"## {title}\n\n| key of a file | unit | meaning | needed |\n| --- | --- | --- | --- |\n"
    for name, hint in get_type_hints(part, include_extras=True).items():
        spec = next(
            (found for found in getattr(hint, "__metadata__", ()) if isinstance(found, FigureSpec)), None
        )
        if spec:
            meaning = spec.meaning.format(
                inside="of a tier", tier="a tier", domain="a domain of the tier", port="of one port (NIC), "
            )
            where = "; innermost tier only" * bool(spec.inner_only) + "; outer tiers only" * bool(
                spec.outer_only
            )
            needed = "" if name in optional else "yes"
            rows += f"| `{name}` | {spec.unit} | {meaning}{where} | {needed} |\n"
    return rows + "\n"


def recipes() -> str:
    """Return tables of strategies, precision recipes and optimizers."""
    text = "## Strategies\n\n| name | choices | axes |\n| --- | --- | --- |\n"
    for strategy in STRATEGIES.values():
        chosen = ", ".join(f"`{name} = {value}`" for name, value in strategy.choices.items())
        text += f"| `{strategy.name}` | {chosen} | {', '.join(strategy.axes)} |\n"
    text += "\n## Precision recipes\n\nOf a parameter, with its weight [byte].\n\n"
    text += "| name | products at | weight | master | copies | |\n" + "| --- " * 6 + "|\n"
    for recipe in PRECISIONS.values():
        sizes = f"{2 * recipe.width:g} | {recipe.master:g} | {recipe.copies:g}"
        text += f"| `{recipe.name}` | {recipe.rate} | {sizes} | {recipe.about} |\n"
    text += "\n## Optimizers\n\n| name | states of a parameter [byte] | |\n| --- | --- | --- |\n"
    for optimizer in OPTIMIZERS.values():
        text += f"| `{optimizer.name}` | {optimizer.state:g} | {optimizer.about} |\n"
    return text + "\n"


def errata(result: Reproduction) -> str:
    """Return the page on the errata of the published results, with their effect."""
    percent = lambda value: f"{100 * value:+.1f} %"  # noqa: E731
    descriptions = {
        1: "The norm of SUMMA takes rows of width l/m1 instead of e/m1, in FLOPs, bytes, weights, saved "
        "bytes and so in the "
        "pipeline message. Its all-reduce volumes are right.",
        2: "In a pipeline with several stages per fast domain, the links between domains cost nothing.",
        3: "An all-reduce inside one network tier is priced like an all-gather: one pass instead of two.",
    }
    setting = {
        number: ", ".join(f"`{name} = {value!r}`" for name, value in change.items())
        for number, change in ERRATA.items()
    }
    listed = "".join(
        f"{number}. {text} Assumption: {setting[number]}.\n" for number, text in descriptions.items()
    )
    parts = ("1", "2", "3", "all")
    single = (
        "| model | strategy | plans | "
        + " | ".join(f"erratum {p}" if p != "all" else "all three" for p in parts)
        + " |\n"
    )
    single += "| --- " * 7 + "|\n"
    for row in result.configurations:
        effect = " | ".join(
            f"{100 * row.errata_seconds[p]:.2f} % / {100 * row.errata_memory[p]:.2f} %" for p in parts
        )
        single += f"| {row.model} | {row.strategy} | {row.configurations} | {effect} |\n"
    optima = (
        "| model | strategy | mean | median | lowest | highest | feasibility changed |\n"
        + "| --- " * 7
        + "|\n"
    )
    for line in result.searches:
        change = " | ".join(percent(value) for value in line.optima_change.values()) or "nothing fits | | | "
        optima += f"| {line.model} | {line.strategy} | {change} | {line.feasibility_changes} |\n"
    return f"""# Errata of the published results

The code behind the results published with arXiv 2410.00273 departs from the model the paper describes in three places.
traincast's `assumptions="paper"` is the corrected model; `assumptions="paper-published"` puts the three back, as data and not as a
second code path, and meets the published figures.

{listed}
## Rounding

Where a degree does not divide the sequence, the published code rounds the tokens of a rank down, and both presets and the calibrated
model do the same: with 1,030 tokens and `tp2=4` a rank has 257, so that the products of linear layers are those of 1,028 tokens, 0.19 % too few.
Degrees that divide the sequence are not affected. The backward pass of SUMMA's norm all-reduces `2 * mbs * (seq // tp2)` numbers, and
`2 * mbs * seq // tp2` in the published code, as in `paper-published`: up to 2.5e-7 of the step time where `tp2` does not divide the sequence.

## Effect on the published configurations

Largest change of step time / memory over the published plans when one erratum (or all) is corrected:

{single}
## Effect on the optima

Change of the optimal step time from published to corrected, over 9 machines × 13 numbers of GPUs each:

{optima}
A search may choose another plan once the errata are corrected. `traincast reproduce 2410.00273` recomputes this page's figures.

What other sources contradict themselves in, such as stages against nodes in the slides of Cheng et al., stands among the
[insights](insights.md) and on the page of [pairs of degrees](degree_pairs.md#what-the-source-finds).
"""


def catalogue() -> str:
    """Return the page of machines, from the catalogue."""
    intro = (
        "# Catalogue of machines\n\n[Machines](machines.md) says how such files are written. `traincast "
        "catalog NAME` shows every "
        "figure with its source and basis. Rates are dense peaks; bandwidths are of one direction.\n\n## "
        "Accelerators\n\n"
    )
    parts = {
        "Systems": _systems(),
        "Frameworks": _frameworks(),
        "Facts of software": _facts(),
        "Software stacks": _stacks(),
    }
    tables = "".join(f"\n## {title}\n\n{table}" for title, table in parts.items())
    return f"{intro}{_accelerators()}{tables}"


def _frameworks() -> str:
    """Return the table of frameworks: what is searched of each, and what is held constant unless locked."""
    text = (
        "What `--framework` searches, besides degrees, micro-batch and placement, and what it holds constant but "
        "runs where it is locked ([what frameworks can run](training.md#what-frameworks-can-run)).\n\n"
        "| name | software | searched | held constant |\n| --- | --- | --- | --- |\n"
    )
    for framework in FRAMEWORKS.values():
        searched = [_values("strategy", framework.strategies)]
        searched += [_values(name, values) for name, values in framework.choices.items()]
        searched += ["`vp`"] * framework.interleaved + ["`ep`"] * framework.experts
        if framework.hybrid:
            searched.append("`replicas`" if framework.hybrid_experts else "`replicas` of dense models")
        held = [_values(name, values) for name, values in framework.held.items()]
        text += (
            f"| `{framework.name}` | {framework.version}: {framework.about.partition(': ')[2] or framework.about} "
            f"| {'; '.join(searched)} | {'; '.join(held)} |\n"
        )
    return text


def _facts() -> str:
    """Return the table of facts of software: what a table of runs and `--given` can state."""
    rows = "".join(f"| `{name}` | {fact.values} | {fact.meaning} |\n" for name, fact in FACTS.items())
    return f"| name | values | meaning |\n| --- | --- | --- |\n{rows}"


def _values(name: str, values: Iterable[Any]) -> str:
    """Return a choice with its values; of a switch that can be on and off the name alone."""
    given = [*values]
    if {True, False} <= {value for value in given if isinstance(value, bool)}:
        return f"`{name}`"
    words = {True: "on", False: "off"}
    listed = ", ".join(words[value] if isinstance(value, bool) else str(value) for value in given)
    return f"`{name}` {listed}".strip()


def _stacks() -> str:
    """Return the table of software stacks, with the differences of each from `calibrated`."""
    text = (
        "What a training framework of a year fuses, overlaps and costs. Each is a set of `Assumptions` by "
        "name "
        "(`--assumptions NAME`); here is in what it differs from `calibrated`.\n\n| name | stands for | "
        "differs in |\n"
        "| --- | --- | --- |\n"
    )
    for name in stack_names():
        usual = calibrated().values()
        differs = ", ".join(
            f"{path} {value:g}" if isinstance(value, float) else f"{path} {value}"
            for path, value in Stack(name).assumptions.values().items()
            if value != usual[path]
        )
        text += f"| `{name}` | {Stack(name).file.title} | {differs} |\n"
    return text


def _accelerators() -> str:
    """Return the table of accelerators."""
    rates = ("matrix_flops", "fp8_flops", "fp4_flops", "hbm_bandwidth", "hbm_bytes", "power")
    scales = (1e12, 1e12, 1e12, 1e9, 1e9, 1.0)
    text = (
        "| name | 16 bits [TFLOP/s] | fp8 [TFLOP/s] | fp4 [TFLOP/s] | memory [GB/s] | [GB] | power [W] |\n"
        + "| --- " * 7
        + "|\n"
    )
    for name in accelerator_names():
        values = {figure.path: figure.value for figure in figures(name)}
        shown = (
            f"{values[rate] / scale:g}" if rate in values else ""
            for rate, scale in zip(rates, scales, strict=True)
        )
        text += f"| `{name}` | {' | '.join(shown)} |\n"
    return text


def _systems() -> str:
    """Return the table of systems: accelerators joined by each tier, and bandwidth of each."""
    text = (
        "| name | accelerator | tiers: accelerators joined, bandwidth of each [GB/s] |\n| --- | --- | --- |\n"
    )
    for name in system_names():
        system = load_system(name)
        tiers = "; ".join(
            f"{tier.name} {tier.size or 'all'}, {tier.bandwidth * tier.ports / 1e9:.5g}"
            for tier in system.tiers
        )
        text += f"| `{name}` | {system.accelerator.name} | {tiers} |\n"
    return text


def pages() -> dict[str, str]:
    """Return all generated pages by file name."""
    return {
        "formulas.md": GENERATED + formulas(),
        "nomenclature.md": GENERATED + nomenclature(),
        "errata.md": GENERATED + errata(reproduce()),
        "catalogue.md": GENERATED + catalogue(),
        "scoreboard.md": GENERATED + scoreboard(),
        "export.md": GENERATED + export_page.page(),
        "json.md": GENERATED + json_page.page(),
        "commands.md": GENERATED + commands_page.page(),
        "recipes.md": recipes_page.renewed((DOCS / "recipes.md").read_text(encoding="utf-8")),
    }


def slow_pages() -> dict[str, str]:
    """Return the generated pages that take more than some seconds, by file name."""
    return {"experts.md": GENERATED + experts_page.page([*map(experts_page.compare, experts_page.runs())])}


def stated(group: replay.RunGroup, *, ranked: bool) -> Iterator[tuple[float, ...]]:
    """Yield what is stated after every trial until it is sure, each with whether it holds.

    That is the probability that the best so far is within 1 % of all, and before the trial that its plan is
    faster by more; nan of the first. `ranked`: tried in the order of the ranking.
    """
    least, seconds = np.inf, group.seconds
    for row, gain, belief in replay.try_known_plans(group.prior, seconds, ranked=ranked):
        before, least = least, min(least, float(seconds[row]))
        within, faster = belief.outlook.within, 1 + replay.TRIAL_GAIN
        yield within, least <= faster * seconds.min(), gain, faster * seconds[row] < before
        if within >= replay.STOP_PROBABILITY or len(belief.times) == len(seconds):
            return


def stated_by_tuner() -> StatedChances:
    """Return probabilities that a replay of published runs states, and whether what they are of happened."""
    groups = replay.Replay().groups("left_out")
    tuned, ranked = (
        np.array(
            [(*said, place) for place, group in enumerate(groups) for said in stated(group, ranked=ranked)],
            np.float64,
        ).T
        for ranked in (False, True)
    )
    gains = tuned[:, ~np.isnan(tuned[2])]  # nothing to gain on before the first trial
    chances = {
        "Best so far within 1 %, by the tuner": Chances(tuned[0], tuned[1], tuned[-1]),
        "Best so far within 1 %, by the ranking": Chances(ranked[0], ranked[1], ranked[-1]),
        "Next plan more than 1 % faster": Chances(gains[2], gains[3], gains[-1]),
    }
    return {title: reliability(item) for title, item in chances.items()}


def draw() -> None:
    """Draw the figures of the gallery and the scoreboard, which are kept in the repository."""
    from traincast.accuracy.validation import validate
    from traincast.analysis.step_trace import trace
    from traincast.analysis.training_limits import limits
    from traincast.step.estimates import estimate
    from traincast.ui.figures import save, timeline, utilisation_by_cluster, utilisation_by_compute
    from traincast.ui.figures.paper import paper_figures
    from traincast.ui.text.accuracy import accuracy_figure

    (DOCS / "figures").mkdir(exist_ok=True)
    save(degree_pairs(), DOCS / "figures" / "degree-pairs.svg")
    save(accuracy_figure(validate(parts=True)), DOCS / "figures" / "scoreboard.svg")
    save(reliability_figure(stated_probabilities()), DOCS / "figures" / "reliability.svg")
    save(reliability_figure(stated_by_tuner()), DOCS / "figures" / "tuning-reliability.svg")
    measured = validate(DOCS.parent / "examples" / "measured_cpu" / "steps.csv", parts=True)
    save(accuracy_figure(measured), DOCS / "figures" / "measured-steps.svg")
    data_limits = limits("h100-sxm-80")
    save(utilisation_by_cluster(data_limits), DOCS / "figures" / "limits-by-cluster.svg")
    save(utilisation_by_compute(data_limits), DOCS / "figures" / "limits-by-compute.svg")
    plan = Plan(tp=4, pp=8, vp=5, dp=4)
    save(
        timeline(trace(estimate("llama-3-70b", "dgx-h100", plan, gbs=128))), DOCS / "figures" / "timeline.svg"
    )
    for stem, figure in paper_figures():
        save(figure, DOCS / "figures" / f"{stem}.svg")


if __name__ == "__main__":
    (DOCS / "schemas").mkdir(exist_ok=True)  # of the site only, not of the repository
    for name, text in (pages() | slow_pages() | json_page.schemas()).items():
        (DOCS / name).write_text(text, encoding="utf-8")
    draw()
