// The pictures of the prompts of the tiny multimodal models beside the project.
#pragma once

#include <string>
#include <vector>

#include "minisgl/base/base64.h"
#include "minisgl/base/json.h"
#include "vision/vision_test_util.h"

namespace minisgl {

// The bytes of the pictures in a row of prompts.jsonl, in order.
inline std::vector<std::string> PicturesOf(const Json& row, const std::string& folder) {
  std::vector<std::string> pictures;
  for (const Json& message : row.Find("messages")->as_array()) {
    const Json* const content = message.Find("content");
    if (!content->is_array()) continue;
    for (const Json& part : content->as_array()) {
      const Json* const url = part.Find("image_url");
      if (url == nullptr) continue;
      const std::string& text = url->Find("url")->as_string();
      const size_t data = text.find("base64,");
      pictures.push_back(data == std::string::npos ? ReadAllBytes(folder + "/" + text.substr(5))
                                                   : DecodeBase64(text.substr(data + 7)).value());
    }
  }
  return pictures;
}

}  // namespace minisgl
