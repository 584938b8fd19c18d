// The measurements of `talon bench`. Timings are medians after a warm-up, and shares of peaks that
// are measured in the same run.
#ifndef TALON_APPS_BENCH_BENCH_H_
#define TALON_APPS_BENCH_BENCH_H_

#include <functional>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "base/json_fwd.h"
#include "base/status.h"
#include "base/threads.h"
#include "compute/backend.h"
#include "compute/cpu/peaks.h"
#include "setup/config.h"

namespace talon {

void AddBenchAgreement(Command bench, Config* config, CommandBody* body);
void AddBenchBatch(Command bench, Config* config, CommandBody* body);
void AddBenchDecode(Command bench, Config* config, CommandBody* body);
void AddBenchGpu(Command bench, Config* config, CommandBody* body);
void AddBenchGrammar(Command bench, Config* config, CommandBody* body);
void AddBenchLoad(Command bench, Config* config, CommandBody* body);
void AddBenchLongContext(Command bench, Config* config, CommandBody* body);
void AddBenchNwor(Command bench, Config* config, CommandBody* body);
void AddBenchOps(Command bench, Config* config, CommandBody* body);
void AddBenchPayoff(Command bench, Config* config, CommandBody* body);
void AddBenchRanks(Command bench, Config* config, CommandBody* body);
void AddBenchScv(Command bench, Config* config, CommandBody* body);
void AddBenchSimulate(Command bench, Config* config, CommandBody* body);
void AddBenchTasks(Command bench, Config* config, CommandBody* body);
void AddBenchVerify(Command bench, Config* config, CommandBody* body);

// Modes of decoding, compared over the prompts of a file (JSON lines with "prompt").
struct ModesOptions {
  std::string prompts;
  std::vector<std::string> modes;  // "plain" first, then drafter names
  int repeats = 5;
  std::string json;
};
Result<int> BenchModes(Config config, const ModesOptions& options);

// The matrix instructions that products with such weights use; int4 is multiplied as int8.
MatrixKind MatrixKindOf(WeightFormat format);
double Median(std::vector<double> values);
// Seconds of one call: the median of `repeats` timings, each of as many calls as fill a
// millisecond.
double TimeCall(int repeats, const std::function<void()>& call);
// Bytes per second that the model's device reads from its own memory, measured.
Result<double> MeasureDeviceBandwidth(Backend* backend, ThreadPool* pool);
// Writes the JSON where the user asked for it (empty path: nowhere).
Status SaveJson(const std::string& path, const Json& json);

}  // namespace talon

#endif  // TALON_APPS_BENCH_BENCH_H_
