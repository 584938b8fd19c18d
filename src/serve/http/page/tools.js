// The tools that a model may call: the field, and the calls as words.

const WRONG = 'This is not a JSON list.';

export class Tools {
  constructor(field, mark) {
    this.field = field;
    this.mark = mark;
    field.addEventListener('input', () => this.check());
  }

  get given() {
    return this.field.value.trim() !== '';
  }

  // The members of a request that offer them; none if the field is empty.
  request() {
    return this.given ? {tools: JSON.parse(this.field.value)} : {};
  }

  // A form with tools that are not a list does not start.
  check() {
    this.field.setCustomValidity(!this.given || isList(this.field.value) ? '' : WRONG);
    this.mark.textContent = this.field.validationMessage;
    this.mark.className = this.field.validationMessage ? 'wrong' : '';
  }

  // Which calls an answer has.
  show(calls) {
    if (!this.given) return;
    this.mark.textContent = calls.length === 0 ? 'not called' : `called: ${callsText(calls)}`;
    this.mark.className = calls.length === 0 ? '' : 'right';
  }
}

// get_weather({"city": "Lisbon"})
export function callsText(calls) {
  return calls.map(({function: {name, arguments: given}}) => `${name}(${given})`).join(', ');
}

function isList(text) {
  try {
    return Array.isArray(JSON.parse(text));
  } catch {
    return false;
  }
}
