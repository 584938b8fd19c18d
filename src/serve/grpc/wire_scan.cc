#include "serve/grpc/wire_scan.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace talon {
namespace {

constexpr int kMaxDrawEntries = 1024;   // entries of a node: what it was drawn from
constexpr int kMaxScalarFields = 4096;  // fields of a message, known or not
constexpr int kMaxGrammarBytes = 1 << 18;

// The fields of TokenNode and FlatTree.
constexpr int kNodeChildren = 3;
constexpr int kNodeDrawTokens = 4;
constexpr int kNodeDrawProbs = 5;
constexpr int kFlatFields = 3;

// A field as it is written. `payload` is empty unless it is length-delimited.
struct Field {
  int number = 0;
  bool has_length = false;
  std::string_view payload;
};

// Reads the fields of a message one by one, submessages as a whole.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : rest_(bytes) {}

  bool done() const { return rest_.empty(); }

  // False: the bytes are not a message.
  bool Next(Field* field) {
    uint64_t tag = 0;
    if (!Varint(&tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff) return false;
    *field = {.number = static_cast<int>(tag >> 3)};
    uint64_t value = 0;
    switch (tag & 7) {
      case 0:
        return Varint(&value);
      case 1:
        return Skip(8);
      case 2:
        if (!Varint(&value) || value > rest_.size()) return false;
        field->has_length = true;
        field->payload = rest_.substr(0, value);
        return Skip(value);
      case 5:
        return Skip(4);
      default:  // groups, which proto3 does not have
        return false;
    }
  }

 private:
  bool Skip(uint64_t count) {
    if (count > rest_.size()) return false;
    rest_.remove_prefix(count);
    return true;
  }

  bool Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 70 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      if (shift < 64) *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  std::string_view rest_;
};

// Values of a repeated number: one, or as many as the packed payload holds.
int64_t CountVarints(const Field& field) {
  if (!field.has_length) return 1;
  return std::count_if(field.payload.begin(), field.payload.end(),
                       [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}
int64_t CountFloats(const Field& field) {
  return field.has_length ? static_cast<int64_t>(field.payload.size() / 4) : 1;
}

Status Malformed(const char* name) { return InvalidArgument("{}: not a valid message", name); }

Status AtMost(const char* detail, const char* what, int64_t count, int limit) {
  if (count <= limit) return OkStatus();
  return InvalidArgument("{}: {} {}, limit {}", detail, count, what, limit);
}

// One message and what was counted in it.
class Scanner {
 public:
  Scanner(const MessageShape& shape, const WireLimits& limits) : shape_(shape), limits_(limits) {}

  Status Run(std::string_view bytes) {
    FieldReader reader(bytes);
    Field field;
    while (!reader.done()) {
      if (!reader.Next(&field)) return Malformed(shape_.name);
      TALON_RETURN_IF_ERROR(Count(field));
    }
    TALON_RETURN_IF_ERROR(
        AtMost("PROMPT_TOO_LONG", "prompt tokens", prompt_, limits_.max_prompt_tokens));
    TALON_RETURN_IF_ERROR(
        AtMost("PROMPT_TOO_LONG", "new tokens", delta_, limits_.max_prompt_tokens));
    return AtMost("PROMPT_TOO_LONG", "stop tokens", stops_, limits_.max_prompt_tokens);
  }

 private:
  Status Count(const Field& field) {
    if (field.number == shape_.prompt) {
      prompt_ += CountVarints(field);
    } else if (field.number == shape_.delta) {
      delta_ += CountVarints(field);
    } else if (field.number == shape_.stops) {
      stops_ += CountVarints(field);
    } else if (field.number == shape_.accepted) {
      accepted_ += CountVarints(field);
      return AtMost("TREE_TOO_LARGE", "accepted tokens", accepted_, limits_.max_tree_nodes);
    } else if (field.number == shape_.forest && field.has_length) {
      return ScanForest(field.payload);
    } else if (field.number == shape_.flat && field.has_length) {
      return ScanFlat(field.payload);
    } else if (field.number == shape_.grammar && field.has_length) {
      TALON_RETURN_IF_ERROR(CountScalar());
      return AtMost("BAD_GRAMMAR", "bytes", static_cast<int64_t>(field.payload.size()),
                    kMaxGrammarBytes);
    } else {
      return CountScalar();
    }
    return OkStatus();
  }

  Status CountScalar() {
    if (++scalars_ <= kMaxScalarFields) return OkStatus();
    return InvalidArgument("{}: more than {} fields", shape_.name, kMaxScalarFields);
  }

  // Depth first, so that the depth limit is hit before the size limit.
  Status ScanForest(std::string_view root) {
    struct Pending {
      std::string_view bytes;
      int depth;
    };
    std::vector<Pending> pending = {{root, 1}};
    TALON_RETURN_IF_ERROR(CountNode(1));
    while (!pending.empty()) {
      const Pending node = pending.back();
      pending.pop_back();
      std::vector<std::string_view> children;
      TALON_RETURN_IF_ERROR(ScanNode(node.bytes, node.depth, &children));
      for (const std::string_view child : children) pending.push_back({child, node.depth + 1});
    }
    return OkStatus();
  }

  Status ScanNode(std::string_view bytes, int depth, std::vector<std::string_view>* children) {
    FieldReader reader(bytes);
    Field field;
    int64_t draw_tokens = 0;
    int64_t draw_probs = 0;
    while (!reader.done()) {
      if (!reader.Next(&field)) return Malformed(shape_.name);
      if (field.number == kNodeChildren && field.has_length) {
        TALON_RETURN_IF_ERROR(CountNode(depth + 1));
        children->push_back(field.payload);
      } else if (field.number == kNodeDrawTokens) {
        draw_tokens += CountVarints(field);
      } else if (field.number == kNodeDrawProbs) {
        draw_probs += CountFloats(field);
      } else if (field.number > kNodeDrawProbs) {
        TALON_RETURN_IF_ERROR(CountScalar());
      }
    }
    return AtMost("TREE_INVALID", "entries of top_k", std::max(draw_tokens, draw_probs),
                  kMaxDrawEntries);
  }

  Status CountNode(int depth) {
    if (depth > limits_.max_tree_depth) {
      return InvalidArgument("TREE_INVALID: depth {} or more, limit {}", depth,
                             limits_.max_tree_depth);
    }
    if (++nodes_ <= limits_.max_tree_nodes) return OkStatus();
    return InvalidArgument("TREE_TOO_LARGE: {} nodes or more, limit {}", nodes_,
                           limits_.max_tree_nodes);
  }

  Status ScanFlat(std::string_view bytes) {
    FieldReader reader(bytes);
    Field field;
    while (!reader.done()) {
      if (!reader.Next(&field)) return Malformed(shape_.name);
      if (field.number > kFlatFields) {
        TALON_RETURN_IF_ERROR(CountScalar());
        continue;
      }
      int64_t& count = flat_[field.number - 1];
      count += field.number == kFlatFields ? CountFloats(field) : CountVarints(field);
      TALON_RETURN_IF_ERROR(AtMost("TREE_TOO_LARGE", "nodes", count, limits_.max_tree_nodes));
    }
    return OkStatus();
  }

  const MessageShape& shape_;
  const WireLimits& limits_;
  int64_t prompt_ = 0;
  int64_t delta_ = 0;
  int64_t stops_ = 0;
  int64_t accepted_ = 0;
  int64_t nodes_ = 0;
  int64_t flat_[kFlatFields] = {};
  int scalars_ = 0;
};

}  // namespace

Status ScanMessage(std::string_view bytes, const MessageShape& shape, const WireLimits& limits) {
  return Scanner(shape, limits).Run(bytes);
}

}  // namespace talon
