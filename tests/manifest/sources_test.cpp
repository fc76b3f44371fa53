#include "manifest/sources.hpp"

#include <doctest/doctest.h>

using namespace kiln::manifest;

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

TEST_CASE("a text is shared by its copies, and one that the library holds is not copied at all") {
  static constexpr std::string_view held = "int a;";
  const SourceText borrowed = SourceText::of_static(held);
  CHECK(borrowed.c_str() == held.data());
  const SourceText owned = std::string("int a;");
  const SourceText copy = owned;  // NOLINT(performance-unnecessary-copy-initialization)
  CHECK(copy.c_str() == owned.c_str());
  CHECK(copy == borrowed);
  CHECK(std::string_view(SourceText("int b;")) == "int b;");
  CHECK(!(SourceText("int b;") == owned));
}
