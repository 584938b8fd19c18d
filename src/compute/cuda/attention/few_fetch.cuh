// The shared memory of FewQueriesKernel (attention/few.cuh), and how a warp loads its tiles of keys
// and values into it.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_FEW_FETCH_CUH_
#define TALON_COMPUTE_CUDA_ATTENTION_FEW_FETCH_CUH_

#include "compute/cuda/attention/boxes.cuh"
#include "compute/cuda/attention/item.cuh"
#include "compute/cuda/attention/plan.h"
#include "compute/cuda/attention/warpgroup_layout.h"
#include "compute/cuda/device/hopper.cuh"
#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

template <typename Element, int Dim, int Tiles>
struct FewConfig {
  using T = Element;
  static constexpr int kDim = Dim;      // head_dim, padded with zeros
  static constexpr int kTiles = Tiles;  // tiles of 16 queries
  static constexpr int kQueries = 16 * Tiles;
  static constexpr int kKeys = kBoxKeys;  // keys of a warp's tile
  static constexpr int kWarps = kFewWarps;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kStages = kFewStages;
  static constexpr int kMatrices = Dim / kPanelCols;
  static constexpr int kMatrixBytes = kKeys * kPanelRowBytes;
  static constexpr int kTileBytes = kMatrices * kMatrixBytes;
  static constexpr int kAccStride = Dim + 8;  // eight consecutive rows are in different banks
};

template <typename C>
struct FewShared {
  alignas(kPanelAlignment) uint8_t ring[C::kWarps][C::kStages][2][C::kTileBytes];  // keys, values
  alignas(kPanelAlignment) uint8_t q[C::kMatrices * C::kQueries * kPanelRowBytes];
  QuerySlot queries[C::kQueries];
  float2 totals[C::kWarps][C::kQueries];  // m and l
  // Buffer of the cluster exchange (ClusterExchange).
  float2 exchange_totals[C::kQueries];
  alignas(16) float exchange_acc[C::kQueries * C::kAccStride];
  AttentionItem item;
  uint64_t full[C::kWarps][C::kStages];  // mbarriers: the copies have arrived
  int32_t is_last;                       // this cluster is the last of its queries

  __device__ void InitBarriers() {
    for (int i = 0; i < C::kWarps * C::kStages; ++i)
      MbarrierInit(SharedAddress(&full[0][0] + i), 1);
    FenceMbarrierInit();
  }
  // Accumulators of a warp [kQueries][kAccStride], in the memory of its tiles.
  __device__ float* AccumulatorsOf(int warp) {
    static_assert(sizeof(ring[0]) >= C::kQueries * C::kAccStride * sizeof(float));
    return reinterpret_cast<float*>(ring[warp]);
  }
  __device__ const float* AccumulatorsOf(int warp) const {
    return reinterpret_cast<const float*>(ring[warp]);
  }
};

// Loads a warp's tiles of an item: tile i of warp w is the item's tile i * kWarps + w.
template <typename C>
class FewFetcher {
 public:
  // `step`: tiles that the warp has processed in earlier items.
  __device__ FewFetcher(const AttentionArgs& args, const KvTensorMaps& maps,
                        const AttentionItem& item, FewShared<C>& shared, int step)
      : args_(args),
        maps_(maps),
        keys_(args, item),
        shared_(shared),
        step_(step),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32) {
    const int tiles = (item.key_end - item.key_begin + C::kKeys - 1) / C::kKeys;
    num_tiles_ = (tiles - warp_ + C::kWarps - 1) / C::kWarps;
    boxed_end_ = maps.exist ? min(item.key_end, item.prefix_end / C::kKeys * C::kKeys) : 0;
  }

  __device__ int num_tiles() const { return num_tiles_; }
  __device__ int FirstKey(int i) const {
    return keys_.item.key_begin + (i * C::kWarps + warp_) * C::kKeys;
  }

  // Starts loading those of the first kStages tiles that end at or before key `end`.
  __device__ void StartFirst(int end) {
    while (started_ < min(C::kStages, num_tiles_) && FirstKey(started_) + C::kKeys <= end) Start();
  }
  // Waits for tile i and returns its stage.
  __device__ int WaitFor(int i) const {
    const int stage = (step_ + i) % C::kStages;
    MbarrierWait(SharedAddress(&shared_.full[warp_][stage]), (step_ + i) / C::kStages % 2);
    return stage;
  }
  // Reuses the stage of tile i, which the warp has read, for the next tile.
  __device__ void StartAfter(int i) {
    __syncwarp();
    if (i + C::kStages < num_tiles_) Start();
  }

 private:
  using T = typename C::T;

  __device__ void Start() {
    if (started_ % 32 == 0) {  // vectors of this and the next 31 tiles
      rows_ = started_ + lane_ < num_tiles_ ? keys_.VectorOf(FirstKey(started_ + lane_)) : 0;
    }
    const int row = __shfl_sync(0xffffffffu, rows_, started_ % 32);
    const int stage = (step_ + started_) % C::kStages;
    const int first = FirstKey(started_);
    if (first + C::kKeys <= boxed_end_) {
      LoadBoxes(stage, row);
    } else {
      CopyVectors(stage, first);
    }
    ++started_;
  }

  __device__ void LoadBoxes(int stage, int row) const {
    const uint32_t full = SharedAddress(&shared_.full[warp_][stage]);
    if (lane_ == 0) MbarrierArriveExpectTx(full, 2 * C::kTileBytes);
    __syncwarp();
    if (lane_ >= 2 * C::kMatrices) return;
    const int kind = lane_ / C::kMatrices;
    const int matrix = lane_ % C::kMatrices;
    TmaLoadBox(kind == 0 ? maps_.keys : maps_.values, matrix * kPanelCols, row,
               SharedAddress(shared_.ring[warp_][stage][kind]) + matrix * C::kMatrixBytes, full);
  }

  __device__ void CopyVectors(int stage, int first) const {
    constexpr int kPieces = C::kDim / 8;
    constexpr int kKeysAtOnce = 32 / kPieces;
    const int own = lane_ < C::kKeys ? keys_.VectorOf(first + lane_) : kNoVector;
    const int piece = lane_ % kPieces;
#pragma unroll 4
    for (int i = 0; i < C::kKeys; i += kKeysAtOnce) {
      const int key = i + lane_ / kPieces;
      const int vector = __shfl_sync(0xffffffffu, own, key);
      const bool present = vector != kNoVector && piece * 8 < args_.head_dim;
      const bool staged = vector < 0;
      const int64_t offset =
          present ? static_cast<int64_t>(staged ? ~vector : vector) * args_.head_dim + piece * 8
                  : 0;
      const T* k = static_cast<const T*>(staged ? args_.k_staged : args_.k_blocks);
      const T* v = static_cast<const T*>(staged ? args_.v_staged : args_.v_blocks);
      const int to = PieceOffset(C::kKeys, key, piece);
      CpAsync16(shared_.ring[warp_][stage][0] + to, k + offset, present);
      CpAsync16(shared_.ring[warp_][stage][1] + to, v + offset, present);
    }
    // The mbarrier's phase completes when the cp.async copies of all lanes are done and lane 0 has
    // arrived.
    const uint32_t full = SharedAddress(&shared_.full[warp_][stage]);
    CpAsyncMbarrierArrive(full);
    __syncwarp();
    if (lane_ == 0) MbarrierArrive(full);
  }

  const AttentionArgs& args_;
  const KvTensorMaps& maps_;
  ItemKeys keys_;
  FewShared<C>& shared_;
  int step_;
  int warp_;
  int lane_;
  int num_tiles_;
  int boxed_end_;
  int started_ = 0;
  int rows_ = 0;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_FEW_FETCH_CUH_
