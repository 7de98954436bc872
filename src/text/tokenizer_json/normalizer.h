// Rewrites a text before it is cut into words ("normalizer" of tokenizer.json).
//
// Immutable; thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "minisgl/base/status.h"
#include "text/tokenizer_json/json_place.h"

namespace minisgl::text {

class Normalizer {
 public:
  // Reads a normalizer from an object with "type", or from null (returns a null pointer: text is
  // not changed).
  static Result<std::unique_ptr<const Normalizer>> Read(const JsonPlace& place);

  virtual ~Normalizer() = default;
  // Normalises well-formed UTF-8 to well-formed UTF-8. kBadInput if the result would exceed
  // kTextBytesMax or a pattern takes too many steps.
  virtual Status Run(std::string* text) const = 0;
  // Upper bound on the factor by which a text shrinks: n bytes become at least n / ShrinkMax(). 0:
  // unbounded, because characters may be dropped.
  virtual size_t ShrinkMax() const { return 0; }
  // True if the result spells the text byte by byte (byte_level.h).
  virtual bool SpellsBytes() const { return false; }
};

}  // namespace minisgl::text
