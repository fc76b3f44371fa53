// What was begun and ends on its own time: copies and products.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace emulator {

/// Happens once: at some later step of the schedule, or when somebody waits for it.
class Task {
 public:
  explicit Task(std::function<void()> act) : act_(std::move(act)) {}
  [[nodiscard]] bool done() const { return done_; }
  void run() {
    if (!std::exchange(done_, true)) act_();
  }

 private:
  std::function<void()> act_;
  bool done_ = false;
};
using TaskPointer = std::shared_ptr<Task>;

/// All that a cluster has begun, in no order.
class InFlight {
 public:
  TaskPointer begin(std::function<void()> act) {
    tasks_.push_back(std::make_shared<Task>(std::move(act)));
    return tasks_.back();
  }
  /// Any one of them; false where nothing is left.
  bool run_one(std::minstd_rand& random) {
    while (!tasks_.empty()) {
      std::swap(tasks_[random() % tasks_.size()], tasks_.back());
      const TaskPointer task = std::move(tasks_.back());
      tasks_.pop_back();
      if (task->done()) continue;
      task->run();
      return true;
    }
    return false;
  }

 private:
  std::vector<TaskPointer> tasks_;
};

/// The groups of tasks of one thread: of those begun since the last commit, and the ones before.
class Groups {
 public:
  void add(TaskPointer task) { open_.push_back(std::move(task)); }
  void commit() { closed_.push_back(std::exchange(open_, {})); }
  /// Until at most `pending` of the latest groups may be under way.
  void wait(std::size_t pending) {
    for (; closed_.size() > pending; closed_.pop_front()) {
      for (const TaskPointer& task : closed_.front()) task->run();
    }
  }
  /// Groups that were closed and not waited for.
  [[nodiscard]] std::size_t closed() const { return closed_.size(); }
  /// Whether any task, of a closed group or not, has still to happen.
  [[nodiscard]] bool under_way() const;

 private:
  std::vector<TaskPointer> open_;
  std::deque<std::vector<TaskPointer>> closed_;
};

inline bool Groups::under_way() const {
  const auto any = [](const std::vector<TaskPointer>& group) {
    for (const TaskPointer& task : group) {
      if (!task->done()) return true;
    }
    return false;
  };
  for (const auto& group : closed_) {
    if (any(group)) return true;
  }
  return any(open_);
}

}  // namespace emulator
