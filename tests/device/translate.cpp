// translate FROM TO: device sources as C++ that a host compiler takes, files under FROM to the same places under TO.
//
// What CUDA C++ has built in is defined in emulator/cuda.hpp, which each begins with. Two things take more than definitions: asm
// statements become calls of the emulator's PTX, with operands that it can read and write; shared variables become references into the
// memory of the block.
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <regex>
#include <string>
#include <string_view>
#include <utility>

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

/// Of an asm statement's inside, up to the parenthesis that closes it: its sections parted by commas, without what it clobbers.
std::string joined_sections(std::string_view text, std::size_t& at) {
  std::string joined;
  int depth = 0, section = 0;
  bool pending = false;  // a comma, before the next thing that is no space
  for (; at < text.size() && (depth > 0 || text[at] != ')'); ++at) {
    const std::size_t past = past_literal(text, at);
    if (depth == 0 && text[at] == ':') {
      ++section;
      pending = true;
      continue;
    }
    const bool space = text[at] == ' ' || text[at] == '\n' || text[at] == '\\';
    if (section > 2 && !space) {
      if (past != at) at = past - 1;
      continue;
    }
    if (pending && !space) {
      joined += ", ";
      pending = false;
    }
    if (past != at) {
      joined += text.substr(at, past - at);
      at = past - 1;
      continue;
    }
    depth += text[at] == '(' ? 1 : text[at] == ')' ? -1 : 0;
    joined += text[at];
  }
  return joined;
}

std::string with_ptx_calls(const std::string& text) {
  static const std::regex statement(R"(\basm(\s+volatile)?\s*\()");
  std::string result;
  std::size_t at = 0;
  std::smatch found;
  for (std::string rest = text; std::regex_search(rest, found, statement); rest = text.substr(at)) {
    result += found.prefix().str() + "EMULATED_PTX(";
    at += static_cast<std::size_t>(found.position() + found.length());
    result += joined_sections(text, at);
  }
  return result + text.substr(at);
}

std::string translated(std::string text) {
  text = with_ptx_calls(text);
  text = replaced(text, R"re("[=]&?[rlhfd]"\s*\()re", "emulator::out(");
  text = replaced(text, R"re("\+[rlhfd]"\s*\()re", "emulator::both(");
  text = replaced(text, R"re("[rlhfdn]"\s*\()re", "emulator::in(");
  text = replaced(text, R"re("C"\s*\()re", "emulator::spliced(");

  const char* const name = R"((\w+)((?:\[[^\];]*\])*))";
  text = replaced(text, R"(extern __shared__ (?:__align__\(\d+\) )?([\w:]+) (\w+)\[\];)",
                  "$1* const $2 = emulator::dynamic_shared<$1>();");
  text = replaced(text,
                  R"(__shared__ (?:__align__\(\d+\) )?([^;]*[^;, ]) (\w+)((?:\[[^\];]*\])*), (\w+)((?:\[[^\];]*\])*);)",
                  "__shared__ $1 $2$3; __shared__ $1 $4$5;");
  text = replaced(text, (R"(__shared__ (?:__align__\(\d+\) )?([^;]*[^;, ]) )" + std::string(name) + ";").c_str(),
                  "static char key_of_$2; auto& $2 = emulator::static_shared<$1$3>(&key_of_$2);");
  return text;
}

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::cerr << "usage: translate FROM TO\n";
    return 2;
  }
  const fs::path from = arguments[1], to = arguments[2];
  for (const auto& entry : fs::recursive_directory_iterator(from)) {
    if (entry.path().extension() != ".cuh") continue;
    const fs::path target = to / fs::relative(entry.path(), from);
    const std::string text = "#include \"emulator/cuda.hpp\"\n#line 1 \"" + entry.path().string() + "\"\n" +
                             translated(contents(entry.path()));
    if (fs::exists(target) && contents(target) == text) continue;  // what includes it need not be compiled again
    fs::create_directories(target.parent_path());
    std::ofstream(target, std::ios::binary) << text;
  }
}
