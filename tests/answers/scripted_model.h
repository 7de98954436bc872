// A model of one layer that writes a given text, token by token, behind the last tokens of its
// template, whatever stands before them. So stop strings, reasoning and constraints meet an answer
// that is known.
#pragma once

#include <string>
#include <vector>

#include "model/tiny_model.h"

namespace minisgl::answers {

struct Script {
  // Its generation prompt holds kScriptBegin.
  std::string chat_template;
  // The bytes of each are one token. One that is named below is that added token. The first ones
  // stand for the tokens of the prompt behind kScriptBegin.
  std::vector<std::string> tokens;
  std::vector<std::string> special;  // control tokens
  std::vector<std::string> added;    // added tokens that are none
  std::string end = "<|over|>";      // the end token, a control token; it follows the script
};

inline constexpr const char* kScriptBegin = "<|pre|><|go|>";

// A template that writes messages as "[role]content" and ends its generation prompt with `behind`.
// `tags`: a text that only its source contains.
std::string ScriptTemplate(const std::string& tags, const std::string& behind = "");

class ScriptedModel {
 public:
  explicit ScriptedModel(const Script& script);
  std::string path() const { return dir_.path(); }

 private:
  const TinyModelDir dir_;
};

}  // namespace minisgl::answers
