// Templates that would not terminate, overflow the stack or exhaust memory, and templates whose
// work must not be quadratic, for tests of their time and memory.
#pragma once

#include <fmt/core.h>

#include <string>
#include <vector>

namespace minisgl {

inline std::string Repeated(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

// Returns "a0=1,a1=1,...", or the same in reverse order.
inline std::string ManyArguments(int count, bool backwards = false) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    out += fmt::format("{}a{}=1", i > 0 ? "," : "", backwards ? count - 1 - i : i);
  }
  return out;
}

struct Hostile {
  const char* what;
  std::string source;
};

inline std::vector<Hostile> HostileTemplates() {
  const std::string big = "{% set a = 'aaaaaaaaaaaaaaaa' * 60000 %}";
  return {
      {"parentheses", "{{ " + Repeated("(", 20000) + "1" + Repeated(")", 20000) + " }}"},
      {"brackets", "{{ " + Repeated("[", 20000) + Repeated("]", 20000) + " }}"},
      {"braces", "{{ " + Repeated("{1:", 20000) + "1" + Repeated("}", 20000) + " }}"},
      {"not", "{{ " + Repeated("not ", 20000) + "x }}"},
      {"signs", "{{ " + Repeated("-", 20000) + "1 }}"},
      {"attributes", "{{ x" + Repeated(".a", 20000) + " }}"},
      {"subscripts", "{{ x" + Repeated("[0]", 20000) + " }}"},
      {"calls", "{{ x" + Repeated("()", 20000) + " }}"},
      {"filters", "{{ x" + Repeated("|trim", 20000) + " }}"},
      {"tests", "{{ x" + Repeated(" is defined", 20000) + " }}"},
      {"conditionals", "{{ 1" + Repeated(" if 1 else 2", 20000) + " }}"},
      {"blocks", Repeated("{% if true %}", 20000) + Repeated("{% endif %}", 20000)},
      {"loops in loops", Repeated("{% for x in [1] %}", 20000)},
      {"macro that calls itself", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"},
      {"two macros",
       "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}"},
      {"caller of itself",
       "{% macro m() %}{{ caller() }}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}"
       "{% call m() %}x{% endcall %}"},
      {"range", "{{ range(1000000000) | list }}"},
      {"range down", "{{ range(0, -9223372036854775807, -1) | list }}"},
      {"loop of loops",
       "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"},
      {"loop of text",
       "{% for i in range(100000) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' * 10 }}{% "
       "endfor %}"},
      {"repetition", "{{ 'a' * 1000000000 }}"},
      {"repetition of much", "{{ 'aaaaaaaa' * 9223372036854775807 }}"},
      {"list repetition", "{{ [1] * 1000000000 }}"},
      {"doubling text",
       "{% set ns = namespace(s='a') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% "
       "endfor %}"},
      {"doubling list",
       "{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% "
       "endfor %}"},
      {"shared lists",
       "{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = [ns.s, ns.s] %}{% "
       "endfor %}{{ ns.s }}"},
      {"deep list",
       "{% set ns = namespace(s=[1]) %}{% for i in range(50000) %}{% set ns.s = [ns.s] %}{% endfor "
       "%}"},
      {"replace", big + "{{ a | replace('a', 'aaaaaaaaaaaaaaaa') }}"},
      {"copies", big + "{% for i in range(10000) %}{% set b = a + 'x' %}{% endfor %}"},
      {"comparisons",
       big + "{% set b = a ~ '' %}{% for i in range(100000) %}{{ a == b }}{% endfor %}"},
      {"searches", big + "{% for i in range(100000) %}{% if 'b' in a %}{% endif %}{% endfor %}"},
      {"counts", big + "{% for i in range(100000) %}{% if a | length %}{% endif %}{% endfor %}"},
      {"sorts", "{% for i in range(1000) %}{% if range(100000) | sort %}{% endif %}{% endfor %}"},
      {"unique", "{{ range(100000) | unique | list }}"},
      {"characters", big + "{% for c in a %}{% endfor %}"},
      {"indentation", "{{ ('a\n' * 100000) | indent(1000) }}"},
      {"wide JSON", "{{ ([1] * 100000) | tojson(indent=1000000000) }}"},
      {"powers", "{{ 9 ** 9 ** 9 }}"},
      {"division", "{{ 1 / 0 }}"},
      {"remainder", "{{ 1 % 0 }}"},
      {"least number by -1", "{{ (-9223372036854775807 - 1) // -1 }}"},
      {"unknown tag", "{% explode %}"},
      {"zero fill", "{{ 'a'.zfill(1000000000000) }}"},
      {"slice of step 0", "{{ 'abc'[::0] }}"},
      {"maps of maps", "{{ 'a' | map(" + Repeated("'map',", 20000) + "'upper') | list }}"},
      {"maps that nest", "{{ 'a' | map(" + Repeated("'map',", 600) + "'upper') | list }}"},
      {"arguments handed on", "{% for i in range(100000) %}{% set b = 'a' | map(" +
                                  Repeated("'map',", 100) + "'upper') | list %}{% endfor %}"},
      {"long names", "{{ " + std::string(100'000, 'n') + " }}"},
      {"long names of arguments", "{{ dict(" + std::string(100'000, 'n') + "=1) }}"},
      {"namespaces of long names",
       big + "{% for i in range(100000) %}{% set b = namespace({a: i}) %}{% endfor %}"},
      {"look-ups by long keys",
       big + "{% set d = {a ~ 'x': 1, a ~ 'y': 1, a ~ 'z': 1} %}{% set k = a ~ '!' %}"
             "{% for i in range(100000) %}{% if d[k] %}{% endif %}{% endfor %}"},
      {"equal dicts", "{% set d = dict(" + ManyArguments(4000) + ") %}{% set e = dict(" +
                          ManyArguments(4000, /*backwards=*/true) +
                          ") %}{% for i in range(100000) %}{{ d == e }}{% endfor %}"},
      {"keys", big + "{% set d = {a: 1} %}{% for i in range(100000) %}"
                     "{% if d.keys() %}{% endif %}{% endfor %}"},
      {"items", big + "{% set d = {a: 1} %}{% for i in range(100000) %}"
                      "{% if d.items() %}{% endif %}{% endfor %}"},
      {"dicts", big + "{% set d = {a: 1} %}{% for i in range(100000) %}"
                      "{% set e = dict(d) %}{% endfor %}"},
      {"named into dicts",
       "{% for i in range(100000) %}{% set d = dict(" + ManyArguments(2000) + ") %}{% endfor %}"},
      {"parts", big + "{% for i in range(100000) %}{{ a.split('a') | length }}{% endfor %}"},
      {"recursive loop of itself",
       "{% set ns = namespace(t=[1]) %}{% for x in ns.t recursive %}{{ loop(ns.t) }}{% endfor %}"},
      {"loop called after its end",
       "{% set ns = namespace() %}{% for x in [1] recursive %}{% set ns.l = loop %}{% endfor %}"
       "{{ ns.l([1]) }}"},
      {"look ahead of a loop that has ended",
       "{% set ns = namespace() %}{% for x in [1, 2] if x %}{% set ns.l = loop %}{% break %}"
       "{% endfor %}{{ ns.l.last }}"},
      {"changed after the end",
       "{% set ns = namespace() %}{% for x in [1] %}{% set ns.l = loop %}{% endfor %}"
       "{{ ns.l.changed(ns.l) }}"},
      {"macro after its scope",
       "{% set ns = namespace() %}{% for x in [1] %}{% macro m() %}{{ x }}{% endmacro %}"
       "{% set ns.m = m %}{% endfor %}{{ ns.m() }}"},
      {"condition that looks ahead of its own loop",
       "{% set ns = namespace(l=none) %}{% for x in range(100000) if ns.l is none or ns.l.last %}"
       "{% set ns.l = loop %}{{ loop.last }}{% endfor %}"},
      {"wide formats", "{{ '%1000000000d' % 1 }}"},
      {"wide fields", "{{ '{:1000000000}'.format(1) }}"},
      {"formats of precision", "{{ '%.1000000000f' % 1 }}"},
      {"formats in formats", "{{ '{:{:{}}}'.format(1, 2, 3) }}"},
      {"fields of fields", "{{ '{0" + Repeated("[0]", 2000000 / 3) + "}'.format([1]) }}"},
      {"many conversions", "{{ ('%(a)4096s' * 100000) % {'a': 1} }}"},
      {"many fields", "{{ ('{0:4096}' * 100000).format(1) }}"},
      {"wide padding", "{{ 'a'.center(1000000000000) }}"},
      {"wide center", "{{ 'a' | center(1000000000) }}"},
      {"wide tabs", "{{ ('\t' * 1000000).expandtabs(1024) }}"},
      {"many columns", "{{ [1] | slice(1000000000) | list }}"},
      {"wide rows", "{{ [1] | batch(1000000000, 0) | list }}"},
      {"columns in loops",
       "{% for i in range(100000) %}{% set b = [1] | slice(100000) %}{% endfor %}"},
      {"many sort keys", "{{ [{}] * 1000 | sort(attribute='a" + Repeated(",a", 10000) + "') }}"},
      {"groups",
       "{% for i in range(1000) %}{% if range(100000) | groupby('x', 1) %}{% endif %}"
       "{% endfor %}"},
      {"spread lists",
       "{% macro m() %}{{ varargs | length }}{% endmacro %}"
       "{% set l = range(100000) | list %}"
       "{% for i in range(100000) %}{% set b = m(*l) %}{% endfor %}"},
      {"spread dicts", "{% macro m() %}{{ kwargs | length }}{% endmacro %}{% set d = dict(" +
                           ManyArguments(4000) +
                           ") %}{% for i in range(100000) %}{% set b = m(**d) %}{% endfor %}"},
      {"names that are texts", big + "{{ dict(**{a: 1}) }}"},
      {"escapes", big + "{% set b = '<' * 150000 %}{% for i in range(1000) %}"
                        "{% set c = b | e %}{% endfor %}"},
      {"one escape", "{% set b = '<' * 1000000 %}{% set c = b | e %}"},
      {"JSON's escapes", "{% set b = '\x01' * 1000000 %}{% set c = b | tojson %}"},
      {"Python's escapes", "{% set b = ['\x01' * 1000000] %}{% set c = b ~ '' %}"},
      {"texts that are kept",
       "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}"
       "{% set ns.l = ns.l + ['x' * 100000 ~ i] %}{% endfor %}"},
      {"lists that are kept",
       "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}"
       "{% set ns.l = ns.l + [range(i, 10000) | list] %}{% endfor %}"},
      {"dicts that are kept",
       "{% set ns = namespace(l=[]) %}{% for i in range(10000) %}"
       "{% set ns.l = [ns.l, dict(" +
           ManyArguments(1000) + ")] %}{% endfor %}"},
      {"namespaces that are kept",
       "{% for i in range(100000) %}{% for j in range(100000) %}"
       "{% set n = namespace(a=i, b=j, c=i, d=j) %}{% endfor %}"
       "{% endfor %}"},
      {"loops that are kept",
       "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% for x in range(10000) %}"
       "{% set ns.l = ns.l + [loop] %}{% break %}{% endfor %}{% endfor %}"},
      {"many outputs", Repeated("{{a}}", 200000)},
      {"many elements", "{{ [" + Repeated("1,", 500000) + "] }}"},
      {"many conditions", Repeated("{%if a%}{%endif%}", 60000)},
      {"sums of escapes", "{% set b = '<' * 300000 %}{% set c = ('' | safe) + b %}"},
      {"numbers as keys",
       "{% for i in range(100000) %}{% for j in range(100000) %}"
       "{% if {1: i, 2.5: i} == {1: j, 2.5: i} %}{% endif %}{% endfor %}{% endfor %}"},
      {"numbers as names", "{{ dict(**{1: 2}) }}"},
      {"final letters",
       "{% set a = ('\u03a3' ~ '.' * 1000000) %}{% for i in range(10000) %}"
       "{% set b = a | lower %}{% endfor %}"},
      {"query", big + "{% for i in range(1000) %}{% set b = a | urlencode %}{% endfor %}"},
      {"words", big + "{% for i in range(1000) %}{% set b = a | wordcount %}{% endfor %}"},
      {"runs of origin",
       "{% set a = messages[0].content ~ '-' %}{% set b = a * 1000000 %}"
       "{% for i in range(100000) %}{% set c = b ~ '' %}{% endfor %}"},
  };
}

struct Slow {
  const char* what;
  std::string source;
};

// Templates whose work must be linear in the size of the input, not quadratic.
inline std::vector<Slow> SlowTemplates() {
  const std::string texts =
      "{% set a = 'aaaaaaaaaaaaaaaa' * 50000 %}{% set h = 'aaaaaaaaaaaaaaaa' * 25000 %}"
      "{% set n = h ~ 'b' ~ h %}{% set e = 'b' ~ h %}{% set s = h ~ 'b' %}";
  return {
      {"in", texts + "{{ n in a }}"},
      {"find", texts + "{{ a.find(s) }}"},
      {"find the middle", texts + "{{ a.find(n) }}"},
      {"rfind", texts + "{{ a.rfind(e) }}"},
      {"rfind the middle", texts + "{{ a.rfind(n) }}"},
      {"count", texts + "{{ a.count(s) }}"},
      {"replace", texts + "{{ a | replace(s, '') | length }}"},
      {"split", texts + "{{ a.split(s) | length }}"},
      {"rsplit", texts + "{{ a.rsplit(e) | length }}"},
      {"partition", texts + "{{ a.partition(s) | length }}"},
      {"strip", texts + "{{ ('\u00e9' * 100000).strip(a ~ '\u00e9') | length }}"},
      {"sorted lists that nest",
       "{% set ns = namespace(a=[1], b=[2]) %}{% for i in range(120) %}{% set ns.a = [ns.a] %}"
       "{% set ns.b = [ns.b] %}{% endfor %}{{ ([ns.b, ns.a] * 20000) | sort | length }}"},
  };
}

}  // namespace minisgl
