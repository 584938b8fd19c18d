#include "model/ranks/follower.h"

#include <utility>

#include "base/check.h"
#include "base/contain.h"

namespace talon {
namespace {

// The leader expects that everything it says can be done.
void Check(const Status& status) {
  if (!status.ok()) throw DeviceFault(status.message());
}

}  // namespace

Status RankFollower::Run() {
  return Contain([&] {
    while (RunCommand()) {
    }
    ranks_->Finish();
  });
}

bool RankFollower::RunCommand() {
  MessageHeader header;
  ranks_->Receive(0, {reinterpret_cast<uint8_t*>(&header), sizeof(header)});
  bytes_.resize(header.bytes);
  if (header.bytes > 0) ranks_->Receive(0, bytes_);
  hash_.Add(bytes_);
  MessageReader message(bytes_);
  switch (header.command) {
    case RankCommand::kStop:
      return false;
    case RankCommand::kPing: {
      const uint8_t here = 1;
      ranks_->Send(0, {&here, 1});
      return true;
    }
    case RankCommand::kMemory:
      TellMemory();
      return true;
    case RankCommand::kReserveScores:
      Check(decoder_->ReserveScores(message.Get<int>()));
      return true;
    case RankCommand::kNewCache:
      NewCache(&message);
      return true;
    case RankCommand::kForgetCache:
      caches_.erase(message.Get<uint64_t>());
      return true;
    case RankCommand::kPass:
      RunPass(&message);
      return true;
    case RankCommand::kExchange:
      decoder_->Exchange(message.Get<int>());
      return true;
    case RankCommand::kProject:
      Project(&message);
      return true;
    default:
      RunKvOp(header.command, &message);
      return true;
  }
}

void RankFollower::TellMemory() const {
  RankBytes bytes{.weights = static_cast<int64_t>(decoder_->weight_bytes())};
  for (const auto& [id, cache] : caches_) {
    for (const Buffer& buffer : cache.buffers) bytes.kv += static_cast<int64_t>(buffer.bytes());
  }
  ranks_->Send(0, {reinterpret_cast<const uint8_t*>(&bytes), sizeof(bytes)});
}

void RankFollower::NewCache(MessageReader* message) {
  const auto id = message->Get<uint64_t>();
  Cache cache{.shape = message->Get<KvShape>()};
  cache.shape.layout = backend_->BlockLayout(cache.shape);
  const KvShape& shape = cache.shape;
  const auto allocate = [&](size_t bytes) -> void* {
    auto buffer = backend_->Allocate(bytes);
    Check(buffer.status());
    return cache.buffers.emplace_back(std::move(buffer).value()).data();
  };
  for (int i = 0; i < shape.num_layers; ++i) {
    KvLayer layer;
    layer.k_blocks = allocate(shape.BlockBytes() * shape.num_blocks);
    layer.v_blocks = allocate(shape.BlockBytes() * shape.num_blocks);
    layer.k_staged = allocate(shape.RowBytes() * shape.staging_rows);
    layer.v_staged = allocate(shape.RowBytes() * shape.staging_rows);
    if (shape.key_summaries) {
      layer.key_max = allocate(shape.SummaryBytes() * shape.num_blocks);
      layer.key_min = allocate(shape.SummaryBytes() * shape.num_blocks);
      layer.key_norm = static_cast<float*>(allocate(shape.NormBytes() * shape.num_blocks));
    }
    cache.layers.push_back(layer);
  }
  caches_.insert_or_assign(id, std::move(cache));
}

KvView RankFollower::CacheOf(MessageReader* message) {
  const auto id = message->Get<uint64_t>();
  const auto at = caches_.find(id);
  TALON_CHECK(at != caches_.end(), "rank {} has no KV cache {:x}", ranks_->rank(), id);
  return at->second.view();
}

void RankFollower::RunPass(MessageReader* message) {
  const KvView kv = CacheOf(message);
  ForwardOutput output;
  Check(decoder_->Forward(GetPlan(message), kv, &output));
  RankHash hash = hash_;
  hash.Add(decoder_->activations_hash());
  const uint64_t value = hash.value();
  ranks_->Send(0, {reinterpret_cast<const uint8_t*>(&value), sizeof(value)});
}

void RankFollower::Project(MessageReader* message) {
  std::vector<std::vector<float>> rows(message->Get<int>());
  for (std::vector<float>& row : rows) row = message->GetAll<float>();
  decoder_->FollowProject(rows);
}

void RankFollower::RunKvOp(RankCommand command, MessageReader* message) {
  const KvView kv = CacheOf(message);
  KvOps* ops = backend_->kv_ops();
  if (command == RankCommand::kCopyBlock) {
    const int from = message->Get<int>();
    const int to = message->Get<int>();
    return ops->CopyBlock(kv, from, to, message->Get<int>());
  }
  const auto first = message->GetAll<int32_t>();
  if (command == RankCommand::kSummariseBlocks) return ops->SummariseBlocks(kv, first);
  const auto second = message->GetAll<int32_t>();
  if (command == RankCommand::kCommitRows) {
    return ops->CommitRows(kv, first, second, message->Get<int>());
  }
  if (command == RankCommand::kCopySlots) return ops->CopySlots(kv, first, second);
  TALON_CHECK(command == RankCommand::kCopyStaged, "rank {} does not know command {}",
              ranks_->rank(), static_cast<uint32_t>(command));
  ops->CopyStaged(kv, first, second);
}

}  // namespace talon
