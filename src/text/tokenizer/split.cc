#include "text/tokenizer/split.h"

#include <algorithm>

namespace talon {
namespace {

struct Section {
  TextSpan span;
  bool is_delimiter;
};

std::vector<Section> Sections(const std::vector<TextSpan>& matches, size_t text_size, bool invert) {
  std::vector<Section> sections;
  sections.reserve(2 * matches.size() + 1);
  size_t covered = 0;
  for (const TextSpan& match : matches) {
    if (covered != match.begin) sections.push_back({{covered, match.begin}, invert});
    sections.push_back({match, !invert});
    covered = match.end;
  }
  if (covered != text_size) sections.push_back({{covered, text_size}, invert});
  return sections;
}

// A delimiter joins the part before it, unless that ends in a delimiter already.
void MergeWithPrevious(const std::vector<Section>& sections, std::vector<TextSpan>* parts) {
  bool after_delimiter = false;
  for (const Section& section : sections) {
    if (section.is_delimiter && !after_delimiter && !parts->empty()) {
      parts->back().end = section.span.end;
    } else {
      parts->push_back(section.span);
    }
    after_delimiter = section.is_delimiter;
  }
}

// The mirror image, so it goes from right to left.
void MergeWithNext(const std::vector<Section>& sections, std::vector<TextSpan>* parts) {
  bool before_delimiter = false;
  for (auto section = sections.rbegin(); section != sections.rend(); ++section) {
    if (section->is_delimiter && !before_delimiter && !parts->empty()) {
      parts->back().begin = section->span.begin;
    } else {
      parts->push_back(section->span);
    }
    before_delimiter = section->is_delimiter;
  }
  std::reverse(parts->begin(), parts->end());
}

void MergeEqual(const std::vector<Section>& sections, std::vector<TextSpan>* parts) {
  bool after_delimiter = false;
  for (const Section& section : sections) {
    if (section.is_delimiter == after_delimiter && !parts->empty()) {
      parts->back().end = section.span.end;
    } else {
      parts->push_back(section.span);
    }
    after_delimiter = section.is_delimiter;
  }
}

}  // namespace

std::optional<SplitBehavior> SplitBehaviorFromName(std::string_view name) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return std::nullopt;
}

Status SplitText(const Regex& pattern, SplitBehavior behavior, bool invert, std::string_view text,
                 std::vector<TextSpan>* parts) {
  parts->clear();
  std::vector<TextSpan> matches;
  TALON_RETURN_IF_ERROR(pattern.FindAll(text, &matches));
  const std::vector<Section> sections = Sections(matches, text.size(), invert);
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const Section& section : sections) {
        if (!section.is_delimiter) parts->push_back(section.span);
      }
      break;
    case SplitBehavior::kIsolated:
      for (const Section& section : sections) parts->push_back(section.span);
      break;
    case SplitBehavior::kMergedWithPrevious:
      MergeWithPrevious(sections, parts);
      break;
    case SplitBehavior::kMergedWithNext:
      MergeWithNext(sections, parts);
      break;
    case SplitBehavior::kContiguous:
      MergeEqual(sections, parts);
      break;
  }
  return OkStatus();
}

}  // namespace talon
