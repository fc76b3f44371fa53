// An NVRTC whose library of builtins is missing: it opens, names its version, and compiles nothing.
#include "faults/engine/fixture.hpp"

namespace kiln::faults {

TEST_CASE("fault 78: doctor calls an NVRTC without its builtins broken, and a tune ends at once with what to install") {
  const TemporaryFolder folder;
  const std::string before = under_faulty_nvrtc("builtins 999") + "'" KILN_COMMAND "' ";
  const std::string doctor = expect(1, before + "doctor" + globals(folder));
  CHECK_MESSAGE(contains(doctor, "BROKEN  NVRTC: "), doctor);
  CHECK_MESSAGE(contains(doctor, "lacks its library libnvrtc-builtins.so."), doctor);
  const std::string tuned = expect(3, before + "tune scale rows=64 cols=128 dtype=f32" + globals(folder));
  CHECK_MESSAGE(contains(tuned, "install that beside it"), tuned);
  CHECK(contains(expect(0, under_faulty_nvrtc() + "'" KILN_COMMAND "' doctor" + globals(folder)), "ok      NVRTC: "));
  tally(78, 3, "an NVRTC without its builtins");
}

}  // namespace kiln::faults
