// Pictures in a chat: attached to the next message, named in a message or pasted; kept in files.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "program/run_fixture.h"

namespace minisgl::chat {
namespace {

std::string Golden() {
  std::ifstream file(MINISGL_SOURCE_DIR "/tests/vision/golden/pictures/png_2_8.png",
                     std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class ChatPicturesTest : public RunProgramTest {
 protected:
  // A chat with the commands in `input`.
  static ProgramResult Chat(const std::string& model, const std::string& input,
                            Arguments more = {}) {
    Arguments arguments = {"chat", "-m",        model, "--num-pages",
                           "512",  "--threads", "1",   "--commands"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(arguments, {input, "", {}});
  }
  std::string Picture() const { return folder_.Write("a b.png", Golden()); }
};

TEST_F(ChatPicturesTest, AModelOfTextRefusesThem) {
  const std::string picture = folder_.Write("a.png", Golden());
  const std::string conversation = folder_.Write(
      "c.jsonl", R"({"role": "user", "content": [{"type": "image", "image": "a.png"}]})");
  const ProgramResult result = Chat(DemoModel(), "/image " + picture + "\nWhat is on @" + picture +
                                                     "?\n/load " + conversation + "\n" + picture +
                                                     "\n/read " + picture + "\n/save none\n");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(CountOf(result.err, "reads no images"), 4U) << result.err;
  EXPECT_NE(result.err.find("(nothing is sent)"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("is a picture; /image"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("There is nothing to save."), std::string::npos) << result.err;
  const ProgramResult option = Chat(DemoModel(), "", {"--image", picture});
  EXPECT_NE(option.exit_code, 0);
  EXPECT_NE(option.err.find("reads no images"), std::string::npos) << option.err;
}

// A tiny multimodal model beside the project.
class SharedChatPicturesTest : public ChatPicturesTest {
 protected:
  void SetUp() override {
    RunProgramTest::SetUp();
    const char* const given = std::getenv("MINISGL_SHARED");
    model_ = (given != nullptr ? std::string(given) : MINISGL_SOURCE_DIR "/../shared") +
             "/models/vision/qwen2_vl";
    if (!std::filesystem::exists(model_)) GTEST_SKIP() << "no shared models";
  }
  std::string model_;
};

TEST_F(SharedChatPicturesTest, EachWayToAttachOneSaysSo) {
  const std::string picture = Picture();
  std::string escaped = picture;
  escaped.insert(escaped.rfind(' '), "\\");
  const ProgramResult result =
      Chat(model_, "/image " + picture + "\n" + picture + "\n" + escaped + "\n'" + picture +
                       "'\n/image \"\"\n/image " + folder_.Path("none.png") + "\n/image\n");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(CountOf(result.err, "a b.png is shown with the next message ("), 4U) << result.err;
  EXPECT_NE(result.err.find("No picture is shown with the next message."), std::string::npos);
  EXPECT_NE(result.err.find("none.png: cannot be opened"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("/image needs the name of a file"), std::string::npos);
}

TEST_F(SharedChatPicturesTest, ALoadedConversationHasThemInItsPlaces) {
  Picture();
  const std::string conversation =
      folder_.Write("c.jsonl", R"({"role": "user", "content": [{"type": "text", "text": "Look "}, )"
                               R"({"type": "image_url", "image_url": {"url": "file:a%20b.png"}}, )"
                               R"({"type": "text", "text": "and say."}]})"
                               "\n"
                               R"({"role": "assistant", "content": "It is."})"
                               "\n");
  const std::string saved = folder_.Path("saved.jsonl");
  const std::string ask = "/context\n/tokens\n/show\n/tree\n/save -f " + saved + "\n";
  const ProgramResult first = Chat(model_, "/load " + conversation + "\n" + ask);
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_NE(first.err.find("[user]\n[a b.png] Look and say.\n"), std::string::npos) << first.err;
  const std::string text = folder_.Read("saved.jsonl");
  EXPECT_NE(text.find("file://" + folder_.Path("a%20b.png")), std::string::npos) << text;
  const size_t picture = text.find("image_url");
  EXPECT_LT(text.find("Look "), picture);
  EXPECT_GT(text.find("and say."), picture);
  // The saved conversation is the same.
  const ProgramResult second = Chat(model_, "/load " + saved + "\n" + ask);
  EXPECT_EQ(folder_.Read("saved.jsonl"), text);
  const size_t used = first.err.find("tokens used");
  EXPECT_EQ(second.err.substr(second.err.find("tokens used") - 12, 60),
            first.err.substr(used - 12, 60));
  // Without its file it is not loaded.
  std::filesystem::remove(folder_.Path("a b.png"));
  const ProgramResult gone = Chat(model_, "/load " + saved + "\n");
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_NE(gone.err.find("a b.png: cannot be opened"), std::string::npos) << gone.err;
  // Strangers' conversations name files in one folder.
  const ProgramResult bound =
      Chat(model_, "/load " + conversation + "\n", {"--image-root", model_});
  EXPECT_NE(bound.err.find("is no file in the folder that --image-root allows"), std::string::npos)
      << bound.err;
}

}  // namespace
}  // namespace minisgl::chat
