// Copies a text, and says so on the button for a moment.

const SHOWN_MS = 1500;

export async function copyText(text, button) {
  button.textContent = await copy(text) ? 'Copied' : 'Not allowed';
  setTimeout(() => {
    button.textContent = 'Copy';
  }, SHOWN_MS);
}

// Browsers give the clipboard only to pages of this machine or over TLS; elsewhere the older way.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copySelected(text);
  }
}

function copySelected(text) {
  const field = document.createElement('textarea');
  field.value = text;
  field.className = 'offscreen';
  document.body.append(field);
  field.select();
  const copied = document.execCommand('copy');
  field.remove();
  return copied;
}
