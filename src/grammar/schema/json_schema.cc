#include "grammar/schema/json_schema.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/ordered_json.h"
#include "grammar/schema/schema_reader.h"

namespace talon {
namespace {

using Kind = Piece::Kind;

constexpr size_t kLongestSchema = 256 * 1024;
constexpr int64_t kMostSchemaRules = 300'000;

class SchemaCompiler {
 public:
  SchemaCompiler(const OrderedJson* root, JsonSpacing spacing, Grammar* grammar)
      : grammar_(grammar),
        pool_(grammar_->exprs()),
        reader_(root, &pool_),
        space_(JsonSpace(spacing, &pool_)),
        colon_(pool_.Concat(pool_.Byte(':'), JsonSpaceAfterColon(spacing, &pool_))),
        comma_(pool_.Concat(pool_.Byte(','), space_)) {}

  // The rule of the schema.
  Result<int> Compile(const OrderedJson* root) {
    const int start = RuleOf(Conjunction{root});
    while (!open_.empty()) {
      const auto [schemas, rule] = std::move(open_.front());
      open_.pop_front();
      TALON_RETURN_IF_ERROR(Fill(schemas, rule));
      if (static_cast<int64_t>(grammar_->size()) > kMostSchemaRules) {
        return InvalidArgument("the schema is too large");
      }
    }
    return start;
  }

 private:
  // The rule for values that match all of the schemas; filled later.
  int RuleOf(const Conjunction& schemas) {
    const auto [at, is_new] = rules_.try_emplace(schemas, 0);
    if (is_new) {
      at->second =
          grammar_->AddRule(schemas.empty() ? "value" : reader_.document().PointerOf(schemas[0]));
      open_.push_back({schemas, at->second});
    }
    return at->second;
  }

  Status Fill(const Conjunction& schemas, int rule) {
    TALON_ASSIGN_OR_RETURN(const Pieces pieces, reader_.Read(schemas));
    std::vector<std::string> literals;  // scalars: one terminal for all
    for (const Piece& piece : pieces) {
      if (piece.kind == Kind::kLiteral && piece.literal.is_primitive()) {
        literals.push_back(ScalarText(piece.literal));
      } else {
        TALON_RETURN_IF_ERROR(FillPiece(piece, rule).WithContext(PlaceOf(schemas)));
      }
    }
    if (!literals.empty()) AddTerminal(rule, pool_.AnyOf(std::move(literals)));
    return OkStatus();
  }

  std::string PlaceOf(const Conjunction& schemas) const {
    return schemas.empty() ? "#" : reader_.document().PointerOf(schemas[0]);
  }

  void AddTerminal(int rule, ExprId expr) { grammar_->AddAlternative(rule, {Terminal(expr)}); }

  Status FillPiece(const Piece& piece, int rule) {
    switch (piece.kind) {
      case Kind::kLiteral: {
        Grammar::Alternative symbols;
        AppendLiteral(piece.literal, &symbols);
        grammar_->AddAlternative(rule, std::move(symbols));
        return OkStatus();
      }
      case Kind::kNull:
        AddTerminal(rule, pool_.Literal("null"));
        return OkStatus();
      case Kind::kBoolean:
        AddTerminal(rule, pool_.Or({pool_.Literal("true"), pool_.Literal("false")}));
        return OkStatus();
      case Kind::kNumber: {
        TALON_ASSIGN_OR_RETURN(const ExprId expr, NumberExpr(piece.number, &pool_));
        AddTerminal(rule, expr);
        return OkStatus();
      }
      case Kind::kString: {
        TALON_ASSIGN_OR_RETURN(const ExprId expr, reader_.strings().Quoted(piece.string));
        AddTerminal(rule, expr);
        return OkStatus();
      }
      case Kind::kArray:
        return FillArray(piece.array, rule);
      case Kind::kObject:
        return FillObject(piece.object, rule);
    }
    return OkStatus();
  }

  static std::string ScalarText(const OrderedJson& value) {
    return value.is_string() ? JsonSpelling(value.get<std::string>()) : value.dump();
  }

  void AppendLiteral(const OrderedJson& value, Grammar::Alternative* symbols) {
    if (value.is_primitive()) {
      symbols->push_back(Terminal(pool_.Literal(ScalarText(value))));
      return;
    }
    const bool object = value.is_object();
    symbols->push_back(Terminal(pool_.Byte(object ? '{' : '[')));
    bool first = true;
    for (const auto& [key, one] : value.items()) {
      symbols->push_back(Terminal(first ? space_ : comma_));
      first = false;
      if (object) {
        symbols->push_back(Terminal(pool_.Concat(pool_.Literal(JsonSpelling(key)), colon_)));
      }
      AppendLiteral(one, symbols);
    }
    symbols->push_back(Terminal(pool_.Concat(space_, pool_.Byte(object ? '}' : ']'))));
  }

  // What comes before the part after `count` others.
  ExprId Separator(int64_t count) const { return count == 0 ? space_ : comma_; }

  // A rule for each count of items so far, up to where nothing changes any more.
  Status FillArray(const ArraySpec& array, int rule) {
    const auto prefix = static_cast<int64_t>(SchemaKeywords::PrefixLength(array));
    int64_t states = std::max<int64_t>({prefix, array.min, 1});
    if (array.max >= 0) states = array.max;
    if (states + static_cast<int64_t>(grammar_->size()) > kMostSchemaRules) {
      return InvalidArgument("arrays of {} items are too long", states);
    }
    const std::vector<int> rest = AddRules("items", states + 1);
    grammar_->AddAlternative(rule, {Terminal(pool_.Byte('[')), RuleSymbol(rest[0]),
                                    Terminal(pool_.Concat(space_, pool_.Byte(']')))});
    for (int64_t count = 0; count <= states; ++count) {
      if (count >= array.min) grammar_->AddAlternative(rest[count], {});
      if (array.max >= 0 && count >= array.max) continue;
      const Conjunction item =
          SchemaKeywords::Item(array, static_cast<size_t>(std::min(count, prefix)));
      grammar_->AddAlternative(rest[count], {Terminal(Separator(count)), RuleSymbol(RuleOf(item)),
                                             RuleSymbol(rest[std::min(count + 1, states)])});
    }
    return OkStatus();
  }

  std::vector<int> AddRules(const std::string& name, int64_t count) {
    std::vector<int> rules;
    for (int64_t i = 0; i < count; ++i) rules.push_back(grammar_->AddRule(name));
    return rules;
  }

  // A declared key with its colon, its value, and whether it must be there.
  struct Declared {
    ExprId key;
    Conjunction value;
    bool needed = false;
  };

  Result<std::vector<Declared>> DeclaredOf(const ObjectSpec& object) {
    std::vector<Declared> declared;
    for (const std::string& name : reader_.keywords().DeclaredNames(object)) {
      TALON_ASSIGN_OR_RETURN(Conjunction value, PropertyOf(object, name));
      const ExprId key = pool_.Concat(pool_.Literal(JsonSpelling(name)), colon_);
      const bool needed = std::ranges::find(object.required, name) != object.required.end();
      declared.push_back({.key = key, .value = std::move(value), .needed = needed});
    }
    return declared;
  }

  // Declared keys in order, each taken or left out, then the others. A rule for each place in that
  // order and each count of keys so far, up to where nothing changes any more.
  Status FillObject(const ObjectSpec& object, int rule) {
    TALON_ASSIGN_OR_RETURN(const std::vector<Declared> declared, DeclaredOf(object));
    TALON_ASSIGN_OR_RETURN(const auto others, reader_.OtherKeysOf(object));
    const int64_t states = std::max<int64_t>({object.min, object.max, 1});
    const auto places = static_cast<int64_t>(declared.size()) + 1;
    if (places * (states + 1) + static_cast<int64_t>(grammar_->size()) > kMostSchemaRules) {
      return InvalidArgument("objects of {} properties with {} declared are too large", states,
                             declared.size());
    }
    std::vector<std::vector<int>> rest;
    for (int64_t i = 0; i < places; ++i) rest.push_back(AddRules("properties", states + 1));
    grammar_->AddAlternative(rule, {Terminal(pool_.Byte('{')), RuleSymbol(rest[0][0]),
                                    Terminal(pool_.Concat(space_, pool_.Byte('}')))});
    for (int64_t count = 0; count <= states; ++count) {
      const bool full = object.max >= 0 && count >= object.max;
      const int64_t next = std::min(count + 1, states);
      for (int64_t i = 0; i + 1 < places; ++i) {
        const auto& [key, value, needed] = declared[i];
        if (!needed) grammar_->AddAlternative(rest[i][count], {RuleSymbol(rest[i + 1][count])});
        if (!full) AddEntry(rest[i][count], Separator(count), key, value, rest[i + 1][next]);
      }
      if (count >= object.min) grammar_->AddAlternative(rest[places - 1][count], {});
      for (const SchemaKeywords::OtherKeys& other : others) {
        if (full) break;
        AddEntry(rest[places - 1][count], Separator(count), pool_.Concat(other.key, colon_),
                 other.value, rest[places - 1][next]);
      }
    }
    return OkStatus();
  }

  // A declared key must also be one that propertyNames allows, else no value matches.
  Result<Conjunction> PropertyOf(const ObjectSpec& object, const std::string& name) {
    static const OrderedJson kNothing = false;
    TALON_ASSIGN_OR_RETURN(const bool allowed, reader_.NameAllowed(object, name));
    if (!allowed) return Conjunction{&kNothing};
    return reader_.keywords().Property(object, name);
  }

  void AddEntry(int rule, ExprId separator, ExprId key, const Conjunction& value, int next) {
    grammar_->AddAlternative(rule, {Terminal(pool_.Concat(separator, key)),
                                    RuleSymbol(RuleOf(value)), RuleSymbol(next)});
  }

  Grammar* grammar_;
  ExprPool& pool_;
  SchemaReader reader_;
  ExprId space_;
  ExprId colon_;
  ExprId comma_;
  std::map<Conjunction, int> rules_;
  std::deque<std::pair<Conjunction, int>> open_;
};

}  // namespace

Result<int> AddJsonSchema(std::string_view schema, JsonSpacing spacing, Grammar* grammar) {
  if (schema.size() > kLongestSchema) {
    return InvalidArgument("schema: {} bytes, limit {}", schema.size(), kLongestSchema);
  }
  TALON_ASSIGN_OR_RETURN(const OrderedJson root, ParseOrderedJson(schema, "schema"));
  return SchemaCompiler(&root, spacing, grammar).Compile(&root);
}

Result<std::unique_ptr<Grammar>> CompileJsonSchema(std::string_view schema, JsonSpacing spacing) {
  auto grammar = std::make_unique<Grammar>();
  TALON_ASSIGN_OR_RETURN(const int start, AddJsonSchema(schema, spacing, grammar.get()));
  TALON_RETURN_IF_ERROR(grammar->Finish(start));
  return grammar;
}

Result<std::unique_ptr<Grammar>> AnyJsonObject(JsonSpacing spacing) {
  return CompileJsonSchema(R"({"type": "object"})", spacing);
}

}  // namespace talon
