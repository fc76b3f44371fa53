#include "jit/frame_layout.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

namespace kiln::jit {
namespace {

bool is_shown(const manifest::Op& op, const manifest::Argument& argument, std::span<const std::int64_t> frame) {
  return manifest::Op::takes_part(op.tensors[static_cast<std::size_t>(argument.index)], frame) &&
         (!argument.when || argument.when->evaluate(frame).truth());
}

class Placing {
 public:
  explicit Placing(const manifest::Op& op) : op_(op) {
    layout_.axes = op.axes.size();
    layout_.slots = layout_.axes <= FrameLayout::few_axes ? FrameLayout::few_axes : max_axes;
  }

  /// Places the words of a view or pack one after another, if none of them has its place already.
  void place(const manifest::Argument& argument, std::span<const std::int64_t> frame) {
    std::vector<Word> words;
    if (!add_words(argument, frame, words)) return;
    std::size_t zeros = 0;
    for (const Word& each : words) {
      if (each.of == Of::zero)
        ++zeros;
      else if (is_placed(each) || std::count(words.begin(), words.end(), each) > 1)
        return;
    }
    if (layout_.slots + zeros + left() > FrameLayout::most_slots) return;
    for (const Word& each : words) place(each);
  }

  FrameLayout take() {
    for (std::size_t value = 0; value < op_.runtime.size(); ++value)
      if (!has_value_[value]) place({Of::value, value});
    for (std::size_t tensor = 0; tensor < op_.tensors.size(); ++tensor)
      if (!has_tensor_[tensor]) place({Of::tensor, tensor});
    return layout_;
  }

 private:
  enum class Of : std::uint8_t { tensor, value, zero };
  struct Word {
    Of of;
    std::size_t index = 0;
    bool operator==(const Word&) const = default;
  };

  /// Returns false for an argument that cannot lie in the frame.
  bool add_words(const manifest::Argument& argument, std::span<const std::int64_t> frame,
                 std::vector<Word>& words) const {
    const auto index = static_cast<std::size_t>(argument.index);
    switch (argument.kind) {
      case manifest::ArgumentKind::pack:
        return std::all_of(argument.members.begin(), argument.members.end(),
                           [&](const manifest::Argument& each) { return add_words(each, frame, words); });
      case manifest::ArgumentKind::runtime: words.push_back({Of::value, index}); return true;
      case manifest::ArgumentKind::expression: words.push_back({Of::zero}); return argument.value.constant_value() == 0;
      case manifest::ArgumentKind::tensor:
      case manifest::ArgumentKind::view: break;
      default: return false;
    }
    if (!is_shown(op_, argument, frame)) {
      words.resize(words.size() + argument.words(), {Of::zero});
      return true;
    }
    words.push_back({Of::tensor, index});
    for (const manifest::Expression& each : argument.strides) {
      const auto value = op_.runtime_of(each);
      if (!value) return false;
      words.push_back({Of::value, *value});
    }
    return true;
  }

  [[nodiscard]] bool is_placed(const Word& word) const {
    return word.of == Of::tensor ? has_tensor_[word.index] : has_value_[word.index];
  }
  void place(const Word& word) {
    const std::size_t slot = layout_.slots++;
    layout_.zeros[slot] = word.of == Of::zero;
    if (word.of == Of::tensor) {
      layout_.tensors[word.index] = static_cast<std::uint8_t>(slot);
      has_tensor_[word.index] = true;
    } else if (word.of == Of::value) {
      layout_.values[word.index] = static_cast<std::uint8_t>(slot);
      has_value_[word.index] = true;
    }
  }
  /// The words of the op that have no place yet.
  [[nodiscard]] std::size_t left() const {
    return op_.runtime.size() + op_.tensors.size() -
           static_cast<std::size_t>(std::count(has_value_.begin(), has_value_.end(), true) +
                                    std::count(has_tensor_.begin(), has_tensor_.end(), true));
  }

  const manifest::Op& op_;
  FrameLayout layout_;
  std::array<bool, max_runtime> has_value_{};
  std::array<bool, max_tensors> has_tensor_{};
};

}  // namespace

bool FrameLayout::is_zero(std::int64_t slot) const noexcept {
  return slot >= 0 && slot < static_cast<std::int64_t>(slots) && zeros[static_cast<std::size_t>(slot)];
}

int FrameLayout::value_at(std::size_t slot) const noexcept {
  if (slot < axes) return -1;
  const auto found = std::find(values.begin(), values.end(), slot);
  return found == values.end() ? -1 : static_cast<int>(found - values.begin());
}

std::vector<int> FrameLayout::of_declared(std::size_t runtime) const {
  std::vector<int> result(axes);
  std::iota(result.begin(), result.end(), 0);
  result.insert(result.end(), values.begin(), values.begin() + static_cast<std::ptrdiff_t>(runtime));
  return result;
}

FrameLayout declared_layout(std::size_t axes, std::size_t runtime) {
  FrameLayout layout;
  layout.axes = axes;
  layout.as_declared = true;
  for (std::size_t i = 0; i < runtime; ++i) layout.values[i] = static_cast<std::uint8_t>(axes + i);
  for (std::size_t i = 0; i < max_tensors; ++i) layout.tensors[i] = static_cast<std::uint8_t>(axes + runtime + i);
  layout.slots = axes + runtime + max_tensors;
  return layout;
}

FrameLayout layout_of(const manifest::Op& op, std::span<const manifest::Pass> passes,
                      std::span<const std::int64_t> frame) {
  Placing placing(op);
  for (const manifest::Pass& pass : passes)
    for (const manifest::Argument& each : pass.arguments)
      if (each.kind == manifest::ArgumentKind::view || each.kind == manifest::ArgumentKind::pack)
        placing.place(each, frame);
  return placing.take();
}

}  // namespace kiln::jit
