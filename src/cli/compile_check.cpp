#include "cli/compile_check.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/exit_code.hpp"
#include "cli/output.hpp"
#include "cli/units.hpp"
#include "jit/compile_pool.hpp"
#include "jit/executable.hpp"
#include "kiln/error.hpp"
#include "process/child.hpp"
#include "tune/preparation.hpp"
#include "tune/verification_code.hpp"

namespace kiln::cli {
namespace {

/// The log of NVRTC where the compile failed; else its warnings, if any.
struct Compiled {
  bool good = false;
  std::int64_t image_bytes = 0;
  std::string log;
};

Compiled result_of(const std::shared_future<jit::Cubin>& compile) try {
  const jit::Cubin& cubin = compile.get();
  return {true, static_cast<std::int64_t>(cubin.image.size()), cubin.log};
} catch (const Error& error) {
  if (error.kind() != ErrorKind::compile_failed) throw;
  return {false, 0, error.what()};
}

void print_compiled(const Globals& globals, const jit::Specialisation& code, const Compiled& compiled) {
  if (globals.json)
    return print_json({{"event", "compiled"},
                       {"what", code.label},
                       {"arch", code.arch},
                       {"good", compiled.good},
                       {"image_bytes", compiled.image_bytes},
                       {"log", compiled.log}});
  const std::string how = compiled.good ? "compiles, " + format_bytes(compiled.image_bytes) : "does not compile";
  print(fmt::format("{} for {}: {}\n", code.label, code.arch, how));
  if (!compiled.log.empty()) print(compiled.log + "\n");
}

}  // namespace

int check_compiles(const Globals& globals, const manifest::Op& op, const Problem& problem, const Target& target) {
  const manifest::Bucket bucket = manifest::Site(op, target.facts).bucket_of(problem);
  std::vector<jit::Specialisation> all;
  for (const manifest::Variant& each : answer::defaults_of(bucket))
    all.push_back(jit::specialise(bucket, each, bucket.edge, target.arch));
  // What the op says of its own verification: the reference and, once for each kernel, what prepares inputs.
  const auto frame = manifest::frame_of(bucket, bucket.edge);
  all.push_back(jit::specialise_reference(op, frame, target.arch));
  if (op.prepare)
    for (const jit::Specialisation& each : tune::Preparation::specialisations(op, frame, target.arch))
      if (std::ranges::find(all, each.name_expressions, &jit::Specialisation::name_expressions) == all.end())
        all.push_back(each);
  const std::string compiler = jit::compiler_identity();
  jit::CompilePool pool({.program = process::find_worker({})});
  std::vector<std::shared_future<jit::Cubin>> compiles;
  for (const jit::Specialisation& each : all) compiles.push_back(pool.submit(jit::cubin_key(each, compiler), each));
  bool good = true;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Compiled compiled = result_of(compiles[i]);
    print_compiled(globals, all[i], compiled);
    good = good && compiled.good;
  }
  return good ? exit_good : exit_failed;
}

}  // namespace kiln::cli
