// An expression and a frame: "ceil_div(a, 2) * sizeof(dtype); 7 -1 0 2". Whatever is parsed must mean what the oracle
// says, whole and specialised at each slot; whatever is not must be refused as Error(bad_expression).
#include <charconv>
#include <cstdint>
#include <string_view>
#include <vector>

#include "expression_oracle.hpp"
#include "kiln/error.hpp"
#include "support.hpp"

namespace kiln::fuzz {
namespace {

const manifest::Symbols& symbols() {
  static const manifest::Symbols all = [] {
    manifest::Symbols result;
    for (const char* axis : {"a", "b", "c"}) result.add(axis);
    result.add({"dtype", {"bf16", "f32", "f64", "f16"}, {2, 4, 8, 2}});
    result.add({"mode", {"plain", "wide"}, {}});
    for (const char* parameter : {"d", "e"}) result.add(parameter);
    return result;
  }();
  return all;
}

/// The numbers of the text, slot by slot; what is missing or no number is 0. A selection's slot holds an index.
std::vector<std::int64_t> read_frame(std::string_view text) {
  std::vector<std::int64_t> frame;
  for (int slot = 0; slot < symbols().size(); ++slot) {
    while (text.starts_with(' ')) text.remove_prefix(1);
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(word.size());
    std::int64_t value = 0;
    std::from_chars(word.data(), word.data() + word.size(), value);
    const auto words = static_cast<std::uint64_t>(symbols()[slot].words.size());
    frame.push_back(words == 0 ? value : static_cast<std::int64_t>(static_cast<std::uint64_t>(value) % words));
  }
  return frame;
}

bool same(manifest::Value a, manifest::Value b) { return a.status == b.status && a.number == b.number; }

void check(const manifest::Expression& whole, std::string_view text, const std::vector<std::int64_t>& frame) {
  const manifest::Value wanted = oracle(text, symbols(), frame);
  require(same(whole.evaluate(frame), wanted), "an expression has the value, or the failure, that its text means");
  require(whole.text() == text, "an expression keeps its text");
  if (const auto constant = whole.constant_value())
    require(wanted.ok() && *constant == wanted.number, "a constant is what it evaluates to");
  for (int known = 0; known <= symbols().size(); ++known) {
    const manifest::Expression part = whole.specialise(frame, known);
    for (const int slot : part.slots()) require(slot < known, "a specialised expression uses no slot that was known");
    require(same(part.evaluate(std::span(frame).first(static_cast<std::size_t>(known))), wanted),
            "a specialised expression means what the whole one does");
  }
}

}  // namespace
}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view text = input.substr(0, input.find(';'));
  try {
    const auto whole = manifest::Expression::parse(text, fuzz::symbols());
    fuzz::check(whole, text, fuzz::read_frame(input.substr(std::min(size, text.size() + 1))));
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::bad_expression, "what is no expression is refused as such", error.what());
  }
  return 0;
}
