// The page of a report: page.html, page.css and the scripts, made part of the command by the build, and the facts that
// they draw.
#pragma once

#include <string>
#include <string_view>

#include "cli/output.hpp"

namespace kiln::cli::report {

std::string_view
page_template() noexcept;  // page.html, a format string: {style_hash} {style} {script_hash} {script} {facts}
std::string_view page_style() noexcept;   // page.css
std::string_view page_script() noexcept;  // draw.js, page.js and controls.js, in this order

/// The whole page; equal facts give equal bytes. It asks for nothing from outside, and its policy allows only its own
/// script.
std::string page_of(const Json& facts);

/// "'sha256-...'": the name of an inline style or script in a Content-Security-Policy.
std::string policy_hash(std::string_view text);

}  // namespace kiln::cli::report
