#include "apps/bench/stages.h"

#include <algorithm>
#include <limits>
#include <map>

#include "apps/common/table.h"
#include "base/clock.h"
#include "base/json.h"
#include "observe/stage_range.h"

namespace talon {
namespace {

// Sums the time of the stages, each without the ranges inside it, and tells the device's clock.
class StageSums : public StageListener {
 public:
  explicit StageSums(Backend* backend) : backend_(backend) { SetStageListener(this); }
  ~StageSums() override { SetStageListener(nullptr); }

  void Begin(const char* name) override {
    Spend();
    open_.push_back(name);
    backend_->clock()->SetStage(name);
  }
  void End(const char*) override {
    Spend();
    open_.pop_back();
    backend_->clock()->SetStage(open_.empty() ? "" : open_.back());
  }
  std::vector<StageTimes::Stage>& stages() { return stages_; }

  StageTimes::Stage& Of(const std::string& name) {
    const auto at = std::ranges::find(stages_, name, &StageTimes::Stage::name);
    return at != stages_.end() ? *at : stages_.emplace_back(StageTimes::Stage{.name = name});
  }

 private:
  // What passed since the last change belongs to the innermost open range.
  void Spend() {
    const double now = watch_.Seconds();
    if (!open_.empty()) Of(open_.back()).host_seconds += now - last_;
    last_ = now;
  }

  Backend* backend_;
  Stopwatch watch_;
  double last_ = 0;
  std::vector<const char*> open_;
  std::vector<StageTimes::Stage> stages_;
};

}  // namespace

double StageTimes::DeviceSeconds() const {
  double sum = 0;
  for (const Stage& stage : stages) sum += stage.device_seconds;
  return sum;
}

double StageTimes::IdleShare() const {
  const double busy = DeviceSeconds();
  return busy == 0 ? -1 : std::max(0.0, 1 - busy / seconds);
}

Json StageTimes::ToJson() const {
  Json json = {{"steps", steps}, {"seconds", seconds}, {"idle_share", IdleShare()}};
  for (const Stage& stage : stages) {
    json["stages"].push_back({{"stage", stage.name},
                              {"host_seconds", stage.host_seconds},
                              {"device_seconds", stage.device_seconds}});
  }
  return json;
}

std::string StageTimes::ToString() const {
  const auto per_step = [&](double value) { return fmt::format("{:.1f}", value / steps * 1e6); };
  const bool has_clock = DeviceSeconds() > 0;  // the CPU is its own host
  std::vector<std::string> heading = {"stage", "host us"};
  if (has_clock) heading.push_back("device us");
  Table table(heading);
  const auto add = [&](const std::string& name, double host, double device) {
    std::vector<std::string> row = {name, per_step(host)};
    if (has_clock) row.push_back(per_step(device));
    table.Add(row);
  };
  for (const Stage& stage : stages) add(stage.name, stage.host_seconds, stage.device_seconds);
  add("whole step", seconds, DeviceSeconds());
  std::string text = table.ToString();
  if (has_clock) text += fmt::format("device idle {:.1f}%\n", 100 * IdleShare());
  return text;
}

StageTimes TimeSteps(Backend* backend, Engine* engine, int64_t most_steps) {
  StageSums sums(backend);
  StageTimes times;
  backend->Synchronize();
  backend->clock()->Start();
  const Stopwatch watch;
  while (engine->HasWork() && times.steps < most_steps) {
    engine->RunStep();
    ++times.steps;
  }
  backend->Synchronize();
  times.seconds = watch.Seconds();
  for (const DeviceTime& time : backend->clock()->Read()) {
    sums.Of(time.stage).device_seconds += time.seconds;
  }
  times.stages = sums.stages();
  return times;
}

Result<StageTimes> MeasureStages(Backend* backend, Engine* engine, GenerateRequest request) {
  constexpr int kWarmUpSteps = 8;  // passes are captured in them
  TALON_ASSIGN_OR_RETURN(const RequestId id, engine->Submit(std::move(request)));
  for (int i = 0; i < kWarmUpSteps && engine->HasWork(); ++i) engine->RunStep();
  const StageTimes times = TimeSteps(backend, engine, std::numeric_limits<int64_t>::max());
  TALON_ASSIGN_OR_RETURN(const GenerateResult result, engine->Take(id));
  if (result.finish == FinishReason::kError) return result.error;
  return times;
}

}  // namespace talon
