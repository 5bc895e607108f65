/** Parses chat templates. */
import * as jinja from '@huggingface/jinja';

/** A node of a template's syntax tree. */
export interface Node {
  readonly type: string;
  readonly value?: unknown;
  readonly operator?: { readonly value: string };
  readonly name?: { readonly value: string };
  readonly [child: string]: unknown;
}

/** The package's own declarations cannot be resolved from a module. */
const { parse, tokenize } = jinja as unknown as {
  readonly parse: (tokens: unknown) => Node;
  readonly tokenize: (
    source: string,
    options: { readonly trim_blocks: boolean; readonly lstrip_blocks: boolean },
  ) => unknown;
};

/** Parses as transformers configures jinja2: `trim_blocks`, `lstrip_blocks`. Throws the parser's error. */
export function parseTemplate(source: string): Node {
  const lines = source.replace(/\r\n?/g, '\n');
  return parse(tokenize(lines, { trim_blocks: true, lstrip_blocks: true }));
}
