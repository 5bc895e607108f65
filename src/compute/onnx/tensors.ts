/**
 * Tensors that stay on the device: outputs of one run that the next run reads, and weights that every session of this
 * process reads.
 */
import type * as Ort from 'onnxruntime-node';
import { InternalError } from '../../core/errors.js';
import { formatShape, sameShape, type ValueType } from '../graph/ir.js';
import { identityModel } from '../graph/onnx_messages.js';

/** The elements of a tensor: float32, int64, or bool as bytes of 0 and 1. */
export type TensorData = Float32Array | BigInt64Array | Uint8Array;

/**
 * Whether sessions with this provider can leave outputs on the device. onnxruntime-node supports tensors in WebGPU's
 * buffers, but not on CUDA.
 */
export function canKeepOnDevice({ provider = 'cpu' }: { readonly provider?: string }): boolean {
  return provider === 'webgpu';
}

/**
 * A place for a tensor: a run reads its content, or replaces it by an output. Whoever made the cell disposes of it,
 * before the session that made the tensor, because the session owns the device's memory.
 */
export class TensorCell {
  #tensor: Ort.Tensor | null = null;

  /**
   * @param start the content before the first run. Null if reading it would be a mistake
   */
  constructor(private readonly start: TensorData | null = null) {}

  /**
   * The content: elements of this process, or a tensor of this type. Raises InternalError for no content, or for
   * another type.
   */
  read(name: string, { dtype, shape }: ValueType): { readonly elements: TensorData } | { readonly tensor: Ort.Tensor } {
    const tensor = this.#tensor;
    if (tensor === null) {
      if (this.start === null) throw new InternalError(`${name} is read from a cell before anything is in it`);
      return { elements: this.start };
    }
    if (tensor.type !== dtype || !sameShape(tensor.dims, shape)) {
      const found = `${tensor.type}${formatShape(tensor.dims)}`;
      throw new InternalError(`${name} needs ${dtype}${formatShape(shape)}, but its cell has ${found}`);
    }
    return { tensor };
  }

  /** Takes ownership of a tensor, and frees the previous one. */
  put(tensor: Ort.Tensor): void {
    this.dispose();
    this.#tensor = tensor;
  }

  /** Frees the content. No run may be reading it. */
  dispose(): void {
    this.#tensor?.dispose();
    this.#tensor = null;
  }
}

type Held = Float32Array | Uint16Array;

/** The copies by their originals. */
const copies = new WeakMap<Held, Promise<Ort.Tensor>>();
const uploads = new Map<string, Promise<Ort.InferenceSession>>();

/**
 * The copy of a tensor on WebGPU's device, made on first use. Its elements may not change afterwards. A session that
 * returns its input makes the copy, because onnxruntime-node has no other way to make a tensor on a device. Raises
 * onnxruntime's errors.
 */
export function residentTensor(ort: typeof Ort, tensor: Ort.Tensor, elements: Held): Promise<Ort.Tensor> {
  const known = copies.get(elements);
  if (known !== undefined) return known;
  const copy = upload(ort, tensor);
  copies.set(elements, copy);
  copy.catch(() => copies.delete(elements));
  return copy;
}

async function upload(ort: typeof Ort, tensor: Ort.Tensor): Promise<Ort.Tensor> {
  const dtype = tensor.type === 'float16' ? 'float16' : 'float32';
  const key = `${dtype} of rank ${tensor.dims.length}`;
  const session =
    uploads.get(key) ??
    ort.InferenceSession.create(identityModel(dtype, tensor.dims.length), {
      executionProviders: ['webgpu'],
      preferredOutputLocation: 'gpu-buffer',
      logSeverityLevel: 3,
    });
  uploads.set(key, session);
  session.catch(() => uploads.delete(key));
  const { y } = await (await session).run({ x: tensor });
  return y;
}
