/** Every operator by name. The type makes a missing one a compile error. */
import type { OpType } from '../attributes.js';
import { convolutions } from './convolutions.js';
import { elementwise } from './elementwise.js';
import { form } from './form.js';
import { norms } from './norms.js';
import { products } from './products.js';
import { reductions } from './reductions.js';
import type { OperatorTable } from './spec.js';

export const operators: OperatorTable<OpType> = {
  ...elementwise,
  ...products,
  ...convolutions,
  ...norms,
  ...form,
  ...reductions,
};
