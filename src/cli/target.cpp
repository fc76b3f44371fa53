#include "cli/target.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "jit/specialisation.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

/// The devices for which records ship.
struct NamedClass {
  std::string_view name, device_class;
};
constexpr std::array named_classes = {
    NamedClass{"H200", h200_device_class},
    NamedClass{"H100", "sm_90/mp132/l2_52428800/smem_232448/bus_5120"},  // the SXM board
};

std::string with_name(const std::string& device_class) {
  const std::string word = class_word(device_class);
  return word == device_class ? word : fmt::format("{} ({})", device_class, word);
}

/// Returns 90 for "sm_90a". Throws Error(bad_input).
std::int64_t parse_arch(const std::string& arch) {
  std::int64_t sm = 0;
  const char* const begin = arch.data() + 3;
  if (arch.starts_with("sm_")) {
    const auto [end, error] = std::from_chars(begin, arch.data() + arch.size(), sm);
    const std::string_view suffix(end, static_cast<std::size_t>(arch.data() + arch.size() - end));
    if (error == std::errc{} && end - begin >= 2 && (suffix.empty() || suffix == "a" || suffix == "f")) return sm;
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
            "the device class '{}' does not parse, expected H200, H100 or a form such as {}, which kiln devices prints of a present GPU",
            text, h200_device_class));
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

}  // namespace

std::string device_class_named(const std::string& word) {
  const auto same = [](char a, char b) { return a == (b >= 'a' && b <= 'z' ? static_cast<char>(b - 'a' + 'A') : b); };
  const std::size_t end = std::min(word.find('/'), word.size());  // a link may follow
  for (const NamedClass& each : named_classes)
    if (std::ranges::equal(each.name, std::string_view(word).substr(0, end), same))
      return std::string(each.device_class) + word.substr(end);
  return word;
}

std::string class_word(const std::string& device_class) {
  for (const NamedClass& each : named_classes)
    if (each.device_class == device_class) return std::string(each.name);
  return device_class;
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
    return make_target(facts, choice, "the device class that was named");
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
  const manifest::DeviceFacts h200 = parse_class(h200_device_class);
  if (sample && (sm == 0 || sm == h200.sm()))
    return make_target(h200, choice, "an H200, assumed: no GPU is present and none was named");
  const std::string which = sm == 0 ? std::string() : fmt::format(" of {}", choice.arch);
  throw Error(
      sm == 0 ? ErrorKind::no_device : ErrorKind::bad_input,
      fmt::format(
          "there is no device to answer for: {}the files hold no record{}; add a base file, or name a device class such as --device-class H200",
          sm == 0 ? "no GPU is present and " : "", which));
}

}  // namespace kiln::cli
