// Incompletely copied model directories: a dangling symbolic link is an error and is never replaced
// by another tokenizer, template or default.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "minisgl/text/chat_template.h"
#include "minisgl/text/tokenizer.h"
#include "text/tokenizer_config.h"
#include "text_test_util.h"

namespace minisgl::text {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWren = MINISGL_SOURCE_DIR "/tests/models/wren";

// A directory of links to the files of the demo model, in which the link `name` is dangling.
void FillBut(const ModelDir& dir, const std::string& name) {
  for (const fs::directory_entry& entry : fs::directory_iterator(kWren)) {
    if (entry.path().filename() == name) continue;
    fs::create_symlink(entry.path(), fs::path(dir.path()) / entry.path().filename());
  }
  fs::create_directories((fs::path(dir.path()) / name).parent_path());
  fs::create_symlink("../../blobs/0123", fs::path(dir.path()) / name);
}

void ExpectSaid(const Status& status, const std::string& name) {
  EXPECT_EQ(status.code(), StatusCode::kNoInput) << status.message();
  EXPECT_NE(status.message().find(name + ": is a symbolic link to ../../blobs/0123"),
            std::string::npos)
      << status.message();
}

TEST(DanglingLinksTest, OfATokenizerAreSaid) {
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", "tekken.json", "tokenizer_config.json",
        "special_tokens_map.json", "added_tokens.json"}) {
    const ModelDir dir;
    FillBut(dir, name);
    ExpectSaid(Tokenizer::Load(dir.path()).status(), name);
  }
}

TEST(DanglingLinksTest, OfAChatTemplateAreSaid) {
  for (const char* name : {"chat_template.jinja", "chat_template.json", "additional_chat_templates",
                           "additional_chat_templates/rag.jinja"}) {
    const ModelDir dir;
    FillBut(dir, name);
    ExpectSaid(ChatTemplate::Load(dir.path()).status(), name);
    ExpectSaid(ChatTemplate::LoadNamed(dir.path(), "rag").status(), name);
  }
}

TEST(DanglingLinksTest, WhatIsNotLookedForDoesNotMatter) {
  const ModelDir dir;
  FillBut(dir, "README.md");
  EXPECT_TRUE(Tokenizer::Load(dir.path()).ok());
  const auto chat = ChatTemplate::Load(dir.path());
  EXPECT_TRUE(chat.ok() && *chat != nullptr);
  // A link to itself is dangling too.
  fs::create_symlink("chat_template.jinja", dir.path() + "/chat_template.jinja");
  EXPECT_EQ(ChatTemplate::Load(dir.path()).status().code(), StatusCode::kNoInput);
}

}  // namespace
}  // namespace minisgl::text
