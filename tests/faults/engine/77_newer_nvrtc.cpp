// An NVRTC newer than the driver, whose code that driver may refuse.
#include "cuda/library.hpp"
#include "faults/engine/fixture.hpp"

namespace kiln::faults {

TEST_CASE(
    "fault 77: code that an older driver refuses is told with both versions and the remedy, and doctor calls it broken") {
  const TemporaryFolder folder;
  const int major = cuda::Nvrtc::get().major;
  const std::string version = std::to_string((major - 1) * 1000 + 40);
  const std::string remedy = "install NVRTC " + std::to_string(major - 1);
  const std::string newer = "NVRTC " + std::to_string(major) + ".";
  std::int64_t cases = 0;
  for (const char* code :
       {"CUDA_ERROR_INVALID_IMAGE", "CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"}) {
    const std::string overlay = std::string(code) + ".kiln";
    tuned_overlay(folder, overlay.c_str());
    const std::string said = expect(5, "FAKE_CUDA='driver " + version + "; module " + code +
                                           " scale_' '" KILN_COMMAND "' run scale rows=64 cols=128 dtype=f32" +
                                           globals(folder, overlay.c_str()));
    CHECK_MESSAGE(contains(said, newer), said);
    CHECK_MESSAGE(contains(said, "of CUDA " + std::to_string(major - 1) + ".4"), said);
    CHECK_MESSAGE(contains(said, remedy), said);
    ++cases;
  }
  const std::string doctor =
      expect(1, "FAKE_CUDA='driver " + version + "' '" KILN_COMMAND "' doctor" + globals(folder, "new.kiln"));
  CHECK_MESSAGE(contains(doctor, "BROKEN  NVRTC: " + newer), doctor);
  CHECK_MESSAGE(contains(doctor, remedy), doctor);
  tally(77, ++cases, "code of a newer NVRTC");
}

TEST_CASE("fault 77: of several NVRTCs that of the driver's major version is opened") {
  const TemporaryFolder folder;
  for (const char* name : {"libnvrtc.so.12", "libnvrtc.so.13"}) fs::create_symlink(FAULTY_NVRTC, folder / name);
  // Not the NVRTC that remembers, which would look for the real one in that folder too.
  const std::string real = cuda::Nvrtc::open(cuda::environment("NVRTC_ONCE_REAL")).path;
  std::int64_t cases = 0;
  for (const std::string major : {"12", "13"}) {
    const std::string said =
        expect(0, "env -u KILN_NVRTC_LIBRARY KILN_NVRTC_DIR='" + (folder / "").string() + "' FAULTY_NVRTC_REAL='" +
                      real + "' FAULTY_NVRTC_VERSION='" + major + " 0' FAKE_CUDA='driver " + major +
                      "000' '" KILN_COMMAND "' doctor" + globals(folder, "new.kiln"));
    CHECK_MESSAGE(contains(said, "libnvrtc.so." + major), said);
    ++cases;
  }
  tally(77, cases, "several NVRTCs");
}

}  // namespace kiln::faults
