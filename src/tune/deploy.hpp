// What a deployment needs beside its records: the machine code of winners and of every default that may stand in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jit/executable.hpp"
#include "manifest/problem.hpp"
#include "store/record.hpp"
#include "tune/cubins.hpp"

namespace kiln::tune {

/// The specialisations that launches of this bucket can need on `device`: the record's configs, and each eligible
/// implementation's default, so that a real size that breaks a config's constraints is served without a compile. Nothing for what a
/// library computes, which no file can hold.
std::vector<jit::Specialisation> deployed(const manifest::Op& op, const Problem& bucket,
                                          const manifest::DeviceFacts& device, const std::string& arch,
                                          const store::Record* record);
/// What verifying an op's outputs needs: its reference, and the fill and compare kernels of its types.
std::vector<jit::Specialisation> verification(const manifest::Op& op, const Problem& bucket,
                                              const manifest::DeviceFacts& device, const std::string& arch);

/// An implementation and config by their stored texts, if they are declared and legal for this problem on this device, or why not. Where a
/// context is current, a library is asked whether it is here and takes the config.
struct Usable {
  const manifest::Implementation* implementation = nullptr;
  manifest::Config config;
  std::string why_not;
};
Usable usable(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device,
              std::string_view implementation, std::string_view config);

/// The first implementation whose default is legal for this problem, or null with no config.
Usable default_for(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device);

}  // namespace kiln::tune
