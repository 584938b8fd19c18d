// Wires the page: the form starts a run, its events are drawn once a frame, the status is polled.

import {Answer} from './answer.js';
import {getJson, hasApiKey, postForEvents, setApiKey} from './api.js';
import {drawDepths, drawKv, drawSpark} from './charts.js';
import {Chat} from './chat.js';
import {copyText} from './copy.js';
import {offerExamples} from './examples.js';
import {Replay} from './replay.js';
import {Run} from './run.js';
import {Schema} from './schema.js';
import {Tools, callsText} from './tools.js';

const POLL_BUSY_MS = 500;
const POLL_IDLE_MS = 5000;

const byId = (id) => document.getElementById(id);
const form = byId('prompt-form');
const answer = new Answer(byId('answer'));
const chat = new Chat();
const schema = new Schema(byId('schema'), byId('schema-mark'));
const tools = new Tools(byId('tools'), byId('tools-mark'));
const replay = new Replay({
  tree: byId('tree'),
  slider: byId('replay'),
  label: byId('replay-at'),
  largest: byId('largest'),
});

let model = '';
let asked = null;       // {path, body} of the current run, or the last
let run = null;         // the current one, or the last
let aborter = null;     // ends what is under way; null: nothing
let frameAsked = false;
let pollTimer = 0;

// --- Generating ---

const chatting = () => form.elements.mode.value === 'chat';

async function generate() {
  if (aborter || !form.reportValidity()) return;
  const prompt = byId('prompt').value;
  if (prompt === '') {
    showProblem('Write a prompt first.');
    byId('prompt').focus();
    return;
  }
  asked = chatting() ?
      {path: '/v1/chat/completions', body: bodyOf({messages: messagesOf(prompt)})} :
      {path: '/v1/completions', body: bodyOf({prompt})};
  start(prompt);
  const words = await untilDone(
      run, asked.body, () => run.finish === 'length' ? 'Done, at the limit of tokens.' : 'Done.');
  if (chatting()) endTurn(prompt);
  finish(words);
}

// Takes in all events of a run. Returns how it ended, in words.
async function untilDone(into, body, done) {
  aborter = new AbortController();
  setBusy(true);
  poll();
  try {
    for await (const event of postForEvents(asked.path, body, aborter.signal)) {
      into.add(event, performance.now());
      if (into === run) askFrame();
    }
    return done();
  } catch (error) {
    if (aborter.signal.aborted) return 'Stopped.';
    showError(error);
    return 'Failed.';
  } finally {
    aborter = null;
    setBusy(false);
    poll();
  }
}

const messagesOf = (prompt) => chat.messages(byId('system').value, prompt);

// A seed of the page's own, so that the same can be asked again.
function bodyOf(input) {
  const seed = byId('seed').value;
  return {
    model,
    ...input,
    max_tokens: Number(byId('max-tokens').value),
    temperature: Number(byId('temperature').value),
    top_p: Number(byId('top-p').value),
    seed: seed === '' ? Math.floor(Math.random() * 2 ** 32) : Number(seed),
    stream: true,
    stream_options: {include_usage: true},
    speculative: {off: !byId('speculate').checked, trace: true},
    ...schema.request(),
    ...(chatting() ? tools.request() : {}),
  };
}

function start(prompt) {
  run = new Run(performance.now(), chatting() && tools.given);
  showProblem('');
  if (chatting()) {
    if (chat.empty) answer.clear();
    answer.startTurn(prompt);
  } else {
    answer.start(prompt);
  }
  resetInstruments();
  byId('progress').textContent = 'Generating…';
  drawNumbers();
}

// A message without an answer stays in its field.
function endTurn(prompt) {
  drawFrame();
  if (run.text === '' && run.calls.length === 0) {
    answer.dropTurn();
    return;
  }
  chat.add(prompt, run.text, run.calls);
  byId('prompt').value = '';
  showChat();
}

function finish(words) {
  drawFrame();
  replay.finish();
  answer.finish();
  schema.show(run.text, true);
  tools.show(run.calls);
  byId('copy').disabled = copied() === '';
  byId('progress').textContent = words;
}

// The answer as text: its content, or the calls it consists of.
const copied = () => run.text || callsText(run.calls);

function stop() {
  aborter?.abort();
}

function setBusy(busy) {
  byId('generate').disabled = busy;
  byId('new-chat').disabled = busy;
  byId('stop').disabled = !busy;
  byId('compare').disabled = busy || !(run?.stats?.drafted > 0);
  for (const mode of form.elements.mode) mode.disabled = busy || mode.dataset.missing === 'true';
  document.body.classList.toggle('busy', busy);
}

// --- Against plain decoding ---

// The same request once more, without speculation.
async function compare() {
  if (aborter) return;
  showProblem('');
  byId('compared').textContent = 'Generating the same without speculation…';
  const plain = new Run(performance.now());
  const words = await untilDone(
      plain,
      {...asked.body, max_tokens: run.tokens, speculative: {off: true, trace: true}},
      () => showComparison(plain));
  byId('compared').textContent = words;
}

function showComparison(plain) {
  const rate = run.decodedPerSecond();
  const plainRate = plain.decodedPerSecond();
  if (rate === 0 || plainRate === 0) return 'Too short to measure.';
  byId('speedup').textContent = `${(rate / plainRate).toFixed(2)}×`;
  const whole = (one) => one.text + callsText(one.calls);
  const text = whole(plain) === whole(run) ? 'the same text' : 'another text';
  return `${shortRate(rate)} tokens/s while decoding, ${shortRate(plainRate)} without ` +
      `speculation: ${text}.`;
}

const shortRate = (rate) => rate.toFixed(rate < 100 ? 1 : 0);

// --- Drawing ---

function askFrame() {
  if (frameAsked) return;
  frameAsked = true;
  requestAnimationFrame(() => {
    frameAsked = false;
    drawFrame();
  });
}

function drawFrame() {
  answer.append(run.takePieces());
  if (aborter) schema.show(run.text, false);
  drawNumbers();
  drawCharts();
  if (aborter) replay.update();
}

function drawCharts() {
  const none = {accepted_at_depth: [], tried_at_depth: []};
  drawDepths(byId('depths'), run.stats ?? none);
  drawSpark(byId('spark'), run.perPass, run.stats?.tau ?? 0);
}

// Nothing of the run before stays.
function resetInstruments() {
  replay.reset(run);
  drawCharts();
  byId('speedup').textContent = '–';
  byId('compared').textContent = '';
  byId('copy').disabled = true;
}

function drawNumbers() {
  const {stats, usage} = run;
  const rate = run.tokensPerSecond();
  const cached = usage?.prompt_tokens_details?.cached_tokens ?? 0;
  show('tau', stats?.passes > 0, () => stats.tau.toFixed(2));
  show('rate', rate > 0, () => shortRate(rate));
  show('emitted', run.tokens > 0, () => run.tokens);
  show('passes', stats, () => stats.passes);
  show('accepted', stats?.drafted > 0, () => `${stats.accepted} of ${stats.drafted}`);
  show('first-token', run.firstAt > 0, () => `${Math.round(run.firstAt - run.startedAt)} ms`);
  show('prompt-tokens', usage, () => `${usage.prompt_tokens} (${cached})`);
}

function show(id, known, text) {
  byId(id).textContent = known ? text() : '–';
}

// --- Chat ---

function showChat() {
  form.dataset.mode = chatting() ? 'chat' : 'completion';
  byId('prompt-title').textContent = chatting() ? 'Message' : 'Prompt';
  byId('prompt').placeholder = chatting() ? 'Tell me a story' : 'It was a dark night';
  byId('new-chat').hidden = !chatting() || chat.empty;
}

// Another mode, or the chat from the beginning.
function startOver() {
  chat.clear();
  answer.clear();
  showChat();
  byId('prompt').focus();
}

// Fills the form with an example and runs it.
function useExample(example) {
  if (aborter) return;
  form.elements.mode.value = 'chat';
  for (const [id, text] of Object.entries({system: '', temperature: 0, ...example})) {
    const field = byId(id);
    field.value = text;
    field.dispatchEvent(new Event('input'));
    const details = field.closest('details');
    if (details) details.open = text !== '';
  }
  startOver();
  generate();
}

// --- The server ---

function poll() {
  clearTimeout(pollTimer);
  pollTimer = 0;
  refreshStatus().finally(() => {
    clearTimeout(pollTimer);
    pollTimer = setTimeout(poll, aborter ? POLL_BUSY_MS : POLL_IDLE_MS);
  });
}

// Resolves to whether the server let us in.
async function refreshStatus() {
  if (document.hidden) return false;
  try {
    if (model === '') model = (await getJson('/v1/models')).data[0].id;
    showStatus(await getJson('/talon/status'));
    return true;
  } catch (error) {
    showServer('lost', error.status === 401 ? 'locked' : 'not reached');
    if (error.status === 401) askForKey();
    return false;
  }
}

function showStatus({drafter, chat: chats = true, kv, requests}) {
  byId('model').textContent = model;
  byId('drafter').textContent = drafter === 'NONE' ? 'without a drafter' : `drafted by ${drafter}`;
  offer(drafter !== 'NONE', chats);
  const {running, waiting} = requests;
  const words = running + waiting === 0 ? 'idle' : `${running} running, ${waiting} waiting`;
  showServer(running > 0 ? 'busy' : 'idle', words);
  showKv(kv);
}

// Only what this server can do can be chosen.
function offer(drafts, chats) {
  const speculate = byId('speculate');
  if (speculate.disabled === drafts) speculate.checked = drafts;
  speculate.disabled = !drafts;
  speculate.parentElement.title = drafts ? '' : 'This server has no drafter.';
  const mode = byId('mode-chat');
  mode.dataset.missing = !chats;
  mode.disabled = !chats || aborter !== null;
  mode.parentElement.title = chats ? '' : 'The model has no chat template (--chat-template).';
  byId('examples').hidden = !chats;
}

function showKv({blocks, used, free, cached, block_size: blockSize}) {
  const parts = {used, cached, empty: free};
  drawKv(byId('kv'), parts);
  for (const [name, count] of Object.entries(parts)) byId(`kv-${name}`).textContent = count;
  byId('kv-size').textContent = `${blocks} blocks of ${blockSize} tokens`;
}

function showServer(state, words) {
  const server = byId('server');
  server.dataset.state = state;
  if (server.textContent !== words) server.textContent = words;
}

// --- Problems and the key ---

function showError(error) {
  showProblem(error.message);
  if (error.status === 401) askForKey();
}

function showProblem(words) {
  byId('problem').textContent = words;
  byId('problem').hidden = words === '';
}

function askForKey() {
  byId('key-problem').hidden = !hasApiKey();
  if (!byId('key-form').hidden) return;
  byId('key-form').hidden = false;
  byId('key').focus();
}

async function useKey() {
  setApiKey(byId('key').value);
  if (!await refreshStatus()) {
    byId('key').select();
    return;
  }
  byId('key').value = '';
  byId('key-form').hidden = true;
  showProblem('');
  byId('prompt').focus();
}

// --- Keyboard and events ---

function onKey(event) {
  if (event.key === 'Escape') stop();
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    generate();
  }
}

function onSubmit(id, action) {
  byId(id).addEventListener('submit', (event) => {
    event.preventDefault();
    action();
  });
}

onSubmit('prompt-form', generate);
onSubmit('key-form', useKey);
byId('stop').addEventListener('click', stop);
byId('compare').addEventListener('click', compare);
byId('copy').addEventListener('click', () => copyText(copied(), byId('copy')));
byId('new-chat').addEventListener('click', startOver);
offerExamples(byId('examples'), useExample);
for (const mode of form.elements.mode) mode.addEventListener('change', startOver);
document.addEventListener('keydown', onKey);
document.addEventListener('visibilitychange', poll);
showChat();
poll();
