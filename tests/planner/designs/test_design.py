"""Designs of machines against searches one by one, against direct sums, and as prices move."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traincast as tc
from traincast.core.errors import InputError, NothingFits
from traincast.planner.designs.design_file import load_question
from traincast.planner.designs.designs import Designs, front_of
from traincast.planner.designs.machines import Runs, search_machines
from traincast.planner.designs.part_prices import PARTS, load_prices, read_per
from traincast.planner.designs.refinement import find_designs
from traincast.planner.studies.executors import Parts

NETWORK = list(PARTS).index("network")
FILE = """
workload:
  - {model: gpt3-175b, global_batch: 1024, tokens: 300G, runs: 2, range: [1, 3]}
  - {model: llama-3-70b, global_batch: 1024, tokens: 1T}
gpus: [512, 1024]
strategies: [1d]
machines:
  - name: HBM
    base: b200-nvs8
    vary:
      accelerator.hbm_bytes: [80 GB, 192 GB]
      accelerator.hbm_bandwidth: [4 TB/s, 8 TB/s]
      network.0.size: [4, 8]
  - name: LPDDR
    base: b200-nvs8
    memory: lpddr
    vary: {accelerator.hbm_bytes: [512 GB], accelerator.hbm_bandwidth: [1 TB/s]}
systems: [dgx-h200]
offers: [{system: dgx-b200, price: 5 $/h, low: 3 $/h, high: 6 $/h, source: a test, basis: guess}]
"""


def question(folder, text=FILE):
    path = folder / "design.yaml"
    path.write_text(text, encoding="utf-8")
    return load_question(path)


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    return question(tmp_path_factory.mktemp("design"))


@pytest.fixture(scope="module")
def designs(asked):
    return find_designs(asked)


def repriced(question, name, **prices):
    parts = [replace(p, **prices) if p.name == name else p for p in question.prices.parts]
    return replace(question, prices=replace(question.prices, parts=tuple(parts)))


def test_step_times_are_those_of_a_study_of_each_machine_alone(designs):
    # the same engine, asked through `study`, one machine and one model at a time
    base, hbm = tc.load_system("b200-nvs8"), designs.parts[0]
    for machine, (size, bandwidth, domain) in enumerate(product((80e9, 192e9), (4e12, 8e12), (4, 8))):
        system = tc.load_system(f"b200-nvs{domain}").with_figures(
            {"accelerator.hbm_bytes": size, "accelerator.hbm_bandwidth": bandwidth}
        )
        for best, model in zip(hbm.found.seconds, ("gpt3-175b", "llama-3-70b"), strict=True):
            alone = tc.study(
                models=[model], systems=[system], gpus=[512, 1024], strategies=["1d"], gbs=1024,
                assumptions="calibrated",
            ).frame["step_seconds"].fill_null(np.inf)  # fmt: skip
            assert best[machine] == pytest.approx(alone.to_list(), rel=1e-12)
    assert base.fast_domain == 8


def test_cost_is_the_sum_of_parts_and_electricity_and_of_rent(designs):
    prices = {part.name: part.value for part in designs.question.prices.parts}
    row = designs.parts[0].sizes * 7 + 1  # 192 GB, 8 TB/s, domains of 8, on 1,024 GPUs: by hand
    bought = (
        2500e12 * prices["compute"] + 192e9 * prices["hbm_capacity"] + 8e12 * prices["hbm_bandwidth"]
        + 900e9 * (prices["fast_bandwidth"] + 3 * prices["fast_reach"]) + 100e9 * prices["network"]
        + prices["host"]
    )  # fmt: skip
    watts = 2500 * 0.45 + 192 * 0.2 + 8 * 25 + 900 * (0.06 + 3 * 0.02) + 100 * 1.5 + 500
    per_hour = bought * 1.4 / (35040 * 0.85) + watts / 1000 * 1.2 * 0.08
    assert designs.cost[row] == pytest.approx(designs.hours[row] * 1024 * per_hour)
    assert designs.energy[row] == pytest.approx(designs.hours[row] * 1024 * watts / 1000 * 1.2)
    rented = len(designs.cost) - 1
    assert designs.cost[rented] == pytest.approx(designs.hours[rented] * 1024 * 5)


def test_the_front_is_that_of_comparing_all_pairs():
    values = np.random.default_rng(1).integers(0, 6, (3, 200)).astype(float)
    beaten = [any((other <= row).all() and (other < row).any() for other in values.T) for row in values.T]
    found = front_of(values)
    assert not (found & np.array(beaten)).any()
    assert {tuple(row) for row in values.T[found]} == {tuple(row) for row in values.T[~np.array(beaten)]}


def test_cost_rises_with_every_price_and_less_does_not_slow(designs, asked):
    for part in asked.prices.parts:
        dearer = Designs.__new__(Designs)
        dearer.__dict__ |= {"prices": [], **{k: v for k, v in vars(designs).items() if k in STATE}}
        dearer.prices = [replace(p, value=p.value * 2) if p.name == part.name else p for p in designs.prices]
        finite = np.isfinite(designs.hours)
        assert (dearer.cost[finite] >= designs.cost[finite]).all()
        assert (dearer.cost[finite] > designs.cost[finite]).any()


STATE = ("question", "parts", "part", "within", "gpus", "run_hours", "kilowatts", "rates", "designed")


def test_more_of_a_figure_is_never_slower(designs):
    seconds = designs.parts[0].found.seconds[0].reshape(2, 2, 2, 2)  # capacity, bandwidth, domain, GPUs
    assert (seconds[1] <= seconds[0]).all()
    assert (seconds[:, 1] <= seconds[:, 0]).all()
    assert (seconds[:, :, 1] <= seconds[:, :, 0] * (1 + 1e-9)).all()


def test_beyond_a_break_even_price_another_machine_is_cheapest(designs, asked):
    moved = 0
    for found in designs.break_even:
        ends = ((found.low, found.below, 0.999), (found.high, found.above, 1.001))
        for value, row, beyond in ends:
            if row is None or found.price.name == "electricity":
                continue
            outcome = {}
            for factor in (beyond, 2 - beyond):
                again = find_designs(repriced(asked, found.price.name, value=value * factor))
                outcome[factor] = again.cheapest
            assert outcome[beyond] == row
            assert outcome[2 - beyond] == designs.cheapest
            moved += 1
    assert moved >= 2


def test_regret_is_the_worst_of_random_prices_and_reached_at_a_corner(designs):
    rng, rows = np.random.default_rng(2), designs.feasible
    worst = np.zeros(rows.sum())
    for _ in range(300):
        prices = np.array([rng.choice([p.low, p.high, rng.uniform(p.low, p.high)]) for p in designs.prices])
        runs = np.array([rng.uniform(work.low, work.high) for work in designs.question.workload])
        costs = (runs @ designs.run_hours[:, rows]) * (prices @ designs.rates[:, rows])
        worst = np.maximum(worst, costs / costs.min() - 1)
    assert (worst <= designs.regret[rows] + 1e-12).all()
    assert worst.max() > 0.5 * designs.regret[rows].max()


def test_worth_is_the_price_at_which_the_cost_of_the_workload_stays(designs, asked):
    # the machine with 10 % more FLOP/s, searched anew; its purchase costs what the worth says, not the parts
    worth = next(worth for worth in designs.worth if worth.figure == "accelerator.matrix_flops")
    row = designs.cheapest
    part, gpus = designs.parts[designs.part[row]], int(designs.gpus[row])
    machine = designs.within[row] // part.sizes
    vary = {path: (float(values[machine]),) for path, values in part.points.items()}
    more = vary | {"accelerator.matrix_flops": (float(part.figure("accelerator.matrix_flops")[0]) * 1.1,)}
    family = replace(part.family, vary=more)
    faster = find_designs(replace(asked, families=(family,), gpus=(gpus,)))
    extra = (worth.worth - worth.price) * asked.prices.per_hour * gpus * faster.hours[0]
    assert worth.worth > 0
    assert faster.cost[0] + extra == pytest.approx(designs.cost[row])


def test_sentences_say_worth_break_even_and_machines_of_today(designs):
    said = "\n".join(designs.sentences())
    for part in (
        "Cheapest machine to build: HBM",
        "Worth more than the parts cost: ",
        "Prices at which it stays the cheapest to build: ",
        "dgx-h200 (1,024 GPUs)",
        "dgx-b200, rented",
    ):
        assert part in said


def test_no_break_even_beyond_ten_times_a_price_or_below_a_tenth_is_said(designs, asked):
    """The host's was $52 million; up to ten times the price, the cheapest stays the cheapest."""
    unlimited = 0
    for of in designs.break_even:
        assert of.low == 0 if of.below is None else of.low > of.price.value / 10
        assert of.high == np.inf if of.above is None else of.high < of.price.value * 10
        if of.above is None and of.price.name != "electricity":
            again = find_designs(repriced(asked, of.price.name, value=of.price.value * 9.99))
            assert again.cheapest == designs.cheapest
            unlimited += 1
    assert unlimited
    said = "\n".join(designs.sentences())
    assert all(of.price.text(of.high) in said for of in designs.break_even if of.above is not None)


def test_the_table_has_a_row_for_each_machine_and_number_of_gpus(designs):
    frame = designs.frame()
    assert frame.height == (8 + 1 + 1 + 1) * 2
    assert frame["on_front"].sum() == designs.front.sum() > 0


def test_what_no_plan_divides_is_not_said_not_to_fit(tmp_path):
    # 7,919 is prime and divides neither batch nor layers: there is no plan, whatever the memory
    text = FILE.replace("gpus: [512, 1024]", "gpus: 7919")
    with pytest.raises(NothingFits, match=r"no plan of gpt3-175b divides it over 7,919 GPUs \(1,024"):
        _ = find_designs(question(tmp_path, text)).cheapest


def test_a_port_is_the_same_in_all_outer_tiers_and_all_are_priced(asked):
    # dgx-b200 has leaves and a spine of 50 GB/s; llama3-h100 tapers its aggregation 7 to 1
    wide = replace(asked.families[0], base=tc.load_system("dgx-b200"), vary={"network.1.bandwidth": (1e11,)})
    tapered = replace(asked.families[0], base=tc.load_system("llama3-h100"), vary=None)
    found = find_designs(replace(asked, families=(wide, tapered), gpus=(512,)))
    assert found.parts[0].grown["network.2.bandwidth"] == pytest.approx([1e11])
    assert found.parts[0].quantities[NETWORK] == pytest.approx(100e9)
    assert found.parts[1].quantities[NETWORK] == pytest.approx((50e9 + 50e9 / 7) / 2)


def test_systems_keep_their_own_pue(designs):
    row = int(np.flatnonzero(designs.part == 2)[0])
    assert tc.load_system("dgx-h200").sources["pue"]
    assert designs.kilowatts[row] == pytest.approx(512 * 1.275 * tc.load_system("dgx-h200").pue)


GRID = """
workload: [{model: llama-3-70b, global_batch: 1024, tokens: 1T, range: [0.5, 2]}]
gpus: 512
strategies: [1d]
machines:
  - name: HBM
    base: b200-nvs8
    vary:
      accelerator.matrix_flops: {logspace: [1000 TFLOP/s, 8000 TFLOP/s, 7]}
      accelerator.hbm_bytes: {logspace: [60 GB, 480 GB, 8]}
      accelerator.hbm_bandwidth: {logspace: [2 TB/s, 16 TB/s, 7]}
      network.0.size: [4, 8, 16, 32]
"""


def compare_with_every_machine(question, count):
    """Check a refined design against searches of every machine."""
    every, near = find_designs(replace(question, refine=False)), find_designs(replace(question, refine=True))
    assert near.refinement.searched < near.refinement.machines == sum(part.count for part in every.parts)
    assert near.name(near.cheapest) == every.name(every.cheapest)
    rows = np.random.default_rng(3).choice(np.flatnonzero(every.feasible), count, replace=False)
    for row in rows:  # none is more than 0.5 % faster than a machine near the front that costs no more
        as_cheap = near.feasible & (near.cost <= every.cost[row]) & (near.energy <= every.energy[row])
        assert near.hours[as_cheap].min() <= every.hours[row] * 1.005
    assert near.refinement.gap <= 0.005
    return near


def test_the_front_of_a_refined_grid_is_that_of_every_machine(tmp_path):
    text = GRID.replace("TFLOP/s, 7]", "TFLOP/s, 4]").replace("480 GB, 8]", "480 GB, 5]")
    compare_with_every_machine(question(tmp_path, text), 40)


@pytest.mark.nightly
def test_the_front_of_a_large_refined_grid_is_that_of_every_machine(tmp_path):
    asked = question(tmp_path, GRID)
    near = compare_with_every_machine(asked, 200)
    # the same winner among neighbours at other prices as well
    for name, factor in (("compute", 2), ("hbm_capacity", 3), ("hbm_bandwidth", 5), ("fast_reach", 3)):
        value = next(part.value for part in asked.prices.parts if part.name == name) * factor
        again = compare_with_every_machine(repriced(asked, name, value=value), 200)
        assert again.refinement.searched < near.refinement.machines / 2


def test_an_interrupted_design_goes_on_and_any_executor_gives_the_same(asked, designs, tmp_path):
    class Interrupted(Exception):
        pass

    def stop(done, total, candidates):
        if done == 5:
            raise Interrupted

    output = tmp_path / "machines.parquet"
    with pytest.raises(Interrupted):
        find_designs(asked, Runs(parts=Parts.for_output(asked.fingerprint, output), progress=stop))
    searched = []
    runs = Runs(
        parts=Parts.for_output(asked.fingerprint, output), progress=lambda done, *_: searched.append(done)
    )
    assert find_designs(asked, runs).frame().equals(designs.frame())
    assert searched[0] == 6  # the first five were read
    with ThreadPoolExecutor(2) as pool:
        assert find_designs(asked, Runs(pool)).frame().equals(designs.frame())
    other = replace(asked, gpus=(512,))
    with pytest.raises(InputError, match="holds finished parts of another study"):
        Parts.for_output(other.fingerprint, output)


PAPER = """
workload: [{{model: {model}, global_batch: 4096, tokens: {tokens}}}]
gpus: 1024
assumptions: paper
strategies: [1d, summa]
machines:
  - name: HBM
    base: b200-nvs8
    vary:
      accelerator.hbm_bytes: [80 GB, 192 GB, 384 GB]
      accelerator.hbm_bandwidth: [4 TB/s, 8 TB/s]
      network.0.size: [8, 64]
      accelerator.matrix_flops: [1250 TFLOP/s, 2500 TFLOP/s]
  - name: LPDDR
    base: b200-nvs8
    memory: lpddr
    vary: {{accelerator.hbm_bytes: [512 GB, 1000 GB], accelerator.hbm_bandwidth: [0.5 TB/s, 1 TB/s]}}
"""


def test_the_findings_of_the_paper_come_out(tmp_path):
    # abstract of arXiv 2410.00273: language models depend less on capacity and bandwidth of accelerators
    # long sequences on capacity and network alike
    change = {}
    for model, tokens in (("gpt3-1t", "1T"), ("vit-era5", "500G")):
        found = find_designs(question(tmp_path, PAPER.format(model=model, tokens=tokens)))
        hours = found.hours[:24].reshape(3, 2, 2, 2)  # capacity, bandwidth, domain, FLOP/s
        times = {
            "capacity": hours[2, 1, 0, 1],
            "bandwidth": hours[1, 0, 0, 1],
            "domain": hours[1, 1, 1, 1],
            "flops": hours[1, 1, 0, 0],
            "lpddr": found.hours[25],  # 512 GB at 1 TB/s
        }
        change[model] = {name: time / hours[1, 1, 0, 1] for name, time in times.items()}
    gpt, vit = change.values()
    assert gpt["flops"] > 1.8  # half the FLOP/s: compute is what a language model needs
    assert gpt["capacity"] > 0.99
    assert gpt["bandwidth"] < 1.03
    assert vit["capacity"] < 0.8  # twice the capacity needs less splitting
    assert vit["domain"] < 0.85 < 0.97 < gpt["domain"]
    assert vit["lpddr"] < 1 < gpt["lpddr"]  # capacity outweighs an eighth of the bandwidth for the ViT only
    # and LPDDR wins below a price of its capacity
    lpddr = next(of for of in found.break_even if of.price.name == "lpddr_capacity")
    assert found.name(lpddr.below).startswith("LPDDR")
    assert 0 < lpddr.low < lpddr.price.value


FACTORS = st.floats(1, 4)


@settings(max_examples=15, deadline=None)
@given(factors=st.lists(FACTORS, min_size=5, max_size=5), times=st.sampled_from((1, 2, 4)))
def test_a_machine_that_dominates_another_is_never_behind_it(asked, factors, times):
    base = {
        "accelerator.matrix_flops": 1e15,
        "accelerator.hbm_bytes": 100e9,
        "accelerator.hbm_bandwidth": 3e12,
        "network.0.bandwidth": 450e9,
        "network.1.bandwidth": 50e9,
    }
    pairs = zip(base.items(), factors, strict=True)
    points = {path: np.array([value, value * factor]) for (path, value), factor in pairs}
    points["network.0.size"] = np.array([8.0, 8.0 * times])
    machines = search_machines(asked, [(asked.families[0], points)], Runs())[0]
    less, more = machines.found.seconds.transpose(1, 0, 2)
    assert (more <= less * (1 + 1e-9)).all()
    less, more = machines.rates.reshape(-1, 2, 2).transpose(1, 0, 2)
    assert (more >= less).all()  # and asks no less of any part


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_the_least_cost_is_monotone_in_every_price(designs, data):
    values = np.array([price.value for price in designs.prices])
    dearer = values * data.draw(st.lists(FACTORS, min_size=len(values), max_size=len(values)))
    costs = [np.min((designs.hours * (of @ designs.rates))[designs.feasible]) for of in (values, dearer)]
    assert costs[1] >= costs[0]


def test_nothing_within_the_limits_names_the_nearest_miss(asked):
    few = replace(asked, limits=replace(asked.limits, days=0.001), families=asked.families[:1])
    with pytest.raises(NothingFits, match=r"the nearest is HBM .* days of 0\.001"):
        _ = find_designs(few).cheapest


def test_a_model_that_fits_nowhere_is_named(tmp_path):
    text = FILE.replace("gpus: [512, 1024]", "gpus: 4")
    with pytest.raises(NothingFits, match=r"nearest, but no plan of gpt3-175b fits: it needs \d+ GB of 512"):
        _ = find_designs(question(tmp_path, text)).cheapest


def test_all_mistakes_of_a_file_are_said_at_once(tmp_path):
    text = FILE.replace("[80 GB, 192 GB]", "[80, 192 GB]").replace("price: 5 $/h", "price: 5")
    text = text.replace("range: [1, 3]", "range: [3, 1]").replace("systems:", "sistems:")
    text = text.replace("512 GB", "-3 GB").replace("model: gpt3-175b", "model: gpt3-175x")
    with pytest.raises(InputError) as error:
        question(tmp_path, text)
    message = str(error.value)
    for part in (
        "hbm_bytes = 80: has no unit",
        "offers.0.price = 5: has no unit",
        "must contain runs",
        "unknown model 'gpt3-175x'",
        "accelerator.hbm_bytes: every value must be a finite number above 0",
        "sistems",
    ):
        assert part in message


def test_a_price_needs_its_unit():
    assert read_per("20 $/GB", "$", "byte") == pytest.approx(20e-9)
    assert read_per("25 W/TB/s", "W", "byte/s") == pytest.approx(25e-12)
    for wrong in ("20", 20, "20 $/GPU", "20 W/GB", "20 $"):
        with pytest.raises(ValueError, match="write for instance"):
            read_per(wrong, "$", "byte")
    assert all(part.low <= part.value <= part.high and part.source for part in load_prices().parts)
