// What kiln cache prune takes away, from the words of its options.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/session.hpp"
#include "store/file.hpp"

namespace kiln::cli {

struct PruneWords {
  std::string unused{}, op{}, device_class{}, max_size{};
  bool stale = false, other_devices = false;
};

/// A rule, and what it has chosen once File::prune has run.
struct ChosenRows {
  store::PruneRule rule;
  std::vector<std::string> records;  // keys, but for those that the size limit took
};

/// Throws Error(bad_input) for words that do not parse, choose nothing, or name what the file does not hold, and Error(no_device)
/// for other_devices without a device.
std::unique_ptr<ChosenRows> choose_rows(const Globals& globals, const PruneWords& words, store::File& file);

}  // namespace kiln::cli
