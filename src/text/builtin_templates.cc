#include "text/builtin_templates.h"

namespace talon {
namespace {

struct NamedTemplate {
  std::string_view name;
  std::string_view source;
};

// Sorted by name.
constexpr NamedTemplate kTemplates[] = {
    {"chatml", R"jinja(
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %})jinja"},
    {"gemma", R"jinja({{- bos_token }}
{%- set ns = namespace(system='') %}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {%- set ns.system = ns.system + message.content|trim + '\n\n' %}
    {%- else %}
        {%- set role = 'model' if message.role == 'assistant' else message.role %}
        {{- '<start_of_turn>' + role + '\n' + ns.system + message.content|trim + '<end_of_turn>\n' }}
        {%- set ns.system = '' %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<start_of_turn>model\n' }}
{%- endif %})jinja"},
    {"llama2", R"jinja(
{%- set ns = namespace(system='') %}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {%- set ns.system = '<<SYS>>\n' + message.content|trim + '\n<</SYS>>\n\n' %}
    {%- elif message.role == 'user' %}
        {{- bos_token }}
        {{- '[INST] ' + ns.system + message.content|trim + ' [/INST]' }}
        {%- set ns.system = '' %}
    {%- elif message.role == 'assistant' %}
        {{- ' ' + message.content|trim + ' ' }}
        {{- eos_token }}
    {%- endif %}
{%- endfor %})jinja"},
    {"llama3", R"jinja({{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
    {{- message.content|trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %})jinja"},
    {"plain", R"jinja({{- bos_token }}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {{- message.content + '\n\n' }}
    {%- else %}
        {{- message.role|capitalize + ': ' + message.content + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- 'Assistant:' }}
{%- endif %})jinja"},
};

}  // namespace

std::optional<std::string_view> BuiltinTemplate(std::string_view name) {
  for (const NamedTemplate& each : kTemplates) {
    if (each.name == name) return each.source;
  }
  return std::nullopt;
}

std::string BuiltinTemplateNames() {
  std::string names;
  for (const NamedTemplate& each : kTemplates) {
    if (!names.empty()) names += ", ";
    names += each.name;
  }
  return names;
}

}  // namespace talon
