#include "text/tokenizer/metaspace.h"

#include "text/unicode.h"

namespace talon {

Result<MetaspaceOptions> MetaspaceOptions::Parse(const JsonFields& fields) {
  MetaspaceOptions options;
  TALON_ASSIGN_OR_RETURN(options.replacement, fields.String("replacement"));
  if (!SingleCodePoint(options.replacement)) {
    return InvalidArgument("{}: \"{}\" is not one character", fields.Where("replacement"),
                           options.replacement);
  }
  TALON_ASSIGN_OR_RETURN(options.split, fields.Bool("split", true));
  // Before prepend_scheme there was add_prefix_space.
  TALON_ASSIGN_OR_RETURN(const bool add_prefix_space, fields.Bool("add_prefix_space", true));
  options.prepend = add_prefix_space ? Prepend::kAlways : Prepend::kNever;
  if (fields.Find("prepend_scheme") == nullptr) return options;
  TALON_ASSIGN_OR_RETURN(const std::string scheme, fields.String("prepend_scheme"));
  if (scheme == "always") {
    options.prepend = Prepend::kAlways;
  } else if (scheme == "first") {
    options.prepend = Prepend::kFirst;
  } else if (scheme == "never") {
    options.prepend = Prepend::kNever;
  } else {
    return InvalidArgument("{}: \"{}\" is not always, first or never",
                           fields.Where("prepend_scheme"), scheme);
  }
  if (!add_prefix_space && options.prepend != Prepend::kNever) {
    return InvalidArgument("{}: contradicts add_prefix_space false",
                           fields.Where("prepend_scheme"));
  }
  return options;
}

}  // namespace talon
