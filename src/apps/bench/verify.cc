// `talon bench verify`: what a pass over T nodes costs, c(T), by length of the prefix.
// `talon bench scv`: when verifying a chain in chunks pays.
#include <algorithm>
#include <cstdio>
#include <optional>

#include "apps/bench/bench.h"
#include "apps/bench/roofline.h"
#include "apps/common/table.h"
#include "apps/run_remote.h"
#include "base/json.h"
#include "setup/loader.h"
#include "spec/drafters/replay_drafter.h"

namespace talon {
namespace {

struct VerifyOptions {
  std::string shape;
  std::vector<int> nodes = {1, 2, 4, 8, 16, 32, 64};
  std::vector<int> depths = {0, 4096, 16384};
  int repeats = 9;
  std::string json;
};

// The least time that a pass could take by the limits of this machine, measured in the same run:
// its matrices, and then its prefix, are read or multiplied, whichever takes longer.
class PassFloor {
 public:
  PassFloor(const Config& config, const LoadedModel& model) : model_(*model.target) {
    const ModelConfig& shape = model_.config();
    WeightFormat format = WeightFormat::kAsStored;
    ParseWeightFormat(config.weights, &format);
    if (format == WeightFormat::kAsStored && shape.dtype == DType::kBF16) {
      format = WeightFormat::kBF16;
    }
    const DType kv = model.engine_options.kv_dtype;
    ThreadPool pool(config.threads);
    bandwidth_ = MeasureReadBandwidth(pool) * 1e9;
    matrix_ = MeasureMatrixPeak(pool, MatrixKindOf(format)) * 1e9;
    attention_ =
        MeasureMatrixPeak(pool, kv == DType::kBF16 ? MatrixKind::kBF16 : MatrixKind::kF32) * 1e9;
    token_bytes_ = 2.0 * shape.kv_size() * shape.num_layers * static_cast<double>(DTypeSize(kv));
  }

  double Seconds(int rows, int depth) const {
    const ModelConfig& shape = model_.config();
    const double flops = LayerFlops(shape) + HeadFlops(shape);  // for one row
    const double read = static_cast<double>(model_.weight_bytes_per_pass(rows)) / bandwidth_;
    const double attended = rows * AttentionFlops(shape, depth);
    return std::max(read, rows * flops / matrix_) +
           std::max(depth * token_bytes_ / bandwidth_, attended / attention_);
  }
  std::string ToString() const {
    return fmt::format(
        "floor: the least time by {:.1f} GB/s of reads, and {:.0f} and {:.0f} G(FL)OP/s of "
        "products\n"
        "and attention, measured here",
        bandwidth_ / 1e9, matrix_ / 1e9, attention_ / 1e9);
  }

 private:
  const Decoder& model_;
  double bandwidth_ = 0, matrix_ = 0, attention_ = 0;
  double token_bytes_ = 0;
};

// A cache for passes of `most_nodes` rows behind a prefix of at most `deepest` tokens.
Result<std::unique_ptr<KvCache>> NewCache(const LoadedModel& model, int deepest, int most_nodes,
                                          Metrics* metrics) {
  const ModelConfig& target = model.target->config();
  if (deepest + most_nodes > target.max_context) {
    return InvalidArgument("depths: {} + {} nodes, the model's context is {}", deepest, most_nodes,
                           target.max_context);
  }
  const int block = model.engine_options.block_size;
  const KvShape shape{.num_layers = target.num_layers,
                      .kv_heads = model.target->kv_heads(),
                      .head_dim = target.head_dim,
                      .block_size = block,
                      .dtype = model.engine_options.kv_dtype,
                      .num_blocks = deepest / block + 2,
                      .staging_rows = most_nodes};
  return KvCache::Create(model.backend.get(), shape, metrics, {.ops = model.target->kv_ops()});
}

struct VerifyPoint {
  double seconds = 0;
  double c = 1;  // against the plain pass
};

// The plain pass is timed again beside each point: the machine's speed drifts.
Result<VerifyPoint> TimePoint(const LoadedModel& model, KvCache* kv, int nodes, int depth,
                              int repeats) {
  const auto time = [&](int count) {
    return TimeVerifyPass(model.backend.get(), model.target.get(), kv, count, depth, repeats);
  };
  TALON_ASSIGN_OR_RETURN(const double one, time(1));
  TALON_ASSIGN_OR_RETURN(const double seconds, time(nodes));
  return VerifyPoint{.seconds = seconds, .c = nodes == 1 ? 1.0 : seconds / one};
}

Table NewVerifyTable(const std::vector<int>& depths, bool has_floor) {
  std::vector<std::string> header = {"nodes"};
  for (const int depth : depths) {
    header.push_back(fmt::format("at {}", depth));
    header.push_back("c(T)");
    if (has_floor) header.push_back("time / floor");
  }
  return Table(header);
}

Result<int> BenchVerify(const Config& config, const VerifyOptions& options) {
  const int most_nodes = *std::max_element(options.nodes.begin(), options.nodes.end());
  const int deepest = *std::max_element(options.depths.begin(), options.depths.end());
  TALON_ASSIGN_OR_RETURN(const auto model, LoadTarget(config, options.shape, most_nodes));
  Metrics unused;
  TALON_ASSIGN_OR_RETURN(const auto kv, NewCache(*model, deepest, most_nodes, &unused));
  std::optional<PassFloor> floor;  // devices have `bench gpu`
  if (model->backend->info().name == "cpu") floor.emplace(config, *model);
  Table table = NewVerifyTable(options.depths, floor.has_value());
  Json rows = Json::array();
  for (const int nodes : options.nodes) {
    std::vector<std::string> line = {std::to_string(nodes)};
    for (const int depth : options.depths) {
      TALON_ASSIGN_OR_RETURN(const VerifyPoint point,
                             TimePoint(*model, kv.get(), nodes, depth, options.repeats));
      line.push_back(fmt::format("{:.2f}", point.seconds * 1e3));
      line.push_back(fmt::format("{:.2f}", point.c));
      rows.push_back({{"nodes", nodes},
                      {"depth", depth},
                      {"milliseconds", point.seconds * 1e3},
                      {"c", point.c}});
      if (!floor) continue;
      const double least = floor->Seconds(nodes, depth);
      line.push_back(fmt::format("{:.2f}x", point.seconds / least));
      rows.back()["floor_milliseconds"] = least * 1e3;
    }
    table.Add(line);
  }
  std::printf("%s\n%s\nweights %s, KV %s, milliseconds by length of the prefix, fastest of %d\n%s",
              model->name.c_str(), model->backend->info().description.c_str(),
              config.weights.c_str(), config.kv_dtype.c_str(), options.repeats,
              table.ToString().c_str());
  if (floor) std::printf("%s\n", floor->ToString().c_str());
  TALON_RETURN_IF_ERROR(SaveJson(
      options.json, {{"model", model->name}, {"weights", config.weights}, {"points", rows}}));
  return kExitOk;
}

struct ScvOptions {
  std::vector<int> lengths = {16, 32, 48};
  std::vector<int> chunks = {0, 4, 8, 16};
  std::string json;
};

constexpr int kScvTokens = 160;

// Milliseconds per token with chains of `length` whose drafts are right with `acceptance`.
Result<double> TimeScv(LoadedModel* model, const std::vector<int32_t>& answer, int prompt,
                       double acceptance, int length, int chunk) {
  EngineOptions options = model->engine_options;
  options.step.budget = {.max_nodes = length, .max_depth = length - 1};
  options.step.scv_chunk_size = chunk;
  Engine::Parts parts{.backend = model->backend.get(), .target = model->target.get()};
  parts.drafter =
      std::make_unique<ReplayDrafter>(answer, model->target->config().vocab_size, acceptance, 1);
  TALON_ASSIGN_OR_RETURN(const auto engine, Engine::Create(std::move(parts), options));
  GenerateRequest request;
  request.prompt.assign(answer.begin(), answer.begin() + prompt);
  request.sampling.max_tokens = kScvTokens;
  request.sampling.ignore_eos = true;
  TALON_ASSIGN_OR_RETURN(const GenerateResult result, engine->Generate(std::move(request)));
  return result.stats.decode_seconds / static_cast<double>(result.tokens.size()) * 1e3;
}

Result<int> BenchScv(Config config, const ScvOptions& options) {
  config.max_sequences = 1;
  config.enable_prefix_cache = false;  // prompts are run again and again
  config.max_length = 1024;
  const int longest = *std::max_element(options.lengths.begin(), options.lengths.end());
  config.speculative.num_draft_tokens = longest;
  TALON_ASSIGN_OR_RETURN(const auto model, LoadTarget(config, "", longest));
  TALON_ASSIGN_OR_RETURN(const auto plain, MakeEngine(model.get(), config, DrafterList()));
  GenerateRequest request;
  for (int i = 0; i < 32; ++i) {
    request.prompt.push_back((i * 7919 + 11) % model->target->config().vocab_size);
  }
  std::vector<int32_t> answer = request.prompt;
  request.sampling.max_tokens = kScvTokens + longest;
  request.sampling.ignore_eos = true;
  TALON_ASSIGN_OR_RETURN(const GenerateResult truth, plain->Generate(request));
  for (const int32_t id : truth.TokenIds()) answer.push_back(id);
  std::vector<std::string> header = {"chain", "acceptance"};
  for (const int chunk : options.chunks) {
    header.push_back(chunk == 0 ? "one pass, ms/token" : fmt::format("chunk {}", chunk));
  }
  header.emplace_back("best");
  Table table(header);
  Json rows = Json::array();
  for (const int length : options.lengths) {
    for (const double acceptance : {0.1, 0.3, 0.5, 0.7, 0.9}) {
      std::vector<std::string> line = {std::to_string(length), fmt::format("{:.1f}", acceptance)};
      double whole = 0, best = 1e9;
      int best_chunk = 0;
      for (const int chunk : options.chunks) {
        std::vector<double> times;
        for (int repeat = 0; repeat < 3; ++repeat) {
          TALON_ASSIGN_OR_RETURN(const double time,
                                 TimeScv(model.get(), answer, 32, acceptance, length, chunk));
          times.push_back(time);
        }
        const double time = Median(times);
        if (chunk == 0) whole = time;
        if (time < best) {
          best = time;
          best_chunk = chunk;
        }
        line.push_back(chunk == 0 ? fmt::format("{:.3f}", time)
                                  : fmt::format("{:.3f} ({:.2f}x)", time, whole / time));
        rows.push_back({{"chain", length},
                        {"acceptance", acceptance},
                        {"chunk", chunk},
                        {"ms_per_token", time}});
      }
      line.push_back(best_chunk == 0 ? "one pass" : fmt::format("chunk {}", best_chunk));
      table.Add(line);
    }
  }
  std::printf("%s, weights %s; drafts replayed with errors, median of 3\n%s", model->name.c_str(),
              config.weights.c_str(), table.ToString().c_str());
  TALON_RETURN_IF_ERROR(SaveJson(options.json, {{"model", model->name}, {"points", rows}}));
  return kExitOk;
}

}  // namespace

void AddBenchVerify(Command bench, Config* config, CommandBody* body) {
  auto options = std::make_shared<VerifyOptions>();
  Command command = bench.AddSubcommand("verify", "Milliseconds of a pass over T nodes, and c(T)");
  command.AddOption("--nodes", &options->nodes, "Numbers of nodes (default 1,2,4,8,16,32,64)")
      .Delimiter(',')
      .Range(1, 512)
      .TypeName("N,...");
  command.AddOption("--depths", &options->depths, "Lengths of the prefix (default 0,4096,16384)")
      .Delimiter(',')
      .Range(0, 1 << 24)
      .TypeName("N,...");
  command.AddOption("--shape", &options->shape, "Random weights of this shape: " + ShapeNames());
  command.AddOption("--repeats", &options->repeats, "Timed passes; the fastest counts")
      .Default(options->repeats)
      .Range(1, 1000);
  command.AddOption("--json", &options->json, "Also write the figures to this file");
  AddSettings(command, config, kModelSettings);
  SetBody(command, body, [config, options] { return BenchVerify(*config, *options); });
}

void AddBenchScv(Command bench, Config* config, CommandBody* body) {
  auto options = std::make_shared<ScvOptions>();
  Command command =
      bench.AddSubcommand("scv", "Chunked verification of chains by acceptance: when it pays");
  command
      .AddOption("--lengths", &options->lengths, "Chain lengths, root included (default 16,32,48)")
      .Delimiter(',')
      .Range(2, 256)
      .TypeName("N,...");
  command
      .AddOption("--chunks", &options->chunks,
                 "Chunk sizes; 0 = one pass, first (default 0,4,8,16)")
      .Delimiter(',')
      .Range(0, 256)
      .TypeName("N,...");
  command.AddOption("--json", &options->json, "Also write the figures to this file");
  AddSettings(command, config, kModelSettings);
  SetBody(command, body, [config, options] { return BenchScv(*config, *options); });
}

}  // namespace talon
