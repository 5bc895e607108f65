import { expect, it } from 'vitest';
import { html } from '../../../../src/run/report/html/markup.js';

it('escapes markup, and spells out every mark that turns the direction of text', () => {
  expect(html`<b>${'<i> & "x" \'y\''}</b>`.text).toBe('<b>&lt;i&gt; &amp; &quot;x&quot; &#39;y&#39;</b>');
  const turning = [0x200e, 0x200f, 0x202a, 0x202b, 0x202c, 0x202d, 0x202e, 0x2066, 0x2067, 0x2068, 0x2069];
  for (const code of turning) {
    expect(html`${`a${String.fromCharCode(code)}b`}`.text).toBe(`a\\u${code.toString(16)}b`);
  }
});
