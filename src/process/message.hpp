// The values that all messages to and from a worker share, as JSON: the greeting, sources, bytes and errors.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/error.hpp"
#include "manifest/op.hpp"

namespace kiln::process {

/// The first message that a worker sends. It holds identity(), which must be the parent's: the messages' format is not
/// stable.
nlohmann::json greeting();

nlohmann::json to_json(std::span<const manifest::SourceFile> files);
std::vector<manifest::SourceFile> files_from_json(const nlohmann::json& json);

nlohmann::json to_json(std::span<const std::byte> bytes);
std::vector<std::byte> bytes_from_json(const nlohmann::json& json);

/// Reads CBOR (RFC 8949). Nothing where it is malformed, or nested more than 64 deep: the reader and users of the value
/// recur.
std::optional<nlohmann::json> read_cbor(std::span<const unsigned char> bytes);

/// As CBOR, for collectives of a team.
std::string packed(const nlohmann::json& json);
/// Throws Error(io) for what read_cbor() does not read.
nlohmann::json unpacked(std::string_view text);

nlohmann::json to_json(const Error& error);
/// Throws the Error that `json` holds, if it holds one; another std::exception where that is malformed.
void rethrow(const nlohmann::json& json);

}  // namespace kiln::process
