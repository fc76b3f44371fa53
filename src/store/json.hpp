// Records as JSON, in one place: nlohmann's header is included by json.cpp alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "store/record.hpp"

namespace kiln::store {

/// One line without its end, fields in a fixed order, numbers in a form that reads back to the same double.
std::string to_json(const Record& record);
/// Throws Error(bad_input) saying which field is missing, unknown, or of another type.
Record record_from_json(std::string_view line);

/// ["a","b"]
std::string to_json(const std::vector<std::string>& words);
/// Throws Error(bad_input).
std::vector<std::string> words_from_json(std::string_view text);

}  // namespace kiln::store
