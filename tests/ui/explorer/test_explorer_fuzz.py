"""Random requests to the explorer get answers or clear errors; TRAINCAST_FUZZ=10000 sends more.

The server answers in the process of the tests, whose memory is limited: a request that takes it all gets a
status of 500.
"""

import json
import os
from dataclasses import asdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from bounded_memory import bounded_memory
from traincast.core.knobs import ALLOWED_VALUES
from traincast.ui.explorer.app import POST_QUESTIONS, application
from traincast.ui.explorer.question import FIELDS, LOCKS, State
from traincast.ui.explorer.worker_pool import Pool

REQUESTS = int(os.environ.get("TRAINCAST_FUZZ", "30"))  # of each kind
PARTS = max(REQUESTS // 1000, 1)  # for workers to share; each draws others
pytestmark = pytest.mark.random
SECONDS = 1.0  # a search of millions is cut off
MAX_BYTES = 2 << 30  # of memory of the server, above what it starts with; its caches take a tenth

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 1, 2**31, 2**63, 10**400]),
    st.floats(),
    st.text(max_size=12),
)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=8,
)
sizes = st.sampled_from([1, 2, 3, 4, 8, 12, 16, 64, 72, 100, 512])
EXTREME = [1e308, -1e308, 1e300, 1e-300, 5e-324, float("inf"), float("nan"), 2**53 + 1, 10**400]
numbers = st.one_of(
    st.floats(min_value=1e-12, max_value=1e18),
    st.sampled_from(["400 Gb/s", "2 us", "80 GiB", "1 PFLOP/s", "7 furlongs"]),
    st.sampled_from([*EXTREME, "1e308 GB/s", "inf us", "1e-320 GB/s", "9" * 400]),
)
paths = st.sampled_from(
    [
        f"accelerator.{name}"
        for name in ("matrix_flops", "vector_flops", "hbm_bandwidth", "hbm_bytes", "hbm_sustained", "power")
    ]
    + [
        f"network.{i}.{name}"
        for i in (0, 1, 2, 7)
        for name in ("bandwidth", "efficiency", "latency", "ports", "size", "launch")
    ]
)
configs = st.fixed_dictionaries(
    {"model_type": st.sampled_from(["llama", "mistral", "qwen2", "gpt2", "deepseek_v3", "mixtral", "bert"])},
    optional={
        name: st.one_of(sizes, st.sampled_from([256, 1024, 4096, 32000]), scalars)
        for name in (
            *(
                "hidden_size",
                "num_hidden_layers",
                "num_attention_heads",
                "num_key_value_heads",
                "intermediate_size",
                "vocab_size",
            ),
            *(
                "max_position_embeddings",
                "tie_word_embeddings",
                "num_local_experts",
                "num_experts_per_tok",
                "sliding_window",
            ),
        )
    },
)
knobs = st.dictionaries(
    st.sampled_from(LOCKS),
    st.one_of(
        sizes, scalars, st.sampled_from([value for values in ALLOWED_VALUES.values() for value in values])
    ),
    max_size=5,
)
LIKELY = {
    "model": st.one_of(
        st.sampled_from(["gpt-125m", "llama-3-8b", "mixtral-8x7b", "vit-l-16", "deepseek-v2-lite"]), configs
    ),
    "system": st.sampled_from(
        ["dgx-h100", "h200-nvs8", "gb200-nvl72", "tpu-v4-pod", "perlmutter", "h100-nvs3"]
    ),
    "figures": st.dictionaries(paths, numbers, max_size=3),
    "gpus": sizes,
    "global_batch": st.one_of(sizes, st.integers(1, 4096)),
    "seq": st.sampled_from([1, 7, 512, 8192, 1 << 20]),
    "framework": st.sampled_from(["megatron", "torchtitan", "deepspeed", "nanotron", "paper", "any"]),
    "strategy": st.lists(
        st.sampled_from(["1d", "summa", "context", "ring", "ulysses", "hybrid", "2d"]), max_size=3
    ),
    "objective": st.sampled_from(["time", "cost", "memory"]),
    "assumptions": st.sampled_from(["calibrated", "paper", "paper-published", "torchtitan-2025"]),
    "locks": knobs,
    "top": st.integers(1, 50),
    "tokens": st.sampled_from(["15T", "1", 3e12, *EXTREME]),
    "price": st.one_of(st.floats(0, 10), st.sampled_from(EXTREME)),
    "restart": st.one_of(st.integers(0, 3600), st.sampled_from(EXTREME)),
    "plan": knobs,
    "sizes": st.lists(sizes, max_size=4),
}
likely = st.fixed_dictionaries({}, optional=LIKELY)
odd = st.builds(
    lambda state, name, value: state | {name: value},
    likely,
    st.sampled_from([*FIELDS, "plan", "sizes", "x"]),
    anything,
)


def for_kind(kind, content):
    """What one kind of request takes, of a content of everything."""
    wanted = {"plan": ("plan",), "timeline": ("plan",), "copy": ("plan",), "scaling": ("sizes",)}.get(
        kind, ()
    )
    return {name: value for name, value in content.items() if name not in ("plan", "sizes") or name in wanted}


@pytest.fixture(scope="module")
def client():
    with (
        TestClient(
            application(lambda: Pool(workers=2, seconds=SECONDS)),
            base_url="http://localhost",
            raise_server_exceptions=False,
        ) as client,
        bounded_memory(MAX_BYTES),
    ):
        yield client


def answered(response):
    """An answer is JSON without NaN, and where it is none it says why."""
    assert response.status_code in (200, 400, 413, 415, 422), (response.status_code, response.text[:300])
    content = json.loads(response.content, parse_constant=lambda text: pytest.fail(f"{text} in an answer"))
    if response.status_code != 200:
        assert content["error"]["problems"]
        assert all(isinstance(problem, str) and problem for problem in content["error"]["problems"])
    return response.status_code


quick = settings(
    max_examples=REQUESTS // PARTS, deadline=None, suppress_health_check=list(HealthCheck), database=None
)
in_parts = pytest.mark.parametrize("part", range(PARTS))


@quick
@given(kind=st.sampled_from(POST_QUESTIONS), content=st.one_of(likely, odd))
@in_parts
def test_states(client, part, kind, content):
    body = json.dumps(for_kind(kind, content))
    answered(client.post(f"/api/{kind}", content=body, headers={"content-type": "application/json"}))


@quick
@given(
    kind=st.sampled_from(POST_QUESTIONS),
    body=st.one_of(st.binary(max_size=200), anything.map(lambda content: json.dumps(content).encode())),
)
@in_parts
def test_bodies(client, part, kind, body):
    answered(client.post(f"/api/{kind}", content=body, headers={"content-type": "application/json"}))


@quick
@given(
    query=st.dictionaries(
        st.one_of(st.sampled_from([*FIELDS, *LOCKS, "pin"]), paths, st.text(max_size=8)),
        st.one_of(
            st.text(max_size=20), sizes, st.sampled_from(["gpt-125m", "dgx-h100", "{}", "nan", "1e999"])
        ),
        max_size=4,
    )
)
@in_parts
def test_addresses(client, part, query):
    response = client.get(
        "/api/plans.csv", params={"gpus": 8, "model": "gpt-125m", "global_batch": 8} | query
    )
    assert response.status_code in (200, 422), response.text[:300]
    assert client.get("/", params=query).status_code == 200


def test_default_state_is_answered(client, monkeypatch):
    monkeypatch.setattr(client.app.state.pool, "seconds", 600.0)  # however slow the machine is
    question = asdict(State())
    answered(client.post("/api/search", json=question))  # perhaps that of the warm-up, which is cut off
    assert answered(client.post("/api/search", json=question)) == 200
