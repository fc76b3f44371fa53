#include "driver/faults.hpp"

#include <algorithm>

#include "driver/errors.hpp"
#include "driver/settings.hpp"

namespace fake_cuda {
namespace {

/// What follows the first `count` words of a statement: a pattern may hold blanks.
std::string after_words(std::string_view statement, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    statement.remove_prefix(std::min(statement.find_first_not_of(' '), statement.size()));
    statement.remove_prefix(std::min(statement.find(' '), statement.size()));
  }
  statement.remove_prefix(std::min(statement.find_first_not_of(' '), statement.size()));
  return std::string(statement);
}

}  // namespace

std::optional<CUresult> parse_result(std::string_view text) {
  for (const ErrorText& error : error_texts()) {
    if (text == error.name) return error.result;
  }
  unsigned number = 0;
  if (parse_number(text, number)) return static_cast<CUresult>(number);
  return std::nullopt;
}

bool Faults::obey(std::string_view statement) {
  const std::vector<std::string_view> words = split(statement, ' ');
  if (words.empty()) return false;
  if (words[0] == "fail") return obey_fail(words);
  if (words[0] == "kernel") return obey_kernel(words, statement);
  if ((words[0] == "module" || words[0] == "launch") && words.size() >= 3) {
    const auto code = parse_result(words[1]);
    if (code) (words[0] == "module" ? modules_ : launches_).push_back({*code, after_words(statement, 2)});
    return code.has_value();
  }
  if (words[0] == "hold" && words.size() == 2) {
    held_.emplace_back(words[1]);
    return true;
  }
  if (words[0] == "time")
    return words.size() == 3 && parse_number(words[1], false_time_) && parse_number(words[2], false_time_every_);
  if (words[0] != "heal") return false;
  false_time_every_ = 0;
  calls_to_fail_.clear();
  held_.clear();
  modules_.clear();
  launches_.clear();
  kernels_.clear();
  return true;
}

bool Faults::obey_fail(std::span<const std::string_view> words) {
  if (words.size() < 3) return false;
  const auto code = parse_result(words[2]);
  if (!code) return false;
  CallFault fault{std::string(words[1]), *code, 1, false};
  for (std::size_t i = 3; i < words.size(); ++i) {
    if (words[i] == "sticky") {
      fault.sticky = true;
    } else if (words[i] != "at" || ++i == words.size() || !parse_number(words[i], fault.calls_left)) {
      return false;
    }
  }
  calls_to_fail_.push_back(std::move(fault));
  return true;
}

bool Faults::obey_kernel(std::span<const std::string_view> words, std::string_view statement) {
  if (words.size() < 3) return false;
  if (words[1] == "wrong") {
    kernels_.push_back({KernelFault::Kind::wrong, 1, after_words(statement, 2)});
  } else if (words[1] == "hasty") {
    kernels_.push_back({KernelFault::Kind::hasty, 1, after_words(statement, 2)});
  } else if (words[1] == "peeks") {
    kernels_.push_back({KernelFault::Kind::peeks, 1, after_words(statement, 2)});
  } else if (words[1] == "fault") {
    kernels_.push_back({KernelFault::Kind::fault, 1, after_words(statement, 2)});
  } else if (words[1] == "hang") {
    kernels_.push_back({KernelFault::Kind::hang, 1, after_words(statement, 2)});
  } else if (words[1] == "interrupt") {
    kernels_.push_back({KernelFault::Kind::interrupt, 1, after_words(statement, 2)});
  } else if (double factor = 1; words[1] == "slow" && words.size() >= 4 && parse_number(words[2], factor)) {
    kernels_.push_back({KernelFault::Kind::slow, factor, after_words(statement, 3)});
  } else if (words[1] == "odd" && words.size() >= 4 && parse_number(words[2], factor)) {
    kernels_.push_back({KernelFault::Kind::odd, factor, after_words(statement, 3)});
  } else if (words[1] == "prompt" && words.size() >= 4 && parse_number(words[2], factor)) {
    kernels_.push_back({KernelFault::Kind::prompt, factor, after_words(statement, 3)});
  } else {
    return false;
  }
  return true;
}

float Faults::on_time(float milliseconds) {
  if (false_time_every_ == 0 || ++times_ % false_time_every_ != 0) return milliseconds;
  ++effective_;
  return static_cast<float>(false_time_);
}

std::optional<CUresult> Faults::on_call(std::string_view function) {
  const auto found = calls_.find(function);
  if (found == calls_.end()) {
    calls_.emplace(function, 1);
  } else {
    ++found->second;
  }
  for (CallFault& fault : calls_to_fail_) {
    if (fault.function != function) continue;
    --fault.calls_left;
    if (fault.calls_left == 0 || (fault.calls_left < 0 && fault.sticky)) {
      ++effective_;
      return fault.code;
    }
  }
  return std::nullopt;
}

bool Faults::holds(std::string_view function) const {
  return std::find(held_.begin(), held_.end(), function) != held_.end();
}

std::optional<CUresult> Faults::on_module(std::span<const std::string> kernels) {
  for (const Refusal& fault : modules_) {
    for (const std::string& kernel : kernels) {
      if (kernel.find(fault.pattern) == std::string::npos) continue;
      ++effective_;
      return fault.code;
    }
  }
  return std::nullopt;
}

std::optional<CUresult> Faults::on_refusal(std::string_view kernel) {
  for (const Refusal& fault : launches_) {
    if (kernel.find(fault.pattern) == std::string_view::npos) continue;
    ++effective_;
    return fault.code;
  }
  return std::nullopt;
}

std::vector<KernelFault> Faults::on_launch(std::string_view kernel) {
  const auto meets = [&](const KernelFault& fault) { return kernel.find(fault.pattern) != std::string_view::npos; };
  std::vector<KernelFault> met;
  std::copy_if(kernels_.begin(), kernels_.end(), std::back_inserter(met), meets);
  effective_ += static_cast<std::int64_t>(met.size());
  std::erase_if(kernels_, [&](const KernelFault& fault) {  // a second one would end the process
    return fault.kind == KernelFault::Kind::interrupt && meets(fault);
  });
  return met;
}

std::int64_t Faults::calls(std::string_view function) const {
  const auto found = calls_.find(function);
  return found == calls_.end() ? 0 : found->second;
}

}  // namespace fake_cuda
