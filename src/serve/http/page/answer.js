// The answer, token by token, coloured by where each came from.

export class Answer {
  constructor(element) {
    this.element = element;
  }

  // Empties it, but for the text that the answer continues.
  start(prompt) {
    this.element.replaceChildren();
    if (prompt) this.element.append(piece(prompt, 'prompt'));
    this.element.setAttribute('aria-busy', 'true');
  }

  append(pieces) {
    const following = this.atEnd();
    this.element.append(...pieces.map(({text, origin}) => piece(text, origin)));
    if (following) this.element.scrollTop = this.element.scrollHeight;
  }

  // Screen readers read the answer now, not at every token.
  finish() {
    this.element.setAttribute('aria-busy', 'false');
  }

  // False once the reader has scrolled up: the view then stays where it is.
  atEnd() {
    const {scrollTop, scrollHeight, clientHeight} = this.element;
    return scrollHeight - scrollTop - clientHeight < 24;
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

function piece(text, origin) {
  const span = document.createElement('span');
  span.className = `token ${origin}`;
  span.textContent = text;
  return span;
}
