// Two readers: LinesReader for plain lines, EditingReader with libedit.
//
// libedit gets characters from a function of this file, which waits for input and signals together
// and recognizes a bracketed paste. A paste that does not fit on a line is represented by a label
// (labelled_texts.h) and inserted when the line is finished.
#include "chat/line_editor.h"

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>
#include <wchar.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "chat/chat_history.h"
#include "chat/labelled_texts.h"
#include "minisgl/base/environment.h"
#include "minisgl/base/utf8.h"
#include "term/byte_source.h"

namespace minisgl::chat {
namespace {

constexpr std::string_view kBold = "\x1b[1m", kPlain = "\x1b[0m";
constexpr std::string_view kPasteOn = "\x1b[?2004h", kPasteOff = "\x1b[?2004l";
constexpr std::string_view kPasteBegin = "\x1b[200~", kPasteEnd = "\x1b[201~";
constexpr char kEscape = '\x1b';
constexpr size_t kKeyBytesMax = 32;
constexpr int kEscapeWait_ms = 50;  // the bytes of a key arrive together; a typed ESC arrives alone
constexpr size_t kPasteInLineMax = 1024;  // a longer paste is represented by a label

constexpr wchar_t kRubout = 0x7F;  // the key that deletes the character before the cursor
// Interval at which the status before the prompt is refreshed while nothing is typed.
constexpr int kStatusWait_ms = 500;

// Reader for a pipe, a file, or a terminal that cannot move its cursor.
class LinesReader : public PromptReader {
 public:
  explicit LinesReader(term::SignalWatch* signals) : source_(signals) {}

  ReadLineResult ReadLine(const std::string& prompt) override {
    if (term::IsTerminal(STDIN_FILENO)) {
      FILE* out = term::IsTerminal(STDOUT_FILENO) ? stdout : stderr;
      std::fputs(WithStatus(prompt).c_str(), out);
      std::fflush(out);
    }
    std::string line;
    while (true) {
      char byte = 0;
      switch (source_.Next(&byte)) {
        case term::ByteOutcome::kInterrupted:
          return {LineOutcome::kInterrupted, "", line.empty()};
        case term::ByteOutcome::kTerminated:
          return {LineOutcome::kTerminated};
        case term::ByteOutcome::kTimeout:
        case term::ByteOutcome::kResized:
        case term::ByteOutcome::kStopped:
        case term::ByteOutcome::kContinued:
          continue;
        case term::ByteOutcome::kEnd:
          if (line.empty()) return {LineOutcome::kEnd};
          return Line(line);
        case term::ByteOutcome::kByte:
          break;
      }
      if (byte != '\n') {
        line += byte;
        continue;
      }
      if (line.ends_with('\r')) line.pop_back();
      return Line(line);
    }
  }

  size_t DropTypeAhead() override { return source_.DropAhead(); }

 private:
  ReadLineResult Line(const std::string& line) {
    if (!IsValidUtf8(line)) replaced_bytes_ = true;
    return {LineOutcome::kLine, ReplaceInvalidUtf8(line)};
  }

  term::ByteSource source_;
};

// Key sequences that are passed to libedit.
constexpr std::string_view kKeys[] = {
    "\x1b[A",    "\x1b[B",    "\x1b[C",    "\x1b[D",    "\x1b[H",  "\x1b[F",  // arrows, Home, End
    "\x1b[1~",   "\x1b[3~",   "\x1b[4~",   "\x1b[7~",   "\x1b[8~",            // Home, Delete, End
    "\x1b[1;5C", "\x1b[1;5D", "\x1b[1;3C", "\x1b[1;3D",                       // by word
};
bool IsKnownKey(std::string_view bytes) {
  return std::find(std::begin(kKeys), std::end(kKeys), bytes) != std::end(kKeys);
}

class EditingReader : public PromptReader {
 public:
  EditingReader(term::SignalWatch* signals, const std::string& history_path, bool keeps_pastes)
      : signals_(*signals),
        source_(signals, term::InterruptByte()),
        history_file_(history_path),
        keeps_pastes_(keeps_pastes) {
    // libedit converts its wide characters by the locale, but the program's text is always UTF-8.
    std::setlocale(LC_CTYPE, "");
    if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
    out_ = term::IsTerminal(STDOUT_FILENO) ? stdout : stderr;
    bold_prompt_ = term::AllowsColour(fileno(out_));
    history_ = history_init();
    HistEvent event;
    history(history_, &event, H_SETSIZE, static_cast<int>(HistoryFile::kEntriesMax));
    history(history_, &event, H_SETUNIQUE, 1);
    for (const HistoryEntry& entry : history_file_.Load()) {
      history(history_, &event, H_ENTER, texts_.Adopt(entry).c_str());
    }
    no_errors_ = std::fopen("/dev/null", "we");
    edit_ = el_init("minisgl", stdin, out_, no_errors_ == nullptr ? stderr : no_errors_);
    // A terminal that the system has no description of would be edited as a dumb one. All that can
    // move their cursor understand the sequences of xterm, which the program writes as well.
    if (!term::HasDescription(EnvironmentVariable("TERM"))) el_set(edit_, EL_TERMINAL, "xterm");
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_PROMPT_ESC, &EditingReader::Prompt, '\1');
    el_set(edit_, EL_HIST, history, history_);
    el_set(edit_, EL_GETCFN, &EditingReader::GetCharacter);
    // Disables insertion and deletion by the terminal: libedit counts characters instead of columns
    // there, so that wide characters would be garbled. Without it, libedit rewrites the rest of the
    // line.
    for (const char* capability : {"ic", "im", "ei", "IC", "dc", "dm", "ed", "DC"}) {
      el_set(edit_, EL_SETTC, capability, "", nullptr);
    }
    el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    for (const char* key : {"\\e[1;5C", "\\e[1;3C"}) {
      el_set(edit_, EL_BIND, key, "em-next-word", nullptr);
    }
    for (const char* key : {"\\e[1;5D", "\\e[1;3D"}) {
      el_set(edit_, EL_BIND, key, "ed-prev-word", nullptr);
    }
    // (The narrow variant of this call copies both texts and never frees them.)
    el_wset(edit_, EL_ADDFN, L"complete", L"Complete what stands before the cursor",
            &EditingReader::Complete);
    el_set(edit_, EL_BIND, "^I", "complete", nullptr);
  }
  ~EditingReader() override {
    el_end(edit_);
    history_end(history_);
    if (no_errors_ != nullptr) std::fclose(no_errors_);
  }

  ReadLineResult ReadLine(const std::string& prompt) override {
    bare_prompt_ = prompt;
    SetPrompt();
    has_status_ = WithStatus("") != "";
    characters_.clear();
    outcome_ = term::ByteOutcome::kByte;
    el_resize(edit_);
    signals_.WatchStops();
    TakeTerminal();  // before the prompt is shown, so that no key is read in cooked mode
    int length = 0;
    const char* line = el_gets(edit_, &length);
    if (bold_prompt_) Write(kPlain);
    Write(kPasteOff);
    signals_.LeaveStops();
    if (outcome_ == term::ByteOutcome::kInterrupted || outcome_ == term::ByteOutcome::kTerminated) {
      Write("^C\r\n");
      return {outcome_ == term::ByteOutcome::kTerminated ? LineOutcome::kTerminated
                                                         : LineOutcome::kInterrupted,
              "", was_empty_};
    }
    if (line == nullptr || length <= 0) {
      Write("\r\n");
      return {LineOutcome::kEnd};
    }
    std::string text(line, static_cast<size_t>(length));
    while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
    was_interrupted_ahead_ = source_.TakeInterruptAhead();
    if (was_interrupted_ahead_) raise(SIGINT);  // the interrupt was meant for this line
    return {LineOutcome::kLine, ReplaceInvalidUtf8(texts_.Expand(text))};
  }

  // (If the key itself was typed ahead, nothing before it is left.)
  size_t DropTypeAhead() override { return was_interrupted_ahead_ ? 0 : source_.DropAhead(); }

  void Remember(const std::string& text) override {
    if (text.find_first_not_of(" \t\n") == std::string::npos) return texts_.Discard();
    const HistoryEntry entry = texts_.TakeEntry(text);
    HistEvent event;
    history(history_, &event, H_ENTER, entry.line.c_str());
    if (entry.texts.empty() || keeps_pastes_) history_file_.Append(entry);
  }

 private:
  // libedit sends an invisible sequence together with the following character, and not at all if
  // there is none. So the last character, a space, carries the sequence that ends bold.
  static std::string BoldPrompt(const std::string& prompt) {
    const size_t last = prompt.size() - 1;
    return fmt::format("\1{}\1{}\1{}\1{}", kBold, prompt.substr(0, last), kPlain,
                       prompt.substr(last));
  }
  // Returns true if the prompt changed.
  bool SetPrompt() {
    std::string plain = WithStatus(bare_prompt_);
    if (plain == plain_prompt_) return false;
    plain_prompt_ = std::move(plain);
    prompt_ = bold_prompt_ ? BoldPrompt(plain_prompt_) : plain_prompt_;
    return true;
  }
  static char* Prompt(EditLine* edit) { return Self(edit)->prompt_.data(); }
  static int GetCharacter(EditLine* edit, wchar_t* character) {
    return Self(edit)->NextCharacter(character);
  }
  static unsigned char Complete(EditLine* edit, int) { return Self(edit)->CompleteWord(); }
  static EditingReader* Self(EditLine* edit) {
    void* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return static_cast<EditingReader*>(self);
  }

  void Write(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), out_);
    std::fflush(out_);
  }

  // Switches to raw mode, and to marked (bracketed) pastes.
  void TakeTerminal() {
    el_set(edit_, EL_PREP_TERM, 1);
    // Read the interrupt key as a byte instead of a signal: with a signal, the terminal discards
    // typed input that was not read yet, and a line that the key should clear would look empty.
    el_set(edit_, EL_SETTY, "-d", "intr=", nullptr);
    Write(kPasteOn);
  }

  // Returns 1 and a character, 0 at the end of input, -1 if a signal ends the line.
  int NextCharacter(wchar_t* character) {
    while (characters_.empty()) {
      char byte = 0;
      const term::ByteOutcome outcome = source_.Next(&byte, has_status_ ? kStatusWait_ms : -1);
      if (outcome == term::ByteOutcome::kTimeout) {
        FollowStatus();
        continue;
      }
      if (FollowStop(outcome)) continue;
      if (outcome == term::ByteOutcome::kResized) {
        FollowResize();
        continue;
      }
      if (outcome != term::ByteOutcome::kByte) {
        outcome_ = outcome;
        const LineInfo* info = el_line(edit_);
        was_empty_ = info->lastchar == info->buffer;
        if (outcome != term::ByteOutcome::kEnd) MoveBehindLine();
        return outcome == term::ByteOutcome::kEnd ? 0 : -1;
      }
      // The terminal stored a Ctrl-D typed during an answer as NUL.
      if (byte == '\0') byte = '\x04';
      if (byte == kEscape) {
        Escape();
      } else {
        Character(byte);
      }
    }
    *character = characters_.front();
    characters_.pop_front();
    return 1;
  }

  // Tab: completes up to the common prefix of all candidates, and lists them if that adds nothing.
  unsigned char CompleteWord() {
    const LineInfo* info = el_line(edit_);
    const std::string_view line(info->buffer, static_cast<size_t>(info->cursor - info->buffer));
    if (!line.starts_with('/')) {  // in a message, tabs are text
      el_insertstr(edit_, "\t");
      return CC_REFRESH;
    }
    const Completion offered = completer_ ? completer_(line) : Completion();
    if (offered.words.empty()) return CC_REFRESH_BEEP;
    std::string common = CommonPrefix(offered.words);
    if (offered.words.size() == 1 && !common.ends_with('/')) common += ' ';
    const std::string more = common.substr(std::min(line.size() - offered.begin, common.size()));
    if (!more.empty()) {
      el_insertstr(edit_, more.c_str());
      return CC_REFRESH;
    }
    if (offered.words.size() == 1) return CC_NORM;
    const std::string list = InColumns(offered.words, static_cast<size_t>(Columns()));
    Write("\r\n");
    for (const char byte : list) Write(byte == '\n' ? "\r\n" : std::string_view(&byte, 1));
    return CC_REDISPLAY;
  }

  struct Place {
    size_t row = 0;  // relative to the row of the prompt
    int column = 0;
  };
  // Returns the position of the character at `end` of the edited line, if the terminal has
  // `columns`.
  Place PlaceOf(const wchar_t* end, int columns) const {
    constexpr int kTabStop = 8;
    Place place;
    const auto advance = [&](wchar_t character) {
      if (character == L'\n') {  // may come from the prompt of a history search
        place = {place.row + 1, 0};
        return;
      }
      int width = std::max(wcwidth(character), 0);
      if (character < 0x20 || character == kRubout) width = 2;  // shown as ^X
      if (character == L'\t') width = kTabStop - place.column % kTabStop;
      if (place.column + width > columns) {  // a wide character moves to the next row as a whole
        ++place.row;
        place.column = 0;
      }
      place.column += width;
      if (place.column >= columns) {
        ++place.row;
        place.column = 0;
      }
    };
    for (const char byte : plain_prompt_) advance(static_cast<unsigned char>(byte));
    for (const wchar_t* at = el_wline(edit_)->buffer; at != end; ++at) advance(*at);
    return place;
  }
  size_t RowOfCursor(int columns) const { return PlaceOf(el_wline(edit_)->cursor, columns).row; }

  // Number of columns that libedit assumes.
  int Columns() const {
    int columns = 0;
    el_get(edit_, EL_GETTC, "co", &columns, nullptr);
    return std::max(columns, 1);
  }

  // Clears the rows of the prompt and the line, if the cursor is `rows` below the prompt, and
  // leaves the cursor at their beginning. Becomes visible with the next output.
  void ClearLine(size_t rows) {
    if (rows > 0) std::fputs(fmt::format("\x1b[{}A", rows).c_str(), out_);
    std::fputs("\r\x1b[J", out_);
  }

  // Replaces the status by the current one. libedit redraws a line from where it assumes an empty
  // line to begin, so the cursor must be there.
  void FollowStatus() {
    const size_t rows = RowOfCursor(Columns());  // below the prompt as shown
    if (!SetPrompt()) return;
    ClearLine(rows);
    el_set(edit_, EL_REFRESH);
  }

  // Terminals wrap lines again when their width changes, but libedit does not know: clear the rows
  // that the line occupies after that.
  void FollowResize() {
    winsize size{};
    const bool known = ioctl(fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    ClearLine(RowOfCursor(known ? size.ws_col : Columns()));
    el_resize(edit_);
    el_set(edit_, EL_REFRESH);
  }

  // Returns false if `outcome` is neither a stop nor a continuation.
  bool FollowStop(term::ByteOutcome outcome) {
    if (outcome == term::ByteOutcome::kStopped) Stop();
    if (outcome == term::ByteOutcome::kContinued) ShowAgain();
    return outcome == term::ByteOutcome::kStopped || outcome == term::ByteOutcome::kContinued;
  }

  // What is written next then stands behind the line, whose last row it continues.
  void MoveBehindLine() {
    const LineInfoW* info = el_wline(edit_);
    const int columns = Columns();
    const Place end = PlaceOf(info->lastchar, columns);
    const size_t below = end.row - PlaceOf(info->cursor, columns).row;
    if (below > 0) Write(fmt::format("\x1b[{}B", below));
    Write("\r");
    if (end.column > 0) Write(fmt::format("\x1b[{}C", end.column));
  }

  // Stops the process, after restoring the terminal.
  void Stop() {
    MoveBehindLine();
    Write("^Z");
    Write(kPasteOff);
    el_set(edit_, EL_PREP_TERM, 0);
    signals_.StopProcess();
    ShowAgain();
  }

  // Redraws after a stop: the terminal's modes may have changed, and another program has written to
  // it.
  void ShowAgain() {
    el_set(edit_, EL_PREP_TERM, 0);  // otherwise libedit assumes it is already set
    TakeTerminal();
    el_resize(edit_);
    SetPrompt();
    ClearLine(0);
    el_set(edit_, EL_REFRESH);
  }

  // Reads a byte that belongs to the previous one, and so arrives immediately.
  bool NextSoon(char* byte) {
    const term::ByteOutcome outcome = source_.Next(byte, kEscapeWait_ms);
    if (outcome != term::ByteOutcome::kByte) source_.Hold(outcome);
    return outcome == term::ByteOutcome::kByte;
  }

  // Decodes one character, whose first byte was read; invalid bytes become U+FFFD.
  void Character(char first) {
    std::string bytes(1, first);
    while (IsIncompleteUtf8(bytes)) {
      char byte = 0;
      if (!NextSoon(&byte)) break;
      bytes += byte;
    }
    if (Utf8CharLength(bytes) != bytes.size() && bytes.size() > 1) {
      source_.PutBack(std::string_view(bytes).substr(bytes.size() - 1));
    }
    const bool whole = Utf8CharLength(bytes) == bytes.size();
    if (!whole) replaced_bytes_ = true;
    Type(whole ? std::string_view(bytes) : "\uFFFD");
    if (bytes.size() > 1) ComposeWithLast();
  }

  // Combines a letter and the accent typed after it into one character, if that exists: libedit
  // reserves a column for a combining accent, but terminals do not.
  void ComposeWithLast() {
    const LineInfoW* info = el_wline(edit_);
    if (characters_.size() != 1 || info->cursor == info->buffer) return;
    utf8proc_int32_t pair[2] = {static_cast<utf8proc_int32_t>(info->cursor[-1]),
                                static_cast<utf8proc_int32_t>(characters_.front())};
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    if (utf8proc_get_property(pair[1])->combining_class == 0 ||
        utf8proc_normalize_utf32(pair, 2, options) != 1) {
      return;
    }
    characters_ = {kRubout, static_cast<wchar_t>(pair[0])};
  }

  // Handles the sequence of a key, or the start of a paste.
  void Escape() {
    std::string bytes(1, kEscape);
    char byte = 0;
    if (!NextSoon(&byte)) return Type(bytes);
    if (byte != '[') {
      source_.PutBack(std::string_view(&byte, 1));
      return Type(bytes);
    }
    bytes += byte;
    // The final byte of such a sequence is in the range '@' to '~' (ECMA-48).
    for (bool ended = false; !ended && bytes.size() < kKeyBytesMax;) {
      if (!NextSoon(&byte)) return Type(bytes);
      if (byte < ' ' || byte > '~') {  // not part of a sequence
        source_.PutBack(std::string_view(&byte, 1));
        return;
      }
      bytes += byte;
      // (except in the function keys of the Linux console)
      ended = byte >= '@' && bytes != "\x1b[[";
    }
    if (bytes == kPasteBegin) return Paste();
    // Drop unknown sequences as a whole: libedit would drop their beginning and type the rest. This
    // also drops an end-of-paste mark that occurs inside the pasted text.
    if (IsKnownKey(bytes)) Type(bytes);
  }

  void Paste() {
    std::string text;
    while (!text.ends_with(kPasteEnd)) {
      char byte = 0;
      const term::ByteOutcome outcome = source_.Next(&byte);
      if (outcome == term::ByteOutcome::kTimeout || outcome == term::ByteOutcome::kResized)
        continue;
      if (FollowStop(outcome)) continue;
      if (outcome != term::ByteOutcome::kByte) {
        source_.Hold(outcome);
        return;
      }
      // A terminal sends the byte of the Enter key for a line break.
      if (byte == '\n' && text.ends_with('\r')) continue;
      text += byte;
    }
    text.resize(text.size() - kPasteEnd.size());
    if (!IsValidUtf8(text)) replaced_bytes_ = true;
    for (char& byte : text) {
      if (byte == '\r') byte = '\n';
    }
    // A line that is copied with its line break means the line alone.
    if (std::count(text.begin(), text.end(), '\n') == 1 && text.back() == '\n') text.pop_back();
    bool plain = text.size() <= kPasteInLineMax;
    for (const char byte : text) {
      if (static_cast<unsigned char>(byte) < 0x20 || byte == 0x7F) plain = false;
    }
    const std::string typed = ReplaceInvalidUtf8(text);
    // A paste with display controls, which the line would show, also becomes a label.
    plain = plain && Visible(typed, typed.size() + 1) == typed && !texts_.HasMarks(typed);
    Type(plain ? typed : texts_.AddPaste(typed));
  }

  // REQUIRES well-formed UTF-8.
  void Type(std::string_view text) {
    while (!text.empty()) {
      const size_t length = std::max<size_t>(Utf8CharLength(text), 1);
      const auto byte = static_cast<unsigned char>(text[0]);
      wchar_t code = byte;
      if (length > 1) code = byte & (0x7F >> length);
      for (size_t i = 1; i < length; ++i) code = code << 6 | (text[i] & 0x3F);
      characters_.push_back(code);
      text.remove_prefix(length);
    }
  }

  term::SignalWatch& signals_;
  term::ByteSource source_;
  HistoryFile history_file_;
  const bool keeps_pastes_;
  FILE* out_ = nullptr;
  FILE* no_errors_ = nullptr;  // for libedit's messages, such as that of an unknown terminal
  bool bold_prompt_ = false;
  bool has_status_ = false;  // changes only between lines
  History* history_ = nullptr;
  EditLine* edit_ = nullptr;
  std::string bare_prompt_;         // without status and formatting
  std::string plain_prompt_;        // with the status
  std::string prompt_;              // as passed to libedit
  std::deque<wchar_t> characters_;  // read, not yet passed to libedit
  LabelledTexts texts_;
  term::ByteOutcome outcome_ = term::ByteOutcome::kByte;
  bool was_empty_ = true;
  bool was_interrupted_ahead_ = false;  // by a key that followed the last line in one piece
};

}  // namespace

std::unique_ptr<PromptReader> MakePromptReader(term::SignalWatch* signals,
                                               const std::string& history_path, bool keeps_pastes) {
  const bool edits = term::IsCapableTerminal(STDIN_FILENO) &&
                     (term::IsTerminal(STDOUT_FILENO) || term::IsTerminal(STDERR_FILENO));
  if (edits) return std::make_unique<EditingReader>(signals, history_path, keeps_pastes);
  return std::make_unique<LinesReader>(signals);
}

}  // namespace minisgl::chat
