// The macros of a source, as far as their expansions can hold the text or the place of what stands around them. Private
// to the module.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/source_lexer.hpp"

namespace kiln::jit {

/// Whether this identifier gives the line, column or file of its place to the program: __LINE__, assert,
/// source_location.
bool names_its_place(std::string_view identifier) noexcept;
/// Whether it does so for the callers of a function that names it as a default argument.
bool names_callers_place(std::string_view identifier) noexcept;

struct Macro {
  std::string name;
  std::vector<std::string> names;  // the identifiers of its expansion
  bool stringises = false;         // # makes a literal of an argument, with one blank where the argument has blanks
  bool pastes = false;             // ## makes a name of two tokens
  bool may_form_place = false;     // such a name may be one for which names_its_place()
};

/// `tokens`: those of the line after #define.
Macro macro_of(std::span<const Token> tokens);

using MacroNames = std::set<std::string, std::less<>>;

/// Returns the names of the macros whose expansion, directly or through others of these, stringises, pastes or names
/// its place.
MacroNames revealing_macros(std::span<const Macro> macros);

}  // namespace kiln::jit
