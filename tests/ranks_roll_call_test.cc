// The roll call of ranks that are real processes: one of them is silent, another one finds that an
// exchange is broken, the others wait for something else and must name the same rank.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "base/contain.h"
#include "setup/ranks/mpi_ranks.h"

namespace talon {
namespace {

using std::chrono::seconds;

TEST(RanksRollCall, AllThatAreLeftNameTheSilentRank) {
  constexpr int kRanks = 4, kSilent = 2;
  const auto mpi = OpenMpiRanks(kRanks).value();
  mpi->SetDeadline(100);
  std::vector<uint8_t> command(16);
  std::vector<uint8_t> started(kRanks);
  mpi->AllGather(started.data(), std::vector<int64_t>{0, 1, 2, 3, 4});  // all have begun
  Status status;
  if (mpi->rank() == kSilent) {
    std::this_thread::sleep_for(seconds(6));
  } else {
    status = Contain([&] {
      if (!mpi->leads()) mpi->Receive(0, command);
      std::this_thread::sleep_for(seconds(1));  // the others wait by now
      mpi->CallRoll("an exchange is broken");
    });
    const std::string message(status.message());
    EXPECT_NE(message.find("rank 2 did not answer within 1 s"), std::string::npos) << message;
    EXPECT_EQ(message.starts_with("an exchange is broken"), mpi->leads()) << message;
  }
  mpi->Finish();
}

}  // namespace
}  // namespace talon
