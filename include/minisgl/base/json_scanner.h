// Walks over JSON text without keeping any of it: for large texts from files that are not trusted,
// of which little is wanted. Takes no memory, and time in step with the text.
//
// What it walks over is checked as ParseJson() checks it (base/json.h), but for two things that
// take memory or a conversion: keys may come twice, and numbers may be larger than any double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "minisgl/base/status.h"

namespace minisgl {

class JsonScanner {
 public:
  enum class Token {
    kNull,
    kBool,
    kNumber,
    kString,
    kKey,  // of the member whose value comes next
    kBeginObject,
    kEndObject,
    kBeginArray,
    kEndArray,
    kEnd,  // the text is at its end, as it should be
  };

  // `text` outlives the scanner. REQUIRES that it is valid UTF-8, and depth_max <= kJsonDepthMax.
  JsonScanner(std::string_view text, int depth_max);

  // Goes to the next token; after kEnd to kEnd again. False at the first thing that is not JSON, or
  // is nested too deep, and from then on: status() says what.
  bool Next();
  const Status& status() const { return status_; }

  // The token that Next() went to.
  Token token() const { return token_; }
  // Its bytes in the text: of a string or key with its quotes and as it is written.
  std::string_view raw() const { return text_.substr(begin_, end_ - begin_); }
  size_t begin() const { return begin_; }
  // How many objects and arrays are open.
  int depth() const { return depth_; }

  // Goes past the value that comes next, whatever it is, and sets `raw` to its bytes. As Next().
  // REQUIRES that a value may come next: behind kKey, or within an array.
  bool SkipValue(std::string_view* raw);

 private:
  enum class Expect { kValue, kValueOrEnd, kKeyOrEnd, kCommaOrEnd, kNothing };

  bool Fail(size_t at);
  bool Take(Token token, size_t end);
  bool Open(bool is_object);
  bool Close(bool is_object);
  bool TakeValue();
  bool TakeWord(std::string_view word, Token token);
  bool TakeString(Token token);
  bool TakeNumber();
  bool TakeKey();
  void SkipSpace();
  // The byte at `at`; a NUL, which no JSON has outside of a string, behind the end.
  char At(size_t at) const { return at < text_.size() ? text_[at] : '\0'; }
  bool InObject() const { return (objects_ >> (depth_ - 1) & 1) != 0; }

  std::string_view text_;
  int depth_max_;
  size_t begin_ = 0, end_ = 0;  // the token
  size_t at_ = 0;               // what comes next
  Token token_ = Token::kEnd;
  Expect expect_ = Expect::kValue;
  int depth_ = 0;
  uint64_t objects_ = 0;  // which of the open ones are objects: one bit each, the outermost lowest
  Status status_;
};

// What a string or key means whose raw() this is.
std::string UnquoteJson(std::string_view raw);

// The kind of the value that begins with `raw`, in the words of Json::TypeName().
const char* JsonTypeName(std::string_view raw);

}  // namespace minisgl
