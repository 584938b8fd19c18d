// One generation: what the events of its stream add up to. Knows nothing of the page.

import {splitByToken} from './answer.js';

export class Run {
  // `raw`: show what the model wrote, token by token, where the API takes calls out of the text.
  constructor(now, raw = false) {
    this.raw = raw;
    this.calls = [];    // calls of tools, as the API has them
    this.startedAt = now;
    this.firstAt = 0;   // when the first and the last tokens came
    this.lastAt = 0;
    this.tokens = 0;
    this.text = '';
    this.pieces = [];   // pieces of the answer, not drawn yet
    this.passes = [];   // with a tree; see addTree()
    this.largest = -1;  // index of the pass with the largest tree
    this.perPass = [];  // tokens of each pass
    this.stats = null;
    this.usage = null;
    this.finish = '';   // the API's finish_reason
  }

  add(event, now) {
    const choice = event.choices?.[0];
    const {tokens = [], tree, stats} = event.talon ?? {};
    const text = choice?.text ?? choice?.delta?.content ?? '';
    const thoughts = choice?.delta?.reasoning_content ?? '';  // shown, but no part of the answer
    this.text += text;
    const shown = this.raw ? tokens.map((token) => token.text).join('') : thoughts + text;
    this.pieces.push(...splitByToken(shown, tokens));
    for (const call of choice?.delta?.tool_calls ?? []) this.addCall(call);
    this.countTokens(tokens.length, now);
    if (stats) this.addStats(stats);
    if (tree) this.addTree(tree, tokens.findLast((token) => !token.drafted));
    this.finish = choice?.finish_reason ?? this.finish;
    this.usage = event.usage ?? this.usage;
  }

  // Since the request was sent, prompt included; 0: too early to say. Not since the first token
  // came: a busy browser gets many events at once, and the time between them means nothing.
  tokensPerSecond() {
    const seconds = (this.lastAt - this.startedAt) / 1000;
    return seconds > 0 ? this.tokens / seconds : 0;
  }

  // While decoding, by the server's clock; 0: not known. A browser may be late, a server is not.
  decodedPerSecond() {
    const {emitted = 0, decode_seconds: seconds = 0} = this.stats ?? {};
    return seconds > 0 ? emitted / seconds : 0;
  }

  // What drawTree() needs of a pass.
  passAt(index) {
    return JSON.parse(this.passes[index].drawn);
  }

  takePieces() {
    return this.pieces.splice(0);
  }

  // A call comes in parts: first its name, then more and more of its arguments.
  addCall({index, id, type = 'function', function: part = {}}) {
    const call = this.calls[index] ??= {id, type, function: {name: '', arguments: ''}};
    call.function.name += part.name ?? '';
    call.function.arguments += part.arguments ?? '';
  }

  countTokens(count, now) {
    if (count === 0) return;
    if (this.tokens === 0) this.firstAt = now;
    this.lastAt = now;
    this.tokens += count;
  }

  // An event may stand for several passes, of which only the sum is known.
  addStats(stats) {
    const passes = stats.passes - (this.stats?.passes ?? 0);
    const emitted = stats.emitted - (this.stats?.emitted ?? 0);
    if (passes > 0) this.perPass.push(emitted / passes);
    this.stats = stats;
  }

  // As text: there may be tens of thousands, and few are looked at again.
  addTree(tree, bonus) {
    const pass = {
      number: this.stats?.passes ?? this.passes.length + 1,
      nodes: tree.tokens.length,
      accepted: tree.accepted.length,
      drawn: JSON.stringify({tree, bonus}),
    };
    if (isLarger(pass, this.passes[this.largest])) this.largest = this.passes.length;
    this.passes.push(pass);
  }
}

function isLarger(pass, other) {
  if (!other) return true;
  return pass.nodes > other.nodes || (pass.nodes === other.nodes && pass.accepted > other.accepted);
}
