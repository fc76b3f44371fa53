// An op for programs that do not know it: kiln::OpDescription, and its JSON.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

#include "kiln/description.hpp"
#include "manifest/site.hpp"

namespace kiln::manifest {

/// What the manifest says, without a problem.
OpDescription describe(const Op& op);
/// At a problem, which may have sizes of 0. Throws Error(bad_input) for one that the op does not have, and for sizes at
/// which a tensor or a default cannot be computed.
OpDescription describe(const Site& site, const Problem& problem);
/// An object with a member for each of the description's, in its order.
nlohmann::ordered_json to_json(const OpDescription& description);

/// The comment that op.toml begins with, without its signs.
std::string contract_of(const Op& op);
/// "none", or "as dtype, but bf16 for e4m3".
std::string default_text(const Op& op, const Selection& selection);
std::string_view to_string(RuntimeType type) noexcept;
RuntimeId runtime_id(const Op& op, std::size_t index) noexcept;
TensorId tensor_id(const Op& op, std::size_t index);

}  // namespace kiln::manifest
