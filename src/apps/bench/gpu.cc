// `talon bench gpu`: whole passes of a large shape with random weights against the time that its
// bytes take at the device's measured read bandwidth, by number of nodes, of sequences and length
// of the prefix, over the whole prefix and over partial views.
#include <algorithm>
#include <cstdio>

#include "apps/bench/bench.h"
#include "apps/bench/pass_timer.h"
#include "apps/common/table.h"
#include "apps/run_remote.h"
#include "base/json.h"
#include "setup/loader.h"

namespace talon {
namespace {

struct GpuOptions {
  std::string shape = "llama-8b";
  std::vector<int> nodes = {1, 2, 4, 8, 16, 32, 64, 128};
  std::vector<int> contexts = {1024, 65536};
  std::vector<int> sequences = {8, 32, 64, 128};
  int sequence_context = 1024;
  std::vector<int> partial_contexts = {65536, 131072};
  int budget = 4096;  // tokens that a partial step reads
  int partial_nodes = 16;
  int batch = 8;
  int batch_context = 65536;
  int repeats = 15;
  int offload_context = 65536;
  std::vector<std::string> tables = {"nodes", "sequences", "partial", "batch", "offload"};
  std::string json;

  bool Wants(const char* table) const {
    return std::find(tables.begin(), tables.end(), table) != tables.end();
  }
};

std::string Milliseconds(double seconds) { return fmt::format("{:.3f}", seconds * 1e3); }
std::string Times(double ratio) { return fmt::format("{:.2f}x", ratio); }

class GpuBench {
 public:
  GpuBench(LoadedModel* model, PassTimer* timer, const GpuOptions& options, double bandwidth)
      : model_(model), timer_(timer), options_(options), bandwidth_(bandwidth) {}

  Status ByNodes();
  Status BySequences();
  Status Partial();
  Status Batch();
  // `timer` has its blocks in host memory.
  Status Offload(PassTimer* timer);
  const Json& json() const { return json_; }

 private:
  double Floor(const PassCase& pass) const {
    const int rows = pass.sequences * pass.nodes;
    const auto weights = static_cast<double>(model_->target->weight_bytes_per_pass(rows));
    return (weights + timer_->KvBytes(pass)) / bandwidth_;
  }
  void Note(const char* table, const PassCase& pass, double seconds) {
    json_[table].push_back({{"sequences", pass.sequences},
                            {"context", pass.context},
                            {"nodes", pass.nodes},
                            {"budget", pass.budget},
                            {"milliseconds", seconds * 1e3},
                            {"floor_milliseconds", Floor(pass) * 1e3}});
  }

  LoadedModel* model_;
  PassTimer* timer_;
  const GpuOptions& options_;
  double bandwidth_;
  Json json_;
};

Status GpuBench::ByNodes() {
  Table table({"context", "nodes", "ms", "floor ms", "time / floor", "of one token"});
  for (const int context : options_.contexts) {
    double one = 0;
    for (const int nodes : options_.nodes) {
      const PassCase pass{.context = context, .nodes = nodes};
      TALON_ASSIGN_OR_RETURN(const double seconds, timer_->Time(pass, options_.repeats));
      if (nodes == 1) one = seconds;
      Note("by_nodes", pass, seconds);
      table.Add({std::to_string(context), std::to_string(nodes), Milliseconds(seconds),
                 Milliseconds(Floor(pass)), Times(seconds / Floor(pass)),
                 one > 0 ? Times(seconds / one) : "-"});
    }
  }
  std::printf("\nOne sequence, whole prefix\n%s", table.ToString().c_str());
  return OkStatus();
}

Status GpuBench::BySequences() {
  Table table({"sequences", "context", "ms", "floor ms", "time / floor", "tokens/s"});
  for (const int sequences : options_.sequences) {
    const PassCase pass{.sequences = sequences, .context = options_.sequence_context};
    TALON_ASSIGN_OR_RETURN(const double seconds, timer_->Time(pass, options_.repeats));
    Note("by_sequences", pass, seconds);
    table.Add({std::to_string(sequences), std::to_string(pass.context), Milliseconds(seconds),
               Milliseconds(Floor(pass)), Times(seconds / Floor(pass)),
               fmt::format("{:.0f}", sequences / seconds)});
  }
  std::printf("\nPlain decoding of many sequences\n%s", table.ToString().c_str());
  return OkStatus();
}

Status GpuBench::Partial() {
  const PassCase base{.context = options_.budget, .nodes = options_.partial_nodes};
  TALON_ASSIGN_OR_RETURN(const double at_budget, timer_->Time(base, options_.repeats));
  Table table({"context", "reads", "ms", "of the step at the budget", "of the whole prefix"});
  table.Add({std::to_string(base.context), "all", Milliseconds(at_budget), "1.00x", "1.00x"});
  for (const int context : options_.partial_contexts) {
    PassCase pass{.context = context, .nodes = options_.partial_nodes};
    TALON_ASSIGN_OR_RETURN(const double full, timer_->Time(pass, options_.repeats));
    Note("partial", pass, full);
    pass.budget = options_.budget;
    TALON_ASSIGN_OR_RETURN(const double partial, timer_->Time(pass, options_.repeats));
    Note("partial", pass, partial);
    table.Add(
        {std::to_string(context), "all", Milliseconds(full), Times(full / at_budget), "1.00x"});
    table.Add({std::to_string(context), std::to_string(pass.budget), Milliseconds(partial),
               Times(partial / at_budget), Times(partial / full)});
  }
  std::printf("\nPartial steps of %d nodes\n%s", options_.partial_nodes, table.ToString().c_str());
  return OkStatus();
}

Status GpuBench::Batch() {
  PassCase pass{.sequences = options_.batch,
                .context = options_.batch_context,
                .nodes = options_.partial_nodes};
  TALON_ASSIGN_OR_RETURN(const double full, timer_->Time(pass, options_.repeats));
  Note("batch", pass, full);
  pass.budget = options_.budget;
  TALON_ASSIGN_OR_RETURN(const double partial, timer_->Time(pass, options_.repeats));
  Note("batch", pass, partial);
  Table table({"sequences", "context", "whole prefix ms", "partial ms", "whole / partial"});
  table.Add({std::to_string(pass.sequences), std::to_string(pass.context), Milliseconds(full),
             Milliseconds(partial), Times(full / partial)});
  std::printf("\nBatch, %d nodes each\n%s", pass.nodes, table.ToString().c_str());
  return OkStatus();
}

Status GpuBench::Offload(PassTimer* timer) {
  constexpr int kSlowRepeats = 3;  // whatever reads over the bus
  PassCase pass{.context = options_.offload_context,
                .nodes = options_.partial_nodes,
                .budget = options_.budget};
  TALON_ASSIGN_OR_RETURN(const double here, timer_->Time(pass, options_.repeats));
  TALON_ASSIGN_OR_RETURN(const double in_place, timer->Time(pass, kSlowRepeats));
  TALON_ASSIGN_OR_RETURN(const double copy, timer->TimeCopy(pass, kSlowRepeats));
  const double bytes = timer->KvBytes(pass);
  pass.copied = true;
  TALON_ASSIGN_OR_RETURN(const double copied, timer->Time(pass, options_.repeats));
  Note("offload", pass, copied);
  json_["offload_in_place_milliseconds"] = in_place * 1e3;
  json_["offload_copy_milliseconds"] = copy * 1e3;
  Table table({"K and V", "partial step ms", "of the device's"});
  table.Add({"on the device", Milliseconds(here), "1.00x"});
  table.Add({"offloaded, chosen blocks copied", Milliseconds(copied), Times(copied / here)});
  table.Add({"offloaded, read in place", Milliseconds(in_place), Times(in_place / here)});
  std::printf("\nOffload, %d tokens, partial steps of %d nodes over %d\n%s", pass.context,
              pass.nodes, pass.budget, table.ToString().c_str());
  std::printf("copying the chosen blocks, once for many steps: %.2f ms, %.1f GB/s\n", copy * 1e3,
              bytes / copy * 1e-9);
  return OkStatus();
}

Result<int> BenchGpu(Config config, const GpuOptions& options) {
  const int sequences = options.Wants("sequences")
                            ? std::max(options.batch, std::ranges::max(options.sequences))
                            : options.batch;
  const int rows =
      std::max({std::ranges::max(options.nodes), sequences, options.batch * options.partial_nodes});
  int tokens = options.Wants("batch") ? options.batch * options.batch_context : options.budget;
  if (options.Wants("sequences")) tokens = std::max(tokens, sequences * options.sequence_context);
  for (const int context : options.contexts) tokens = std::max(tokens, context);
  if (options.Wants("offload")) tokens = std::max(tokens, options.offload_context);
  for (const int context : options.partial_contexts) {
    if (options.Wants("partial")) tokens = std::max(tokens, context);
  }
  if (config.tensor_parallel > 1) {
    return Unimplemented("tensor_parallel: {} ranks, but bench gpu times one device",
                         config.tensor_parallel);
  }
  TALON_ASSIGN_OR_RETURN(const auto model, LoadTarget(config, options.shape, rows));
  ThreadPool pool(config.threads);  // the CPU is there so that the command can be tried anywhere
  TALON_ASSIGN_OR_RETURN(const double bandwidth,
                         MeasureDeviceBandwidth(model->backend.get(), &pool));
  TALON_ASSIGN_OR_RETURN(
      auto timer,
      PassTimer::Create(model.get(), {.tokens = tokens, .rows = rows, .sequences = sequences}));
  std::printf("%s, weights %s, KV %s\n%s, reads %.2f TB/s; median of %d passes with their argmax\n",
              model->name.c_str(), config.weights.c_str(), config.kv_dtype.c_str(),
              model->backend->info().description.c_str(), bandwidth * 1e-12, options.repeats);
  GpuBench bench(model.get(), timer.get(), options, bandwidth);
  if (options.Wants("nodes")) TALON_RETURN_IF_ERROR(bench.ByNodes());
  if (options.Wants("sequences")) TALON_RETURN_IF_ERROR(bench.BySequences());
  if (options.Wants("partial")) TALON_RETURN_IF_ERROR(bench.Partial());
  if (options.Wants("batch")) TALON_RETURN_IF_ERROR(bench.Batch());
  if (options.Wants("offload")) {
    TALON_ASSIGN_OR_RETURN(
        const auto offloaded,
        PassTimer::Create(model.get(),
                          {.tokens = options.offload_context,
                           .rows = rows,
                           .sequences = 1,
                           .offload = true,
                           .view_blocks = options.budget / model->engine_options.block_size}));
    TALON_RETURN_IF_ERROR(bench.Offload(offloaded.get()));
  }
  Json json = bench.json();
  json["model"] = model->name;
  json["weights"] = config.weights;
  json["device"] = model->backend->info().description;
  json["read_bandwidth"] = bandwidth;
  TALON_RETURN_IF_ERROR(SaveJson(options.json, json));
  return kExitOk;
}

}  // namespace

void AddBenchGpu(Command bench, Config* config, CommandBody* body) {
  auto options = std::make_shared<GpuOptions>();
  Command command = bench.AddSubcommand(
      "gpu", "Whole passes of a large shape against the floor of the device's memory");
  const auto list = [&](const char* name, std::vector<int>* values, const char* help) {
    command.AddOption(name, values, help).Delimiter(',').Range(1, 1 << 24).TypeName("N,...");
  };
  command.AddOption("--shape", &options->shape,
                    "Random weights of this shape (llama-8b): " + ShapeNames());
  list("--nodes", &options->nodes, "Numbers of nodes");
  list("--contexts", &options->contexts, "Lengths of the prefix (1024,65536)");
  list("--sequences", &options->sequences, "Numbers of sequences (8,32,64,128)");
  command.AddOption("--sequence-context", &options->sequence_context, "Their prefix (1024)");
  list("--partial-contexts", &options->partial_contexts,
       "Lengths of the prefix for partial steps (65536,131072)");
  command.AddOption("--budget", &options->budget, "Tokens that a partial step reads (4096)");
  command.AddOption("--partial-nodes", &options->partial_nodes, "Nodes of those steps (16)");
  command.AddOption("--batch", &options->batch, "Sequences of the batch (8)");
  command.AddOption("--batch-context", &options->batch_context, "Their prefix (65536)");
  command.AddOption("--offload-context", &options->offload_context,
                    "The prefix of the steps with K and V in host memory (65536)");
  command.AddOption("--repeats", &options->repeats, "Timed passes; the median counts")
      .Range(1, 1000);
  command
      .AddOption("--tables", &options->tables,
                 "Which of nodes,sequences,partial,batch,offload (all)")
      .Delimiter(',')
      .OneOf({"nodes", "sequences", "partial", "batch", "offload"});
  command.AddOption("--json", &options->json, "Also write the figures to this file");
  AddSettings(command, config, kModelSettings);
  SetBody(command, body, [config, options, command]() -> Result<int> {
    if (config->device == "cpu" && command.Count("--device") == 0) {
      return InvalidArgument("bench gpu needs --device cuda (or cpu by name, to try it)");
    }
    return BenchGpu(*config, *options);
  });
}

}  // namespace talon
