// The kinds of decoder stage, and their construction from tokenizer.json.
#include "text/tokenizer_json/decoder.h"

#include <algorithm>
#include <utility>

#include "minisgl/base/utf8.h"
#include "text/piece.h"
#include "text/tokenizer_json/byte_level.h"
#include "text/tokenizer_json/decoder_word_piece.h"
#include "text/tokenizer_json/pattern.h"

namespace minisgl::text {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

using StagePointer = std::unique_ptr<DecoderStage>;
using KindPointer = std::unique_ptr<const SpellingDecoder::Kind>;

// Base of stages that need whole tokens: gathers the parts of each token.
class WholeTokenStage : public DecoderStage {
 public:
  void Push(std::string_view part, bool ends_token) final {
    token_ += part;
    if (!ends_token) return;
    PushToken(std::move(token_));
    token_.clear();
  }
  void Finish() override {
    FinishTokens();
    next->Finish();
  }

 protected:
  virtual void PushToken(std::string token) = 0;
  virtual void FinishTokens() {}

 private:
  std::string token_;
};

// Converts the bytes of a text to characters; ill-formed runs become U+FFFD.
class Utf8Stage : public WholeTokenStage {
 public:
  explicit Utf8Stage(bool spells_bytes) : spells_bytes_(spells_bytes) {}

 protected:
  void PushToken(std::string token) override {
    if (spells_bytes_) {
      if (auto bytes = BytesOfSpelling(token)) token = std::move(*bytes);
    }
    pending_ += token;
    // `end`: end of the complete characters.
    size_t end = pending_.size();
    for (size_t back = 1; back <= 3 && back <= pending_.size(); ++back) {
      const std::string_view tail = std::string_view(pending_).substr(pending_.size() - back);
      if ((tail[0] & 0xC0) == 0x80) continue;
      if (IsIncompleteUtf8(tail)) end = pending_.size() - back;
      break;
    }
    if (end == 0) return;
    next->Push(ReplaceInvalidUtf8(std::string_view(pending_).substr(0, end)), false);
    pending_.erase(0, end);
  }
  void FinishTokens() override { next->Push(ReplaceInvalidUtf8(pending_), true); }

 private:
  bool spells_bytes_;
  std::string pending_;
};

// A run of tokens "<0xNN>" spells the bytes of a text. If the text is ill-formed, each byte becomes
// U+FFFD.
class ByteFallbackStage : public WholeTokenStage {
 protected:
  void PushToken(std::string token) override {
    const int byte = ByteOf(token);
    if (byte >= 0) {
      bytes_ += static_cast<char>(byte);
      return;
    }
    Flush();
    next->Push(token, true);
  }
  void FinishTokens() override { Flush(); }

 public:
  static int ByteOf(std::string_view token) {
    const auto digit = [](char c) {
      if (c >= '0' && c <= '9') return c - '0';
      if (c >= 'A' && c <= 'F') return c - 'A' + 10;
      return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    };
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
    const int high = digit(token[3]), low = digit(token[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
  }

 private:
  void Flush() {
    if (bytes_.empty()) return;
    if (IsValidUtf8(bytes_)) {
      next->Push(bytes_, true);
    } else {
      for (size_t i = 0; i < bytes_.size(); ++i) next->Push(kReplacementCharacter, true);
    }
    bytes_.clear();
  }
  std::string bytes_;
};

// Joins all tokens to one.
class FuseStage : public DecoderStage {
 public:
  void Push(std::string_view part, bool /*ends_token*/) override { next->Push(part, false); }
  void Finish() override {
    next->Push("", true);
    next->Finish();
  }
};

// Replaces the matches of a pattern in each token.
class ReplaceStage : public WholeTokenStage {
 public:
  ReplaceStage(const Pattern& pattern, const std::string& by) : pattern_(pattern), by_(by) {}

 protected:
  void PushToken(std::string token) override {
    // If the pattern fails, the token stays unchanged: decoding has no errors.
    std::string replaced = token;
    if (pattern_.ReplaceAll(by_, &replaced).ok()) token = std::move(replaced);
    next->Push(token, true);
  }

 private:
  const Pattern& pattern_;
  const std::string& by_;
};

// ReplaceStage for tokens that were fused to a whole text: passes on all text that cannot be part
// of a match.
class ReplaceFusedStage : public DecoderStage {
 public:
  ReplaceFusedStage(const std::string& literal, const std::string& by)
      : literal_(literal), by_(by) {}
  void Push(std::string_view part, bool ends_token) override {
    pending_ += part;
    size_t at = 0;
    std::string out;
    for (size_t found = pending_.find(literal_); found != std::string::npos;
         found = pending_.find(literal_, at)) {
      out.append(pending_, at, found - at);
      out += by_;
      at = found + literal_.size();
    }
    const size_t held = ends_token ? 0 : literal_.size() - 1;
    if (pending_.size() - at > held) {
      size_t end = pending_.size() - held;
      while (end > at && end < pending_.size() && (pending_[end] & 0xC0) == 0x80) --end;
      out.append(pending_, at, end - at);
      at = end;
    }
    pending_.erase(0, at);
    if (ends_token || !out.empty()) next->Push(out, ends_token);
  }
  void Finish() override { next->Finish(); }

 private:
  const std::string& literal_;
  const std::string& by_;
  std::string pending_;
};

// Removes up to `start` characters from the beginning and `stop` from the end of each token.
class StripStage : public DecoderStage {
 public:
  // `skips_first`: the first token continues an earlier text, so its beginning is kept.
  StripStage(const std::string& character, size_t start, size_t stop, bool skips_first)
      : character_(character), start_(start), stop_(stop), stripped_(skips_first ? start : 0) {}

  void Push(std::string_view part, bool ends_token) override {
    while (stripped_ < start_ && part.starts_with(character_)) {
      part.remove_prefix(character_.size());
      ++stripped_;
    }
    if (!part.empty()) stripped_ = start_;
    std::string out;
    // Hold back up to stop_ characters, which are removed if the token ends here.
    for (; !part.empty(); part.remove_prefix(std::max<size_t>(Utf8CharLength(part), 1))) {
      if (part.starts_with(character_)) {
        if (held_ == stop_) {
          out += character_;
        } else {
          ++held_;
        }
        continue;
      }
      for (; held_ > 0; --held_) out += character_;
      out += part.substr(0, std::max<size_t>(Utf8CharLength(part), 1));
    }
    if (ends_token) {
      held_ = 0;
      stripped_ = 0;
    }
    if (ends_token || !out.empty()) next->Push(out, ends_token);
  }
  void Finish() override { next->Finish(); }

 private:
  const std::string& character_;
  size_t start_, stop_;
  size_t stripped_;  // characters removed from the beginning of this token; start_ if it is past
  size_t held_ = 0;
};

// Replaces the mark of a space by a space.
class MetaspaceStage : public DecoderStage {
 public:
  MetaspaceStage(const std::string& replacement, bool drops_first)
      : replacement_(replacement), drops_(drops_first) {}
  void Push(std::string_view part, bool ends_token) override {
    std::string out;
    while (!part.empty()) {
      if (part.starts_with(replacement_)) {
        if (!drops_) out += ' ';
        part.remove_prefix(replacement_.size());
      } else {
        out += part[0];
        part.remove_prefix(1);
      }
    }
    if (ends_token) drops_ = false;
    next->Push(out, ends_token);
  }
  void Finish() override { next->Finish(); }

 private:
  const std::string& replacement_;
  bool drops_;  // in the first token, the mark is dropped
};

// Replaces the suffix that marks the end of a word by a space, or by nothing at the end of the
// text.
class WordEndStage : public WholeTokenStage {
 public:
  explicit WordEndStage(const std::string& suffix) : suffix_(suffix) {}

 protected:
  void PushToken(std::string token) override {
    if (waits_) next->Push(Replaced(" "), true);
    token_ = std::move(token);
    waits_ = true;
  }
  void FinishTokens() override {
    if (waits_) next->Push(Replaced(""), true);
  }

 private:
  std::string Replaced(std::string_view by) const {
    std::string out;
    for (std::string_view rest = token_; !rest.empty();) {
      if (rest.starts_with(suffix_)) {
        out += by;
        rest.remove_prefix(suffix_.size());
      } else {
        out += rest[0];
        rest.remove_prefix(1);
      }
    }
    return out;
  }
  const std::string& suffix_;
  std::string token_;
  bool waits_ = false;
};

// Joins tokens with spaces.
class JoinStage : public WholeTokenStage {
 public:
  explicit JoinStage(bool at_start) : is_first_(at_start) {}

 protected:
  void PushToken(std::string token) override {
    if (!is_first_) token.insert(0, 1, ' ');
    next->Push(token, true);
    is_first_ = false;
  }

 private:
  bool is_first_;
};

class Utf8Kind : public SpellingDecoder::Kind {
 public:
  explicit Utf8Kind(bool spells_bytes) : spells_bytes_(spells_bytes) {}
  StagePointer Begin(bool, bool) const override {
    return std::make_unique<Utf8Stage>(spells_bytes_);
  }
  std::string Bytes(std::string part, bool) const override {
    if (!spells_bytes_) return part;
    auto bytes = BytesOfSpelling(part);
    return bytes ? std::move(*bytes) : part;
  }
  bool FusesTokens() const override { return true; }

 private:
  bool spells_bytes_;
};

class ByteFallbackKind : public SpellingDecoder::Kind {
 public:
  StagePointer Begin(bool, bool) const override { return std::make_unique<ByteFallbackStage>(); }
  std::string Bytes(std::string part, bool) const override {
    const int byte = ByteFallbackStage::ByteOf(part);
    return byte < 0 ? part : std::string(1, static_cast<char>(byte));
  }
};

class FuseKind : public SpellingDecoder::Kind {
 public:
  StagePointer Begin(bool, bool) const override { return std::make_unique<FuseStage>(); }
  std::string Bytes(std::string part, bool) const override { return part; }
  bool FusesTokens() const override { return true; }
};

class ReplaceKind : public SpellingDecoder::Kind {
 public:
  ReplaceKind(Pattern pattern, std::string by) : pattern_(std::move(pattern)), by_(std::move(by)) {}
  StagePointer Begin(bool, bool is_fused) const override {
    if (is_fused && pattern_.literal() != nullptr) {
      return std::make_unique<ReplaceFusedStage>(*pattern_.literal(), by_);
    }
    return std::make_unique<ReplaceStage>(pattern_, by_);
  }
  std::string Bytes(std::string part, bool) const override {
    if (!IsValidUtf8(part)) return part;
    std::string replaced = part;
    return pattern_.ReplaceAll(by_, &replaced).ok() ? replaced : part;
  }

 private:
  Pattern pattern_;
  std::string by_;
};

class StripKind : public SpellingDecoder::Kind {
 public:
  StripKind(std::string character, size_t start, size_t stop)
      : character_(std::move(character)), start_(start), stop_(stop) {}
  StagePointer Begin(bool at_start, bool is_fused) const override {
    return std::make_unique<StripStage>(character_, start_, stop_, is_fused && !at_start);
  }
  std::string Bytes(std::string part, bool is_fused) const override {
    if (is_fused) return part;
    std::string_view kept = part;
    for (size_t i = 0; i < start_ && kept.starts_with(character_); ++i) {
      kept.remove_prefix(character_.size());
    }
    for (size_t i = 0; i < stop_ && kept.ends_with(character_); ++i) {
      kept.remove_suffix(character_.size());
    }
    return std::string(kept);
  }
  bool DropsLeadingSpace(bool is_fused) const override {
    return is_fused && start_ > 0 && character_ == " ";
  }

 private:
  std::string character_;
  size_t start_, stop_;
};

class MetaspaceKind : public SpellingDecoder::Kind {
 public:
  MetaspaceKind(std::string replacement, bool prepends)
      : replacement_(std::move(replacement)), prepends_(prepends) {}
  StagePointer Begin(bool at_start, bool) const override {
    return std::make_unique<MetaspaceStage>(replacement_, prepends_ && at_start);
  }
  std::string Bytes(std::string part, bool) const override {
    std::string out;
    for (std::string_view rest = part; !rest.empty();) {
      const bool is_space = rest.starts_with(replacement_);
      out += is_space ? ' ' : rest[0];
      rest.remove_prefix(is_space ? replacement_.size() : 1);
    }
    return out;
  }
  bool DropsLeadingSpace(bool) const override { return prepends_; }

 private:
  std::string replacement_;
  bool prepends_;
};

class WordEndKind : public SpellingDecoder::Kind {
 public:
  explicit WordEndKind(std::string suffix) : suffix_(std::move(suffix)) {}
  StagePointer Begin(bool, bool) const override { return std::make_unique<WordEndStage>(suffix_); }
  std::string Bytes(std::string part, bool) const override {
    for (size_t at = part.find(suffix_); at != std::string::npos; at = part.find(suffix_, at + 1)) {
      part.replace(at, suffix_.size(), 1, ' ');
    }
    return part;
  }

 private:
  std::string suffix_;
};

class JoinKind : public SpellingDecoder::Kind {
 public:
  StagePointer Begin(bool at_start, bool) const override {
    return std::make_unique<JoinStage>(at_start);
  }
  std::string Bytes(std::string part, bool) const override { return part.insert(0, 1, ' '); }
};

Result<KindPointer> ReadReplaceKind(const JsonPlace& place) {
  MINISGL_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Read(place["pattern"]));
  MINISGL_ASSIGN_OR_RETURN(std::string content, place["content"].String());
  if (content.size() > kPieceBytesMax) {
    return place["content"].Error("has {} bytes; at most {} are supported", content.size(),
                                  kPieceBytesMax);
  }
  return KindPointer(new ReplaceKind(std::move(pattern), std::move(content)));
}

Result<KindPointer> ReadStripKind(const JsonPlace& place) {
  constexpr int64_t kCountMax = 4096;  // a token has no more bytes
  MINISGL_ASSIGN_OR_RETURN(std::string character, ReadOneCharacter(place["content"], " "));
  MINISGL_ASSIGN_OR_RETURN(const int64_t start, place["start"].Int(0, kCountMax, 0));
  MINISGL_ASSIGN_OR_RETURN(const int64_t stop, place["stop"].Int(0, kCountMax, 0));
  return KindPointer(
      new StripKind(std::move(character), static_cast<size_t>(start), static_cast<size_t>(stop)));
}

Result<KindPointer> ReadMetaspaceKind(const JsonPlace& place) {
  MINISGL_ASSIGN_OR_RETURN(std::string replacement,
                           ReadOneCharacter(place["replacement"], kSpaceSymbol));
  MINISGL_ASSIGN_OR_RETURN(const std::string scheme, place["prepend_scheme"].String("always"));
  MINISGL_ASSIGN_OR_RETURN(const bool adds, place["add_prefix_space"].Bool(true));
  if (scheme != "first" && scheme != "always" && scheme != "never") {
    return place["prepend_scheme"].Error("is \"{}\"; it must be first, always or never",
                                         Visible(scheme));
  }
  return KindPointer(new MetaspaceKind(std::move(replacement), adds && scheme != "never"));
}

Result<KindPointer> ReadBpeDecoder(const JsonPlace& place) {
  MINISGL_ASSIGN_OR_RETURN(std::string suffix, place["suffix"].String("</w>"));
  if (suffix.empty()) return place["suffix"].Error("is empty");
  return KindPointer(new WordEndKind(std::move(suffix)));
}

Status ReadKinds(const JsonPlace& place, int depth, std::vector<KindPointer>* kinds) {
  if (!place.json().is_object()) return place.MustBe("an object");
  MINISGL_ASSIGN_OR_RETURN(const std::string type, place["type"].String());
  if (type == "Sequence") {
    MINISGL_ASSIGN_OR_RETURN(const auto elements, place.Steps("decoders", depth));
    for (const JsonPlace& element : elements) {
      if (kinds->size() >= kStepsMax) return place.Error("has more than {} steps", kStepsMax);
      MINISGL_RETURN_IF_ERROR(ReadKinds(element, depth + 1, kinds));
    }
    return {};
  }
  Result<KindPointer> kind = [&]() -> Result<KindPointer> {
    if (type == "ByteLevel") return KindPointer(new Utf8Kind(/*spells_bytes=*/true));
    if (type == "ByteFallback") return KindPointer(new ByteFallbackKind());
    if (type == "Fuse") return KindPointer(new FuseKind());
    if (type == "Replace") return ReadReplaceKind(place);
    if (type == "Strip") return ReadStripKind(place);
    if (type == "Metaspace") return ReadMetaspaceKind(place);
    if (type == "BPEDecoder") return ReadBpeDecoder(place);
    if (type == "WordPiece") return ReadWordPieceDecoder(place);
    return place["type"].Error(
        "is \"{}\"; supported are ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, "
        "BPEDecoder, WordPiece and Sequence",
        Visible(type));
  }();
  if (!kind.ok()) return kind.status();
  kinds->push_back(std::move(*kind));
  return {};
}

}  // namespace

class DecoderRun::Output : public DecoderStage {
 public:
  void Push(std::string_view part, bool) override { text += part; }
  void Finish() override {}
  std::string text;
};

DecoderRun::DecoderRun(std::vector<std::unique_ptr<DecoderStage>> stages)
    : stages_(std::move(stages)), output_(std::make_unique<Output>()) {
  for (size_t i = 0; i < stages_.size(); ++i) {
    stages_[i]->next = i + 1 < stages_.size() ? stages_[i + 1].get() : output_.get();
  }
}

DecoderRun::~DecoderRun() = default;

std::string DecoderRun::Take() { return std::exchange(output_->text, std::string()); }

std::string DecoderRun::Push(std::string_view spelling) {
  (stages_.empty() ? output_.get() : stages_.front().get())->Push(spelling, true);
  return Take();
}

std::string DecoderRun::Finish() {
  (stages_.empty() ? output_.get() : stages_.front().get())->Finish();
  return Take();
}

Result<std::unique_ptr<const SpellingDecoder>> SpellingDecoder::Read(const JsonPlace& place) {
  auto decoder = std::make_unique<SpellingDecoder>();
  if (place.is_null()) {
    decoder->kinds_.push_back(std::make_unique<JoinKind>());
  } else {
    MINISGL_RETURN_IF_ERROR(ReadKinds(place, 0, &decoder->kinds_));
  }
  return std::unique_ptr<const SpellingDecoder>(std::move(decoder));
}

std::unique_ptr<const SpellingDecoder> SpellingDecoder::RawBytes() {
  auto decoder = std::make_unique<SpellingDecoder>();
  decoder->kinds_.push_back(std::make_unique<Utf8Kind>(/*spells_bytes=*/false));
  return decoder;
}

std::unique_ptr<DecoderRun> SpellingDecoder::Begin(bool at_start) const {
  std::vector<std::unique_ptr<DecoderStage>> stages;
  bool is_fused = false;
  for (const auto& kind : kinds_) {
    stages.push_back(kind->Begin(at_start, is_fused));
    is_fused = is_fused || kind->FusesTokens();
  }
  return std::make_unique<DecoderRun>(std::move(stages));
}

std::string SpellingDecoder::TokenBytes(std::string_view spelling) const {
  std::string bytes(spelling);
  bool is_fused = false;
  for (const auto& kind : kinds_) {
    bytes = kind->Bytes(std::move(bytes), is_fused);
    is_fused = is_fused || kind->FusesTokens();
  }
  return bytes;
}

bool SpellingDecoder::DropsLeadingSpace() const {
  bool is_fused = false;
  for (const auto& kind : kinds_) {
    if (kind->DropsLeadingSpace(is_fused)) return true;
    is_fused = is_fused || kind->FusesTokens();
  }
  return false;
}

}  // namespace minisgl::text
