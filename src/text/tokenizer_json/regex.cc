// Calls of PCRE2, its limits and its errors.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer_json/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <utility>

#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

constexpr size_t kPatternBytesMax = size_t{64} << 10;  // DeepSeek's, which lists ranges, has 6,000
// A run of n spaces that no newline follows costs a few steps for each; nested repeats cost 2^n.
constexpr uint32_t kMatchStepsMax = 10'000'000;
constexpr uint32_t kStepsPerByte = 8;
constexpr uint32_t kHeapKibMax = 512 << 10;  // backtracking over 1 MiB one by one takes 130 MiB

std::string PcreMessage(int code) {
  char buffer[256] = {};
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(buffer), sizeof(buffer));
  return buffer;
}

struct Deleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};
template <typename T>
using Owned = std::unique_ptr<T, Deleter>;

Status OutOfMemory() { return MakeStatus(StatusCode::kOutOfMemory, "no memory for a pattern"); }

}  // namespace

struct Regex::Code {
  Owned<pcre2_code> pcre;
};

Regex::Regex(std::string pattern, std::shared_ptr<const Code> code)
    : pattern_(std::move(pattern)), code_(std::move(code)) {}

Result<Regex> Regex::Compile(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax) {
    return BadInput("the pattern has {} bytes; at most {} are supported", pattern.size(),
                    kPatternBytesMax);
  }
  MINISGL_ASSIGN_OR_RETURN(const std::string pcre, PcrePattern(pattern));
  const Owned<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  if (!context) return OutOfMemory();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE place = 0;
  auto code = std::make_shared<Code>();
  code->pcre.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pcre.data()), pcre.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                 &error, &place, context.get()));
  if (!code->pcre) {
    return BadInput("the pattern \"{}\" is refused: {}", Visible(pattern), PcreMessage(error));
  }
  // Where a system allows no code to be made, the interpreter does the same.
  pcre2_jit_compile(code->pcre.get(), PCRE2_JIT_COMPLETE);
  return Regex(std::string(pattern), std::move(code));
}

Status Regex::FindAll(std::string_view text, std::vector<TextRange>* matches) const {
  return FindAllIn(text, {{0, text.size()}}, matches);
}

Status Regex::FindAllIn(std::string_view text, const std::vector<TextRange>& words,
                        std::vector<TextRange>* matches) const {
  const pcre2_code* pcre = code_->pcre.get();
  const Owned<pcre2_match_data> data(pcre2_match_data_create_from_pattern(pcre, nullptr));
  const Owned<pcre2_match_context> context(pcre2_match_context_create(nullptr));
  if (!data || !context) return OutOfMemory();
  const auto text_bytes = static_cast<uint32_t>(std::min<size_t>(text.size(), size_t{256} << 20));
  pcre2_set_match_limit(context.get(), kMatchStepsMax + text_bytes * kStepsPerByte);
  pcre2_set_heap_limit(context.get(), kHeapKibMax);
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());

  for (const TextRange& word : words) {
    const std::string_view subject = text.substr(word.begin, word.end - word.begin);
    const auto* units = reinterpret_cast<PCRE2_SPTR>(subject.data());
    size_t from = 0;
    bool behind_match = false;  // a match ends at `from`
    while (from <= subject.size()) {
      uint32_t options = PCRE2_NO_UTF_CHECK;
      int found =
          pcre2_match(pcre, units, subject.size(), from, options, data.get(), context.get());
      if (found == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter's memory is the heap
        options |= PCRE2_NO_JIT;
        found = pcre2_match(pcre, units, subject.size(), from, options, data.get(), context.get());
      }
      if (found == PCRE2_ERROR_NOMATCH) break;
      if (found < 0 || bounds[0] > bounds[1] || bounds[0] < from) {
        return BadInput("the pattern \"{}\" fails on a text of {} bytes: {}", Visible(pattern_),
                        subject.size(), found < 0 ? PcreMessage(found) : "it moves backwards");
      }
      if (bounds[0] == bounds[1] && bounds[1] == from && behind_match) {
        from += std::max<size_t>(Utf8CharLength(subject.substr(from)), 1);
        behind_match = false;
        continue;
      }
      matches->push_back({word.begin + bounds[0], word.begin + bounds[1]});
      from = bounds[1];
      behind_match = true;
    }
  }
  return {};
}

}  // namespace minisgl
