#include "tune/machine.hpp"

#include "answer/neighbours.hpp"
#include "jit/library.hpp"
#include "manifest/variant.hpp"
#include "tune/team_bench.hpp"

namespace kiln::tune {
namespace {

class ThisMachine final : public Machine {
 public:
  ThisMachine(const TuneRequest& request, answer::Cubins& cubins) : request_(request), cubins_(cubins) {}

  std::vector<store::Record> near_records(std::size_t at_most) override {
    return answer::neighbours(cubins_.layers(), request_.bucket, at_most);
  }
  Libraries& libraries() override { return libraries_; }
  std::size_t compiles_at_once() override { return cubins_.compiles_at_once(); }
  void prefetch(const jit::Specialisation& specialisation) override { cubins_.prefetch(specialisation); }
  answer::KeyedCubin compiled(const jit::Specialisation& specialisation) override {
    return cubins_.get(specialisation);
  }
  std::unique_ptr<Bench> bench() override {
    BenchSettings settings{request_.bucket, request_.device, request_.arch};
    if (request_.team != nullptr) return team_bench(settings, cubins_, *request_.team);
    return request_.worker != nullptr ? request_.worker->bench(settings, cubins_) : local_bench(settings, cubins_);
  }

 private:
  const TuneRequest& request_;
  answer::Cubins& cubins_;
  Libraries libraries_;
};

}  // namespace

std::vector<manifest::Config> Libraries::candidates(const manifest::Site& site,
                                                    const manifest::Implementation& implementation, const Problem& at,
                                                    std::size_t at_most) {
  return jit::library_candidates(*site.op, implementation, manifest::Variant{&implementation}.frame(site, at), at_most);
}

std::optional<std::string> Libraries::why_refused(const manifest::Site& site, const manifest::Variant& variant,
                                                  const Problem& at) {
  return jit::why_library_refuses(site, variant, at);
}

std::unique_ptr<Machine> this_machine(const TuneRequest& request, answer::Cubins& cubins) {
  return std::make_unique<ThisMachine>(request, cubins);
}

}  // namespace kiln::tune
