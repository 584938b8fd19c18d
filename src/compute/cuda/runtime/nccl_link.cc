#include <fmt/core.h>
#include <nccl.h>

#include <array>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/contain.h"
#include "compute/cuda/runtime/device_memory.h"
#include "compute/cuda/runtime/rank_link.h"
#include "compute/cuda/runtime/wait.h"

namespace talon::cuda {
namespace {

// Exchanges that the host may be ahead of the device. When they do not finish, the launches behind
// them must not fill CUDA's queue, where a launch would block without a deadline.
constexpr size_t kAhead = 16;

constexpr double kBrief = 0.05;  // seconds of waiting before messages of other ranks are looked for

class NcclLink : public RankLink {
 public:
  NcclLink(const Stream& stream, Ranks* ranks) : stream_(stream), ranks_(ranks) {
    stream_.link = this;
    UseDevice(stream_);
    for (cudaEvent_t& event : queued_) {
      TALON_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
  }
  // By an abort, too: it does not need the other ranks. It waits for the CUDA graphs that captured
  // exchanges, so their passes must have been destroyed.
  ~NcclLink() override {
    Abort();
    if (abort_.joinable()) abort_.join();
    for (const cudaEvent_t event : queued_) cudaEventDestroy(event);
  }

  void Connect() {
    ncclUniqueId id{};
    const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(&id), sizeof(id));
    if (ranks_->leads()) {
      Check(ncclGetUniqueId(&id));
      for (int rank = 1; rank < ranks_->size(); ++rank) ranks_->Send(rank, bytes);
    } else {
      ranks_->Receive(0, bytes);
    }
    UseDevice(stream_);
    // Ranks may capture a pass at different times, and where buffers of captured exchanges are
    // registered both sides must have captured them.
    setenv("NCCL_GRAPH_REGISTER", "0", /*overwrite=*/0);
    Check(ncclCommInitRank(&communicator_, ranks_->size(), id, ranks_->rank()));
    // Two ranks are connected when they first exchange something, and the host waits for it: not in
    // a pass.
    constexpr int64_t kBytes = 16;
    const Buffer buffer = MemoryOrThrow(AllocateDevice(stream_, kBytes * ranks_->size()));
    std::vector<int64_t> bounds;
    for (int rank = 0; rank <= ranks_->size(); ++rank) bounds.push_back(rank * kBytes);
    AllGather(static_cast<uint8_t*>(buffer.data()), bounds);
    Wait(stream_);
  }

  void AllGather(uint8_t* data, std::span<const int64_t> bounds) override {
    const int rank = ranks_->rank();
    Queue([&] {
      for (int peer = 0; peer < ranks_->size(); ++peer) {
        if (peer == rank) continue;
        Send(peer, data + bounds[rank], bounds[rank + 1] - bounds[rank]);
        Receive(peer, data, bounds);
      }
    });
  }

  void Gather(uint8_t* data, std::span<const int64_t> bounds) override {
    const int rank = ranks_->rank();
    Queue([&] {
      if (rank > 0) return Send(0, data, bounds[rank + 1] - bounds[rank]);
      for (int peer = 1; peer < ranks_->size(); ++peer) Receive(peer, data, bounds);
    });
    if (!IsCaptured()) Wait(stream_);
  }

  void CheckWait(double seconds) override {
    ncclResult_t result = ncclSuccess;
    if (communicator_ != nullptr && !abort_.joinable()) {
      ncclCommGetAsyncError(communicator_, &result);
    }
    if (result != ncclSuccess) Fail(ncclGetErrorString(result));
    if (seconds > ranks_->deadline()) {
      Fail(fmt::format("no answer within {} s", ranks_->deadline()));
    }
    if (seconds > kBrief) ranks_->JoinRollCall();
  }

  // In a thread of its own, because it may wait for CUDA graphs, which the caller still has.
  void Abort() override {
    if (communicator_ == nullptr || abort_.joinable()) return;
    abort_ = std::thread([communicator = communicator_] { ncclCommAbort(communicator); });
  }

 private:
  static void Check(ncclResult_t result) {
    if (result == ncclSuccess) return;
    throw DeviceFault(
        fmt::format("NCCL: {} ({})", ncclGetErrorString(result), ncclGetLastError(nullptr)));
  }

  // NCCL does not say which rank is gone.
  [[noreturn]] void Fail(const std::string& reason) {
    Abort();
    ranks_->CallRoll("NCCL: " + reason);
  }

  bool IsCaptured() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    TALON_CUDA_CHECK(cudaStreamIsCapturing(stream_.handle, &status));
    return status != cudaStreamCaptureStatusNone;
  }

  // Queues the messages of `group` as one kernel.
  template <typename Group>
  void Queue(const Group& group) {
    if (abort_.joinable()) throw DeviceFault("NCCL: exchanges of several ranks were broken off");
    UseDevice(stream_);
    const bool captured = IsCaptured();
    const cudaEvent_t event = queued_[next_];
    if (!captured) Wait(stream_, event);
    Check(ncclGroupStart());
    group();
    Check(ncclGroupEnd());
    if (captured) return;
    TALON_CUDA_CHECK(cudaEventRecord(event, stream_.handle));
    next_ = (next_ + 1) % kAhead;
  }

  void Send(int peer, const uint8_t* data, int64_t bytes) {
    if (bytes == 0) return;
    Check(ncclSend(data, bytes, ncclUint8, peer, communicator_, stream_.handle));
  }
  void Receive(int peer, uint8_t* data, std::span<const int64_t> bounds) {
    const int64_t bytes = bounds[peer + 1] - bounds[peer];
    if (bytes == 0) return;
    Check(ncclRecv(data + bounds[peer], bytes, ncclUint8, peer, communicator_, stream_.handle));
  }

  Stream stream_;
  Ranks* ranks_;
  ncclComm_t communicator_ = nullptr;
  std::array<cudaEvent_t, kAhead> queued_{};
  size_t next_ = 0;
  std::thread abort_;
};

}  // namespace

bool HasNccl() { return true; }

std::unique_ptr<RankLink> ConnectNccl(const Stream& stream, Ranks* ranks) {
  auto link = std::make_unique<NcclLink>(stream, ranks);
  link->Connect();
  return link;
}

}  // namespace talon::cuda
