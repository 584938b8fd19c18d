// Byte-pair encoding: the "model" of tokenizer.json. A word starts as its characters; the adjacent
// pair with the lowest merge rank (leftmost among equals) becomes one token, until no pair is left.
//
// Immutable after Parse(); thread-safe: the mutable state of an encoding is the caller's
// BpeScratch.
#ifndef TALON_TEXT_TOKENIZER_BPE_H_
#define TALON_TEXT_TOKENIZER_BPE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"
#include "text/tokenizer/flat_map.h"

namespace talon {

// Hashing that lets a string-keyed map be searched by string_view.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
template <typename Value>
using StringMap = std::unordered_map<std::string, Value, StringHash, std::equal_to<>>;

// Working memory of one encoding, with the words it has seen.
class BpeScratch {
 private:
  friend class BpeModel;
  struct Symbol {
    int32_t id;        // -1: merged into the symbol before
    int32_t previous;  // -1: none
    int32_t next;      // -1: none
  };
  struct CachedWord {
    size_t begin;  // in cached_ids
    size_t count;
  };
  std::vector<Symbol> symbols;
  std::vector<uint64_t> heap;  // pairs to merge: rank << 32 | position of the left symbol
  StringMap<CachedWord> cache;
  std::vector<int32_t> cached_ids;
};

class BpeModel {
 public:
  static Result<BpeModel> Parse(const Json& value, const std::string& where);

  // Appends the tokens of one word. Characters unknown to the vocabulary become their bytes
  // (byte_fallback), else the unknown token, else nothing.
  // REQUIRES: valid UTF-8; `scratch` was used with this model only.
  Status Encode(std::string_view word, BpeScratch* scratch, std::vector<int32_t>* ids) const;

  std::optional<int32_t> TokenId(std::string_view token) const;
  const StringMap<int32_t>& vocabulary() const { return vocabulary_; }

 private:
  struct Merge {
    int32_t rank;
    int32_t id;
  };
  BpeModel() = default;

  Status ParseVocabulary(const Json& vocabulary, const std::string& where);
  Status ParseMerges(const Json& merges, const std::string& where);
  Status AddMerge(std::string_view left, std::string_view right, int32_t rank,
                  const std::string& where);
  void IndexCharacters();

  Status EncodeSegment(std::string_view segment, BpeScratch* scratch,
                       std::vector<int32_t>* ids) const;
  size_t SegmentEnd(std::string_view word, size_t begin) const;
  Status AddCharacters(std::string_view word, BpeScratch* scratch) const;
  Result<int32_t> UnknownToken(std::string_view character) const;
  bool AddBytes(std::string_view character, BpeScratch* scratch) const;
  void MergeAll(BpeScratch* scratch) const;
  bool AppendPair(int32_t left, BpeScratch* scratch) const;
  const Merge* FindMerge(int32_t left, int32_t right) const;

  StringMap<int32_t> vocabulary_;
  FlatMap<int32_t> character_ids_;  // tokens of one character, by code point
  std::vector<int32_t> byte_ids_;   // [256], tokens "<0x00>".., -1 if absent
  FlatMap<Merge> merges_;           // by pair of ids
  FlatMap<bool> joined_;            // pairs of characters side by side in some merged token
  std::optional<std::string> unknown_token_;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
};

}  // namespace talon

#endif  // TALON_TEXT_TOKENIZER_BPE_H_
