// A backend whose time is modelled: its clock is advanced by what each pass costs in a table.
#ifndef TALON_APPS_BENCH_MODELLED_MODELLED_BACKEND_H_
#define TALON_APPS_BENCH_MODELLED_MODELLED_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "apps/bench/modelled/modelled_clock.h"
#include "apps/bench/modelled/pass_costs.h"
#include "compute/forwarding_backend.h"

namespace talon {

class ModelledBackend : public ForwardingBackend {
 public:
  struct Options {
    MachineCosts costs;
    uint64_t noise_seed = 0;  // ModelledClock's
    // False: no pass is run, and outputs are what was in memory before; for measurements that do
    // not look at them.
    bool computes = true;
  };
  ModelledBackend(std::unique_ptr<Backend> inner, Options options)
      : ForwardingBackend(std::move(inner)),
        options_(std::move(options)),
        clock_(options_.noise_seed) {}

  // Passes over caches with as many layers are the target's, others the draft's. REQUIRED before
  // the first pass.
  void SetTargetLayers(int layers) { target_layers_ = layers; }

  const Clock& time() const override { return clock_; }
  const Clock& undisturbed_time() const { return clock_.undisturbed(); }

  void LoadPass(const PassPlan& plan, const KvShape& shape, Pass* pass) override {
    ForwardingBackend::LoadPass(plan, shape, pass);
    layers_ = shape.num_layers;
    const MachineCosts& costs = options_.costs;
    clock_.Advance(
        (layers_ == target_layers_ ? costs.target : costs.draft).Seconds(plan, shape.block_size));
  }
  void Record(Pass* pass, const Pass* second, uint64_t key,
              const std::function<void()>& ops) override {
    if (options_.computes) return ForwardingBackend::Record(pass, second, key, ops);
    for (int layer = 0; layer < layers_; ++layer) pass->ReportStored(layer);
  }

 private:
  Options options_;
  ModelledClock clock_;
  int target_layers_ = 0;
  int layers_ = 0;  // the pass loaded last has
};

}  // namespace talon

#endif  // TALON_APPS_BENCH_MODELLED_MODELLED_BACKEND_H_
