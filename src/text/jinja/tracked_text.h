// A string that tracks the origin of each byte: the template itself (trusted) or the conversation
// (untrusted). Every operation preserves the origin.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace minisgl::text::jinja {

class Text {
 public:
  // Bytes of one origin, from the end of the previous run to `end`.
  struct Run {
    size_t end = 0;
    bool trusted = true;
  };

  Text() = default;
  explicit Text(std::string_view bytes, bool trusted = true) { Append(bytes, trusted); }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Memory of a copy in bytes: the text and its runs.
  size_t footprint() const { return bytes_.size() + runs_.size() * sizeof(Run); }
  const std::vector<Run>& runs() const { return runs_; }

  // True if the text is escaped HTML, the result of the filters safe and escape: text that is added
  // to it is escaped. Only copies preserve the mark.
  bool is_markup() const { return is_markup_; }
  void SetMarkup(bool is_markup) { is_markup_ = is_markup; }

  void Append(std::string_view bytes, bool trusted = true);
  void Append(const Text& other);
  // Appends bytes [begin, end) of `other`.
  void AppendRange(const Text& other, size_t begin, size_t end);
  Text Substr(size_t begin, size_t end) const;
  // True if the byte at `index` is trusted. REQUIRES: index < size().
  bool TrustedAt(size_t index) const;
  bool AllTrusted() const;

 private:
  std::string bytes_;
  std::vector<Run> runs_;  // in ascending order; neighbours differ; the last ends at size()
  bool is_markup_ = false;
};

// As std::string_view::find, in time linear in the sum of the sizes, not their product.
size_t Find(std::string_view text, std::string_view wanted, size_t from = 0);
// Returns the bytes of `text` in reverse order, for a search from the right with Find.
std::string Reversed(std::string_view text);

// Returns `text` with the special characters of HTML escaped.
Text EscapeHtml(const Text& text);

// Returns the number of code points, the length of a string in Python. An ill-formed byte counts as
// one.
size_t CountCharacters(std::string_view text);
// Returns the offset of each character, followed by the size of the text.
std::vector<size_t> CharacterOffsets(std::string_view text);

// True for white space as in Python's str.strip.
bool IsSpace(char32_t code_point);
// Returns the first code point of `text`, which is not empty, and its length in bytes. An
// ill-formed byte becomes U+DC80..DCFF.
char32_t FirstCodePoint(std::string_view text, size_t* length);

// Removes white space, or the characters of `chars` if it is not empty, from the left and right
// end.
Text Strip(const Text& text, std::string_view chars, bool left, bool right);

}  // namespace minisgl::text::jinja
