// The built-in ops, without a compile: tests/builtin_ops compiles them.
#include <doctest/doctest.h>

#include "checked_op.hpp"
#include "manifest/catalogue.hpp"

using namespace kiln;
using namespace kiln::check;
using namespace kiln::check::testing;

TEST_CASE("every built-in op passes its check") {
  const manifest::Catalogue ops(std::span<const std::filesystem::path>{});
  for (const manifest::Op& op : ops.all()) {
    Findings findings;
    static_cast<void>(check_op({op, {}}, {{h200()}, {}, false, {}}, findings));
    const std::string said = text_of(findings);
    CAPTURE(said);
    CHECK(findings.count(Severity::error) == 0);
    CHECK(findings.count(Severity::warning) <= 1);  // a [search] for few sizes, a default for newer devices
  }
}
