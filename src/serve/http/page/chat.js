// The turns of a chat, as the API wants them.

export class Chat {
  constructor() {
    this.turns = [];
  }

  get empty() {
    return this.turns.length === 0;
  }

  clear() {
    this.turns = [];
  }

  // All turns so far, and the next one. The system prompt may change between turns.
  messages(system, prompt) {
    const first = system === '' ? [] : [{role: 'system', content: system}];
    return [...first, ...this.turns, {role: 'user', content: prompt}];
  }

  // `calls`: of tools; may be empty.
  add(prompt, answer, calls) {
    const turn = {role: 'assistant', content: answer};
    if (calls.length > 0) turn.tool_calls = calls;
    this.turns.push({role: 'user', content: prompt}, turn);
  }
}
