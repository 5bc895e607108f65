import { describe, expect, it } from 'vitest';
import { Session } from '../../../src/compute/onnx/session.js';
import { add, mul, sumAll } from '../../../src/compute/graph/build.js';
import { gradients } from '../../../src/compute/graph/differentiate.js';
import { Graph, sizeOf, topological, type Value } from '../../../src/compute/graph/ir.js';
import { HeadOrder } from '../../../src/compute/nets/decoder/heads.js';

const prompts = 2;
const depth = 2;
const promptColumns = 3;
const answers = 2;
const answerColumns = 4;
const promptRows = prompts * promptColumns;
const rowCount = promptRows + prompts * answers * answerColumns;

interface Part {
  readonly prompts: number;
  readonly answers: number;
  readonly columns: number;
}
const promptPart: Part = { prompts, answers: 1, columns: promptColumns };
const answerPart: Part = { prompts, answers, columns: answerColumns };

/** Elements of rows [N, K * R * D], each a number of its own. */
const element = (row: number, head: number, at: number): number => 100 * row + 10 * head + at;

/** What `split` is to give for one part, from the words of its description: the order [P, K, G, R, T, D]. */
function expected(part: Part, firstRow: number, k: number, r: number): number[] {
  const out: number[] = [];
  for (let p = 0; p < part.prompts; p++) {
    for (let key = 0; key < k; key++) {
      for (let g = 0; g < part.answers; g++) {
        for (let query = 0; query < r; query++) {
          for (let t = 0; t < part.columns; t++) {
            const row = firstRow + (p * part.answers + g) * part.columns + t;
            for (let d = 0; d < depth; d++) out.push(element(row, key * r + query, d));
          }
        }
      }
    }
  }
  return out;
}

describe.each([
  ['a head per key', 3, 1],
  ['grouped queries', 2, 3],
  ['a single head', 1, 1],
])('heads: %s', (_name, k, r) => {
  const width = k * r * depth;
  const heads = { keyValueHeads: k, queriesPerHead: r, depth };
  const data = Float32Array.from({ length: rowCount * width }, (_, i) =>
    element(Math.floor(i / width), Math.floor((i % width) / depth), i % depth),
  );

  function parts(graph: Graph): { rows: Value; split: { order: HeadOrder; x: Value }[] } {
    const rows = graph.parameter('rows', [rowCount, width]);
    const both: [Part, number][] = [
      [promptPart, 0],
      [answerPart, promptRows],
    ];
    const split = both.map(([part, firstRow]) => {
      const order = new HeadOrder(graph, part, heads, firstRow);
      return { order, x: order.split(rows, [part.prompts * k * part.answers, r, part.columns, depth]) };
    });
    return { rows, split };
  }

  async function values(graph: Graph, outputs: Record<string, Value>): Promise<Record<string, number[]>> {
    const session = await Session.compile(graph, outputs);
    const out = await session.run({}, new Map([['rows', { data }]]));
    await session.dispose();
    return Object.fromEntries(Object.entries(out).map(([name, tensor]) => [name, Array.from(tensor as Float32Array)]));
  }

  it('cuts each part out of the batch, one head after another', async () => {
    const graph = new Graph('split');
    const [prompt, answer] = parts(graph).split;
    const out = await values(graph, { prompt: prompt.x, answer: answer.x });
    expect(out['prompt']).toEqual(expected(promptPart, 0, k, r));
    expect(out['answer']).toEqual(expected(answerPart, promptRows, k, r));
  });

  it('joins parts to the rows that they were cut from', async () => {
    const graph = new Graph('join');
    const out = await values(graph, { rows: HeadOrder.join(parts(graph).split) });
    expect(out['rows']).toEqual([...data]);
  });

  it('passes gradients back through splitting and joining, without padding', async () => {
    const graph = new Graph('gradient');
    const { rows, split } = parts(graph);
    // f = sum_j w_j rows_j^2, a part's weights in the order of its heads; then the same rows once more, in their own order.
    const weighted = split.map(({ x }, i) => {
      const weights = Float32Array.from({ length: x.size }, (_, j) => ((j * 7 + i) % 11) - 5);
      return sumAll(mul(graph.constant(weights, x.shape), mul(x, x)));
    });
    const again = graph.constant(
      Float32Array.from({ length: rows.size }, (_, j) => (j % 5) - 2),
      rows.shape,
    );
    const loss = add(weighted.reduce(add), sumAll(mul(again, HeadOrder.join(split))));
    const [d] = gradients(loss, [rows]);
    const out = await values(graph, { d });

    const wanted = new Array<number>(sizeOf(rows.shape));
    [promptPart, answerPart].forEach((part, i) => {
      expected(part, i === 0 ? 0 : promptRows, k, r).forEach((x, j) => {
        const at = data.indexOf(x);
        wanted[at] = 2 * (((j * 7 + i) % 11) - 5) * x + ((at % 5) - 2);
      });
    });
    expect(out['d']).toEqual(wanted);
    const operators = topological([d]).flatMap(({ origin }) => (origin.kind === 'node' ? [origin.op] : []));
    expect(operators).not.toContain('Pad');
  });
});
