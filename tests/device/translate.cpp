// translate FROM TO: device sources as C++ that a host compiler takes, files under FROM to the same places under TO.
//
// What CUDA C++ has built in is defined in emulator/cuda.hpp, which each begins with. Two things take more than definitions: asm
// statements become calls of the emulator's PTX, with operands that it can read and write; shared variables become references into the
// memory of the block.
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <regex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;

std::string replaced(const std::string& text, const char* pattern, const char* with) {
  return std::regex_replace(text, std::regex(pattern), with);
}

/// One past the literal that begins at `at`, or `at` where none begins.
std::size_t past_literal(std::string_view text, std::size_t at) {
  const char quote = text[at];
  if (quote != '"' && quote != '\'') return at;
  for (++at; at < text.size() && text[at] != quote; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at + 1;
}

bool blank(char c) { return c == ' ' || c == '\n' || c == '\\'; }
bool blank(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return blank(c); });
}

/// Of an asm statement from `at` up to the parenthesis that closes it: text, outputs and inputs, parted by commas. What it clobbers
/// leaves its line breaks, so that lines keep their numbers.
std::string arguments_of(std::string_view text, std::size_t& at) {
  std::vector<std::string> sections(1);
  for (int depth = 0; depth > 0 || text[at] != ')';) {
    const std::size_t past = std::max(past_literal(text, at), at + 1);
    const std::string_view piece = text.substr(at, past - at);
    at = past;
    if (piece == ":" && depth == 0) {
      sections.emplace_back();
      continue;
    }
    depth += piece == "(" ? 1 : piece == ")" ? -1 : 0;
    if (sections.size() <= 3 || blank(piece)) sections.back() += piece;
  }
  std::string arguments;
  for (const std::string& section : sections) arguments += (arguments.empty() || blank(section) ? "" : ", ") + section;
  return arguments;
}

std::string with_ptx_calls(const std::string& text) {
  static const std::regex statement(R"(\basm(\s+volatile)?\s*\()");
  std::string result;
  std::size_t at = 0;
  std::smatch found;
  for (std::string rest = text; std::regex_search(rest, found, statement); rest = text.substr(at)) {
    result += found.prefix().str() + "EMULATED_PTX(";
    at += static_cast<std::size_t>(found.position() + found.length());
    result += arguments_of(text, at);
  }
  return result + text.substr(at);
}

std::string translated(std::string text) {
  text = with_ptx_calls(text);
  text = replaced(text, R"re("[=]&?[rlhfd]"\s*\()re", "emulator::out(");
  text = replaced(text, R"re("\+[rlhfd]"\s*\()re", "emulator::both(");
  text = replaced(text, R"re("[rlhfdn]"\s*\()re", "emulator::in(");
  text = replaced(text, R"re("C"\s*\()re", "emulator::spliced(");

  text = replaced(text, R"(extern __shared__ (?:__align__\(\d+\) )?([\w:]+) (\w+)\[\];)",
                  "$1* const $2 = emulator::dynamic_shared<$1>();");
  text = replaced(text,
                  R"(__shared__ (?:__align__\(\d+\) )?([^;]*[^;, ]) (\w+)((?:\[[^\];]*\])*), (\w+)((?:\[[^\];]*\])*);)",
                  "__shared__ $1 $2$3; __shared__ $1 $4$5;");
  text = replaced(text, R"(__shared__ (?:__align__\(\d+\) )?([^;]*[^;, ]) (\w+)((?:\[[^\];]*\])*);)",
                  "static char key_of_$2; auto& $2 = emulator::static_shared<$1$3>(&key_of_$2);");
  return text;
}

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void translate(const fs::path& source, const fs::path& target) {
  static const std::regex left_over(R"((^|\n)([^/\n]*\b__shared__\b[^\n]*))");
  const std::string text =
      "#include \"emulator/cuda.hpp\"\n#line 1 \"" + source.string() + "\"\n" + translated(contents(source));
  if (std::smatch found; std::regex_search(text, found, left_over))
    throw std::runtime_error(source.string() + ": translate cannot read this declaration:" + found.str(2));
  if (fs::exists(target) && contents(target) == text) return;  // what includes it need not be compiled again
  fs::create_directories(target.parent_path());
  std::ofstream(target, std::ios::binary) << text;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::cerr << "usage: translate FROM TO\n";
    return 2;
  }
  try {
    const fs::path from = arguments[1], to = arguments[2];
    for (const auto& entry : fs::recursive_directory_iterator(from)) {
      if (entry.path().extension() == ".cuh") translate(entry.path(), to / fs::relative(entry.path(), from));
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
