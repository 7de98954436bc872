// The parts of a chat that need neither a model nor a terminal: parsing of lines, parameters,
// conversation files.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "chat/chat_file.h"
#include "chat/chat_history.h"
#include "chat/chat_input.h"
#include "chat/chat_settings.h"
#include "chat/labelled_texts.h"
#include "load/sampling.h"
#include "minisgl/grammar/grammar.h"
#include "slow.h"

namespace minisgl::chat {
namespace {

using Kind = ChatInputLine::Kind;

// Returns lines from a list, then the end of input; "^C" stands for an interrupt.
class ListReader : public PromptReader {
 public:
  explicit ListReader(std::deque<std::string> lines) : lines_(std::move(lines)) {}
  ReadLineResult ReadLine(const std::string&) override {
    if (lines_.empty()) return {LineOutcome::kEnd, "", true};
    std::string line = lines_.front();
    lines_.pop_front();
    if (line == "^C") return {LineOutcome::kInterrupted, "", true};
    return {LineOutcome::kLine, line, true};
  }
  void Remember(const std::string& text) override {
    if (!text.empty()) remembered_.push_back(text);
  }
  size_t DropTypeAhead() override { return 0; }
  const std::vector<std::string>& remembered() const { return remembered_; }

 private:
  std::deque<std::string> lines_;
  std::vector<std::string> remembered_;
};

class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "chat_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(File(name), std::ios::binary) << text;
    return File(name);
  }

 private:
  std::string path_;
};

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(ChatInputTest, LinesAreMessagesAndCommands) {
  const struct {
    std::deque<std::string> lines;
    Kind kind;
    std::string text;
  } cases[] = {
      {{"Hello"}, Kind::kMessage, "Hello"},
      {{"", "  ", "Hello"}, Kind::kMessage, "Hello"},
      {{"/help"}, Kind::kCommand, "help"},
      {{"/set top_k 3  "}, Kind::kCommand, "set top_k 3"},
      {{"//etc/passwd is a file"}, Kind::kMessage, "/etc/passwd is a file"},
      {{" /indented is text"}, Kind::kMessage, " /indented is text"},
      {{"one\\", "two"}, Kind::kMessage, "one\ntwo"},
      {{"one\\", "two\\", "/three"}, Kind::kMessage, "one\ntwo\n/three"},
      {{"one\\"}, Kind::kMessage, "one"},
      {{"\"\"\"one line\"\"\""}, Kind::kMessage, "one line"},
      {{"\"\"\"", "one", "", "two", "\"\"\""}, Kind::kMessage, "one\n\ntwo"},
      {{"\"\"\"one", "two\"\"\""}, Kind::kMessage, "one\ntwo"},
      {{"\"\"\"never", "ends"}, Kind::kMessage, "never\nends"},
      {{"\"\"\"\"\"\"", "next"}, Kind::kMessage, "next"},
      {{"pasted\n/block"}, Kind::kMessage, "pasted\n/block"},
      {{"/pasted\nblock"}, Kind::kMessage, "/pasted\nblock"},
      {{}, Kind::kEnd, ""},
      {{"^C"}, Kind::kInterrupted, ""},
      {{"\"\"\"", "one", "^C"}, Kind::kInterrupted, ""},
      {{"one\\", "^C"}, Kind::kInterrupted, ""},
  };
  for (const auto& test : cases) {
    ListReader reader(test.lines);
    const ChatInputLine line = ReadChatInput(&reader);
    const std::string shown = test.lines.empty() ? "(end)" : test.lines.front();
    EXPECT_EQ(line.kind, test.kind) << shown;
    EXPECT_EQ(line.text, test.text) << shown;
  }
}

// An entry that is recalled and entered again is the same message, in one line.
TEST(ChatInputTest, AMessageIsOneEntryOfTheHistory) {
  const struct {
    std::deque<std::string> lines;
    std::vector<std::string> remembered;
  } cases[] = {
      {{"Hello"}, {"Hello"}},
      {{"", " ", "/set top_k 3 "}, {"/set top_k 3 "}},
      {{"//etc"}, {"//etc"}},
      {{"one\\", "/two"}, {"one\n/two"}},
      {{"one\\"}, {"one"}},
      {{"\"\"\"", "one", "", "two", "\"\"\""}, {"one\n\ntwo"}},
      {{"\"\"\"/one\"\"\""}, {"\"\"\"/one\"\"\""}},
      {{"\"\"\"", "/one", "\"\"\""}, {"\"\"\"\n/one\n\"\"\""}},
      {{"\"\"\"", "\"\"\"a", "b\"\"\""}, {"\"\"\"\n\"\"\"a\nb\n\"\"\""}},
      {{"pasted\n/block"}, {"pasted\n/block"}},
      {{"^C"}, {}},
      {{"one\\", "^C"}, {}},
      {{"\"\"\"", "one", "^C"}, {"\"\"\"\none"}},
      {{"\"\"\"\"\"\"", "next"}, {"next"}},
  };
  for (const auto& test : cases) {
    ListReader reader(test.lines);
    const ChatInputLine line = ReadChatInput(&reader);
    EXPECT_EQ(reader.remembered(), test.remembered);
    if (line.kind == Kind::kInterrupted || reader.remembered().size() != 1) continue;
    ListReader again({reader.remembered()[0]});
    const ChatInputLine recalled = ReadChatInput(&again);
    EXPECT_EQ(recalled.kind, line.kind) << line.text;
    EXPECT_EQ(recalled.text, line.text);
    EXPECT_EQ(again.remembered(), reader.remembered());
  }
}

TEST(ChatInputTest, LinesOfAPipeAreMessagesUnchanged) {
  const std::deque<std::string> lines = {
      "/save -f victim.txt", "//two", "\"\"\"three", "four\"\"\"", "five\\", "  six\t ", "\"\"\""};
  ListReader reader(lines);
  for (const std::string& text : lines) {
    const ChatInputLine line = ReadChatMessage(&reader);
    EXPECT_EQ(line.kind, Kind::kMessage) << text;
    EXPECT_EQ(line.text, text);
  }
  EXPECT_EQ(ReadChatMessage(&reader).kind, Kind::kEnd);
  ListReader blank({"", " ", "^C"});
  EXPECT_EQ(ReadChatMessage(&blank).kind, Kind::kInterrupted);
}

TEST(ChatInputTest, AnInterruptedBlockWasNotEmpty) {
  ListReader reader({"one\\", "^C"});
  EXPECT_FALSE(ReadChatInput(&reader).was_empty);
}

TEST(ChatSettingsTest, SetsWhatIsInRange) {
  const struct {
    const char* name;
    const char* value;
    const char* shown;
  } cases[] = {
      {"temperature", "0.75", "0.75"}, {"top_k", "40", "40"},      {"top-p", "0.5", "0.5"},
      {"min_p", "0.1", "0.1"},         {"seed", "7", "7"},         {"max-tokens", "12", "12"},
      {"max_tokens", "auto", "auto"},  {"stop", "END", "\"END\""}, {"stop", "none", "none"},
      {"ignore_eos", "on", "on"},      {"min_tokens", "2", "2"},   {"presence_penalty", "-1", "-1"},
  };
  for (const auto& test : cases) {
    load::AnswerSettings settings;
    const Status status = SetParameter(test.name, test.value, &settings);
    EXPECT_TRUE(status.ok()) << test.name << ": " << status.message();
    EXPECT_NE(ListParameters(settings).find(std::string(" ") + test.shown), std::string::npos)
        << test.name;
  }
}

TEST(ChatSettingsTest, RefusesInvalidValuesAndChangesNothing) {
  const struct {
    const char* name;
    const char* value;
  } cases[] = {
      {"temperature", "-1"},
      {"temperature", "nan"},
      {"temperature", "warm"},
      {"temperature", ""},
      {"temperature", "1x"},
      {"top_k", "-1"},
      {"top_k", "1.5"},
      {"top_p", "-0.1"},
      {"top_p", "1.1"},
      {"min_p", "2"},
      {"seed", "-1"},
      {"max_tokens", "0"},
      {"max_tokens", ""},
      {"ignore_eos", "ja"},
      {"repetition_penalty", "0"},
      {"colour", "red"},
      {"", "1"},
      {"stop", ""},
  };
  for (const auto& test : cases) {
    load::AnswerSettings settings;
    const std::string before = ListParameters(settings);
    const Status status = SetParameter(test.name, test.value, &settings);
    EXPECT_EQ(status.code(), StatusCode::kUsage) << test.name << " " << test.value;
    EXPECT_EQ(ListParameters(settings), before) << test.name << " " << test.value;
  }
}

TEST(ChatSettingsTest, AnswersHaveOneFormAtATime) {
  const TempDir folder;
  const std::string schema = folder.Write("s.json", R"({"type": "object"})");
  const std::string grammar = folder.Write("g", "root ::= \"a\"");
  load::AnswerSettings settings;
  const auto shown = [&](const std::string& name) {
    const std::string list = ListParameters(settings), line = fmt::format("\n  {:<20} ", name);
    const size_t at = list.find(line);
    EXPECT_NE(at, std::string::npos) << list;
    const size_t begin = at + line.size();
    return list.substr(begin, list.find('\n', begin) - begin);
  };
  ASSERT_TRUE(SetParameter("json-schema", schema, &settings).ok());
  EXPECT_EQ(settings.grammar.text->text, R"({"type": "object"})");
  EXPECT_EQ(shown("json_schema"), schema);
  ASSERT_TRUE(SetParameter("regex", "a |b", &settings).ok());
  EXPECT_EQ(settings.grammar.text->kind, GrammarKind::kRegularExpression);
  EXPECT_EQ(shown("regex"), "a |b");
  EXPECT_EQ(shown("json_schema"), "none");
  ASSERT_TRUE(SetParameter("json_schema", R"({"type": "string"})", &settings).ok());
  EXPECT_EQ(shown("json_schema"), R"({"type": "string"})");
  ASSERT_TRUE(SetParameter("grammar", R"(root ::= "a")", &settings).ok());
  EXPECT_EQ(shown("grammar"), R"(root ::= "a")");
  ASSERT_TRUE(SetParameter("grammar", grammar, &settings).ok());
  EXPECT_EQ(shown("regex"), "none");
  EXPECT_EQ(shown("grammar"), grammar);
  for (const char* quote : {"\"", "'"}) {
    ASSERT_TRUE(SetParameter("json_schema", quote + schema + quote, &settings).ok());
    EXPECT_EQ(shown("json_schema"), schema);
  }
  ASSERT_TRUE(SetParameter("grammar", grammar, &settings).ok());
  // Values that cannot be used change nothing.
  const struct {
    const char* name;
    std::string value;
    std::string message;
  } cases[] = {
      {"json_schema", folder.File("none.json"), folder.File("none.json")},
      {"json_schema", folder.Write("bad", "{\"type\": 1}"), folder.File("bad") + ": #/type: "},
      {"json_schema", "", "json_schema must be a file, a schema in braces, or none (found \"\")"},
      {"regex", "a(", "regular expression: byte 2: "},
      {"grammar", schema, schema + ": line 1"},
      {"choice", "a|b", "choice must be none; one of several texts is /set regex yes|no"},
  };
  for (const auto& test : cases) {
    const Status status = SetParameter(test.name, test.value, &settings);
    EXPECT_FALSE(status.ok()) << test.name << " " << test.value;
    EXPECT_TRUE(status.message().starts_with(test.message)) << status.message();
    EXPECT_EQ(shown("grammar"), grammar);
  }
  ASSERT_TRUE(SetParameter("regex", "none", &settings).ok()) << "any of the names switches it off";
  EXPECT_EQ(settings.grammar.text, nullptr);
  EXPECT_EQ(shown("grammar"), "none");
}

TEST(ChatSettingsTest, ChoicesOfTheCommandLineAreShown) {
  load::SamplingOptions options;
  options.grammar_options.choices = {"yes", "no\n"};
  ASSERT_TRUE(load::TakeGrammar(&options).ok());
  load::AnswerSettings settings = MakeChatSettings(options, {}, 1);
  EXPECT_NE(ListParameters(settings).find("choice               \"yes\", \"no\\n\"\n"),
            std::string::npos)
      << ListParameters(settings);
  ASSERT_TRUE(SetParameter("choice", "none", &settings).ok());
  EXPECT_EQ(settings.grammar.text, nullptr);
}

TEST(ChatSettingsTest, RefusalsNameBothBounds) {
  const struct {
    const char* name;
    const char* value;
    const char* expects;
  } cases[] = {
      {"temperature", "101", "a number from 0 to 100, 0 for greedy"},
      {"top_k", "2147483648", "an integer from 0 to 2147483647, 0 for all"},
      {"top_p", "-1", "a number from 0 to 1"},
      {"min_p", "-0.1", "a number from 0 to 1"},
      {"repetition_penalty", "101", "a number above 0 and at most 100, 1 for none"},
      {"presence_penalty", "2.1", "a number from -2 to 2"},
      {"frequency_penalty", "-2.1", "a number from -2 to 2"},
      {"seed", "18446744073709551616", "an integer from 0 to 18446744073709551615"},
      {"max_tokens", "2147483648", "an integer from 1 to 2147483647, or auto"},
      {"min_tokens", "2147483648", "an integer from 0 to 2147483647"},
  };
  for (const auto& test : cases) {
    load::AnswerSettings settings;
    const Status status = SetParameter(test.name, test.value, &settings);
    EXPECT_EQ(status.message(), std::string(test.name) + " must be " + test.expects + " (found \"" +
                                    test.value + "\")");
  }
}

TEST(ChatFileTest, WhatIsSavedIsLoaded) {
  const TempDir dir;
  const std::vector<SessionMessage> messages = {
      {"system", "Be \"brief\".", {}}, {"user", "two\nlines\t\u00e9", {}}, {"assistant", "", {}}};
  ASSERT_TRUE(SaveConversation(dir.File("c.jsonl"), messages, false).ok());
  const auto loaded = LoadConversation(dir.File("c.jsonl"));
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  ASSERT_EQ(loaded.value().size(), messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    EXPECT_EQ(loaded.value()[i].role, messages[i].role);
    EXPECT_EQ(loaded.value()[i].content, messages[i].content);
  }
}

TEST(ChatFileTest, AnotherFileIsNotOverwritten) {
  const TempDir dir;
  const std::string path = dir.Write("notes", "mine");
  const std::vector<SessionMessage> messages = {{"user", "Hi", {}}};
  EXPECT_EQ(SaveConversation(path, messages, false).code(), StatusCode::kCannotCreate);
  EXPECT_EQ(ReadAll(path), "mine");
  EXPECT_TRUE(SaveConversation(path, messages, true).ok());
  EXPECT_EQ(ReadAll(path), "{\"role\": \"user\", \"content\": \"Hi\"}\n");
  EXPECT_EQ(SaveConversation("-", messages, true).code(), StatusCode::kUsage);
  EXPECT_EQ(SaveConversation(dir.File("no/such/dir"), messages, false).code(),
            StatusCode::kCannotCreate);
}

TEST(ChatFileTest, ALineOfMessagesIsAConversation) {
  const TempDir dir;
  const std::string path = dir.Write(
      "row", "{\"id\": 3, \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}\n\n");
  const auto loaded = LoadConversation(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  ASSERT_EQ(loaded.value().size(), 1u);
  EXPECT_EQ(loaded.value()[0].content, "Hi");
}

TEST(ChatFileTest, OtherProgramsFilesAreRead) {
  const TempDir dir;
  for (const char* text : {
           "{\"messages\": [{\"role\": \"user\", \"content\": \"a\u00e9b\"}]}",
           "{\n  \"model\": \"x\",\n  \"messages\": [\n    {\n      \"role\": \"user\",\n"
           "      \"content\": \"a\\u00e9b\"\n    }\n  ]\n}\n",
           "[{\"role\": \"user\",\n \"content\": \"a\u00e9b\"}]\n",
           "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\u00e9\"}, "
           "{\"type\": \"text\", \"text\": \"b\"}]}\n",
           "\xEF\xBB\xBF{\"role\": \"user\", \"content\": \"a\u00e9b\"}\r\n",
       }) {
    const auto loaded = LoadConversation(dir.Write("other", text));
    ASSERT_TRUE(loaded.ok()) << text << loaded.status().message();
    ASSERT_EQ(loaded.value().size(), 1u) << text;
    EXPECT_EQ(loaded.value()[0].content, "a\u00e9b") << text;
  }
}

TEST(ChatFileTest, BadFilesAreErrorsThatNameTheLine) {
  const struct {
    const char* text;
    const char* place;
  } cases[] = {
      {"", ""},
      {"\n\n", ""},
      {"not json\n", ":1: "},
      {"{\"role\": \"user\", \"content\": \"Hi\"}\n{\"role\": \"user\"}\n", ":2: "},
      {"{\"role\": \"king\", \"content\": \"Hi\"}\n", ":1: "},
      {"{\"role\": \"user\", \"content\": 3}\n", ":1: "},
      {"{\"messages\": 3}\n", ":1: "},
      {"[1]\n", ""},
      {"{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}\n", ":1: "},
      {"3\n", ":1: "},
      {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n{\"messages\": []}\n", ":2: "},
  };
  const TempDir dir;
  for (const auto& test : cases) {
    const auto loaded = LoadConversation(dir.Write("bad", test.text));
    ASSERT_FALSE(loaded.ok()) << test.text;
    EXPECT_EQ(loaded.status().code(), StatusCode::kBadInput) << test.text;
    EXPECT_NE(loaded.status().message().find(test.place), std::string::npos)
        << loaded.status().message();
  }
  EXPECT_EQ(LoadConversation(dir.File("none")).status().code(), StatusCode::kNoInput);
}

// A value of two bytes takes forty in memory.
TEST(ChatFileTest, AFileOfVeryManyValuesIsRefused) {
  MarkSlow("a file of a million values");
  std::string zeros = "[0";
  for (int i = 0; i < 1'100'000; ++i) zeros += ",0";
  const TempDir dir;
  const auto loaded = LoadConversation(dir.Write("zeros", zeros + "]"));
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.status().message().find("more than 1048576 values"), std::string::npos)
      << loaded.status().message();
}

TEST(HistoryFileTest, KeepsTheLastLinesInOrder) {
  const TempDir dir;
  const std::string path = dir.File("deep/state/history");
  HistoryFile first(path);
  EXPECT_TRUE(first.Load().empty());
  first.Append({"one", {}});
  first.Append({"two", {}});
  EXPECT_EQ(ReadAll(path), "one\ntwo\n");
  const HistoryEntry labelled = {"[a] and [b]", {{"[a]", "two\nlines"}, {"[b]", "\x1b\"]"}}};
  first.Append(labelled);
  EXPECT_EQ(HistoryFile(path).Load(),
            (std::vector<HistoryEntry>{{"one", {}}, {"two", {}}, labelled}));
  const auto mode = std::filesystem::status(path).permissions();
  EXPECT_EQ(mode & std::filesystem::perms::others_all, std::filesystem::perms::none);
}

TEST(HistoryFileTest, ALongFileIsCut) {
  const TempDir dir;
  std::string text;
  constexpr size_t kLines = 2 * HistoryFile::kEntriesMax + 1;
  for (size_t i = 0; i < kLines; ++i) text += std::to_string(i) + '\n';
  const std::string path = dir.Write("history", text);
  const std::vector<HistoryEntry> lines = HistoryFile(path).Load();
  ASSERT_EQ(lines.size(), HistoryFile::kEntriesMax);
  EXPECT_EQ(lines.back().line, std::to_string(kLines - 1));
  EXPECT_EQ(HistoryFile(path).Load(), lines);
  EXPECT_LT(ReadAll(path).size(), text.size());
}

TEST(HistoryFileTest, LongTextsCostNoOtherEntry) {
  const TempDir dir;
  const std::string path = dir.File("history");
  const std::string text(HistoryFile::kTextBytesMax, 'x');
  HistoryFile file(path);
  for (int i = 0; i < 20; ++i) file.Append({"[a]", {{"[a]", text}}});
  file.Append({"too long: [a]", {{"[a]", text + "x"}}});
  file.Append({"last", {}});
  EXPECT_GT(std::filesystem::file_size(path), 20 * text.size());
  const std::vector<HistoryEntry> entries = HistoryFile(path).Load();
  ASSERT_GT(entries.size(), 5u);
  EXPECT_EQ(entries.back().line, "last");
  EXPECT_EQ(entries[entries.size() - 2].line, "[a]");
  EXPECT_LT(std::filesystem::file_size(path), 10 * text.size());
  EXPECT_EQ(HistoryFile(path).Load(), entries);
}

TEST(HistoryFileTest, DamagedRecordsAreLeftOut) {
  const TempDir dir;
  std::string text = "before\n";
  for (const char* record :
       {"", "{", "[]", R"({"line": 3, "texts": {}})", R"({"line": "[a]", "texts": []})",
        R"({"line": "a", "texts": {"a": "b"}})", R"({"line": "[a]", "texts": {"[a]": 1}})",
        R"({"line": "a\nb", "texts": {}})", R"({"line": "a\u0000b", "texts": {}})"}) {
    text += std::string("\x1e") + record + '\n';
  }
  EXPECT_EQ(HistoryFile(dir.Write("history", text + "after\n")).Load(),
            (std::vector<HistoryEntry>{{"before", {}}, {"after", {}}}));
}

TEST(LabelledTextsTest, ALineOfTheHistoryIsTheSameMessage) {
  const std::string control = std::string("a\x01") + "b";
  std::string many_lines;
  for (int i = 0; i < 500; ++i) many_lines += "line\n";
  LabelledTexts texts;
  const std::string first = texts.AddPaste("one\ntwo"), second = texts.AddPaste("1\n2");
  EXPECT_EQ(first, "[pasted text 1: 2 lines, 7 bytes]");
  std::vector<std::string> messages = {
      "Hello",        "a [word] in [brackets",       texts.Expand("Look: " + first + second + "!"),
      "one\n\nthree", "tabs\tand\nlines " + control, many_lines};
  std::vector<HistoryEntry> entries;
  entries.push_back(texts.TakeEntry(messages[2]));
  EXPECT_EQ(entries[0].line, "Look: " + first + second + "!");
  for (const std::string& message : messages) entries.push_back(texts.TakeEntry(message));
  EXPECT_EQ(entries[4].line, "one\u21B5\u21B5three");
  EXPECT_EQ(entries[6].line, "[text 1: 500 lines, 2500 bytes]");
  messages.insert(messages.begin(), messages[2]);
  // Entries expand in this session, and in a later one where the same labels stand for other texts.
  LabelledTexts later;
  later.AddPaste("ONE\nTWO");
  later.AddPaste("A\nB");
  later.Discard();
  for (size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(texts.Expand(entries[i].line), messages[i]);
    texts.Discard();
    EXPECT_EQ(later.Expand(later.Adopt(entries[i])), messages[i]);
    later.Discard();
  }
  // A text pasted twice has its label, another one never has.
  EXPECT_EQ(texts.AddPaste("one\ntwo"), first);
  texts.Discard();
  EXPECT_EQ(texts.AddPaste("ONE\ntwo"), "[pasted text 2: 2 lines, 7 bytes]");
}

TEST(LabelledTextsTest, ALabelMayStandBehindABracket) {
  LabelledTexts texts, later;
  const std::string message = texts.Expand("a[ b[ " + texts.AddPaste("one\ntwo") + " ]");
  EXPECT_EQ(message, "a[ b[ one\ntwo ]");
  EXPECT_EQ(later.Expand(later.Adopt(texts.TakeEntry(message))), message);
}

TEST(ChatFileTest, ReasoningIsReadByAnyOfItsNames) {
  const TempDir dir;
  const std::string path = dir.Write(
      "many",
      R"({"role": "user", "content": "q", "reasoning": 3})"
      "\n"
      R"({"role": "assistant", "content": "a", "reasoning": "r1"})"
      "\n"
      R"({"role": "assistant", "content": "a", "reasoning": null, "reasoning_content": "r2"})"
      "\n"
      R"({"role": "assistant", "content": "a", "thinking": "r3"})"
      "\n"
      R"({"role": "assistant", "content": [{"type": "thinking", "thinking": "r4"}, )"
      R"({"type": "text", "text": "a"}]})"
      "\n");
  const auto messages = LoadConversation(path);
  ASSERT_TRUE(messages.ok()) << messages.status().message();
  ASSERT_EQ(messages->size(), 5u);
  EXPECT_EQ((*messages)[0].reasoning, "");
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_EQ((*messages)[i].content, "a") << i;
    EXPECT_EQ((*messages)[i].reasoning, "r" + std::to_string(i));
  }
  ASSERT_TRUE(SaveConversation(dir.File("saved"), *messages, false).ok());
  const auto again = LoadConversation(dir.File("saved"));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)[4].reasoning, "r4");
  const auto bad = LoadConversation(
      dir.Write("bad", R"({"role": "assistant", "content": "a", "reasoning": 3})"));
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.status().message().find("bad:1: reasoning is an integer"), std::string::npos)
      << bad.status().message();
}

TEST(HistoryFileTest, FailuresAreIgnored) {
  HistoryFile none("");
  none.Append({"one", {}});
  EXPECT_TRUE(none.Load().empty());
  HistoryFile unwritable("/proc/no/such/history");
  unwritable.Append({"one", {}});
  EXPECT_TRUE(unwritable.Load().empty());
}

}  // namespace
}  // namespace minisgl::chat
