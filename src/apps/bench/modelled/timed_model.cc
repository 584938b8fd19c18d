#include "apps/bench/modelled/timed_model.h"

#include <utility>

#include "apps/bench/modelled/modelled_backend.h"
#include "apps/bench/modelled/pass_costs.h"
#include "apps/run_remote.h"

namespace talon {

void AddClockOptions(Command command, ClockOptions* options) {
  command
      .AddOption("--costs", &options->costs,
                 "Time steps by this table of what passes cost instead of a clock (bench/costs)")
      .TypeName("FILE");
  command
      .AddOption("--noise-seed", &options->noise_seed,
                 "With --costs: show the engine disturbed times; 0 = none. The figures are without")
      .Default(options->noise_seed)
      .Range(0, 1 << 30);
}

Result<TimedModel> LoadTimed(const Config& config, const std::string& shape,
                             const ClockOptions& options, bool computes) {
  TimedModel timed{.clock = &SteadyClock::Get()};
  if (!options.modelled()) {
    TALON_ASSIGN_OR_RETURN(timed.model, LoadTarget(config, shape));
    return timed;
  }
  TALON_ASSIGN_OR_RETURN(MachineCosts costs, MachineCosts::Load(options.costs));
  ModelledBackend* modelled = nullptr;
  const auto wrap = [&](std::unique_ptr<Backend> inner) -> std::unique_ptr<Backend> {
    auto backend = std::make_unique<ModelledBackend>(
        std::move(inner),
        ModelledBackend::Options{.costs = std::move(costs),
                                 .noise_seed = static_cast<uint64_t>(options.noise_seed),
                                 .computes = computes});
    modelled = backend.get();
    return backend;
  };
  TALON_ASSIGN_OR_RETURN(timed.model, LoadModel(config, shape, 1, nullptr, wrap));
  modelled->SetTargetLayers(timed.model->target->config().num_layers);
  timed.clock = &modelled->undisturbed_time();
  return timed;
}

}  // namespace talon
