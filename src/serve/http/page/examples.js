// Examples that fill the form: a chat, JSON from a text, a call of a tool.

const PERSON_TEXT = 'Mara Holm is 34 years old and lives in Oslo. Mara works as a teacher.';

const PERSON = {
  type: 'object',
  properties: {
    name: {type: 'string'},
    age: {type: 'integer'},
    city: {type: 'string'},
    job: {type: 'string'},
  },
  required: ['name', 'age', 'city', 'job'],
};

const tool = (name, description, properties) => ({
  type: 'function',
  function: {
    name,
    description,
    parameters: {type: 'object', properties, required: Object.keys(properties)},
  },
});

const TOOLS = [
  tool('get_weather', 'Get the weather', {
    city: {type: 'string', description: 'Name of the city'},
    date: {type: 'string', description: 'The day'},
  }),
  tool('book_table', 'Book a table', {
    people: {type: 'integer', description: 'Number of people'},
    time: {type: 'string', description: 'Time of day'},
  }),
];

// Schema and tools are values, or undefined.
const EXAMPLES = {
  chat: {prompt: 'Tell me a story about a fox named Ida in a harbour.'},
  json: {prompt: `Extract the name, age, city and job as JSON.\n\n${PERSON_TEXT}`, schema: PERSON},
  tool: {prompt: 'What is the weather in Lisbon tomorrow?', tools: TOOLS},
};

// Calls `choose` with the fields' texts when a button with data-example is pressed.
export function offerExamples(element, choose) {
  for (const button of element.querySelectorAll('[data-example]')) {
    button.addEventListener('click', () => {
      const {prompt, schema, tools} = EXAMPLES[button.dataset.example];
      choose({prompt, schema: textOf(schema), tools: textOf(tools)});
    });
  }
}

function textOf(value) {
  return value === undefined ? '' : JSON.stringify(value, null, 1);
}
