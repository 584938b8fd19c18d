// `talon bench gpu`: whole passes of a large shape with random weights against the time that its
// bytes take at the device's measured read bandwidth, by number of nodes and length of the prefix,
// over the whole prefix and over partial views.
#include <algorithm>
#include <cstdio>
#include <random>

#include "apps/bench.h"
#include "apps/loader.h"
#include "apps/table.h"
#include "base/clock.h"
#include "compute/cuda/cuda_backend.h"
#include "compute/peaks.h"
#include "observe/stage_range.h"
#include "spec/plan.h"

namespace talon {
namespace {

struct GpuOptions {
  std::string shape = "llama-8b";
  std::vector<int> nodes = {1, 2, 4, 8, 16, 32, 64, 128};
  std::vector<int> contexts = {1024, 65536};
  std::vector<int> partial_contexts = {65536, 131072};
  int budget = 4096;  // tokens that a partial step reads
  int partial_nodes = 16;
  int batch = 8;
  int batch_context = 65536;
  int repeats = 15;
  int offload_context = 65536;
  std::vector<std::string> tables = {"nodes", "partial", "batch", "offload"};
  std::string json;

  bool Wants(const char* table) const {
    return std::find(tables.begin(), tables.end(), table) != tables.end();
  }
};

// One pass: every sequence brings a tree over its whole prefix, or over `budget` tokens of it.
struct PassCase {
  int sequences = 1;
  int context = 0;
  int nodes = 1;
  int budget = 0;
  bool copied = false;  // the budget's blocks were copied to the device before (KvCache::views)
};

struct TimerOptions {
  int tokens = 0;  // of all sequences together
  int rows = 0;
  int sequences = 1;
  bool offload = false;
  int view_blocks = 0;
};

// Bushy, as drafters' trees are: eight branches side by side.
TokenTree BushyTree(int nodes) {
  TokenTree tree(0);
  for (int i = 1; i < nodes; ++i) tree.Add(std::max(0, i - 8), i % 100, 1);
  return tree;
}

class PassTimer {
 public:
  static Result<std::unique_ptr<PassTimer>> Create(LoadedModel* model, const TimerOptions& options);
  // Seconds of a pass and the argmax of its rows, the median of `repeats`.
  Result<double> Time(const PassCase& pass, int repeats);
  // Of copying a sequence's partial view to the device.
  Result<double> TimeCopy(const PassCase& pass, int repeats);
  double KvBytes(const PassCase& pass) const {
    const int tokens = pass.budget > 0 ? pass.budget : pass.context;
    return static_cast<double>(kv_->shape().BytesPerToken()) * tokens * pass.sequences;
  }

 private:
  explicit PassTimer(LoadedModel* model) : model_(model) {}
  Status FillBlocks();
  // Block lists of a partial view: the wanted number of blocks, others in every list.
  std::vector<int32_t> RandomLists(const Sequence& sequence, int blocks);
  Result<Sequence*> NewSequence(const PassCase& pass, int index);
  Status AddSequence(const PassCase& pass, int index);

  LoadedModel* model_;
  Metrics metrics_;
  std::unique_ptr<KvCache> kv_;
  std::mt19937 random_{1};
  PassBuilder builder_;
  std::vector<Sequence> sequences_;
};

Result<std::unique_ptr<PassTimer>> PassTimer::Create(LoadedModel* model,
                                                     const TimerOptions& options) {
  std::unique_ptr<PassTimer> timer(new PassTimer(model));
  const ModelConfig& config = model->target->config();
  const int block = model->engine_options.block_size;
  const KvShape shape{.num_layers = config.num_layers,
                      .kv_heads = config.num_kv_heads,
                      .head_dim = config.head_dim,
                      .block_size = block,
                      .dtype = model->engine_options.kv_dtype,
                      .num_blocks = options.tokens / block + options.sequences,
                      .staging_rows = options.rows,
                      .key_summaries = true};
  TALON_ASSIGN_OR_RETURN(timer->kv_, KvCache::Create(model->backend.get(), shape, &timer->metrics_,
                                                     {.offload = options.offload,
                                                      .tail_regions = options.sequences,
                                                      .tail_rows = options.rows,
                                                      .view_blocks = options.view_blocks}));
  TALON_RETURN_IF_ERROR(timer->FillBlocks());
  return timer;
}

// Zeros would flatter: every block gets random keys and values, the same ones.
Status PassTimer::FillBlocks() {
  const KvView view = kv_->view();
  std::normal_distribution<float> normal;
  std::vector<uint8_t> bytes(view.shape.BlockBytes());
  for (size_t i = 0; i < bytes.size() / DTypeSize(view.shape.dtype); ++i) {
    StoreElement(bytes.data(), view.shape.dtype, static_cast<int64_t>(i), normal(random_));
  }
  for (const KvLayer& layer : view.layers) {
    model_->backend->CopyIn(layer.k_blocks, bytes.data(), bytes.size());
    model_->backend->CopyIn(layer.v_blocks, bytes.data(), bytes.size());
  }
  for (int block = 1; block < view.shape.num_blocks; ++block) {
    model_->backend->CopyBlock(view, 0, block, view.shape.block_size);
  }
  return OkStatus();
}

std::vector<int32_t> PassTimer::RandomLists(const Sequence& sequence, int blocks) {
  const KvShape& shape = kv_->shape();
  std::vector<int32_t> ids;
  std::vector<int32_t> pool = sequence.blocks;
  for (int list = 0; list < shape.num_layers * shape.kv_heads; ++list) {
    std::shuffle(pool.begin(), pool.end(), random_);
    std::sort(pool.begin(), pool.begin() + blocks);
    ids.insert(ids.end(), pool.begin(), pool.begin() + blocks);
  }
  return ids;
}

Result<Sequence*> PassTimer::NewSequence(const PassCase& pass, int index) {
  Sequence& sequence = sequences_.emplace_back(
      Sequence{.id = index, .tokens = std::vector<int32_t>(pass.context + 1, 0)});
  TALON_ASSIGN_OR_RETURN(Reservation reservation, kv_->Reserve(sequence, pass.context));
  kv_->Advance(&sequence, std::move(reservation), pass.context, "prefill");
  return &sequence;
}

Status PassTimer::AddSequence(const PassCase& pass, int index) {
  TALON_ASSIGN_OR_RETURN(Sequence* const sequence, NewSequence(pass, index));
  const TokenTree tree = BushyTree(pass.nodes);
  if (pass.budget == 0) {
    builder_.AddTree(*sequence, tree);
    return OkStatus();
  }
  TALON_RETURN_IF_ERROR(kv_->OpenTail(sequence));
  const KvShape& shape = kv_->shape();
  std::vector<int32_t> ids = RandomLists(*sequence, pass.budget / shape.block_size);
  int lists = shape.num_layers * shape.kv_heads;
  if (pass.copied) {
    TALON_ASSIGN_OR_RETURN(ids, kv_->CopyToView(sequence, ids));
    lists = 1;
  }
  builder_.AddPartialTree(*sequence, tree,
                          {.block_ids = ids, .num_lists = lists, .tokens = pass.budget});
  return OkStatus();
}

Result<double> PassTimer::TimeCopy(const PassCase& pass, int repeats) {
  sequences_.clear();
  sequences_.reserve(1);
  TALON_ASSIGN_OR_RETURN(Sequence* const sequence, NewSequence(pass, 0));
  const std::vector<int32_t> ids = RandomLists(*sequence, pass.budget / kv_->shape().block_size);
  std::vector<double> seconds;
  Status status;
  for (int i = 0; i <= repeats && status.ok(); ++i) {
    const Stopwatch watch;
    status = kv_->CopyToView(sequence, ids).status();
    model_->backend->JoinCopies();
    model_->backend->Synchronize();
    if (i > 0) seconds.push_back(watch.Seconds());
  }
  kv_->Free(sequence);
  if (!status.ok()) return status;
  return Median(seconds);
}

Result<double> PassTimer::Time(const PassCase& pass, int repeats) {
  builder_.Reset();
  sequences_.clear();
  sequences_.reserve(pass.sequences);
  Status status;
  for (int i = 0; i < pass.sequences && status.ok(); ++i) status = AddSequence(pass, i);
  ForwardOutput output;
  std::vector<int32_t> argmax(builder_.plan().output_rows.size());
  std::vector<double> seconds;
  constexpr int kWarmUps = 3;  // the device records the pass in them
  const KvView kv = pass.copied ? kv_->views() : kv_->view();
  model_->backend->JoinCopies();
  for (int i = 0; i < kWarmUps + repeats && status.ok(); ++i) {
    const StageRange range(i == 0 ? "first pass" : "pass");  // the first is not a recording
    const Stopwatch watch;
    status = model_->target->Forward(builder_.plan(), kv, &output);
    if (status.ok()) model_->backend->Argmax(output.logits, argmax);
    if (i >= kWarmUps) seconds.push_back(watch.Seconds());
  }
  for (Sequence& sequence : sequences_) kv_->Free(&sequence);
  if (!status.ok()) return status;
  return Median(seconds);
}

std::string Milliseconds(double seconds) { return fmt::format("{:.3f}", seconds * 1e3); }
std::string Times(double ratio) { return fmt::format("{:.2f}x", ratio); }

class GpuBench {
 public:
  GpuBench(LoadedModel* model, PassTimer* timer, const GpuOptions& options, double bandwidth)
      : model_(model), timer_(timer), options_(options), bandwidth_(bandwidth) {}

  Status ByNodes();
  Status Partial();
  Status Batch();
  // `timer` has its blocks in host memory.
  Status Offload(PassTimer* timer);
  const Json& json() const { return json_; }

 private:
  double Floor(const PassCase& pass) const {
    return (static_cast<double>(model_->target->weight_bytes_per_pass()) + timer_->KvBytes(pass)) /
           bandwidth_;
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
  Table table({"context", "nodes", "ms", "floor ms", "of floor", "of one token"});
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

// Bytes per second. The CPU is there so that the command can be tried anywhere.
Result<double> ReadBandwidth(const Config& config, Backend* backend) {
  if (backend->name() != "cpu") return MeasureCudaReadBandwidth(backend);
  ThreadPool pool(config.threads);
  return MeasureReadBandwidth(pool) * 1e9;
}

Result<int> BenchGpu(Config config, const GpuOptions& options) {
  const int rows = std::max(*std::max_element(options.nodes.begin(), options.nodes.end()),
                            options.batch * options.partial_nodes);
  int tokens = options.Wants("batch") ? options.batch * options.batch_context : options.budget;
  for (const int context : options.contexts) tokens = std::max(tokens, context);
  if (options.Wants("offload")) tokens = std::max(tokens, options.offload_context);
  for (const int context : options.partial_contexts) {
    if (options.Wants("partial")) tokens = std::max(tokens, context);
  }
  TALON_ASSIGN_OR_RETURN(const auto model, LoadModel(config, options.shape, rows));
  TALON_ASSIGN_OR_RETURN(const double bandwidth, ReadBandwidth(config, model->backend.get()));
  TALON_ASSIGN_OR_RETURN(
      auto timer,
      PassTimer::Create(model.get(), {.tokens = tokens, .rows = rows, .sequences = options.batch}));
  std::printf("%s, weights %s, KV %s\n%s, reads %.2f TB/s; median of %d passes with their argmax\n",
              model->name.c_str(), config.weights.c_str(), config.kv_dtype.c_str(),
              model->backend->description().c_str(), bandwidth * 1e-12, options.repeats);
  GpuBench bench(model.get(), timer.get(), options, bandwidth);
  if (options.Wants("nodes")) TALON_RETURN_IF_ERROR(bench.ByNodes());
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
  json["device"] = model->backend->description();
  json["read_bandwidth"] = bandwidth;
  TALON_RETURN_IF_ERROR(SaveJson(options.json, json));
  return kExitOk;
}

}  // namespace

void AddBenchGpu(CLI::App* bench, Config* config, CommandBody* body) {
  auto options = std::make_shared<GpuOptions>();
  CLI::App* command = bench->add_subcommand(
      "gpu", "Whole passes of a large shape against the floor of the device's memory");
  const auto list = [&](const char* name, std::vector<int>* values, const char* help) {
    command->add_option(name, *values, help)
        ->delimiter(',')
        ->check(CLI::Range(1, 1 << 24))
        ->type_name("N,...");
  };
  command->add_option("--shape", options->shape, "Random weights of this shape (llama-8b)");
  list("--nodes", &options->nodes, "Numbers of nodes");
  list("--contexts", &options->contexts, "Lengths of the prefix (1024,65536)");
  list("--partial-contexts", &options->partial_contexts,
       "Lengths of the prefix for partial steps (65536,131072)");
  command->add_option("--budget", options->budget, "Tokens that a partial step reads (4096)");
  command->add_option("--partial-nodes", options->partial_nodes, "Nodes of those steps (16)");
  command->add_option("--batch", options->batch, "Sequences of the batch (8)");
  command->add_option("--batch-context", options->batch_context, "Their prefix (65536)");
  command->add_option("--offload-context", options->offload_context,
                      "The prefix of the steps with K and V in host memory (65536)");
  command->add_option("--repeats", options->repeats, "Timed passes; the median counts")
      ->check(CLI::Range(1, 1000));
  command->add_option("--tables", options->tables, "Which of nodes,partial,batch,offload (all)")
      ->delimiter(',')
      ->check(CLI::IsMember({"nodes", "partial", "batch", "offload"}));
  command->add_option("--json", options->json, "Also write the figures to this file");
  AddSettings(command, config, kModelSettings);
  SetBody(command, body, [config, options] { return BenchGpu(*config, *options); });
}

}  // namespace talon
