#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/key_files.hpp"
#include "store/signing.hpp"
#include "store/verify.hpp"

namespace kiln::store {

TEST_CASE("fault 50: the 65th signature is refused, the file stays sound, and a key that signed may sign again") {
  const Folder folder;
  const auto file = sample_file(folder / "a.kiln");
  PrivateKey first = PrivateKey::read(make_keys(folder, "key0").secret);
  sign(file, first);
  for (std::size_t at = 1; at < most_signatures; ++at)
    sign(file, PrivateKey::read(make_keys(folder, "key" + std::to_string(at)).secret));
  const auto before = bytes_of(file);
  const auto said = refusal([&] { sign(file, PrivateKey::read(make_keys(folder, "late").secret)); });
  CAPTURE(said);
  CHECK(contains(said, "bad_input: '" + file.string() + "' is not signed: it holds 64 signatures"));
  CHECK(bytes_of(file) == before);
  CHECK(verify(file).is_sound());
  CHECK(File::open(file, Access::read_only)->signers().size() == most_signatures);
  CHECK_NOTHROW(sign(file, first));
  CHECK(File::open(file, Access::read_only)->signers().size() == most_signatures);
  faults::tally(50, 66, "signatures of one file");
}

}  // namespace kiln::store
