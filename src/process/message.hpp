// What every conversation with a worker has, as JSON values: the greeting, sources, bytes and errors.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "kiln/error.hpp"
#include "manifest/op.hpp"

namespace kiln::process {

/// What a worker says as soon as it runs. Both sides are of one version: messages are no format that is kept.
nlohmann::json greeting();

nlohmann::json to_json(std::span<const manifest::SourceFile> files);
std::vector<manifest::SourceFile> files_from_json(const nlohmann::json& json);

nlohmann::json to_json(std::span<const std::byte> bytes);
std::vector<std::byte> bytes_from_json(const nlohmann::json& json);

nlohmann::json to_json(const Error& error);
/// Throws what the other side said that it met.
void rethrow(const nlohmann::json& json);

}  // namespace kiln::process
