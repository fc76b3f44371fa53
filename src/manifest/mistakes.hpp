// Mistakes in manifests, of which a reader may collect all in place of throwing the first.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln {
class Error;
}

namespace kiln::manifest {

struct Mistake {
  std::string file;
  int line = 1;
  std::string found;     // a sentence that begins with "found" where the manifest's reader wrote it
  std::string expected;  // without the word; empty where the message has none
  bool operator==(const Mistake&) const = default;
};

/// Takes an error's "FILE:LINE: found X, expected Y" apart. A message of another form is about the file's first line.
Mistake mistake_of(const Error& error, std::string_view file);

}  // namespace kiln::manifest
