"""Collectives, classes of operations and FLOPs of a sequence."""

import pytest

import traincast as tc
from traincast.analysis.operation_anatomy import anatomy


def test_gpt3_1t_as_the_papers_notebook_counts_it():
    """stats.ipynb of arXiv 2410.00273: 12.57 PFLOP of a sequence, MLP to attention 1.907.

    There, softmax and dropout inside fused attention count X = 990/134 times each, the ratio of the H200's
    matrix and vector rates: X - 1 more of 19 heads x rows x keys (b h l² = 671.1e6 a layer): 12.56 here.
    """
    est = tc.estimate("gpt3-1t", "h200-nvs4", tc.Plan(tp=4, pp=32, dp=16, fast_tp=4), gbs=4096)
    result = anatomy(est)
    chip = est.system.accelerator
    extra = chip.matrix_flops / chip.vector_flops - 1
    heads = est.model.heads * est.model.seq**2  # rows x keys of a layer
    vector = (3 + 1) * heads + (4 + 1) * heads + (3 + 1) * heads  # forward, backward, forward again
    scaled = result.sequence_flops + est.model.layers * extra * vector
    assert scaled == pytest.approx(12.57e15, rel=5e-4)
    mlp = result.sequence_flops * result.mlp_to_attention / (1 + result.mlp_to_attention)
    assert mlp / (scaled - mlp) == pytest.approx(1.907, rel=5e-4)


def test_collectives_of_a_layer_by_hand():
    """Sequence parallelism gathers and scatters 2 bytes of 2,048 x 25,600 at norm and products, once each."""
    est = tc.estimate("gpt3-1t", "h200-nvs4", tc.Plan(tp=4, pp=32, dp=16, fast_tp=4), gbs=4096)
    rows = anatomy(est).collectives
    assert {row.nbytes for row in rows} == {2.0 * 2048 * 25600}
    assert [row.collective for row in rows if row.direction == "forward"].count("all-gather") == 2
    assert {row.over for row in rows} == {"tp"}


def test_a_rank_alone_communicates_nothing():
    est = tc.estimate("gpt-1.3b", "dgx-h100", tc.Plan(), gbs=8)
    assert anatomy(est).collectives == []


def test_shares_of_classes_are_shares():
    est = tc.estimate("mixtral-8x7b", "dgx-h100", tc.Plan(tp=2, ep=4, dp=4), gbs=64)
    result = anatomy(est)
    for name in ("flops_share", "bytes_share", "seconds_share"):
        assert sum(getattr(row, name) for row in result.classes) == pytest.approx(1)
    shares = {row.name: row for row in result.classes}
    assert shares["contractions"].flops_share > 0.99  # Ivanov et al. (arXiv 2007.00072): 99.80 % for BERT
    assert shares["contractions"].seconds_share < 0.99
