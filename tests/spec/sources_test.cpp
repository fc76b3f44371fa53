#include "spec/sources.hpp"

#include <doctest/doctest.h>

using namespace kiln::spec;

TEST_CASE("copies of a list of sources share what is kept with it, equal lists do not") {
  struct Number final : Sources::Finding {
    explicit Number(int of) : value(of) {}
    int value;
  };
  const std::vector<SourceFile> files = {{"a.cuh", "int a;"}, {"b.cuh", "int b;"}};
  const Sources first(files);
  const Sources copy = first;  // NOLINT(performance-unnecessary-copy-initialization)
  const Sources equal(files);
  CHECK(first.kept("length") == nullptr);
  first.keep("length", std::make_shared<Number>(12));
  CHECK(static_cast<const Number&>(*copy.kept("length")).value == 12);
  CHECK(copy.kept("another") == nullptr);
  CHECK(equal.kept("length") == nullptr);
  CHECK(equal == first);
  CHECK(!(Sources({files[0]}) == first));
}
