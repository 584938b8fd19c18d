// `talon bench ranks`: what a token and larger passes cost on several ranks, the share of it that
// the ranks exchange, and what each of them keeps in memory.
#include "compute/ranks/ranks.h"

#include <cstdio>
#include <memory>

#include "apps/bench/bench.h"
#include "apps/common/table.h"
#include "apps/run_remote.h"
#include "base/clock.h"
#include "base/json.h"
#include "model/ranks/memory.h"
#include "model/single_sequence.h"
#include "setup/loader.h"

namespace talon {
namespace {

constexpr int kPrompt = 64;

struct RanksOptions {
  std::string shape;
  std::vector<int> rows = {1, 4, 16, 64};
  int tokens = 32;
  int repeats = 9;
  bool reckon = false;
  std::string json;
};

std::vector<int32_t> SomeTokens(int count, int vocabulary) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((i * 7919 + 11) % vocabulary);
  return tokens;
}

// ---- Memory by the sizes of the tensors ----

Result<Json> ReckonedMemory(const Config& config, const ModelConfig& model, Table* table) {
  WeightFormat format = WeightFormat::kAsStored;
  ParseWeightFormat(config.weights, &format);
  if (format != WeightFormat::kAsStored && format != WeightFormat::kInt8) {
    return Unimplemented("weights: {}, memory is reckoned for auto and int8", config.weights);
  }
  DType kv = DType::kBF16;
  ParseKvType(config.kv_dtype, &kv);
  Json rows = Json::array();
  for (const int size : {1, 2, 4, 8}) {
    if (model.num_kv_heads % size != 0) continue;
    TALON_ASSIGN_OR_RETURN(const RankMemory memory, ReckonRankMemory(model, size, format, kv));
    rows.push_back({{"ranks", size},
                    {"weight_bytes", memory.weight_bytes},
                    {"kv_bytes_per_token", memory.kv_bytes_per_token}});
    table->Add({std::to_string(size),
                fmt::format("{:.3f}", static_cast<double>(memory.weight_bytes) / 1e9),
                fmt::format("{:.1f}", static_cast<double>(memory.kv_bytes_per_token) / 1024)});
  }
  return rows;
}

// ---- Times ----

// Whether a pass's exchanges can be run alone.
bool ExchangesSums(const LoadedModel& model) {
  return model.backend->info().rank_split == RankSplit::kInputs;
}

// Whether the host sees what ranks exchange.
bool CountsMessages(const LoadedModel& model) { return !model.backend->info().queues_exchanges; }

// A pass over a chain of `rows` nodes, and what it exchanged: medians.
struct PassFigures {
  double seconds = 0;
  double exchange_seconds = 0;  // its exchanges alone, without waiting for others' products
  RankTraffic traffic;          // one pass; its seconds are those of exchanges and waiting
};

Result<PassFigures> TimePasses(const LoadedModel& model, SingleSequence* sequence, int rows,
                               int repeats) {
  const std::vector<int32_t> tokens = SomeTokens(rows, model.target->config().vocab_size);
  std::vector<int32_t> parents;
  for (int i = 0; i < rows; ++i) parents.push_back(i - 1);
  const auto traffic = [&] { return model.ranks ? model.ranks->traffic() : RankTraffic(); };
  PassFigures figures;
  std::vector<double> seconds, waiting, exchanges;
  for (int i = 0; i <= repeats; ++i) {
    const RankTraffic before = traffic();
    const Stopwatch watch;
    TALON_RETURN_IF_ERROR(sequence->Tree(tokens, parents).status());
    if (i == 0) continue;  // a warm-up
    seconds.push_back(watch.Seconds());
    const RankTraffic after = traffic();
    waiting.push_back(after.seconds - before.seconds);
    figures.traffic = {after.messages - before.messages, after.bytes - before.bytes};
    if (model.target->leader() == nullptr || !ExchangesSums(model)) continue;
    model.target->Exchange(rows);
    exchanges.push_back(traffic().seconds - after.seconds);
  }
  figures.seconds = Median(seconds);
  figures.traffic.seconds = Median(waiting);
  if (!exchanges.empty()) figures.exchange_seconds = Median(exchanges);
  return figures;
}

Result<Json> TimeAllPasses(const LoadedModel& model, const RanksOptions& options, Table* table) {
  const int most = *std::max_element(options.rows.begin(), options.rows.end());
  TALON_ASSIGN_OR_RETURN(auto sequence,
                         SingleSequence::Create(model.target.get(), model.backend.get(),
                                                {.max_tokens = kPrompt + most, .max_tree = most}));
  TALON_RETURN_IF_ERROR(
      sequence.AppendGreedy(SomeTokens(kPrompt, model.target->config().vocab_size)).status());
  Json points = Json::array();
  const bool alone = ExchangesSums(model);
  const bool counts = CountsMessages(model);
  for (const int rows : options.rows) {
    TALON_ASSIGN_OR_RETURN(const PassFigures pass,
                           TimePasses(model, &sequence, rows, options.repeats));
    points.push_back({{"rows", rows},
                      {"milliseconds", pass.seconds * 1e3},
                      {"exchange_milliseconds", pass.exchange_seconds * 1e3},
                      {"waiting_milliseconds", pass.traffic.seconds * 1e3},
                      {"messages", pass.traffic.messages},
                      {"bytes", pass.traffic.bytes}});
    table->Add(
        {std::to_string(rows), fmt::format("{:.2f}", pass.seconds * 1e3),
         alone ? fmt::format("{:.2f}", pass.exchange_seconds * 1e3) : "-",
         alone ? fmt::format("{:.1f}%", 100 * pass.exchange_seconds / pass.seconds) : "-",
         counts ? fmt::format("{:.2f}", pass.traffic.seconds * 1e3) : "-",
         counts ? std::to_string(pass.traffic.messages) : "-",
         counts ? fmt::format("{:.0f}", static_cast<double>(pass.traffic.bytes) / 1024) : "-"});
  }
  return points;
}

// Seconds per token of plain decoding.
Result<double> TimeTokens(Engine* engine, int vocabulary, const RanksOptions& options) {
  std::vector<double> seconds;
  for (int i = 0; i < options.repeats; ++i) {
    GenerateRequest request;
    request.prompt = SomeTokens(kPrompt, vocabulary);
    request.sampling.max_tokens = options.tokens;
    request.sampling.ignore_eos = true;
    TALON_ASSIGN_OR_RETURN(const GenerateResult result, engine->Generate(std::move(request)));
    seconds.push_back(result.stats.decode_seconds / static_cast<double>(result.tokens.size()));
  }
  return Median(seconds);
}

// ---- Memory as it was allocated ----

Json AllocatedMemory(const LoadedModel& model, const Engine& engine, Table* table) {
  std::vector<RankBytes> ranks = {{.weights = static_cast<int64_t>(model.target->weight_bytes()),
                                   .kv = static_cast<int64_t>(engine.kv().bytes())}};
  if (RankLeader* leader = model.target->leader()) {
    for (const RankBytes& bytes : leader->MemoryOfOthers()) ranks.push_back(bytes);
  }
  const KvShape& shape = engine.kv().shape();
  const int tokens = shape.num_blocks * shape.block_size + shape.staging_rows;
  Json rows = Json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    rows.push_back({{"rank", rank},
                    {"weight_bytes", ranks[rank].weights},
                    {"kv_bytes", ranks[rank].kv},
                    {"kv_tokens", tokens}});
    table->Add({std::to_string(rank),
                fmt::format("{:.3f}", static_cast<double>(ranks[rank].weights) / 1e9),
                fmt::format("{:.1f}", static_cast<double>(ranks[rank].kv) / tokens / 1024)});
  }
  return rows;
}

Result<int> BenchRanks(Config config, const RanksOptions& options) {
  Table reckoned({"ranks", "weights of each, GB", "K and V per token, KiB"});
  if (options.reckon) {
    TALON_ASSIGN_OR_RETURN(const ModelConfig shape, ShapeByName(options.shape));
    TALON_ASSIGN_OR_RETURN(const Json memory, ReckonedMemory(config, shape, &reckoned));
    std::printf("%s\n%s", options.shape.c_str(), reckoned.ToString().c_str());
    TALON_RETURN_IF_ERROR(
        SaveJson(options.json,
                 {{"model", options.shape}, {"weights", config.weights}, {"reckoned", memory}}));
    return kExitOk;
  }
  config.max_sequences = 1;
  config.enable_prefix_cache = false;  // prompts are run again and again
  config.max_length = kPrompt + options.tokens;
  const int most = *std::max_element(options.rows.begin(), options.rows.end());
  TALON_ASSIGN_OR_RETURN(const auto model, LoadTarget(config, options.shape, most));
  TALON_ASSIGN_OR_RETURN(const auto engine, MakeEngine(model.get(), config, DrafterList()));
  TALON_ASSIGN_OR_RETURN(const double token,
                         TimeTokens(engine.get(), model->target->config().vocab_size, options));
  Table allocated({"rank", "weights, GB", "K and V per token, KiB"});
  const Json memory = AllocatedMemory(*model, *engine, &allocated);
  Table passes({"rows", "ms", "exchanges", "share", "with waiting", "messages", "KiB"});
  TALON_ASSIGN_OR_RETURN(const Json points, TimeAllPasses(*model, options, &passes));
  std::printf("%s\n%s\n%d ranks, weights %s: %.2f ms per token of plain decoding\n\n",
              model->name.c_str(), model->backend->info().description.c_str(),
              config.tensor_parallel, config.weights.c_str(), token * 1e3);
  std::printf(
      "Passes, their exchanges alone and with waiting for the others, on rank 0; medians of "
      "%d\n%s\n",
      options.repeats, passes.ToString().c_str());
  std::printf("Memory as allocated\n%s", allocated.ToString().c_str());
  TALON_RETURN_IF_ERROR(SaveJson(options.json, {{"model", options.shape},
                                                {"ranks", config.tensor_parallel},
                                                {"threads", config.threads},
                                                {"weights", config.weights},
                                                {"token_milliseconds", token * 1e3},
                                                {"passes", points},
                                                {"allocated", memory}}));
  return kExitOk;
}

}  // namespace

void AddBenchRanks(Command bench, Config* config, CommandBody* body) {
  auto options = std::make_shared<RanksOptions>();
  Command command = bench.AddSubcommand(
      "ranks", "Times and memory of one model on several processes (mpirun, --tensor-parallel)");
  command.AddOption("--shape", &options->shape, "Random weights of this shape: " + ShapeNames());
  command.AddOption("--rows", &options->rows, "Rows of the passes (default 1,4,16,64)")
      .Delimiter(',')
      .Range(1, 512)
      .TypeName("N,...");
  command.AddOption("--tokens", &options->tokens, "Tokens to generate")
      .Default(options->tokens)
      .Range(2, 4096);
  command.AddOption("--repeats", &options->repeats, "Timed runs")
      .Default(options->repeats)
      .Range(1, 1000);
  command.AddFlag("--reckon", &options->reckon,
                  "Only the memory of a shape by the sizes of its tensors; loads nothing");
  command.AddOption("--json", &options->json, "Also write the figures to this file");
  AddSettings(command, config, kModelSettings);
  SetBody(command, body, [config, options] { return BenchRanks(*config, *options); });
}

}  // namespace talon
