#include "manifest/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "kiln/error.hpp"
#include "manifest/names.hpp"
#include "manifest/text.hpp"

namespace kiln::manifest {
namespace {

[[noreturn]] void fail(const Op& op, const std::string& message) {
  throw Error(ErrorKind::bad_input, fmt::format("op '{}': {}", op.name, message));
}

std::int64_t parse_size(const Op& op, const Setting& setting) {
  std::int64_t number = 0;
  const std::string& text = setting.value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range) {
    fail(op, fmt::format("axis '{}' is {}, which 64 bits cannot hold", setting.name, quote(text)));
  }
  if (error != std::errc{} || end != text.data() + text.size()) {
    fail(op, fmt::format("axis '{}' is {}, expected an integer", setting.name, quote(text)));
  }
  return number;
}

std::uint8_t parse_choice(const Op& op, const Selection& selection, const std::string& word) {
  const auto found = std::ranges::find(selection.values, word);
  if (found == selection.values.end()) {
    fail(op, fmt::format("'{}' is {}{}, expected {}", selection.name, quote(word), did_you_mean(word, selection.values),
                         one_of(selection.values)));
  }
  return static_cast<std::uint8_t>(found - selection.values.begin());
}

bool fits(const Axis& axis, std::int64_t value) noexcept {
  return value >= axis.minimum && value <= axis.maximum && (axis.multiple_of == 1 || value % axis.multiple_of == 0);
}

void check_axis(const Op& op, const Axis& axis, std::int64_t value, bool takes_zero) {
  if (value == unbound)
    fail(op, fmt::format("axis '{}' has no size: Op::bind was not called on the binding, or refused its tensors",
                         axis.name));
  if (value < axis.minimum)
    fail(op,
         fmt::format("axis '{}' is {}, expected {}{} or more", axis.name, value,
                     takes_zero && axis.minimum > 1 ? "0, or " : "", axis.minimum - (takes_zero && axis.minimum == 1)));
  if (value > axis.maximum)
    fail(op, fmt::format("axis '{}' is {}, expected at most {}", axis.name, value, axis.maximum));
  if (value % axis.multiple_of != 0) {
    fail(op, fmt::format("axis '{}' is {}, expected a multiple of {}", axis.name, value, axis.multiple_of));
  }
}

void check_size(const Op& op, std::size_t axis, const Problem& problem, Zeros zeros) {
  const bool takes_zero = zeros == Zeros::taken && !op.axes[axis].team;
  if (problem.axes[axis] != 0 || !takes_zero) check_axis(op, op.axes[axis], problem.axes[axis], takes_zero);
}

template <class IsShown>
std::string text_of(const Op& op, const Problem& problem, IsShown is_shown) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    parts.push_back(fmt::format("{}={}", op.axes[i].name, problem.axes[i]));
  for (std::size_t i = 0; i < op.selections.size(); ++i)
    if (const Selection& selection = op.selections[i]; is_shown(i))
      parts.push_back(fmt::format("{}={}", selection.name, selection.values.at(problem.selections[i])));
  return fmt::format("{}", fmt::join(parts, " "));
}

/// A frame for expressions over types and choices alone.
using SelectionFrame = std::array<std::int64_t, max_axes + max_runtime + max_selections>;

SelectionFrame selection_frame(const Op& op, const Problem& problem) noexcept {
  SelectionFrame frame{};
  std::ranges::copy(problem.selections, frame.begin() + op.first_static());
  return frame;
}

/// Returns the first rule that the problem breaks, or null.
const Rule* broken_rule(const Op& op, const Problem& problem) noexcept {
  const SelectionFrame frame = selection_frame(op, problem);
  const auto found =
      std::ranges::find_if(op.allowed, [&](const Rule& each) { return !each.when.evaluate(frame).truth(); });
  return found == op.allowed.end() ? nullptr : &*found;
}

}  // namespace

void forget_sizes(const Op& op, Problem& problem, std::uint32_t but) noexcept {
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    if ((but >> i & 1U) == 0) problem.axes[i] = unbound;
}

namespace {

/// make_part() without the bounds of axes.
PartOfProblem read_part(const Op& op, std::span<const Setting> settings) {
  PartOfProblem part;
  Problem& problem = part.problem;
  problem.op = op.tag;
  const std::vector<std::string> names = names_of_problem(op);
  for (const Setting& setting : settings) {
    const auto found = std::ranges::find(names, setting.name);
    const auto index = static_cast<std::size_t>(found - names.begin());
    if (found == names.end()) fail(op, why_unknown(op, setting.name));
    const bool is_axis = index < op.axes.size();
    const std::size_t place = is_axis ? index : index - op.axes.size();
    std::uint32_t& given = is_axis ? part.axes : part.selections;
    if ((given >> place & 1U) != 0) fail(op, fmt::format("'{}' is given twice, expected it once", setting.name));
    given |= 1U << place;
    if (is_axis)
      problem.axes[place] = parse_size(op, setting);
    else
      problem.selections[place] = parse_choice(op, op.selections[place], setting.value);
  }
  forget_sizes(op, problem, part.axes);
  for (std::size_t i = 0; i < op.selections.size(); ++i)
    if ((part.selections >> i & 1U) == 0) problem.selections[i] = op.selections[i].default_beside(problem);
  return part;
}

}  // namespace

PartOfProblem make_part(const Op& op, std::span<const Setting> settings) {
  const PartOfProblem part = read_part(op, settings);
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    if ((part.axes >> i & 1U) != 0) check_size(op, i, part.problem, Zeros::taken);
  return part;
}

Problem make_problem(const Op& op, std::span<const Setting> settings, Zeros zeros) {
  const PartOfProblem part = read_part(op, settings);
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    const std::string& name = op.axes[i].name;
    if ((part.axes >> i & 1U) == 0) fail(op, fmt::format("axis '{}' is missing, expected {}=SIZE", name, name));
  }
  check_problem(op, part.problem, zeros);
  return part.problem;
}

bool is_empty(const Op& op, const Problem& problem) noexcept {
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    if (problem.axes[i] == 0 && !op.axes[i].team) return true;
  return false;
}

void check_own(const Op& op, const Problem& problem) {
  if (problem.op != 0 && problem.op != op.tag)
    fail(op, "the problem is another op's; make it by this op's Op::problem");
  for (std::size_t i = op.axes.size(); i < max_axes; ++i)
    if (problem.axes[i] != 0)
      fail(op,
           fmt::format("axis number {} is set, and the op has {}; take the ids of this op's axes", i, op.axes.size()));
}

void check_own(const Op& op, const Arguments& arguments) {
  if (arguments.op != 0 && arguments.op != op.tag)
    fail(op, "the arguments are another op's; make them by this op's Op::arguments");
}

void check_problem(const Op& op, const Problem& problem, Zeros zeros) {
  check_own(op, problem);
  if (problem.op == 0 && zeros == Zeros::taken && is_empty(op, problem))
    fail(op, "the problem has a size of 0 and was never made; make it by Op::problem, or by Op::binding and Op::bind");
  for (std::size_t i = 0; i < op.axes.size(); ++i) check_size(op, i, problem, zeros);
  for (std::size_t i = 0; i < op.selections.size(); ++i) {
    const Selection& selection = op.selections[i];
    if (problem.selections[i] >= selection.values.size()) {
      fail(op, fmt::format("'{}' is number {}, expected one below {}", selection.name, problem.selections[i],
                           selection.values.size()));
    }
  }
  check_allowed(op, problem);
}

void check_allowed(const Op& op, const Problem& problem) {
  const Rule* const rule = broken_rule(op, problem);
  if (rule == nullptr) return;
  std::vector<std::string> chosen;
  for (const int slot : rule->when.slots()) {
    const auto index = static_cast<std::size_t>(slot - op.first_static());
    chosen.push_back(
        fmt::format("{}={}", op.selections[index].name, op.selections[index].values[problem.selections[index]]));
  }
  fail(op, fmt::format("{} is not allowed{}{}; the rule is '{}'", fmt::join(chosen, " "),
                       rule->message.empty() ? "" : ": ", rule->message, rule->when.text()));
}

bool is_allowed(const Op& op, const Problem& problem) noexcept { return broken_rule(op, problem) == nullptr; }

bool is_valid(const Op& op, const Problem& problem) noexcept {
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    if (!fits(op.axes[i], problem.axes[i])) return false;
  }
  for (std::size_t i = 0; i < op.selections.size(); ++i) {
    if (problem.selections[i] >= op.selections[i].values.size()) return false;
  }
  return is_allowed(op, problem);
}

std::string to_string(const Op& op, const Problem& problem) {
  return text_of(op, problem, [](std::size_t) { return true; });
}

std::string display_text(const Op& op, const Problem& problem) {
  return text_of(op, problem, [&](std::size_t i) {
    const Selection& selection = op.selections[i];
    const bool may_be_left_out = !selection.is_type() || selection.declares_default;
    return !may_be_left_out || problem.selections[i] != selection.default_beside(problem);
  });
}

std::optional<Problem> parse_bucket(const Op& op, std::string_view text) {
  std::vector<Setting> settings;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    settings.push_back({std::string(word.substr(0, equals)), std::string(word.substr(equals + 1))});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  try {
    return make_problem(op, settings);
  } catch (const Error&) {
    return std::nullopt;
  }
}

const BucketPolicy& policy_of(const Op& op, std::size_t axis, const Problem& problem) noexcept {
  const Axis& of = op.axes[axis];
  return of.policies.size() == 1 ? of.policies.front().policy : of.policy_at(selection_frame(op, problem));
}

bool is_exact(const Op& op, std::size_t axis, const Problem& problem) noexcept {
  return policy_of(op, axis, problem).kind == PolicyKind::exact;
}

Problem bucket_of(const Op& op, const Problem& problem) noexcept {
  Problem bucket = problem;
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    bucket.axes[i] = policy_of(op, i, problem).high(problem.axes[i], op.axes[i].maximum);
  }
  return bucket;
}

bool sizes_may_differ_between_ranks(const Op& op, const Problem& problem) noexcept {
  if (!op.is_of_team()) return false;
  const auto ranks = std::ranges::find(op.selections, "ranks", &Selection::name);
  if (ranks == op.selections.end()) return true;
  return ranks->values[problem.selections[static_cast<std::size_t>(ranks - op.selections.begin())]] != "alike";
}

Problem low_corner(const Op& op, const Problem& bucket) noexcept {
  Problem corner = bucket;
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    const Axis& axis = op.axes[i];
    const std::int64_t low = policy_of(op, i, bucket).low(bucket.axes[i], axis.minimum, axis.maximum);
    const std::int64_t past = low % axis.multiple_of;
    corner.axes[i] = past == 0 ? low : std::min(bucket.axes[i], low + (axis.multiple_of - past));
  }
  return corner;
}

}  // namespace kiln::manifest
