#include "check/includes.hpp"

#include <fmt/format.h>

#include <map>
#include <set>

#include "jit/source_lexer.hpp"

namespace kiln::check {
namespace {

using jit::Token;
using jit::TokenKind;

struct Include {
  std::string name;
  int line = 1;
};

/// The files that the source includes by name. Conditionals are not evaluated.
std::vector<Include> includes_of(std::string_view text) try {
  std::vector<Include> includes;
  jit::SourceLexer lexer(text);
  bool begins_line = true;
  for (Token token = lexer.next(); token.kind != TokenKind::end_of_file; token = lexer.next()) {
    if (begins_line && token.text == "#")
      if (const Token word = lexer.next(); word.text == "include")
        if (const auto name = lexer.header_name(); name && name->size() > 2 && name->front() == '"')
          includes.push_back({name->substr(1, name->size() - 2), word.line});
    begins_line = token.kind == TokenKind::end_of_line;
  }
  return includes;
} catch (const jit::AmbiguousSource&) {
  return {};  // check_kernels names it
}

class Cycles {
 public:
  Cycles(const manifest::Op& op, Findings& findings) : op_(op), findings_(findings) {
    for (const manifest::SourceFile& each : op.files) includes_[each.name] = includes_of(each.text);
    for (const manifest::SourceFile& each : op.files) visit(each.name);
  }

 private:
  void visit(const std::string& file) {
    if (!known_.insert(file).second) return;
    open_.insert(file);
    for (const Include& each : includes_[file]) {
      if (open_.contains(each.name))
        findings_.add({Severity::warning,
                       "include_cycle",
                       manifest::shown_file(op_, file),
                       each.line,
                       fmt::format("includes '{}', which includes this file", each.name),
                       "move what both need into a file of its own",
                       {}});
      else if (includes_.contains(each.name))
        visit(each.name);
    }
    open_.erase(file);
  }

  const manifest::Op& op_;
  Findings& findings_;
  std::map<std::string, std::vector<Include>> includes_;
  std::set<std::string> known_, open_;
};

}  // namespace

void check_include_cycles(const manifest::Op& op, Findings& findings) { Cycles(op, findings); }

}  // namespace kiln::check
