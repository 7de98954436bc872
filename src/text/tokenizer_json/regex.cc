// Calls PCRE2 within limits and converts its errors to Status.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer_json/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "minisgl/base/utf8.h"

namespace minisgl::text {
namespace {

constexpr size_t kPatternBytesMax = size_t{64} << 10;  // DeepSeek's, a list of ranges: 6,000
constexpr uint32_t kHeapKibMax = 150 << 10;  // single-step backtracking over 1 MiB needs 130 MiB

// Upper bound on the steps for a text: a constant, and a rate per byte. A run of n spaces without a
// newline after it costs a few steps per space; nested repeats cost 2^n steps, `.*x` n per place.
constexpr uint64_t kMatchStepsMax = 10'000'000;
constexpr uint64_t kStepsPerByte = 64;
// PCRE2 does not report steps, only that a limit was reached, and its compiled code counts a run
// over many characters as one step. Therefore a match is first tried with few steps on a short part
// of the text. If that is not enough, it is tried again with four times as much, and the failed
// attempt is charged. Words need less than the first attempt, so they are not charged.
constexpr uint32_t kFreeSteps = 256;
constexpr size_t kFreeBytes = 256;
constexpr uint32_t kGrowth = 4;
// Number of matches between two polls of whether to continue the search.
constexpr size_t kMatchesPerQuestion = 4096;

thread_local MatchBudget* g_budget = nullptr;

std::string PcreMessage(int code) {
  char buffer[256] = {};
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(buffer), sizeof(buffer));
  return buffer;
}

Status OutOfMemory() { return MakeStatus(StatusCode::kOutOfMemory, "no memory for a pattern"); }

}  // namespace

struct PcreDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};
template <typename T>
using PcrePointer = std::unique_ptr<T, PcreDeleter>;

struct Regex::Code {
  PcrePointer<pcre2_code> pcre;
};

Regex::Regex(std::string pattern, std::shared_ptr<const Code> code)
    : pattern_(std::move(pattern)), code_(std::move(code)) {}

Result<Regex> Regex::Compile(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax) {
    return BadInput("the pattern has {} bytes; at most {} are supported", pattern.size(),
                    kPatternBytesMax);
  }
  MINISGL_ASSIGN_OR_RETURN(const std::string pcre, PcrePattern(pattern));
  const PcrePointer<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  if (!context) return OutOfMemory();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE place = 0;
  auto code = std::make_shared<Code>();
  code->pcre.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pcre.data()), pcre.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                 &error, &place, context.get()));
  if (!code->pcre) {
    return BadInput("the pattern \"{}\" is invalid: {}", Visible(pattern), PcreMessage(error));
  }
  // If the system does not allow generated code, PCRE2's interpreter is used.
  pcre2_jit_compile(code->pcre.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  return Regex(std::string(pattern), std::move(code));
}

Status Regex::FindAll(std::string_view text, std::vector<TextRange>* matches) const {
  return FindAllIn(text, {{0, text.size()}}, matches);
}

Status Regex::FindAllIn(std::string_view text, const std::vector<TextRange>& words,
                        std::vector<TextRange>* matches) const {
  MINISGL_ASSIGN_OR_RETURN(RegexSearch search, RegexSearch::Create(this, text));
  for (const TextRange& word : words) {
    search.Begin(word);
    for (bool more = true; more;) {
      MINISGL_ASSIGN_OR_RETURN(more, search.Next(kMatchesPerQuestion, matches));
    }
  }
  return {};
}

MatchBudget::MatchBudget(size_t text_bytes, std::function<bool()> goes_on)
    : left_(kMatchStepsMax + kStepsPerByte * text_bytes),
      goes_on_(std::move(goes_on)),
      outer_(std::exchange(g_budget, this)) {}

MatchBudget::~MatchBudget() { g_budget = outer_; }

MatchBudget* MatchBudget::Current() { return g_budget; }

bool MatchBudget::Spend(uint64_t steps) {
  if (steps > left_) return false;
  left_ -= steps;
  return true;
}

struct RegexSearch::State {
  const Regex* regex = nullptr;
  std::string_view text, subject;
  size_t word_begin = 0;
  size_t from = 0;
  bool after_match = false;  // a match ends at `from`
  size_t num_matches = 0;
  uint32_t step_limit = 0;  // the limit set last
  PcrePointer<pcre2_match_data> data;
  PcrePointer<pcre2_match_context> context;
  std::optional<MatchBudget> own_budget;
  MatchBudget* budget = nullptr;
};

RegexSearch::RegexSearch(std::unique_ptr<State> state) : state_(std::move(state)) {}
RegexSearch::RegexSearch(RegexSearch&&) noexcept = default;
RegexSearch::~RegexSearch() = default;

Result<RegexSearch> RegexSearch::Create(const Regex* regex, std::string_view text) {
  auto state = std::make_unique<State>();
  state->regex = regex;
  state->text = text;
  state->data.reset(pcre2_match_data_create_from_pattern(regex->code_->pcre.get(), nullptr));
  state->context.reset(pcre2_match_context_create(nullptr));
  if (!state->data || !state->context) return OutOfMemory();
  pcre2_set_heap_limit(state->context.get(), kHeapKibMax);
  if (MatchBudget::Current() == nullptr) state->own_budget.emplace(text.size());
  state->budget = MatchBudget::Current();
  return RegexSearch(std::move(state));
}

void RegexSearch::Begin(const TextRange& word) {
  state_->subject = state_->text.substr(word.begin, word.end - word.begin);
  state_->word_begin = word.begin;
  state_->from = 0;
  state_->after_match = false;
}

Status RegexSearch::TooManySteps() const {
  return BadInput("the pattern \"{}\" takes too many steps on a text of {} bytes",
                  Visible(state_->regex->pattern_), state_->text.size());
}

Result<bool> RegexSearch::Match() {
  State& state = *state_;
  const std::string_view subject = state.subject;
  const auto* units = reinterpret_cast<PCRE2_SPTR>(subject.data());
  const pcre2_code* pcre = state.regex->code_->pcre.get();
  uint32_t steps = kFreeSteps;
  size_t bytes = kFreeBytes;
  uint32_t options = PCRE2_NO_UTF_CHECK;
  while (true) {
    size_t end = subject.size() - state.from <= bytes ? subject.size() : state.from + bytes;
    while (end < subject.size() && (subject[end] & 0xC0) == 0x80) ++end;
    const bool is_whole = end == subject.size();
    if (steps != state.step_limit) pcre2_set_match_limit(state.context.get(), steps);
    state.step_limit = steps;
    // With partial matching, PCRE2 reports if a match could depend on text after `end`.
    const int found =
        pcre2_match(pcre, units, end, state.from, options | (is_whole ? 0 : PCRE2_PARTIAL_HARD),
                    state.data.get(), state.context.get());
    if (found >= 0) return true;
    if (found == PCRE2_ERROR_NOMATCH) {
      if (is_whole) return false;
      state.from = end;
      state.after_match = false;
      bytes = kFreeBytes;
    } else if (found == PCRE2_ERROR_PARTIAL) {
      if (!state.budget->Spend(end - state.from)) return TooManySteps();
      bytes *= kGrowth;
    } else if (found == PCRE2_ERROR_MATCHLIMIT) {
      if (!state.budget->Spend(steps) || !state.budget->GoesOn()) return TooManySteps();
      steps = static_cast<uint32_t>(std::min<uint64_t>(uint64_t{steps} * kGrowth, UINT32_MAX));
    } else if (found == PCRE2_ERROR_JIT_STACKLIMIT && (options & PCRE2_NO_JIT) == 0) {
      options |= PCRE2_NO_JIT;  // the interpreter uses the heap
    } else {
      return BadInput("the pattern \"{}\" fails on a text of {} bytes: {}",
                      Visible(state.regex->pattern_), state.text.size(), PcreMessage(found));
    }
  }
}

Result<bool> RegexSearch::Next(size_t count, std::vector<TextRange>* matches) {
  State& state = *state_;
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state.data.get());
  while (count > 0) {
    if (state.from > state.subject.size()) return false;
    MINISGL_ASSIGN_OR_RETURN(const bool found, Match());
    if (!found) return false;
    if (bounds[0] > bounds[1] || bounds[0] < state.from) {
      return BadInput("the pattern \"{}\" fails on a text of {} bytes: it moves backwards",
                      Visible(state.regex->pattern_), state.text.size());
    }
    if (bounds[0] == bounds[1] && bounds[1] == state.from && state.after_match) {
      state.from += std::max<size_t>(Utf8CharLength(state.subject.substr(state.from)), 1);
      state.after_match = false;
      continue;
    }
    matches->push_back({state.word_begin + bounds[0], state.word_begin + bounds[1]});
    state.from = bounds[1];
    state.after_match = true;
    --count;
    if (++state.num_matches % kMatchesPerQuestion == 0 && !state.budget->GoesOn()) {
      return TooManySteps();
    }
  }
  return true;
}

}  // namespace minisgl::text
