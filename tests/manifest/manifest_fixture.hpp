// What the tests of this module share: a device, and a small op with everything that a manifest can say.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "manifest/op.hpp"

namespace kiln::manifest::testing {

inline DeviceFacts h200() {
  DeviceFacts facts;
  facts.values = {90, 132, 232448, 233472, 65536, 2048, 62914560};
  facts.memory_bus_bits = 6144;
  return facts;
}

/// The folder of a small op; tests change a line and see what happens.
struct Folder {
  std::string op;
  std::string implementation;
  [[nodiscard]] std::vector<SourceFile> files() const {
    return {{"op.toml", op}, {"fast.toml", implementation}, {"fast.cuh", "// fast"}, {"reference.cuh", "// reference"}};
  }
  [[nodiscard]] Op parse() const { return parse_op("scale", "/ops/scale", files()); }
};
Folder scale_folder();

/// `text` with the one occurrence of `from` replaced; fails the test when there is not exactly one.
std::string replaced(std::string text, std::string_view from, std::string_view to);

/// "FILE:LINE: found X, expected Y"
std::string text_of(const Mistake& mistake);

/// What is said of the folder's manifests, which are bad ones; "accepted" if nothing is. Checks that a reader that
/// collects mistakes says it too, first.
std::string refusal_of(const Folder& folder);

}  // namespace kiln::manifest::testing
