// The parts of an answer's text: what of it is reasoning, what is the answer, and what neither.
//
// The text of an answer is what its tokens spell, tags included. Its parts say in order how many
// bytes of it are of which kind. Without parts all of it is the answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minisgl {

// White space beside a tag belongs to neither side.
inline constexpr std::string_view kBesideTags = " \t\r\n";

enum class PartKind : uint8_t {
  kText,       // the answer
  kThought,    // reasoning
  kTag,        // a tag, or the header of a message: neither
  kSpace,      // white space between a tag and the answer: no part of it
  kBareClose,  // a closing tag without an opening one: all before it is reasoning
};

struct TextPart {
  PartKind kind = PartKind::kText;
  size_t size = 0;  // in bytes
  bool operator==(const TextPart&) const = default;
};
using TextParts = std::vector<TextPart>;

// A part with its text.
struct AnswerPart {
  PartKind kind = PartKind::kText;
  std::string text;
};

// Appends a part, which may continue the last one. One of no bytes is left out.
void AddPart(PartKind kind, size_t size, TextParts* parts);
// Returns the parts of what follows the first `begin` bytes.
TextParts PartsFrom(const TextParts& parts, size_t begin);

// Newly decided output: text known to be reasoning, followed by text known to be the answer.
struct ReasoningPiece {
  std::string reasoning, text;
};

// Makes pieces of the parts of one answer as they come. White space at the ends of the reasoning is
// dropped, and a blank line divides one thought from the next. What was given as answer stays so if
// a bare closing tag follows. Used by one thread.
class PieceMaker {
 public:
  // Takes more text and its parts.
  ReasoningPiece Push(std::string_view text, const TextParts& parts);

 private:
  void AddThought(std::string_view thought, std::string* reasoning);

  bool any_thought_ = false;  // more than white space
  bool begins_another_ = false;
  std::string blanks_;  // at the end of the reasoning so far
};

// Returns the pieces of a whole answer.
ReasoningPiece SplitParts(std::string_view text, const TextParts& parts);
// As SplitParts, but keeps white space, so that a template given the two pieces of one thought and
// its answer reproduces the text exactly.
ReasoningPiece SplitPartsExactly(std::string_view text, const TextParts& parts);

}  // namespace minisgl
