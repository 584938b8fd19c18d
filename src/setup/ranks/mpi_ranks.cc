#include "setup/ranks/mpi_ranks.h"

#include <fmt/core.h>
#define OMPI_SKIP_MPICXX 1  // the C interface
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <thread>

#include "base/check.h"
#include "base/contain.h"

namespace talon {
namespace {

constexpr int kTag = 1;
constexpr int kRollTag = 2;
// Before a waiting rank sleeps between looks. On busy cores each look may take a time slice.
constexpr int kEagerTests = 4000;
constexpr double kEagerSeconds = 0.005;
constexpr std::chrono::microseconds kShortestSleep{20};
constexpr std::chrono::microseconds kLongestSleep{500};

int CountOf(size_t bytes) {
  TALON_CHECK(bytes <= INT_MAX, "a message of {} bytes", bytes);
  return static_cast<int>(bytes);
}

// The process's number among those of its machine, and how many these are.
struct Machine {
  int rank = 0;
  int size = 1;
};

class MpiRanks : public Ranks {
 public:
  MpiRanks(int rank, int size, Machine machine) : Ranks(rank, size), machine_(machine) {
    SetDeadline(2 * 60 * 60);
  }

  int local_rank() const override { return machine_.rank; }
  int local_size() const override { return machine_.size; }

  // Not in a destructor: after a fault the others do not answer, and the process ends without them.
  void Finish() override { MPI_Finalize(); }

  void Send(int to, std::span<const uint8_t> bytes) override {
    MPI_Request request;
    Check(MPI_Isend(bytes.data(), CountOf(bytes.size()), MPI_BYTE, to, tag(), MPI_COMM_WORLD,
                    &request),
          to);
    Wait({&request, 1}, to);
  }

  void Receive(int from, std::span<uint8_t> bytes) override {
    MPI_Request request;
    Check(MPI_Irecv(bytes.data(), CountOf(bytes.size()), MPI_BYTE, from, tag(), MPI_COMM_WORLD,
                    &request),
          from);
    Wait({&request, 1}, from);
  }

  void Exchange(int peer, std::span<const uint8_t> out, std::span<uint8_t> in) override {
    MPI_Request requests[2];
    Check(MPI_Irecv(in.data(), CountOf(in.size()), MPI_BYTE, peer, tag(), MPI_COMM_WORLD,
                    &requests[0]),
          peer);
    Check(MPI_Isend(out.data(), CountOf(out.size()), MPI_BYTE, peer, tag(), MPI_COMM_WORLD,
                    &requests[1]),
          peer);
    Wait(requests, peer);
  }

  void JoinRollCall() override {
    if (calls_roll()) return;
    int called = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, kRollTag, MPI_COMM_WORLD, &called, &status) == MPI_SUCCESS &&
        called != 0) {
      CallRoll(fmt::format("rank {} asks who is there", status.MPI_SOURCE));
    }
  }

 private:
  int tag() const { return calls_roll() ? kRollTag : kTag; }

  static void Check(int code, int peer) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    throw DeviceFault(fmt::format("rank {}: {}", peer, std::string(text, length)));
  }

  // Looks again and again, because MPI has no waiting with a deadline: eagerly at first, as ranks
  // come together within microseconds, then with pauses, so that idle ranks cost no core.
  void Wait(std::span<MPI_Request> requests, int peer) {
    const auto start = std::chrono::steady_clock::now();
    auto sleep = kShortestSleep;
    for (int tests = 0;; ++tests) {
      int done = 0;
      Check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                        MPI_STATUSES_IGNORE),
            peer);
      if (done != 0) return;
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
      if (tests < kEagerTests && waited.count() < kEagerSeconds) {
        std::this_thread::yield();
        continue;
      }
      JoinRollCall();
      std::this_thread::sleep_for(sleep);
      sleep = std::min(2 * sleep, kLongestSleep);
      if (waited.count() < deadline()) continue;
      throw DeviceFault(fmt::format("rank {} did not answer within {} s", peer, deadline()));
    }
  }

  Machine machine_;
};

Machine FindMachine(int rank, int size) {
  Machine machine{rank, size};
  MPI_Comm local = MPI_COMM_NULL;
  if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &local) ==
      MPI_SUCCESS) {
    MPI_Comm_rank(local, &machine.rank);
    MPI_Comm_size(local, &machine.size);
    MPI_Comm_free(&local);
  }
  return machine;
}

}  // namespace

bool HasMpi() { return true; }

Result<std::unique_ptr<Ranks>> OpenMpiRanks(int size) {
  int ran = 0;
  MPI_Initialized(&ran);  // still true when it has ended
  if (ran != 0) {
    return FailedPrecondition(
        "tensor_parallel: MPI was started in this process before; it can be once, for one engine");
  }
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) {
    return Unavailable("tensor_parallel: MPI cannot start");
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int rank = 0;
  int started = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &started);
  auto ranks = std::make_unique<MpiRanks>(rank, started, FindMachine(rank, started));
  if (provided < MPI_THREAD_SERIALIZED) {
    return Unimplemented("tensor_parallel: this MPI cannot be used by several threads");
  }
  if (started != size) {
    return InvalidArgument(
        "tensor_parallel: {} ranks, but {} started; start it with `mpirun -n {} ...`", size,
        started == 1 ? "one process was" : fmt::format("{} processes were", started), size);
  }
  return std::unique_ptr<Ranks>(std::move(ranks));
}

}  // namespace talon
