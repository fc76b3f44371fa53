// The page's style and script: page.css and page.js beside this file, made part of the command by the build.
#pragma once

#include <string_view>

namespace kiln::cli::report {

std::string_view page_style() noexcept;
std::string_view page_script() noexcept;

}  // namespace kiln::cli::report
