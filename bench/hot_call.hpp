// One op of an engine made ready for hot launches, and beside it each stage of such a launch on its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "answer/cubins.hpp"
#include "c/handles.hpp"
#include "c/values.hpp"
#include "cuda/device.hpp"
#include "jit/executable.hpp"
#include "jit/library_algorithm.hpp"
#include "jit/library_product.hpp"
#include "kiln/kiln.hpp"
#include "manifest/bucketing.hpp"
#include "plan/hot_table.hpp"
#include "store/layers.hpp"
#include "tune/tensor_extent.hpp"

namespace bench {

/// Makes the compiler believe that the value is read.
template <typename Value>
inline void use(const Value& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

/// So many multiplications, each of which waits for the one before.
inline void multiply(int count) {
  std::uint64_t value = 3;
  for (int i = 0; i < count; ++i) {
    value *= 0x9E3779B97F4A7C15;  // no number that shifts and additions would do for
    asm volatile("" : "+r"(value));
  }
}

/// "gemm m=16 n=4096 k=4096 dtype=bf16"
struct Asked {
  std::string op;
  std::vector<kiln::manifest::Setting> settings;

  static Asked parse(std::string_view text) {
    Asked asked;
    while (!text.empty()) {
      const std::string word(text.substr(0, text.find(' ')));
      text.remove_prefix(std::min(text.size(), word.size() + 1));
      const std::size_t equals = word.find('=');
      if (equals == std::string::npos)
        asked.op = word;
      else
        asked.settings.push_back({word.substr(0, equals), word.substr(equals + 1)});
    }
    return asked;
  }
};

/// What several of them share. Its context is current while it lives.
class Setting {
 public:
  explicit Setting(const kiln::Options& options)
      : engine(options),
        context(options.device),
        ops(kiln::manifest::load_ops(options.template_paths)),
        scope_(context),
        layers_(
            {.overlay = options.overlay ? options.overlay : kiln::store::default_overlay(), .bases = options.bases}),
        pool_(1),
        cubins(layers_, pool_) {}

  kiln::Engine engine;
  kiln::cuda::Context context;
  std::vector<kiln::manifest::Op> ops;

 private:
  kiln::cuda::Context::Scope scope_;
  kiln::store::Layers layers_;
  kiln::jit::CompilePool pool_;

 public:
  kiln::answer::Cubins cubins;
};

class HotCall {
 public:
  /// `like`: of another thread, whose machine code this one launches too, as the threads of an engine do.
  HotCall(Setting& setting, const Asked& asked, CUstream on_stream, const HotCall* like = nullptr)
      : op(setting.engine.op(asked.op)),
        described(*std::find_if(setting.ops.begin(), setting.ops.end(),
                                [&](const auto& each) { return each.name == asked.op; })),
        problem(kiln::manifest::make_problem(described, asked.settings)),
        plan(op.plan(problem, on_stream)),
        stream(on_stream),
        bucketing_(described),
        table_(bucketing_.form()) {
    make_arguments(setting);
    make_operands();
    executable_ = like != nullptr ? like->executable_ : load(setting);
    prepare();
    prepare_library(setting);
    arrange_all();
    // A table with a few buckets in it, as an engine has.
    kiln::Problem bucket = kiln::manifest::bucket_of(described, problem);
    table_.publish(bucket, reinterpret_cast<const kiln::plan::PlanState*>(this));
    for (int i = 1; i < 32; ++i) {
      bucket.axes[0] += 1;
      table_.publish(bucket, reinterpret_cast<const kiln::plan::PlanState*>(this));
    }
    (void)bucketing_.find(problem, bucket_);
  }
  HotCall(const HotCall&) = delete;
  HotCall& operator=(const HotCall&) = delete;

  // The ways.
  void launch_op() const { op.launch(problem, arguments, stream); }
  void launch_plan() const { plan.launch(problem, arguments, stream); }
  void bind() const { op.bind(binding_, operands_); }
  void bind_from_c() const { (void)kiln_bind(&c_op_, &c_binding_, c_tensors_.data(), c_tensors_.size()); }
  void launch_bound() const {
    bind();
    op.launch(binding_.problem, binding_.arguments, stream);
  }
  void launch_from_c() const { (void)kiln_launch(&c_op_, &c_problem_, &c_arguments_, stream, nullptr); }
  /// The same kernels, or the same call of the library, with the same arguments, laid out beforehand.
  void launch_bare() const {
    if (library_) library_->launch(stream);
    for (const auto& each : calls_) {
      const kiln::jit::PassCall& call = each->call;
      kiln::cuda::check(driver_(&call.config, call.function, const_cast<void**>(call.parameters.data()), nullptr),
                        "cuLaunchKernelEx");
    }
  }
  /// That, some 50 ns after the launch before: with several threads, what work between launches costs that shares nothing.
  void launch_bare_after_work() const {
    multiply(50);
    launch_bare();
  }

  // The stages.
  void do_nothing() const { use(*this); }
  void find_bucket() const {
    kiln::manifest::BucketWords bucket;
    use(bucketing_.find(problem, bucket));
    use(bucket);
  }
  void look_up() const { use(table_.find(bucket_)); }
  void fill_frame() const {
    kiln::jit::ThreadCall* const kept = executable_->thread_call();
    use(executable_->fill(kept->frame, problem, arguments));
    use(kept->frame);
  }
  void admit() const { use(executable_->admits(kept_->frame, arguments)); }
  void arrange() const { arrange(arguments); }
  /// With a first tensor that is at another address each time, more of them than descriptors are kept.
  void arrange_elsewhere() const {
    moved_.tensors[0] = static_cast<const char*>(arguments.tensors[0]) + 128 * (++turn_ % 512);
    arrange(moved_);
  }

  kiln::Op op;
  const kiln::manifest::Op& described;
  kiln::Problem problem;
  kiln::Arguments arguments;
  kiln::Plan plan;
  CUstream stream;
  [[nodiscard]] std::size_t passes() const { return executable_->passes(); }
  [[nodiscard]] bool is_library() const { return library_ != nullptr; }
  [[nodiscard]] bool has_descriptors() const {
    const auto& passes = described.find(plan.implementation())->passes;
    return std::any_of(passes.begin(), passes.end(), [](const auto& pass) {
      return std::any_of(pass.arguments.begin(), pass.arguments.end(),
                         [](const auto& each) { return each.kind == kiln::manifest::ArgumentKind::tensor_map; });
    });
  }

 private:
  void arrange(const kiln::Arguments& given) const {
    const kiln::jit::LaunchInput input{kept_->frame, given, stream, {workspace_.pointer(), zeroed_.pointer()}, 0};
    for (std::size_t pass = 0; pass < executable_->passes(); ++pass) {
      executable_->arrange(pass, input, kept_->passes()[pass]);
      use(kept_->passes()[pass]);
    }
  }

  void make_arguments(const Setting& setting) {
    for (std::size_t i = 0; i < described.runtime.size(); ++i) {
      const kiln::manifest::Runtime& each = described.runtime[i];
      if (!each.is_integer() && !each.default_real) arguments.set(op.runtime(each.name), 1.0);
    }
    const auto frame = kiln::manifest::frame_of({described, setting.context.info().facts}, problem);
    for (std::size_t i = 0; i < described.tensors.size(); ++i) {
      const kiln::manifest::Tensor& tensor = described.tensors[i];
      if (tensor.optional || !kiln::manifest::Op::takes_part(tensor, frame)) continue;
      const auto extent = kiln::tune::extent_of(described, tensor, frame);
      buffers_.emplace_back(extent.elements * kiln::manifest::size_of(extent.type) + 65536);
      arguments.tensors[i] = reinterpret_cast<const void*>(buffers_.back().pointer());
    }
    moved_ = arguments;
  }

  /// The arguments once more, as tensors and as C has them.
  void make_operands() {
    for (const kiln::TensorDescription& each : op.describe(problem).tensors) {
      const void* const address = arguments.tensors[each.id.index];
      if (address == nullptr) continue;
      kiln::Tensor view;
      view.address = address;
      view.type = *each.element;
      view.rank = static_cast<std::uint8_t>(each.sizes.size());
      view.device = 0;
      std::copy(each.sizes.begin(), each.sizes.end(), view.sizes.begin());
      std::copy(each.default_strides.begin(), each.default_strides.end(), view.strides.begin());
      operands_.push_back({each.id, view});
    }
    make_binding();
    make_c_tensors();
    kiln::c::read(c_problem_) = problem;
    kiln::c::read(c_arguments_) = arguments;
  }

  /// As Op::binding makes it for a caller who says the choices and values alone.
  void make_binding() {
    binding_ = op.binding();
    for (std::size_t i = 0; i < described.selections.size(); ++i) {
      if (described.selections[i].is_type()) continue;
      binding_.problem.selections[i] = problem.selections[i];
      binding_.selections_given |= 1U << i;
    }
    binding_.arguments.runtime = arguments.runtime;
    binding_.arguments.runtime_set = binding_.values_given = arguments.runtime_set;
  }

  void make_c_tensors() {
    for (const auto& [id, view] : operands_) {
      kiln_tensor& made = c_tensors_.emplace_back(kiln_tensor KILN_TENSOR_INIT);
      made.id = id.index;
      made.type = static_cast<kiln_dtype>(view.type);
      made.rank = view.rank;
      made.device = view.device;
      made.address = view.address;
      std::copy(view.sizes.begin(), view.sizes.end(), made.sizes);
      std::copy(view.strides.begin(), view.strides.end(), made.strides);
    }
    kiln::c::read(c_binding_.problem) = binding_.problem;
    kiln::c::read(c_binding_.arguments) = binding_.arguments;
    c_binding_.axes_given = binding_.axes_given;
    c_binding_.selections_given = binding_.selections_given;
    c_binding_.values_given = binding_.values_given;
  }

  /// The plan's executable once more, for its parts.
  [[nodiscard]] std::shared_ptr<kiln::jit::Executable> load(Setting& setting) const {
    const kiln::manifest::Implementation& implementation = *described.find(plan.implementation());
    const auto& facts = setting.context.info().facts;
    const auto frame =
        kiln::manifest::Variant{&implementation, *kiln::manifest::parse_config(implementation, plan.config())}.frame(
            {described, facts}, kiln::manifest::bucket_of(described, problem));
    const auto cubin = setting.cubins.get(
        kiln::jit::specialise(described, implementation, frame, kiln::jit::default_arch(facts.sm())));
    return std::make_shared<kiln::jit::Executable>(described, implementation, frame, cubin.cubin);
  }

  void prepare() {
    if (executable_->workspace_bytes() > 0) workspace_ = kiln::cuda::Buffer(executable_->workspace_bytes());
    if (executable_->zeroed_bytes() > 0) zeroed_ = kiln::cuda::Buffer(executable_->zeroed_bytes());
    zeroed_.fill_bytes(0, stream);
    kept_ = executable_->thread_call();
    if (!executable_->fill(kept_->frame, problem, arguments))
      throw kiln::Error(kiln::ErrorKind::bad_input, executable_->explain_frame(problem, arguments));
  }

  void prepare_library(const Setting& setting) {
    const kiln::manifest::Implementation& implementation = *described.find(plan.implementation());
    if (!implementation.is_library()) return;
    const auto config = *kiln::manifest::parse_config(implementation, plan.config());
    const auto frame =
        kiln::manifest::Variant{&implementation, config}.frame({described, setting.context.info().facts}, problem);
    library_ = std::make_unique<LibraryCall>(described, implementation, frame, config);
    library_->operands =
        library_->product.operands(arguments, kept_->frame.view(), reinterpret_cast<void*>(workspace_.pointer()));
  }

  void arrange_all() {
    for (std::size_t pass = 0; pass < executable_->passes(); ++pass) {
      auto& [frame, call] = *calls_.emplace_back(std::make_unique<Arranged>());
      frame = kept_->frame;
      executable_->link(pass, frame, call);
      executable_->arrange(pass, {frame, arguments, stream, {workspace_.pointer(), zeroed_.pointer()}, 0}, call);
    }
  }

  struct LibraryCall {
    LibraryCall(const kiln::manifest::Op& op, const kiln::manifest::Implementation& implementation,
                std::span<const std::int64_t> frame, std::span<const std::int64_t> config)
        : product(op, implementation, frame), checked(kiln::jit::check_config(product, implementation, frame, config)) {
      if (!checked.why_not.empty() || !product.lay_out(frame, layouts))
        throw kiln::Error(kiln::ErrorKind::driver_failed, checked.why_not);
    }
    void launch(CUstream on_stream) {
      if (product.multiply(layouts, operands, checked.algorithm, checked.workspace_bytes, on_stream) !=
          CUBLAS_STATUS_SUCCESS)
        throw kiln::Error(kiln::ErrorKind::driver_failed, "cublasLtMatmul failed");
    }
    kiln::jit::LibraryProduct product;
    kiln::jit::Checked checked;
    kiln::jit::LibraryProduct::Layouts layouts{};
    kiln::jit::LibraryProduct::Operands operands;
  };
  struct Arranged {
    kiln::jit::CallFrame frame;
    kiln::jit::PassCall call;  // points into the frame
  };
  decltype(kiln::cuda::Driver::cuLaunchKernelEx) driver_ = kiln::cuda::Driver::get().cuLaunchKernelEx;
  kiln::manifest::Bucketing bucketing_;
  kiln::plan::HotTable table_;
  kiln::manifest::BucketWords bucket_;
  std::vector<kiln::cuda::Buffer> buffers_;
  std::shared_ptr<kiln::jit::Executable> executable_;
  kiln::cuda::Buffer workspace_, zeroed_;
  std::unique_ptr<LibraryCall> library_;          // where a library computes the plan
  kiln::jit::ThreadCall* kept_ = nullptr;         // of the thread that made this, which the stages are timed in
  std::vector<std::unique_ptr<Arranged>> calls_;  // one a pass
  mutable kiln::Binding binding_;
  std::vector<kiln::Operand> operands_;
  std::vector<kiln_tensor> c_tensors_;
  mutable kiln_binding c_binding_ = KILN_BINDING_INIT;
  kiln_op c_op_{op};
  kiln_problem c_problem_ = KILN_PROBLEM_INIT;
  kiln_arguments c_arguments_ = KILN_ARGUMENTS_INIT;
  mutable kiln::Arguments moved_;
  mutable std::size_t turn_ = 0;
};

}  // namespace bench
