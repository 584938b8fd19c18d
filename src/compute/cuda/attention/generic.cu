#include "compute/cuda/attention/generic.cuh"
#include "compute/cuda/attention/tail.cuh"
#include "compute/cuda/device/kv_codes.cuh"

namespace talon::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;

// Shared memory of a block, followed by query and accumulator [head_dim] and the ancestors.
struct GenericShared {
  int32_t vectors[kTileKeys];
  float weights[kTileKeys];
};

template <typename T>
__device__ KvVector<T> VectorAt(const AttentionArgs& args, int vector, const void* blocks,
                                const void* staged) {
  return vector < 0 ? KvVectorAt<T>(staged, args.staged_vectors, args.head_dim, ~vector)
                    : KvVectorAt<T>(blocks, args.block_vectors, args.head_dim, vector);
}

// Computes the scores of a tile's keys, one warp per key.
template <typename T>
__device__ void ScoreTile(const AttentionArgs& args, const float* query, int count,
                          GenericShared& shared) {
  const int lane = threadIdx.x % 32;
  for (int key = threadIdx.x / 32; key < count; key += kWarps) {
    const KvVector<T> k = VectorAt<T>(args, shared.vectors[key], args.k_blocks, args.k_staged);
    float sum = 0;
    for (int d = lane; d < args.head_dim; d += 32) {
      sum = __fmaf_rn(query[d], k[d], sum);
    }
    for (int offset = 16; offset > 0; offset /= 2) sum += ShuffleXor(sum, offset);
    if (lane == 0) shared.weights[key] = sum;
  }
}

// Adds the tile's weights and values to the accumulator; every thread keeps m and l.
template <typename T>
__device__ void AddTile(const AttentionArgs& args, int count, GenericShared& shared, float* acc,
                        float& m, float& l) {
  float largest = m;
  for (int key = 0; key < count; ++key) largest = fmaxf(largest, shared.weights[key]);
  const float base = largest == kMinusInfinity ? 0.0f : largest;
  const float rescale = exp2f(m - base);
  __syncthreads();
  if (threadIdx.x < count) {
    shared.weights[threadIdx.x] = exp2f(shared.weights[threadIdx.x] - base);
  }
  __syncthreads();
  float sum = 0;
  for (int key = 0; key < count; ++key) sum += shared.weights[key];
  m = largest;
  l = __fmaf_rn(l, rescale, sum);
  for (int d = threadIdx.x; d < args.head_dim; d += kThreads) {
    float value = acc[d] * rescale;
    for (int key = 0; key < count; ++key) {
      const KvVector<T> v = VectorAt<T>(args, shared.vectors[key], args.v_blocks, args.v_staged);
      value = __fmaf_rn(shared.weights[key], v[d], value);
    }
    acc[d] = value;
  }
}

// One block for each row and query head.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    GenericAttentionKernel(const __grid_constant__ AttentionArgs args) {
  auto& shared = *static_cast<GenericShared*>(DynamicShared());
  float* query = reinterpret_cast<float*>(&shared + 1);
  float* acc = query + args.head_dim;
  auto* ancestors = reinterpret_cast<int32_t*>(acc + args.head_dim);
  PdlTrigger();
  const TailBlock block(args);
  const AttentionRow row = args.plan.attention_rows[block.row_index];
  const int32_t* blocks =
      args.plan.BlocksOf(row.sequence, args.layer, block.kv_head, args.kv_heads);
  ListAncestors(args, block, row.sequence, ancestors);
  PdlWait();
  const float* q = args.q + block.row_index * args.q_stride + block.head_begin * args.head_dim;
  for (int d = threadIdx.x; d < args.head_dim; d += kThreads) {
    query[d] = q[d] * args.scale_log2;
    acc[d] = 0;
  }
  float m = kMinusInfinity, l = 0;
  for (int first = FirstKey(args, row); first < row.num_keys; first += kTileKeys) {
    const int count = min(kTileKeys, row.num_keys - first);
    __syncthreads();
    if (threadIdx.x < count) {
      const int key = first + threadIdx.x;
      shared.vectors[threadIdx.x] = key < row.prefix_len
                                        ? args.VectorOfKey(blocks, key, block.kv_head)
                                        : ancestors[key - row.prefix_len];
    }
    __syncthreads();
    ScoreTile<T>(args, query, count, shared);
    __syncthreads();
    AddTile<T>(args, count, shared, acc, m, l);
  }
  const float factor = InverseTotal(args.sinks, block.head_begin, m, l);
  for (int d = threadIdx.x; d < args.head_dim; d += kThreads) {
    StoreResult<1>(args.out, block.row_index, block.head_begin * args.head_dim + d,
                   {acc[d] * factor});
  }
  if (block.head_end == args.heads()) {
    StorePadding(args.out, block.row_index, threadIdx.x, kThreads);
  }
}

}  // namespace

void LaunchGenericAttention(const Stream& stream, DType dtype, const AttentionArgs& args) {
  const size_t shared = sizeof(GenericShared) + 2 * args.head_dim * sizeof(float) +
                        args.plan.mask_words * 64 * sizeof(int32_t);
  AttentionArgs one_head = args;
  one_head.tail_heads = 1;
  const dim3 grid(args.plan.rows, args.kv_heads * args.group);
  DispatchKvType(dtype, [&](auto type) {
    const auto kernel = &GenericAttentionKernel<decltype(type)>;
    if (shared > 48 * 1024) AllowSharedMemory(kernel, shared);
    Launch(stream, kernel, grid, kThreads, shared, one_head);
  });
}

}  // namespace talon::cuda
