"""Holds the answers to an OpenAI Batch file to the types of the `openai` package.

    pip install openai
    python3 tests/cli/check_openai_types.py build/src/cli/minisgl tests/models/wren

Runs rows of both URLs, good and bad, and validates every line: the frame of a Batch line, the body
as ChatCompletion or Completion, without members that the types do not know but for those named in
OURS, and failures as the service words them. Run by hand: the tests need no package.
"""
import json
import subprocess
import sys
import tempfile

import openai
from openai.types import Completion
from openai.types.chat import ChatCompletion

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "What is 2 + 3?"}]
PARTS = [{"role": "system", "content": "Be brief."},
         {"role": "user", "content": [{"type": "text", "text": "Name "}, {"type": "text", "text": "a river."}]},
         {"role": "assistant", "content": "The Rhine.", "refusal": None, "annotations": []},
         {"role": "user", "content": "Another?"}]
TOOLS = [{"type": "function", "function": {"name": "sum", "strict": True, "parameters": {
    "type": "object", "properties": {"a": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["a"],
    "additionalProperties": False}}}]
# Members that the service does not have.
OURS = {"warnings", "token_ids", "reasoning", "id"}  # id: of a token of log-probabilities

GOOD = [
    (CHAT, {"messages": HELLO}),
    (CHAT, {"messages": PARTS, "max_tokens": 8}),
    (CHAT, {"messages": HELLO, "max_completion_tokens": 4, "temperature": 0.7, "top_p": 0.9, "seed": 5}),
    (CHAT, {"messages": HELLO, "n": 3, "temperature": 1, "max_tokens": 6}),
    (CHAT, {"messages": HELLO, "logprobs": True, "max_tokens": 5}),
    (CHAT, {"messages": HELLO, "logprobs": True, "top_logprobs": 4, "max_tokens": 5}),
    (CHAT, {"messages": HELLO, "stop": ["3"], "frequency_penalty": 0.5, "presence_penalty": 0.5}),
    (CHAT, {"messages": HELLO, "logit_bias": {"100": -100}, "max_tokens": 4}),
    (CHAT, {"messages": HELLO, "metadata": {"run": "7"}, "store": True, "user": "u", "stream": False}),
    (CHAT, {"messages": HELLO, "response_format": {"type": "text"}, "service_tier": "auto", "stop": None}),
    (CHAT, {"messages": HELLO, "response_format": {"type": "json_object"}, "max_tokens": 20}),
    (CHAT, {"messages": HELLO, "response_format": {"type": "json_schema", "json_schema": {
        "name": "sum", "strict": True, "schema": {"type": "object", "properties": {"sum": {"type": "integer"}}}}}}),
    (CHAT, {"messages": HELLO, "return_token_ids": True, "max_tokens": 3}),
    (CHAT, {"messages": HELLO, "max_tokens": 100000}),
    (CHAT, {"messages": HELLO, "tools": [], "tool_choice": "none", "parallel_tool_calls": True}),
    (CHAT, {"messages": HELLO, "tools": TOOLS, "tool_choice": "required", "max_tokens": 200}),
    (CHAT, {"messages": HELLO, "tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "sum"}}}),
    (TEXT, {"prompt": "Once upon a time", "max_tokens": 12}),
    (TEXT, {"prompt": ["Once upon a time"], "max_tokens": 4}),
    (TEXT, {"prompt": [10, 20, 30], "max_tokens": 4}),
    (TEXT, {"prompt": "Once", "n": 2, "best_of": 2, "temperature": 1, "max_tokens": 4}),
    (TEXT, {"prompt": "Once", "logprobs": 0, "max_tokens": 4}),
    (TEXT, {"prompt": "Once", "logprobs": 5, "max_tokens": 6, "return_token_ids": True}),
    (TEXT, {"prompt": "Once upon", "echo": True, "logprobs": 2, "max_tokens": 3}),
    (TEXT, {"prompt": "Once upon", "echo": True, "logprobs": 0, "max_tokens": 0}),
    (TEXT, {"prompt": "Once", "echo": False, "suffix": None, "user": "u", "stop": "."}),
]
BAD = [
    (CHAT, {}, "messages"),
    (CHAT, {"messages": []}, "messages"),
    (CHAT, {"messages": HELLO, "stop_regex": "a"}, "stop_regex"),
    (CHAT, {"messages": HELLO, "temperature": "hot"}, "temperature"),
    (CHAT, {"messages": HELLO, "n": 0}, "n"),
    (CHAT, {"messages": HELLO, "functions": [{"name": "f"}]}, "functions"),
    (CHAT, {"messages": HELLO, "response_format": {"type": "structural_tag"}}, "response_format.type"),
    (CHAT, {"messages": HELLO, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": 1}}}},
     "response_format.json_schema.schema"),
    (CHAT, {"messages": HELLO, "top_logprobs": 2}, "top_logprobs"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]"),
    (CHAT, {"messages": HELLO, "reasoning_effort": "much"}, "reasoning_effort"),
    (TEXT, {"prompt": ["a", "b"]}, "prompt"),
    (TEXT, {"prompt": "a", "max_tokens": 0}, "max_tokens"),
    (TEXT, {"prompt": "a", "best_of": 4}, "best_of"),
    (TEXT, {"prompt": "word " * 5000}, None),
    ("/v1/embeddings", {"input": "a"}, "url"),
]


def unknown_members(value, path="body"):
    """Members that the types take as extras, and that are not ours."""
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from unknown_members(item, f"{path}[{i}]")
    elif isinstance(value, openai.BaseModel):
        for name in value.model_extra or {}:
            if name not in OURS:
                yield f"{path}.{name}"
        for name in type(value).model_fields:
            yield from unknown_members(getattr(value, name), f"{path}.{name}")


def check(condition, what):
    if not condition:
        sys.exit(f"check_openai_types: {what}")


def check_frame(line, request):
    where = request["custom_id"]
    check(set(line) == {"id", "custom_id", "response", "error"}, f"{where}: members {sorted(line)}")
    check(line["custom_id"] == where and isinstance(line["id"], str), f"{where}: its ids")
    check(set(line["response"]) == {"status_code", "request_id", "body"}, f"{where}: response")
    check(line["error"] is None, f"{where}: error {line['error']}")


def take_echoed_nulls(body, where):
    """The first token of a prompt has no log-probability, for the service neither; its types know no null there."""
    for choice in body["choices"]:
        for name in ("token_logprobs", "top_logprobs"):
            values = choice["logprobs"][name]
            check(values is None or values.pop(0) is None, f"{where}: {name} of the first token")


def check_good(line, request):
    where, body = request["custom_id"], line["response"]["body"]
    if request["body"].get("echo") and "logprobs" in request["body"]:
        take_echoed_nulls(body, where)
    check(line["response"]["status_code"] == 200, f"{where}: {body}")
    kind = ChatCompletion if request["url"] == CHAT else Completion
    answer = kind.model_validate(body, strict=True)
    extras = list(unknown_members(answer))
    check(not extras or (kind is Completion and extras == ["body.metadata"]), f"{where}: {extras}")
    check(len(answer.choices) == request["body"].get("n", 1), f"{where}: choices")
    check(answer.model == request["body"]["model"], f"{where}: model")
    usage = answer.usage
    check(usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, f"{where}: usage")
    if request["body"].get("tool_choice", "none") != "none":
        for choice in answer.choices:
            check(choice.finish_reason == "tool_calls" and choice.message.content is None, f"{where}: {choice}")
            check(all("a" in json.loads(call.function.arguments) for call in choice.message.tool_calls), f"{where}: calls")
    wanted = request["body"].get("logprobs")
    check((answer.choices[0].logprobs is not None) == (wanted is not None), f"{where}: logprobs")


def check_bad(line, request, param):
    where, error = request["custom_id"], line["response"]["body"]["error"]
    check(line["response"]["status_code"] == 400, f"{where}: status code")
    check(error["param"] == param, f"{where}: param {error['param']}, not {param}")
    check(isinstance(error["message"], str) and isinstance(error["code"], str), f"{where}: {error}")
    check(error["type"] == "invalid_request_error", f"{where}: {error['type']}")


def main(binary, model):
    requests = [{"custom_id": f"row-{i}", "method": "POST", "url": row[0], "body": {"model": "m", **row[1]}}
                for i, row in enumerate(GOOD + BAD)]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(request) + "\n" for request in requests)
        file.flush()
        command = [binary, "run", "--quiet", "-m", model, "--tool-dialect", "hermes", "--file", file.name]
        outputs = [subprocess.run(command, stdout=subprocess.PIPE, check=False) for _ in range(2)]
    check(outputs[0].returncode == 1, f"exit status {outputs[0].returncode}")
    check(outputs[0].stdout == outputs[1].stdout, "two runs differ")
    lines = [json.loads(line) for line in outputs[0].stdout.splitlines()]
    check(len(lines) == len(requests), f"{len(lines)} lines for {len(requests)} rows")
    for i, (line, request) in enumerate(zip(lines, requests)):
        check_frame(line, request)
        if i < len(GOOD):
            check_good(line, request)
        else:
            check_bad(line, request, BAD[i - len(GOOD)][2])
    print(f"{len(GOOD)} answers and {len(BAD)} failures are as openai {openai.__version__} has them")


if __name__ == "__main__":
    main(*sys.argv[1:])
