/** Shape rules of two-dimensional convolutions. */
import { GraphError } from '../../core/errors.js';
import type { Convolution } from '../attributes.js';
import type { ValueType } from '../ir.js';
import { formatShape, sameShape } from '../ir.js';
import type { OnnxForm, OperatorTable } from './spec.js';
import { expectArity, expectDtype } from './spec.js';

type Sizes = readonly [number, number, number, number];

function operands(inputs: readonly ValueType[], { strides, pads, dilations }: Convolution): readonly [Sizes, Sizes] {
  for (const input of inputs) expectDtype(input, 'float32');
  const [x, kernels] = [inputs[0].shape, inputs[1].shape];
  if (x.length !== 4 || kernels.length !== 4) throw new GraphError('takes pictures and kernels of four axes');
  if ([...strides, ...dilations].some((step) => !Number.isInteger(step) || step < 1)) {
    throw new GraphError(
      `moves by ${formatShape(strides)} and reads ${formatShape(dilations)} apart; both must be 1 or more`,
    );
  }
  if (pads.some((pad) => !Number.isInteger(pad) || pad < 0)) throw new GraphError(`pads by ${formatShape(pads)}`);
  return [x as unknown as Sizes, kernels as unknown as Sizes];
}

/** How far apart the first and the last element lie that a kernel reads, and one. */
const extent = (kernels: Sizes, { dilations }: Convolution, axis: 0 | 1): number =>
  dilations[axis] * (kernels[2 + axis] - 1) + 1;

const padded = ({ pads }: Convolution, axis: 0 | 1): number => pads[axis] + pads[axis + 2];

const form = ({ strides, pads, dilations }: Convolution): OnnxForm => ({ attributes: { strides, pads, dilations } });

export const convolutions: OperatorTable<'Conv' | 'ConvTranspose'> = {
  Conv: {
    infer: (inputs, attributes) => {
      if (inputs.length !== 3) expectArity(inputs, 2);
      const [x, kernels] = operands(inputs, attributes);
      if (x[1] !== kernels[1]) throw new GraphError(`kernels of ${kernels[1]} channels for pictures of ${x[1]}`);
      if (inputs.length === 3 && !sameShape(inputs[2].shape, [kernels[0]])) {
        throw new GraphError(`adds ${formatShape(inputs[2].shape)}, which must be [${kernels[0]}]`);
      }
      const [rows, columns] = ([0, 1] as const).map((axis) => {
        const room = x[2 + axis] + padded(attributes, axis) - extent(kernels, attributes, axis);
        if (room < 0) {
          throw new GraphError(`kernels ${formatShape(kernels)} are larger than the padded picture ${formatShape(x)}`);
        }
        return Math.floor(room / attributes.strides[axis]) + 1;
      });
      return { shape: [x[0], kernels[0], rows, columns], dtype: 'float32' };
    },
    onnx: form,
  },
  ConvTranspose: {
    infer: (inputs, attributes) => {
      expectArity(inputs, 2);
      const [x, kernels] = operands(inputs, attributes);
      if (x[1] !== kernels[0]) throw new GraphError(`kernels for ${kernels[0]} channels, and pictures of ${x[1]}`);
      const { strides, outputPadding } = attributes;
      if (outputPadding.some((more, axis) => more < 0 || more >= strides[axis])) {
        throw new GraphError(
          `outputPadding ${formatShape(outputPadding)} must be less than the strides ${formatShape(strides)}`,
        );
      }
      const [rows, columns] = ([0, 1] as const).map((axis) => {
        const whole = strides[axis] * (x[2 + axis] - 1) + extent(kernels, attributes, axis) + outputPadding[axis];
        return whole - padded(attributes, axis);
      });
      return { shape: [x[0], kernels[1], rows, columns], dtype: 'float32' };
    },
    onnx: (attributes) => ({
      attributes: { ...form(attributes).attributes, output_padding: attributes.outputPadding },
    }),
  },
};
