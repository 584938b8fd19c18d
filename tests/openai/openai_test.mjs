// The official OpenAI client against the running program.
//   node openai_test.mjs PATH_OF_TALON FOLDER_WITH_NODE_MODULES

import assert from 'node:assert/strict';
import {spawn, spawnSync} from 'node:child_process';
import {mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {tmpdir} from 'node:os';
import path from 'node:path';
import {after, before, test} from 'node:test';

const [program, folder] = process.argv.slice(2).map((each) => path.resolve(each));
const load = createRequire(path.join(folder, 'package.json'));
const {OpenAI} = load('openai');
const {zodFunction, zodResponseFormat, zodResponsesFunction, zodTextFormat} =
    load('openai/helpers/zod');
const {z} = load('zod');

const KEY = 'sk-of-the-test';
const PROMPT = 'Once upon a time there was a';
const MESSAGES = [{role: 'user', content: 'Tell me a story'}];
const model = 'tiny';
let server;
let exited;
let origin;
let keys;
let client;

// The address that the program prints once it listens.
function listening(child) {
  return new Promise((resolve, reject) => {
    let output = '';
    child.stderr.on('data', (data) => {
      output += data;
      const found = output.match(/listening on (http:\S+)\n/);
      if (found) resolve(found[1]);
    });
    child.once('exit', () => reject(new Error(`talon serve ended:\n${output}`)));
  });
}

before(async () => {
  keys = mkdtempSync(path.join(tmpdir(), 'talon-'));
  writeFileSync(path.join(keys, 'keys.txt'), `${KEY}\n`);
  const flags = ['--port', '0', '--api-key-file', path.join(keys, 'keys.txt'),
    '--chat-template', 'chatml', '--speculative-algorithm', 'SUFFIX', '--enable-prefix-cache', 'false'];
  server = spawn(program, ['serve', ...flags], {stdio: ['ignore', 'ignore', 'pipe']});
  exited = new Promise((resolve) => server.once('exit', resolve));
  origin = await listening(server);
  client = new OpenAI({apiKey: KEY, baseURL: `${origin}/v1`, maxRetries: 0});
});

after(async () => {
  server.kill('SIGTERM');
  assert.equal(await exited, 0);
  rmSync(keys, {recursive: true});
});

async function status() {
  const answer = await fetch(`${origin}/talon/status`, {headers: {Authorization: `Bearer ${KEY}`}});
  return answer.json();
}

async function untilIdle() {
  for (;;) {
    const now = await status();
    if (now.requests.running + now.requests.waiting === 0) return now;
  }
}

test('models', async () => {
  const ids = [];
  for await (const each of client.models.list()) ids.push(each.id);
  assert.deepEqual(ids, [model]);
  assert.equal((await client.models.retrieve(model)).id, model);
});

test('completions equal talon run with the same seed', async () => {
  const flags = ['--max-tokens', '24', '--temperature', '0.8', '--seed', '11'];
  const run = spawnSync(program, ['run', '--json', '--prompt', PROMPT, ...flags]);
  const answer = await client.completions.create(
      {model, prompt: PROMPT, max_tokens: 24, temperature: 0.8, seed: 11});
  assert.equal(answer.choices[0].text, JSON.parse(run.stdout).text);
  assert.equal(answer.choices[0].finish_reason, 'length');
  assert.equal(answer.usage.completion_tokens, 24);
  assert.ok(answer.usage.spec.tau >= 1);
});

test('completions stream what they answer as a whole', async () => {
  const ask = {model, prompt: PROMPT, max_tokens: 20, seed: 4};
  const whole = await client.completions.create(ask);
  let text = '';
  let usage = null;
  const options = {stream: true, stream_options: {include_usage: true}};
  for await (const chunk of await client.completions.create({...ask, ...options})) {
    text += chunk.choices[0]?.text ?? '';
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].text);
  assert.equal(usage.completion_tokens, 20);
});

// The text of tokens; one that is part of a character is written as its bytes, "bytes:\xc3".
function textOfTokens(tokens) {
  return Buffer.concat(tokens.map((token) => token.startsWith('bytes:\\x') ?
    Buffer.from(token.slice('bytes:'.length).replaceAll('\\x', ''), 'hex') :
    Buffer.from(token))).toString();
}

test('completions with logprobs, n and stop', async () => {
  const answer = await client.completions.create(
      {model, prompt: PROMPT, max_tokens: 8, n: 3, seed: 1, logprobs: 2});
  assert.deepEqual(answer.choices.map((choice) => choice.index), [0, 1, 2]);
  for (const choice of answer.choices) {
    assert.equal(textOfTokens(choice.logprobs.tokens), choice.text);
    assert.ok(choice.logprobs.token_logprobs.every((value) => value <= 0));
    assert.equal(Object.keys(choice.logprobs.top_logprobs[0]).length, 2);
  }
  const greedy = await client.completions.create(
      {model, prompt: PROMPT, max_tokens: 24, temperature: 0});
  const word = greedy.choices[0].text.trim().split(/\s+/)[2];
  const stopped = await client.completions.create(
      {model, prompt: PROMPT, max_tokens: 24, temperature: 0, stop: [word]});
  assert.equal(stopped.choices[0].finish_reason, 'stop');
  assert.equal(stopped.choices[0].text, greedy.choices[0].text.split(word)[0]);
});

test('chat, whole and streamed', async () => {
  const ask = {model, messages: MESSAGES, max_completion_tokens: 16, temperature: 0};
  const whole = await client.chat.completions.create(ask);
  assert.equal(whole.choices[0].message.role, 'assistant');
  let text = '';
  for await (const chunk of await client.chat.completions.create({...ask, stream: true})) {
    text += chunk.choices[0].delta.content ?? '';
  }
  assert.equal(text, whole.choices[0].message.content);
  const final = await client.chat.completions.stream(ask).finalChatCompletion();
  assert.deepEqual(final.choices[0].message.content, text);
});

test('chat with logprobs, n and stop', async () => {
  const answer = await client.chat.completions.create(
      {model, messages: MESSAGES, max_tokens: 8, n: 2, seed: 3, logprobs: true, top_logprobs: 2});
  assert.equal(answer.choices.length, 2);
  for (const choice of answer.choices) {
    const bytes = choice.logprobs.content.flatMap((token) => token.bytes);
    assert.equal(Buffer.from(bytes).toString(), choice.message.content);
    assert.equal(choice.logprobs.content[0].top_logprobs.length, 2);
  }
  const ask = {model, messages: MESSAGES, max_tokens: 24, temperature: 0};
  const text = (await client.chat.completions.create(ask)).choices[0].message.content;
  const part = text.slice(3, 6);
  const [stopped] = (await client.chat.completions.create({...ask, stop: part})).choices;
  assert.equal(stopped.finish_reason, 'stop');
  assert.equal(stopped.message.content, text.split(part)[0]);
});

const City = z.object({city: z.enum(['Paris', 'Rome']), days: z.number().int().min(1).max(9)});
const TOOLS = [zodFunction({name: 'get_weather', description: 'The weather', parameters: City})];
const WITH_TOOLS = {model, messages: MESSAGES, tools: TOOLS, tool_choice: 'required',
  parallel_tool_calls: false, max_completion_tokens: 200, temperature: 0.8, seed: 3};

test('a format by zod is parsed', async () => {
  const Book = z.object({title: z.string().max(8), pages: z.number().int().min(1).max(999)});
  const answer = await client.chat.completions.parse({model, messages: MESSAGES, seed: 3,
    max_completion_tokens: 200, response_format: zodResponseFormat(Book, 'book')});
  assert.deepEqual(Book.parse(answer.choices[0].message.parsed), answer.choices[0].message.parsed);
});

test('tool calls, whole and streamed', async () => {
  const whole = await client.chat.completions.parse(WITH_TOOLS);
  assert.equal(whole.choices[0].finish_reason, 'tool_calls');
  const [call] = whole.choices[0].message.tool_calls;
  assert.equal(call.function.name, 'get_weather');
  City.parse(call.function.parsed_arguments);
  let pieces = 0;
  const stream = client.chat.completions.stream(WITH_TOOLS)
      .on('tool_calls.function.arguments.delta', () => ++pieces);
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices[0].finish_reason, 'tool_calls');
  assert.deepEqual(final.choices[0].message.tool_calls[0].function, call.function);
  assert.ok(pieces > 1);
});

test('the client runs tools and sends their results', async () => {
  const calls = [];
  const tool = zodFunction({name: 'get_weather', description: 'The weather', parameters: City,
    function: (city) => {
      calls.push(city);
      return 'sunny';
    }});
  const runner = client.chat.completions.runTools(
      {...WITH_TOOLS, tools: [tool]}, {maxChatCompletions: 2});
  const roles = [];
  runner.on('message', (message) => roles.push(message.role));
  await runner.done();
  assert.deepEqual(roles, ['assistant', 'tool', 'assistant', 'tool']);
  for (const each of calls) City.parse(each);
  assert.equal(calls.length, 2);
});

test('embeddings, as numbers and as the client\'s own default', async () => {
  const ask = {model, input: [PROMPT, 'The sea']};
  const plain = await client.embeddings.create({...ask, encoding_format: 'float'});
  const coded = await client.embeddings.create(ask);  // asks for base64 and decodes it
  assert.equal(plain.data.length, 2);
  for (const [i, each] of plain.data.entries()) {
    assert.deepEqual(coded.data[i].embedding, each.embedding.map(Math.fround));
    const square = each.embedding.reduce((sum, value) => sum + value * value, 0);
    assert.ok(Math.abs(square - 1) < 1e-4);
  }
  assert.ok(plain.usage.prompt_tokens > 0);
});

test('responses, whole and streamed', async () => {
  const ask = {model, input: 'Tell me a story', instructions: 'Be brief', max_output_tokens: 16,
    temperature: 0, store: false};
  const whole = await client.responses.create(ask);
  assert.equal(whole.output_text.length > 0, true);
  assert.equal(whole.usage.output_tokens, 16);
  let text = '';
  const types = new Set();
  for await (const event of await client.responses.create({...ask, stream: true})) {
    types.add(event.type);
    if (event.type === 'response.output_text.delta') text += event.delta;
  }
  assert.equal(text, whole.output_text);
  for (const type of ['created', 'output_item.added', 'content_part.added', 'output_text.done',
    'content_part.done', 'output_item.done', 'incomplete']) {
    assert.ok(types.has(`response.${type}`), type);
  }
  const helper = client.responses.stream(ask);  // builds the response from the events
  const final = await helper.finalResponse();
  assert.equal(final.output_text, text);
  const turns = [{role: 'user', content: 'Hello'},
    {role: 'assistant', content: [{type: 'output_text', text: 'Hi.'}]},
    {role: 'user', content: [{type: 'input_text', text: 'Go on'}]}];
  assert.ok((await client.responses.create({...ask, input: turns})).output_text);
  await assert.rejects(client.responses.create({...ask, previous_response_id: whole.id}),
      (error) => error instanceof OpenAI.BadRequestError && error.param === 'previous_response_id');
});

test('responses with tools, whole and streamed, and what they gave', async () => {
  const input = [{role: 'user', content: 'How is the weather in Rome?'}];
  const tool = zodResponsesFunction(
      {name: 'get_weather', description: 'The weather', parameters: City});
  const ask = {model, input, tools: [tool], tool_choice: 'required', parallel_tool_calls: false,
    max_output_tokens: 200, temperature: 0.8, seed: 3, store: false};
  const whole = await client.responses.parse(ask);
  assert.equal(whole.status, 'completed');
  assert.equal(whole.tools[0].name, 'get_weather');
  assert.deepEqual(whole.output.map((item) => item.type), ['function_call']);
  const [call] = whole.output;
  City.parse(call.parsed_arguments);
  let pieces = '';
  const types = [];
  const stream = client.responses.stream(ask)
      .on('event', (event) => types.push(event.type))
      .on('response.function_call_arguments.delta', (event) => pieces += event.delta);
  const final = await stream.finalResponse();
  assert.equal(pieces, call.arguments);
  assert.deepEqual(final.output[0].parsed_arguments, call.parsed_arguments);
  assert.deepEqual([...new Set(types)].map((type) => type.replace('response.', '')),
      ['created', 'in_progress', 'output_item.added', 'function_call_arguments.delta',
        'function_call_arguments.done', 'output_item.done', 'completed']);
  const gave = {type: 'function_call_output', call_id: call.call_id, output: 'sunny'};
  const next = await client.responses.create(
      {...ask, input: [...input, ...whole.output, gave], tool_choice: 'none'});
  assert.equal(next.output[0].type, 'message');
  assert.ok(next.usage.input_tokens > 0);
  await assert.rejects(client.responses.create({...ask, input: [...input, gave]}),
      (error) => error instanceof OpenAI.BadRequestError && error.param === 'input[1]');
});

test('a response by zod is parsed', async () => {
  const answer = await client.responses.parse({model, input: 'A trip', max_output_tokens: 200,
    seed: 3, text: {format: zodTextFormat(City, 'city')}});
  assert.deepEqual(City.parse(answer.output_parsed), answer.output_parsed);
  assert.equal(answer.text.format.name, 'city');
});

test('echo with logprobs scores a prompt', async () => {
  const answer = await client.completions.create(
      {model, prompt: PROMPT, max_tokens: 0, echo: true, logprobs: 1});
  assert.equal(answer.choices[0].text, PROMPT);
  const [first, ...rest] = answer.choices[0].logprobs.token_logprobs;
  assert.equal(first, null);
  assert.ok(rest.length > 0 && rest.every((value) => value <= 0));
});

test('errors are the client\'s own', async () => {
  const ask = {model, prompt: PROMPT};
  await assert.rejects(client.completions.create({...ask, model: 'gpt-9'}), OpenAI.NotFoundError);
  const wrong = client.completions.create({...ask, temperature: -1});
  await assert.rejects(wrong, (error) => error instanceof OpenAI.BadRequestError &&
      error.param === 'temperature' && error.type === 'invalid_request_error');
  const stranger = new OpenAI({apiKey: 'wrong', baseURL: `${origin}/v1`, maxRetries: 0});
  await assert.rejects(stranger.completions.create(ask), OpenAI.AuthenticationError);
  await assert.rejects(
      client.chat.completions.create({model, messages: MESSAGES, tools: [{type: 'function',
        function: {name: 'f', strict: true, parameters: {not: {}}}}]}), OpenAI.BadRequestError);
});

test('cancellation frees what the request held', async () => {
  assert.equal((await untilIdle()).kv.used, 0);
  const ask = {model, prompt: PROMPT, max_tokens: 30000, ignore_eos: true};
  const stream = await client.completions.create({...ask, stream: true});
  for await (const chunk of stream) {
    assert.ok(chunk.id);
    stream.controller.abort();
  }
  assert.equal((await untilIdle()).kv.used, 0);
  const abort = new AbortController();
  const waiting = client.completions.create(ask, {signal: abort.signal});
  while ((await status()).requests.running === 0);
  await new Promise((done) => setTimeout(done, 1000));  // at once it would be half-closed, not gone
  abort.abort();
  await assert.rejects(waiting, OpenAI.APIUserAbortError);
  assert.equal((await untilIdle()).kv.used, 0);
});
