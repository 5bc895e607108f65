/** Weights that stay on the device: copied there once, and read by every session of this process. */
import { identityModel } from '../../graph/onnx_messages.js';
import type * as Ort from 'onnxruntime-node';

type Held = Float32Array | Uint16Array;

/** The copies by what they were made of. */
const copies = new WeakMap<Held, Promise<Ort.Tensor>>();
const uploads = new Map<string, Promise<Ort.InferenceSession>>();

/**
 * The copy of a tensor on WebGPU's device, which is made when it is first asked for: its elements may not change afterwards. It is what a session gives
 * that passes the tensor on, since onnxruntime-node makes no tensor of a device otherwise. Raises what onnxruntime raises.
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
