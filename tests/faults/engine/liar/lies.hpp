// What a lying worker says: honest answers, and lies about each message of a worker.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

namespace kiln::faults {

/// The messages of a worker.
enum class Asked { begin, lengths, admit, sample, compile, greeting };

Asked kind_of(const nlohmann::json& message);
nlohmann::json honest(Asked asked, const nlohmann::json& message);

struct Lie {
  std::vector<unsigned char> bytes;
  bool ends = false;  // the worker ends after it, since it is half a message, or none
};
std::vector<Lie> lies_about(Asked asked);

}  // namespace kiln::faults
