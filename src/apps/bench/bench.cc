#include "apps/bench/bench.h"

#include <algorithm>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "compute/cuda/cuda_backend.h"

namespace talon {

MatrixKind MatrixKindOf(WeightFormat format) {
  if (format == WeightFormat::kInt8 || format == WeightFormat::kInt4) return MatrixKind::kInt8;
  return format == WeightFormat::kBF16 ? MatrixKind::kBF16 : MatrixKind::kF32;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double TimeCall(int repeats, const std::function<void()>& call) {
  call();
  const Stopwatch probe;
  call();
  const int calls = std::max(1, static_cast<int>(1e-3 / std::max(probe.Seconds(), 1e-7)));
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const Stopwatch watch;
    for (int j = 0; j < calls; ++j) call();
    seconds.push_back(watch.Seconds() / calls);
  }
  return Median(seconds);
}

Result<double> MeasureDeviceBandwidth(Backend* backend, ThreadPool* pool) {
  if (backend->info().name != "cpu") return MeasureCudaReadBandwidth(backend);
  return MeasureReadBandwidth(*pool) * 1e9;
}

Status SaveJson(const std::string& path, const Json& json) {
  return path.empty() ? OkStatus() : WriteFile(path, json.dump(2) + "\n");
}

}  // namespace talon
