#include "cli/problem_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <numeric>
#include <optional>

#include "kiln/error.hpp"
#include "manifest/names.hpp"
#include "manifest/text.hpp"

namespace kiln::cli {
namespace {

[[noreturn]] void fail(const manifest::Op& op, const std::string& message) {
  throw Error(ErrorKind::bad_input, fmt::format("op '{}': {}", op.name, message));
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end == std::string::npos ? end : end - begin));
  }
  return parts;
}

std::int64_t parse_size(const manifest::Op& op, const manifest::Axis& axis, std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range)
    fail(op, fmt::format("axis '{}' is {}, which 64 bits cannot hold", axis.name, manifest::quote(text)));
  if (error != std::errc{} || end != text.data() + text.size())
    fail(op, fmt::format("axis '{}' is {}, expected a size, a list of sizes (1,2,4) or a range (1..4096)", axis.name,
                         manifest::quote(text)));
  if (number < axis.minimum)
    fail(op, fmt::format("axis '{}' is {}, expected {} or more", axis.name, number, axis.minimum));
  if (number > axis.maximum)
    fail(op, fmt::format("axis '{}' is {}, expected at most {}", axis.name, number, axis.maximum));
  return number;
}

Range parse_range(const manifest::Op& op, const manifest::Axis& axis, const std::string& item) {
  const std::size_t dots = item.find("..");
  if (dots == std::string::npos) {
    const std::int64_t size = parse_size(op, axis, item);
    if (size % axis.multiple_of != 0)
      fail(op, fmt::format("axis '{}' is {}, expected a multiple of {}", axis.name, size, axis.multiple_of));
    return {size, size};
  }
  const std::string_view text = item;
  const Range range{parse_size(op, axis, text.substr(0, dots)), parse_size(op, axis, text.substr(dots + 2))};
  if (range.low > range.high)
    fail(op, fmt::format("axis '{}' is {}, a range whose end comes before its beginning", axis.name,
                         manifest::quote(item)));
  return range;
}

std::string text_of(std::span<const Range> ranges) {
  std::string text;
  for (const Range& each : ranges) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", each.low);
    if (each.high != each.low) text += fmt::format("..{}", each.high);
  }
  return text;
}

/// The axis of a team is the number of ranks that the command runs on, and may be left out.
void take_world(const manifest::Op& op, std::vector<Range>& given, int world) {
  const manifest::Axis& axis = op.axes[static_cast<std::size_t>(op.team_axis())];
  const Range all = parse_range(op, axis, std::to_string(world));
  if (given.empty()) given.push_back(all);
  if (given == std::vector{all}) return;
  fail(op, fmt::format("axis '{}' is {}, and the command runs on {} ranks; give {}={}, or leave it out", axis.name,
                       text_of(given), world, axis.name, world));
}

std::uint8_t parse_word(const manifest::Op& op, const manifest::Selection& selection, const std::string& word) {
  const auto found = std::find(selection.values.begin(), selection.values.end(), word);
  if (found == selection.values.end())
    fail(op, fmt::format("'{}' is {}{}, expected {}", selection.name, manifest::quote(word),
                         manifest::did_you_mean(word, selection.values), manifest::one_of(selection.values)));
  return static_cast<std::uint8_t>(found - selection.values.begin());
}

/// Sizes of axes that are seldom near 4096. One that is part of another axis is no larger than that.
struct UsualSize {
  std::string_view axis;
  std::int64_t size;
  std::string_view of = {};
};
constexpr std::array usual_sizes = {UsualSize{"batch", 8},
                                    UsualSize{"heads", 32},
                                    UsualSize{"key_heads", 8, "heads"},
                                    UsualSize{"head_dim", 128},
                                    UsualSize{"value_dim", 128, "head_dim"},
                                    UsualSize{"dim", 128},
                                    UsualSize{"rotary_dim", 128, "dim"},
                                    UsualSize{"groups", 8},
                                    UsualSize{"world", 8}};

const std::string* given(const std::vector<manifest::Setting>& settings, std::string_view name) {
  const auto found = std::ranges::find(settings, name, &manifest::Setting::name);
  return found == settings.end() ? nullptr : &found->value;
}

std::int64_t usual_size(const manifest::Axis& axis, const std::vector<manifest::Setting>& settings) {
  constexpr std::int64_t of_most = 4096, of_few = 1, few = 16;  // few: an axis without room for more, such as queries
  const auto known = std::ranges::find(usual_sizes, axis.name, &UsualSize::axis);
  if (known == usual_sizes.end()) return axis.maximum <= few ? of_few : of_most;
  std::int64_t whole = known->size;
  if (const std::string* const size = given(settings, known->of))
    std::from_chars(size->data(), size->data() + size->size(), whole);
  return whole <= 0                   ? known->size
         : known->axis == "key_heads" ? std::gcd(known->size, whole)
                                      : std::min(known->size, whole);
}

}  // namespace

const manifest::Op& find_op(const manifest::Catalogue& ops, std::string_view name, std::string_view what) {
  if (const manifest::Op* found = ops.op(name)) return *found;
  const auto refused = std::ranges::find(ops.refused(), name, &manifest::RefusedOp::name);
  if (refused != ops.refused().end()) manifest::refuse(*refused);
  const std::vector<std::string>& names = ops.names();
  std::error_code ignored;
  const bool is_here = manifest::is_identifier(name) &&
                       std::filesystem::exists(std::filesystem::path(name) / manifest::op_file, ignored);
  const std::string meant = manifest::did_you_mean(name, names);
  const std::string_view remedy =
      name.ends_with(".toml") ? "; a workload is for kiln prewarm and kiln coverage"
      : is_here               ? "; its folder is here: give --templates ."
      : meant.empty()
          ? "; an op of your own needs --templates or KILN_TEMPLATE_PATH, with the folder that holds its folder"
          : "";
  throw Error(ErrorKind::bad_input, fmt::format("there is no {} {}{}{}; there are {}", what, manifest::quote(name),
                                                meant, remedy, fmt::join(names, ", ")));
}

manifest::Setting parse_setting(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == word.size())
    throw Error(ErrorKind::bad_input,
                fmt::format("{} is not of the form name=value, such as rows=512 or dtype=bf16", manifest::quote(word)));
  return {word.substr(0, equals), word.substr(equals + 1)};
}

std::vector<manifest::Setting> parse_settings(std::span<const std::string> words) {
  std::vector<manifest::Setting> settings;
  for (const std::string& word : words) settings.push_back(parse_setting(word));
  return settings;
}

ProblemSet parse_problem_set(const manifest::Op& op, std::span<const std::string> words, int world) {
  ProblemSet set{std::vector<std::vector<Range>>(op.axes.size()),
                 std::vector<std::vector<std::uint8_t>>(op.selections.size())};
  const std::vector<std::string> names = manifest::names_of_problem(op);
  for (const manifest::Setting& setting : parse_settings(words)) {
    const auto index = static_cast<std::size_t>(std::find(names.begin(), names.end(), setting.name) - names.begin());
    if (index == names.size()) fail(op, manifest::why_unknown(op, setting.name));
    const bool is_axis = index < op.axes.size();
    const std::size_t selection = is_axis ? 0 : index - op.axes.size();
    if (is_axis ? !set.axes[index].empty() : !set.selections[selection].empty())
      fail(op, fmt::format("'{}' is given twice, expected it once", setting.name));
    for (const std::string& item : split(setting.value, ',')) {
      if (is_axis)
        set.axes[index].push_back(parse_range(op, op.axes[index], item));
      else
        set.selections[selection].push_back(parse_word(op, op.selections[selection], item));
    }
  }
  if (op.is_of_team() && world > 0) take_world(op, set.axes[static_cast<std::size_t>(op.team_axis())], world);
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    if (set.axes[i].empty())
      fail(op, fmt::format("axis '{}' is missing, expected {}=SIZE, a list or a range", names[i], names[i]));
  return set;
}

Problem parse_problem(const manifest::Op& op, std::span<const std::string> words, manifest::Zeros zeros) {
  const std::vector<manifest::Setting> settings = parse_settings(words);
  for (const manifest::Setting& setting : settings)
    if (setting.value.find("..") != std::string::npos || setting.value.find(',') != std::string::npos)
      fail(op, fmt::format("'{}' is {}, expected one value: this command takes one problem", setting.name,
                           manifest::quote(setting.value)));
  return manifest::make_problem(op, settings, zeros);
}

std::string display_stored(const manifest::Catalogue& ops, std::string_view op, std::string_view stored) {
  const manifest::Op* found = ops.op(op);
  const auto problem = found == nullptr ? std::nullopt : manifest::parse_bucket(*found, stored);
  return problem ? manifest::display_text(*found, *problem) : std::string(stored);
}

Problem sample_problem(const manifest::Op& op, std::span<const std::string> words) {
  std::vector<manifest::Setting> settings = parse_settings(words);
  for (const manifest::Axis& axis : op.axes) {
    if (given(settings, axis.name) != nullptr) continue;
    const std::int64_t size = std::min(manifest::next_legal(axis, usual_size(axis, settings)),
                                       axis.maximum - axis.maximum % axis.multiple_of);
    settings.push_back({axis.name, std::to_string(size)});
  }
  return manifest::make_problem(op, settings);
}

}  // namespace kiln::cli
