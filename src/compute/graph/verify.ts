/** Checks a graph from scratch before it goes to the runtime. */
import { InternalError } from '../../core/errors.js';
import {
  formatType,
  type Graph,
  type NodeOrigin,
  type OpType,
  sameShape,
  sizeOf,
  topological,
  type Value,
} from './ir.js';
import { operators, type OperatorSpec } from './operators.js';

/** Raises InternalError quoting the first value whose type, ownership or data is inconsistent. */
export function verifyGraph(graph: Graph, outputs: ReadonlyMap<string, Value>): void {
  const fail = (value: Value, problem: string): never => {
    throw new InternalError(`graph ${graph.name}: ${String(value)} ${problem}`);
  };
  for (const value of topological([...outputs.values()])) {
    if (value.graph !== graph) fail(value, 'is from another graph');
    const { origin } = value;
    switch (origin.kind) {
      case 'input':
        if (!graph.inputs.includes(value)) fail(value, 'is not among the inputs of its graph');
        break;
      case 'parameter':
        if (graph.parameters.get(value.name) !== value) fail(value, 'is not the parameter of that name');
        break;
      case 'constant':
        if (origin.data.length !== sizeOf(value.shape)) fail(value, `holds ${origin.data.length} elements`);
        break;
      case 'node':
        verifyNode(value, origin, fail);
        break;
    }
  }
}

function verifyNode(value: Value, origin: NodeOrigin, fail: (value: Value, problem: string) => never): void {
  for (const input of origin.inputs) if (input.id >= value.id) fail(value, `uses %${input.name}, which is made later`);
  const type = (operators[origin.op] as OperatorSpec<OpType>).infer(origin.inputs, origin.attributes);
  if (!sameShape(type.shape, value.shape) || type.dtype !== value.dtype) {
    fail(value, `should be ${formatType(type)} by the rule of ${origin.op}`);
  }
}
