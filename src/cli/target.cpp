#include "cli/target.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <span>

#include "jit/specialisation.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

struct NamedClass {
  std::string_view name, device_class;
  bool is_by_data_sheet = true;  // a driver may report other facts
};
/// The devices for which records ship, then others. The first of an architecture stands for it.
constexpr std::array named_classes = {
    NamedClass{"H200", h200_device_class, false},
    NamedClass{"H100", "sm_90/mp132/l2_52428800/smem_232448/bus_5120", false},  // the SXM board
    NamedClass{"A100", "sm_80/mp108/l2_41943040/smem_166912/bus_5120"},
    NamedClass{"L40S", "sm_89/mp142/l2_100663296/smem_101376/bus_384"},
    NamedClass{"L4", "sm_89/mp58/l2_50331648/smem_101376/bus_192"},
    NamedClass{"4090", "sm_89/mp128/l2_75497472/smem_101376/bus_384"},
    NamedClass{"B200", "sm_100/mp148/l2_132644864/smem_232448/bus_7680"},
    NamedClass{"5090", "sm_120/mp170/l2_100663296/smem_101376/bus_512"},
};

std::string names_of_classes() {
  std::string names;
  for (const NamedClass& each : named_classes) names.append(names.empty() ? "" : ", ").append(each.name);
  return names;
}

/// Those that NVIDIA has named; later ones are taken as they are.
constexpr std::array<std::int64_t, 15> known_archs = {70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121};

/// Returns 90 for "sm_90a". Throws Error(bad_input).
std::int64_t parse_arch(const std::string& arch) {
  std::int64_t sm = 0;
  const char* const begin = arch.data() + 3;
  if (arch.starts_with("sm_")) {
    const auto [end, error] = std::from_chars(begin, arch.data() + arch.size(), sm);
    const std::string_view suffix(end, static_cast<std::size_t>(arch.data() + arch.size() - end));
    if (error == std::errc{} && end - begin >= 2 && (suffix.empty() || suffix == "a" || suffix == "f")) {
      if (sm >= known_archs.back() || std::ranges::find(known_archs, sm) != known_archs.end()) return sm;
      throw Error(ErrorKind::bad_input,
                  fmt::format("there is no architecture {}; there are sm_{}", arch, fmt::join(known_archs, ", sm_")));
    }
  }
  throw Error(ErrorKind::bad_input,
              fmt::format("the architecture '{}' does not parse, expected a form such as sm_90a", arch));
}

manifest::DeviceFacts parse_class(const std::string& text) {
  const auto facts = manifest::DeviceFacts::from_device_class(text);
  if (!facts)
    throw Error(
        ErrorKind::bad_input,
        fmt::format(
            "the device class '{}' does not parse, expected {} or a form such as {}, which kiln devices prints of a present GPU",
            text, names_of_classes(), h200_device_class));
  return *facts;
}

std::set<std::string> classes_in(const store::Layers& layers, std::int64_t sm) {
  std::set<std::string> classes;
  for (const store::Layer& layer : layers.layers()) {
    if (!layer.file) continue;
    for (const std::string& each : layer.file->device_classes()) {
      const auto facts = manifest::DeviceFacts::from_device_class(each);
      if (facts && (sm == 0 || facts->sm() == sm)) classes.insert(facts->device_class());
    }
  }
  return classes;
}

Target make_target(const manifest::DeviceFacts& facts, const TargetChoice& choice, std::string about) {
  Target target;
  target.facts = facts;
  // Engines look for this architecture alone; instructions such as Hopper's wgmma exist in no other.
  const std::string own = jit::target_arch(facts.sm());
  if (!choice.arch.empty() && choice.arch != own)
    throw Error(ErrorKind::bad_input,
                fmt::format("--arch is {}, but launches on such a device need code for {}; give --arch {}", choice.arch,
                            own, own));
  target.arch = choice.arch.empty() ? jit::default_arch(facts.sm()) : own;
  target.about = std::move(about);
  return target;
}

/// Returns the facts of a device of this architecture: of the first that is known by name, else those of the nearest
/// older one with the architecture's own shared memory and threads.
manifest::DeviceFacts assumed_of(std::int64_t sm) {
  std::vector<manifest::DeviceFacts> known;
  for (const NamedClass& each : named_classes) known.push_back(parse_class(std::string(each.device_class)));
  const auto exact = std::ranges::find(known, sm, &manifest::DeviceFacts::sm);
  if (exact != known.end()) return *exact;
  manifest::DeviceFacts nearest = *std::ranges::min_element(known, {}, &manifest::DeviceFacts::sm);
  for (const manifest::DeviceFacts& each : known)
    if (each.sm() < sm && each.sm() > nearest.sm()) nearest = each;
  const auto own = manifest::DeviceFacts::shared_per_block_of(sm);
  return parse_class(fmt::format("sm_{}/mp{}/l2_{}/smem_{}/bus_{}", sm, nearest.sm_count(), nearest.l2_bytes(),
                                 own.value_or(nearest.shared_per_block()), nearest.memory_bus_bits));
}

}  // namespace

std::string device_class_named(const std::string& word) {
  const auto same = [](char a, char b) { return a == (b >= 'a' && b <= 'z' ? static_cast<char>(b - 'a' + 'A') : b); };
  const std::size_t end = std::min(word.find('/'), word.size());
  for (const NamedClass& each : named_classes)
    if (std::ranges::equal(each.name, std::string_view(word).substr(0, end), same))
      return std::string(each.device_class) + word.substr(end);
  return word;
}

std::string help_of_classes() { return fmt::format("{}, or the class as kiln devices prints it", names_of_classes()); }

Target assumed_target(const std::string& word) {
  TargetChoice choice;
  if (word.starts_with("sm_") && word.find('/') == std::string::npos) {
    choice.arch = word;
    return make_target(assumed_of(parse_arch(word)), choice, "a device of " + word + ", assumed");
  }
  return make_target(parse_class(device_class_named(word)), choice, word);
}

std::string class_word(const std::string& device_class) {
  for (const NamedClass& each : named_classes)
    if (each.device_class == device_class) return std::string(each.name);
  return device_class;
}

std::string with_name(const std::string& device_class) {
  const std::string word = class_word(device_class);
  return word == device_class ? word : fmt::format("{} ({})", device_class, word);
}

std::optional<cuda::DeviceInfo> present_device(const Globals& globals) {
  try {
    if (cuda::devices().empty()) return std::nullopt;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::no_driver || error.kind() == ErrorKind::no_device) return std::nullopt;
    throw;
  }
  return cuda::device_info(globals.device);
}

manifest::DeviceFacts with_link(manifest::DeviceFacts facts, const store::Layers& layers) {
  if (facts.link != manifest::TeamLink::none) return facts;
  const std::string own = facts.device_class();
  for (const store::Layer& layer : layers.layers()) {
    if (!layer.file) continue;
    for (const std::string& each : layer.file->device_classes()) {
      const auto found = manifest::DeviceFacts::from_device_class(each);
      if (!found || found->link == manifest::TeamLink::none || found->device_class() != own) continue;
      if (facts.link == manifest::TeamLink::none || found->link < facts.link) facts.link = found->link;
    }
  }
  return facts;
}

Target choose_target(const Globals& globals, const TargetChoice& choice, const store::Layers& layers, bool sample) {
  const std::int64_t sm = choice.arch.empty() ? 0 : parse_arch(choice.arch);
  if (!choice.device_class.empty()) {
    const manifest::DeviceFacts facts = with_link(parse_class(choice.device_class), layers);
    if (sm != 0 && facts.sm() != sm)
      throw Error(ErrorKind::bad_input, fmt::format("the architecture {} is not that of the device class {}",
                                                    choice.arch, choice.device_class));
    const auto named = std::ranges::find(named_classes, facts.device_class(), &NamedClass::device_class);
    const bool is_by_data_sheet = named != named_classes.end() && named->is_by_data_sheet;
    return make_target(facts, choice,
                       is_by_data_sheet
                           ? fmt::format("{} by its data sheet; kiln devices prints a present GPU's class", named->name)
                           : "the device class that was named");
  }
  if (sm == 0) {
    if (const auto device = present_device(globals)) {
      Target target = make_target(with_link(device->facts, layers), choice,
                                  fmt::format("device {}, {}", device->ordinal, device->name));
      target.present = true;
      return target;
    }
  }
  const std::set<std::string> classes = classes_in(layers, sm);
  if (classes.size() > 1) {
    std::vector<std::string> choices;
    for (const std::string& each : classes) choices.push_back(with_name(each));
    throw Error(ErrorKind::bad_input,
                fmt::format("the files hold records for several device classes; choose one with --device-class: {}",
                            fmt::join(choices, ", ")));
  }
  if (classes.size() == 1)
    return make_target(with_link(parse_class(*classes.begin()), layers), choice,
                       "the one device class that the files hold");
  if (sample && (sm == 0 || sm == 90))
    return make_target(parse_class(h200_device_class), choice,
                       "an H200, assumed: no GPU is present and none was named");
  if (sample) return assumed_target(choice.arch);
  const std::string which = sm == 0 ? std::string() : fmt::format(" of {}", choice.arch);
  throw Error(
      sm == 0 ? ErrorKind::no_device : ErrorKind::bad_input,
      fmt::format(
          "there is no device to answer for: {}the files hold no record{}; add a base file, or name a device class such as --device-class H200",
          sm == 0 ? "no GPU is present and " : "", which));
}

}  // namespace kiln::cli
