// A bucket whose machine code is missing: what a library proposes, or the config of a near bucket whose machine code is
// loaded, serves at once. The bucket's own answers take its place, each as soon as it is compiled (engine/ahead.hpp).
#pragma once

#include <memory>

#include "answer/resolver.hpp"
#include "plan/op_state.hpp"

namespace kiln::engine {

/// Loads the plans where files have all of their machine code. Returns whether it did. Precondition: a context is
/// current.
bool load_stored(plan::OpState& op_state, plan::BucketPlans& plans);

/// Returns plans of the bucket's own answers whose machine code is there, and of a stand-in for all other sizes. It is
/// legal at both ends of the bucket: the first proposal of a library that computes the op, else the config of the
/// nearest bucket whose machine code is loaded, within three doublings, else the first of the bucket's own answers
/// whose machine code is there, else the config of a near bucket of other exact sizes that this bucket's machine code
/// is the same for. Returns null where there is none: then the launch waits for a compile. Precondition: a context is
/// current.
std::unique_ptr<plan::BucketPlans> find_stand_in(plan::OpState& op_state, const answer::Resolution& own);

/// Compiles the config that serves the problem's sizes, and no other that the launch would wait for, and returns plans
/// in which it stands in for the bucket's other sizes. Null where the bucket lacks no other config, or where this one
/// is not legal at both ends of the bucket. Null too where it cannot be compiled or loaded. Precondition: a context is
/// current, and find_stand_in() returned null.
std::unique_ptr<plan::BucketPlans> compile_stand_in(plan::OpState& op_state, plan::BucketPlans& own,
                                                    const Problem& problem);

/// find_stand_in() with the stand-in of these plans, for the machine code that is there by now. Null where that is no
/// more than serves already, or where code that serves does not load again. Preconditions: a context is current, and
/// one of these functions made the plans.
std::unique_ptr<plan::BucketPlans> with_more_code(plan::OpState& op_state, const plan::BucketPlans& serving);

/// Whether a library that is here computes the op in the bucket, so that its proposal may stand in.
bool library_computes(const manifest::Bucket& bucket);

/// Returns the first default of Kiln's own that is legal at both ends of the bucket, or null. Where its machine code is
/// there, it stands in for sizes of which no near config is loaded.
const answer::Answer* default_to_stand_in(const answer::Resolution& own);

}  // namespace kiln::engine
