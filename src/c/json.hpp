// Reports as JSON for other languages.
#pragma once

#include <nlohmann/json.hpp>

#include "kiln/engine.hpp"
#include "kiln/tuner.hpp"

namespace kiln::c {

using Json = nlohmann::ordered_json;

Json to_json(const Explanation& explanation);
Json to_json(const Coverage& coverage);
Json to_json(const TuneReport& report);
Json to_json(const Deployment& deployment);
/// In UTF-8: a byte of a path that is none becomes U+FFFD.
std::string line_of(const Json& json);
/// For people: a line for each of the explanation's members that says something.
std::string text_of(const Explanation& explanation);

}  // namespace kiln::c
