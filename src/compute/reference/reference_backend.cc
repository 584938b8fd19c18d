#include "compute/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compute/fp8.h"
#include "compute/host/host_backend.h"
#include "compute/host/host_memory.h"
#include "compute/host/host_pass.h"
#include "compute/reference/reference_kv.h"
#include "compute/reference/reference_kv_ops.h"
#include "compute/reference/reference_scores.h"
#include "compute/reference/reference_token_ops.h"
#include "compute/reference/reference_weight.h"

namespace talon {
namespace {

float* RowOf(const MatrixView& x, int row) { return x.data + row * x.stride; }

// Where the i-th key a row sees lies: a slot of a block, or a staging row.
struct KeyPlace {
  bool staged = false;
  int64_t index = 0;
};

std::vector<KeyPlace> VisibleKeys(const PassPlan& plan, int block_size,
                                  std::span<const int32_t> blocks, int sequence, int row) {
  std::vector<KeyPlace> keys;
  for (int t = 0; t < plan.prefix_len[row]; ++t) {
    keys.push_back({false, int64_t{blocks[t / block_size]} * block_size + t % block_size});
  }
  for (int j = 0; j < 64 * plan.mask_words; ++j) {
    const uint64_t word = plan.ancestors[int64_t{row} * plan.mask_words + j / 64];
    if ((word >> (j % 64) & 1) == 0) continue;
    const int place = plan.PlaceOf(sequence, j);
    keys.push_back(place < 0 ? KeyPlace{true, ~place} : KeyPlace{false, place});
  }
  return keys;
}

HostVector VectorOf(const KvView& kv, int layer, bool value, KeyPlace place, int head) {
  const KvLayer& arrays = kv.layers[layer];
  const void* blocks = value ? arrays.v_blocks : arrays.k_blocks;
  const void* staged = value ? arrays.v_staged : arrays.k_staged;
  const int64_t index = place.staged ? ~place.index : place.index;
  return VectorAt(kv.shape, blocks, staged, index, head);
}

// `sink`: a logit that joins the denominator, or null.
std::vector<double> Softmax(std::vector<double> scores, const float* sink) {
  double largest = *std::max_element(scores.begin(), scores.end());
  if (sink != nullptr) largest = std::max(largest, double{*sink});
  double sum = sink == nullptr ? 0 : std::exp(*sink - largest);
  for (double& score : scores) sum += score = std::exp(score - largest);
  for (double& score : scores) score /= sum;
  return scores;
}

class ReferenceBackend : public HostBackend {
 public:
  ReferenceBackend(std::string name, std::string description)
      : name_(std::move(name)), description_(std::move(description)) {}

  BackendInfo info() const override { return {name_, description_}; }
  KvOps* kv_ops() override { return &kv_ops_; }
  TokenOps* token_ops() override { return &token_ops_; }

  Result<Buffer> AllocateMemory(size_t bytes) override { return AllocateHostMemory(bytes); }
  Result<std::unique_ptr<Weight>> PackWeight(std::span<const HostMatrix> parts, WeightFormat format,
                                             const WeightUse& use) override {
    return ReferenceWeight::Pack(parts, format, use.bounds, use.activations);
  }

  std::unique_ptr<Pass> NewPass(int /*query_heads*/) override {
    return std::make_unique<HostPass>();
  }
  void LoadPass(const PassPlan& plan, const KvShape& shape, Pass* pass) override {
    static_cast<HostPass*>(pass)->plan = plan;
    static_cast<HostPass*>(pass)->shape = shape;
    pass->ClearStored();
  }

  void Embed(const Pass& pass, const void* table, DType dtype, MatrixView out) override {
    const PassPlan& plan = HostPlanOf(pass);
    TALON_CHECK(out.rows == plan.num_rows());
    for (int r = 0; r < out.rows; ++r) {
      for (int i = 0; i < out.cols; ++i) {
        RowOf(out, r)[i] = LoadElement(table, dtype, int64_t{plan.tokens[r]} * out.cols + i);
      }
    }
  }

  void RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) override {
    TALON_CHECK(x.rows == out.rows && x.cols == out.cols);
    for (int r = 0; r < x.rows; ++r) {
      NormaliseRow(RowOf(x, r), x.cols, weight, epsilon, RowOf(out, r));
    }
  }

  void RmsNormHeads(MatrixView x, int head_dim, const float* weight, float epsilon) override {
    TALON_CHECK(x.cols % head_dim == 0);
    for (int r = 0; r < x.rows; ++r) {
      for (int start = 0; start < x.cols; start += head_dim) {
        NormaliseRow(RowOf(x, r) + start, head_dim, weight, epsilon, RowOf(x, r) + start);
      }
    }
  }

  void MatMul(const MatMulArgs& args) override {
    if (args.norm != nullptr) {
      const MatrixView normed = TakeOperand(args.x.rows, args.x.cols);
      RmsNorm(args.x, args.norm, args.epsilon, normed);
      return Multiply(normed, args);
    }
    Multiply(args.x, args);
  }

  void RopeAngles(const Pass& pass, const float* inv_freq, int half, float scale,
                  MatrixView angles) override {
    const PassPlan& plan = HostPlanOf(pass);
    TALON_CHECK(angles.rows == plan.num_rows() && angles.cols == 2 * half);
    for (int r = 0; r < angles.rows; ++r) {
      for (int i = 0; i < half; ++i) {
        const float angle = static_cast<float>(plan.positions[r]) * inv_freq[i];
        RowOf(angles, r)[i] = static_cast<float>(std::cos(double{angle}) * scale);
        RowOf(angles, r)[half + i] = static_cast<float>(std::sin(double{angle}) * scale);
      }
    }
  }

  void Rope(MatrixView x, int head_dim, MatrixView angles) override {
    const int half = angles.cols / 2;
    TALON_CHECK(x.rows == angles.rows && x.cols % head_dim == 0 && 2 * half <= head_dim);
    for (int r = 0; r < x.rows; ++r) {
      for (int start = 0; start < x.cols; start += head_dim) {
        float* head = RowOf(x, r) + start;
        for (int i = 0; i < half; ++i) {
          const double cosine = RowOf(angles, r)[i];
          const double sine = RowOf(angles, r)[half + i];
          const double a = head[i];
          const double b = head[half + i];
          head[i] = static_cast<float>(a * cosine - b * sine);
          head[half + i] = static_cast<float>(b * cosine + a * sine);
        }
      }
    }
  }

  void SwiGlu(MatrixView gate_up, MatrixView out) override {
    TALON_CHECK(gate_up.rows == out.rows && gate_up.cols == 2 * out.cols);
    for (int r = 0; r < out.rows; ++r) {
      for (int i = 0; i < out.cols; ++i) {
        const double gate = RowOf(gate_up, r)[i];
        const double up = RowOf(gate_up, r)[out.cols + i];
        RowOf(out, r)[i] = static_cast<float>(gate / (1 + std::exp(-gate)) * up);
      }
    }
  }

  void ClampedGate(MatrixView gate_up, float limit, MatrixView out) override {
    TALON_CHECK(gate_up.rows == out.rows && gate_up.cols == 2 * out.cols);
    for (int r = 0; r < out.rows; ++r) {
      for (int i = 0; i < out.cols; ++i) {
        const double gate = std::min(RowOf(gate_up, r)[2 * i], limit);
        const double up = std::clamp(RowOf(gate_up, r)[2 * i + 1], -limit, limit);
        RowOf(out, r)[i] = static_cast<float>(gate / (1 + std::exp(-1.702 * gate)) * (up + 1));
      }
    }
  }

  void Attention(const Pass& pass, const AttentionInput& input, MatrixView out) override {
    const PassPlan& plan = HostPlanOf(pass);
    const MatrixView q = input.q;
    const KvShape& shape = input.kv.shape;
    TALON_CHECK(q.rows == plan.num_rows() && out.rows == q.rows && out.cols == q.cols);
    TALON_CHECK(q.cols % (shape.head_dim * shape.kv_heads) == 0);
    const int group = q.cols / shape.head_dim / shape.kv_heads;
    ReferenceSight sight{.scale = input.scale, .first_key = std::vector<int>(q.rows)};
    for (int s = 0; s < plan.num_sequences(); ++s) {
      for (int r = plan.sequence_rows[s]; r < plan.sequence_rows[s + 1]; ++r) {
        for (int h = 0; h < shape.kv_heads * group; ++h) {
          const int kv_head = h / group;
          const auto blocks = plan.BlocksOf(s, input.layer, kv_head, shape.kv_heads);
          auto keys = VisibleKeys(plan, shape.block_size, blocks, s, r);
          if (input.window > 0 && std::ssize(keys) > input.window) {
            sight.first_key[r] = static_cast<int>(std::ssize(keys)) - input.window;
            keys.erase(keys.begin(), keys.end() - input.window);
          }
          const int start = h * shape.head_dim;
          AttendHead(input, h, kv_head, keys, RowOf(q, r) + start, RowOf(out, r) + start);
        }
      }
    }
    ScoreByAttention(plan, input, sight);
  }

  void GatherRows(MatrixView x, std::span<const int32_t> rows, MatrixView out) override {
    TALON_CHECK(out.rows == static_cast<int>(rows.size()) && out.cols == x.cols);
    for (int i = 0; i < out.rows; ++i) {
      std::copy_n(RowOf(x, rows[i]), x.cols, RowOf(out, i));
    }
  }

 private:
  // args with x in place of args.x, and no norm.
  static void Multiply(MatrixView x, const MatMulArgs& args) {
    const auto& weight = static_cast<const ReferenceWeight&>(*args.w);
    const MatrixView out = args.out;
    TALON_CHECK(x.cols == weight.cols() && out.cols == weight.rows() && x.rows == out.rows);
    for (int r = 0; r < x.rows; ++r) {
      std::vector<float> input(RowOf(x, r), RowOf(x, r) + x.cols);
      if (weight.quantises_activations()) ForSegments(weight.bounds(), input, QuantiseInPlace);
      if (weight.fp8_activations()) ForSegments(weight.bounds(), input, RoundActivationsToFp8);
      for (int o = 0; o < out.cols; ++o) {
        const float bias = args.bias == nullptr ? 0 : args.bias[o];
        const float before = args.accumulate ? RowOf(out, r)[o] : 0;
        if (weight.bounds().empty()) {
          const double sum = Sum(input, weight.Row(o), {0, x.cols});
          RowOf(out, r)[o] = static_cast<float>(sum + bias + before);
          continue;
        }
        float sum = *SumSegments(input, weight.Row(o), weight.bounds());
        if (args.bias != nullptr) sum += bias;
        RowOf(out, r)[o] = args.accumulate ? before + sum : sum;
      }
    }
  }

  static double Sum(std::span<const float> input, const float* row, IndexRange range) {
    double sum = 0;
    for (int i = range.first; i < range.last; ++i) sum += double{input[i]} * row[i];
    return sum;
  }

  // The pairwise sum of the segments that are not empty; nothing if all are.
  static std::optional<float> SumSegments(std::span<const float> input, const float* row,
                                          std::span<const int> bounds) {
    if (bounds.front() == bounds.back()) return std::nullopt;
    if (bounds.size() == 2) return static_cast<float>(Sum(input, row, {bounds[0], bounds[1]}));
    const auto left = SumSegments(input, row, bounds.first(bounds.size() / 2 + 1));
    const auto right = SumSegments(input, row, bounds.subspan(bounds.size() / 2));
    return left && right ? *left + *right : left ? left : right;
  }

  static void NormaliseRow(const float* x, int cols, const float* weight, float epsilon,
                           float* out) {
    double squares = 0;
    for (int i = 0; i < cols; ++i) squares += double{x[i]} * x[i];
    const double factor = 1 / std::sqrt(squares / cols + epsilon);
    for (int i = 0; i < cols; ++i) out[i] = static_cast<float>(x[i] * factor * weight[i]);
  }

  static void ScoreByAttention(const PassPlan& plan, const AttentionInput& input,
                               const ReferenceSight& sight) {
    const KvShape& shape = input.kv.shape;
    for (const ScoreRequest& request : plan.scores) {
      if (request.scorer != BlockScorer::kAttention) continue;
      for (int head = 0; head < shape.kv_heads; ++head) {
        const auto blocks = plan.BlocksOf(request.sequence, input.layer, head, shape.kv_heads);
        const std::vector<double> scores =
            ReferenceScores(request, input.q, shape, input.kv.layers[input.layer],
                            std::span(blocks).first(request.num_blocks), head, sight);
        std::ranges::copy(scores, RowOf(input.scores, head) + request.first_column);
      }
    }
  }

  static void AttendHead(const AttentionInput& input, int head, int kv_head,
                         const std::vector<KeyPlace>& keys, const float* q, float* out) {
    TALON_CHECK(!keys.empty());
    const KvView& kv = input.kv;
    const int layer = input.layer;
    const int head_dim = kv.shape.head_dim;
    std::vector<double> scores;
    for (const KeyPlace& key : keys) {
      const HostVector k = VectorOf(kv, layer, false, key, kv_head);
      double dot = 0;
      for (int d = 0; d < head_dim; ++d) dot += q[d] * double{ReferenceLoad(kv.shape, k, d)};
      scores.push_back(dot * input.scale);
    }
    const float* sink = input.sinks == nullptr ? nullptr : input.sinks + head;
    const std::vector<double> weights = Softmax(std::move(scores), sink);
    std::vector<double> sums(head_dim);
    for (size_t i = 0; i < keys.size(); ++i) {
      const HostVector v = VectorOf(kv, layer, true, keys[i], kv_head);
      for (int d = 0; d < head_dim; ++d) sums[d] += weights[i] * ReferenceLoad(kv.shape, v, d);
    }
    std::ranges::copy(sums, out);
  }

  ReferenceKvOps kv_ops_;
  ReferenceTokenOps token_ops_{this};
  std::string name_;
  std::string description_;
};

}  // namespace

std::unique_ptr<Backend> NewReferenceBackend(std::string name, std::string description) {
  return std::make_unique<ReferenceBackend>(std::move(name), std::move(description));
}

}  // namespace talon
