// `talon bench ops`: the time of each op on the model's own shapes, and its share of the peak that
// bounds it: memory bandwidth for few rows, matrix instructions for many.
#include <cstdio>

#include "apps/bench/bench.h"
#include "apps/common/table.h"
#include "base/json.h"
#include "base/threads.h"
#include "compute/cpu/cpu_backend.h"
#include "compute/cpu/peaks.h"
#include "model/files/tensor_layout.h"
#include "setup/loader.h"
#include "spec/plan.h"

namespace talon {
namespace {

struct OpsOptions {
  std::string shape = "llama-1b";
  std::vector<int> rows = {1, 8, 64, 512};
  int context = 2048;
  int repeats = 9;
  std::string json;
};

struct OpPeaks {
  double bandwidth = 0;  // GB/s
  double matrix = 0;     // GFLOP/s of the weights' kind
  double attention = 0;  // GFLOP/s of the cache's kind
};

// Device matrices and the ops on them, timed one by one.
class OpBench {
 public:
  OpBench(Backend* backend, ModelConfig model, const OpsOptions& options, OpPeaks peaks)
      : backend_(backend), model_(std::move(model)), options_(options), peaks_(peaks) {}

  Status Run(WeightFormat weights, ActivationFormat activations, DType kv_dtype) {
    struct Product {
      const char* name;
      int outputs, inputs;
      std::vector<int> bounds = {};  // bounds of segments, where the model sums in segments
    };
    const Product products[] = {
        {"matmul qkv", model_.q_size() + 2 * model_.kv_size(), model_.hidden_size},
        {"matmul output", model_.hidden_size, model_.q_size(),
         SegmentBounds(model_.q_size(), model_.q_size() / model_.num_kv_heads)},
        {"matmul gate+up", 2 * MlpSize(), model_.hidden_size},
        {"matmul down", model_.hidden_size, MlpSize(),
         model_.experts.count > 0 ? std::vector<int>() : MlpBounds(model_)},
        {"matmul head", model_.vocab_size, model_.hidden_size}};
    for (const Product& product : products) {
      const bool of_layer = product.outputs != model_.vocab_size;
      TALON_RETURN_IF_ERROR(
          MatMul(product.name, product.outputs, product.inputs, weights,
                 {.bounds = product.bounds,
                  .activations = of_layer ? activations : ActivationFormat::kAuto}));
    }
    for (const int rows : options_.rows) TALON_RETURN_IF_ERROR(Elementwise(rows));
    for (const int rows : options_.rows) {
      if (rows <= 64) TALON_RETURN_IF_ERROR(Attention(rows, kv_dtype));
    }
    return OkStatus();
  }

  const Table& table() const { return table_; }
  const Json& json() const { return json_; }

 private:
  Result<MatrixView> Matrix(int rows, int cols) {
    TALON_ASSIGN_OR_RETURN(Buffer buffer,
                           backend_->Allocate(sizeof(float) * static_cast<size_t>(rows) * cols));
    std::vector<float> values(static_cast<size_t>(rows) * cols);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(static_cast<int>(i * 2654435761u >> 16) % 201 - 100) / 100;
    }
    backend_->CopyIn(buffer.data(), values.data(), values.size() * sizeof(float));
    const MatrixView view{static_cast<float*>(buffer.data()), rows, cols, cols};
    buffers_.push_back(std::move(buffer));
    return view;
  }

  void Add(const std::string& name, int rows, double seconds, double bytes, double flops = 0,
           double flop_peak = 1) {
    const double gb = bytes / seconds / 1e9, gflops = flops / seconds / 1e9;
    const double byte_share = gb / peaks_.bandwidth, flop_share = gflops / flop_peak;
    const bool by_flops = flop_share > byte_share;
    table_.Add({name, std::to_string(rows), fmt::format("{:.1f}", seconds * 1e6),
                fmt::format("{:.1f}", gb), fmt::format("{:.0f}", gflops),
                fmt::format("{:.0f}% of {}", 100 * std::max(byte_share, flop_share),
                            by_flops ? "matrix peak" : "bandwidth")});
    json_.push_back({{"op", name},
                     {"rows", rows},
                     {"microseconds", seconds * 1e6},
                     {"gb_per_second", gb},
                     {"gflops", gflops},
                     {"share", std::max(byte_share, flop_share)}});
  }

  Status MatMul(const char* name, int outputs, int inputs, WeightFormat format,
                const WeightUse& use) {
    std::vector<float> values(static_cast<size_t>(outputs) * inputs);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(static_cast<int>(i * 2654435761u >> 16) % 201 - 100) / 5000;
    }
    // Several copies, so that the weights come from memory as they do in a model, not from a cache.
    const int copies = 1 + static_cast<int>(100'000'000 / values.size());
    std::vector<std::unique_ptr<Weight>> weights;
    const HostMatrix host{values.data(), DType::kF32, outputs, inputs};
    for (int i = 0; i < copies; ++i) {
      TALON_ASSIGN_OR_RETURN(auto weight, backend_->PackWeight({&host, 1}, format, use));
      weights.push_back(std::move(weight));
    }
    for (const int rows : options_.rows) {
      TALON_ASSIGN_OR_RETURN(const MatrixView x, Matrix(rows, inputs));
      TALON_ASSIGN_OR_RETURN(const MatrixView out, Matrix(rows, outputs));
      size_t next = 0;
      const double seconds = TimeCall(options_.repeats, [&] {
        backend_->MatMul({.x = x, .w = weights[next++ % weights.size()].get(), .out = out});
        backend_->Synchronize();
      });
      Add(name, rows, seconds,
          static_cast<double>(weights[0]->bytes()) + 4.0 * rows * (inputs + outputs),
          2.0 * rows * outputs * inputs, peaks_.matrix);
    }
    buffers_.clear();
    return OkStatus();
  }

  // The size of one expert, where there are experts.
  int MlpSize() const {
    return model_.experts.count > 0 ? model_.experts.intermediate_size : model_.intermediate_size;
  }

  Status Elementwise(int rows) {
    const int hidden = model_.hidden_size, ffn = MlpSize();
    TALON_ASSIGN_OR_RETURN(const MatrixView x, Matrix(rows, hidden));
    TALON_ASSIGN_OR_RETURN(const MatrixView normed, Matrix(rows, hidden));
    TALON_ASSIGN_OR_RETURN(const MatrixView weight, Matrix(1, hidden));
    TALON_ASSIGN_OR_RETURN(const MatrixView gate_up, Matrix(rows, 2 * ffn));
    TALON_ASSIGN_OR_RETURN(const MatrixView gated, Matrix(rows, ffn));
    TALON_ASSIGN_OR_RETURN(const MatrixView logits, Matrix(std::min(rows, 64), model_.vocab_size));
    std::vector<int32_t> ids(logits.rows);
    std::vector<TopKEntry> best(static_cast<size_t>(logits.rows) * 8);
    const auto time = [&](const std::function<void()>& op) {
      return TimeCall(options_.repeats, [&] {
        op();
        backend_->Synchronize();
      });
    };
    Add("rms_norm", rows,
        time([&] { backend_->layer_ops()->RmsNorm(x, weight.data, 1e-5f, normed); }),
        8.0 * rows * hidden);
    Add("swiglu", rows, time([&] { backend_->layer_ops()->SwiGlu(gate_up, gated); }),
        12.0 * rows * ffn);
    if (rows <= 64) {
      const double bytes = 4.0 * logits.rows * logits.cols;
      Add("argmax", logits.rows, time([&] { backend_->token_ops()->Argmax(logits, ids); }), bytes);
      Add("top_k 8", logits.rows, time([&] { backend_->token_ops()->TopK(logits, 8, best); }),
          bytes);
    }
    buffers_.clear();
    return OkStatus();
  }

  // A chain of `rows` staged rows over a committed prefix, one layer.
  Status Attention(int rows, DType kv_dtype) {
    const KvShape shape{.num_layers = 1,
                        .kv_heads = model_.num_kv_heads,
                        .head_dim = model_.head_dim,
                        .dtype = kv_dtype,
                        .num_blocks = options_.context / 16 + 1,
                        .staging_rows = rows};
    Metrics unused;
    TALON_ASSIGN_OR_RETURN(const auto kv, KvCache::Create(backend_, shape, &unused));
    Sequence sequence{.id = 1, .tokens = std::vector<int32_t>(options_.context + 1, 0)};
    TALON_ASSIGN_OR_RETURN(Reservation reservation, kv->Reserve(sequence, options_.context));
    kv->Advance(&sequence, std::move(reservation), options_.context, "prefill");
    for (size_t i = 1; i < sequence.blocks.size(); ++i) {  // else they may be one page of zeros
      backend_->kv_ops()->CopyBlock(kv->view(), sequence.blocks[0], sequence.blocks[i],
                                    shape.block_size);
    }
    TokenTree chain(0);
    for (int i = 1; i < rows; ++i) chain.Add(i - 1, 0, 1);
    PassBuilder builder;
    builder.AddTree(sequence, chain);
    const auto pass = backend_->NewPass(model_.num_heads);
    backend_->LoadPass(builder.plan(), shape, pass.get());
    TALON_ASSIGN_OR_RETURN(const MatrixView q, Matrix(rows, model_.q_size()));
    TALON_ASSIGN_OR_RETURN(const MatrixView k, Matrix(rows, model_.kv_size()));
    TALON_ASSIGN_OR_RETURN(const MatrixView out, Matrix(rows, model_.q_size()));
    const double row_bytes = 2.0 * static_cast<double>(shape.RowBytes());
    Add("store_kv", rows,
        TimeCall(options_.repeats,
                 [&] {
                   backend_->kv_ops()->StoreKv(*pass, k, k, kv->view(), 0);
                   backend_->Synchronize();
                 }),
        8.0 * rows * k.cols + row_bytes * rows);
    const double seconds = TimeCall(options_.repeats, [&] {
      backend_->layer_ops()->Attention(
          *pass, {.q = q, .kv = kv->view(), .layer = 0, .scale = 0.125f}, out);
      backend_->Synchronize();
    });
    const double keys = options_.context + rows / 2.0;
    Add(fmt::format("attention {}", options_.context), rows, seconds, row_bytes * keys,
        4.0 * rows * keys * model_.q_size(), peaks_.attention);
    std::vector<int32_t> staged(rows), slots(rows);
    for (int i = 0; i < rows; ++i) staged[i] = slots[i] = i;
    Add("commit_rows", rows,
        TimeCall(options_.repeats,
                 [&] {
                   backend_->kv_ops()->CommitRows(kv->view(), staged, slots, 1);
                   backend_->Synchronize();
                 }),
        2 * row_bytes * rows);
    buffers_.clear();
    return OkStatus();
  }

  Backend* backend_;
  ModelConfig model_;
  const OpsOptions& options_;
  OpPeaks peaks_;
  std::vector<Buffer> buffers_;
  Table table_{{"op", "rows", "us", "GB/s", "GFLOP/s", "share"}};
  Json json_ = Json::array();
};

// int4 is multiplied as int8.
const char* PeakName(WeightFormat format) {
  return WeightFormatName(format == WeightFormat::kInt4 ? WeightFormat::kInt8 : format);
}

Result<int> BenchOps(const Config& config, const OpsOptions& options) {
  ModelConfig model;
  if (config.model.empty()) {
    TALON_ASSIGN_OR_RETURN(model, ShapeByName(options.shape));
  } else {
    TALON_ASSIGN_OR_RETURN(model, LoadModelConfig(config.model));
  }
  WeightFormat weights = WeightFormat::kAsStored;
  DType kv_dtype = DType::kBF16;
  if (!ParseWeightFormat(config.weights, &weights)) {
    return InvalidArgument("weights: '{}', must be {}", config.weights, WeightFormatNames());
  }
  ActivationFormat activations = ActivationFormat::kAuto;
  if (!ParseActivationFormat(config.activations, &activations)) {
    return InvalidArgument("activations: '{}', must be auto or fp8", config.activations);
  }
  if (!ParseKvType(config.kv_dtype, &kv_dtype)) {
    return InvalidArgument("kv_dtype: '{}', must be f32, f16, bf16, fp8 or int8", config.kv_dtype);
  }
  if (weights == WeightFormat::kAsStored) weights = WeightFormat::kBF16;
  const auto backend = NewCpuBackend(config.threads, config.touch_memory, !config.disable_amx);
  ThreadPool pool(config.threads);
  const MatrixKind kv_kind =
      KvValueType(kv_dtype) == DType::kBF16 ? MatrixKind::kBF16 : MatrixKind::kF32;
  const OpPeaks peaks{MeasureReadBandwidth(pool), MeasureMatrixPeak(pool, MatrixKindOf(weights)),
                      MeasureMatrixPeak(pool, kv_kind)};
  OpBench bench(backend.get(), model, options, peaks);
  TALON_RETURN_IF_ERROR(bench.Run(weights, activations, kv_dtype));
  std::printf("%s, weights %s, KV %s\nmeasured peaks: %.1f GB/s read, %.0f G(FL)OP/s %s\n%s",
              backend->info().description.c_str(), WeightFormatName(weights),
              config.kv_dtype.c_str(), peaks.bandwidth, peaks.matrix, PeakName(weights),
              bench.table().ToString().c_str());
  TALON_RETURN_IF_ERROR(SaveJson(options.json, {{"bandwidth_gb_per_second", peaks.bandwidth},
                                                {"matrix_peak_gflops", peaks.matrix},
                                                {"weights", WeightFormatName(weights)},
                                                {"ops", bench.json()}}));
  return kExitOk;
}

}  // namespace

void AddBenchOps(Command bench, Config* config, CommandBody* body) {
  auto options = std::make_shared<OpsOptions>();
  Command command = bench.AddSubcommand("ops", "Time of each op and its share of the peak");
  command.AddOption("--shape", &options->shape, "Sizes of the matrices: " + ShapeNames())
      .Default(options->shape);
  command.AddOption("--rows", &options->rows, "Rows of a pass (default 1,8,64,512)")
      .Delimiter(',')
      .Range(1, 4096)
      .TypeName("N,...");
  command.AddOption("--context", &options->context, "Keys of the attention op")
      .Default(options->context)
      .Range(1, 1 << 20);
  command.AddOption("--repeats", &options->repeats, "Timings; the median counts")
      .Default(options->repeats)
      .Range(1, 1000);
  command.AddOption("--json", &options->json, "Also write the figures to this file");
  AddSettings(command, config, kModelSettings);
  SetBody(command, body, [config, options] { return BenchOps(*config, *options); });
}

}  // namespace talon
