// Chooses the rows that kiln cache prune deletes, from its options.
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

/// A rule, and the records that it chose once File::prune has run.
struct ChosenRows {
  store::PruneRule rule;
  std::vector<std::string> records;  // keys; without those that the size limit chose
};

/// Throws Error(bad_input) when no condition is given, one does not parse, or one names something that the file does
/// not hold, and Error(no_device) for other_devices without a device.
std::unique_ptr<ChosenRows> choose_rows(const Globals& globals, const PruneWords& words, store::File& file);

}  // namespace kiln::cli
