/** A report as one self-contained file: its data, the script that shows it, and a text version for readers without scripts. */
import { createHash } from 'node:crypto';
import { printable } from '../../core/errors.js';
import { builtFile } from '../page_files.js';
import type { WireReport } from '../wire.js';

/**
 * `text` is the report as on a terminal. The policy allows only the page's script and inlined images. Raises RunError if the page was not built.
 */
export function reportDocument(title: string, report: WireReport, text: string): string {
  const script = builtFile('report.js').trim();
  const digest = createHash('sha256').update(script).digest('base64');
  const policy = `default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-${digest}'`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>${escapeHtml(title)}</title>
<style>${builtFile('page.css')}</style>
</head>
<body>
<div id="page"></div>
<noscript><main class="report"><pre>${escapeHtml(text)}</pre>
<p>With JavaScript, which is in this file, the page shows curves and images as well.</p></main></noscript>
<script id="report" type="application/json">${escapeJson(report)}</script>
<script>${script}</script>
</body>
</html>
`;
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

export function escapeHtml(text: string): string {
  return printable(text).replace(/[&<>"']/g, (character) => ENTITIES[character]);
}

/** JSON without control characters that cannot close the element that contains it. */
export function escapeJson(value: unknown): string {
  // Writes JSON escapes for the characters that `printable` escapes. JSON never contains raw line breaks or tabs.
  return printable(JSON.stringify(value)).replaceAll('<', '\\u003c');
}
