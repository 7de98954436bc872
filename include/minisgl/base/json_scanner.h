// Scans JSON text token by token without building values, for large untrusted texts of which only
// a few members are needed. Allocates no memory; time is linear in the text.
//
// Checks the text as ParseJson() does (base/json.h), with two exceptions that would take memory or
// a conversion: duplicate keys, and numbers outside the range of double, are accepted.
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
    kKey,  // of the member whose value follows
    kBeginObject,
    kEndObject,
    kBeginArray,
    kEndArray,
    kEnd,  // the text ends after one complete value
  };

  // `text` must outlive the scanner. REQUIRES valid UTF-8, and depth_max <= kJsonDepthMax.
  JsonScanner(std::string_view text, int depth_max);

  // Advances to the next token; after kEnd, stays there. Returns false at a syntax error or if
  // nesting exceeds depth_max, and in every later call: status() is the error.
  bool Next();
  const Status& status() const { return status_; }

  // The current token.
  Token token() const { return token_; }
  // Its bytes in the text. A string or key is with its quotes, and escapes are not decoded.
  std::string_view raw() const { return text_.substr(begin_, end_ - begin_); }
  size_t begin() const { return begin_; }
  // The number of open objects and arrays.
  int depth() const { return depth_; }

  // Skips the next value, of any kind, and sets `raw` to its bytes. Returns false as Next() does.
  // REQUIRES that a value may come next: after kKey, or within an array.
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
  // The byte at `at`; past the end a NUL, which JSON does not allow outside of strings.
  char At(size_t at) const { return at < text_.size() ? text_[at] : '\0'; }
  bool InObject() const { return (objects_ >> (depth_ - 1) & 1) != 0; }

  std::string_view text_;
  int depth_max_;
  size_t begin_ = 0, end_ = 0;  // the token
  size_t at_ = 0;               // the first byte not scanned yet
  Token token_ = Token::kEnd;
  Expect expect_ = Expect::kValue;
  int depth_ = 0;
  uint64_t objects_ = 0;  // bit i is set if the open container at depth i + 1 is an object
  Status status_;
};

// The characters of the string or key whose raw() this is.
std::string UnquoteJson(std::string_view raw);

// The type of the value that begins with `raw`, in the words of Json::TypeName().
const char* JsonTypeName(std::string_view raw);

}  // namespace minisgl
