// What a program of Kiln was built of: a worker serves only an owner that was built of the same.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace kiln::process {

/// The version and a digest of the sources that a worker is made of, "0.1.0 3f2a9c0011223344".
/// cmake/WriteIdentity.cmake writes the definition, and a note in the ELF file that says the same.
std::string_view identity() noexcept;

/// What that note of a file says, without running it. Empty where it has none, as a script that runs a worker.
std::string identity_of(const std::filesystem::path& program);

}  // namespace kiln::process
