// For tests: chat templates in the manner of the families of models in use, and conversations.
#ifndef TALON_TEXT_TEST_CHAT_TEMPLATES_H_
#define TALON_TEXT_TEST_CHAT_TEMPLATES_H_

#include <string_view>

namespace talon {

inline constexpr std::string_view kChat = R"json([
  {"role": "system", "content": " Be kind. "},
  {"role": "user", "content": "Hi"},
  {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello "},
  {"role": "user", "content": "Bye"}])json";

inline constexpr std::string_view kCalls = R"json([
  {"role": "user", "content": "Weather?"},
  {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo", "days": 2}}}]},
  {"role": "tool", "tool_call_id": "c1", "content": "sun"},
  {"role": "tool", "tool_call_id": "c2", "content": "rain"}])json";

inline constexpr std::string_view kTools =
    R"json([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}])json";

inline constexpr std::string_view kHeaders = R"jinja({{- bos_token }}
{%- if not date is defined %}
    {%- set date = "1 Jan" %}
{%- endif %}
{#- The system message comes out first, with the tools. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|head|>system<|/head|>\n\n" }}
{%- if tools is not none %}
    {{- "Tools: ipython\n" }}
{%- endif %}
{{- "Today: " + date + "\n\n" + system_message + "<|eot|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|head|>' + message['role'] + '<|/head|>\n\n' + message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one call at a time") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}
        {{- "}<|eot|>" }}
        {%- for arg, value in call.arguments | items %}
            {{- arg + '="' ~ value ~ '"' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- endif %}
        {%- endfor %}
    {%- else %}
        {{- "<|head|>ipython<|/head|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|head|>assistant<|/head|>\n\n' }}
{%- endif %}
)jinja";

inline constexpr std::string_view kMarks = R"jinja({%- if tools %}
    {{- '<|start|>system\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\n\n' }}
    {%- endif %}
    {{- "# Tools\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools><|stop|>\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|start|>system\n' + messages[0].content + '<|stop|>\n' }}
{%- endif %}
{%- set ns = namespace(looking=true, last_query=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.looking and message.role == "user" and not(message.content.startswith('<result>') and message.content.endswith('</result>')) %}
        {%- set ns.looking = false %}
        {%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|start|>' + message.role + '\n' + message.content + '<|stop|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content or '' %}
        {%- set thought = '' %}
        {%- if '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query and thought %}
            {{- '<|start|>assistant\n<think>\n' + thought.strip('\n') + '\n</think>\n\n' + content }}
        {%- else %}
            {{- '<|start|>assistant\n' + content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls or [] %}
            {%- if tool_call.function %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\n<call>\n{"name": "' + tool_call.name + '", "arguments": ' + tool_call.arguments | tojson + '}\n</call>' }}
        {%- endfor %}
        {{- '<|stop|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|start|>user' }}
        {%- endif %}
        {{- '\n<result>\n' + message.content + '\n</result>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|stop|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %})jinja";

inline constexpr std::string_view kInstructions = R"jinja({%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set turns = messages %}
{%- endif %}
{%- set users = turns | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for turn in turns if turn.role in ["user", "assistant"] and not turn.tool_calls %}
    {%- if (turn["role"] == "user") != (ns.index % 2 == 0) %}
        {{- raise_exception("Roles must alternate") }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
{%- endfor %}
{{- bos_token }}
{%- for turn in turns %}
    {%- if turn["role"] == "user" %}
        {%- if tools is not none and turn == users[-1] %}
            {{- "[TOOLS][" }}
            {%- for tool in tools | map(attribute="function") %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}, {% endif %}
                {%- endfor %}
                {{- "}}" }}
            {%- endfor %}
            {{- "][/TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + turn["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + turn["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif turn.tool_calls is defined and turn.tool_calls is not none %}
        {{- "[CALLS][" }}
        {%- for call in turn.tool_calls %}
            {%- set out = call.function|tojson %}
            {{- out[:-1] + ', "id": "' + call.id + '"}' + (", " if not loop.last else "]" + eos_token) }}
        {%- endfor %}
    {%- elif turn["role"] == "assistant" %}
        {{- " " + turn["content"]|trim + eos_token }}
    {%- elif turn["role"] in ["tool", "result"] %}
        {{- '[RESULTS]{"content": ' + turn.content|string + "}[/RESULTS]" }}
    {%- else %}
        {{- raise_exception("Unknown role " + turn["role"]) }}
    {%- endif %}
{%- endfor %}
)jinja";

inline constexpr std::string_view kTurns = R"jinja({{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set first_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}
    {%- endif -%}
    {%- set turns = messages[1:] -%}
{%- else -%}
    {%- set first_prefix = "" -%}
    {%- set turns = messages -%}
{%- endif -%}
{%- for message in turns -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<turn>' + role + '\n' + (first_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {{ '</turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<turn>model
'}}
{%- endif -%}
)jinja";

inline constexpr std::string_view kOneLine =
    R"jinja({% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|system|>\nYou help.<|end|>\n' }}{% endif %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'assistant' and message['content'] is none %}{% for tool in message['tool_calls'] %}{{ '<|call|>' + tool['type'] + '<|sep|>' + tool['function']['name'] }}{% endfor %}{% else %}{{'<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %})jinja";

inline constexpr std::string_view kSplitThoughts =
    R"jinja({% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=true, in_results=false, system='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system = message['content'] %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.in_results = false -%}{{ '<User>' + message['content'] }}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is none %}{%- for tool in message['tool_calls'] %}{%- if ns.is_first %}{{ '<Calls>' + tool['type'] + '\n```json\n' + tool['function']['arguments']|tojson + '\n```' }}{%- set ns.is_first = false -%}{%- endif %}{%- endfor %}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is not none %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{ '<Assistant>' + content + eos_token }}{%- endif %}{%- if message['role'] == 'tool' %}{%- if not ns.in_results %}{{ '<Results>' }}{%- endif %}{%- set ns.in_results = true -%}{{ '<r>' + message['content'] + '</r>' }}{%- endif %}{%- endfor -%}{% if add_generation_prompt and not ns.in_results %}{{ '<Assistant><think>\n' }}{% endif %})jinja";

}  // namespace talon

#endif  // TALON_TEXT_TEST_CHAT_TEMPLATES_H_
