// Kernels specialised at run time and tuned once.
//
//   kiln::Engine engine;
//   kiln::Op norm = engine.op("rms_norm");
//   kiln::Problem problem = norm.problem({{"rows", rows}, {"cols", 4096}, {"dtype", "bf16"}});
//   kiln::Arguments arguments = norm.arguments({{"x", x}, {"weight", weight}, {"y", y}, {"epsilon", 1e-6}});
//   norm.launch(problem, arguments, stream);
#pragma once

#include "kiln/arguments.hpp"
#include "kiln/binding.hpp"
#include "kiln/description.hpp"
#include "kiln/engine.hpp"
#include "kiln/error.hpp"
#include "kiln/options.hpp"
#include "kiln/problem.hpp"
#include "kiln/team.hpp"
#include "kiln/tensor.hpp"
#include "kiln/tuner.hpp"
#include "kiln/version.h"
