"""Writes FOLDER/inputs.jsonl and FOLDER/cases.jsonl: every FOLDER/*.jinja as rendered by the transformers library.

    TZ=UTC python3 make_template_cases.py FOLDER     # run by hand; needs transformers 5 and jinja2; no test runs it

The test ChatTemplateTest.TemplatesOfAFolderRenderExactly reads both if $MINISGL_TEMPLATES names FOLDER. A line of
inputs.jsonl is one conversation with all other variables of a template; a line of cases.jsonl has `template`, `input`
(a line number, from 0) and `expected` or `error`.
"""
import datetime
import json
import pathlib
import sys

from transformers.utils import chat_template_utils

NOW = 1753000000  # 20 July 2025, 08:26:40 UTC: one digit in the hour, two in the day
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, tz)


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, call_id="call00001"):
    return {"type": "function", "id": call_id, "function": {"name": name, "arguments": arguments}}


USER = message("user", "  What is the weather in Paris,\nand 2 < 3 & \"so\"? é中😀 ")
PLAIN = message("user", "Hi")
SYSTEM = message("system", "You are terse. It's <b>fine</b>.")
ANSWER = message("assistant", "It is sunny.")
TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather of a place, it's <now>.",
        "parameters": {"type": "object", "required": ["place"], "properties": {
            "place": {"type": "string", "description": "A city, e.g. \"Paris\""},
            "unit": {"type": ["string", "null"], "enum": ["celsius", "kelvin"], "default": "celsius"},
            "days": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
            "where": {"anyOf": [{"type": "string"}, {"type": "number"}]},
            "opts": {"type": "object", "additionalProperties": True,
                     "properties": {"deep": {"type": "boolean", "default": False}}, "required": ["deep"]}}},
        "return": {"type": "number", "description": "Degrees"}}},
    {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {
        "type": "object", "properties": {}}}},
]
ARGUMENTS = {"place": "Paris é", "days": [1, 2], "opts": {"deep": True}, "where": 1.5, "unit": None}
TOOL_TURN = [
    message("assistant", "", tool_calls=[call("get_weather", ARGUMENTS)]),
    message("tool", "{\"degrees\": 21.5}", name="get_weather", tool_call_id="call00001"),
]
TWO_CALLS = [
    message("assistant", "Let me look.", tool_calls=[call("get_weather", {"place": "Rome"}), call("now", {}, "call00002")]),
    message("tool", "21", name="get_weather", tool_call_id="call00001"),
    message("tool", "noon", name="now", tool_call_id="call00002"),
]
DOCUMENTS = [{"title": "Paris", "text": "Paris is in France.", "content": "Paris is in France.", "doc_id": 1, "id": "d1"},
             {"title": "Rome", "text": "Rome is\nin Italy.", "content": "Rome is\nin Italy.", "doc_id": 2, "id": "d2"}]
THOUGHT = message("assistant", "Four.", reasoning_content="2 and 2\nmake 4.")
INLINE_THOUGHT = message("assistant", "<think>\n2 and 2 make 4.\n</think>\n\nFour.")


def parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


CONVERSATIONS = {
    "one": [USER],
    "system": [SYSTEM, PLAIN],
    "developer": [message("developer", "Answer in French."), PLAIN],
    "turns": [USER, ANSWER, PLAIN],
    "system turns": [SYSTEM, USER, ANSWER, PLAIN, ANSWER, USER],
    "ends with assistant": [PLAIN, ANSWER],
    "assistant first": [ANSWER, PLAIN],
    "two users": [PLAIN, USER],
    "late system": [PLAIN, ANSWER, SYSTEM, USER],
    "unknown role": [PLAIN, message("critic", "Bad.")],
    "empty contents": [message("system", ""), message("user", ""), message("assistant", ""), PLAIN],
    "no content": [PLAIN, {"role": "assistant"}, PLAIN],
    "null content": [PLAIN, message("assistant", None), PLAIN],
    "parts": [message("system", parts("Be brief.")), message("user", parts("Hi", " there")),
              message("assistant", parts("Yo")), message("user", parts("Bye"))],
    "image": [message("user", [{"type": "image"}, {"type": "text", "text": "What is it?"}])],
    "thought": [PLAIN, THOUGHT, USER],
    "thought at the end": [SYSTEM, PLAIN, THOUGHT],
    "inline thought": [PLAIN, INLINE_THOUGHT, USER, INLINE_THOUGHT],
    "thoughts and tools": [PLAIN, message("assistant", "", thinking="I should look.", tool_calls=[call("now", {})]),
                           message("tool", "noon", name="now", tool_call_id="call00001")],
    "tool result": [SYSTEM, USER] + TOOL_TURN,
    "tool turns": [USER] + TOOL_TURN + [ANSWER, PLAIN],
    "two calls": [SYSTEM, USER] + TWO_CALLS,
    "bare calls": [USER, message("assistant", "", tool_calls=[{"name": "now", "arguments": {"a": "b"}}]),
                   message("tool", {"time": [12, None, True]}, name="now")],
    "arguments as text": [USER, message("assistant", "", tool_calls=[call("now", "{\"a\": [1, 2]}")]),
                          message("tool", parts("noon"), name="now", tool_call_id="call00001"), ANSWER, PLAIN],
    "tool alone": [PLAIN, message("tool", "21"), PLAIN],
    "ipython": [USER, ANSWER, message("ipython", "{\"a\": 1}")],
}
VARIANTS = [
    {}, {"add_generation_prompt": False}, {"tools": TOOLS},
    {"tools": TOOLS, "enable_thinking": False, "thinking": False}, {"enable_thinking": True, "thinking": True},
    {"documents": DOCUMENTS}, {"tools": TOOLS, "documents": DOCUMENTS, "add_generation_prompt": False},
    {"reasoning_effort": "low", "date_string": "1 May 2025", "builtin_tools": ["browser", "python"], "tools": TOOLS,
     "custom_tools": TOOLS, "xml_tools": ["f"], "python_tools": ["g"], "tools_in_user_message": False,
     "model_identity": "You are Wren.", "citation_mode": "fast", "controls": {"length": "short"}, "thinking_budget": 512},
]


def main(folder):
    folder = pathlib.Path(folder)
    chat_template_utils.datetime = Clock
    inputs = []
    for name, messages in CONVERSATIONS.items():
        for variant in VARIANTS:
            inputs.append({"case": name, "messages": messages, "now": NOW, "add_generation_prompt": True, **variant})
    with open(folder / "inputs.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps({**TOKENS, **row}, ensure_ascii=False) + "\n" for row in inputs)
    with open(folder / "cases.jsonl", "w", encoding="utf-8") as file:
        for path in sorted(folder.glob("*.jinja")):
            source = path.read_bytes().decode("utf-8")
            for index, row in enumerate(inputs):
                out = {"template": path.stem, "input": index}
                kwargs = {key: value for key, value in row.items() if key not in ("case", "messages", "now")}
                # apply_chat_template does so before it renders.
                messages = [{k: v for k, v in m.items() if v is not None} for m in row["messages"]]
                try:
                    rendered, _ = chat_template_utils.render_jinja_template(
                        conversations=[messages], chat_template=source, **TOKENS, **kwargs)
                    out["expected"] = rendered[0]
                except Exception as error:
                    out["error"] = f"{type(error).__name__}: {error}"
                file.write(json.dumps(out, ensure_ascii=False) + "\n")


main(sys.argv[1])
