"""Tables of matrix products."""

import pytest

import traincast as tc
from log_files import CLUSTER, written
from traincast.accuracy.logs import GemmRows, read


def test_gemm_example():
    reading = read(CLUSTER / "gemm.csv")
    assert isinstance(reading, GemmRows)
    assert len(reading.rows) == 18
    row = reading.rows[8]
    assert (row.m, row.n, row.k, row.batch, row.dtype, row.time_us) == (512, 4096, 14336, 8, "bf16", 722.0)


def of_gemm(folder, text, **kw):
    reading = read(written(folder, "gemm.csv", text), **kw)
    assert isinstance(reading, GemmRows)
    return reading


@pytest.mark.parametrize(
    "text",
    [
        "m,n,k,dtype,time_us\n1024,2048,4096,bf16,100.0\n",
        "M,N,K,Precision,Time (ms)\n1024,2048,4096,bfloat16,0.1\n",
        "K,M,N,dtype,us\n4096,1024,2048,torch.bfloat16,100\n",
        "m;n;k;dtype;time_ms\n1024;2048;4096;bf16;0,1\n",
        'm,n,k,dtype,time_us\n"1,024","2,048","4,096",BF16,100\n',
        "m\tn\tk\tdtype\tTFLOPS\n1024\t2048\t4096\tbf16\t171.79869184\n",
        "\ufeffM, N, K, dtype, time [µs]\r\n1024, 2048, 4096, bf16, 100.0\r\n",
        "id,m,n,k,dtype,batch,time_us,tflops\nx,1024.0,2048.0,4096.0,bf16,,,171.79869184\n",
    ],
)
def test_headers_of_products(tmp_path, text):
    """2 × 1024 × 2048 × 4096 operations in 100 µs are 171.8 TFLOP/s."""
    (row,) = of_gemm(tmp_path, text).rows
    assert (row.m, row.n, row.k, row.batch, row.dtype) == (1024, 2048, 4096, 1, "bf16")
    assert row.time_us == pytest.approx(100)


def test_left_out_rows_of_products_have_reasons(tmp_path):
    text = "m,n,k,dtype,time_us\n8,8,8,bf16,1\n8,8,x,bf16,1\n8,8,8,int4,1\n8,8,8,bf16,\n"
    text += "8192,8192,8192,bf16,1.1\n\n"
    reading = of_gemm(tmp_path, text)
    assert len(reading.rows) == 1
    assert [reason.split(":")[0] for reason in reading.left_out] == ["line 3", "line 4", "line 5", "line 6"]
    assert "another unit?" in reading.left_out[3]


def test_other_kinds_than_products_are_left_out(tmp_path):
    reading = of_gemm(tmp_path, "kind,m,n,k,dtype,us\ngemm fwd,8,8,8,bf16,1\nattention fwd,8,8,8,bf16,1\n")
    assert (len(reading.rows), reading.left_out) == (
        1,
        ("line 3: kind = 'attention fwd' is no matrix product",),
    )


def test_products_without_a_type_or_time(tmp_path):
    assert of_gemm(tmp_path, "m,n,k,us\n8,8,8,1\n", dtype="fp8").rows[0].dtype == "fp8"
    with pytest.raises(tc.InputError) as error:
        of_gemm(tmp_path, "m,n,k\n8,8,8\n")
    assert [problem.split(":")[0] for problem in error.value.problems] == ["time", "dtype"]
