/** A stable, readable listing of a graph: one line per value that the outputs depend on. */
import type { Graph, Value } from './ir.js';
import { formatType, topological } from './ir.js';

/** Constants of more elements than this are abridged. */
const SHOWN_ELEMENTS = 4;

/** Lists what `outputs` depend on. Numbers are given in order of appearance, so that equal graphs have equal listings. */
export function printGraph(graph: Graph, outputs: ReadonlyMap<string, Value>): string {
  const names = new Map<Value, string>();
  const order = topological([...outputs.values()]);
  const lines = [`graph ${graph.name}`];
  let next = 0;
  for (const value of order) {
    const { origin } = value;
    const name = origin.kind === 'input' || origin.kind === 'parameter' ? value.name : String(next++);
    names.set(value, `%${name}`);
    lines.push(`  %${name}: ${formatType(value)} = ${describe(value, names)}`);
  }
  for (const [name, value] of outputs) lines.push(`  output ${name} = ${names.get(value)}`);
  return `${lines.join('\n')}\n`;
}

function describe(value: Value, names: ReadonlyMap<Value, string>): string {
  const { origin } = value;
  switch (origin.kind) {
    case 'input':
    case 'parameter':
      return origin.kind;
    case 'constant': {
      const shown = Array.from(origin.data.subarray(0, SHOWN_ELEMENTS) as Iterable<number | bigint>, String).join(', ');
      return `constant {${shown}${origin.data.length > SHOWN_ELEMENTS ? ', …' : ''}}`;
    }
    case 'node': {
      const inputs = origin.inputs.map((input) => names.get(input)).join(', ');
      const attributes = Object.entries(origin.attributes).map(([key, x]) => `${key}=${JSON.stringify(x)}`);
      return `${origin.op}(${inputs})${attributes.length > 0 ? ` {${attributes.join(', ')}}` : ''}`;
    }
  }
}
