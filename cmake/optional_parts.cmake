# Libraries that Talon does without, at a price. Sets TALON_HAS_HIGHWAY, TALON_HAS_TOKENIZER and
# TALON_MISSING_TEXT_PARTS.

option(TALON_WITH_HIGHWAY "Use Highway where it is found" ON)
option(TALON_WITH_PCRE2 "Use PCRE2 where it is found" ON)
option(TALON_WITH_UTF8PROC "Use utf8proc where it is found" ON)

# One line for each missing part and what is lost.
function(talon_lacks part lost)
  message(STATUS "Built without ${part}: ${lost}")
endfunction()

find_package(PkgConfig QUIET)

# talon_optional(NAME OPTION MODULE): sets TALON_HAS_<OPTION>; the target is PkgConfig::NAME.
function(talon_optional name option module)
  set(found OFF)
  if(TALON_WITH_${option} AND PKG_CONFIG_FOUND)
    pkg_check_modules(${name} QUIET IMPORTED_TARGET GLOBAL ${module})
    set(found ${${name}_FOUND})
  endif()
  set(TALON_HAS_${option} ${found} PARENT_SCOPE)
endfunction()

talon_optional(hwy HIGHWAY libhwy)
talon_optional(pcre2 PCRE2 libpcre2-8)
talon_optional(utf8proc UTF8PROC libutf8proc)

if(NOT TALON_HAS_HIGHWAY)
  talon_lacks("Highway" "the CPU backend is a portable one, slow and on one thread")
endif()

set(TALON_MISSING_TEXT_PARTS "")
if(NOT TALON_HAS_PCRE2)
  talon_lacks("PCRE2" "no tokenizer, prompts are token ids")
  list(APPEND TALON_MISSING_TEXT_PARTS "PCRE2")
endif()
if(NOT TALON_HAS_UTF8PROC)
  talon_lacks("utf8proc" "no tokenizer, prompts are token ids")
  list(APPEND TALON_MISSING_TEXT_PARTS "utf8proc")
endif()
if(TALON_MISSING_TEXT_PARTS)
  set(TALON_HAS_TOKENIZER OFF)
  list(LENGTH TALON_MISSING_TEXT_PARTS count)
  list(JOIN TALON_MISSING_TEXT_PARTS " and " TALON_MISSING_TEXT_PARTS)
  if(count EQUAL 1)
    string(APPEND TALON_MISSING_TEXT_PARTS " was")
  else()
    string(APPEND TALON_MISSING_TEXT_PARTS " were")
  endif()
else()
  set(TALON_HAS_TOKENIZER ON)
endif()
