#include "grammar/regex.h"

#include <utility>
#include <vector>

#include "grammar/regex_parser.h"

namespace talon {
namespace {

using NodeKind = RegexNode::Kind;

constexpr size_t kMostVariants = 256;

// A regex without anchors, and whether it must begin and end where the string does.
struct Variant {
  bool at_begin = false;
  bool at_end = false;
  RegexNode node;
};

bool HasAnchor(const RegexNode& node) {
  if (node.kind == NodeKind::kBegin || node.kind == NodeKind::kEnd) return true;
  for (const RegexNode& kid : node.kids) {
    if (HasAnchor(kid)) return true;
  }
  return false;
}

Status SplitAnchors(const RegexNode& node, std::vector<Variant>* variants);

// (^a|b)c becomes ^ac and bc: the edge that may hold an anchor is split, the others are kept.
Status SplitSequence(const RegexNode& node, std::vector<Variant>* variants) {
  std::vector<Variant> parts = {Variant{}};
  for (size_t i = 0; i < node.kids.size(); ++i) {
    const RegexNode& kid = node.kids[i];
    std::vector<Variant> kinds;
    if (HasAnchor(kid)) {
      TALON_RETURN_IF_ERROR(SplitAnchors(kid, &kinds));
    } else {
      kinds.push_back({.node = kid});
    }
    std::vector<Variant> longer;
    for (const Variant& part : parts) {
      for (const Variant& kind : kinds) {
        const bool begins = part.node.is_empty();
        if ((kind.at_begin && !begins) || (part.at_end && !kind.node.is_empty())) {
          return InvalidArgument("regex: an anchor in the middle is not supported");
        }
        Variant next = part;
        next.at_begin |= kind.at_begin;
        next.at_end |= kind.at_end;
        if (!kind.node.is_empty()) next.node.kids.push_back(kind.node);
        longer.push_back(std::move(next));
      }
    }
    if (longer.size() > kMostVariants) return InvalidArgument("regex: too many anchors");
    parts = std::move(longer);
  }
  variants->insert(variants->end(), parts.begin(), parts.end());
  return OkStatus();
}

Status SplitAnchors(const RegexNode& node, std::vector<Variant>* variants) {
  switch (node.kind) {
    case NodeKind::kBegin:
      variants->push_back({.at_begin = true});
      return OkStatus();
    case NodeKind::kEnd:
      variants->push_back({.at_end = true});
      return OkStatus();
    case NodeKind::kConcat:
      return SplitSequence(node, variants);
    case NodeKind::kAlternatives:
      for (const RegexNode& kid : node.kids) TALON_RETURN_IF_ERROR(SplitAnchors(kid, variants));
      return variants->size() > kMostVariants ? InvalidArgument("regex: too many anchors")
                                              : OkStatus();
    case NodeKind::kRepeat:
      if (HasAnchor(node)) return InvalidArgument("regex: a repeated anchor is not supported");
      break;
    case NodeKind::kSet:
      break;
  }
  variants->push_back({.node = node});
  return OkStatus();
}

ExprId Emit(const RegexNode& node, const CharacterWriter& writer, ExprPool* pool) {
  switch (node.kind) {
    case NodeKind::kSet:
      return writer(node.set);
    case NodeKind::kRepeat:
      return pool->Repeat(Emit(node.kids[0], writer, pool), node.min, node.max);
    case NodeKind::kAlternatives: {
      std::vector<ExprId> parts;
      for (const RegexNode& kid : node.kids) parts.push_back(Emit(kid, writer, pool));
      return pool->Or(std::move(parts));
    }
    case NodeKind::kConcat: {
      ExprId result = ExprPool::kEmpty;
      for (size_t i = node.kids.size(); i > 0; --i) {
        result = pool->Concat(Emit(node.kids[i - 1], writer, pool), result);
      }
      return result;
    }
    case NodeKind::kBegin:
    case NodeKind::kEnd:
      break;  // SplitAnchors has taken them out
  }
  return ExprPool::kNone;
}

Result<ExprId> Compile(std::string_view source, const CharacterWriter& writer, bool whole,
                       ExprPool* pool) {
  TALON_ASSIGN_OR_RETURN(const RegexNode node, ParseRegex(source));
  std::vector<Variant> variants;
  if (HasAnchor(node)) {
    TALON_RETURN_IF_ERROR(SplitAnchors(node, &variants));
  } else {
    variants.push_back({.node = node});
  }
  const ExprId any = pool->Repeat(writer(CodePoints::All()), 0, ExprPool::kNoLimit);
  std::vector<ExprId> parts;
  for (const Variant& variant : variants) {
    parts.push_back(pool->Sequence({whole || variant.at_begin ? ExprPool::kEmpty : any,
                                    Emit(variant.node, writer, pool),
                                    whole || variant.at_end ? ExprPool::kEmpty : any}));
  }
  return pool->Or(std::move(parts));
}

}  // namespace

Result<ExprId> CompileRegex(std::string_view source, ExprPool* pool) {
  const CharacterWriter utf8 = [pool](const CodePoints& set) { return Utf8Of(set, pool); };
  return Compile(source, utf8, /*whole=*/true, pool);
}

Result<ExprId> CompilePattern(std::string_view source, const CharacterWriter& writer,
                              ExprPool* pool) {
  return Compile(source, writer, /*whole=*/false, pool);
}

}  // namespace talon
