#include <random>

#include "store/integrity.hpp"
#include "support.hpp"

namespace kiln::remote {
namespace {

store::KeyRing ring_of(const store::Folder& at) {
  std::vector<std::string> warnings;
  const std::filesystem::path folder = at / "keys";
  return store::KeyRing::read({&folder, 1}, warnings);
}

struct Keys {
  store::Folder at;
  store::PrivateKey trusted = store::PrivateKey::read(store::make_keys(at, "ours").secret);
  store::PrivateKey stranger = [&] {
    const store::KeyFiles files = store::make_keys(at, "theirs");
    std::filesystem::remove(files.open);
    return store::PrivateKey::read(files.secret);
  }();
  store::KeyRing ring = ring_of(at);
};

TEST_CASE("a row reads back as it was sealed, with what its signature is worth") {
  const Keys keys;
  const store::Record record = numbered_record(1);
  const std::vector<manifest::Digest> code{store::digest_named("a"), store::digest_named("b")};
  const std::pair<const store::PrivateKey*, Signed> cases[] = {
      {nullptr, Signed::no}, {&keys.stranger, Signed::by_stranger}, {&keys.trusted, Signed::by_trusted}};
  for (const auto& [key, is_signed] : cases) {
    const std::string value = seal(record, code, key);
    CHECK(is_whole(value));
    const auto opened = open_row(store::place_of(record), value, keys.ring);
    REQUIRE(opened.row);
    CHECK(store::same(opened.row->record, record));
    CHECK(opened.row->code == code);
    CHECK(opened.row->is_signed == is_signed);
    REQUIRE(open_listed(store::place_of(record).space, value, keys.ring).row);
  }
}

TEST_CASE("a row does not count in another place than its own") {
  const Keys keys;
  const store::Record record = numbered_record(1);
  const store::RemotePlace own = store::place_of(record);
  for (const store::PrivateKey* key : {static_cast<const store::PrivateKey*>(nullptr), &keys.trusted}) {
    const std::string value = seal(record, {}, key);
    CHECK(!open_row({own.space, "another key"}, value, keys.ring).row);
    CHECK(!open_row({"another space", own.key}, value, keys.ring).row);
    CHECK(!open_listed("another space", value, keys.ring).row);
  }
}

TEST_CASE("a revoked key's signature is worth a stranger's") {
  const Keys keys;
  std::filesystem::create_directories(keys.at / "keys/revoked");
  std::filesystem::copy(keys.at / "keys/ours.pem", keys.at / "keys/revoked/ours.pem");
  const store::Record record = numbered_record(1);
  const auto opened = open_row(store::place_of(record), seal(record, {}, &keys.trusted), ring_of(keys.at));
  REQUIRE(opened.row);
  CHECK(opened.row->is_signed == Signed::by_stranger);
}

TEST_CASE("a row with values that no file may hold does not count") {
  const auto flaw_of = [](auto&& change) {
    store::Record record = numbered_record(1);
    change(record);
    return open_row(store::place_of(record), value_of(record), {}).flaw;
  };
  CHECK(flaw_of([](store::Record&) {}).empty());
  CHECK(!flaw_of([](store::Record& record) { record.choices.clear(); }).empty());
  CHECK(!flaw_of([](store::Record& record) { record.choices[0].cost_ns = -1; }).empty());
  CHECK(!flaw_of([](store::Record& record) { record.choices[0].samples = -1; }).empty());
  CHECK(!flaw_of([](store::Record& record) { record.candidates[0].cost_ns = -1; }).empty());
}

TEST_CASE("machine code counts under a trusted key's signature alone") {
  const Keys keys;
  const store::CubinRow cubin = store::sample_cubin("one");
  const manifest::Digest key = cubin.key;
  const std::string value = seal(store::pack(cubin), keys.trusted);
  const auto opened = open_code(key, value, keys.ring);
  REQUIRE(opened.row);
  CHECK(opened.row->image == cubin.image);
  CHECK(opened.row->key == cubin.key);
  CHECK(opened.row->lowered_names == cubin.lowered_names);
  CHECK(opened.row->compiler == cubin.compiler);
  CHECK(!open_code(key, seal(store::pack(cubin), keys.stranger), keys.ring).row);
  CHECK(!open_code(key, value, {}).row);
  CHECK(!open_code(store::digest_named("a"), value, keys.ring).row);
  CHECK(!open_code(key, value_of(numbered_record(1)), keys.ring).row);
}

TEST_CASE("a store keeps what a trusted key signed, then what any did, then what the merge order prefers") {
  const auto row = [](std::int64_t samples, Signed is_signed) {
    return SealedRow{numbered_record(1, samples), {}, is_signed};
  };
  CHECK(comes_before(row(20, Signed::no), row(10, Signed::no)));
  CHECK(!comes_before(row(10, Signed::no), row(10, Signed::no)));
  CHECK(comes_before(row(10, Signed::by_trusted), row(20, Signed::by_stranger)));
  CHECK(!comes_before(row(20, Signed::no), row(10, Signed::by_stranger)));
}

TEST_CASE("of 10,000 values that were cut, flipped, swapped or joined none counts") {
  const Keys keys;
  std::minstd_rand random(46);
  const auto below = [&](std::size_t most) { return std::uniform_int_distribution<std::size_t>(0, most - 1)(random); };
  const store::Record records[] = {numbered_record(1), numbered_record(2)};
  const std::string rows[] = {seal(records[0], {store::digest_named("a")}, &keys.trusted),
                              seal(records[1], {store::digest_named("b")}, &keys.stranger)};
  const store::CubinRow cubins[] = {store::sample_cubin("one", 300), store::sample_cubin("two", 300)};
  const std::string code[] = {seal(store::pack(cubins[0]), keys.trusted), seal(store::pack(cubins[1]), keys.stranger)};
  int loaded = 0, unchanged = 0;
  for (int i = 0; i < 10'000; ++i) {
    const bool is_code = i % 2 != 0;
    const std::string& own = is_code ? code[0] : rows[0];
    const std::string& other = is_code ? code[1] : rows[1];
    std::string value = own;
    switch (below(6)) {
      case 0: value.resize(below(value.size())); break;
      case 1: value[below(value.size())] ^= static_cast<char>(1 << below(8)); break;
      case 2: value = own.substr(0, below(own.size())) + other.substr(below(other.size())); break;
      case 3: value.insert(below(value.size()), 1, static_cast<char>(below(256))); break;
      case 4: value = other; break;  // of another key
      default: {                     // one's first line, the other's payload
        value = other.substr(0, other.find('\n')) + own.substr(own.find('\n'));
      }
    }
    if (value == own) {
      ++unchanged;
      continue;
    }
    const bool counts = is_code ? open_code(cubins[0].key, value, keys.ring).row.has_value()
                                : open_row(store::place_of(records[0]), value, keys.ring).row.has_value();
    if (counts) ++loaded;
  }
  CHECK(loaded == 0);
  CHECK(unchanged < 100);
}

}  // namespace
}  // namespace kiln::remote
