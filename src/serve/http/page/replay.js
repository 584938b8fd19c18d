// The tree of one pass of a run, and the slider that chooses the pass. While the run goes on the
// latest tree is shown, at its end the largest.

import {drawTree} from './tree.js';

const TREE_MS = 100;  // between two trees, so that the eye can follow

export class Replay {
  constructor({tree, slider, label, largest}) {
    this.tree = tree;
    this.empty = tree.firstElementChild;  // the words without a tree
    this.slider = slider;
    this.label = label;
    this.largest = largest;
    slider.addEventListener('input', () => this.onInput());
    largest.addEventListener('click', () => this.showLargest());
    this.reset(null);
  }

  reset(run) {
    this.run = run;
    this.following = true;  // no pass was chosen
    this.drawnAt = 0;
    this.tree.replaceChildren(this.empty);
    this.slider.max = this.slider.value = 1;
    this.slider.disabled = this.largest.disabled = true;
    this.label.textContent = '–';
  }

  // The run has gone on.
  update() {
    const {passes} = this.run;
    if (passes.length === 0) return;
    this.slider.disabled = this.largest.disabled = false;
    this.slider.max = passes.length;
    if (!this.following) return this.name(this.slider.valueAsNumber - 1);
    if (performance.now() - this.drawnAt >= TREE_MS) this.show(passes.length - 1);
  }

  finish() {
    this.update();
    if (this.following && this.run.passes.length > 0) this.show(this.run.largest);
  }

  show(index) {
    this.drawnAt = performance.now();
    this.slider.value = index + 1;
    this.name(index);
    drawTree(this.tree, this.run.passAt(index));
  }

  name(index) {
    const {number, nodes} = this.run.passes[index];
    this.label.textContent = `${number} / ${this.run.stats.passes}`;
    this.slider.setAttribute('aria-valuetext', `pass ${number}, ${nodes - 1} drafted tokens`);
  }

  showLargest() {
    this.following = false;
    this.show(this.run.largest);
  }

  // Who goes back to an earlier pass stays there; the last one is followed again.
  onInput() {
    const {valueAsNumber, max} = this.slider;
    this.following = valueAsNumber === Number(max);
    this.show(valueAsNumber - 1);
  }
}
