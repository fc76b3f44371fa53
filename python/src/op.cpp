#include "op.hpp"

#include <nanobind/stl/vector.h>

#include <algorithm>

#include "tensor.hpp"

namespace kiln_python {
namespace {

constexpr std::size_t most_ready = 16;
constexpr std::uint32_t no_name = ~0U;  // of `stream`
constexpr std::size_t most_scalars = KILN_MAX_AXES + KILN_MAX_SELECTIONS + KILN_MAX_RUNTIME;

bool same(const Scalar& a, const Scalar& b) {
  return a.name == b.name && a.is_real == b.is_real && a.integer == b.integer && a.real == b.real &&
         (a.word == b.word || (a.word != nullptr && b.word != nullptr && PyUnicode_Compare(a.word, b.word) == 0));
}

const char* kind_text(Name::Kind kind) {
  switch (kind) {
    case Name::Kind::axis: return "axis '";
    case Name::Kind::selection: return "type or choice '";
    case Name::Kind::value: return "run-time value '";
    case Name::Kind::tensor: break;
  }
  return "tensor '";
}

PyObject* stream_key() {
  static PyObject* const key = PyUnicode_InternFromString("stream");
  return key;
}

nb::object whole_number(nb::handle value) {
  PyObject* const number = PyNumber_Index(value.ptr());
  if (number == nullptr) PyErr_Clear();
  return nb::steal(number);
}

}  // namespace

/// What is known of one call so far.
struct Op::Call {
  struct Length {
    std::uint32_t axis;
    const void* address;  // in device memory
    int device;
  };
  explicit Call(const Op& op, Stream given) : reader(op.name_, given) {}
  TensorReader reader;
  std::array<kiln_tensor, KILN_MAX_TENSORS> tensors;
  std::array<Scalar, most_scalars> scalars;
  std::array<Length, KILN_MAX_AXES> lengths;
  std::size_t tensor_count = 0, scalar_count = 0, length_count = 0;
};

void Op::refuse(std::string_view what) const { bad_input(name_ + ": " + std::string(what)); }

void Op::refuse_name(const Bound& bound, nb::handle key) const {
  std::string names;
  for (const Name& each : bound.names) names += text_of(each.text) + ", ";
  refuse("'" + text_of(key) + "' is no name of this op; it takes " + names + "and stream");
}

std::uint32_t Op::find(const Bound& bound, PyObject* key) const {
  const std::size_t count = bound.names.size();
  for (std::size_t i = 0; i < count; ++i)
    if (bound.names[i].text.ptr() == key) return static_cast<std::uint32_t>(i);
  for (std::size_t i = 0; i < count; ++i)
    if (PyUnicode_Compare(bound.names[i].text.ptr(), key) == 0) return static_cast<std::uint32_t>(i);
  if (PyUnicode_Compare(key, stream_key()) == 0) return no_name;
  refuse_name(bound, key);
}

Bound& Op::on(int device) {
  if (device < 0) {
    for (Bound* each : by_device_)
      if (each != nullptr) return *each;
    device = current_device();
  }
  if (device >= static_cast<int>(by_device_.size()))
    refuse("device " + std::to_string(device) + " is asked for, expected 0 to 15");
  Bound*& known = by_device_[static_cast<std::size_t>(device)];
  if (known == nullptr) known = &bound_op(name_, folder_, device);
  return *known;
}

Bound& Op::first_bound(PyObject* keywords) {
  for (Bound* each : by_device_)
    if (each != nullptr) return *each;
  // Nothing is known of the op, not even its names, so the first tensor tells the device.
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t at = 0; keywords != nullptr && PyDict_Next(keywords, &at, &key, &value) != 0;) {
    if (key == stream_key() || !TensorReader::is_tensor(value)) continue;
    const nb::object attribute = nb::borrow(value);
    if (!nb::hasattr(attribute, "__dlpack_device__")) continue;
    const DLDevice place = TensorReader(name_, {}).device_of(key, attribute);
    if (place.device_type == kDLCUDA || place.device_type == kDLCUDAManaged) return on(place.device_id);
  }
  return on(-1);
}

Scalar Op::scalar(const Name& name, std::uint32_t index, nb::handle value) const {
  Scalar made{index, false, 0, 0, nullptr};
  if (name.kind == Name::Kind::selection) {
    if (PyUnicode_Check(value.ptr()) == 0)
      refuse(kind_text(name.kind) + text_of(name.text) + "' is a " + name_of_type(value) + ", expected a str");
    made.word = value.ptr();
    return made;
  }
  if (PyFloat_Check(value.ptr()) != 0 && name.kind == Name::Kind::value) {
    made.is_real = true;
    made.real = PyFloat_AsDouble(value.ptr());
    return made;
  }
  nb::object number;
  if (PyLong_Check(value.ptr()) != 0)
    number = nb::borrow(value);
  else if (!TensorReader::is_tensor(value))
    number = whole_number(value);
  if (number.is_valid()) {
    made.integer = PyLong_AsLongLong(number.ptr());
    if (PyErr_Occurred() == nullptr) return made;
    PyErr_Clear();
    refuse(kind_text(name.kind) + text_of(name.text) + "' is past 64 bits");
  }
  if (name.kind == Name::Kind::value && !TensorReader::is_tensor(value) && nb::hasattr(value, "__float__")) {
    made.is_real = true;
    made.real = PyFloat_AsDouble(value.ptr());
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    return made;
  }
  refuse(kind_text(name.kind) + text_of(name.text) + "' is a " + name_of_type(value) + ", expected " +
         (name.kind == Name::Kind::axis ? "an int, or a tensor of one i32 in device memory" : "a number"));
}

void Op::take_length(Call& call, const Name& name, nb::handle value) {
  bool is_read_only = false;
  const kiln_tensor length = call.reader.read(name.text, value, is_read_only);
  std::int64_t elements = 1;
  for (int i = 0; i < length.rank; ++i) elements *= length.sizes[i];
  if (length.type != KILN_I32 || elements != 1)
    refuse("axis '" + text_of(name.text) + "' is given as a tensor, expected one i32 in device memory");
  if (length.address == nullptr || reinterpret_cast<std::uintptr_t>(length.address) % sizeof(std::int32_t) != 0)
    refuse("axis '" + text_of(name.text) +
           "' is given as a tensor, and its address is null or no multiple of 4; pass one i32 in device memory");
  call.lengths[call.length_count++] = {name.id, length.address, length.device};
}

void Op::take(Call& call, const Bound& bound, PyObject* key, nb::handle value) {
  const std::uint32_t index = find(bound, key);
  if (index == no_name || value.is_none()) return;
  const Name& name = bound.names[index];
  if (name.kind == Name::Kind::axis && TensorReader::is_tensor(value)) return take_length(call, name, value);
  if (name.kind != Name::Kind::tensor) {
    call.scalars[call.scalar_count++] = scalar(name, index, value);
    return;
  }
  bool is_read_only = false;
  kiln_tensor& tensor = call.tensors[call.tensor_count++];
  tensor = call.reader.read(name.text, value, is_read_only);
  tensor.id = name.id;
  if (is_read_only && name.output)
    refuse("tensor '" + text_of(name.text) + "' is read-only, and the op writes it; pass one that may be written");
}

Bound::Ready& Op::kept(Bound& bound, Bound::Ready made) {
  if (bound.ready.size() < most_ready) return bound.ready.emplace_back(std::move(made));
  Bound::Ready& slot = bound.ready[bound.next++ % most_ready];
  slot = std::move(made);
  return slot;
}

const kiln_binding& Op::ready(Bound& bound, const Call& call) const {
  const std::size_t count = call.scalar_count;
  for (const Bound::Ready& each : bound.ready)
    if (each.scalars.size() == count &&
        std::equal(each.scalars.begin(), each.scalars.end(), call.scalars.begin(), same))
      return each.binding;
  std::array<kiln_setting, most_scalars> settings;
  std::array<kiln_argument, most_scalars> values;
  std::size_t setting_count = 0, value_count = 0;
  std::vector<std::string> texts(2 * count);
  Bound::Ready made{{call.scalars.begin(), call.scalars.begin() + static_cast<std::ptrdiff_t>(count)}, {}, {}};
  for (std::size_t i = 0; i < count; ++i) {
    const Scalar& scalar = call.scalars[i];
    const Name& name = bound.names[scalar.name];
    texts[2 * i] = text_of(name.text);
    const char* const text = texts[2 * i].c_str();
    if (name.kind == Name::Kind::value) {
      const std::int32_t kind = scalar.is_real ? KILN_ARGUMENT_REAL : KILN_ARGUMENT_INTEGER;
      values[value_count++] = {text, kind, 0, nullptr, scalar.integer, scalar.real};
    } else if (scalar.word == nullptr) {
      settings[setting_count++] = {text, nullptr, scalar.integer};
    } else {
      texts[2 * i + 1] = text_of(scalar.word);
      settings[setting_count++] = {text, texts[2 * i + 1].c_str(), 0};
      made.words.push_back(nb::borrow(scalar.word));
    }
  }
  made.binding = KILN_BINDING_INIT;
  check(kiln_op_binding(bound.op, settings.data(), setting_count, values.data(), value_count, &made.binding));
  return kept(bound, std::move(made)).binding;
}

void Op::call(PyObject* positional, PyObject* keywords) {
  if (PyTuple_Size(positional) != 0) refuse("arguments are given by position, expected keywords alone, such as x=x");
  refuse_if_over();
  Bound* bound = &first_bound(keywords);
  Stream given;
  if (keywords != nullptr) {
    PyObject* const stream = PyDict_GetItemWithError(keywords, stream_key());
    if (stream == nullptr && PyErr_Occurred() != nullptr) throw nb::python_error();
    if (stream != nullptr) given = stream_of(stream);
  }
  Call call(*this, given);
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t at = 0; keywords != nullptr && PyDict_Next(keywords, &at, &key, &value) != 0;)
    if (key != stream_key()) take(call, *bound, key, value);
  const int device = call.tensor_count == 0 ? -1 : call.tensors[0].device;
  if (device >= 0 && device != bound->device) bound = &on(device);
  for (std::size_t i = 0; i < call.length_count; ++i)
    if (call.lengths[i].device >= 0 && call.lengths[i].device != bound->device)
      refuse("an axis is given as a tensor on device " + std::to_string(call.lengths[i].device) +
             ", and the tensors lie on device " + std::to_string(bound->device) + "; pass one of that device");
  kiln_binding binding = ready(*bound, call);
  // From here to the launch no Python runs, so that the interpreter's end does not come between.
  refuse_if_over();
  check(kiln_bind(bound->op, &binding, call.tensors.data(), call.tensor_count));
  for (std::size_t i = 0; i < call.length_count; ++i)
    check(kiln_set_length(&binding.arguments, call.lengths[i].axis,
                          static_cast<const int32_t*>(call.lengths[i].address)));
  const kiln_stream stream = call.reader.stream();
  Released::run([&] { return kiln_launch(bound->op, &binding.problem, &binding.arguments, stream, nullptr); });
}

kiln_problem Op::problem(Bound& bound, const nb::dict& settings) const {
  std::vector<kiln_setting> given;
  std::vector<std::string> texts;
  texts.reserve(2 * settings.size());
  for (const auto& [key, value] : settings) {
    const std::uint32_t index = find(bound, key.ptr());
    if (index == no_name) refuse("a problem has no stream");
    const Name& name = bound.names[index];
    if (name.kind != Name::Kind::axis && name.kind != Name::Kind::selection)
      refuse("a problem has sizes, types and choices, and '" + text_of(key) + "' is none of them");
    const Scalar read = scalar(name, index, value);
    texts.push_back(text_of(key));
    const char* const text = texts.back().c_str();
    if (read.word == nullptr) {
      given.push_back({text, nullptr, read.integer});
    } else {
      texts.push_back(text_of(read.word));
      given.push_back({text, texts.back().c_str(), 0});
    }
  }
  kiln_problem made = KILN_PROBLEM_INIT;
  check(kiln_op_problem(bound.op, given.data(), given.size(), &made));
  return made;
}

std::vector<kiln_problem> Op::problems(Bound& bound, const nb::dict& settings, const nb::dict& sizes) const {
  constexpr std::size_t most_problems = 1'000'000;
  std::vector<kiln_problem> all{problem(bound, settings)};
  for (const auto& [key, value] : sizes) {
    std::vector<std::int64_t> list;
    if (!nb::try_cast(value, list)) refuse("the sizes of axis '" + text_of(key) + "' are no integers of 64 bits");
    if (list.empty() || all.size() > most_problems / list.size())
      refuse("'" + text_of(key) + "' makes " + std::to_string(all.size() * list.size()) + " problems, expected 1 to " +
             std::to_string(most_problems));
    std::uint32_t axis = 0;
    check(kiln_op_axis(bound.op, text_of(key).c_str(), &axis));
    std::vector<kiln_problem> next;
    next.reserve(all.size() * list.size());
    for (const kiln_problem& each : all)
      for (const std::int64_t size : list) {
        next.push_back(each);
        next.back().axes[axis] = size;
      }
    all = std::move(next);
  }
  return all;
}

}  // namespace kiln_python
