"""Each wrong input is refused in a sentence with its remedy; nothing crashes or is copied."""
import copy
import ctypes
import pickle

import pytest

import kiln
from fake_device import HOST, CudaArray, Dlpack, Exchanged, Tensor, control, driver, stream


class Said:
    def __init__(self, interface):
        self.__cuda_array_interface__ = interface


class Placed(Dlpack):
    def __init__(self, place):
        super().__init__([3, 64])
        self.place = place

    def __dlpack_device__(self):
        return self.place


def freed():
    address = Tensor([3, 64]).address
    assert driver().cuMemFree_v2(ctypes.c_uint64(address)) == 0
    return address


def refused(norm, kind="bad_input", **given):
    weight = given.pop("weight", None) or Exchanged([64], values=[1.0] * 64)
    given = {"x": Exchanged([3, 64], values=[1.0] * 192), "y": Exchanged([3, 64]), "weight": weight, **given}
    with pytest.raises(kiln.Error) as caught:
        norm(**{name: value for name, value in given.items() if value != "left out"})
    assert caught.value.kind == kind
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"x": lambda: Exchanged([3, 64], "f16")}, "tensor 'y' is f32, expected dtype = f16, as another tensor is"),
        ({"x": lambda: Exchanged([3, 64], "c64")}, "tensor 'x' has elements of DLPack's type 5 with 64 bits, expected bf16"),
        ({"x": lambda: Exchanged([192])}, "tensor 'x' has 1 dimension, expected 2: [rows, cols]"),
        ({"x": lambda: Exchanged([1, 1, 1, 3, 64])}, "tensor 'x' has 5 dimensions, expected at most 4"),
        ({"x": lambda: Exchanged([3, 64], strides=[64, 2])}, "tensor 'x' has stride 2 in dimension 1, expected 1"),
        ({"x": lambda: Exchanged([3, 64], strides=[64, -1])}, "tensor 'x' has stride -1 in dimension 1"),
        ({"y": lambda: Exchanged([4, 64])}, "tensor 'y' of shape [rows, cols] has 4 in dimension 0, expected rows = 3 as in 'x'"),
        ({"x": lambda: Exchanged([3, 64], device_type=HOST)}, "tensor 'x' lies in host memory, expected memory of a CUDA device; copy it there"),
        ({"x": lambda: Dlpack([3, 64], device_type=HOST), "stream": stream}, "tensor 'x' lies in host memory"),
        ({"x": lambda: Exchanged([3, 64], device_type=8)}, "tensor 'x' lies on a device of DLPack's type 8, expected a CUDA device"),
        ({"y": lambda: Exchanged([3, 64], device=1)}, "tensor 'y' lies on device 1, expected memory of device 0"),
        ({"x": lambda: Exchanged([3, 64], address=0)}, "tensor 'x' has the address null, expected device memory"),
        ({"x": lambda: None}, "tensor 'x' is not given"),
        ({"y": lambda: Dlpack([3, 64], read_only=True), "stream": stream}, "tensor 'y' is read-only, and the op writes it"),
        ({"y": lambda: CudaArray([3, 64], read_only=True), "stream": stream}, "tensor 'y' is read-only, and the op writes it"),
        ({"x": lambda: [[1.0] * 64] * 3}, "tensor 'x' is a list, expected an object with __dlpack_c_exchange_api__, __dlpack__ or"),
        ({"x": lambda: 1.5}, "tensor 'x' is a float, expected an object with"),
        ({"inputs": lambda: 1}, "'inputs' is no name of this op; it takes x, "),
        ({"epsilon": lambda: "small"}, "run-time value 'epsilon' is a str, expected a number"),
        ({"rows": lambda: 1.5}, "axis 'rows' is a float, expected an int"),
        ({"rows": lambda: 1 << 70}, "axis 'rows' is past 64 bits"),
        ({"rows": lambda: 4}, "expected rows = 4 as given"),
        ({"dtype": lambda: 3}, "type or choice 'dtype' is a int, expected a str"),
        ({"residual": lambda: "subtract"}, "subtract"),
        ({"stream": lambda: -1}, "a stream is no address"),
        ({"stream": lambda: "main"}, "stream is a str, expected an integer or an object"),
        ({"rows": lambda: Exchanged([1], "i32", device_type=HOST)}, "tensor 'rows' lies in host memory"),
        ({"rows": lambda: Exchanged([1], "i32", address=0)}, "axis 'rows' is given as a tensor, and its address is null or no multiple of 4"),
        ({"rows": lambda: Exchanged([1], "i32", device=1)}, "an axis is given as a tensor on device 1, and the tensors lie on device 0"),
        ({"x": lambda: Exchanged([-3, 64])}, "-3"),
        ({"x": lambda: Exchanged([1 << 62, 64], address=4096)}, "rows"),
        ({"x": lambda: CudaArray([3, 64], address=4096), "stream": stream}, "no allocation of CUDA holds: it was freed, or lies in host memory"),
        ({"x": lambda: CudaArray([3, 64], address=freed()), "stream": stream}, "no allocation of CUDA holds: it was freed, or lies in host memory"),
        ({"x": lambda: Said({"shape": (3, 64)}), "stream": stream}, "has a __cuda_array_interface__ that cannot be read: '"),
        ({"x": lambda: Said([]), "stream": stream}, "has a __cuda_array_interface__ that cannot be read"),
        ({"x": lambda: Said({"shape": 3, "typestr": "<f4", "data": None}), "stream": stream}, "has a __cuda_array_interface__ that cannot be read"),
        ({"x": lambda: Said({"shape": (3, 64), "typestr": "<f4", "data": (1 << 80, False)}), "stream": stream}, "that cannot be read"),
        ({"x": lambda: Said({"shape": (3, 64), "typestr": ">f4", "data": (0, False)}), "stream": stream}, "expected a little-endian f, i or u"),
        ({"x": lambda: Said({"mask": 1}), "stream": stream}, "has a mask, expected one without"),
        ({"x": lambda: Placed("here"), "stream": stream}, "has a __dlpack_device__ that gives no pair of integers"),
        ({"x": lambda: Placed((2,)), "stream": stream}, "has a __dlpack_device__ that gives no pair of integers"),
        ({"x": lambda: Placed((2, 1 << 40)), "stream": stream}, "has a __dlpack_device__ that gives no pair of integers"),
    ],
)
def test_a_call_is_refused_in_a_sentence(norm, given, sentence):
    assert sentence in refused(norm, **{name: make() for name, make in given.items()})


def test_a_stream_must_be_given_where_no_tensor_tells_it(norm):
    x, weight, y = Dlpack([3, 64]), Dlpack([64]), Dlpack([3, 64])
    for kind in (Dlpack, CudaArray):
        sentence = refused(norm, x=kind([3, 64]), weight=kind([64]), y=kind([3, 64]))
        assert "stream is not given; pass stream=, an integer or a stream object, where 0 is the default stream" in sentence


def test_outputs_that_share_memory_with_inputs_in_part_are_refused(norm):
    memory = Exchanged([4, 64])
    sentence = refused(norm, x=Exchanged([3, 64], address=memory.address), y=Exchanged([3, 64], address=memory.address + 256))
    assert "share memory" in sentence


def test_arguments_by_position_are_refused(norm):
    with pytest.raises(kiln.Error, match="expected keywords alone"):
        norm(Exchanged([3, 64]))


def test_what_a_tensors_own_library_raises_arrives(norm):
    class Broken(Dlpack):
        def __dlpack__(self, **asked):
            raise BufferError("is sparse")

    with pytest.raises(BufferError, match="is sparse"):
        norm(x=Broken([3, 64]), weight=Dlpack([64]), y=Dlpack([3, 64]), stream=stream())


def test_a_refused_call_gives_its_tensors_back(norm):
    x = Dlpack([3, 64])
    refused(norm, x=x, y=Dlpack([5, 64]), weight=Dlpack([64]), stream=stream())
    assert x.given_back == 1


def test_an_unknown_op_is_told_at_first_use(kiln_on_fake):
    nothing = kiln_on_fake.op("no_such_op")
    with pytest.raises(kiln.Error, match="no_such_op"):
        nothing(x=Exchanged([3, 64]))
    with pytest.raises(kiln.Error, match="no_such_op"):
        nothing.contract
    assert "could not be read" in nothing.__doc__


def test_problems_that_make_no_sense_are_refused(norm, kiln_on_fake):
    for problem, sentence in [
        ({"rows": range(0), "cols": 64}, "'rows' has no sizes"),
        ({"rows": 1}, "cols"),
        ({"rows": range(1, 2_000_000), "cols": 64}, "expected 1 to 1000000"),
        ({"rows": 1, "cols": 64, "x": 3}, "'x' is none of them"),
        ({"rows": 1, "cols": 64, "length": 3}, "'length' is no name of this op"),
    ]:
        with pytest.raises(kiln.Error, match=sentence):
            kiln_on_fake.prepare(norm, **problem)


def test_what_is_no_op_and_no_device_is_refused(norm, kiln_on_fake):
    for refused_call, sentence in [
        (lambda: kiln_on_fake.prepare("rms_norm", rows=1, cols=64), "an op is expected, as kiln.op\\(\\) gives it, and a str is given"),
        (lambda: kiln_on_fake.prepare(norm, rows=1, cols=64, device=-1), "device is -1, expected the ordinal"),
        (lambda: kiln_on_fake.prepare(norm, rows=1, cols=64, device="cuda"), "device is 'cuda', expected the ordinal"),
        (lambda: kiln_on_fake.prepare(norm, rows=1, cols=64, device=1000), "device 1000 is asked for"),
        (lambda: kiln_on_fake.prepare(norm, rows=[1.5], cols=64), "sizes of 'rows' are no ints"),
        (lambda: kiln_on_fake.explain(norm, rows=[1, 2], cols=64), "one problem is explained"),
        (lambda: kiln_on_fake.wait_for_tunes(float("nan")), "0 seconds or more"),
        (lambda: kiln_on_fake.stats(device=1.5), "device is 1.5"),
    ]:
        with pytest.raises(kiln.Error, match=sentence):
            refused_call()
    assert kiln_on_fake.wait_for_tunes(float("inf"))


def test_configure_is_refused_after_the_first_use(norm, kiln_on_fake):
    norm.contract
    with pytest.raises(kiln.Error, match="kiln.configure was called after Kiln's first use"):
        kiln_on_fake.configure(on_miss="error")
    with pytest.raises(kiln.Error, match="on_miss is 'never', expected one of: tune, background, nearest, error"):
        kiln_on_fake.configure(on_miss="never")
    with pytest.raises(kiln.Error, match="put it into a list"):
        kiln_on_fake.configure(bases="llama.kiln")


def test_a_driver_that_fails_is_told_by_kind(norm):
    x = Exchanged([3, 64], values=[1.0] * 192)
    given = {"x": x, "weight": Exchanged([64], values=[1.0] * 64), "y": Exchanged([3, 64])}
    norm(**given)
    control("fail cuLaunchKernel CUDA_ERROR_INVALID_VALUE at 1; fail cuLaunchKernelEx CUDA_ERROR_INVALID_VALUE at 1")
    try:
        with pytest.raises(kiln.Error) as caught:
            norm(**given)
    finally:
        control("heal")
    assert caught.value.kind == "driver_failed"


def test_an_error_keeps_its_kind_when_it_is_pickled():
    error = pickle.loads(pickle.dumps(kiln.Error("it is not so", "not_tuned")))
    assert (str(error), error.kind) == ("it is not so", "not_tuned")


class Pair:
    def __init__(self, told):
        self.told = told

    def __cuda_stream__(self):
        return self.told


@pytest.mark.parametrize("told", ["x", (0,), (0, "1"), (0, 1, 2), None])
def test_a_stream_that_gives_no_handle_is_refused(norm, told):
    assert "stream has a __cuda_stream__ that gives no pair of a version and a handle" in refused(norm, stream=Pair(told))


def test_a_tensor_whose_export_is_no_new_capsule_is_refused(norm):
    class Nothing(Dlpack):
        def __dlpack__(self, **asked):
            return None

    class Again(Dlpack):
        def __dlpack__(self, **asked):
            self.made = getattr(self, "made", None) or super().__dlpack__(**asked)
            return self.made

    assert "'x' has a __dlpack__ that gives a NoneType, expected a new capsule" in refused(norm, x=Nothing([3, 64]), stream=stream())
    again = Again([3, 64], values=[1.0] * 192)
    norm(x=again, weight=Exchanged([64], values=[1.0] * 64), y=Exchanged([3, 64]), stream=stream())
    assert "gives a capsule that was taken before, or of another kind, expected a new capsule" in refused(norm, x=again, stream=stream())


def test_an_op_is_copied_and_pickled_by_its_name(norm):
    for again in (copy.copy(norm), copy.deepcopy({"norm": norm})["norm"], pickle.loads(pickle.dumps(norm))):
        assert (type(again), again.name, again.folder) == (kiln.Op, norm.name, norm.folder)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"bases": 5}, "bases is 5, expected a list of paths"),
        ({"bases": [5]}, "a base is a int, expected a path: a str or an os.PathLike"),
        ({"bases": ["a\0b.kiln"]}, "expected text in UTF-8 without null characters"),
        ({"bases": ["\ud800.kiln"]}, "expected text in UTF-8 without null characters"),
        ({"bases": b"a.kiln"}, "put it into a list"),
        ({"overlay": 3}, "overlay is a int, expected a path"),
        ({"remote": 5}, "remote is 5, expected a str"),
        ({"compile_workers": "4"}, "compile_workers is '4', expected an int from 0 to 2147483647"),
        ({"compile_workers": True}, "compile_workers is True, expected an int"),
        ({"compile_workers": -3}, "compile_workers is -3, expected an int from 0"),
        ({"compile_ahead": 1 << 40}, "compile_ahead is 1099511627776, expected an int from -1 to 2147483647"),
        ({"search_trials": 2.5}, "search_trials is 2.5, expected an int"),
        ({"search_seconds": float("nan")}, "search_seconds is nan, expected seconds, 0 or more"),
        ({"search_seconds": float("inf")}, "search_seconds is inf, expected seconds"),
        ({"search_seconds": "3"}, "search_seconds is '3', expected seconds"),
        ({"histogram": "yes"}, "histogram is 'yes', expected True or False"),
        ({"on_miss": ["tune"]}, "on_miss is \\['tune'\\], expected one of"),
    ],
)
def test_options_of_another_type_are_refused_by_name(given, sentence):
    with pytest.raises(kiln.Error, match=sentence):
        kiln.configure(**given)


def test_what_is_no_name_no_size_and_no_time_is_refused(norm, tmp_path):
    tuner = kiln.Tuner()
    for refused_call, sentence in [
        (lambda: kiln.op(5), "an op's name is a int, expected a str"),
        (lambda: kiln.op(b"rms_norm"), "an op's name is a bytes, expected a str"),
        (lambda: kiln.op("rms\0norm"), "expected text in UTF-8 without null characters"),
        (lambda: kiln.op("mine", folder=7), "the folder of ops is a int, expected a path"),
        (lambda: tuner.add(norm, rows=range(1, 10**12), cols=64), "'rows' has more sizes than Kiln lists, expected 1 to 1000000; a bucket holds many"),
        (lambda: tuner.add(norm, rows=iter(int, 1), cols=64), "'rows' has more sizes than Kiln lists"),
        (lambda: tuner.add(norm, rows=b"abc", cols=64), "axis 'rows' is a bytes, expected an int"),
        (lambda: kiln.Tuner(device=True), "device is True, expected the ordinal"),
        (lambda: tuner.deploy(5), "the file to deploy is a int, expected a path"),
        (lambda: kiln.wait_for_tunes("soon"), "wait_for_tunes: the time is 'soon', expected seconds"),
        (lambda: kiln.wait_for_tunes(None), "wait_for_tunes: the time is None, expected seconds"),
        (lambda: kiln.record(5), "the file to record to is a int, expected a path"),
        (lambda: kiln.join_team("0", 2, name="a"), "rank is '0', expected an int"),
        (lambda: kiln.join_team(0, 2, name=5), "name is 5, expected a str"),
        (lambda: kiln.join_team(0, 1, timeout="long"), "a timeout is 'long', expected seconds"),
    ]:
        with pytest.raises(kiln.Error, match=sentence):
            refused_call()
    with pytest.raises(FileNotFoundError, match="No such file or directory: .*/nowhere/x.toml'$"):
        kiln.record(tmp_path / "nowhere" / "x.toml")
    with pytest.raises(IsADirectoryError):
        kiln.record(tmp_path)
    assert list(tmp_path.parent.glob(f"{tmp_path.name}.*")) == []


def test_elements_in_lanes_are_refused(norm):
    class InLanes(Dlpack):
        def __dlpack__(self, **asked):
            capsule = super().__dlpack__(**asked)
            self.managed.dl_tensor.lanes = 4
            return capsule

    assert "elements of DLPack's type 2 with 32 bits in lanes of 4, expected bf16" in refused(norm, x=InLanes([3, 64]), stream=stream())
