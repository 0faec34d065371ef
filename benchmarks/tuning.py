"""Speed of the belief over 100,000 candidates, and trials beside those of Optuna where it is installed.

`python benchmarks/tuning.py`; `pip install optuna` for the second. Optuna's TPE begins with the plan that is
predicted to be the fastest; repeated suggestions are free, and an impossible one means the nearest plan.
"""

import statistics
import time

import numpy as np

from traincast.planner.answers.rankings import PLAN_DEGREES, PLAN_KINDS, plan_distance
from traincast.tuner.belief import TRIAL_GAIN, Belief, Prior
from traincast.tuner.replay import Replay, RunGroup, replay

CANDIDATES = 100_000
TRIALS = 8
SUGGESTIONS = 300  # at most in a group
SEEDS = 3
STARTUP = 4  # random trials of TPE


def belief_seconds() -> tuple[float, float]:
    """Return the time to learn one trial and choose the next, and to say how sure that is [s]."""
    rng = np.random.default_rng(0)
    prior = Prior(
        seconds=np.sort(rng.uniform(1.0, 2.0, CANDIDATES)),
        memory=rng.uniform(0.5, 1.1, CANDIDATES),
        shares={name: rng.uniform(0.0, 0.4, CANDIDATES) for name in ("communication", "bubble")},
        coordinates=rng.integers(0, 5, (CANDIDATES, len(PLAN_DEGREES) + len(PLAN_KINDS))).astype(np.float64),
        capacity=1.0,
    )
    belief, chosen, said = Belief(prior), [], []
    for _ in range(TRIALS):
        begin = time.perf_counter()
        row = belief.choose()
        belief.time(row, 1.1 * prior.seconds[row])
        chosen.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        _ = belief.outlook
        said.append(time.perf_counter() - begin)
    return statistics.median(chosen[1:]), statistics.median(said[1:])


def optuna_trials(group: RunGroup, seed: int) -> int:
    """Return the trials of Optuna to within 1 % of the group's best."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    coordinates, good = group.prior.coordinates, group.seconds <= (1 + TRIAL_GAIN) * group.seconds.min()
    varied = np.flatnonzero(np.ptp(coordinates, axis=0))
    space = {str(knob): np.unique(coordinates[:, knob]).tolist() for knob in varied}
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
    study = optuna.create_study(sampler=sampler)
    first = int(np.argmin(group.prior.seconds))
    study.enqueue_trial({str(knob): float(coordinates[first, knob]) for knob in varied})
    tried: list[int] = []
    for _ in range(SUGGESTIONS):
        trial = study.ask()
        wanted = coordinates[first].copy()
        for name, values in space.items():
            wanted[int(name)] = trial.suggest_categorical(name, values)
        row = int(np.argmin(plan_distance(coordinates, wanted)))
        if row not in tried:
            tried.append(row)
            if good[row]:
                return len(tried)
        study.tell(trial, float(group.seconds[row]))
    return len(group.seconds)


def main() -> None:
    chosen, said = belief_seconds()
    print(f"next of {CANDIDATES:,} candidates  {chosen:.3f} s, and how sure that is {said:.3f} s")
    try:
        import optuna  # noqa: F401
    except ImportError:
        print("Optuna is not installed: pip install optuna")
        return
    groups = Replay().groups("left_out")
    own = [replay(group).to_best for group in groups]
    others = [[optuna_trials(group, seed) for group in groups] for seed in range(SEEDS)]
    every = np.array(others, np.float64)
    for name, trials in (("the tuner", np.array(own)), ("Optuna's TPE, same first plan", every)):
        figures = f"{trials.mean():.2f} in the mean, at most {np.quantile(trials, 0.9):.0f} in 90 %"
        print(f"trials to 1 % of {len(groups)} groups, {name}: {figures}")


if __name__ == "__main__":
    main()
