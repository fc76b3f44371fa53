#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "cuda/cublaslt_api.hpp"
#include "cuda/device.hpp"
#include "cuda/driver_api.hpp"
#include "cuda/library.hpp"
#include "cuda/nccl_api.hpp"
#include "cuda/nvrtc_api.hpp"
#include "cuda/search_path.hpp"
#include "kiln/error.hpp"

namespace {

using namespace kiln;

bool holds(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// Returns the Error that `action` throws, or one with an empty message.
template <typename Action>
Error thrown_by(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorKind::io, ""};
}

struct TemporaryFolder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("kiln_cuda_" + std::to_string(std::rand()));
  TemporaryFolder() { std::filesystem::create_directories(path); }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  void touch(const std::string& file) const {
    std::filesystem::create_directories((path / file).parent_path());
    std::ofstream(path / file) << "x";
  }
};

/// Sets an environment variable while it lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name), before_(cuda::environment(name)) {
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { before_.empty() ? unsetenv(name_) : setenv(name_, before_.c_str(), 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::string before_;
};

}  // namespace

TEST_CASE("a hidden driver is an error that names the variable, at every ask") {
  const Variable hidden("KILN_CUDA_LIBRARY", "none");
  cuda::OpenedOnce<cuda::Driver> driver("KILN_CUDA_LIBRARY");
  for (int ask = 0; ask < 2; ++ask) {
    const Error error = thrown_by([&] { driver.get(); });
    CHECK(error.kind() == ErrorKind::no_driver);
    CHECK(holds(error.what(), "KILN_CUDA_LIBRARY"));
  }
  CHECK(driver.find() == nullptr);
}

TEST_CASE("a library that could not be opened is tried again once another path is asked for, and not before") {
  struct Table {
    std::string path;
    static Table open(const std::string& path) {
      if (path.starts_with("/typo")) throw Error(ErrorKind::no_nvrtc, path);
      return {path};
    }
  };
  constexpr const char* name = "KILN_TEST_LIBRARY";
  const auto failure = [](auto& library) { return std::string(thrown_by([&] { library.get(); }).what()); };
  {
    const Variable variable(name, "/typo/of/variable");
    cuda::OpenedOnce<Table> library(name);
    CHECK(library.choose("/typo/of/choice"));
    CHECK(failure(library) == "/typo/of/choice");
    CHECK(library.find() == nullptr);
    library.forget_failed_choice();
    CHECK(failure(library) == "/typo/of/variable");
    const Variable corrected(name, "/right");
    CHECK(library.get().path == "/right");
  }
  const Variable variable(name, "/right");
  cuda::OpenedOnce<Table> library(name);
  CHECK(library.choose("/gone/before/it/was/asked"));
  library.forget_failed_choice();
  CHECK(library.choose("/dev/null"));
  library.forget_failed_choice();  // which has not failed
  CHECK(library.get().path == "/dev/null");
  CHECK_FALSE(library.choose("/another"));
}

TEST_CASE("a driver that cannot be opened is named with the loader's reason and what to install") {
  const Error error = thrown_by([] { cuda::Driver::open("/nowhere/libcuda.so.1"); });
  CHECK(error.kind() == ErrorKind::no_driver);
  CHECK(holds(error.what(), "/nowhere/libcuda.so.1"));
  CHECK(holds(error.what(), "install"));
}

TEST_CASE("a library that is no driver is refused by the function that it lacks") {
  const Error error = thrown_by([] { cuda::Driver::open("libdl.so.2"); });
  CHECK(error.kind() == ErrorKind::no_driver);
  CHECK(holds(error.what(), "lacks cuInit"));
}

const std::string stub = "/usr/local/cuda/lib64/stubs/libcuda.so";

TEST_CASE("the toolkit's link-time stub is told from a driver" * doctest::skip(!std::filesystem::exists(stub))) {
  const Error error = thrown_by([&] { cuda::Driver::open(stub); });
  CHECK(error.kind() == ErrorKind::no_driver);
  CHECK(holds(error.what(), "stub"));
}

TEST_CASE("a driver error says what was being done and which error it was") {
  CHECK_NOTHROW(cuda::check(CUDA_SUCCESS, "doing nothing"));
  const Error failed = thrown_by([] { cuda::check(CUDA_ERROR_ILLEGAL_ADDRESS, "waiting"); });
  CHECK(failed.kind() == ErrorKind::driver_failed);
  CHECK(holds(failed.what(), "waiting: "));
  CHECK(holds(failed.what(), cuda::Driver::find() != nullptr ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "700"));
  CHECK(thrown_by([] { cuda::check(CUDA_ERROR_OUT_OF_MEMORY, "asking"); }).kind() == ErrorKind::out_of_memory);
}

TEST_CASE("an empty buffer needs no driver and an impossible one is refused") {
  const cuda::Buffer empty(0);
  CHECK(empty.pointer() == 0);
  CHECK_NOTHROW(empty.copy_to_host(nullptr, 0));
  CHECK(thrown_by([&] { empty.copy_to_host(nullptr, 1); }).kind() == ErrorKind::bad_input);
  CHECK(thrown_by([] { cuda::Buffer negative(-1); }).kind() == ErrorKind::bad_input);
}

TEST_CASE("NVRTC, cuBLASLt and NCCL can be hidden and misplaced, and say so") {
  CHECK(thrown_by([] { cuda::Nccl::open("none"); }).kind() == ErrorKind::no_nccl);
  CHECK(holds(thrown_by([] { cuda::Nccl::open("/nowhere/libnccl.so.2"); }).what(), "/nowhere/libnccl.so.2"));
  CHECK(holds(thrown_by([] { cuda::Nccl::open("libdl.so.2"); }).what(), "lacks ncclGetErrorString"));
  CHECK(thrown_by([] { cuda::CublasLt::open("none"); }).kind() == ErrorKind::no_cublaslt);
  CHECK(holds(thrown_by([] { cuda::CublasLt::open("/nowhere/libcublasLt.so"); }).what(), "/nowhere/libcublasLt.so"));
  CHECK(holds(thrown_by([] { cuda::CublasLt::open("libdl.so.2"); }).what(), "lacks cublasLtGetVersion"));
  CHECK(thrown_by([] { cuda::Nvrtc::open("none"); }).kind() == ErrorKind::no_nvrtc);
  CHECK(holds(thrown_by([] { cuda::Nvrtc::open("/nowhere/libnvrtc.so"); }).what(), "/nowhere/libnvrtc.so"));
  CHECK(holds(thrown_by([] { cuda::Nvrtc::open("libdl.so.2"); }).what(), "lacks nvrtcGetErrorString"));
}

TEST_CASE("an NVRTC that cannot tell its version is none") {
  const Variable nothing_behind_it("NVRTC_ONCE_REAL", "none");
  const Error refused = thrown_by([] { cuda::Nvrtc::open(NVRTC_ONCE); });
  CHECK(refused.kind() == ErrorKind::no_nvrtc);
  CHECK(holds(refused.what(), "libnvrtc_once.so cannot be used: nvrtcVersion gave a compile is needed, but "));
}

TEST_CASE("NVRTC is found and identified by the build of its library" * doctest::skip(cuda::Nvrtc::find() == nullptr)) {
  const cuda::Nvrtc* nvrtc = cuda::Nvrtc::find();
  CHECK(nvrtc->major >= 12);
  CHECK(std::filesystem::exists(nvrtc->path));
  CHECK(nvrtc->build_id.size() >= 6);
  CHECK(nvrtc->build_id == cuda::Nvrtc::open(nvrtc->path).build_id);
}

TEST_CASE("an NCCL that is installed is found and tells its version") {
  std::optional<cuda::Nccl> nccl;
  try {
    nccl = cuda::Nccl::open("");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::no_nccl);
    CHECK(holds(error.what(), "install libnccl2"));
    return;
  }
  CHECK(nccl->version.starts_with("2."));
  CHECK(std::filesystem::exists(nccl->path));
  CHECK(cuda::Nccl::open(nccl->path).version == nccl->version);
}

TEST_CASE("wheels are found in the active environment first, newest Python first") {
  const TemporaryFolder environment;
  environment.touch("lib/python3.10/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  environment.touch("lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  environment.touch("lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  const Variable active("VIRTUAL_ENV", environment.path.string());
  const auto folders = cuda::wheel_folders({"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"});
  REQUIRE(folders.size() >= 3);
  CHECK(folders[0] == environment.path / "lib/python3.12/site-packages/nvidia/cu13/lib");
  CHECK(folders[1] == environment.path / "lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib");
  CHECK(folders[2] == environment.path / "lib/python3.10/site-packages/nvidia/cu13/lib");
  const auto files = cuda::existing_files({folders[0], folders[1]}, {"libnvrtc.so.13", "libnvrtc.so.12"});
  REQUIRE(files.size() == 2);
  CHECK(files[1] == (folders[1] / "libnvrtc.so.12").string());
}

TEST_CASE("a library within a Python package finds the packages around it") {
  CHECK(cuda::packages_around("/opt/app/lib/python3.12/site-packages/kiln/_kiln.abi3.so") ==
        "/opt/app/lib/python3.12/site-packages");
  CHECK(cuda::packages_around("/usr/lib/python3/dist-packages/kiln/kiln-worker") == "/usr/lib/python3/dist-packages");
  CHECK(cuda::packages_around("/usr/lib/libkiln.so.0").empty());
  CHECK(cuda::packages_around("kiln").empty());
  CHECK(cuda::packages_around("").empty());
}

TEST_CASE("toolkit headers come from CUDA_HOME before any other place, the C++ library beside them") {
  const TemporaryFolder toolkit;
  toolkit.touch("include/cuda_fp16.h");
  toolkit.touch("include/cccl/cuda/std/type_traits");
  const Variable home("CUDA_HOME", toolkit.path.string());
  const auto folders = cuda::toolkit_include_directories();
  REQUIRE(folders.size() == 2);
  CHECK(folders[0] == toolkit.path / "include");
  CHECK(folders[1] == toolkit.path / "include/cccl");
}
