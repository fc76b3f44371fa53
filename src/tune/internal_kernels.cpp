#include "tune/internal_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kiln/error.hpp"
#include "manifest/embedded.hpp"

namespace kiln::tune {
namespace {

jit::Specialisation internal(const std::string& file, std::vector<std::string> names, const std::string& arch) {
  jit::Specialisation specialisation;
  specialisation.label = "internal/" + file;
  specialisation.entry = file;
  specialisation.folder = "built-in";
  specialisation.name_expressions = std::move(names);
  specialisation.arch = arch;
  for (const manifest::EmbeddedFile& each : manifest::embedded_files())
    if (each.path == "internal/" + file)
      specialisation.files = std::vector<manifest::SourceFile>{{file, manifest::SourceText::of_static(each.text)}};
  if (specialisation.files.empty())
    throw Error(ErrorKind::bad_manifest, fmt::format("this build of the library lacks templates/internal/{}", file));
  return specialisation;
}

}  // namespace

manifest::DType reference_type(manifest::DType type) noexcept {
  switch (type) {
    case manifest::DType::bf16:
    case manifest::DType::f16:
    case manifest::DType::e4m3:
    case manifest::DType::e5m2: return manifest::DType::f32;
    default: return type;
  }
}

jit::Specialisation fill_kernel(manifest::DType type, const std::string& arch) {
  return internal("fill.cuh",
                  {fmt::format("kiln::fill_values<{}>", manifest::cpp_name(type)),
                   fmt::format("kiln::refill_values<{}>", manifest::cpp_name(type))},
                  arch);
}

bool needs_late_copy(const manifest::Op& op) noexcept {
  return op.prepare || std::ranges::any_of(op.axes, &manifest::Axis::on_device);
}

jit::Specialisation late_copy_kernel(const std::string& arch) {
  return internal("late_copy.cuh", {"kiln::copy_late"}, arch);
}

jit::Specialisation evict_kernel(const std::string& arch) { return internal("evict.cuh", {"kiln::evict_lines"}, arch); }

jit::Specialisation team_barrier_kernel(const std::string& arch) {
  return internal("team_barrier.cuh", {"kiln::team_barrier"}, arch);
}

jit::Specialisation compare_kernels(manifest::DType type, const std::string& arch) {
  const std::string_view wanted = manifest::cpp_name(reference_type(type));
  return internal("compare.cuh",
                  {fmt::format("kiln::compare_squares<{}>", wanted),
                   fmt::format("kiln::compare_outputs<{}, {}>", manifest::cpp_name(type), wanted),
                   fmt::format("kiln::mark_unwritten<{}>", wanted)},
                  arch);
}

}  // namespace kiln::tune
