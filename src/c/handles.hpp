// What the handles of kiln/kiln.h hold.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kiln/engine.hpp"
#include "kiln/kiln.h"
#include "kiln/team.hpp"
#include "kiln/tuner.hpp"

struct kiln_engine {
  kiln::Engine engine;
};

struct kiln_op {
  explicit kiln_op(const kiln::Op& of) : op(of), name(op.name()) {}
  kiln::Op op;
  const std::string name;
  /// Owns the texts of the info functions. Made at their first call.
  [[nodiscard]] const kiln::OpDescription& described() const;
  /// By selection: what kiln_selection_info::values points at.
  [[nodiscard]] const std::vector<std::vector<const char*>>& words() const;

 private:
  mutable std::once_flag once_;
  mutable kiln::OpDescription described_;
  mutable std::vector<std::vector<const char*>> words_;
};

struct kiln_plan {
  explicit kiln_plan(const kiln::Plan& of) : plan(of), implementation(plan.implementation()), config(plan.config()) {}
  kiln::Plan plan;
  const std::string implementation, config;
};

struct kiln_team {
  std::shared_ptr<kiln::Team> team;
};

struct kiln_tuner {
  explicit kiln_tuner(const kiln::Engine& engine) : tuner(engine) {}
  kiln::Tuner tuner;
  std::mutex mutex;  // guards `demands`
  std::vector<kiln::Demand> demands;
};
