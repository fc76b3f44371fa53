#include "cli/commands.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "cli/target.hpp"

namespace kiln::cli {

void add_device_class(CLI::App& command, std::string& device_class, const std::string& summary) {
  const auto resolve = [](std::string& word) {
    word = device_class_named(word);
    return std::string();
  };
  command.add_option("--device-class", device_class, summary + "; " + help_of_classes())
      ->transform(CLI::Validator(resolve, ""))
      ->type_name("CLASS");
}

CLI::Validator output_name() {
  const auto check = [](std::string& name) -> std::string {
    if (name.empty()) return "the output's name is empty";
    if (name == "-") return {};  // the standard output
    if (name.ends_with('/')) return fmt::format("{} names a folder; name a file in it", name);
    auto folder = std::filesystem::path(name).parent_path();
    if (folder.empty()) folder = ".";
    std::error_code ignored;
    if (!std::filesystem::is_directory(folder, ignored))
      return fmt::format("the folder of {} does not exist; make it, or name another", name);
    if (std::filesystem::exists(name, ignored) || access(folder.c_str(), W_OK | X_OK) == 0) return {};
    return fmt::format("the folder of {} may not be written ({}); name another", name, std::strerror(errno));
  };
  return CLI::Validator(check, "");
}

namespace {

template <class Number>
CLI::Validator in_range(const char* what, Number low, Number high) {
  const auto check = [=](std::string& text) -> std::string {
    Number number{};
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc{} && rest == end && number >= low && number <= high) {
      if (std::is_integral_v<Number>) text = fmt::to_string(number);
      return {};
    }
    return fmt::format("{} is not {} from {} to {}", text, what, low, high);
  };
  return CLI::Validator(check, "");
}

}  // namespace

CLI::Validator number_from(double low, double high) { return in_range("a number", low, high); }

CLI::Validator whole_number_from(std::uint64_t low, std::uint64_t high) {
  return in_range("a whole number", low, high);
}

}  // namespace kiln::cli
