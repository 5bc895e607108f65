import { expect, it } from 'vitest';
import { escapeHtml, escapeJson } from '../../../src/web/report/document.js';

const HOSTILE = `</title><script>alert(1)</script><!--<img src="http://evil.example/x" onerror='alert(2)'>\u001b[2J\u202e`;

it('escapes markup, and spells out every mark that turns the direction of text', () => {
  expect(escapeHtml('<i> & "x" \'y\'')).toBe('&lt;i&gt; &amp; &quot;x&quot; &#39;y&#39;');
  const turning = [0x200e, 0x200f, 0x202a, 0x202b, 0x202c, 0x202d, 0x202e, 0x2066, 0x2067, 0x2068, 0x2069];
  for (const code of turning) {
    expect(escapeHtml(`a${String.fromCharCode(code)}b`)).toBe(`a\\u${code.toString(16)}b`);
  }
});

it('writes data that say what they said, with nothing in them that ends a script or turns text', () => {
  const text = escapeJson({ text: HOSTILE, 'a\tb': ['\n\u007f\ufeff'] });
  expect(text).not.toMatch(/[<\u0000-\u001f\u007f\u202e\ufeff]/);
  expect(JSON.parse(text)).toEqual({ text: HOSTILE, 'a\tb': ['\n\u007f\ufeff'] });
});
