// How answers stand on a terminal: words, wide characters, Markdown; whatever pieces they come in.
#include "term/text_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>

#include "minisgl/base/utf8.h"
#include "program/fakes.h"

namespace minisgl::term {
namespace {

// With styles as letters: <b>bold</>, <c>code</>, <f>faint</>.
std::string Readable(std::string text) {
  const std::pair<std::string_view, std::string_view> names[] = {
      {"\x1b[1m", "<b>"}, {"\x1b[36m", "<c>"}, {"\x1b[2m", "<f>"}, {"\x1b[0m", "</>"}};
  for (const auto& [code, name] : names) {
    for (size_t at = 0; (at = text.find(code, at)) != std::string::npos;) {
      text.replace(at, code.size(), name);
    }
  }
  return text;
}

// Two pieces with the same style have a seam between them.
std::string WithoutSeams(std::string out) {
  for (const std::string style : {"<b>", "<c>", "<f>"}) {
    const std::string seam = "</>" + style;
    for (size_t at = 0; (at = out.find(seam, at)) != std::string::npos;) {
      const size_t open = out.rfind('<', at - 1);
      if (open != std::string::npos && out.compare(open, 3, style) == 0) {
        out.erase(at, seam.size());
      } else {
        ++at;
      }
    }
  }
  return out;
}

std::string Layout(std::string_view text, int columns, TextStyle style = TextStyle::kMarkdown) {
  TextLayout layout([columns] { return columns; });
  layout.Begin(style);
  std::string out = layout.Push(text);
  out += layout.Finish();
  return WithoutSeams(Readable(out));
}

// The same one character at a time.
std::string InPieces(std::string_view text, int columns) {
  TextLayout layout([columns] { return columns; });
  layout.Begin(TextStyle::kMarkdown);
  std::string out;
  while (!text.empty()) {
    const size_t length = std::max<size_t>(Utf8CharLength(text), 1);
    const std::string piece = layout.Push(text.substr(0, length));
    if (const size_t last = piece.rfind('\x1b'); last != std::string::npos) {
      EXPECT_EQ(piece.substr(last, 4), "\x1b[0m") << Readable(piece);
    }
    out += piece;
    text.remove_prefix(length);
  }
  out = Readable(out + layout.Finish());
  return WithoutSeams(out);
}

TEST(TextLayoutTest, WordsAreNotCut) {
  const std::string text = "one two three four five six";
  EXPECT_EQ(Layout(text, 20), "one two three four\nfive six");
  EXPECT_EQ(Layout(text, 23), "one two three four five\nsix") << "the last column is used";
  EXPECT_EQ(Layout(text, 200), text);
  EXPECT_EQ(Layout(text, 19), text) << "too narrow to wrap by words";
  EXPECT_EQ(Layout("a\n\n  b\n", 40), "a\n\n  b\n");
}

TEST(TextLayoutTest, AWordLongerThanARowIsCutByTheTerminal) {
  const std::string word(45, 'x');
  EXPECT_EQ(Layout("a " + word + " b c", 20), "a\n" + word + " b c");
  EXPECT_EQ(Layout(word + " " + std::string(15, 'y'), 20), word + "\n" + std::string(15, 'y'));
}

TEST(TextLayoutTest, WideCharactersTakeTwoColumnsAndBreakAnywhereButBeforeAStop) {
  std::string text;
  for (int i = 0; i < 10; ++i) text += "\u4E2D";
  EXPECT_EQ(Layout(text + "\u6587", 20), text + "\n\u6587");
  // The character before the full stop goes with it.
  const std::string nine = text.substr(0, 27);
  EXPECT_EQ(Layout(text + "\u3002", 20), nine + "\n\u4E2D\u3002");
  EXPECT_EQ(Layout("ab " + text, 20), "ab " + text.substr(0, 24) + "\n" + text.substr(24));
}

TEST(TextLayoutTest, AResizeCountsFromTheNextWord) {
  int columns = 40;
  TextLayout layout([&columns] { return columns; });
  layout.Begin(TextStyle::kWrapped);
  std::string out = layout.Push("one two three four five ");
  columns = 24;
  out += layout.Push("six seven eight nine ten eleven");
  EXPECT_EQ(out + layout.Finish(), "one two three four five\nsix seven eight nine ten\neleven");
}

TEST(TextLayoutTest, AWordIsShownWhenItEnds) {
  TextLayout layout([] { return 80; });
  layout.Begin(TextStyle::kMarkdown);
  EXPECT_EQ(layout.Push("under a tre"), "under a");
  EXPECT_EQ(layout.Push("e near"), " tree");
  EXPECT_EQ(layout.Finish(), " near");
  EXPECT_EQ(layout.Push("\u4E2D\u6587"), "\u4E2D") << "these are words of their own";
}

// The part of a word shown in a pause is moved if the rest does not fit.
TEST(TextLayoutTest, APauseShowsWhatIsThereOfAWord) {
  TextLayout layout([] { return 20; });
  layout.Begin(TextStyle::kMarkdown);
  EXPECT_EQ(layout.Push("one two three fo"), "one two three");
  EXPECT_EQ(layout.Pause(), " fo");
  EXPECT_EQ(layout.Pause(), "");
  EXPECT_EQ(layout.Push("ur fi"), "ur");
  EXPECT_EQ(layout.Pause(), "") << "it does not fit already";
  EXPECT_EQ(layout.Push("ve "), "\nfive");
  EXPECT_EQ(layout.Push("six seven"), " six");
  EXPECT_EQ(layout.Pause(), " seven");
  EXPECT_EQ(layout.Push("ty-seven **n"), "\x1b[5D\x1b[K\nseventy-seven");
  EXPECT_EQ(layout.Pause(), "") << "what the mark means is not known";
  EXPECT_EQ(Readable(layout.Push("o** a")), " <b>no</>");
  EXPECT_EQ(layout.Pause(), " a");
  EXPECT_EQ(layout.Finish(), "");
}

TEST(TextLayoutTest, BoldAndCode) {
  EXPECT_EQ(Layout("a **b c**, `d e` **f**.", 80), "a <b>b</> <b>c</>, <c>`d</> <c>e`</> <b>f</>.");
  EXPECT_EQ(Layout("\u4E2D**\u6587**\u3002", 80), "\u4E2D<b>\u6587</>\u3002");
  // Marks that begin nothing.
  for (const char* text : {"2 * 3 ** 4", "2**3 and x**y**z", "a ** b", "snake_case __init__",
                           "f(*args)", "`**a**` **"}) {
    std::string shown = Layout(text, 80);
    for (const char* style : {"<c>", "</>"}) {
      for (size_t at = 0; (at = shown.find(style)) != std::string::npos;) shown.erase(at, 3);
    }
    EXPECT_EQ(shown, text);
  }
  EXPECT_EQ(Layout("\\*a\\* \\(x\\)", 80), "*a* \\(x\\)");
  // Marks that are not closed end with their paragraph.
  EXPECT_EQ(Layout("**a\nb\n\nc", 80), "<b>a</>\n<b>b</>\n\nc");
}

TEST(TextLayoutTest, LinesThatGoOnStandBelowTheirItem) {
  EXPECT_EQ(
      Layout("- one two three four five six\n  * x\n10. one two three four five\n", 20),
      "\u2022 one two three four\n  five six\n  \u2022 x\n10. one two three\n    four five\n");
  EXPECT_EQ(Layout("> one two three four five\n", 20),
            "<f>\u2502 </>one two three four\n<f>\u2502 </>five\n");
  EXPECT_EQ(
      Layout("# A title of some words\n-5 is less\n#tag\n1.5\n**b** x\n", 20),
      "<b>A</> <b>title</> <b>of</> <b>some</>\n<b>words</>\n-5 is less\n#tag\n1.5\n<b>b</> x\n");
  EXPECT_EQ(Layout("---\n- - -\n--", 20).substr(0, 6), "<f>\u2500");
}

TEST(TextLayoutTest, CodeAndTablesAreNotWrapped) {
  const std::string line = "int x = a_long_name + **another_long_name;";
  EXPECT_EQ(Layout("```cpp title\n" + line + "\n  ``` not the end\n```\nb\n", 20),
            "<f>```cpp title</>\n<c>" + line + "</>\n<c>  ``` not the end</>\n<f>```</>\nb\n");
  EXPECT_EQ(Layout("~~~~\n```\n~~~~\n", 20), "<f>~~~~</>\n<c>```</>\n<f>~~~~</>\n");
  EXPECT_EQ(Layout("    " + line, 20), "    " + line);
  EXPECT_EQ(Layout("| a | " + line + " |", 20), "| a | " + line + " |");
  EXPECT_EQ(Layout("```a``` is code\n", 20), "<c>```a```</> is code\n") << "within a line";
  EXPECT_EQ(Layout("```\nx", 20), "<f>```</>\n<c>x</>") << "the end is missing";
  // In a list, deep lines are text.
  EXPECT_EQ(Layout("- a\n\n    one two three four five\n", 20),
            "\u2022 a\n\n    one two three\n    four five\n");
}

TEST(TextLayoutTest, OtherStylesShowEveryCharacter) {
  const std::string text = "# **a** `b`\n- c\n```\nd\n```\n";
  EXPECT_EQ(Layout(text, 80, TextStyle::kWrapped), text);
  EXPECT_EQ(Layout(text + "\x1b", 80, TextStyle::kPlain), text + "\x1b");
}

// Any text in any pieces gives the same rows, and loses nothing but marks.
TEST(TextLayoutTest, PiecesDoNotMatter) {
  std::mt19937 random(7);
  const std::string_view parts[] = {"a",      "bc ",    " ",    "\n",   "**",     "*",     "`",
                                    "```",    "# ",     "- ",   "> ",   "1.",     " x y ", "~~~",
                                    "\u4E2D", "\u3002", "|",    "\\*",  "\t",     "_",     "    ",
                                    "--",     "\u0301", "word", "\n\n", "```py\n"};
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (int n = static_cast<int>(random() % 25); n > 0; --n) {
      text += parts[random() % std::size(parts)];
    }
    const std::string whole = Layout(text, 24);
    EXPECT_EQ(InPieces(text, 24), whole) << text;
    const auto letters = [](std::string_view shown) {
      std::string kept;
      for (size_t at = 0; at < shown.size(); ++at) {
        if (shown[at] == '<')
          at = shown.find('>', at);  // the texts have no <
        else if (shown[at] == 'w' || shown[at] == 'y' || shown[at] == 'x')
          kept += shown[at];
      }
      return kept;
    };
    EXPECT_EQ(letters(whole), letters(text)) << text;
  }
}

}  // namespace
}  // namespace minisgl::term
