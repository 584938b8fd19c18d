#include "grammar/schema/schema_document.h"

#include <algorithm>
#include <vector>

namespace talon {

// Every place is known, so that messages can name it and properties come in the document's order.
SchemaDocument::SchemaDocument(const OrderedJson* root) : root_(root) {
  std::vector<const OrderedJson*> open = {root};
  places_[root] = {};
  for (int order = 0; !open.empty(); ++order) {
    const OrderedJson* node = open.back();
    open.pop_back();
    places_[node].order = order;
    if (!node->is_structured()) continue;
    const size_t first = open.size();
    for (const auto& [key, value] : node->items()) {
      places_[&value] = {.parent = node, .key = key};
      open.push_back(&value);
    }
    std::reverse(open.begin() + static_cast<int64_t>(first), open.end());
  }
}

std::string SchemaDocument::PointerOf(const OrderedJson* schema) const {
  std::string pointer;
  for (auto at = places_.find(schema); at != places_.end() && at->second.parent != nullptr;
       at = places_.find(at->second.parent)) {
    pointer = (OrderedJson::json_pointer() / at->second.key).to_string() + pointer;
  }
  return "#" + pointer;
}

Status SchemaDocument::Refuse(const OrderedJson* schema, std::string_view keyword,
                              std::string_view why) const {
  return InvalidArgument("{}/{}: {}", PointerOf(schema), keyword, why);
}

int SchemaDocument::OrderOf(const OrderedJson* schema) const {
  const auto at = places_.find(schema);
  return at == places_.end() ? 0 : at->second.order;
}

Result<const OrderedJson*> SchemaDocument::Resolve(const OrderedJson* from,
                                                   const std::string& reference) const {
  if (!reference.starts_with("#")) {
    return Refuse(from, "$ref", fmt::format("'{}' is not in this document", reference));
  }
  if (reference == "#") return root_;
  if (reference[1] != '/') return Refuse(from, "$ref", "anchors are not supported");
  std::string decoded;  // percent-encoding
  for (size_t i = 1; i < reference.size(); ++i) {
    if (reference[i] == '%' && i + 2 < reference.size()) {
      decoded.push_back(static_cast<char>(
          std::stoi(fmt::format("0{}", reference.substr(i + 1, 2)), nullptr, 16)));
      i += 2;
    } else {
      decoded.push_back(reference[i]);
    }
  }
  const OrderedJson* place = root_;
  for (size_t at = 0; at < decoded.size();) {
    const size_t end = std::min(decoded.find('/', at + 1), decoded.size());
    std::string key;
    for (size_t i = at + 1; i < end; ++i) {
      const bool escaped = decoded[i] == '~' && i + 1 < end;
      key.push_back(escaped ? (decoded[++i] == '1' ? '/' : '~') : decoded[i]);
    }
    const bool is_index = place->is_array() && !key.empty() && key.size() < 8 &&
                          key.find_first_not_of("0123456789") == std::string::npos;
    if (place->is_object() && place->contains(key)) {
      place = &(*place)[key];
    } else if (is_index && std::stoul(key) < place->size()) {
      place = &(*place)[std::stoul(key)];
    } else {
      return Refuse(from, "$ref", fmt::format("'{}' does not exist", reference));
    }
    at = end;
  }
  return place;
}

}  // namespace talon
