// The values that all messages to and from a worker share, as JSON: the greeting, sources, bytes and errors.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/error.hpp"
#include "manifest/op.hpp"

namespace kiln::process {

/// The first message that a worker sends. It holds the version, which must be the parent's: the messages' format is not
/// stable.
nlohmann::json greeting();

nlohmann::json to_json(std::span<const manifest::SourceFile> files);
std::vector<manifest::SourceFile> files_from_json(const nlohmann::json& json);

nlohmann::json to_json(std::span<const std::byte> bytes);
std::vector<std::byte> bytes_from_json(const nlohmann::json& json);

/// As CBOR, for collectives of a team.
std::string packed(const nlohmann::json& json);
nlohmann::json unpacked(std::string_view text);

nlohmann::json to_json(const Error& error);
/// Throws the Error that `json` holds, if it holds one.
void rethrow(const nlohmann::json& json);

}  // namespace kiln::process
