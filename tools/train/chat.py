"""Conversations as text: the Python twin of models/tiny/chat_template.jinja."""

import json

HEADER = "<|start_header_id|>{}<|end_header_id|>\n\n"
CALL_FORM = ("\n</tools>\nTo call one, answer:\n<tool_call>\n"
             '{"name": <name>, "arguments": <object>}\n</tool_call><|eot_id|>')


def render(messages: list[dict], tools: list[dict] | None = None, prompt: bool = False) -> str:
    """prompt: ends with the header of the assistant's turn, for it to answer."""
    text = "<|begin_of_text|>"
    rest = messages
    if tools:
        text += HEADER.format("system")
        if messages[0]["role"] == "system":
            text += messages[0]["content"].strip() + "\n\n"
            rest = messages[1:]
        text += "You may call these tools:\n<tools>"
        text += "".join("\n" + json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
        text += CALL_FORM
    text += "".join(_turn(message) for message in rest)
    return text + HEADER.format("assistant") if prompt else text


def _turn(message: dict) -> str:
    if message["role"] == "tool":
        return (HEADER.format("tool") + f"<tool_response>\n{message['content']}\n</tool_response>"
                "<|eot_id|>")
    parts = [message["content"].strip()] if message.get("content") else []
    parts += [call_text(call["function"]) for call in message.get("tool_calls") or []]
    return HEADER.format(message["role"]) + "\n".join(parts) + "<|eot_id|>"


def call_text(function: dict) -> str:
    arguments = json.dumps(function["arguments"], ensure_ascii=False)
    return f'<tool_call>\n{{"name": "{function["name"]}", "arguments": {arguments}}}\n</tool_call>'


def read_items(path) -> list[dict]:
    """The held-out items of tests/data/tasks.jsonl."""
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def context_key(messages: list[dict], tools: list[dict] | None) -> str:
    """What the assistant sees before its answer, to compare items."""
    return json.dumps([messages, tools or []], sort_keys=True)


def is_right(item: dict, text: str) -> bool:
    """Judges an answer (without its end token)."""
    text = text.strip()
    if "answer" in item:
        return text == item["answer"]
    try:
        if "json" in item:
            return json.loads(text) == item["json"]
        if not (text.startswith("<tool_call>") and text.endswith("</tool_call>")):
            return False
        return json.loads(text[len("<tool_call>"):-len("</tool_call>")]) == item["tool_call"]
    except ValueError:
        return False


def loops(ids: list[int], size: int = 8, most: int = 2) -> bool:
    """Does any n-gram of `size` tokens occur more than `most` times?"""
    counts: dict[tuple, int] = {}
    for i in range(len(ids) - size + 1):
        gram = tuple(ids[i:i + size])
        counts[gram] = counts.get(gram, 0) + 1
    return any(count > most for count in counts.values())
