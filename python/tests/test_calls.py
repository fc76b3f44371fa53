"""norm(x=x, weight=w, y=y): what arrives, by each protocol."""
import math
import threading

import pytest

from conftest import OPS
from fake_device import CudaArray, Dlpack, Exchanged, ExchangedNewer, ExchangedOwned, OldDlpack, Tensor, query, stream

ROWS, COLS = 3, 64


def tensors(kind, rows=ROWS, cols=COLS):
    x = kind([rows, cols], values=[0.01 * (i % 97) - 0.4 for i in range(rows * cols)])
    weight = kind([cols], values=[1 + i / cols for i in range(cols)])
    return x, weight, kind([rows, cols], values=[0.0] * (rows * cols))


def expected(x, weight, epsilon):
    values, scales = x.values, weight.values
    result = []
    for row in range(x.shape[0]):
        of = values[row * COLS : (row + 1) * COLS]
        scale = 1 / math.sqrt(sum(each * each for each in of) / COLS + epsilon)
        result += [each * scale * weight for each, weight in zip(of, scales)]
    return result


@pytest.mark.parametrize("kind", [Exchanged, ExchangedOwned, ExchangedNewer, Dlpack, OldDlpack, CudaArray])
def test_a_call_computes_by_each_protocol(norm, kind):
    x, weight, y = tensors(kind)
    tells_stream = kind in (Exchanged, ExchangedOwned, ExchangedNewer)
    assert norm(x=x, weight=weight, y=y, epsilon=1e-3, **({} if tells_stream else {"stream": stream()})) is None
    assert y.values == pytest.approx(expected(x, weight, 1e-3), rel=1e-5, abs=1e-6)


def test_the_exchange_is_asked_for_the_stream_once_a_call_and_not_where_it_is_given(norm):
    x, weight, y = tensors(Exchanged)
    before = Exchanged.streams_asked
    norm(x=x, weight=weight, y=y)
    assert Exchanged.streams_asked == before + 1
    norm(x=x, weight=weight, y=y, stream=stream())
    assert Exchanged.streams_asked == before + 1


def test_dlpack_is_told_the_stream_and_gets_its_tensors_back(norm):
    x, weight, y = tensors(Dlpack)
    norm(x=x, weight=weight, y=y, stream=stream())
    assert x.asked == {"stream": stream(), "max_version": (1, 1)}
    assert (x.given_back, weight.given_back, y.given_back) == (1, 1, 1)
    norm(x=x, weight=weight, y=y, stream=0)
    assert x.asked["stream"] == 1  # DLPack's name of the default stream


def test_a_stream_is_an_integer_or_an_object_of_any_library(norm):
    class Protocol:
        def __cuda_stream__(self):
            return 0, stream()

    class Torch:
        cuda_stream = stream()

    class Cupy:
        ptr = stream()

    x, weight, y = tensors(Dlpack)
    for each in (Protocol(), Torch(), Cupy()):
        norm(x=x, weight=weight, y=y, stream=each)
        assert x.asked["stream"] == stream()


def test_the_array_interfaces_own_stream_serves_where_none_is_given(norm):
    x, weight, y = tensors(CudaArray)
    x.told_stream = stream()
    norm(x=x, weight=weight, y=y, epsilon=1e-6)
    assert y.values == pytest.approx(expected(x, weight, 1e-6), rel=1e-5, abs=1e-6)


def test_strides_are_read(norm):
    wide = Exchanged([ROWS, COLS], strides=[COLS + 32, 1])
    wide.memory()[:] = [0.5 + i % 7 for i in range(wide.count)]
    _, weight, y = tensors(Exchanged)
    norm(x=wide, weight=weight, y=y)
    dense = [value for row in range(ROWS) for value in wide.values[row * (COLS + 32) : row * (COLS + 32) + COLS]]
    assert y.values == pytest.approx(expected(Exchanged([ROWS, COLS], values=dense), weight, 1e-6), rel=1e-5)


def test_values_of_one_call_do_not_stay_for_the_next(norm):
    x, weight, y = tensors(Exchanged)
    for epsilon in (1e-3, 0.5, 1e-3, 2.0):
        norm(x=x, weight=weight, y=y, epsilon=epsilon)
        assert y.values == pytest.approx(expected(x, weight, epsilon), rel=1e-5, abs=1e-6)


def test_an_empty_batch_launches_nothing(norm):
    _, weight, _ = tensors(Exchanged)
    before = query("launches")
    norm(x=Exchanged([0, COLS], address=0), weight=weight, y=Exchanged([0, COLS], address=0))
    assert query("launches") == before


def test_a_users_folder_is_an_op_without_a_build(kiln_on_fake):
    scale = kiln_on_fake.op("scale", folder=OPS)
    x = Exchanged([2, 8], values=range(16))
    y = Exchanged([2, 8])
    scale(x=x, bias=None, y=y, factor=2)
    assert y.values == [2.0 * i for i in range(16)]


def test_a_length_may_lie_in_device_memory(kiln_on_fake):
    scale = kiln_on_fake.op("scale", folder=OPS)
    x, y = Exchanged([4, 8], values=range(32)), Exchanged([4, 8], values=[-1.0] * 32)
    scale(x=x, y=y, factor=1.0, rows=Exchanged([1], "i32", values=[2]))
    assert y.values == [float(i) for i in range(16)] + [-1.0] * 16
    with pytest.raises(kiln_on_fake.Error, match="axis 'rows' is given as a tensor, expected one i32"):
        scale(x=x, y=y, factor=1.0, rows=x)


def test_threads_call_at_once(norm, kiln_on_fake):
    wrong = []

    def work(number):
        import fake_device

        fake_device.make_current()
        x, weight, y = tensors(Exchanged)
        for i in range(50):
            norm(x=x, weight=weight, y=y, epsilon=1e-3 * (number + 1))
        if y.values != pytest.approx(expected(x, weight, 1e-3 * (number + 1)), rel=1e-5, abs=1e-6):
            wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


def test_problems_are_prepared_covered_and_explained(norm, kiln_on_fake):
    found = kiln_on_fake.prepare(norm, rows=range(1, 100), cols=[64, 128], dtype="f32", stream=stream())
    assert (found.total, found.hits, found.capturable) == (198, 0, True)
    assert {gap["serves"] for gap in found.gaps} <= {"default", "model"}
    assert kiln_on_fake.coverage(norm, rows=5, cols=64, dtype="f32").total == 1
    assert "rows=5" in kiln_on_fake.explain(norm, rows=5, cols=64, dtype="f32")
    assert kiln_on_fake.stats()["compiles"] > 0
    assert kiln_on_fake.stats(device=7)["hot"] == 0
    assert kiln_on_fake.check(stream()) is None
    assert kiln_on_fake.wait_for_tunes(0)


def test_an_op_tells_what_it_takes(norm, kiln_on_fake):
    assert "x: dtype [rows, cols], strides [x_row_stride, 1]; reads" in norm.contract
    assert "rows: 1 to 67108864; may be a tensor of one i32" in norm.__doc__
    assert "epsilon: f32 = " in norm.contract and "x_row_stride: " not in norm.contract  # which is read from x
    assert "scale: f32 = 1, above 0" in kiln_on_fake.op("softmax").contract
    assert norm.describe(rows=2, cols=64, dtype="f32")["tensors"][0]["sizes"] == [2, 64]
    assert repr(norm) == "kiln.op('rms_norm')"
    import pydoc

    assert "epsilon: f32 = 1e-6" in pydoc.plaintext.document(norm) or "epsilon" in pydoc.render_doc(norm)
