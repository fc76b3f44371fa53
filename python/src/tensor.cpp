#include "tensor.hpp"

#include <cstdint>
#include <optional>

#include "engines.hpp"

namespace kiln_python {
namespace {

/// The attribute, or nothing where there is none.
nb::object find(nb::handle object, const char* name) {
  PyObject* const found = PyObject_GetAttrString(object.ptr(), name);
  if (found != nullptr) return nb::steal(found);
  if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw nb::python_error();
  PyErr_Clear();
  return {};
}

const DLPackExchangeAPI* supported(const DLPackExchangeAPI* api) {
  while (api != nullptr && api->version.major != 1) api = api->version.major > 1 ? api->previous : nullptr;
  return api;
}

/// The type's table of C functions; null where it has none. The last types are remembered, and kept alive.
const DLPackExchangeAPI* exchange_of(nb::handle type) {
  struct Known {
    nb::object type;
    const DLPackExchangeAPI* api;
  };
  static auto& known = *new std::array<Known, 8>;
  static std::size_t next = 0;
  for (const Known& each : known)
    if (each.type.ptr() == type.ptr()) return each.api;
  const DLPackExchangeAPI* api = nullptr;
  if (const nb::object capsule = find(type, "__dlpack_c_exchange_api__"); capsule.is_valid()) {
    if (PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api") != 0)
      api =
          supported(static_cast<const DLPackExchangeAPI*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api")));
  }
  known[next++ % known.size()] = {nb::borrow(type), api};
  return api;
}

std::optional<kiln_dtype> dtype_of(const DLDataType& type) {
  if (type.lanes != 1) return {};
  const auto pair = [](unsigned code, unsigned bits) { return code << 8U | bits; };
  switch (pair(type.code, type.bits)) {
    case pair(kDLBfloat, 16): return KILN_BF16;
    case pair(kDLFloat, 16): return KILN_F16;
    case pair(kDLFloat, 32): return KILN_F32;
    case pair(kDLFloat, 64): return KILN_F64;
    case pair(kDLFloat8_e4m3fn, 8): return KILN_E4M3;
    case pair(kDLFloat8_e5m2, 8): return KILN_E5M2;
    case pair(kDLInt, 8): return KILN_I8;
    case pair(kDLUInt, 8): return KILN_U8;
    case pair(kDLInt, 32): return KILN_I32;
    case pair(kDLInt, 64): return KILN_I64;
    default: return {};
  }
}

/// Of numpy's notation, such as "<f4".
std::optional<DLDataType> type_of(const std::string& text) {
  if (text.size() != 3 || text[0] == '>' || text[2] < '1' || text[2] > '8') return {};
  const auto bits = static_cast<std::uint8_t>((text[2] - '0') * 8);
  if (text[1] == 'f') return DLDataType{kDLFloat, bits, 1};
  if (text[1] == 'i') return DLDataType{kDLInt, bits, 1};
  if (text[1] == 'u') return DLDataType{kDLUInt, bits, 1};
  return {};
}

std::int64_t integer(nb::handle object) {
  const long long value = PyLong_AsLongLong(object.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return value;
}

kiln_stream handle_of(nb::handle object) {
  const unsigned long long value = PyLong_AsUnsignedLongLong(object.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    bad_input("a stream is no address, expected an integer of 0 or more, or a stream object");
  }
  return reinterpret_cast<kiln_stream>(value);
}

}  // namespace

Stream stream_of(nb::handle object) {
  if (!object.is_valid() || object.is_none()) return {};
  if (PyLong_Check(object.ptr()) != 0 && PyBool_Check(object.ptr()) == 0) return {true, handle_of(object)};
  if (const nb::object protocol = find(object, "__cuda_stream__"); protocol.is_valid()) {
    const nb::object told = protocol();
    nb::tuple pair;
    if (!nb::try_cast(told, pair) || pair.size() != 2 || PyLong_Check(nb::object(pair[1]).ptr()) == 0)
      bad_input(
          "stream has a __cuda_stream__ that gives no pair of a version and a handle; report that to its library");
    return {true, handle_of(pair[1])};
  }
  for (const char* name : {"cuda_stream", "ptr"})
    if (const nb::object number = find(object, name); number.is_valid() && PyLong_Check(number.ptr()) != 0)
      return {true, handle_of(number)};
  bad_input("stream is a " + name_of_type(object) +
            ", expected an integer or an object with __cuda_stream__, cuda_stream or ptr");
}

TensorReader::~TensorReader() {
  for (std::size_t i = 0; i < kept_count_; ++i) {
    const Kept& each = kept_[i];
    if (each.versioned != nullptr && each.versioned->deleter != nullptr) each.versioned->deleter(each.versioned);
    if (each.plain != nullptr && each.plain->deleter != nullptr) each.plain->deleter(each.plain);
  }
}

void TensorReader::keep(DLManagedTensorVersioned* versioned, DLManagedTensor* plain) {
  kept_[kept_count_++] = {versioned, plain};
}

void TensorReader::refuse(nb::handle name, const std::string& what) const {
  bad_input(op_ + ": tensor '" + text_of(name) + "' " + what);
}

bool TensorReader::is_tensor(nb::handle object) {
  if (PyLong_Check(object.ptr()) != 0 || PyFloat_Check(object.ptr()) != 0 || PyUnicode_Check(object.ptr()) != 0 ||
      object.is_none())
    return false;
  return exchange_of(object.type()) != nullptr || find(object, "__dlpack__").is_valid() ||
         find(object, "__cuda_array_interface__").is_valid();
}

kiln_stream TensorReader::stream() const {
  if (!stream_.is_known)
    bad_input(op_ +
              ": no tensor tells its current stream, and stream is not given; pass stream=, an integer or a stream "
              "object, where 0 is the default stream");
  return stream_.handle;
}

void TensorReader::take_stream(nb::handle name, Stream found) {
  if (is_given_) return;
  if (stream_.is_known && stream_.handle != found.handle)
    refuse(name, "is of another current stream than tensor '" + text_of(stream_from_) +
                     "'; pass stream=, and order the streams yourself");
  stream_ = found;
  stream_from_ = nb::borrow(name);
}

kiln_tensor TensorReader::view(nb::handle name, const DLTensor& tensor) const {
  kiln_tensor view = KILN_TENSOR_INIT;
  const auto type = dtype_of(tensor.dtype);
  if (!type) [[unlikely]]
    refuse(name, "has elements of DLPack's type " + std::to_string(tensor.dtype.code) + " with " +
                     std::to_string(tensor.dtype.bits) + " bits" +
                     (tensor.dtype.lanes == 1 ? "" : " in lanes of " + std::to_string(tensor.dtype.lanes)) +
                     ", expected bf16, f16, f32, f64, e4m3, e5m2, i8, u8, i32 or i64");
  if (tensor.ndim < 0 || tensor.ndim > KILN_MAX_RANK) [[unlikely]]
    refuse(name,
           "has " + std::to_string(tensor.ndim) + " dimensions, expected at most " + std::to_string(KILN_MAX_RANK));
  const int kind = tensor.device.device_type;
  if (kind != kDLCUDA && kind != kDLCUDAManaged) [[unlikely]]
    refuse(name, kind == kDLCPU || kind == kDLCUDAHost
                     ? "lies in host memory, expected memory of a CUDA device; copy it there first"
                     : "lies on a device of DLPack's type " + std::to_string(kind) + ", expected a CUDA device");
  if (tensor.ndim > 0 && tensor.shape == nullptr) [[unlikely]]
    refuse(name, "comes by DLPack without its sizes; report that to its library");
  view.type = *type;
  view.device = tensor.device.device_id;
  view.rank = tensor.ndim;
  view.address = static_cast<const char*>(tensor.data) + tensor.byte_offset;
  std::int64_t dense = 1;
  for (int i = tensor.ndim; i-- > 0;) {
    view.sizes[i] = tensor.shape[i];
    view.strides[i] = tensor.strides == nullptr ? dense : tensor.strides[i];
    dense *= tensor.shape[i];
  }
  return view;
}

kiln_tensor TensorReader::read(nb::handle name, nb::handle object, bool& is_read_only) {
  if (const DLPackExchangeAPI* api = exchange_of(object.type())) return read_exchange(name, object, *api, is_read_only);
  if (find(object, "__dlpack__").is_valid()) return read_dlpack(name, object, is_read_only);
  if (const nb::object interface = find(object, "__cuda_array_interface__"); interface.is_valid())
    return read_array_interface(name, interface, is_read_only);
  refuse(name, "is a " + name_of_type(object) +
                   ", expected an object with __dlpack_c_exchange_api__, __dlpack__ or __cuda_array_interface__");
}

kiln_tensor TensorReader::read_exchange(nb::handle name, nb::handle object, const DLPackExchangeAPI& api,
                                        bool& is_read_only) {
  kiln_tensor view;
  if (api.dltensor_from_py_object_no_sync != nullptr) {
    DLTensor tensor;
    if (api.dltensor_from_py_object_no_sync(object.ptr(), &tensor) != 0) throw nb::python_error();
    view = this->view(name, tensor);
  } else {
    DLManagedTensorVersioned* managed = nullptr;
    if (api.managed_tensor_from_py_object_no_sync(object.ptr(), &managed) != 0) throw nb::python_error();
    keep(managed, nullptr);
    is_read_only = (managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
    view = this->view(name, managed->dl_tensor);
  }
  if (is_given_ || (asked_ == &api && asked_device_ == view.device)) return view;
  void* current = nullptr;
  if (api.current_work_stream(kDLCUDA, view.device, &current) != 0) throw nb::python_error();
  asked_ = &api;
  asked_device_ = view.device;
  take_stream(name, {true, static_cast<kiln_stream>(current)});
  return view;
}

DLDevice TensorReader::device_of(nb::handle name, nb::handle object) const {
  const nb::object told = object.attr("__dlpack_device__")();
  std::pair<std::int32_t, std::int32_t> device;
  nb::tuple pair;
  if (nb::try_cast(told, pair) && pair.size() == 2)
    for (int i = 0; i < 2; ++i) {
      const nb::object number = nb::steal(PyNumber_Index(nb::object(pair[i]).ptr()));
      std::int32_t& into = i == 0 ? device.first : device.second;
      if (number.is_valid() && nb::try_cast(number, into)) continue;
      PyErr_Clear();
      pair = nb::tuple();
      break;
    }
  if (!pair.is_valid() || pair.size() != 2)
    refuse(name, "has a __dlpack_device__ that gives no pair of integers; report that to its library");
  return {device.first, device.second};
}

kiln_tensor TensorReader::read_dlpack(nb::handle name, nb::handle object, bool& is_read_only) {
  DLTensor place{};
  place.device = device_of(name, object);
  place.dtype = {kDLFloat, 32, 1};
  (void)view(name, place);  // refuses a host's tensor before its library is asked about streams
  const auto handle = reinterpret_cast<std::uint64_t>(stream());
  nb::dict keywords;
  keywords["stream"] = nb::int_(handle == 0 ? 1 : handle);  // 1 is DLPack's name of the default stream
  keywords["max_version"] = nb::make_tuple(1, 1);
  const nb::object export_of = object.attr("__dlpack__");
  const nb::tuple none = nb::make_tuple();
  PyObject* made = PyObject_Call(export_of.ptr(), none.ptr(), keywords.ptr());
  if (made == nullptr && PyErr_ExceptionMatches(PyExc_TypeError) != 0) {  // older than DLPack 1.0
    PyErr_Clear();
    PyDict_DelItemString(keywords.ptr(), "max_version");
    made = PyObject_Call(export_of.ptr(), none.ptr(), keywords.ptr());
  }
  if (made == nullptr) throw nb::python_error();
  const nb::object capsule = nb::steal(made);
  if (PyCapsule_IsValid(made, "dltensor_versioned") != 0) {
    auto* const managed = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(made, "dltensor_versioned"));
    PyCapsule_SetName(made, "used_dltensor_versioned");
    keep(managed, nullptr);
    if (managed->version.major != 1)
      refuse(name, "comes by DLPack " + std::to_string(managed->version.major) + ", expected version 1");
    is_read_only = (managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
    return view(name, managed->dl_tensor);
  }
  if (PyCapsule_IsValid(made, "dltensor") == 0)
    refuse(name, "has a __dlpack__ that gives " +
                     (PyCapsule_CheckExact(made) != 0 ? "a capsule that was taken before, or of another kind"
                                                      : "a " + name_of_type(capsule)) +
                     ", expected a new capsule; report that to its library");
  auto* const managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(made, "dltensor"));
  PyCapsule_SetName(made, "used_dltensor");
  keep(nullptr, managed);
  return view(name, managed->dl_tensor);
}

kiln_tensor TensorReader::read_array_interface(nb::handle name, nb::handle interface, bool& is_read_only) {
  try {
    return read_array(name, interface, is_read_only);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_KeyError) && !error.matches(PyExc_TypeError) && !error.matches(PyExc_AttributeError) &&
        !error.matches(PyExc_IndexError) && !error.matches(PyExc_OverflowError))
      throw;
    refuse(name, "has a __cuda_array_interface__ that cannot be read: " + text_of(nb::str(error.value())));
  }
}

kiln_tensor TensorReader::read_array(nb::handle name, nb::handle interface, bool& is_read_only) {
  if (const nb::object mask = nb::object(interface.attr("get")("mask")); !mask.is_none())
    refuse(name, "has a mask, expected one without");
  const nb::object shape = interface["shape"], data = interface["data"];
  const std::string type_text = text_of(nb::object(interface["typestr"]));
  const auto type = type_of(type_text);
  if (!type) refuse(name, "has elements of type '" + type_text + "', expected a little-endian f, i or u");
  const nb::object strides = nb::object(interface.attr("get")("strides"));
  const std::size_t rank = nb::len(shape);
  if (rank > KILN_MAX_RANK)
    refuse(name, "has " + std::to_string(rank) + " dimensions, expected at most " + std::to_string(KILN_MAX_RANK));
  std::int64_t sizes[KILN_MAX_RANK] = {}, steps[KILN_MAX_RANK] = {};
  DLTensor tensor{};
  tensor.device.device_type = kDLCUDA;
  tensor.ndim = static_cast<std::int32_t>(rank);
  tensor.dtype = *type;
  tensor.data = reinterpret_cast<void*>(PyLong_AsUnsignedLongLong(nb::object(data[0]).ptr()));
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  tensor.shape = sizes;
  if (!strides.is_none()) tensor.strides = steps;
  for (std::size_t i = 0; i < rank; ++i) {
    sizes[i] = integer(nb::object(shape[i]));
    if (strides.is_none()) continue;
    const std::int64_t bytes = integer(nb::object(strides[i])), element = type->bits / 8;
    if (bytes % element != 0)
      refuse(name, "has a stride of " + std::to_string(bytes) + " bytes in dimension " + std::to_string(i) +
                       ", expected a multiple of its element's " + std::to_string(element));
    steps[i] = bytes / element;
  }
  is_read_only = nb::cast<bool>(nb::object(data[1]));
  const nb::object stream = nb::object(interface.attr("get")("stream"));
  if (!stream.is_none()) take_stream(name, stream_of(stream));
  kiln_tensor made = view(name, tensor);
  made.device = KILN_DEVICE_UNKNOWN;
  if (made.address == nullptr) return made;
  const std::optional<int> device = kiln_python::device_of(made.address);
  if (!device)
    refuse(
        name,
        "has an address that no allocation of CUDA holds: it was freed, or lies in host memory; pass device memory that lives");
  made.device = *device;
  return made;
}

}  // namespace kiln_python
