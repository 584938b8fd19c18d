#include "compute/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compute/host_backend.h"
#include "compute/host_memory.h"
#include "compute/reference/reference_scores.h"
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

double LoadKv(const KvView& kv, int layer, bool value, KeyPlace place, int head, int d) {
  const KvLayer& arrays = kv.layers[layer];
  const void* base = place.staged ? (value ? arrays.v_staged : arrays.k_staged)
                                  : (value ? arrays.v_blocks : arrays.k_blocks);
  const int64_t offset = place.staged ? StagedOffset(kv.shape, place.index, head)
                                      : SlotOffset(kv.shape, place.index, head);
  return LoadElement(base, kv.shape.dtype, offset + d);
}

std::vector<double> Softmax(std::vector<double> scores) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - largest);
  for (double& score : scores) score /= sum;
  return scores;
}

// log-softmax of a row; NaN throughout if the row holds NaN or +inf.
std::vector<float> LogSoftmax(const float* x, int cols) {
  double largest = -std::numeric_limits<double>::infinity();
  for (int i = 0; i < cols; ++i) largest = std::max(largest, double{x[i]});
  double sum = 0;
  for (int i = 0; i < cols; ++i) sum += std::exp(x[i] - largest);
  std::vector<float> out(cols);
  for (int i = 0; i < cols; ++i) {
    out[i] = static_cast<float>(std::isnan(sum) ? sum : x[i] - largest - std::log(sum));
  }
  return out;
}

class ReferenceBackend : public HostBackend {
 public:
  ReferenceBackend(std::string name, std::string description)
      : name_(std::move(name)), description_(std::move(description)) {}

  std::string name() const override { return name_; }
  std::string description() const override { return description_; }

  Result<Buffer> Allocate(size_t bytes) override { return AllocateHostMemory(bytes); }
  void CopyIn(void* device, const void* host, size_t bytes) override {
    std::memcpy(device, host, bytes);
  }
  void CopyOut(void* host, const void* device, size_t bytes) override {
    std::memcpy(host, device, bytes);
  }
  void Synchronize() override {}

  Result<std::unique_ptr<Weight>> PackWeight(std::span<const HostMatrix> parts,
                                             WeightFormat format) override {
    return ReferenceWeight::Pack(parts, format);
  }

  std::unique_ptr<Pass> NewPass(int /*query_heads*/) override {
    return std::make_unique<HostPass>();
  }
  void LoadPass(const PassPlan& plan, const KvShape& shape, Pass* pass) override {
    static_cast<HostPass*>(pass)->plan = plan;
    static_cast<HostPass*>(pass)->shape = shape;
  }

  void Embed(const Pass& pass, const void* table, DType dtype, MatrixView out) override {
    const PassPlan& plan = PlanOf(pass);
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

  void MatMul(MatrixView x, const Weight& w, const float* bias, MatrixView out,
              bool accumulate) override {
    const auto& weight = static_cast<const ReferenceWeight&>(w);
    TALON_CHECK(x.cols == w.cols() && out.cols == w.rows() && x.rows == out.rows);
    for (int r = 0; r < x.rows; ++r) {
      std::vector<float> input(RowOf(x, r), RowOf(x, r) + x.cols);
      if (weight.quantises_activations()) QuantiseInPlace(input);
      for (int o = 0; o < out.cols; ++o) {
        const float* row = weight.Row(o);
        double sum = std::inner_product(input.begin(), input.end(), row, 0.0, std::plus<>(),
                                        [](double a, double b) { return a * b; });
        if (bias != nullptr) sum += bias[o];
        if (accumulate) sum += RowOf(out, r)[o];
        RowOf(out, r)[o] = static_cast<float>(sum);
      }
    }
  }

  void RopeAngles(const Pass& pass, const float* inv_freq, int half, float scale,
                  MatrixView angles) override {
    const PassPlan& plan = PlanOf(pass);
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

  void StoreKv(const Pass& pass, MatrixView k, MatrixView v, const KvView& kv, int layer) override {
    const PassPlan& plan = PlanOf(pass);
    const KvShape& shape = kv.shape;
    TALON_CHECK(k.rows == plan.num_rows() && v.rows == plan.num_rows());
    TALON_CHECK(k.cols == shape.kv_heads * shape.head_dim && v.cols == k.cols);
    const KvLayer& arrays = kv.layers[layer];
    for (int r = 0, s = 0; r < k.rows; ++r) {
      while (r >= plan.sequence_rows[s + 1]) ++s;
      const int place = plan.PlaceOfRow(s, r);
      for (int i = 0; i < k.cols; ++i) {
        const int head = i / shape.head_dim;
        const int64_t offset =
            (place < 0 ? StagedOffset(shape, ~place, head) : SlotOffset(shape, place, head)) +
            i % shape.head_dim;
        StoreElement(place < 0 ? arrays.k_staged : arrays.k_blocks, shape.dtype, offset,
                     RowOf(k, r)[i]);
        StoreElement(place < 0 ? arrays.v_staged : arrays.v_blocks, shape.dtype, offset,
                     RowOf(v, r)[i]);
      }
    }
  }

  void Attention(const Pass& pass, MatrixView q, const KvView& kv, int layer, float scale,
                 MatrixView out) override {
    const PassPlan& plan = PlanOf(pass);
    const KvShape& shape = kv.shape;
    TALON_CHECK(q.rows == plan.num_rows() && out.rows == q.rows && out.cols == q.cols);
    TALON_CHECK(q.cols % (shape.head_dim * shape.kv_heads) == 0);
    const int group = q.cols / shape.head_dim / shape.kv_heads;
    for (int s = 0; s < plan.num_sequences(); ++s) {
      for (int r = plan.sequence_rows[s]; r < plan.sequence_rows[s + 1]; ++r) {
        for (int h = 0; h < shape.kv_heads * group; ++h) {
          const int kv_head = h / group;
          const auto blocks = plan.BlocksOf(s, layer, kv_head, shape.kv_heads);
          const auto keys = VisibleKeys(plan, shape.block_size, blocks, s, r);
          const int start = h * shape.head_dim;
          AttendHead(kv, layer, kv_head, keys, RowOf(q, r) + start, scale, RowOf(out, r) + start);
        }
      }
    }
  }

  void CommitRows(const KvView& kv, std::span<const int32_t> rows, std::span<const int32_t> slots,
                  int num_layers) override {
    TALON_CHECK(rows.size() == slots.size());
    for (int layer = 0; layer < num_layers; ++layer) {
      const KvLayer& arrays = kv.layers[layer];
      for (size_t i = 0; i < rows.size(); ++i) {
        for (int head = 0; head < kv.shape.kv_heads; ++head) {
          const int64_t from = StagedOffset(kv.shape, rows[i], head);
          const int64_t to = SlotOffset(kv.shape, slots[i], head);
          CopyVector(kv.shape, arrays.k_staged, from, arrays.k_blocks, to);
          CopyVector(kv.shape, arrays.v_staged, from, arrays.v_blocks, to);
        }
      }
    }
  }

  void CopySlots(const KvView& kv, std::span<const int32_t> from,
                 std::span<const int32_t> to) override {
    TALON_CHECK(from.size() == to.size());
    for (const KvLayer& arrays : kv.layers) {
      for (size_t i = 0; i < from.size(); ++i) {
        for (int head = 0; head < kv.shape.kv_heads; ++head) {
          const int64_t source = SlotOffset(kv.shape, from[i], head);
          const int64_t target = SlotOffset(kv.shape, to[i], head);
          CopyVector(kv.shape, arrays.k_blocks, source, arrays.k_blocks, target);
          CopyVector(kv.shape, arrays.v_blocks, source, arrays.v_blocks, target);
        }
      }
    }
  }

  void CopyBlock(const KvView& kv, int from, int to, int tokens) override {
    std::vector<int32_t> sources(tokens);
    std::vector<int32_t> targets(tokens);
    std::iota(sources.begin(), sources.end(), from * kv.shape.block_size);
    std::iota(targets.begin(), targets.end(), to * kv.shape.block_size);
    CopySlots(kv, sources, targets);
  }

  void CopyStaged(const KvView& kv, std::span<const int32_t> from,
                  std::span<const int32_t> to) override {
    TALON_CHECK(from.size() == to.size());
    for (const KvLayer& arrays : kv.layers) {
      for (size_t i = 0; i < from.size(); ++i) {
        for (int head = 0; head < kv.shape.kv_heads; ++head) {
          const int64_t source = StagedOffset(kv.shape, from[i], head);
          const int64_t target = StagedOffset(kv.shape, to[i], head);
          CopyVector(kv.shape, arrays.k_staged, source, arrays.k_staged, target);
          CopyVector(kv.shape, arrays.v_staged, source, arrays.v_staged, target);
        }
      }
    }
  }

  void SummariseBlocks(const KvView& kv, std::span<const int32_t> blocks) override {
    TALON_CHECK(kv.shape.key_summaries);
    for (const KvLayer& arrays : kv.layers) {
      for (const int32_t block : blocks) {
        for (int head = 0; head < kv.shape.kv_heads; ++head) {
          ReferenceSummary(kv.shape, arrays, block, head);
        }
      }
    }
  }

  void ScoreBlocks(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                   MatrixView out) override {
    const PassPlan& plan = PlanOf(pass);
    TALON_CHECK(kv.shape.key_summaries && q.rows == plan.num_rows());
    TALON_CHECK(out.rows == kv.shape.kv_heads && out.cols >= plan.num_scored_blocks());
    for (const ScoreRequest& request : plan.scores) {
      for (int head = 0; head < kv.shape.kv_heads; ++head) {
        const auto blocks = plan.BlocksOf(request.sequence, layer, head, kv.shape.kv_heads);
        for (int i = 0; i < request.num_blocks; ++i) {
          RowOf(out, head)[request.first_column + i] = static_cast<float>(
              ReferenceScore(request, q, kv.shape, kv.layers[layer], blocks[i], head));
        }
      }
    }
  }

  void GatherRows(MatrixView x, std::span<const int32_t> rows, MatrixView out) override {
    TALON_CHECK(out.rows == static_cast<int>(rows.size()) && out.cols == x.cols);
    for (int i = 0; i < out.rows; ++i) {
      std::copy_n(RowOf(x, rows[i]), x.cols, RowOf(out, i));
    }
  }

  void Argmax(MatrixView x, std::span<int32_t> out) override {
    TALON_CHECK(static_cast<int>(out.size()) == x.rows);
    for (int r = 0; r < x.rows; ++r) {
      int best = -1;
      for (int i = 0; i < x.cols; ++i) {
        if (std::isnan(RowOf(x, r)[i])) continue;
        if (best < 0 || RowOf(x, r)[i] > RowOf(x, r)[best]) best = i;
      }
      out[r] = std::max(best, 0);
    }
  }

  void TopK(MatrixView x, int k, std::span<TopKEntry> out) override {
    TALON_CHECK(k <= x.cols && static_cast<int>(out.size()) == x.rows * k);
    for (int r = 0; r < x.rows; ++r) {
      const float* row = RowOf(x, r);
      const std::vector<float> log_probs = LogSoftmax(row, x.cols);
      std::vector<int32_t> order(x.cols);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [row](int32_t a, int32_t b) {
        return row[a] > row[b] || (std::isnan(row[b]) && !std::isnan(row[a]));
      });
      for (int i = 0; i < k; ++i) out[r * k + i] = {order[i], log_probs[order[i]]};
    }
  }

 private:
  static void NormaliseRow(const float* x, int cols, const float* weight, float epsilon,
                           float* out) {
    double squares = 0;
    for (int i = 0; i < cols; ++i) squares += double{x[i]} * x[i];
    const double factor = 1 / std::sqrt(squares / cols + epsilon);
    for (int i = 0; i < cols; ++i) out[i] = static_cast<float>(x[i] * factor * weight[i]);
  }

  static void CopyVector(const KvShape& shape, const void* from, int64_t source, void* to,
                         int64_t target) {
    const size_t size = DTypeSize(shape.dtype);
    std::memmove(static_cast<uint8_t*>(to) + target * size,
                 static_cast<const uint8_t*>(from) + source * size, shape.head_dim * size);
  }

  static void AttendHead(const KvView& kv, int layer, int kv_head,
                         const std::vector<KeyPlace>& keys, const float* q, float scale,
                         float* out) {
    TALON_CHECK(!keys.empty());
    const int head_dim = kv.shape.head_dim;
    std::vector<double> scores;
    for (const KeyPlace& key : keys) {
      double dot = 0;
      for (int d = 0; d < head_dim; ++d) dot += q[d] * LoadKv(kv, layer, false, key, kv_head, d);
      scores.push_back(dot * scale);
    }
    const std::vector<double> weights = Softmax(std::move(scores));
    for (int d = 0; d < head_dim; ++d) {
      double sum = 0;
      for (size_t i = 0; i < keys.size(); ++i) {
        sum += weights[i] * LoadKv(kv, layer, true, keys[i], kv_head, d);
      }
      out[d] = static_cast<float>(sum);
    }
  }

  std::string name_;
  std::string description_;
};

}  // namespace

std::unique_ptr<Backend> NewReferenceBackend(std::string name, std::string description) {
  return std::make_unique<ReferenceBackend>(std::move(name), std::move(description));
}

}  // namespace talon
