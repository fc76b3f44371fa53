#include "driver/settings.hpp"

#include <map>

namespace fake_cuda {
bool Settings::set(std::string_view name, std::string_view value) {
  if (name == "noise") return parse_number(value, noise);
  const std::map<std::string_view, std::int64_t*> integers = {{"devices", &devices},
                                                              {"driver", &driver},
                                                              {"sm", &sm},
                                                              {"multiprocessors", &multiprocessors},
                                                              {"l2", &l2},
                                                              {"bus", &bus},
                                                              {"memory", &memory},
                                                              {"overlap", &overlap},
                                                              {"footprint", &footprint},
                                                              {"late", &late},
                                                              {"pause", &pause},
                                                              {"granularity", &granularity},
                                                              {"pcie", &pcie},
                                                              {"hidden", &hidden},
                                                              {"mode", &mode},
                                                              {"blocking", &blocking}};
  const auto found = integers.find(name);
  return found != integers.end() && parse_number(value, *found->second);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

}  // namespace fake_cuda
