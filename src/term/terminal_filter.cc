// A terminal's parser (after Paul Williams' state diagram of the VT500) that outputs only printable
// text.
#include "term/terminal_filter.h"

#include "minisgl/base/utf8.h"

namespace minisgl::term {
namespace {

constexpr uint32_t kBell = 0x07, kCancel = 0x18, kSubstitute = 0x1A, kEscapeCode = 0x1B;
constexpr uint32_t kDcs = 0x90, kSos = 0x98, kCsiCode = 0x9B, kStringEnd = 0x9C, kOscCode = 0x9D,
                   kPm = 0x9E, kApc = 0x9F;
constexpr std::string_view kReplacement = "\uFFFD";

// Length of the ill-formed bytes that one U+FFFD replaces. REQUIRES that `text` does not begin with
// a complete character.
size_t IllFormedLength(std::string_view text) {
  size_t length = 1;
  while (length < text.size() && length < 3 && IsIncompleteUtf8(text.substr(0, length + 1)))
    ++length;
  return length;
}

}  // namespace

std::string TerminalFilter::Push(std::string_view text) {
  std::string joined;
  if (!pending_.empty()) {
    joined = std::move(pending_);
    pending_.clear();
    joined += text;
    text = joined;
  }
  std::string out;
  while (!text.empty()) {
    const auto byte = static_cast<uint8_t>(text[0]);
    size_t length = Utf8CharLength(text);
    if (length == 1) {
      Control(byte, &out);
    } else if (length == 2 && byte == 0xC2 && static_cast<uint8_t>(text[1]) < 0xA0) {
      Control(static_cast<uint8_t>(text[1]), &out);
    } else if (length > 0) {
      Printable(text.substr(0, length), &out);
    } else if (IsIncompleteUtf8(text)) {
      pending_ = text;
      break;
    } else if (byte >= 0x80 && byte < 0xA0) {
      length = 1;
      Control(byte, &out);
    } else {
      length = IllFormedLength(text);
      Printable(kReplacement, &out);
    }
    text.remove_prefix(length);
  }
  return out;
}

std::string TerminalFilter::Finish() {
  std::string out;
  if (!pending_.empty()) Printable(kReplacement, &out);
  pending_.clear();
  state_ = State::kGround;
  return out;
}

// A non-ASCII character is not part of any sequence: it ends one, except for control strings, which
// swallow it.
void TerminalFilter::Printable(std::string_view character, std::string* out) {
  if (InString()) return;
  state_ = State::kGround;
  if (!IsDisplayControl(character)) *out += character;
}

void TerminalFilter::StartEscape(uint32_t code) {
  switch (code) {
    case kCsiCode:
      state_ = State::kCsi;
      break;
    case kOscCode:
      state_ = State::kOsc;
      break;
    case kDcs:
    case kSos:
    case kPm:
    case kApc:
      state_ = State::kString;
      break;
    default:
      state_ = State::kGround;
  }
}

void TerminalFilter::Control(uint32_t code, std::string* out) {
  if (code == kEscapeCode) {  // cancels an open sequence
    state_ = State::kEscape;
    return;
  }
  if (code >= 0x80 && code < 0xA0) {
    // Inside a string, the other C1 controls are data; they are dropped as everywhere.
    if (!InString() || code == kStringEnd) StartEscape(code);
    return;
  }
  if (code == kCancel || code == kSubstitute || (code == kBell && state_ == State::kOsc)) {
    state_ = State::kGround;
    return;
  }
  if (InString()) {
    if (code != '\n') return;
    state_ = State::kGround;
  }
  if (code < 0x20 || code == 0x7F) {  // executed even inside a sequence, which continues
    if (code == '\n' || code == '\t') *out += static_cast<char>(code);
    return;
  }
  switch (state_) {
    case State::kGround:
      *out += static_cast<char>(code);
      break;
    case State::kEscape:
      if (code < 0x30) {
        state_ = State::kEscapeIntermediate;
      } else if (code == 'k') {  // screen and tmux: title up to a string terminator
        state_ = State::kString;
      } else {
        StartEscape(code >= 0x40 && code < 0x60 ? code + 0x40
                                                : 0);  // the 7-bit form of a C1 control
      }
      break;
    case State::kEscapeIntermediate:
      if (code >= 0x30) state_ = State::kGround;
      break;
    case State::kCsi:
      if (code >= 0x40) state_ = State::kGround;
      break;
    case State::kOsc:
    case State::kString:
      break;
  }
}

std::string FilterForTerminal(std::string_view text) {
  TerminalFilter filter;
  std::string out = filter.Push(text);
  return out + filter.Finish();
}

}  // namespace minisgl::term
