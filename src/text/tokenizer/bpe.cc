#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <functional>

#include "base/json.h"
#include "text/tokenizer/json_fields.h"
#include "text/unicode.h"

namespace talon {
namespace {

constexpr size_t kLongWordBytes = 64;
constexpr size_t kMaxCachedWordBytes = 256;
constexpr size_t kMaxCachedWords = size_t{1} << 16;

uint64_t PairKey(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

// Options that would change the encoding in ways not done here.
Status RejectUnsupportedOptions(const JsonFields& fields) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (fields.Find(key) == nullptr) continue;
    TALON_ASSIGN_OR_RETURN(const std::string affix, fields.String(key));
    if (!affix.empty())
      return Unimplemented("{}: \"{}\" is not supported", fields.Where(key), affix);
  }
  const Json* dropout = fields.Find("dropout");
  if (dropout == nullptr) return OkStatus();
  if (!dropout->is_number()) {
    return InvalidArgument("{}: expected a number, found {}", fields.Where("dropout"),
                           dropout->type_name());
  }
  if (dropout->get<double>() != 0.0) {
    return Unimplemented("{}: {} would make encoding random", fields.Where("dropout"),
                         dropout->dump());
  }
  return OkStatus();
}

}  // namespace

Result<BpeModel> BpeModel::Parse(const Json& value, const std::string& where) {
  TALON_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::From(value, where));
  if (fields.Find("type") != nullptr) {
    TALON_ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
    if (type != "BPE") {
      return Unimplemented("{}: model \"{}\" is not supported, only BPE", fields.Where("type"),
                           type);
    }
  }
  TALON_RETURN_IF_ERROR(RejectUnsupportedOptions(fields));
  BpeModel model;
  TALON_ASSIGN_OR_RETURN(model.fuse_unknown_, fields.Bool("fuse_unk", false));
  TALON_ASSIGN_OR_RETURN(model.byte_fallback_, fields.Bool("byte_fallback", false));
  TALON_ASSIGN_OR_RETURN(model.ignore_merges_, fields.Bool("ignore_merges", false));
  if (fields.Find("unk_token") != nullptr) {
    TALON_ASSIGN_OR_RETURN(model.unknown_token_, fields.String("unk_token"));
  }
  TALON_ASSIGN_OR_RETURN(const Json* vocabulary, fields.Object("vocab"));
  TALON_RETURN_IF_ERROR(model.ParseVocabulary(*vocabulary, fields.Where("vocab")));
  TALON_ASSIGN_OR_RETURN(const Json* merges, fields.Array("merges"));
  TALON_RETURN_IF_ERROR(model.ParseMerges(*merges, fields.Where("merges")));
  model.IndexCharacters();
  return model;
}

Status BpeModel::ParseVocabulary(const Json& vocabulary, const std::string& where) {
  if (vocabulary.empty()) return InvalidArgument("{}: empty", where);
  vocabulary_.reserve(vocabulary.size());
  for (const auto& entry : vocabulary.items()) {
    Result<int32_t> id = TokenIdFromJson(entry.value(), where);
    if (!id.ok()) return id.status().WithContext(fmt::format("token \"{}\"", entry.key()));
    vocabulary_.emplace(entry.key(), *id);
  }
  return OkStatus();
}

Status BpeModel::ParseMerges(const Json& merges, const std::string& where) {
  int32_t rank = 0;
  for (const Json& merge : merges) {
    const std::string place = fmt::format("{}[{}]", where, rank);
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      TALON_RETURN_IF_ERROR(AddMerge(merge[0].get_ref<const std::string&>(),
                                     merge[1].get_ref<const std::string&>(), rank, place));
    } else if (merge.is_string()) {
      const std::string_view line = merge.get_ref<const std::string&>();
      if (line.starts_with("#version")) continue;
      const size_t space = line.find(' ');
      if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
        return InvalidArgument("{}: \"{}\" is not two tokens", place, line);
      }
      TALON_RETURN_IF_ERROR(AddMerge(line.substr(0, space), line.substr(space + 1), rank, place));
    } else {
      return InvalidArgument("{}: expected \"a b\" or [\"a\", \"b\"]", place);
    }
    ++rank;
  }
  return OkStatus();
}

Status BpeModel::AddMerge(std::string_view left, std::string_view right, int32_t rank,
                          const std::string& where) {
  const std::string merged = std::string(left) + std::string(right);
  for (const std::string_view token : {left, right, std::string_view(merged)}) {
    if (!TokenId(token)) {
      return InvalidArgument("{}: token \"{}\" is not in the vocabulary", where, token);
    }
  }
  merges_.Set(PairKey(*TokenId(left), *TokenId(right)), {rank, *TokenId(merged)});
  char32_t previous = 0;
  for (size_t offset = 0; offset < merged.size();) {
    const bool first = offset == 0;
    const char32_t c = NextCodePoint(merged, &offset);
    if (!first) joined_.Set(PairKey(previous, c), true);
    previous = c;
  }
  return OkStatus();
}

void BpeModel::IndexCharacters() {
  for (const auto& [token, id] : vocabulary_) {
    const std::optional<char32_t> c = SingleCodePoint(token);
    if (c) character_ids_.Set(*c, id);
  }
  byte_ids_.assign(256, -1);
  for (int byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = TokenId(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
}

std::optional<int32_t> BpeModel::TokenId(std::string_view token) const {
  const auto found = vocabulary_.find(token);
  if (found == vocabulary_.end()) return std::nullopt;
  return found->second;
}

Status BpeModel::Encode(std::string_view word, BpeScratch* scratch,
                        std::vector<int32_t>* ids) const {
  if (ignore_merges_) {
    if (const std::optional<int32_t> id = TokenId(word)) {
      ids->push_back(*id);
      return OkStatus();
    }
  }
  if (word.size() <= kLongWordBytes) return EncodeSegment(word, scratch, ids);
  for (size_t begin = 0; begin < word.size();) {
    const size_t end = SegmentEnd(word, begin);
    TALON_RETURN_IF_ERROR(EncodeSegment(word.substr(begin, end - begin), scratch, ids));
    begin = end;
  }
  return OkStatus();
}

// The first place after `begin` that no merge can cross, because no merged token has its two
// characters side by side: what lies on either side of it can be encoded alone. A tokenizer that
// does not cut text into words first still gets words here, and so the use of the cache.
size_t BpeModel::SegmentEnd(std::string_view word, size_t begin) const {
  size_t offset = begin;
  char32_t left = NextCodePoint(word, &offset);
  bool left_known = character_ids_.Find(left) != nullptr;
  while (offset < word.size()) {
    const size_t border = offset;
    const char32_t right = NextCodePoint(word, &offset);
    const bool right_known = character_ids_.Find(right) != nullptr;
    // Unknown characters stay with their neighbours, for runs of them may become one token.
    if (left_known && right_known && joined_.Find(PairKey(left, right)) == nullptr) return border;
    left = right;
    left_known = right_known;
  }
  return word.size();
}

Status BpeModel::EncodeSegment(std::string_view segment, BpeScratch* scratch,
                               std::vector<int32_t>* ids) const {
  const auto cached = scratch->cache.find(segment);
  if (cached != scratch->cache.end()) {
    const auto begin = scratch->cached_ids.begin() + static_cast<ptrdiff_t>(cached->second.begin);
    ids->insert(ids->end(), begin, begin + static_cast<ptrdiff_t>(cached->second.count));
    return OkStatus();
  }
  TALON_RETURN_IF_ERROR(AddCharacters(segment, scratch));
  MergeAll(scratch);
  const size_t first = ids->size();
  for (const BpeScratch::Symbol& symbol : scratch->symbols) {
    if (symbol.id >= 0) ids->push_back(symbol.id);
  }
  if (segment.size() <= kMaxCachedWordBytes && scratch->cache.size() < kMaxCachedWords) {
    scratch->cache.emplace(segment,
                           BpeScratch::CachedWord{scratch->cached_ids.size(), ids->size() - first});
    scratch->cached_ids.insert(scratch->cached_ids.end(),
                               ids->begin() + static_cast<ptrdiff_t>(first), ids->end());
  }
  return OkStatus();
}

Result<int32_t> BpeModel::UnknownToken(std::string_view character) const {
  const std::optional<int32_t> id = TokenId(*unknown_token_);
  if (!id) {
    return InvalidArgument("tokenizer: \"{}\" is unknown, and so is unk_token \"{}\"", character,
                           *unknown_token_);
  }
  return *id;
}

bool BpeModel::AddBytes(std::string_view character, BpeScratch* scratch) const {
  const auto id = [this](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (!std::all_of(character.begin(), character.end(), [&](char b) { return id(b) >= 0; })) {
    return false;
  }
  for (const char byte : character) scratch->symbols.push_back({id(byte), -1, -1});
  return true;
}

// An unknown token waits for the next known character, so that a run of them can become one.
Status BpeModel::AddCharacters(std::string_view word, BpeScratch* scratch) const {
  scratch->symbols.clear();
  constexpr int32_t kNone = -1;
  int32_t unknown = kNone;
  const auto flush_unknown = [&] {
    if (unknown != kNone) scratch->symbols.push_back({unknown, -1, -1});
    unknown = kNone;
  };
  for (size_t offset = 0; offset < word.size();) {
    const size_t begin = offset;
    const char32_t c = NextCodePoint(word, &offset);
    const std::string_view character = word.substr(begin, offset - begin);
    if (const int32_t* id = character_ids_.Find(c)) {
      flush_unknown();
      scratch->symbols.push_back({*id, -1, -1});
    } else if (byte_fallback_ && AddBytes(character, scratch)) {
      continue;
    } else if (unknown_token_) {
      if (!fuse_unknown_) flush_unknown();
      TALON_ASSIGN_OR_RETURN(unknown, UnknownToken(character));
    }
  }
  flush_unknown();
  const auto count = static_cast<int32_t>(scratch->symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    scratch->symbols[i].previous = i - 1;
    scratch->symbols[i].next = i + 1 < count ? i + 1 : -1;
  }
  return OkStatus();
}

const BpeModel::Merge* BpeModel::FindMerge(int32_t left, int32_t right) const {
  return merges_.Find(PairKey(left, right));
}

// Appends the pair that begins at `left` to the heap's array, if it can be merged.
bool BpeModel::AppendPair(int32_t left, BpeScratch* scratch) const {
  const BpeScratch::Symbol& symbol = scratch->symbols[left];
  if (symbol.next < 0) return false;
  const Merge* merge = FindMerge(symbol.id, scratch->symbols[symbol.next].id);
  if (merge == nullptr) return false;
  scratch->heap.push_back(PairKey(merge->rank, left));
  return true;
}

// O(n log n): a heap of mergeable pairs over a linked list of symbols. Pairs are not removed when
// one of their sides changes; a popped pair whose place has another rank by now is skipped.
void BpeModel::MergeAll(BpeScratch* scratch) const {
  auto& symbols = scratch->symbols;
  auto& heap = scratch->heap;
  const std::greater<uint64_t> lowest_on_top;
  heap.clear();
  for (size_t i = 0; i < symbols.size(); ++i) AppendPair(static_cast<int32_t>(i), scratch);
  std::make_heap(heap.begin(), heap.end(), lowest_on_top);
  const auto push = [&](int32_t left) {
    if (AppendPair(left, scratch)) std::push_heap(heap.begin(), heap.end(), lowest_on_top);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), lowest_on_top);
    const auto rank = static_cast<int32_t>(heap.back() >> 32);
    const auto position = static_cast<int32_t>(heap.back() & 0xFFFFFFFFu);
    heap.pop_back();
    BpeScratch::Symbol& left = symbols[position];
    if (left.id < 0 || left.next < 0) continue;
    BpeScratch::Symbol& right = symbols[left.next];
    const Merge* merge = FindMerge(left.id, right.id);
    if (merge == nullptr || merge->rank != rank) continue;
    left.id = merge->id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[left.next].previous = position;
    if (left.previous >= 0) push(left.previous);
    push(position);
  }
}

}  // namespace talon
