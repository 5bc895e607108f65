/** HTML of which every text is escaped: what a run recorded is shown, and never read as markup. */
import { printable } from '../../../core/errors.js';

/** Text that is HTML already. */
export class Markup {
  constructor(readonly text: string) {}
}

export type Content = string | number | Markup | null | readonly Content[];

/** A template whose values are escaped, unless they are Markup; lists are joined, null is nothing. */
export function html(texts: TemplateStringsArray, ...values: readonly Content[]): Markup {
  return new Markup(texts.map((text, at) => text + (at < values.length ? render(values[at]) : '')).join(''));
}

function render(value: Content): string {
  if (value === null) return '';
  if (value instanceof Markup) return value.text;
  if (typeof value === 'string' || typeof value === 'number') return escapeHtml(String(value));
  return value.map(render).join('');
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

function escapeHtml(text: string): string {
  return printable(text).replace(/[&<>"']/g, (character) => ENTITIES[character]);
}

/** A whole page in one file, which asks nothing of anywhere: the policy forbids it, scripts as well. */
export function page(title: string, body: Markup): string {
  return html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta
          http-equiv="Content-Security-Policy"
          content="default-src 'none'; img-src data:; style-src 'unsafe-inline'"
        />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="color-scheme" content="light dark" />
        <link rel="icon" href="data:," />
        <title>${title}</title>
        <style>
          ${new Markup(STYLE)}
        </style>
      </head>
      <body>
        <main>${body}</main>
      </body>
    </html> `.text;
}

/** How many colours of series there are. */
export const COLOURS = 10;

/** The colour of the nth series, as the page defines it for light and for dark. */
export function colour(index: number): string {
  return `var(--c${index % COLOURS})`;
}

const LIGHT = `--ground:#ffffff;--panel:#f6f7f9;--ink:#1d2228;--muted:#5b6570;--line:#dfe3e8;--good:#1b6e43;--bad:#a3231c;--warn:#8a5200;
--c0:#1f5fa8;--c1:#c8590a;--c2:#2b7d52;--c3:#7447a0;--c4:#b3261e;--c5:#0f7f8c;--c6:#8a5a2b;--c7:#b0418f;--c8:#5b6570;--c9:#7a7000;`;
const DARK = `--ground:#14171b;--panel:#1d2127;--ink:#e6e9ed;--muted:#a3acb6;--line:#333a43;--good:#6cc496;--bad:#f28b82;--warn:#e8b45e;
--c0:#6aa9ef;--c1:#f2955a;--c2:#5fc08f;--c3:#b48ae0;--c4:#f28b82;--c5:#4fc3d0;--c6:#c99a6b;--c7:#e58ac7;--c8:#aab3bd;--c9:#cfc24a;`;

const STYLE = `
:root{${LIGHT}}
@media screen and (prefers-color-scheme:dark){:root{${DARK}}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;overflow-wrap:anywhere}
main{max-width:1120px;margin:0 auto;padding:28px 24px 60px}
h1{font-size:26px;line-height:1.2;margin:0 0 4px}
h2{font-size:19px;margin:40px 0 12px;padding-top:14px;border-top:1px solid var(--line)}
h3{font-size:15px;margin:18px 0 6px}
p{margin:6px 0}
.muted,figcaption small,th small{color:var(--muted);font-weight:400}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:10px;margin:18px 0 8px}
.facts>div{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:10px 14px;break-inside:avoid}
.facts dt,.facts .name{color:var(--muted);font-size:12.5px;letter-spacing:.02em}
.facts .value{font-size:18px;font-weight:600;line-height:1.35}
.facts .more{font-size:13px;color:var(--muted)}
.notice{border:1px solid var(--warn);border-left-width:5px;border-radius:6px;padding:8px 14px;margin:14px 0}
.notice li{margin:2px 0;white-space:pre-wrap}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:5px 10px 5px 0;border-bottom:1px solid var(--line);vertical-align:top}
th{font-size:13px;color:var(--muted);font-weight:600;white-space:nowrap}
td.number,th.number{text-align:right;white-space:nowrap}
tr.winner td{font-weight:650}
td:first-child code{overflow-wrap:break-word}
code{font:12.5px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.said{white-space:pre-wrap}
figure{margin:0 0 8px;break-inside:avoid}
figcaption{font-weight:600;font-size:14px;margin:10px 0 2px}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,460px),1fr));gap:6px 24px}
svg{display:block;width:100%;height:auto}
.narrow{display:none}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:13px;margin:4px 0}
.legend span::before,.swatch::before{content:"";display:inline-block;width:16px;height:4px;border-radius:2px;margin-right:6px;vertical-align:middle;background:var(--s)}
.bar{display:flex;height:16px;min-width:160px;border-radius:3px;overflow:hidden}
.bar i{background:var(--s)}
.sheets{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,340px),1fr));gap:16px}
.sheets img{width:100%;background:#fff;border:1px solid var(--line);border-radius:6px}
details{margin:10px 0}
summary{cursor:pointer;font-weight:600}
.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}
@media screen and (max-width:700px){.wide{display:none}.narrow{display:block}}
@media (max-width:600px){main{padding:18px 14px 40px}h1{font-size:21px}}
@media print{
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
body{font-size:11pt}main{max-width:none;padding:0}
h2,h3,figcaption{break-after:avoid}tr,img{break-inside:avoid}
details::details-content{content-visibility:visible;display:block;height:auto}
.scroll{overflow:visible}
.grid{grid-template-columns:1fr 1fr;gap:2px 16px}
.facts{grid-template-columns:repeat(4,1fr)}
.sheets{grid-template-columns:repeat(3,1fr)}
h2{margin-top:22px}
}
`;
