"""Writes tool_call_cases.jsonl: conversations with tool calls as Jinja2 renders them, set up as transformers does.

    python3 make_tool_call_cases.py ../../../shared/templates tool_call_cases.jsonl    # run by hand; needs jinja2

A row has `template` (a file of that folder, without .jinja) or `source`, `messages` with arguments as the JSON text that
clients of services send, `tools`, `form` and `expected`. Rendered are the messages with arguments as objects, as the
documentation of transformers asks, or if the template needs texts (`form` is "text"), the messages as they are.
"""
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}]

LOOP = "{% for m in messages %}[{{ m.role }}]{% if m.tool_calls %}{% for c in m.tool_calls %}"
END = "{% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
# As models' templates write a call, each after its kind.
CALLS = {
    "items": "<{{ c.function.name }}>{% for k, v in c.function.arguments|items %}{{ k }}={{ v }};{% endfor %}",
    "items()": "{% for k, v in c['function']['arguments'].items() %}{{ k }}={{ v | tojson }};{% endfor %}",
    "dictsort": "{% for k, v in c.function.arguments | dictsort %}{{ k }}:{{ v }},{% endfor %}",
    "tojson": "{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}",
    "tojson of the call": "{{ c.function | tojson }}",
    "tojson of all calls": "{% if loop.first %}{{ m.tool_calls | map(attribute='function') | list | tojson }}{% endif %}",
    "tojson and the name": "{% set f = c.function or c %}{{ f.name }}{{ f.arguments | tojson(indent=2) }}",
    "mapping": "{% if c.function.arguments is mapping %}{% for k in c.function.arguments %}{{ k }}="
               "{{ c.function.arguments[k] }};{% endfor %}{% endif %}",
    "string or not": "{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}"
                     "{{ c.function.arguments | tojson }}{% endif %}",
    "not a string": "{% set a = c.function.arguments %}{% if a is not string %}{% set a = a | tojson %}{% endif %}{{ a }}",
    "macro": "{% macro show(v) %}{% if v is mapping %}{% for k in v %}{{ k }}({{ show(v[k]) }}){% endfor %}"
             "{% else %}{{ v }}{% endif %}{% endmacro %}{{ show(c.function.arguments) }}",
    "get": "{{ c.function.arguments.get('city', '?') }} {{ c.function.arguments.days }}"
           "{% for k in c.function.arguments.keys() %} {{ k }}{% endfor %}",
    "concatenated": "{{ '<' + c.function.name + '>' + c.function.arguments }}",
    "concatenated, fenced": "{{ c['type'] + c['function']['name'] + '\\n```json\\n' + c['function']['arguments'] + '\\n```' }}",
    "printed": "<call>{{ c.function.name }} {{ c.function.arguments }}</call>",
    "trimmed": "{{ c.function.arguments | trim }}",
    "only a string": "{% if c.function.arguments is string %}{{ c.function.arguments }}{% endif %}",
    "method of a string": "{{ c.function.arguments.strip() }}",
}


def compile_template(source):
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    return environment.from_string(source)


def call(arguments, name="weather", call_id="call00001"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversation(*calls, content=""):
    results = [{"role": "tool", "tool_call_id": c["id"], "name": c["function"]["name"], "content": "snow"} for c in calls]
    return [{"role": "user", "content": "Weather in Oslo?"},
            {"role": "assistant", "content": content, "tool_calls": list(calls)}] + results


CONVERSATIONS = [
    conversation(call("{\"city\": \"Oslo\", \"days\": 2}")),
    conversation(call("{\"days\":18446744073709551617,\"city\":\"\\u00c5s \\\"x\\\"\",\"n\":{\"b\":1.0,\"a\":[null,true,-0.5]}}")),
    conversation(call("{\"city\": \"Rome\"}"), call("{\"city\": \"Bern\", \"days\": 1e3}", call_id="call00002")),
]


def with_objects(messages):
    copied = json.loads(json.dumps(messages))
    for message in copied:
        for one in message.get("tool_calls", []):
            one["function"]["arguments"] = json.loads(one["function"]["arguments"])
    return copied


def render(template, messages, tools):
    try:
        return template.render(messages=messages, tools=tools, documents=None, add_generation_prompt=True, **TOKENS)
    except Exception as error:  # a template refuses in any way that Python knows
        return error


def needs_text(template, tools):
    """True if a template loses the words of an object, writes it in Python's notation, or fails."""
    messages = conversation(call("{\"city\": \"Molde\"}"))
    text = render(template, with_objects(messages), tools)
    as_text = render(template, messages, tools)
    if isinstance(as_text, Exception) or "Molde" not in as_text:
        return False
    return isinstance(text, Exception) or "Molde" not in text or "'city': 'Molde'" in text


def main(folder, out):
    sources = [({"template": path.stem}, path.read_bytes().decode("utf-8"))
               for path in sorted(pathlib.Path(folder).glob("*.jinja"))]
    sources = [(key, source) for key, source in sources if "arguments" in source or "tool_calls" in source]
    sources += [({"source": LOOP + calls + END}, LOOP + calls + END) for calls in CALLS.values()]
    with open(out, "w", encoding="utf-8") as file:
        for key, source in sources:
            template = compile_template(source)
            for tools in (TOOLS, None):
                form = "text" if needs_text(template, tools) else "object"
                for messages in CONVERSATIONS:
                    rendered = render(template, messages if form == "text" else with_objects(messages), tools)
                    row = {**key, "form": form, "messages": messages, "tools": tools}
                    if isinstance(rendered, Exception):
                        row["error"] = f"{type(rendered).__name__}: {rendered}"
                    else:
                        row["expected"] = rendered
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")


main(*sys.argv[1:])
