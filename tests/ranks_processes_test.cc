// The random cases of several ranks (engine/ranks/random_cases.h) with real processes, over MPI.
// mpirun starts this program; rank 0 compares with a whole model in its own process:
//   TALON_CASES=150 mpirun -n 4 build/tests/ranks_processes_test
// With TALON_TEST_DEVICE=cuda all of them share the first GPU, and exchange by NCCL where
// NCCL_HOSTID, another one for each rank, makes it take their GPU for several.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <span>
#include <string>

#include "compute/cuda/cuda_backend.h"
#include "compute/test_device.h"
#include "engine/ranks/random_cases.h"
#include "model/ranks/follower.h"
#include "setup/ranks/mpi_ranks.h"

namespace talon {
namespace {

constexpr double kDeadlineSeconds = 100;

// The ranks of one model after another: only the process's end is MPI's, too.
class ReusedRanks : public Ranks {
 public:
  explicit ReusedRanks(Ranks* ranks) : Ranks(ranks->rank(), ranks->size()), ranks_(ranks) {}
  void SetDeadline(double seconds) override { ranks_->SetDeadline(seconds); }
  void Send(int to, std::span<const uint8_t> bytes) override { ranks_->Send(to, bytes); }
  void Receive(int from, std::span<uint8_t> bytes) override { ranks_->Receive(from, bytes); }
  void Exchange(int peer, std::span<const uint8_t> out, std::span<uint8_t> in) override {
    ranks_->Exchange(peer, out, in);
  }

 private:
  Ranks* ranks_;
};

// A model and where it runs: whole, or this rank's part.
struct Loaded {
  Loaded(const RandomCases& cases, Ranks* ranks)
      : backend(NewTestBackend(1, ranks == nullptr ? 1 : ranks->size())) {
    if (ranks != nullptr && !TestDeviceIsHost()) {
      const std::string why_not = LinkGpus(backend.get(), ranks, /*wanted=*/true).value();
      EXPECT_EQ(why_not.empty(), std::getenv("NCCL_HOSTID") != nullptr) << why_not;
    }
    LoadOptions options = cases.load_options();
    options.ranks = ranks;
    decoder = Decoder::Load(cases.model_dir(), backend.get(), options).value();
  }
  RanksTarget target() { return {backend.get(), decoder.get()}; }

  std::unique_ptr<Backend> backend;
  std::unique_ptr<Decoder> decoder;
};

void Lead(RandomCases* cases, Ranks* ranks) {
  Loaded one(*cases, nullptr);
  Loaded spread(*cases, ranks);
  const RanksTarget several = spread.target();
  const int count = NumRanksCases(3);
  for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) {
    cases->Check(i, one.target(), {&several, 1});
  }
  fmt::print("{} ranks, {}", ranks->size(), cases->Summary());
}

TEST(RanksProcesses, TextAndLogProbsAreThoseOfOneProcess) {
  const char* started = std::getenv("OMPI_COMM_WORLD_SIZE");
  ASSERT_NE(started, nullptr) << "mpirun starts this test";
  const auto mpi = OpenMpiRanks(std::atoi(started)).value();
  mpi->SetDeadline(kDeadlineSeconds);
  int64_t accepted = 0, partial_passes = 0;  // a few cases of one variant may have none
  for (const RanksVariant& variant : RanksVariants()) {
    SCOPED_TRACE(variant.Name());
    RandomCases cases(variant);
    ReusedRanks ranks(mpi.get());
    if (ranks.leads()) {
      Lead(&cases, &ranks);
      accepted += cases.accepted();
      partial_passes += cases.partial_passes();
      continue;
    }
    Loaded part(cases, &ranks);
    const Status status = RankFollower(&ranks, part.decoder.get(), part.backend.get()).Run();
    ASSERT_TRUE(status.ok()) << status.message();
  }
  EXPECT_TRUE(!mpi->leads() || accepted > 0);
  EXPECT_TRUE(!mpi->leads() || partial_passes > 0);
  mpi->Finish();
}

}  // namespace
}  // namespace talon
