// A new op to begin with: it is checked, tuned and launched as it is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "manifest/sources.hpp"

namespace kiln::check {

/// The files of an op y = x * factor, whose kernels are named after the op. `name` is an identifier.
std::vector<manifest::SourceFile> skeleton(std::string_view name);

/// Says what an identifier is where skeleton() would not compile with it: "a keyword of C++". Empty for any other name.
std::string what_else_it_is(std::string_view name);

}  // namespace kiln::check
