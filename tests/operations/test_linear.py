"""Linear layers by hand: what each pass reads, writes, casts and sends."""

from traincast.operations.linear import MatmulSizes, linear, summa_linear

# Operands of 1 byte, gradients of weights added up in fp32 (read and written), each cast read at 2 bytes and
# written twice at 1.
FP8 = MatmulSizes(2.0, operand=0.5, accumulated=4.0, casts=1.0, weight_casts=1.0, low=True, saved_operand=0.5)


def test_a_linear_layer_in_fp8_by_hand():
    """16 tokens from 24 to 40 columns; results and their gradients have 2 bytes."""
    x, w, y = 16 * 24, 24 * 40, 16 * 40
    op = linear("fc", FP8, 16.0, 24.0, 40.0)
    assert op.forward.cast == (2 + 2) * (x + w)
    assert op.forward.nbytes == x + w + 2 * y + op.forward.cast
    assert op.backward.cast == (2 + 2) * y  # the operands of weights stay from forward
    assert op.backward.nbytes == y + w + 2 * x + op.backward.cast
    assert op.weight.nbytes == x + y + 8 * w
    assert [work.written for work in (op.forward, op.backward, op.weight)] == [2 * y, 2 * x, 8 * w]
    assert (op.weights, op.saved_bytes, op.gradient_bytes) == (w, x, 2 * (x + y))


def test_a_summa_product_in_fp8_by_hand():
    """16 tokens, 24 to 40 columns on 4 x 2 ranks in 3 panels: all inputs pass by, and 10 columns of results.

    Each panel reads and adds to the result of 2 bytes; what is sent has 2 bytes, a third in each panel.
    """
    x, w, y = 16 * 24, 24 * 10, 16 * 10
    op = summa_linear("fc", FP8, 16.0, 24.0, 40.0, (4.0, 2.0, 3.0))
    assert op.forward.cast == (2 + 2) * (x + w)
    assert op.forward.nbytes == x + w + 3 * 2 * y + op.forward.cast
    assert op.backward.cast == (2 + 2) * y
    assert op.backward.nbytes == x + w + 3 * 2 * y + op.backward.cast
    assert op.weight.nbytes == x + 3 * 2 * y + 8 * w
    assert [work.written for work in (op.forward, op.backward, op.weight)] == [3 * 2 * y, 3 * 2 * y, 8 * w]
    of_x = (2 * x / 3, "tp")
    of_w = (2 * w / 3, "tp2")
    sent = [[(c.kind, c.nbytes, c.over) for c in p.collectives] for p in (op.forward, op.backward, op.weight)]
    assert sent == [
        [("broadcast", *of_x), ("broadcast", *of_w)],
        [("broadcast", *of_w), ("reduce", *of_x)],
        [("broadcast", *of_x), ("reduce", *of_w)],
    ]
    assert (op.weights, op.saved_bytes) == (24 / 2 * 10, 16 * 24 / 4)
