// What the leader of several ranks tells the others: which command comes next, as plain integers.
#ifndef TALON_MODEL_RANKS_MESSAGES_H_
#define TALON_MODEL_RANKS_MESSAGES_H_

#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "compute/pass_plan.h"

namespace talon {

enum class RankCommand : uint32_t {
  kPing,  // answered by one byte
  kStop,
  kMemory,         // answered by RankBytes
  kReserveScores,  // blocks
  kNewCache,       // id, KvShape
  kForgetCache,    // id
  kPass,           // id, PassPlan; answered by a hash
  kExchange,       // rows
  kProject,        // hidden states; answered by logits
  kCommitRows,     // id and the arguments, as for the next ones: KvOps
  kCopySlots,
  kCopyBlock,
  kCopyStaged,
  kSummariseBlocks
};

// What a rank has allocated.
struct RankBytes {
  int64_t weights = 0;
  int64_t kv = 0;
};

// Goes before the bytes of each command.
struct MessageHeader {
  RankCommand command = RankCommand::kPing;
  uint32_t unused = 0;
  uint64_t bytes = 0;
};

class MessageWriter {
 public:
  template <typename T>
  void Put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }
  template <typename T>
  void PutAll(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    Put(static_cast<uint64_t>(values.size()));
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
    bytes_.insert(bytes_.end(), bytes, bytes + values.size_bytes());
  }
  std::span<const uint8_t> bytes() const { return bytes_; }
  void Clear() { bytes_.clear(); }

 private:
  std::vector<uint8_t> bytes_;
};

class MessageReader {
 public:
  explicit MessageReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  template <typename T>
  T Get() {
    T value;
    Copy(&value, sizeof(T));
    return value;
  }
  template <typename T>
  std::vector<T> GetAll() {
    const auto count = Get<uint64_t>();
    TALON_CHECK(count <= bytes_.size() / sizeof(T), "a message between ranks is too short");
    std::vector<T> values(count);
    Copy(values.data(), count * sizeof(T));
    return values;
  }

 private:
  void Copy(void* to, size_t bytes) {
    TALON_CHECK(bytes <= bytes_.size(), "a message between ranks is too short");
    if (bytes > 0) std::memcpy(to, bytes_.data(), bytes);
    bytes_ = bytes_.subspan(bytes);
  }

  std::span<const uint8_t> bytes_;
};

void PutPlan(const PassPlan& plan, MessageWriter* writer);
PassPlan GetPlan(MessageReader* reader);

// A running hash of everything that ranks must agree in.
class RankHash {
 public:
  void Add(std::span<const uint8_t> bytes);
  void Add(uint64_t value) { hash_ = Mix(hash_ ^ value); }
  uint64_t value() const { return hash_; }

 private:
  static uint64_t Mix(uint64_t x) {
    x *= 0x9E3779B97F4A7C15u;
    return x ^ (x >> 29);
  }
  uint64_t hash_ = 0xCBF29CE484222325u;
};

}  // namespace talon

#endif  // TALON_MODEL_RANKS_MESSAGES_H_
