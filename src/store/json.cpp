#include "store/json.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>

#include "kiln/error.hpp"
#include "store/fields.hpp"
#include "store/limits.hpp"

namespace kiln::store {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse_json(const std::string& message) { throw Error(ErrorKind::bad_input, message); }

/// Adds each field that it visits to an object.
struct JsonWriter {
  Json& object;
  void operator()(const char* name, Verdict value) const { object[name] = to_string(value); }
  void operator()(const char* name, Role value) const { object[name] = to_string(value); }
  template <class T>
  void operator()(const char* name, const T& value) const {
    object[name] = value;
  }
};

/// Fills each field that it visits from an object, and records the field's name for expect_no_more().
class JsonReader {
 public:
  explicit JsonReader(const Json& object) : object_(object) {
    if (!object.is_object())
      refuse_json(fmt::format("found {}, expected an object such as {{\"key\": ...}}", object.type_name()));
  }

  void operator()(const char* name, std::string& value) {
    value = get(name, &Json::is_string, "a string").get<std::string>();
  }
  void operator()(const char* name, double& value) { value = get(name, &Json::is_number, "a number").get<double>(); }
  void operator()(const char* name, bool& value) { value = get(name, &Json::is_boolean, "true or false").get<bool>(); }
  template <std::signed_integral T>
  void operator()(const char* name, T& value) {
    const Json& found = get(name, &Json::is_number_integer, "an integer");
    if (found.is_number_unsigned() &&
        found.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<T>::max()))
      refuse_json(fmt::format("field '{}' is {}, past the largest number that it can hold", name, found.dump()));
    const auto number = found.get<std::int64_t>();
    if (number < std::numeric_limits<T>::min())
      refuse_json(fmt::format("field '{}' is {}, which is too small", name, number));
    value = static_cast<T>(number);
  }
  void operator()(const char* name, Verdict& value) { read_word(name, value, parse_verdict, "verdict"); }
  void operator()(const char* name, Role& value) { read_word(name, value, parse_role, "role"); }

  /// Returns a field that is an object or an array.
  const Json& part(const char* name, bool (Json::*is)() const noexcept, const char* expected) {
    return get(name, is, expected);
  }

  void expect_no_more() const {
    for (const auto& [name, value] : object_.items())
      if (!asked_.contains(name))
        refuse_json(fmt::format("field '{}' is unknown; was the file written by a newer version?", name));
  }

 private:
  template <class T>
  void read_word(const char* name, T& value, std::optional<T> (*parse)(std::string_view) noexcept, const char* what) {
    const auto word = get(name, &Json::is_string, "a string").get<std::string>();
    const auto found = parse(word);
    if (!found) refuse_json(fmt::format("field '{}' is '{}', which is no {}", name, word, what));
    value = *found;
  }
  const Json& get(const char* name, bool (Json::*is)() const noexcept, const char* expected) {
    asked_.insert(name);
    const auto found = object_.find(name);
    if (found == object_.end()) refuse_json(fmt::format("field '{}' is missing", name));
    if (!((*found).*is)())
      refuse_json(fmt::format("field '{}' is {}, expected {}", name, found->type_name(), expected));
    return *found;
  }

  const Json& object_;
  std::set<std::string, std::less<>> asked_;
};

constexpr int deepest = 2;  // record 0, array of choices or candidates 1, choice or candidate 2

Json parse(std::string_view text) {
  // nlohmann::json keeps the last value of a repeated field.
  std::vector<std::set<std::string>> open;
  std::size_t values = 0;
  const auto callback = [&open, &values](int depth, nlohmann::json::parse_event_t event, Json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > deepest && (event == Event::object_start || event == Event::array_start))
      refuse_json(fmt::format("more than {} objects or arrays stand inside each other", deepest + 1));
    if (event == Event::value && ++values > max_values) refuse_json(fmt::format("more than {} values", max_values));
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key && open.back().size() == max_fields)  // ordered_json searches all earlier fields for each
      refuse_json(fmt::format("an object has more than {} fields", max_fields));
    if (event == Event::key && !open.back().insert(parsed.get<std::string>()).second)
      refuse_json(fmt::format("field '{}' is given twice", parsed.get<std::string>()));
    return true;
  };
  try {
    return Json::parse(text, callback);
  } catch (const nlohmann::json::exception& error) {
    refuse_json(fmt::format("not JSON: {}", error.what()));
  }
}

}  // namespace

std::string to_json(const Record& record) {
  Json line = Json::object();
  each_answer_field(record, JsonWriter{line});
  Json& choices = line["choices"] = Json::array();
  for (const Choice& choice : record.choices)
    each_choice_field(choice, JsonWriter{choices.emplace_back(Json::object())});
  each_provenance_field(record.provenance, JsonWriter{line["provenance"]});
  if (!record.candidates.empty()) {
    Json& candidates = line["candidates"] = Json::array();
    for (const TriedCandidate& candidate : record.candidates)
      each_candidate_field(candidate, JsonWriter{candidates.emplace_back(Json::object())});
  }
  return line.dump();
}

Record record_from_json(std::string_view line) {
  const Json parsed = parse(line);
  Record record;
  JsonReader reader(parsed);
  each_answer_field(record, reader);
  for (const Json& each : reader.part("choices", &Json::is_array, "an array")) {
    JsonReader choice(each);
    each_choice_field(record.choices.emplace_back(), choice);
    choice.expect_no_more();
  }
  JsonReader provenance(reader.part("provenance", &Json::is_object, "an object"));
  each_provenance_field(record.provenance, provenance);
  provenance.expect_no_more();
  if (parsed.contains("candidates")) {
    for (const Json& each : reader.part("candidates", &Json::is_array, "an array")) {
      JsonReader candidate(each);
      each_candidate_field(record.candidates.emplace_back(), candidate);
      candidate.expect_no_more();
    }
  }
  reader.expect_no_more();
  return record;
}

std::string to_json(const std::vector<std::string>& words) { return Json(words).dump(); }

std::vector<std::string> words_from_json(std::string_view text) {
  std::vector<std::string> words;
  const Json parsed = parse(text);
  if (!parsed.is_array()) refuse_json("expected an array of strings");
  for (const Json& word : parsed) {
    if (!word.is_string()) refuse_json("expected an array of strings");
    words.push_back(word.get<std::string>());
  }
  return words;
}

}  // namespace kiln::store
