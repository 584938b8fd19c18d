// Wires the page: the form starts a run, its events are drawn once a frame, the status is polled.

import {Answer} from './answer.js';
import {getJson, postForEvents, setApiKey} from './api.js';
import {drawDepths, drawKv, drawSpark} from './charts.js';
import {Run} from './run.js';
import {drawTree} from './tree.js';

const POLL_BUSY_MS = 500;
const POLL_IDLE_MS = 5000;
const TREE_MS = 100;  // between two trees, so that the eye can follow

const byId = (id) => document.getElementById(id);
const answer = new Answer(byId('answer'));

let model = '';
let run = null;         // the current one, or the last
let aborter = null;     // of the current run; null: none is under way
let frameAsked = false;
let following = true;   // the tree on the page is the latest one
let treeDrawnAt = 0;
let pollTimer = 0;

// --- Generating ---

async function generate() {
  if (aborter) return;
  const form = byId('prompt-form');
  if (!form.reportValidity()) return;
  const prompt = byId('prompt').value;
  if (prompt === '') {
    showProblem('Write a prompt first.');
    byId('prompt').focus();
    return;
  }
  const chat = form.elements.mode.value === 'chat';
  aborter = new AbortController();
  start(chat ? '' : prompt);
  try {
    await follow(chat ? '/v1/chat/completions' : '/v1/completions', bodyOf(prompt, chat));
    finish(run.finish === 'length' ? 'Done, at the limit of tokens.' : 'Done.');
  } catch (error) {
    if (!aborter.signal.aborted) showError(error);
    finish(aborter.signal.aborted ? 'Stopped.' : 'Failed.');
  }
}

function bodyOf(prompt, chat) {
  const seed = byId('seed').value;
  return {
    model,
    ...(chat ? {messages: [{role: 'user', content: prompt}]} : {prompt}),
    max_tokens: Number(byId('max-tokens').value),
    temperature: Number(byId('temperature').value),
    ...(seed !== '' && {seed: Number(seed)}),
    stream: true,
    stream_options: {include_usage: true},
    speculative: {off: !byId('speculate').checked, trace: true},
  };
}

async function follow(path, body) {
  for await (const event of postForEvents(path, body, aborter.signal)) {
    run.add(event, performance.now());
    askFrame();
  }
}

function start(prompt) {
  run = new Run(performance.now());
  following = true;
  showProblem('');
  answer.start(prompt);
  setBusy(true);
  byId('progress').textContent = 'Generating…';
  drawNumbers();
  poll();
}

function finish(words) {
  aborter = null;
  drawFrame();
  showLatestTree();
  answer.finish();
  setBusy(false);
  byId('progress').textContent = words;
  poll();
}

function stop() {
  aborter?.abort();
}

function setBusy(busy) {
  byId('generate').disabled = busy;
  byId('stop').disabled = !busy;
  document.body.classList.toggle('busy', busy);
}

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
  drawNumbers();
  if (run.stats) {
    drawDepths(byId('depths'), run.stats);
    drawSpark(byId('spark'), run.perPass, run.stats.tau);
  }
  if (aborter && performance.now() - treeDrawnAt >= TREE_MS) showLatestTree();
}

function drawNumbers() {
  const {stats, usage} = run;
  const rate = run.tokensPerSecond();
  const cached = usage?.prompt_tokens_details?.cached_tokens ?? 0;
  show('tau', stats?.passes > 0, () => stats.tau.toFixed(2));
  show('rate', rate > 0, () => rate.toFixed(rate < 100 ? 1 : 0));
  show('emitted', run.tokens > 0, () => run.tokens);
  show('passes', stats, () => stats.passes);
  show('accepted', stats?.drafted > 0, () => `${stats.accepted} of ${stats.drafted}`);
  show('first-token', run.firstAt > 0, () => `${Math.round(run.firstAt - run.startedAt)} ms`);
  show('prompt-tokens', usage, () => `${usage.prompt_tokens} (${cached})`);
}

function show(id, known, text) {
  byId(id).textContent = known ? text() : '–';
}

function showLatestTree() {
  if (following && run.passes.length > 0) showTree(run.passes.length - 1);
}

function showTree(index) {
  treeDrawnAt = performance.now();
  const replay = byId('replay');
  replay.disabled = false;
  replay.max = run.passes.length;
  replay.value = index + 1;
  byId('replay-at').textContent = `${index + 1} / ${run.passes.length}`;
  drawTree(byId('tree'), run.passes[index]);
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

async function refreshStatus() {
  if (document.hidden) return;
  try {
    if (model === '') model = (await getJson('/v1/models')).data[0].id;
    showStatus(await getJson('/talon/status'));
  } catch (error) {
    showServer('lost', error.status === 401 ? 'locked' : 'not reached');
    if (error.status === 401) askForKey();
  }
}

function showStatus({drafter, kv, requests}) {
  byId('model').textContent = model;
  byId('drafter').textContent = drafter === 'NONE' ? 'without a drafter' : `drafted by ${drafter}`;
  const {running, waiting} = requests;
  const words = running + waiting === 0 ? 'idle' : `${running} running, ${waiting} waiting`;
  showServer(running > 0 ? 'busy' : 'idle', words);
  showKv(kv);
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
  if (!byId('key-form').hidden) return;
  byId('key-form').hidden = false;
  byId('key').focus();
}

function useKey() {
  setApiKey(byId('key').value);
  byId('key').value = '';
  byId('key-form').hidden = true;
  showProblem('');
  byId('prompt').focus();
  poll();
}

// --- Keyboard and events ---

function onKey(event) {
  if (event.key === 'Escape') stop();
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    generate();
  }
}

// Who goes back to an earlier pass stays there; the last one is followed again.
function onReplay() {
  const {valueAsNumber, max} = byId('replay');
  following = valueAsNumber === Number(max);
  showTree(valueAsNumber - 1);
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
byId('replay').addEventListener('input', onReplay);
document.addEventListener('keydown', onKey);
document.addEventListener('visibilitychange', poll);
poll();
