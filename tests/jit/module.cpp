// Runs on the fake driver in the build's own tests, and on a real driver where KILN_CUDA_LIBRARY is unset.
#include "jit/module.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "cuda/device.hpp"
#include "sources.hpp"

using namespace kiln;
using namespace kiln::jit;
using namespace kiln::jit::test;

namespace {

const bool cannot_load = !has_nvrtc() || cuda::Driver::find() == nullptr;

struct Loaded {
  cuda::Context context{0};
  cuda::Context::Scope scope{context};
  Cubin cubin;

  Loaded() {
    Specialisation specialisation = scale_kernel("3", default_arch(context.info().facts.sm()));
    specialisation.name_expressions.emplace_back();
    cubin = compile(specialisation);
  }
};

}  // namespace

TEST_CASE("a loaded module gives functions, nothing for a pass that is left out, and resources" *
          doctest::skip(cannot_load)) {
  const Loaded loaded;
  const Module module(loaded.cubin.image, loaded.cubin.lowered_names);
  CHECK(module.function(0) != nullptr);
  CHECK(module.function(1) == nullptr);
  const Resources resources = module.resources(0);
  CHECK(resources.registers > 0);
  CHECK(resources.spill_bytes == 0);
  CHECK(resources.static_shared_bytes == 0);
  CHECK(resources.max_threads == 128);
  CHECK(module.occupancy(0, 128, 0) > 0);
  CHECK(module.occupancy(1, 128, 0) == 0);
  CHECK(module.resources(1).registers == 0);
}

TEST_CASE("a function may have the device's shared memory and no more" * doctest::skip(cannot_load)) {
  const Loaded loaded;
  Module module(loaded.cubin.image, loaded.cubin.lowered_names);
  const std::int64_t maximum = loaded.context.info().facts.shared_per_block();
  CHECK_NOTHROW(module.allow_shared(0, maximum));
  const Error error = thrown_by([&] { module.allow_shared(0, maximum + 1); });
  CHECK(error.kind() == ErrorKind::driver_failed);
  CHECK(holds(error.what(), std::to_string(maximum + 1)));
  CHECK(holds(error.what(), "at most " + std::to_string(maximum)));
}

TEST_CASE("a name that the cubin lacks is an error that gives it" * doctest::skip(cannot_load)) {
  const Loaded loaded;
  const std::vector<std::string> names = {loaded.cubin.lowered_names[0], "_Z7missingv"};
  const Error error = thrown_by([&] { Module(loaded.cubin.image, names); });
  CHECK(error.kind() == ErrorKind::driver_failed);
  CHECK(holds(error.what(), "_Z7missingv"));
}

TEST_CASE("what is no cubin is an error that gives its size" * doctest::skip(cannot_load)) {
  const Loaded loaded;
  const std::vector<std::byte> nonsense(4096);
  const Error error = thrown_by([&] { Module(nonsense, {}); });
  CHECK(error.kind() == ErrorKind::driver_failed);
  CHECK(holds(error.what(), "4096 bytes"));
}

TEST_CASE("one key is loaded once, for as long as anybody holds it" * doctest::skip(cannot_load)) {
  const Loaded loaded;
  Modules modules;
  const manifest::Digest key = manifest::Hasher().field("one").finish(),
                         other = manifest::Hasher().field("other").finish();
  CHECK(modules.find(key) == nullptr);
  auto first = modules.get(key, loaded.cubin);
  CHECK(modules.get(key, loaded.cubin) == first);
  CHECK(modules.find(key) == first);
  CHECK(modules.get(other, loaded.cubin) != first);
  CHECK(modules.find(other) == nullptr);
  first.reset();
  CHECK(modules.find(key) == nullptr);
}

TEST_CASE("dynamic shared memory that a function was allowed is not taken back for one that needs less" *
          doctest::skip(cannot_load)) {
  const Loaded loaded;
  Module module(loaded.cubin.image, loaded.cubin.lowered_names);
  const auto allowed = [&] {
    int bytes = 0;
    cuda::check(cuda::Driver::get().cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                       module.function(0)),
                "reading a function's attribute");
    return bytes;
  };
  module.allow_shared(0, 96 << 10);
  module.allow_shared(0, 1024);
  CHECK(allowed() == 96 << 10);
}
