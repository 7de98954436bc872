// Files named in messages, and pictures in saved conversations.
#include "chat/chat_attachments.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "chat/chat_file.h"
#include "temporary_folder.h"

namespace minisgl::chat {
namespace {

std::string AllOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string Attached(const std::string& message) {
  const Result<AttachedMessage> attached = AttachFiles(message);
  if (!attached.ok()) return "error: " + attached.status().message();
  std::string shown;
  for (const std::string& picture : attached->pictures) shown += "[" + picture + "]";
  return shown + attached->text;
}

// A picture of the tree.
std::string PictureBytes() {
  return AllOf(MINISGL_SOURCE_DIR "/tests/vision/golden/pictures/png_2_8.png");
}

TEST(AttachFilesTest, APictureIsShownAndItsNameStays) {
  const TemporaryFolder dir;
  const std::string a = dir.Write("a.png", PictureBytes()), notes = dir.Write("b", "three");
  EXPECT_EQ(Attached("What is on @" + a + "?"), "[" + a + "]What is on " + a + "?");
  EXPECT_EQ(Attached("@" + a + " and @" + notes + " and @" + a),
            "[" + a + "]" + notes + ":\nthree\n\n" + a + " and " + notes + " and " + a);
  EXPECT_EQ(Attached("code:\n@" + a), "code:\n@" + a);
  const Result<std::string> text = ReadTextFile(a);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.status().message(), a + " is a picture; /image " + a + " shows it to the model");
}

TEST(AttachFilesTest, AByteOrderMarkIsNoPartOfAText) {
  const TemporaryFolder dir;
  const std::string notes = dir.Write("b", "\xEF\xBB\xBFthree\n");
  EXPECT_EQ(Attached("@" + notes), notes + ":\nthree\n\n" + notes);
  EXPECT_EQ(ReadTextFile(notes).value(), "three");
}

TEST(AttachFilesTest, APastedPathOfAPictureIsOne) {
  const TemporaryFolder dir;
  const std::string a = dir.Write("a.png", PictureBytes()),
                    b = dir.Write("b c.png", PictureBytes());
  const std::string text = dir.Write("notes.png", "three");
  std::string escaped = b;
  escaped.insert(escaped.find(' '), "\\");
  std::string url = "file://" + b;
  url.replace(url.find(' '), 1, "%20");
  EXPECT_EQ(PastedPicture(a), a);
  EXPECT_EQ(PastedPicture("  " + a + " \n"), a);
  for (const std::string& line : {b, escaped, "'" + b + "'", "\"" + b + "\" ", url}) {
    EXPECT_EQ(PastedPicture(line), b) << line;
  }
  for (const std::string& line :
       {std::string(), std::string(" "), std::string("'"), text, a + " " + b, "see " + a,
        a + "\n" + a, dir.Path(""), dir.Path("none.png"), std::string("http://x/a.png"),
        std::string("file://x/a.png"), std::string("/dev/zero")}) {
    EXPECT_EQ(PastedPicture(line), "") << line;
  }
}

TEST(AttachFilesTest, TheTextOfAFileComesBeforeTheMessage) {
  const TemporaryFolder dir;
  const std::string a = dir.Write("a.txt", "one\ntwo\n\n"), b = dir.Write("b", "three");
  EXPECT_EQ(Attached("Compare @" + a + " with @" + b + ", please."),
            a + ":\none\ntwo\n\n" + b + ":\nthree\n\nCompare " + a + " with " + b + ", please.");
  EXPECT_EQ(Attached("@" + b + " @" + b), b + ":\nthree\n\n" + b + " " + b) << "once";
  EXPECT_EQ(Attached("(@" + b + ")"), "(@" + b + ")") << "not at the beginning of a word";
  const std::string odd = dir.Write("why?", "because");
  EXPECT_EQ(Attached("@" + odd), odd + ":\nbecause\n\n" + odd);
}

TEST(AttachFilesTest, OtherWordsStayAsTheyAre) {
  const TemporaryFolder dir;
  const std::string b = dir.Write("b", "three");
  for (const std::string& message :
       {std::string("mail me@example.org"), std::string("@Override in Java"), std::string("@"),
        std::string("ping @bob"), std::string("bob@example.com, please"),
        std::string("  two  blanks "), "code:\n@" + b}) {
    EXPECT_EQ(Attached(message), message);
  }
  // Marks around a file's name are not of the name.
  EXPECT_EQ(Attached("(see @" + b + ")"), b + ":\nthree\n\n(see " + b + ")");
  EXPECT_EQ(Attached("@" + b + ", where?"), b + ":\nthree\n\n" + b + ", where?");
  EXPECT_EQ(Attached("@@" + b), "@" + b);
  EXPECT_EQ(Attached("@@property"), "@property");
}

TEST(AttachFilesTest, WhatLooksLikeAFileAndIsNoneIsAnError) {
  const TemporaryFolder dir;
  EXPECT_EQ(Attached("read @notes.txt"),
            "error: @notes.txt: no such file; write @@notes.txt for the word itself");
  EXPECT_EQ(Attached("@" + dir.Path("none")).substr(0, 7), "error: ");
  const std::string binary = dir.Write("x.bin", std::string("a\0b", 3));
  EXPECT_NE(Attached("@" + binary).find("is not a text file"), std::string::npos);
}

// Pictures of files by their paths, others by their bytes; the order of parts stays.
TEST(ChatPictureFileTest, PicturesAreSavedAndLoaded) {
  const TemporaryFolder dir;
  const std::string path =
      dir.Write("a b%.png", AllOf(MINISGL_SOURCE_DIR "/tests/vision/golden/pictures/png_2_8.png"));
  const auto picture = [&path](const std::string& name) {
    ConversationImage image;
    image.name = name;
    image.bytes = std::make_shared<const std::string>(AllOf(path));
    return image;
  };
  std::vector<SessionMessage> messages = {
      {"user", "What is it?", {}}, {"assistant", "It.", {}}, {"user", "", {}}, {"user", "xy", {}}};
  messages[0].images = {picture(path), picture("a data: URI of 9 bytes")};
  messages[2].images = {picture(path)};
  messages[3].images = {picture(path)};
  messages[3].given = *ParseJson(
      R"({"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image"}, )"
      R"({"type": "text", "text": "y"}]})");
  ASSERT_TRUE(SaveConversation(dir.Path("c.jsonl"), messages, false).ok());
  const std::string saved = AllOf(dir.Path("c.jsonl"));
  EXPECT_NE(saved.find(R"({"type": "image_url", "image_url": {"url": "file:///)"),
            std::string::npos)
      << saved;
  EXPECT_NE(saved.find("a%20b%25.png"), std::string::npos) << saved;
  EXPECT_NE(saved.find(R"({"url": "data:image/png;base64,)"), std::string::npos) << saved;
  const PictureTaker take = [&](const batch::RowImage& image) -> Result<ConversationImage> {
    if (image.bytes == nullptr) return picture(image.path);
    ConversationImage taken;
    taken.name = image.name;
    taken.bytes = image.bytes;
    return taken;
  };
  const auto loaded = LoadConversation(dir.Path("c.jsonl"), take);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  ASSERT_EQ(loaded->size(), messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    EXPECT_EQ((*loaded)[i].content, messages[i].content);
    EXPECT_EQ((*loaded)[i].given, messages[i].given);
    ASSERT_EQ((*loaded)[i].images.size(), messages[i].images.size()) << i;
    for (const ConversationImage& image : (*loaded)[i].images) {
      EXPECT_EQ(*image.bytes, AllOf(path));
    }
  }
  EXPECT_EQ((*loaded)[0].images[0].name, path);
  EXPECT_EQ(ConversationText(*loaded), saved);
  const auto without = LoadConversation(dir.Path("c.jsonl"));
  ASSERT_TRUE(without.ok());
  EXPECT_TRUE((*without)[0].images.empty());
  EXPECT_EQ((*without)[0].content, "What is it?");
  const auto bad = LoadConversation(dir.Path("c.jsonl"),
                                    [](const batch::RowImage& image) -> Result<ConversationImage> {
                                      return BadInput("{}: no more", image.name);
                                    });
  EXPECT_EQ(bad.status().message(), dir.Path("c.jsonl") + ":1: " + path + ": no more");
}

}  // namespace
}  // namespace minisgl::chat
