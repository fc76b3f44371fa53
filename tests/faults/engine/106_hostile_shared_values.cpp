// Values of a shared store that somebody spoilt or made up: none serves, and each costs a miss.
#include <random>

#include "e2e/shared.hpp"
#include "faults/engine/shared_folder.hpp"

namespace kiln::faults {
namespace {

/// A value with some bytes of it changed, lost, added, repeated or swapped.
std::string spoilt(const std::string& value, std::minstd_rand& random) {
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random()) % limit; };
  std::string text = value;
  switch (random() % 6) {
    case 0: {
      char& byte = text[below(text.size())];
      byte = static_cast<char>(byte ^ (1 << below(8)));
      break;
    }
    case 1: text.resize(below(text.size())); break;
    case 2: text.insert(below(text.size()), std::string(1 + below(64), static_cast<char>(random()))); break;
    case 3: text.erase(below(text.size()), 1 + below(64)); break;
    case 4: text += value.substr(below(value.size())); break;
    default: {
      const std::size_t at = below(text.size() - 1);
      if (text[at] == text[at + 1]) text[at] = static_cast<char>(text[at] + 1);
      std::swap(text[at], text[at + 1]);
    }
  }
  return text;
}

/// Records that are sealed as they should be and say what cannot be.
std::vector<store::Record> made_up(const store::Record& record) {
  std::vector<store::Record> all;
  const auto add = [&](auto&& change) { change(all.emplace_back(record)); };
  add([](store::Record& each) { each.key += "0"; });
  add([](store::Record& each) { each.bucket = "rows=32 cols=128 dtype=f32"; });
  add([](store::Record& each) { each.bucket = "rows=64"; });
  add([](store::Record& each) { each.op = "rms_norm"; });
  add([](store::Record& each) { each.revision = 77; });
  add([](store::Record& each) { each.device_class = "another"; });
  add([](store::Record& each) { each.choices.clear(); });
  add([](store::Record& each) {
    for (store::Choice& choice : each.choices) choice.config = "threads=77";
  });
  add([](store::Record& each) {
    for (store::Choice& choice : each.choices) choice.config.clear();
  });
  add([](store::Record& each) {
    for (store::Choice& choice : each.choices) choice.config = std::string(100'000, 'x');
  });
  add([](store::Record& each) {
    for (store::Choice& choice : each.choices) choice.implementation = "../../another";
  });
  add([](store::Record& each) {
    for (store::Choice& choice : each.choices) choice.cost_ns = -1;
  });
  add([](store::Record& each) {
    for (store::Choice& choice : each.choices) choice.samples = -1;
  });
  return all;
}

}  // namespace

TEST_CASE("fault 106: no value that was spoilt or made up serves, each is a miss") {
  const Machine machine;
  const SharedBucket bucket;
  const int values = chosen_count("KILN_TEST_VALUES", 600);
  remote::Folder folder(bucket.path());
  REQUIRE(folder.put(bucket.place(), bucket.first(), {}, in_time()));
  const fs::path file = [&] {
    for (const auto& each : fs::recursive_directory_iterator(bucket.path()))
      if (each.path().extension() == ".row") return each.path();
    throw std::runtime_error("nothing was put");
  }();
  Options chosen = options("", MissPolicy::error);
  chosen.remote = bucket.path();
  const Engine engine(chosen);
  const Op op = engine.op("scale");
  const Problem problem = op.problem({{"rows", 64}, {"cols", 128}, {"dtype", "f32"}});
  const auto is_missed = [&](const std::string& value) {
    write(file, value);
    return error_of([&] { static_cast<void>(op.plan(problem)); }).kind() == ErrorKind::not_tuned;
  };
  std::minstd_rand random(106);
  int missed = 0;
  for (int each = 0; each < values; ++each) {
    const std::string value = spoilt(bucket.first(), random);
    CHECK(value != bucket.first());
    missed += is_missed(value);
  }
  CHECK(missed == values);
  const std::vector<store::Record> records = made_up(remote::open_row(bucket.place(), bucket.first(), {}).row->record);
  for (std::size_t each = 0; each < records.size(); ++each) {
    CAPTURE(each);
    CHECK(is_missed(remote::seal(records[each], {}, nullptr)));
  }
  CHECK(engine.stats().shared_hits == 0);
  CHECK(engine.stats().tunes == 0);
  CHECK(engine.warnings().size() < 12);  // one a kind
  write(file, bucket.first());
  CHECK(op.plan(problem).origin() == Origin::overlay);
  kiln::testing::KeptRow("hostile")
      .with("values", values)
      .with("made_up", records.size())
      .with("served", values - missed);
  MESSAGE(values, " spoilt values and ", records.size(), " made up, none served");
  if (std::getenv("KILN_TEST_VALUES") == nullptr) tally(106, values, "spoilt values of a shared folder");
  tally(106, static_cast<std::int64_t>(records.size()), "values of a shared folder that were made up");
}

}  // namespace kiln::faults
