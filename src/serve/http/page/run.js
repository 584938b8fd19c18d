// One generation: what the events of its stream add up to. Knows nothing of the page.

import {splitByToken} from './answer.js';

const MAX_PASSES = 2000;  // that can be looked at again

export class Run {
  constructor(now) {
    this.startedAt = now;
    this.firstAt = 0;   // when the first and the last tokens came
    this.lastAt = 0;
    this.tokens = 0;
    this.pieces = [];   // of the answer, not drawn yet
    this.passes = [];   // {tree, bonus}, the last MAX_PASSES of those with a tree
    this.perPass = [];  // tokens of each, the last MAX_PASSES
    this.stats = null;
    this.usage = null;
    this.finish = '';   // the API's finish_reason
  }

  add(event, now) {
    const choice = event.choices?.[0];
    const {tokens = [], tree, stats} = event.talon ?? {};
    const text = choice?.text ?? choice?.delta?.content ?? '';
    this.pieces.push(...splitByToken(text, tokens));
    this.countTokens(tokens.length, now);
    if (stats) this.addStats(stats);
    if (tree) {
      remember(this.passes, {tree, bonus: tokens.findLast((token) => !token.drafted)});
    }
    this.finish = choice?.finish_reason ?? this.finish;
    this.usage = event.usage ?? this.usage;
  }

  // Since the request was sent, prompt included; 0: too early to say. Not since the first token
  // came: a busy browser gets many events at once, and the time between them means nothing.
  tokensPerSecond() {
    const seconds = (this.lastAt - this.startedAt) / 1000;
    return seconds > 0 ? this.tokens / seconds : 0;
  }

  takePieces() {
    return this.pieces.splice(0);
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
    if (passes > 0) remember(this.perPass, emitted / passes);
    this.stats = stats;
  }
}

function remember(list, item) {
  list.push(item);
  if (list.length > MAX_PASSES) list.shift();
}
