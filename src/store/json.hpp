// Conversion of records to and from JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "store/record.hpp"

namespace kiln::store {

/// Returns one line without a line end, with the fields in a fixed order. Numbers read back as the same double.
std::string to_json(const Record& record);
/// Throws Error(bad_input), naming the field that is missing, unknown, repeated or of another type.
Record record_from_json(std::string_view line);

std::string to_json(const std::vector<std::string>& words);
/// Throws Error(bad_input) unless `text` is an array of strings.
std::vector<std::string> words_from_json(std::string_view text);

}  // namespace kiln::store
