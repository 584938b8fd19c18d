// The answer, token by token, coloured by where each came from; in a chat, below the turns before.

export class Answer {
  constructor(element) {
    this.element = element;
    this.open = element;  // what the tokens are added to
    this.following = true;  // the end stays in view
    this.top = 0;           // where it was scrolled to
    element.addEventListener('scroll', () => this.onScroll());
    new ResizeObserver(() => this.follow()).observe(element);
  }

  clear() {
    this.element.replaceChildren();
    this.open = this.element;
    this.following = true;
    this.top = 0;
  }

  // Empties it, but for the text that the answer continues.
  start(prompt) {
    this.clear();
    this.element.append(piece(prompt, 'prompt'));
    this.element.setAttribute('aria-busy', 'true');
  }

  // A chat's next turn.
  startTurn(message) {
    const asked = turn('You', 'user');
    asked.append(message);
    this.open = turn('Model', 'assistant');
    this.element.append(asked, this.open);
    this.following = true;
    this.follow();
    this.element.setAttribute('aria-busy', 'true');
  }

  // Takes the last turn back.
  dropTurn() {
    this.element.lastChild.remove();
    this.element.lastChild.remove();
  }

  append(pieces) {
    this.open.append(...pieces.map(({text, origin}) => piece(text, origin)));
    this.follow();
  }

  // Screen readers read the answer now, not at every token.
  finish() {
    this.element.setAttribute('aria-busy', 'false');
  }

  follow() {
    if (this.following) this.element.scrollTop = this.element.scrollHeight;
  }

  // Once the reader has scrolled up the view stays where it is, until they are back at the end.
  onScroll() {
    const {scrollTop, scrollHeight, clientHeight} = this.element;
    if (scrollTop < this.top) this.following = false;
    if (scrollHeight - scrollTop - clientHeight < 24) this.following = true;
    this.top = scrollTop;
  }
}

// Cuts a chunk's text at its tokens. Where they differ (a character split over tokens, text held
// back for a stop string) the rest is one piece that claims no origin.
export function splitByToken(text, tokens) {
  const pieces = [];
  let at = 0;
  for (const token of tokens) {
    if (!text.startsWith(token.text, at)) break;
    pieces.push({text: token.text, origin: token.drafted ? 'draft' : 'bonus'});
    at += token.text.length;
  }
  if (at < text.length) pieces.push({text: text.slice(at), origin: 'unknown'});
  return pieces.filter((one) => one.text !== '');
}

function turn(who, role) {
  const element = document.createElement('div');
  element.className = `turn ${role}`;
  const name = document.createElement('span');
  name.className = 'who';
  name.textContent = who;
  element.append(name);
  return element;
}

function piece(text, origin) {
  const span = document.createElement('span');
  span.className = `token ${origin}`;
  span.textContent = text;
  return span;
}
