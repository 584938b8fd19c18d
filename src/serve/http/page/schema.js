// The schema that an answer must match: the field, and a mark that says how far it is true.

const WRONG = 'This is not JSON.';

export class Schema {
  constructor(field, mark) {
    this.field = field;
    this.mark = mark;
    field.addEventListener('input', () => this.check());
  }

  // The members of a request that ask for it; none if the field is empty.
  request() {
    if (this.field.value.trim() === '') return {};
    const schema = JSON.parse(this.field.value);
    return {response_format: {type: 'json_schema', json_schema: {name: 'answer', schema}}};
  }

  // A form with a schema that is not JSON does not start.
  check() {
    this.field.setCustomValidity(isJson(this.field.value.trim() || '{}') ? '' : WRONG);
    this.mark.textContent = this.field.validationMessage;
    this.mark.className = this.field.validationMessage ? 'wrong' : '';
  }

  // Every token keeps the answer right, so before its end it can be completed.
  show(text, ended) {
    if (this.field.value.trim() === '') return;
    const whole = ended && isJson(text);
    this.mark.textContent = whole ? 'valid' : ended ? 'cut' : 'valid so far';
    this.mark.className = whole || !ended ? 'right' : 'wrong';
  }
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
