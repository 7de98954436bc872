// Rewrites text before it is cut into words ("normalizer" of tokenizer.json).
//
// Immutable; usable from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "minisgl/base/status.h"
#include "text/tokenizer_json/json_place.h"

namespace minisgl::text {

class Normalizer {
 public:
  // `place` holds null (a null pointer comes back: text stays as it is) or an object with "type".
  static Result<std::unique_ptr<const Normalizer>> Read(const JsonPlace& place);

  virtual ~Normalizer() = default;
  // Well-formed UTF-8 in, well-formed UTF-8 out. kBadInput where the result would be past
  // kTextBytesMax or a pattern takes too many steps.
  virtual Status Run(std::string* text) const = 0;
  // How many bytes at most become one: a text of n gives n / ShrinkMax() at least. 0: any number,
  // some may be dropped.
  virtual size_t ShrinkMax() const { return 0; }
  // Whether the text is spelled byte by byte (byte_level.h).
  virtual bool SpellsBytes() const { return false; }
};

}  // namespace minisgl::text
