#include "text/tool_calls/call_reader.h"

#include <algorithm>
#include <utility>

#include "text/tool_calls/json_span.h"

namespace minisgl::text {
namespace {

// An unfinished call is read again as text comes: at once up to so many bytes, then if the mark of
// an end comes, then if the text has doubled.
constexpr size_t kShortCall = 64;
constexpr uint64_t kStepsPerByte = 32, kStepsAtOnce = 4096;
// Bytes that may be examined beyond those taken, for each byte of text and in all, before the rest
// counts as content. Only texts made to that end have so many broken calls within each other.
constexpr uint64_t kExcessPerByte = 8, kExcessAtOnce = 65536;

class MarkedReader : public CallReader {
 public:
  explicit MarkedReader(std::unique_ptr<CallDialect> dialect) : dialect_(std::move(dialect)) {}

  ToolCallPiece Push(std::string_view text, const TextParts& parts) override {
    ToolCallPiece piece;
    piece.reasoning = thoughts_.Push(text, parts).reasoning;
    size_t at = 0;
    for (const TextPart& part : parts) {
      const std::string_view own = text.substr(std::min(at, text.size()), part.size);
      at += own.size();
      if (part.kind == PartKind::kText) held_ += own;
    }
    held_ += text.substr(std::min(at, text.size()));
    received_ += text.size();
    Take(/*at_end=*/false, &piece);
    return piece;
  }

  ToolCallPiece Finish() override {
    ToolCallPiece piece;
    Take(/*at_end=*/true, &piece);
    piece.content += joiner_.Finish();
    return piece;
  }

  uint64_t num_steps() const override { return steps_; }
  void NoteContent(std::vector<ContentRange>* ranges) override { ranges_ = ranges; }

 private:
  void Take(bool at_end, ToolCallPiece* piece) {
    while (at_ < held_.size()) {
      if (!TakeText(piece) || !TakeCall(at_end, piece)) break;
    }
    held_.erase(0, at_);
    at_ = 0;
  }

  // Takes what stands before a mark. Returns false if no mark follows.
  bool TakeText(ToolCallPiece* piece) {
    size_t mark = std::string::npos;
    if (dialect_ != nullptr && !gave_up_) mark = NextMark();
    const size_t end = std::min(mark, held_.size());
    GiveText(end - at_, piece);
    return mark != std::string::npos;
  }

  size_t NextMark() {
    if (at_mark_) return at_;
    const std::string_view text = std::string_view(held_).substr(at_);
    const size_t mark = dialect_->FindMark(text, 0, line_begins_);
    steps_ += std::min(mark, text.size());
    if (mark == std::string_view::npos) return std::string::npos;
    at_mark_ = true;
    tried_ = 0;
    return at_ + mark;
  }

  // Returns false if more text is needed.
  bool TakeCall(bool at_end, ToolCallPiece* piece) {
    const std::string_view text = std::string_view(held_).substr(at_);
    if (!at_end && !IsWorthReading(text)) return false;
    CallAttempt attempt = dialect_->Read(text, at_end);
    tried_ = text.size();
    if (attempt.kind == CallAttempt::Kind::kMore) {
      steps_ += text.size();
      repeated_ += text.size();
      return false;
    }
    steps_ += attempt.examined;
    at_mark_ = false;
    if (attempt.kind == CallAttempt::Kind::kText) {
      GiveText(attempt.size, piece);
      NoteExcess(attempt.examined - std::min(attempt.size, attempt.examined));
      return true;
    }
    at_ += attempt.size;
    taken_ += attempt.size;
    line_begins_ = false;
    joiner_.AddMarks();
    std::ranges::move(attempt.calls, std::back_inserter(piece->calls));
    return true;
  }

  bool IsWorthReading(std::string_view text) const {
    if (tried_ == 0 || text.size() >= 2 * tried_) return true;
    if (repeated_ + text.size() > kStepsAtOnce + kStepsPerByte * received_) return false;
    if (text.size() <= kShortCall) return true;
    return std::ranges::any_of(dialect_->Ends(), [&](std::string_view end) {
      const size_t from = tried_ - std::min(tried_, end.size() - 1);
      return text.find(end, from) != std::string_view::npos;
    });
  }

  void GiveText(size_t size, ToolCallPiece* piece) {
    if (size == 0) return;
    const std::string_view text = std::string_view(held_).substr(at_, size);
    const size_t last = text.find_last_not_of(" \t");
    line_begins_ = last == std::string_view::npos ? line_begins_ : text[last] == '\n';
    joiner_.AddText(text, &piece->content);
    if (ranges_ != nullptr) ranges_->push_back({taken_, taken_ + size});
    at_ += size;
    taken_ += size;
  }

  // A function of the text alone, so that it does not matter how the text comes.
  void NoteExcess(uint64_t bytes) {
    excess_ += bytes;
    gave_up_ = excess_ > kExcessAtOnce + kExcessPerByte * taken_;
  }

  std::unique_ptr<CallDialect> dialect_;
  PieceMaker thoughts_;
  ContentJoiner joiner_;
  std::string held_;
  size_t at_ = 0;  // of held_: what is before it is taken
  bool at_mark_ = false;
  bool line_begins_ = true;
  bool gave_up_ = false;
  size_t tried_ = 0;  // bytes of the call at the last try
  std::vector<ContentRange>* ranges_ = nullptr;
  uint64_t received_ = 0, taken_ = 0, steps_ = 0, repeated_ = 0, excess_ = 0;
};

}  // namespace

std::unique_ptr<CallReader> MakeMarkedReader(std::unique_ptr<CallDialect> dialect) {
  return std::make_unique<MarkedReader>(std::move(dialect));
}

void ContentJoiner::AddText(std::string_view text, std::string* content) {
  const size_t begin = SkipSpace(text, 0);
  blanks_ += text.substr(0, begin);
  text.remove_prefix(begin);
  if (text.empty()) return;
  if (!after_marks_) {
    *content += blanks_;
  } else if (any_content_) {
    *content += between_.empty() ? blanks_ : between_;
  }
  const size_t end = text.find_last_not_of(kJsonSpace) + 1;
  *content += text.substr(0, end);
  blanks_ = text.substr(end);
  any_content_ = true;
  after_marks_ = false;
}

void ContentJoiner::AddMarks() {
  if (!after_marks_) between_ = std::exchange(blanks_, "");
  blanks_.clear();
  after_marks_ = true;
}

std::string ContentJoiner::Finish() {
  return after_marks_ ? std::string() : std::exchange(blanks_, std::string());
}

}  // namespace minisgl::text
