// What the present ops would still ask of a stored record.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "spec/op.hpp"
#include "store/record.hpp"

namespace kiln::engine {

enum class Standing : std::uint8_t {
  present,  // tuned from the present sources
  stale,    // from others, or for a bucket, an implementation or a config that its op has no more
  unknown,  // its op is not among these, or its device class does not parse
};

Standing standing_of(std::span<const spec::Op> ops, const store::Record& record);

/// The source digests (hex) of all machine code that launching and verifying the record's bucket asks for now: its config's, if
/// it is still legal, the defaults' and the reference's. Empty when the op has no such bucket any more.
std::vector<std::string> sources_asked_for(std::span<const spec::Op> ops, const store::Record& record);

}  // namespace kiln::engine
