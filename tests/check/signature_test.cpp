// The types of kernels' parameters, by mangled names.
#include "check/signature.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

using namespace kiln::check;

TEST_CASE("a type is taken apart as a demangler writes it") {
  const auto is = [](std::string_view text, TypeKind kind, std::string_view element, bool points_to_const) {
    const ParameterType type = parse_type(text);
    CAPTURE(text);
    CHECK(type.kind == kind);
    CHECK(type.element == element);
    CHECK(type.points_to_const == points_to_const);
    CHECK(type.text == text);
  };
  is("float", TypeKind::real, "", false);
  is("unsigned long long", TypeKind::integer, "", false);
  is("kiln::bf16 const*", TypeKind::pointer, "kiln::bf16", true);
  is("kiln::e4m3*", TypeKind::pointer, "kiln::e4m3", false);
  is("float const volatile*", TypeKind::pointer, "float", true);
  is("float const**", TypeKind::pointer, "float const*", false);
  is("kiln::view<float const, 2>", TypeKind::view, "float", true);
  is("kiln::view<kiln::packed<kiln::bf16, (2)*(4)>, 1>", TypeKind::view, "kiln::packed<kiln::bf16, (2)*(4)>", false);
  is("kiln::tensor_map", TypeKind::other, "", false);
  is("kiln::view<float>", TypeKind::other, "", false);
}

TEST_CASE("parameters are read from the name of a function, a template or not") {
  const auto plain = parameter_types("_Z9add_partsPKfPfxi");
  REQUIRE(plain);
  REQUIRE(plain->size() == 4);
  CHECK(plain->at(0).points_to_const);
  CHECK(plain->at(1).text == "float*");
  CHECK(plain->at(2).text == "long long");
  CHECK(plain->at(3).kind == TypeKind::integer);

  // template <typename T, int, words> __global__ void scale(kiln::view<const T, 1>, T*, float)
  const auto instance = parameter_types("_Z5scaleIN4kiln4bf16ELi2EL5words1EEvNS0_4viewIKT_Li1EEEPS4_f");
  REQUIRE(instance);
  REQUIRE(instance->size() == 3);
  CHECK(instance->at(0).kind == TypeKind::view);
  CHECK(instance->at(0).element == "kiln::bf16");
  CHECK(instance->at(0).points_to_const);
  CHECK(instance->at(2).kind == TypeKind::real);

  CHECK(parameter_types("_Z4nonev")->empty());
  CHECK(!parameter_types("extern_c"));
}

TEST_CASE("any name and any type are read to their end") {
  CHECK(rc::check([](const std::string& text) {
    static_cast<void>(parse_type(text));
    static_cast<void>(parameter_types("_Z" + text));
  }));
}
