#include "model/ranks/leader.h"

#include <fmt/core.h>

#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/contain.h"

namespace talon {
namespace {

std::span<const uint8_t> BytesOf(const MessageHeader& header) {
  return {reinterpret_cast<const uint8_t*>(&header), sizeof(header)};
}

}  // namespace

template <typename F>
void RankLeader::Talk(const F& talk) {
  if (!fault_.empty()) throw DeviceFault(fault_);
  try {
    talk();
  } catch (const DeviceFault& fault) {
    fault_ = fault.what();
    throw;
  }
}

RankLeader::~RankLeader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  if (pings_.joinable()) pings_.join();
  try {
    if (!fault_.empty() || in_pass_) return;
    Tell(RankCommand::kStop, {});
    ranks_->Finish();
  } catch (const DeviceFault&) {
    // They are gone already.
  }
}

void RankLeader::StartPings(double seconds, Lost lost) {
  pings_ = std::thread([this, seconds, lost = std::move(lost)] { PingLoop(seconds, lost); });
}

void RankLeader::PingLoop(double seconds, const Lost& lost) {
  std::unique_lock lock(mutex_);
  while (!stopping_ && fault_.empty()) {
    stop_.wait_for(lock, std::chrono::duration<double>(seconds));
    if (stopping_ || !fault_.empty() || in_pass_) return;
    // The others have just heard of it, and a request may be between two passes: they find out.
    if (std::exchange(busy_, false)) continue;
    try {
      Talk([&] { Ping(); });
    } catch (const DeviceFault& fault) {
      lock.unlock();
      return lost(fault.what());
    }
  }
}

void RankLeader::Ping() {
  Tell(RankCommand::kPing, {});
  for (int rank = 1; rank < ranks_->size(); ++rank) {
    uint8_t answer = 0;
    ranks_->Receive(rank, {&answer, 1});
  }
}

void RankLeader::Tell(RankCommand command, const MessageWriter& message) {
  const MessageHeader header{.command = command, .bytes = message.bytes().size()};
  for (int rank = 1; rank < ranks_->size(); ++rank) {
    ranks_->Send(rank, BytesOf(header));
    if (header.bytes > 0) ranks_->Send(rank, message.bytes());
  }
  hash_.Add(message.bytes());
}

void RankLeader::BeginMessage() {
  if (in_pass_) throw DeviceFault("a pass of several ranks was broken off");
  message_.Clear();
}

void RankLeader::BeginMessage(const KvView& kv) {
  BeginMessage();
  const uint64_t id = IdentityOf(kv);
  if (caches_.insert(id).second) {
    message_.Put(id);
    message_.Put(kv.shape);
    Tell(RankCommand::kNewCache, message_);
  }
  message_.Clear();
  message_.Put(id);
}

std::vector<RankBytes> RankLeader::MemoryOfOthers() {
  const std::lock_guard lock(mutex_);
  std::vector<RankBytes> memory(ranks_->size() - 1);
  Talk([&] {
    BeginMessage();
    Tell(RankCommand::kMemory, message_);
    for (int rank = 1; rank < ranks_->size(); ++rank) {
      ranks_->Receive(rank, {reinterpret_cast<uint8_t*>(&memory[rank - 1]), sizeof(RankBytes)});
    }
  });
  return memory;
}

void RankLeader::ReserveScores(int max_blocks) {
  const std::lock_guard lock(mutex_);
  Talk([&] {
    BeginMessage();
    message_.Put(max_blocks);
    Tell(RankCommand::kReserveScores, message_);
  });
}

std::unique_lock<std::mutex> RankLeader::BeginPass(const PassPlan& plan, const KvView& kv) {
  std::unique_lock lock(mutex_);
  busy_ = true;
  Talk([&] {
    BeginMessage(kv);
    PutPlan(plan, &message_);
    Tell(RankCommand::kPass, message_);
    in_pass_ = true;
  });
  return lock;
}

void RankLeader::EndPass(uint64_t activations) {
  Talk([&] {
    RankHash expected = hash_;
    expected.Add(activations);
    for (int rank = 1; rank < ranks_->size(); ++rank) {
      uint64_t hash = 0;
      ranks_->Receive(rank, {reinterpret_cast<uint8_t*>(&hash), sizeof(hash)});
      if (hash == expected.value()) continue;
      throw DeviceFault(
          fmt::format("rank {} has other tokens, KV tables or activations than rank 0", rank));
    }
    in_pass_ = false;
  });
}

void RankLeader::Exchange(int rows, const std::function<void()>& own) {
  const std::lock_guard lock(mutex_);
  Talk([&] {
    BeginMessage();
    message_.Put(rows);
    Tell(RankCommand::kExchange, message_);
    own();
  });
}

void RankLeader::Project(std::span<const float> hidden, int cols,
                         const std::function<void()>& own) {
  const std::lock_guard lock(mutex_);
  Talk([&] {
    BeginMessage();
    const int rows = static_cast<int>(hidden.size()) / cols;
    message_.Put(rows);
    for (int r = 0; r < rows; ++r) message_.PutAll(hidden.subspan(size_t{1} * r * cols, cols));
    Tell(RankCommand::kProject, message_);
    own();
  });
}

template <typename Put, typename Own>
void RankLeader::Relay(RankCommand command, const KvView& kv, const Put& put, const Own& own) {
  const std::lock_guard lock(mutex_);
  Talk([&] {
    BeginMessage(kv);
    put();
    Tell(command, message_);
  });
  own();
}

void RankLeader::CommitRows(const KvView& kv, std::span<const int32_t> rows,
                            std::span<const int32_t> slots, int num_layers) {
  Relay(
      RankCommand::kCommitRows, kv,
      [&] {
        message_.PutAll(rows);
        message_.PutAll(slots);
        message_.Put(num_layers);
      },
      [&] { own_->CommitRows(kv, rows, slots, num_layers); });
}

void RankLeader::PutMoves(std::span<const int32_t> from, std::span<const int32_t> to) {
  message_.PutAll(from);
  message_.PutAll(to);
}

void RankLeader::CopySlots(const KvView& kv, std::span<const int32_t> from,
                           std::span<const int32_t> to) {
  Relay(
      RankCommand::kCopySlots, kv, [&] { PutMoves(from, to); },
      [&] { own_->CopySlots(kv, from, to); });
}

void RankLeader::CopyBlock(const KvView& kv, int from, int to, int tokens) {
  Relay(
      RankCommand::kCopyBlock, kv,
      [&] {
        message_.Put(from);
        message_.Put(to);
        message_.Put(tokens);
      },
      [&] { own_->CopyBlock(kv, from, to, tokens); });
}

void RankLeader::CopyStaged(const KvView& kv, std::span<const int32_t> from,
                            std::span<const int32_t> to) {
  Relay(
      RankCommand::kCopyStaged, kv, [&] { PutMoves(from, to); },
      [&] { own_->CopyStaged(kv, from, to); });
}

void RankLeader::SummariseBlocks(const KvView& kv, std::span<const int32_t> blocks) {
  Relay(
      RankCommand::kSummariseBlocks, kv, [&] { message_.PutAll(blocks); },
      [&] { own_->SummariseBlocks(kv, blocks); });
}

// Called by destructors, so it does not throw.
void RankLeader::ForgetCache(const KvView& kv) {
  const std::lock_guard lock(mutex_);
  const uint64_t id = IdentityOf(kv);
  if (!fault_.empty() || in_pass_ || caches_.erase(id) == 0) return;
  try {
    message_.Clear();
    message_.Put(id);
    Talk([&] { Tell(RankCommand::kForgetCache, message_); });
  } catch (const DeviceFault&) {
    // The next pass says so.
  }
}

void RankLeader::StoreKv(const Pass& pass, MatrixView k, MatrixView v, const KvView& kv,
                         int layer) {
  own_->StoreKv(pass, k, v, kv, layer);
}

void RankLeader::CopyTiles(const KvView& /*from*/, std::span<const int32_t> /*blocks*/,
                           const KvView& /*to*/, int /*first*/) {
  TALON_CHECK(false, "partial views of several ranks");
}

void RankLeader::ScoreBlocks(const Pass& /*pass*/, MatrixView /*q*/, const KvView& /*kv*/,
                             int /*layer*/, MatrixView /*out*/) {
  TALON_CHECK(false, "scores of several ranks");
}

void RankLeader::ChooseColumns(MatrixView x, std::span<const ColumnChoice> choices) {
  own_->ChooseColumns(x, choices);
}

std::span<const int32_t> RankLeader::ChosenColumns() { return own_->ChosenColumns(); }

}  // namespace talon
