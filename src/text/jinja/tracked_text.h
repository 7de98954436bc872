// A string of a template that knows where its bytes came from: written in the template (trusted) or
// read out of a conversation (untrusted). Every operation keeps that, byte for byte.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace minisgl::text::jinja {

class Text {
 public:
  // Bytes up to `end` (from the run before) of one origin.
  struct Run {
    size_t end = 0;
    bool trusted = true;
  };

  Text() = default;
  explicit Text(std::string_view bytes, bool trusted = true) { Append(bytes, trusted); }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // The bytes of memory that a copy takes: the text and its runs.
  size_t footprint() const { return bytes_.size() + runs_.size() * sizeof(Run); }
  const std::vector<Run>& runs() const { return runs_; }

  // Whether it is escaped HTML, as the filters safe and escape make it: what is added to such a
  // text is escaped. Kept by copies alone.
  bool is_markup() const { return is_markup_; }
  void SetMarkup(bool is_markup) { is_markup_ = is_markup; }

  void Append(std::string_view bytes, bool trusted = true);
  void Append(const Text& other);
  // Appends bytes [begin, end) of `other`.
  void AppendRange(const Text& other, size_t begin, size_t end);
  Text Substr(size_t begin, size_t end) const;
  // Whether the byte at `index` is trusted. REQUIRES index < size().
  bool TrustedAt(size_t index) const;
  bool AllTrusted() const;

 private:
  std::string bytes_;
  std::vector<Run> runs_;  // by rising end; neighbours differ; the last ends at size()
  bool is_markup_ = false;
};

// As std::string_view::find, in time that grows with the sum of the sizes, not their product.
size_t Find(std::string_view text, std::string_view wanted, size_t from = 0);
// `text` from its last byte to its first: Find in it searches from the right.
std::string Reversed(std::string_view text);

// `text` with the characters that HTML gives a meaning replaced.
Text EscapeHtml(const Text& text);

// Code points, as Python counts a string. An ill-formed byte counts as one.
size_t CountCharacters(std::string_view text);
// The byte where each character begins, and the size at last.
std::vector<size_t> CharacterOffsets(std::string_view text);

// White space as Python's str.strip has it.
bool IsSpace(char32_t code_point);
// The code point that `text` (not empty) begins with; an ill-formed byte stands for itself in
// U+DC80..DCFF.
char32_t FirstCodePoint(std::string_view text, size_t* length);

// `text` without white space (or without the characters of `chars` where it is not empty) at its
// ends.
Text Strip(const Text& text, std::string_view chars, bool left, bool right);

}  // namespace minisgl::text::jinja
