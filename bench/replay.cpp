// Repeats recorded tunes with the present search: does it choose the same from what was measured then? Needs no GPU and no compiler.
//
//   bench_replay [--templates FOLDER]... FILE...
//
// FILE holds what `--samples` of kiln tune and bench_gemm wrote, a tune a line. One JSON object a tune: `outcome` is "same", "other"
// (`now`: what is chosen now) or "not measured" (`why`: what the search asks for that the recorded one did not). Exit 1 unless all are the same.
#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "kiln/error.hpp"
#include "manifest/catalogue.hpp"
#include "row.hpp"
#include "tune/replay.hpp"

namespace {

using kiln::tune::Replayed;
using kiln::tune::SampleJson;

struct Asked {
  std::vector<std::filesystem::path> templates, files;
};

Asked parse(int argc, char** argv) {
  Asked asked;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--templates" && i + 1 < argc)
      asked.templates.emplace_back(argv[++i]);
    else if (word.starts_with("--"))
      throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("{} is unknown, or has no value", word));
    else
      asked.files.emplace_back(word);
  }
  if (asked.files.empty()) throw kiln::Error(kiln::ErrorKind::bad_input, "no file of recorded tunes is given");
  return asked;
}

Replayed replay(const SampleJson& line, const kiln::manifest::Catalogue& ops) {
  const auto name = line.at("op").get<std::string>();
  const kiln::manifest::Op* const op = ops.op(name);
  if (op == nullptr) return {Replayed::Outcome::not_measured, fmt::format("there is no op '{}' now", name)};
  return kiln::tune::replay(line, *op);
}

/// Returns whether all tunes of the file choose the same.
bool replay_all(const std::filesystem::path& path, const kiln::manifest::Catalogue& ops) {
  std::ifstream file(path);
  if (!file) throw kiln::Error(kiln::ErrorKind::io, fmt::format("{} cannot be read", path.string()));
  bool same = true;
  for (std::string text; std::getline(file, text);) {
    const SampleJson line = kiln::tune::read_recording(text);
    const Replayed found = replay(line, ops);
    SampleJson row = SampleJson::parse(bench::row("replay") + "}");
    for (const char* field : {"op", "bucket", "device_class"}) row[field] = line.at(field);
    row["outcome"] = to_string(found.outcome);
    if (found.outcome == Replayed::Outcome::other) row["now"] = SampleJson::parse(found.why);
    if (found.outcome == Replayed::Outcome::not_measured) row["why"] = found.why;
    std::cout << row.dump() << std::endl;
    same = same && found.outcome == Replayed::Outcome::same;
  }
  return same;
}

}  // namespace

int main(int argc, char** argv) try {
  const Asked asked = parse(argc, argv);
  const kiln::manifest::Catalogue ops(asked.templates);
  bool same = true;
  for (const auto& each : asked.files) same = replay_all(each, ops) && same;
  return same ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_replay: {}\n", error.what());
  return 3;
}
