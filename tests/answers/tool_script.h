// A model that calls a tool, for tests of `minisgl run` with tools of the user.
#pragma once

#include "answers/scripted_model.h"

namespace minisgl::answers {

// The script of a model that calls a tool and, behind its result, says that it is done: there each
// letter behind kScriptBegin stands for one token of the script.
inline Script CallerScript(bool calls_again = false) {
  Script script;
  script.chat_template =
      "{% if tools %}T{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
      "{% for c in m.tool_calls %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", "
      "\"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}{% endfor %}"
      "{% if add_generation_prompt %}[assistant]<|pre|><|go|>";
  if (!calls_again) {
    script.chat_template +=
        "{% if messages[-1].role == 'tool' and ('seven' in messages[-1].content or 'error' in "
        "messages[-1].content) %}AAAAAAAAAAAAA{% endif %}";
  }
  script.chat_template += "{% endif %}";
  script.tokens = {"<tool_call>", "\n",    "{\"name\": \"f\"",
                   ", ",          "\"arg", "uments\"",
                   ": {\"n\"",    ": ",    "41",
                   "}}",          "\n",    "</tool_call>",
                   "<|over|>",    "It ",   "is ",
                   "done."};
  script.special = {"<tool_call>", "</tool_call>"};
  return script;
}

}  // namespace minisgl::answers
