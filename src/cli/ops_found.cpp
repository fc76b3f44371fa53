#include "cli/ops_found.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kiln/error.hpp"
#include "spec/text.hpp"

namespace kiln::cli {

const spec::Op& find_op(std::span<const spec::Op> ops, std::string_view name) {
  const auto found = std::find_if(ops.begin(), ops.end(), [&](const spec::Op& op) { return op.name == name; });
  if (found != ops.end()) return *found;
  std::vector<std::string> names;
  for (const spec::Op& op : ops) names.push_back(op.name);
  throw Error(ErrorKind::bad_input, fmt::format("there is no op {}{}; there are {}", spec::quote(name),
                                                spec::did_you_mean(name, names), fmt::join(names, ", ")));
}

}  // namespace kiln::cli
