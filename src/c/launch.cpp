// What programs call often: launches, bindings, and what is set between them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <new>
#include <span>
#include <type_traits>

#include "c/handles.hpp"
#include "c/values.hpp"
#include "engine/bindings.hpp"

namespace kiln::c {
namespace {

RuntimeId value_id(std::uint32_t id) {
  const std::uint32_t index = id & 0xFFU, kind = id >> 8;
  if (index >= max_runtime || kind > static_cast<std::uint32_t>(RuntimeId::Kind::real64))
    throw Error(ErrorKind::bad_input, fmt::format("{} is no id of a run-time value; take one from kiln_op_value", id));
  return {static_cast<std::uint8_t>(index), static_cast<RuntimeId::Kind>(kind)};
}

Operand operand_of(const kiln_tensor& tensor) {
  sized(&tensor, "kiln_tensor");
  if (tensor.rank < 0 || tensor.rank > max_rank || tensor.type < 0 || tensor.type > KILN_I64 ||
      tensor.id >= max_tensors) [[unlikely]]
    throw Error(ErrorKind::bad_input,
                fmt::format("a kiln_tensor has rank {}, type {} and id {}; expected a rank of 0 to {}, a kiln_dtype, "
                            "and an id of kiln_op_tensor",
                            tensor.rank, tensor.type, tensor.id, max_rank));
  Operand operand{{static_cast<std::uint8_t>(tensor.id)}, {}};
  operand.view.address = tensor.address;
  operand.view.type = static_cast<DType>(tensor.type);
  operand.view.rank = static_cast<std::uint8_t>(tensor.rank);
  operand.view.device = static_cast<std::int16_t>(std::clamp(tensor.device, -32768, 32767));
  std::copy_n(tensor.sizes, max_rank, operand.view.sizes.begin());
  std::copy_n(tensor.strides, max_rank, operand.view.strides.begin());
  return operand;
}

/// The tensors of a call. An array of Operand would set all that it has room for.
class Operands {
 public:
  /// At most max_tensors times.
  void add(const kiln_tensor& tensor) { ::new (room_.data() + sizeof(Operand) * count_++) Operand(operand_of(tensor)); }
  [[nodiscard]] std::span<const Operand> all() const noexcept {
    return {std::launder(reinterpret_cast<const Operand*>(room_.data())), count_};
  }

 private:
  static_assert(std::is_trivially_destructible_v<Operand>);
  alignas(Operand) std::array<std::byte, sizeof(Operand) * max_tensors> room_;
  std::size_t count_ = 0;
};

void bind(const Op& op, kiln_binding& to, const kiln_tensor* tensors, std::size_t count) {
  if (count > max_tensors)
    throw Error(ErrorKind::bad_input, fmt::format("{} tensors are given, expected at most {}", count, max_tensors));
  Operands operands;
  for (std::size_t i = 0; i < count; ++i) operands.add(tensors[i]);
  if (engine::Bindings::try_bind(
          op, {read(to.problem), read(to.arguments), to.axes_given, to.selections_given, to.values_given},
          operands.all()))
    return;
  // A copy, for tensors that are refused leave the caller's as it was.
  Binding binding{read(to.problem), read(to.arguments), to.axes_given, to.selections_given, to.values_given};
  op.bind(binding, operands.all());
  read(to.problem) = binding.problem;
  read(to.arguments) = binding.arguments;
}

}  // namespace
}  // namespace kiln::c

using namespace kiln::c;

kiln_status kiln_launch(const kiln_op* op, const kiln_problem* problem, const kiln_arguments* arguments,
                        kiln_stream stream, int32_t* origin) {
  return guarded([&] {
    const kiln::Origin from = given(op, "op").op.launch(read(sized(problem, "kiln_problem")),
                                                        read(sized(arguments, "kiln_arguments")), stream);
    if (origin != nullptr) *origin = static_cast<std::int32_t>(from);
  });
}

kiln_status kiln_try_launch(const kiln_op* op, const kiln_problem* problem, const kiln_arguments* arguments,
                            kiln_stream stream, int32_t* origin) {
  kiln_status ready = KILN_NOT_READY;
  const kiln_status status = guarded([&] {
    const auto from = given(op, "op").op.try_launch(read(sized(problem, "kiln_problem")),
                                                    read(sized(arguments, "kiln_arguments")), stream);
    if (!from) return;
    ready = KILN_OK;
    if (origin != nullptr) *origin = static_cast<std::int32_t>(*from);
  });
  return status == KILN_OK ? ready : status;
}

kiln_status kiln_plan_launch(const kiln_plan* plan, const kiln_problem* problem, const kiln_arguments* arguments,
                             kiln_stream stream, int32_t* origin) {
  return guarded([&] {
    const kiln::Origin from =
        given(plan, "plan")
            .plan.launch(read(sized(problem, "kiln_problem")), read(sized(arguments, "kiln_arguments")), stream);
    if (origin != nullptr) *origin = static_cast<std::int32_t>(from);
  });
}

kiln_status kiln_bind(const kiln_op* op, kiln_binding* binding, const kiln_tensor* tensors, size_t count) {
  return guarded([&] {
    given_array(tensors, count, "tensors");
    kiln_binding& to = sized(binding, "kiln_binding");
    sized(&to.problem, "kiln_binding.problem");
    sized(&to.arguments, "kiln_binding.arguments");
    bind(given(op, "op").op, to, tensors, count);
  });
}

kiln_status kiln_set_integer(kiln_arguments* arguments, uint32_t value, int64_t number) {
  return guarded([&] { read(sized(arguments, "kiln_arguments")).set(value_id(value), std::int64_t{number}); });
}

kiln_status kiln_set_real(kiln_arguments* arguments, uint32_t value, double number) {
  return guarded([&] {
    const kiln::RuntimeId id = value_id(value);
    const bool is_integer = number >= -0x1p63 && number < 0x1p63 && number == std::trunc(number);
    if (id.kind == kiln::RuntimeId::Kind::integer && !is_integer)
      throw kiln::Error(kiln::ErrorKind::bad_input,
                        fmt::format("{} is given for an integer, expected a whole number of 64 bits", number));
    read(sized(arguments, "kiln_arguments")).set(id, number);
  });
}

kiln_status kiln_set_length(kiln_arguments* arguments, uint32_t axis, const int32_t* length) {
  return guarded([&] {
    kiln::Arguments& to = read(sized(arguments, "kiln_arguments"));
    if (axis >= kiln::max_axes)
      throw kiln::Error(kiln::ErrorKind::bad_input,
                        fmt::format("{} is no id of an axis; take one from kiln_op_axis", axis));
    const kiln::AxisId id{static_cast<std::uint8_t>(axis)};
    if (length == nullptr)
      to.reset(id);
    else
      to.set(id, length);
  });
}
